//! `[dataset.table]`: numbers in a CSV file, one column of which is the target.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use xrun::dataset::digest::digest;
use xrun::dataset::error::DataError;
use xrun::dataset::kind::{DatasetFacts, DatasetKind};
use xrun::dataset::open_dataset::{AnyDataset, OpenDataset, SampleType};
use xrun::problem::{Problem, Problems};
use xrun::settings::variant::{Kind, Paths};

/// Numbers in a CSV file with a header.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Table {
    /// CSV file. Relative to the experiment file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Column to predict. Default: the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
}

impl DatasetKind for Table {
    fn kind() -> &'static Kind<dyn DatasetKind> {
        const FACTS: DatasetFacts = DatasetFacts { sample_type: SampleType::of::<Rows>(), limit_keys: &[] };
        const { &Kind::<dyn DatasetKind>::new::<Self>("table", FACTS) }
    }

    fn check(&self, problems: &mut Problems) {
        match &self.path {
            None => problems.add(Problem::new("dataset.table.path", "is missing").help("add `path = \"numbers.csv\"`")),
            Some(path) if !PathBuf::from(path).is_file() => {
                problems.add(Problem::new("dataset.table.path", format!("there is no file {path}")));
            }
            Some(_) => {}
        }
    }

    fn paths(&mut self) -> Paths<'_> {
        vec![("path", &mut self.path)]
    }

    fn files(&self) -> Vec<PathBuf> {
        self.path.iter().map(PathBuf::from).collect()
    }

    fn open(&self) -> Result<Box<dyn AnyDataset>, DataError> {
        Ok(Box::new(read(self)?))
    }
}

/// Rows of a table: the inputs, then the target.
pub struct Rows {
    pub rows: Vec<Vec<f32>>,
    pub digest: String,
}

impl OpenDataset for Rows {
    const SAMPLE_NOUN: &'static str = "rows of numbers";
    /// Number of rows.
    type Summary = u64;
    type LoaderSettings = ();

    fn summary(&self) -> u64 {
        self.rows.len() as u64
    }
}

/// Reads the table.
fn read(settings: &Table) -> Result<Rows, DataError> {
    let path = settings.path.as_deref().unwrap_or_default();
    let error = |message: String| DataError::file(path.as_ref(), message);
    let bytes = std::fs::read(path).map_err(|cause| error(cause.to_string()))?;
    let mut reader = csv::Reader::from_reader(bytes.as_slice());
    let header = reader.headers().map_err(|cause| error(cause.to_string()))?.clone();
    let target = match &settings.target {
        None => header.len().saturating_sub(1),
        Some(name) => header.iter().position(|column| column == name).ok_or_else(|| {
            error(format!(
                "has no column \"{name}\" (dataset.table.target); it has {}",
                header.iter().collect::<Vec<_>>().join(", ")
            ))
        })?,
    };
    let mut rows: Vec<Vec<f32>> = Vec::new();
    for record in reader.records() {
        let record = record.map_err(|cause| error(cause.to_string()))?;
        let line = record.position().map_or(0, csv::Position::line);
        let number = |(column, text): (usize, &str)| match text.trim().parse::<f32>() {
            Ok(number) if number.is_finite() => Ok(number),
            _ => Err(error(format!("line {line}: `{}` is not a finite number: \"{text}\"", &header[column]))),
        };
        let mut row = record.iter().enumerate().map(number).collect::<Result<Vec<f32>, _>>()?;
        let value = row.remove(target);
        row.push(value);
        rows.push(row);
    }
    if rows.len() < 4 || header.len() < 2 {
        let found = format!("has {} rows of {} columns", rows.len(), header.len());
        return Err(error(format!("{found}, but at least 4 rows of 2 columns are needed")));
    }
    Ok(Rows { rows, digest: digest(&bytes) })
}

/// Standardises each column of both sets by the mean and standard deviation of `rows`.
pub fn standardize(rows: &mut [Vec<f32>], held_out: &mut [Vec<f32>]) {
    for column in 0..rows[0].len() {
        let mean = rows.iter().map(|row| row[column]).sum::<f32>() / rows.len() as f32;
        let variance = rows.iter().map(|row| (row[column] - mean).powi(2)).sum::<f32>() / rows.len() as f32;
        let deviation = if variance > 0.0 { variance.sqrt() } else { 1.0 };
        rows.iter_mut().chain(&mut *held_out).for_each(|row| row[column] = (row[column] - mean) / deviation);
    }
}
