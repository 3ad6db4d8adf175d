//! A run's lines -> tables for other tools: Parquet and CSV.
//!
//! A file of lines is read twice, first for the names that columns are made of, then row by row. What is held is one
//! block of [`columns::ROWS_MAX`] rows, whatever the length of the run.

pub mod columns;
mod csv;
pub mod live;
mod parquet;
pub mod public;
mod tables;
pub mod tensorboard;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::ValueEnum;

use self::columns::{Column, Names, ROWS_MAX};
use crate::format::MetricsLine;
use crate::read;
use crate::read::ReadError;
use xrun_core::files::write;
use xrun_core::files::write::WriteError;
use xrun_core::files::{layout, sums};

/// A run could not be exported.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// A file of the run is missing or cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The table cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// What to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Apache Parquet, compressed with Snappy.
    Parquet,
    /// Text with commas (RFC 4180) and a header.
    Csv,
}

impl Format {
    fn extension(self) -> &'static str {
        match self {
            Self::Parquet => "parquet",
            Self::Csv => "csv",
        }
    }
}

/// A table of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Table {
    /// A row each training step.
    Metrics,
    /// A row each validation.
    Validation,
    /// A row each memory sample.
    Memory,
}

impl Table {
    /// All of them, in the order in which they are written.
    pub const ALL: [Self; 3] = [Self::Metrics, Self::Validation, Self::Memory];

    /// The table's file name, without its ending.
    pub fn name(self) -> &'static str {
        match self {
            Self::Metrics => "metrics",
            Self::Validation => "validation",
            Self::Memory => "memory",
        }
    }

    /// The file of lines that it is made of.
    pub fn made_of(self) -> &'static str {
        match self {
            Self::Metrics | Self::Validation => layout::METRICS,
            Self::Memory => layout::MEMORY,
        }
    }
}

/// A file that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exported {
    /// What is in it.
    pub table: Table,
    /// Where it was written.
    pub path: PathBuf,
    /// Rows that were written.
    pub rows: u64,
    /// Columns that it has.
    pub columns: usize,
    /// Lines that are damaged.
    pub lines_left_out: u64,
    /// Names beyond [`columns::NAMES_MAX`], or too long.
    pub names_left_out: bool,
}

/// Writes one table as `<output>/<table>.<format>`, replaced as a whole; `output` must exist. `None` of a run that is
/// kept without the file of lines: an empty table would say that nothing was measured.
pub fn export(run: &Path, table: Table, format: Format, output: &Path) -> Result<Option<Exported>, ExportError> {
    if !run.join(table.made_of()).is_file() {
        return Ok(None);
    }
    let file = output.join(format!("{}.{}", table.name(), format.extension()));
    // In a folder of the user's own xrun leaves no file that nobody asked for.
    let listed = (output == run.join(layout::EXPORT)).then(|| file.file_name().unwrap_or_default().to_owned());
    let listed = listed.as_ref().and_then(|name| name.to_str());
    if let Some(name) = listed {
        sums::forget(output, &[name]);
    }
    let target = Target { table, format, path: file };
    let written = match table {
        Table::Memory => {
            let (mut owners, mut phases) = (Names::default(), Names::default());
            each(read::memory(run), |line| {
                owners.add(line.owners.keys());
                phases.add(line.phases_us.keys());
                Ok(())
            })?;
            let columns = tables::memory(&owners, &phases);
            let left_out = owners.left_out || phases.left_out;
            target.write(columns, left_out, |with| each(read::memory(run), with))
        }
        Table::Metrics => {
            let mut values = Names::default();
            each(read::metrics(run), |line| {
                if let MetricsLine::Train { values: inside, .. } = &line {
                    values.add(inside.keys());
                }
                Ok(())
            })?;
            let is_step = |line: &MetricsLine| matches!(line, MetricsLine::Train { .. });
            target.write(tables::training(&values), values.left_out, |with| {
                each(read::metrics(run), |line| if is_step(&line) { with(line) } else { Ok(()) })
            })
        }
        Table::Validation => {
            let (mut metrics, mut intervals) = (Names::default(), Names::default());
            each(read::metrics(run), |line| {
                if let MetricsLine::Validation { metrics: values, intervals: of_means, .. } = &line {
                    metrics.add(values.keys());
                    intervals.add(of_means.keys());
                }
                Ok(())
            })?;
            let is_validation = |line: &MetricsLine| matches!(line, MetricsLine::Validation { .. });
            let left_out = metrics.left_out || intervals.left_out;
            target.write(tables::validation(&metrics, &intervals), left_out, |with| {
                each(read::metrics(run), |line| if is_validation(&line) { with(line) } else { Ok(()) })
            })
        }
    };
    if let Some(name) = listed {
        sums::noted(output, &[name]);
    }
    written.map(Some)
}

/// Goes through lines one by one, and answers how many did not parse.
fn each<L>(
    lines: Result<impl Iterator<Item = Result<L, ReadError>>, ReadError>,
    mut with: impl FnMut(L) -> Result<(), ExportError>,
) -> Result<u64, ExportError> {
    let mut left_out = 0;
    for line in lines? {
        match line {
            Ok(line) => with(line)?,
            Err(ReadError::Content { .. }) => left_out += 1,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(left_out)
}

/// A file about to be written.
struct Target {
    table: Table,
    format: Format,
    path: PathBuf,
}

impl Target {
    /// Writes the rows that `feed` gives, a block at a time. `feed` answers how many lines it left out.
    fn write<L>(
        self,
        mut columns: Vec<Column<L>>,
        names_left_out: bool,
        feed: impl FnOnce(&mut dyn FnMut(L) -> Result<(), ExportError>) -> Result<u64, ExportError>,
    ) -> Result<Exported, ExportError> {
        let Self { table, format, path } = self;
        let (mut rows, mut lines_left_out, mut failed) = (0u64, 0, None);
        let written = write::replace_with(&path, |file| {
            let mut sink = Sink::open(format, file, &columns)?;
            let fed = feed(&mut |line| {
                columns.iter_mut().for_each(|column| column.add(&line));
                rows += 1;
                if rows.is_multiple_of(ROWS_MAX) {
                    write::at(&path, sink.block(&columns))?;
                    columns.iter_mut().for_each(Column::clear);
                }
                Ok(())
            });
            match fed {
                Ok(left_out) => lines_left_out = left_out,
                Err(error) => {
                    failed = Some(error);
                    return Err(io::ErrorKind::Other.into());
                }
            }
            if !rows.is_multiple_of(ROWS_MAX) {
                sink.block(&columns)?;
            }
            sink.close()
        });
        match failed {
            Some(error) => return Err(error),
            None => written?,
        }
        Ok(Exported { table, path, rows, columns: columns.len(), lines_left_out, names_left_out })
    }
}

/// A file of one of the formats.
enum Sink<'a> {
    Parquet(parquet::Writer<'a>),
    Csv(csv::Writer<'a>),
}

impl<'a> Sink<'a> {
    fn open<L>(format: Format, file: &'a mut (dyn Write + Send), columns: &[Column<L>]) -> io::Result<Self> {
        match format {
            Format::Parquet => parquet::Writer::open(file, columns).map(Self::Parquet),
            Format::Csv => csv::Writer::open(file, columns).map(Self::Csv),
        }
    }

    fn block<L>(&mut self, columns: &[Column<L>]) -> io::Result<()> {
        match self {
            Self::Parquet(writer) => writer.block(columns),
            Self::Csv(writer) => writer.block(columns),
        }
    }

    fn close(self) -> io::Result<()> {
        match self {
            Self::Parquet(writer) => writer.close(),
            Self::Csv(writer) => writer.close(),
        }
    }
}
