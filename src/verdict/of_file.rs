//! The verdict on what was recorded: a run's folder, a `memory.jsonl`, or a table of another tool.

use std::path::{Path, PathBuf};

use super::command::Command;
use super::judge::Scale;
use super::table::{self, Asked, Judged};
use super::watch::{Context, Watch};
use crate::experiment::Experiment;
use crate::results::format::{MemoryLine, PlanFile, Point};
use crate::results::read::{self, ReadError};
use crate::results::verdict::Verdict;
use crate::results::watched::Watched;
use crate::results::{layout, resolved};

/// A recording cannot be judged.
#[derive(Debug, thiserror::Error)]
pub enum VerdictError {
    /// A file of the run is missing or cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A table of another tool cannot be judged.
    #[error("{}: {message}", path.display())]
    Table {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, for people.
        message: String,
    },
    /// Something was asked for that is not there.
    #[error("{0}")]
    Asked(String),
}

/// What a plan and its experiment say about a run.
pub fn context(plan: &PlanFile, experiment: &Experiment) -> Context {
    let per_epoch = plan.steps_per_epoch;
    let validate = match experiment.validation.every_steps {
        0 => experiment.validation.every_epochs * per_epoch,
        steps => steps,
    };
    let cadences = [experiment.cleanup.every_steps, validate, experiment.checkpoint.every_steps];
    // What comes only at the end need not be waited for.
    let early = cadences.iter().copied().filter(|cadence| *cadence <= plan.steps / 4);
    let settled = early.max().unwrap_or_default();
    let growth_min = experiment.memory.growth_min.0 as f64;
    let scale = Some(Scale { growth_min, move_min: growth_min / 32.0 });
    let context = Context {
        scale,
        steps: plan.steps,
        steps_per_epoch: per_epoch,
        settled,
        host_limit: experiment.limits.host_memory.map(|limit| limit.0),
        device_limit: experiment.limits.device_memory.map(|limit| limit.0),
        ..Context::default()
    };
    context.with_owners(plan)
}

/// Judges a run by its folder: each of its processes by itself, and the worst counts.
///
/// # Errors
/// A record that does not read.
pub fn of_run(run: &Path, experiment: &Experiment) -> Result<Verdict, VerdictError> {
    let plan = read::plan(run)?;
    let mut watch = Watch::new(context(&plan, experiment));
    for line in ordered(&run.join(layout::MEMORY))? {
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
    for line in ordered(&run.join(layout::MEMORY))? {
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
    let Length { steps, of_command } = length(path)?;
    if of_command {
        return of_command_samples(path, &Watched::default());
    }
    let mut watch = Watch::new(Context { steps, ..Context::default() });
    for line in ordered(path)? {
        watch.add(&line?);
    }
    Ok(watch.verdict())
}

/// Samples in the order in which they were taken. Lines that changed places are each as they were written, and yet another
/// verdict could come out.
fn ordered(path: &Path) -> Result<impl Iterator<Item = Result<MemoryLine, ReadError>> + use<>, VerdictError> {
    let (owned, mut before) = (path.to_path_buf(), (0, 0));
    Ok(read::memory_file(path)?.map(move |line| {
        let line = line?;
        let (segment, step) = std::mem::replace(&mut before, (line.segment, line.step));
        if (line.segment, line.step) >= (segment, step) {
            return Ok(line);
        }
        let message =
            format!("step {} of process {} comes after step {step} of process {segment}", line.step, line.segment);
        Err(ReadError::content(
            &owned,
            &format!("its lines are not in the order in which they were written: {message}"),
        ))
    }))
}

/// Judges the samples of a command that `xrun watch` ran.
fn of_command_samples(path: &Path, watched: &Watched) -> Result<Verdict, VerdictError> {
    let mut command = Command::new(watched);
    let mut segment = 0;
    for line in ordered(path)? {
        let line: MemoryLine = line?;
        if line.segment != segment {
            // A command that was resumed holds other memory.
            (segment, command) = (line.segment, Command::new(watched));
        }
        command.add(&line);
    }
    Ok(command.verdict())
}

/// What a trace is of.
struct Length {
    /// The steps from the first of all samples to the last.
    steps: u64,
    /// Whether they are of a command.
    of_command: bool,
}

fn length(path: &Path) -> Result<Length, VerdictError> {
    let (mut first, mut last, mut of_command) = (u64::MAX, 0, false);
    for line in ordered(path)? {
        let line: MemoryLine = line?;
        (first, last) = (first.min(line.step), last.max(line.step));
        of_command |= line.processes.is_some();
    }
    Ok(Length { steps: last.saturating_sub(first), of_command })
}

/// Judges whatever the path names: a run's folder, a `memory.jsonl`, or a trace of another tool, of which more may be
/// `asked`.
///
/// # Errors
/// As those above; a path that names neither a folder nor a regular file.
pub fn of_path(path: &Path, asked: &Asked) -> Result<Judged, VerdictError> {
    let is_run = path.is_dir();
    let is_table = !is_run && path.extension().is_none_or(|extension| extension != "jsonl");
    if is_table {
        return table::of_table(path, asked);
    }
    if !asked.is_empty() {
        let message = "has no columns; `--column`, `--step-column` and `--unit` are for tables";
        return Err(VerdictError::Asked(format!("{}: {message}", path.display())));
    }
    if is_run {
        return of_folder(path).map(Judged::from);
    }
    regular(path)?;
    of_samples(path).map(Judged::from)
}

fn of_folder(run: &Path) -> Result<Verdict, VerdictError> {
    for name in [layout::MEMORY, layout::VERDICT, layout::PLAN, layout::RESOLVED] {
        let path = run.join(name);
        if path.exists() {
            regular(&path)?;
        }
    }
    // Of a result that was passed on, the trace may have stayed behind: it is the largest file.
    if !run.join(layout::MEMORY).exists()
        && let Some(verdict) = read::verdict(run)?
    {
        return Ok(verdict);
    }
    if let Ok(manifest) = read::manifest(run)
        && let Some(watched) = &manifest.watched
    {
        return of_command_samples(&run.join(layout::MEMORY), watched);
    }
    if run.join(layout::RESOLVED).exists() {
        // Another experiment would be judged by other limits.
        resolved::text_of(run)?;
    }
    match crate::experiment::read::read_resolved(&run.join(layout::RESOLVED), &[]) {
        Ok(checked) => of_run(run, &checked.experiment),
        // A data set that is gone is no reason not to judge.
        Err(_) => of_samples(&run.join(layout::MEMORY)),
    }
}

/// A pipe would be waited for, and a device may never end.
fn regular(path: &Path) -> Result<(), VerdictError> {
    let kind = std::fs::metadata(path);
    match kind.map_err(|source| ReadError::File { path: path.to_path_buf(), source })?.is_file() {
        true => Ok(()),
        false => Err(VerdictError::Table { path: path.to_path_buf(), message: "is no regular file".into() }),
    }
}
