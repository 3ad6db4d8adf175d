//! `[dataset.table]`: numbers in a CSV file, one column of which is to be predicted.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use xrun::dataset::digest::digest;
use xrun::dataset::error::DataError;
use xrun::dataset::index::Index;
use xrun::dataset::kind::DatasetKind;
use xrun::problem::{Problem, Problems};

pub struct Table;

/// Numbers in a CSV file with a header.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// The file. Relative to the experiment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The column to predict. Default: the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
}

impl DatasetKind for Table {
    const NAME: &'static str = "table";
    type Settings = Settings;
    type Index = Rows;

    fn check(settings: &Settings, problems: &mut Problems) {
        match &settings.path {
            None => problems.add(Problem::new("dataset.table.path", "is missing").help("add `path = \"numbers.csv\"`")),
            Some(path) if !PathBuf::from(path).is_file() => {
                problems.add(Problem::new("dataset.table.path", format!("there is no file {path}")));
            }
            Some(_) => {}
        }
    }

    fn paths(settings: &mut Settings) -> Vec<(&'static str, &mut Option<String>)> {
        vec![("path", &mut settings.path)]
    }

    fn files(settings: &Settings) -> Vec<PathBuf> {
        settings.path.iter().map(PathBuf::from).collect()
    }

    fn open(settings: &Settings) -> Result<Rows, DataError> {
        read(settings)
    }
}

/// A table, read: each row the columns to predict from, and then the one to predict.
pub struct Rows {
    pub rows: Vec<Vec<f32>>,
    pub digest: String,
}

impl Index for Rows {
    const SAMPLES: &'static str = "rows of numbers";
    /// How many rows there are.
    type Seen = u64;
    type Options = ();

    fn count(&self) -> u64 {
        self.rows.len() as u64
    }

    fn digest(&self) -> &str {
        &self.digest
    }

    fn seen(&self) -> u64 {
        self.count()
    }
}

/// Reads it.
fn read(settings: &Settings) -> Result<Rows, DataError> {
    let path = settings.path.as_deref().unwrap_or_default();
    let broken = |message: String| DataError::file(path.as_ref(), message);
    let bytes = std::fs::read(path).map_err(|error| broken(error.to_string()))?;
    let mut reader = csv::Reader::from_reader(bytes.as_slice());
    let header = reader.headers().map_err(|error| broken(error.to_string()))?.clone();
    let target = match &settings.target {
        None => header.len().saturating_sub(1),
        Some(name) => header.iter().position(|column| column == name).ok_or_else(|| {
            broken(format!(
                "has no column \"{name}\" (dataset.table.target); it has {}",
                header.iter().collect::<Vec<_>>().join(", ")
            ))
        })?,
    };
    let mut rows: Vec<Vec<f32>> = Vec::new();
    for record in reader.records() {
        let record = record.map_err(|error| broken(error.to_string()))?;
        let line = record.position().map_or(0, csv::Position::line);
        let number = |(column, text): (usize, &str)| match text.trim().parse::<f32>() {
            Ok(number) if number.is_finite() => Ok(number),
            _ => Err(broken(format!("line {line}: `{}` is no number: \"{text}\"", &header[column]))),
        };
        let mut row = record.iter().enumerate().map(number).collect::<Result<Vec<f32>, _>>()?;
        let predicted = row.remove(target);
        row.push(predicted);
        rows.push(row);
    }
    if rows.len() < 4 || header.len() < 2 {
        let found = format!("has {} rows of {} columns", rows.len(), header.len());
        return Err(broken(format!("{found}, and at least 4 rows of 2 are needed")));
    }
    Ok(Rows { rows, digest: digest(&bytes) })
}

/// Scales each column by the mean and the deviation that it has in `rows`; so `others`, too, which are held out.
pub fn scale(rows: &mut [Vec<f32>], others: &mut [Vec<f32>]) {
    for column in 0..rows[0].len() {
        let mean = rows.iter().map(|row| row[column]).sum::<f32>() / rows.len() as f32;
        let variance = rows.iter().map(|row| (row[column] - mean).powi(2)).sum::<f32>() / rows.len() as f32;
        let deviation = if variance > 0.0 { variance.sqrt() } else { 1.0 };
        rows.iter_mut().chain(&mut *others).for_each(|row| row[column] = (row[column] - mean) / deviation);
    }
}
