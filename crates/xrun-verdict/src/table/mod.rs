//! Verdict on a memory trace of another tool, a table, or a log.
//!
//! One general reader, in stages, whatever the tool:
//!
//! 1. `text` reads lines, and refuses what is no text.
//! 2. Rows are found: `json` in records, `grid` in tables, `log` in all other lines, as numbers behind their names. Few tools have
//!    forms of their own, whose numbers have no names beside them.
//! 3. `columns` makes a sample of each row: its position (`times`), the GPU, rank or process that it is of (`groups`), and its
//!    numbers with their units (`numbers`).
//! 4. `processes` splits the samples where steps or times go back.
//! 5. `names` says what a name means: memory in use, unused memory, a percentage, a total, a request, or something else; `selection`
//!    adds what the numbers say, and chooses what is judged and in which unit, or says why nothing can be.
//! 6. The samples are judged, on a second reading: units, windows and processes depend on the whole file.

mod columns;
mod grid;
mod groups;
mod json;
mod log;
mod names;
mod numbers;
mod options;
mod processes;
mod rows;
mod selection;
mod text;
mod times;

use std::collections::BTreeMap;
use std::path::Path;

use crate::context::Context;
use crate::findings::{UnitSource, Verdict, VerdictWord};
use crate::judge::SeriesKind;
use crate::memory_judge::MemoryJudge;
use crate::names::ALL_PROCESSES;
use crate::thresholds::Thresholds;
use columns::Columns;
use groups::Rounds;
use numbers::Amount;
pub use options::{STEP_COLUMNS, TableError, TableOptions};
use processes::{ProcessSpan, ProcessSplitter, Sample};
use rows::Rows;
pub use selection::POSITIONS;
use selection::Selection;
use text::FileHead;

/// Verdict on a table, with notes on how it was read.
#[derive(Clone, Debug, PartialEq)]
pub struct TableVerdict {
    /// Verdict on all judged columns.
    pub verdict: Verdict,
    /// Notes on how the file was interpreted.
    pub notes: Vec<String>,
}

impl From<Verdict> for TableVerdict {
    fn from(verdict: Verdict) -> Self {
        Self { verdict, notes: Vec::new() }
    }
}

/// Judges a trace of another tool, recognised by its content: mprof, psrecord, HTML pages of memray, nvidia-smi, free,
/// vmstat, top, ps, docker and kubectl, tables with a header, JSON, and lines of `name: value`.
///
/// # Errors
/// The file cannot be read, is no trace, has nothing that can be judged, or an option does not fit it.
pub fn judge_table(path: &Path, options: &TableOptions) -> Result<TableVerdict, TableError> {
    options.unit_bytes()?;
    options.whole_bytes()?;
    let head = FileHead::read(path)?;
    refuse(path, &head)?;
    // What is no table after all may be a log.
    match judge_rows(&|| open(path, &head), options) {
        Err(error @ TableError::Content(_)) if !json::recognizes(&head) => {
            judge_rows(&|| Ok(Box::new(log::Log::open(path, &head, false)?)), options).map_err(|_| error)
        }
        judged => judged,
    }
}

/// Opener of a reader of rows.
type Open<'a> = &'a dyn Fn() -> Result<Box<dyn Rows>, TableError>;

fn judge_rows(open: Open<'_>, options: &TableOptions) -> Result<TableVerdict, TableError> {
    let mut columns = Columns::of(open()?, open()?, options)?;
    let processes = survey(&mut columns)?;
    let selection = selection::select(&columns, options)?;
    let mut notes = columns.notes();
    if let [_, second, ..] = &processes[..] {
        let (count, line) = (processes.len(), second.first_line);
        notes.push(format!("{count} processes, each judged separately; the second begins at line {line}"));
    }
    columns.begin_anew(open()?);
    let verdict = judge_samples(&mut columns, &selection, &processes)?;
    let message = format!("{}{}", selection.caveat, verdict.message);
    let verdict = Verdict { message, not_judged: selection.not_judged, ..verdict };
    Ok(TableVerdict { verdict, notes })
}

/// First reading: the ranges of all series, and the spans of the processes.
fn survey(columns: &mut Columns) -> Result<Vec<ProcessSpan>, TableError> {
    let mut sample = Sample::default();
    let mut splitter = ProcessSplitter::new(columns.positions.axis, columns.tolerance);
    while columns.next_sample(&mut sample)? {
        splitter.locate(&sample)?;
        columns.add_to_ranges(&sample);
    }
    columns.add_empty_series();
    splitter.finish()
}

/// Second reading: the verdict on the selected series of the newest process, or of the worst.
fn judge_samples(
    columns: &mut Columns,
    selection: &Selection,
    processes: &[ProcessSpan],
) -> Result<Verdict, TableError> {
    let axis = columns.positions.axis;
    let judge_of = |process: usize| {
        let steps = processes.get(process).map_or(0, ProcessSpan::length);
        MemoryJudge::new(Context { steps, axis, columns: true, ..Context::default() })
    };
    let mut sample = Sample::default();
    let mut splitter = ProcessSplitter::new(axis, columns.tolerance);
    let mut worst: Option<(usize, Verdict)> = None;
    let mut newest = (0, judge_of(0));
    let mut sums = Sums::default();
    while columns.next_sample(&mut sample)? {
        let (process, position) = splitter.locate(&sample)?;
        if process != newest.0 {
            sums.add_to(&mut newest.1);
            let ended = (newest.0, newest.1.verdict());
            if worst.as_ref().is_none_or(|(_, worst)| ended.1.verdict > worst.verdict) {
                worst = Some(ended);
            }
            newest = (process, judge_of(process));
        }
        if sums.rounds.begins(sample.group) {
            sums.add_to(&mut newest.1);
        }
        let number = |at: usize, amount: Amount| {
            let series = selection.judged.get(at)?.as_ref()?;
            Some((series, series.number(amount)?))
        };
        for (at, amount) in &sample.values {
            let Some((series, mut value)) = number(*at, *amount).filter(|_| !selection.is_swap(*at)) else { continue };
            let swap = sample.values.iter().find(|(other, _)| series.swap == Some(*other));
            value += swap.and_then(|(at, amount)| number(*at, *amount)).map_or(0.0, |(_, value)| value);
            let form = ((SeriesKind::InUse, series.thresholds), Some((series.unit, series.source)));
            if columns.are_processes() {
                let column = &columns.columns[columns.series[*at].column].name;
                sums.columns.entry(column.clone()).or_insert((position, 0.0, form)).1 += value;
            }
            if !series.has_ended {
                newest.1.add_number(position, &series.name, value, form.0, form.1);
            }
        }
    }
    sums.add_to(&mut newest.1);
    Ok(combined(worst, (newest.0, newest.1.verdict()), processes))
}

/// Kind, thresholds and unit of a series.
type Form = ((SeriesKind, Thresholds), Option<(&'static str, UnitSource)>);

/// Sums over all processes of the newest round, by column.
#[derive(Default)]
struct Sums {
    rounds: Rounds,
    columns: BTreeMap<String, (u64, f64, Form)>,
}

impl Sums {
    /// Adds the sums of a complete round to the judge.
    fn add_to(&mut self, judge: &mut MemoryJudge) {
        for (column, (position, sum, form)) in std::mem::take(&mut self.columns) {
            judge.add_number(position, &format!("{column}{ALL_PROCESSES}"), sum, form.0, form.1);
        }
    }
}

/// Refuses files that are of a tool and have no memory over time.
fn refuse(path: &Path, head: &FileHead) -> Result<(), TableError> {
    let end = path.extension().and_then(|end| end.to_str()).unwrap_or_default();
    if let Some((_, program)) = [("py", "python"), ("sh", "bash")].iter().find(|(known, _)| *known == end) {
        let file = path.display();
        return Err(TableError::Content(format!("a program, no trace of one; use `xrun watch -- {program} {file}`")));
    }
    let first = head.lines().next().unwrap_or_default();
    let of_memray = |what: &str| {
        Err(TableError::Content(format!("the file {what}, not memory over time; {}", json::MEMRAY_EXPECTED)))
    };
    match first {
        "" => Err(TableError::Content("the file is empty; expected a trace, a table, or a log".into())),
        _ if first.starts_with("allocator,num_allocations") => of_memray("lists allocations"),
        _ if head.text.starts_with('{') && head.text.contains("\"total_num_allocations\"") => of_memray("has totals"),
        _ if first.starts_with("Filename:") && head.lines().any(|line| line.starts_with("Line #")) => {
            Err(TableError::Content(
                "the file lists memory by lines of code, not over time; record it with `mprof run` and judge that file"
                    .into(),
            ))
        }
        _ => Ok(()),
    }
}

/// Opens the reader of rows for a file.
fn open(path: &Path, head: &FileHead) -> Result<Box<dyn Rows>, TableError> {
    Ok(if json::recognizes(head) {
        Box::new(json::Json::open(path, head)?)
    } else if let Some(grid) = grid::Grid::open(path, head).filter(|_| !log::Log::is_of_tool(head)) {
        Box::new(grid?)
    } else {
        Box::new(log::Log::open(path, head, true)?)
    })
}

/// Verdict on the newest process, or on an earlier one that grew where the newest did not.
fn combined(worst: Option<(usize, Verdict)>, newest: (usize, Verdict), processes: &[ProcessSpan]) -> Verdict {
    let count = processes.len();
    let labelled = |(at, verdict): &(usize, Verdict)| match processes.get(*at).filter(|_| count > 1) {
        Some(ProcessSpan { first_line, last_line, .. }) => {
            format!("process {} of {count} (lines {first_line} to {last_line}): {}", at + 1, verdict.message)
        }
        None => verdict.message.clone(),
    };
    let is_worse = |worst: VerdictWord| worst > VerdictWord::Suspect && worst > newest.1.verdict;
    match worst.filter(|(_, worst)| is_worse(worst.verdict)) {
        Some(worst) => Verdict { message: format!("{}; {}", labelled(&worst), labelled(&newest)), ..worst.1 },
        None => Verdict { message: labelled(&newest), ..newest.1 },
    }
}

#[cfg(test)]
#[cfg(feature = "serde")]
mod tests;
