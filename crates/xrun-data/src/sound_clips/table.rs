//! Reader of the table of clips, `meta/esc50.csv` or `meta.csv`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use csv::StringRecord;

use crate::reading::confined::{Root, directories, files};
use crate::reading::invalid::{Fault, InvalidCollector};
use crate::reading::survey::survey;
use xrun_core::dataset::error::DataError;
use xrun_core::printable;

/// Names of the table below the directory of the data set.
pub const PLACES: [&str; 2] = ["meta/esc50.csv", "meta.csv"];
/// The columns that must be there.
const NEEDED: [&str; 4] = ["filename", "fold", "target", "category"];
/// Clips of one recording have the same value here; the column may be missing.
const RECORDING: &str = "src_file";
/// Folds of clips in directories of classes.
const FOLDS: u32 = 5;
/// Maximum number of clips.
const CLIPS_MAX: usize = 1_000_000;
/// Maximum number of columns.
const COLUMNS_MAX: usize = 64;
/// Maximum length of a name in bytes.
const NAME_BYTES_MAX: usize = 200;

/// Valid line of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Line of the table, from 1; the header is the first.
    pub line: u64,
    /// The clip's file name, below `audio/`.
    pub file: String,
    /// The fold of a cross-validation that the clip is in.
    pub fold: u32,
    /// The number of its class.
    pub target: u32,
    /// Index into `values` of each column of [`Table::columns`].
    pub values: Vec<u32>,
}

/// The table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// Lines that can be used, in the order of the table.
    pub rows: Vec<Row>,
    /// The category of each target.
    pub categories: BTreeMap<u32, String>,
    /// Columns except for `filename`: name, and the different values in the order in which they come.
    pub columns: Vec<(String, Vec<String>)>,
}

/// The table of a data set in this directory, if there is one.
pub fn find(root: &Path) -> Option<PathBuf> {
    PLACES.iter().map(|place| root.join(place)).find(|path| path.is_file())
}

/// Table of the clips in directories of classes, as Speech Commands has them (Warden 2018). Clips of one speaker, whose name stands before
/// `_nohash_`, and clips of one name are in one fold. Directories whose name begins with `_` are no classes.
///
/// # Errors
/// There are no such directories, or one cannot be read.
pub fn of_directories(root: &Root) -> Result<Table, DataError> {
    let mut files_of = Vec::new();
    for category in directories(root, "")?.into_iter().filter(|name| !name.starts_with('_')) {
        let clips = files(root, &category, &["wav"])?;
        if !clips.is_empty() {
            files_of.push((category, clips));
        }
    }
    if files_of.len() < 2 {
        let [first, second] = PLACES;
        let message = format!(
            "has neither {first} nor {second}, which lists the clips (filename,fold,target,category), nor WAV files in directories of \
             classes{}",
            survey(&root.path)
        );
        return Err(DataError::file(&root.path, message));
    }
    let recording = |clip: &str| clip.split_once("_nohash_").map_or(clip, |(speaker, _)| speaker).to_owned();
    let recordings: BTreeSet<String> =
        files_of.iter().flat_map(|(_, clips)| clips).map(|clip| recording(clip)).collect();
    let fold_of: BTreeMap<String, u32> = recordings.into_iter().zip((1..=FOLDS).cycle()).collect();
    let mut table = Table::default();
    for (target, (category, clips)) in (0..).zip(files_of) {
        for clip in clips {
            let (fold, file) = (fold_of[&recording(&clip)], format!("{category}/{clip}"));
            table.rows.push(Row { line: 0, file, fold, target, values: Vec::new() });
        }
        table.categories.insert(target, category);
    }
    Ok(table)
}

/// Reads the bytes of a table; `path` is for messages. What is wrong with a line goes to the judge.
///
/// # Errors
/// The header does not serve, or there are too many lines.
pub fn read(bytes: &[u8], path: &Path, invalid: &mut InvalidCollector) -> Result<Table, DataError> {
    let failed = |message: String| DataError::file(path, message);
    let mut reader = csv::ReaderBuilder::new().flexible(true).trim(csv::Trim::All).from_reader(bytes);
    let header = reader.headers().map_err(|error| failed(format!("line 1: the header cannot be read: {error}")))?;
    let header = header.clone();
    let positions = column_positions(&header).map_err(|message| failed(format!("line 1: {message}")))?;
    let others: Vec<usize> = (0..header.len()).filter(|at| *at != positions[0]).collect();
    let mut reading = Reading {
        width: header.len(),
        positions,
        recording: header.iter().position(|name| name == RECORDING),
        columns: others.iter().map(|at| Interned { at: *at, numbers: BTreeMap::new(), values: Vec::new() }).collect(),
        files: BTreeMap::new(),
        numbers: BTreeMap::new(),
        folds: BTreeMap::new(),
        table: Table::default(),
    };
    let mut record = StringRecord::new();
    loop {
        match reader.read_record(&mut record) {
            Ok(false) => break,
            Ok(true) => {
                let line = record.position().map_or(0, csv::Position::line);
                if reading.table.rows.len() >= CLIPS_MAX {
                    return Err(failed(format!("line {line}: more than {CLIPS_MAX} clips are not read")));
                }
                if let Err((reason, message)) = reading.row(&record, line) {
                    invalid.add(reason, path, format!("line {line}: {message}"));
                }
            }
            Err(error) => {
                let line = error.position().map_or(0, csv::Position::line);
                return Err(failed(format!("line {line}: cannot be read: {error}")));
            }
        }
    }
    let Reading { columns, mut table, .. } = reading;
    table.columns = columns.into_iter().map(|column| (header[column.at].to_owned(), column.values)).collect();
    Ok(table)
}

/// Positions of the columns that must be there, in the order of [`NEEDED`].
fn column_positions(header: &StringRecord) -> Result<[usize; 4], String> {
    if header.len() > COLUMNS_MAX {
        return Err(format!("{} columns, at most {COLUMNS_MAX} are read", header.len()));
    }
    let mut seen = BTreeSet::new();
    if let Some(twice) = header.iter().find(|name| !seen.insert(*name)) {
        return Err(format!("the column `{}` is there twice; keep one of them", printable::line(twice, 60)));
    }
    let mut positions = [0; 4];
    for (position, wanted) in positions.iter_mut().zip(NEEDED) {
        *position = header.iter().position(|name| name == wanted).ok_or_else(|| {
            let names: Vec<String> = header.iter().take(20).map(|name| printable::line(name, 60)).collect();
            format!("no column `{wanted}`, expected {}, found {}", NEEDED.join(","), names.join(","))
        })?;
    }
    Ok(positions)
}

/// The different values of a column.
struct Interned {
    at: usize,
    numbers: BTreeMap<String, u32>,
    values: Vec<String>,
}

impl Interned {
    fn number(&mut self, value: &str) -> u32 {
        if let Some(number) = self.numbers.get(value) {
            return *number;
        }
        let number = self.values.len() as u32;
        self.values.push(value.to_owned());
        self.numbers.insert(value.to_owned(), number);
        number
    }
}

struct Reading {
    /// Columns of the header.
    width: usize,
    positions: [usize; 4],
    /// Position of the column [`RECORDING`], if there is one.
    recording: Option<usize>,
    columns: Vec<Interned>,
    /// Line of each file.
    files: BTreeMap<String, u64>,
    /// Target of each category, and the first line with it.
    numbers: BTreeMap<String, (u32, u64)>,
    /// Fold of each recording, and the first line with it.
    folds: BTreeMap<String, (u32, u64)>,
    table: Table,
}

impl Reading {
    fn row(&mut self, record: &StringRecord, line: u64) -> Result<(), Fault> {
        if record.len() != self.width {
            return Err(("wrong_columns", format!("has {} columns, the header has {}", record.len(), self.width)));
        }
        let [filename, fold, target, category] = self.positions;
        let file = plain(&record[filename])?;
        if let Some(other) = self.files.get(&file) {
            let shown = printable::line(&file, 60);
            return Err(("repeated_file", format!("the file \"{shown}\" is already in line {other}")));
        }
        let fold = whole("fold", &record[fold])?;
        let target = whole("target", &record[target])?;
        let category = &record[category];
        if category.is_empty() || category.len() > NAME_BYTES_MAX {
            let message = format!("the column `category` has 1 to {NAME_BYTES_MAX} bytes, found {}", category.len());
            return Err(("no_category", message));
        }
        self.agree(target, category)?;
        let recording = self.recording.map(|at| &record[at]).filter(|recording| !recording.is_empty());
        if let Some(recording) = recording
            && let Some((other, first)) = self.folds.get(recording)
            && *other != fold
        {
            let recording = printable::line(recording, 60);
            let message = format!(
                "the recording \"{recording}\" is in fold {fold}, and in line {first} in fold {other}: what is validated \
                 on would be trained on"
            );
            return Err(("recording_in_two_folds", message));
        }
        // Nothing of a line that is left out is remembered.
        if let Some(recording) = recording {
            self.folds.entry(recording.to_owned()).or_insert((fold, line));
        }
        self.numbers.entry(category.to_owned()).or_insert((target, line));
        self.table.categories.entry(target).or_insert_with(|| category.to_owned());
        self.files.insert(file.clone(), line);
        let values = self.columns.iter_mut().map(|column| column.number(&record[column.at])).collect();
        self.table.rows.push(Row { line, file, fold, target, values });
        Ok(())
    }

    /// A target has one category, and a category one target.
    fn agree(&self, target: u32, category: &str) -> Result<(), Fault> {
        let shown = |name: &str| printable::line(name, 60);
        if let Some(other) = self.table.categories.get(&target)
            && other != category
        {
            let first = self.numbers.get(other).map_or(0, |(_, line)| *line);
            let message = format!(
                "target {target} is the category \"{}\", and in line {first} \"{}\"",
                shown(category),
                shown(other)
            );
            return Err(("two_categories", message));
        }
        match self.numbers.get(category) {
            Some((other, first)) if *other != target => {
                let message =
                    format!("the category \"{}\" is target {target}, and in line {first} {other}", shown(category));
                Err(("two_targets", message))
            }
            _ => Ok(()),
        }
    }
}

/// A name of a file below `audio/`, without `.` in it.
fn plain(name: &str) -> Result<String, Fault> {
    let shown = printable::line(name, 60);
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains('\0') {
        let message = format!("the column `filename` has 1 to {NAME_BYTES_MAX} bytes and no zero, found \"{shown}\"");
        return Err(("no_file_name", message));
    }
    let parts = Path::new(name).components();
    if !parts.clone().all(|part| matches!(part, Component::Normal(_) | Component::CurDir)) {
        return Err(("outside", format!("\"{shown}\" names a file outside of the data set's directory")));
    }
    let parts: Vec<&str> = parts.filter_map(|part| part.as_os_str().to_str()).filter(|part| *part != ".").collect();
    Ok(parts.join("/"))
}

fn whole(column: &str, text: &str) -> Result<u32, Fault> {
    text.parse().map_err(|_| {
        let shown = printable::line(text, 60);
        let expected = format!("expected a whole number from 0 to {}", u32::MAX);
        ("no_whole_number", format!("the column `{column}` is \"{shown}\", {expected}"))
    })
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
