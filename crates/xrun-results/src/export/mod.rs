//! Export of a run's lines as tables: Parquet and CSV.
//!
//! A file of lines is read twice: first for the names that become columns, then row by row. Memory: one block of
//! [`columns::ROWS_MAX`] rows, whatever the length of the run.

mod columns;
mod csv;
pub mod event_file_writer;
pub mod keep;
mod parquet;
pub mod public;
mod tables;
pub mod tensorboard;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::ValueEnum;

use self::columns::{ColumnNames, ROWS_MAX, TableColumn};
use crate::format::MetricsLine;
use crate::read;
use crate::read::{LeftOut, ReadError};
use crate::verdict::LineDamage;
use xrun_core::files::write;
use xrun_core::files::write::WriteError;
use xrun_core::files::{layout, sums};

/// Error of an export.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// A file of the run is missing or cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The table cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// File format of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableFormat {
    /// Apache Parquet, compressed with Snappy.
    Parquet,
    /// CSV (RFC 4180) with a header.
    Csv,
}

impl TableFormat {
    fn extension(self) -> &'static str {
        match self {
            Self::Parquet => "parquet",
            Self::Csv => "csv",
        }
    }
}

/// A table of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RunTable {
    /// One row per training step.
    Metrics,
    /// One row per validation.
    Validation,
    /// One row per memory sample.
    Memory,
}

impl RunTable {
    /// All tables, in the order in which they are written.
    pub const ALL: [Self; 3] = [Self::Metrics, Self::Validation, Self::Memory];

    /// File name of the table, without extension.
    pub fn name(self) -> &'static str {
        match self {
            Self::Metrics => "metrics",
            Self::Validation => "validation",
            Self::Memory => "memory",
        }
    }

    /// Name of the `.jsonl` file from which the table is made.
    pub fn source_file(self) -> &'static str {
        match self {
            Self::Metrics | Self::Validation => layout::METRICS,
            Self::Memory => layout::MEMORY,
        }
    }
}

/// A table that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exported {
    /// The table.
    pub table: RunTable,
    /// Path of the file.
    pub path: PathBuf,
    /// Number of rows.
    pub rows: u64,
    /// Number of columns.
    pub columns: usize,
    /// Number of damaged lines left out.
    pub lines_left_out: u64,
    /// Difference of the source from the lines that were written.
    pub line_damage: Option<LineDamage>,
    /// Names beyond [`columns::NAMES_MAX`], or too long, were left out.
    pub names_left_out: bool,
}

/// Writes one table as `<output>/<table>.<format>`, replaced as a whole; `output` must exist. Returns `None` if the
/// run has no such `.jsonl` file: an empty table would claim that nothing was measured.
pub fn export(
    run: &Path,
    table: RunTable,
    format: TableFormat,
    output: &Path,
) -> Result<Option<Exported>, ExportError> {
    if !run.join(table.source_file()).is_file() {
        return Ok(None);
    }
    let file = output.join(format!("{}.{}", table.name(), format.extension()));
    // A list of checksums is written only into xrun's own directory, not into the user's.
    let listed = (output == run.join(layout::EXPORT)).then(|| file.file_name().unwrap_or_default().to_owned());
    let listed = listed.as_ref().and_then(|name| name.to_str());
    if let Some(name) = listed {
        sums::remove(output, &[name]);
    }
    let target = TableFile { table, format, path: file };
    let written = match table {
        RunTable::Memory => {
            let (mut owners, mut phases) = (ColumnNames::default(), ColumnNames::default());
            read::for_each_record(read::memory(run), |line| {
                owners.add(line.owners.keys());
                phases.add(line.phases_us.keys());
                Ok::<(), ExportError>(())
            })?;
            let columns = tables::memory(&owners, &phases);
            let left_out = owners.left_out || phases.left_out;
            target.write(columns, left_out, |handle| read::for_each_record(read::memory(run), handle))
        }
        RunTable::Metrics => {
            let mut values = ColumnNames::default();
            read::for_each_record(read::metrics(run), |line| {
                if let MetricsLine::Train { values: step_values, .. } = &line {
                    values.add(step_values.keys());
                }
                Ok::<(), ExportError>(())
            })?;
            let is_step = |line: &MetricsLine| matches!(line, MetricsLine::Train { .. });
            target.write(tables::training(&values), values.left_out, |handle| {
                read::for_each_record(read::metrics(run), |line| if is_step(&line) { handle(line) } else { Ok(()) })
            })
        }
        RunTable::Validation => {
            let (mut metrics, mut intervals) = (ColumnNames::default(), ColumnNames::default());
            read::for_each_record(read::metrics(run), |line| {
                if let MetricsLine::Validation { metrics: values, intervals: mean_intervals, .. } = &line {
                    metrics.add(values.keys());
                    intervals.add(mean_intervals.keys());
                }
                Ok::<(), ExportError>(())
            })?;
            let is_validation = |line: &MetricsLine| matches!(line, MetricsLine::Validation { .. });
            let left_out = metrics.left_out || intervals.left_out;
            target.write(tables::validation(&metrics, &intervals), left_out, |handle| {
                read::for_each_record(
                    read::metrics(run),
                    |line| if is_validation(&line) { handle(line) } else { Ok(()) },
                )
            })
        }
    };
    if let Some(name) = listed {
        sums::record(output, &[name]);
    }
    written.map(Some)
}

/// A table file to be written.
struct TableFile {
    table: RunTable,
    format: TableFormat,
    path: PathBuf,
}

impl TableFile {
    /// Writes the rows that `feed` passes on, block by block. `feed` returns what it left out.
    fn write<L>(
        self,
        mut columns: Vec<TableColumn<L>>,
        names_left_out: bool,
        feed: impl FnOnce(&mut dyn FnMut(L) -> Result<(), ExportError>) -> Result<LeftOut, ExportError>,
    ) -> Result<Exported, ExportError> {
        let Self { table, format, path } = self;
        let (mut rows, mut left_out, mut failed) = (0u64, LeftOut::default(), None);
        let written = write::replace_with(&path, |file| {
            let mut sink = Sink::open(format, file, &columns)?;
            let fed = feed(&mut |line| {
                columns.iter_mut().for_each(|column| column.add(&line));
                rows += 1;
                if rows.is_multiple_of(ROWS_MAX) {
                    write::with_path(&path, sink.write_block(&columns))?;
                    columns.iter_mut().for_each(TableColumn::clear);
                }
                Ok(())
            });
            match fed {
                Ok(lines) => left_out = lines,
                Err(error) => {
                    failed = Some(error);
                    return Err(io::ErrorKind::Other.into());
                }
            }
            if !rows.is_multiple_of(ROWS_MAX) {
                sink.write_block(&columns)?;
            }
            sink.close()
        });
        match failed {
            Some(error) => return Err(error),
            None => written?,
        }
        let LeftOut { lines: lines_left_out, damage: line_damage } = left_out;
        Ok(Exported { table, path, rows, columns: columns.len(), lines_left_out, line_damage, names_left_out })
    }
}

/// Open file of either format.
enum Sink<'a> {
    Parquet(parquet::Writer<'a>),
    Csv(csv::Writer<'a>),
}

impl<'a> Sink<'a> {
    fn open<L>(format: TableFormat, file: &'a mut (dyn Write + Send), columns: &[TableColumn<L>]) -> io::Result<Self> {
        match format {
            TableFormat::Parquet => parquet::Writer::open(file, columns).map(Self::Parquet),
            TableFormat::Csv => csv::Writer::open(file, columns).map(Self::Csv),
        }
    }

    fn write_block<L>(&mut self, columns: &[TableColumn<L>]) -> io::Result<()> {
        match self {
            Self::Parquet(writer) => writer.write_block(columns),
            Self::Csv(writer) => writer.write_block(columns),
        }
    }

    fn close(self) -> io::Result<()> {
        match self {
            Self::Parquet(writer) => writer.close(),
            Self::Csv(writer) => writer.close(),
        }
    }
}
