//! The verdict on what was recorded: a run's folder, a `memory.jsonl`, or a table of another tool.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use super::judge::{BYTES, Scale, Series};
use super::watch::{Context, Watch};
use crate::experiment::Experiment;
use crate::results::format::{MemoryLine, PlanFile, Point};
use crate::results::layout;
use crate::results::read::{self, ReadError};
use crate::results::verdict::Verdict;

/// Longer lines than this are of no table that we could judge.
const LINE_BYTES_MAX: u64 = 64 * 1024;

/// A recording cannot be judged.
#[derive(Debug, thiserror::Error)]
pub enum VerdictError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("{}: {message}", path.display())]
    Table { path: PathBuf, message: String },
}

/// What a plan and its experiment say about a run.
pub fn context(plan: &PlanFile, experiment: &Experiment) -> Context {
    let per_epoch = plan.steps_per_epoch;
    let validate = match experiment.validation.every_steps {
        0 => experiment.validation.every_epochs * per_epoch,
        steps => steps,
    };
    let cadences = vec![experiment.cleanup.every_steps, validate, experiment.checkpoint.every_steps];
    // What comes only at the end need not be waited for.
    let early = cadences.iter().copied().filter(|cadence| *cadence <= plan.steps / 4);
    let settled = early.max().unwrap_or_default();
    let growth_min = experiment.memory.growth_min.0 as f64;
    let scale = Some(Scale { growth_min, move_min: growth_min / 32.0 });
    let context = Context {
        scale,
        steps: plan.steps,
        steps_per_epoch: per_epoch,
        cadences,
        settled,
        host_limit: experiment.limits.host_memory.map(|limit| limit.0),
        device_limit: experiment.limits.device_memory.map(|limit| limit.0),
        ..Context::default()
    };
    context.with_owners(plan)
}

/// Judges a run by its folder. The samples of its newest process count.
///
/// # Errors
/// A record that does not read.
pub fn of_run(run: &Path, experiment: &Experiment) -> Result<Verdict, VerdictError> {
    let plan = read::plan(run)?;
    let mut watch = Watch::new(context(&plan, experiment));
    for line in read::memory(run)? {
        watch.add(&line?);
    }
    Ok(watch.verdict())
}

/// The step at which a series of a run first looked as if it grew.
///
/// # Errors
/// As [`of_run`].
pub fn suspected_at(run: &Path, series: &str) -> Result<Option<u64>, VerdictError> {
    let plan = read::plan(run)?;
    let checked = crate::experiment::read::read_resolved(&run.join(layout::RESOLVED), &[]);
    let Ok(checked) = checked else { return Ok(None) };
    let mut watch = Watch::new(context(&plan, &checked.experiment));
    for line in read::memory(run)? {
        let line = line?;
        watch.add(&line);
        if line.point == Point::Step && watch.suspects().contains(&series) {
            return Ok(Some(line.step));
        }
    }
    Ok(None)
}

/// Judges a `memory.jsonl` by itself, without a plan.
///
/// # Errors
/// A line that does not read.
pub fn of_samples(path: &Path) -> Result<Verdict, VerdictError> {
    let steps = newest_step(path)?;
    let mut watch = Watch::new(Context { steps, ..Context::default() });
    for line in read::memory_file(path)? {
        watch.add(&line?);
    }
    Ok(watch.verdict())
}

fn newest_step(path: &Path) -> Result<u64, VerdictError> {
    let mut newest = 0;
    for line in read::memory_file(path)? {
        let line: MemoryLine = line?;
        newest = newest.max(line.step);
    }
    Ok(newest)
}

/// Judges a table with a header, separated by commas: one column named `step`, and one or more of bytes. Columns that
/// hold anything but whole numbers are passed over.
///
/// # Errors
/// No `step` column, no column of bytes, or steps that fall.
pub fn of_table(path: &Path) -> Result<Verdict, VerdictError> {
    let wrong = |message: String| VerdictError::Table { path: path.to_path_buf(), message };
    let mut lines = table_lines(path)?;
    let header = lines.next().ok_or_else(|| wrong("is empty; a table with a header was expected".into()))??;
    let names: Vec<&str> = header.split(',').map(|name| name.trim().trim_matches('"')).collect();
    let Some(step_at) = names.iter().position(|name| name.eq_ignore_ascii_case("step")) else {
        return Err(wrong(format!("no column is named `step` (found: {})", names.join(", "))));
    };
    // Twice through the file: how long a window is depends on the last step.
    let steps =
        table_lines(path)?.skip(1).flatten().filter_map(|line| number(&line, step_at)).max().unwrap_or_default();
    let mut watch = Watch::new(Context { steps, ..Context::default() });
    let mut before = 0;
    for (at, line) in lines.enumerate() {
        let line = line?;
        let Some(step) = number(&line, step_at) else { continue };
        if step < before {
            return Err(wrong(format!("line {}: step {step} after step {before}; sort the table by step", at + 2)));
        }
        before = step;
        for (column, text) in line.split(',').enumerate().filter(|(column, _)| *column != step_at) {
            if let (Some(name), Ok(value)) = (names.get(column), text.trim().parse()) {
                watch.value(step, name, value, Series::InUse, BYTES);
            }
        }
    }
    let verdict = watch.verdict();
    match verdict.series.is_empty() {
        true => Err(wrong("no column holds whole numbers of bytes".into())),
        false => Ok(verdict),
    }
}

fn number(line: &str, column: usize) -> Option<u64> {
    line.split(',').nth(column)?.trim().parse().ok()
}

fn table_lines(path: &Path) -> Result<impl Iterator<Item = Result<String, VerdictError>>, VerdictError> {
    let file_error = |source| ReadError::File { path: path.to_path_buf(), source };
    let mut reader = BufReader::new(std::fs::File::open(path).map_err(file_error)?);
    let path = path.to_path_buf();
    Ok(std::iter::from_fn(move || {
        let mut line = Vec::new();
        match std::io::Read::take(&mut reader, LINE_BYTES_MAX).read_until(b'\n', &mut line) {
            Ok(0) => None,
            Ok(_) => Some(Ok(String::from_utf8_lossy(&line).trim_end().to_owned())),
            Err(source) => Some(Err(ReadError::File { path: path.clone(), source }.into())),
        }
    }))
}

/// Judges whatever the path names: a run's folder, a `memory.jsonl`, or a table.
///
/// # Errors
/// As those above.
pub fn of_path(path: &Path) -> Result<Verdict, VerdictError> {
    if path.is_dir() {
        let resolved = path.join(layout::RESOLVED);
        let checked = crate::experiment::read::read_resolved(&resolved, &[]);
        return match checked {
            Ok(checked) => of_run(path, &checked.experiment),
            // A data set that is gone is no reason not to judge.
            Err(_) => of_samples(&path.join(layout::MEMORY)),
        };
    }
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("jsonl") => of_samples(path),
        _ => of_table(path),
    }
}
