//! Verdict on a recording: a run directory, a `memory.jsonl`, or a table of another tool.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use xrun_verdict::table::{self, TableError, TableOptions, TableVerdict};
use xrun_verdict::{Context, LineDamage, MemoryJudge, Thresholds, Verdict};

use super::command::CommandJudge;
use super::sample::{declared, sample};
use crate::format::{MemoryLine, PlanFile};
use crate::read::{self, ReadError, Skipped};
use crate::resolved;
use crate::watched::WatchSettings;
use xrun_core::experiment::Experiment;
use xrun_core::files::layout;
use xrun_core::printable;
use xrun_core::units::pluralize;

/// Error of judging a recording.
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
        /// The reason, for people.
        message: String,
    },
    /// An option does not apply to the recording.
    #[error("{0}")]
    Usage(String),
}

impl VerdictError {
    fn of_table(path: &Path, error: TableError) -> Self {
        let path = path.to_path_buf();
        match error {
            TableError::File(source) => Self::Read(ReadError::File { path, source }),
            TableError::Content(message) => Self::Table { path, message },
            TableError::Options(message) => Self::Usage(format!("{}: {message}", path.display())),
        }
    }
}

/// Context for judging a run, from its plan and experiment.
pub fn memory_context(plan: &PlanFile, experiment: &Experiment) -> Context {
    let per_epoch = plan.steps_per_epoch;
    let validate = match experiment.validation.every_steps {
        0 => experiment.validation.every_epochs * per_epoch,
        steps => steps,
    };
    let cadences = [experiment.cleanup.every_steps, validate, experiment.checkpoint.every_steps];
    // A cadence that occurs only near the end is not waited for.
    let early = cadences.iter().copied().filter(|cadence| *cadence <= plan.steps / 4);
    let settled = early.max().unwrap_or_default();
    Context {
        thresholds: Some(Thresholds::of_growth(experiment.memory.growth_min.0 as f64)),
        steps: plan.steps,
        steps_per_epoch: per_epoch,
        settled,
        host_limit: experiment.limits.host_memory.map(|limit| limit.0),
        device_limit: experiment.limits.device_memory.map(|limit| limit.0),
        owners: declared(plan),
        ..Context::default()
    }
}

fn judge_samples(path: &Path, context: Context) -> Result<Verdict, VerdictError> {
    let mut judge = MemoryJudge::new(context);
    let skipped = for_each_sample(path, |line| judge.add(&sample(&line)))?;
    Ok(with_skipped(judge.verdict(), skipped, path))
}

/// Judges a `memory.jsonl` without a plan.
fn trace(path: &Path) -> Result<Verdict, VerdictError> {
    let (mut first, mut last, mut of_command) = (u64::MAX, 0_u64, false);
    for_each_sample(path, |line| {
        (first, last) = (first.min(line.step), last.max(line.step));
        of_command |= line.processes.is_some();
    })?;
    match of_command {
        true => judge_command_samples(path, &WatchSettings::default()),
        false => judge_samples(path, Context { steps: last.saturating_sub(first), ..Context::default() }),
    }
}

/// Adds the damage of a trace to its verdict.
fn with_skipped(mut verdict: Verdict, skipped: Skipped, path: &Path) -> Verdict {
    if skipped.lines > 0 {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let (lines, file) = (pluralize(skipped.lines, "damaged line"), printable::line(&name, NAME_CHARACTERS_MAX));
        verdict.message = format!("{}; skipped {lines} of {file}", verdict.message);
    }
    add_damage(verdict, skipped.damage.into_iter().collect())
}

/// Adds damage of lines to a verdict and to its message.
pub fn add_damage(mut verdict: Verdict, line_damage: Vec<LineDamage>) -> Verdict {
    let message = line_damage.iter().fold(verdict.message, |message, damage| format!("{message}; {damage}"));
    verdict.line_damage.extend(line_damage);
    Verdict { message, ..verdict }
}

/// Calls `handle` for each sample of a trace. Damaged lines are counted and skipped, unless all are damaged. Lines in
/// the wrong order are an error: each one is intact, but the verdict could be another. Where the lines are known not to be
/// those that were written, that is the error.
fn for_each_sample(path: &Path, mut handle: impl FnMut(MemoryLine)) -> Result<Skipped, VerdictError> {
    let (mut disorder, mut before) = (None, None);
    let mut skipped = read::for_each(Ok(read::memory_file(path)?), |line: MemoryLine| {
        let now = (line.segment, line.step);
        match before.replace(now) {
            _ if disorder.is_some() => {}
            Some(earlier) if now < earlier => {
                let ((process, smaller), (segment, step)) = (now, earlier);
                let message = format!(
                    "lines are out of order: step {smaller} of process {process} follows step {step} of process {segment}"
                );
                disorder = Some(ReadError::content(path, &message));
            }
            _ => handle(line),
        }
    });
    let error = skipped.error.take().or(skipped.first.take().filter(|_| before.is_none())).or(disorder);
    match (error, skipped.damage.take()) {
        (Some(error @ ReadError::File { .. }), _) => Err(error.into()),
        (error, Some(damage)) if error.is_some() || before.is_none() => {
            Err(ReadError::Lines { path: path.to_path_buf(), damage }.into())
        }
        (Some(error), _) => Err(error.into()),
        (None, damage) => Ok(Skipped { damage, ..skipped }),
    }
}

const NAME_CHARACTERS_MAX: usize = 100;

/// Judges the samples of a watched command.
fn judge_command_samples(path: &Path, watched: &WatchSettings) -> Result<Verdict, VerdictError> {
    let mut command = CommandJudge::new(watched);
    let skipped = for_each_sample(path, |line| command.add(&line))?;
    Ok(with_skipped(command.verdict(), skipped, path))
}

/// Judges what a path names: a run directory, a `memory.jsonl`, or a trace of another tool, for which `asked` selects
/// columns.
///
/// # Errors
/// A record cannot be read, or the path is neither a directory nor a regular file.
pub fn judge_path(path: &Path, asked: &TableOptions) -> Result<TableVerdict, VerdictError> {
    let is_run = path.is_dir();
    let is_lines = !is_run && path.extension().is_some_and(|extension| extension == "jsonl");
    if !is_run && (!is_lines || is_foreign(path)) {
        return table::judge_table(path, asked).map_err(|error| VerdictError::of_table(path, error));
    }
    if !asked.is_empty() {
        let message =
            "is not a table; `--column`, `--step-column`, `--unit`, `--of` and `--growth-min` apply to tables only";
        return Err(VerdictError::Usage(format!("{}: {message}", path.display())));
    }
    if is_run {
        return judge_directory(path).map(TableVerdict::from);
    }
    require_regular_file(path)?;
    trace(path).map(TableVerdict::from)
}

/// Returns whether a file of JSON lines is from another program: its first line has none of the keys of `memory.jsonl`.
fn is_foreign(path: &Path) -> bool {
    // A pipe would be waited for.
    if !std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file()) {
        return false;
    }
    let Ok(file) = std::fs::File::open(path) else { return false };
    let mut first = String::new();
    let read = BufReader::new(file.take(FIRST_LINE_BYTES_MAX)).read_line(&mut first);
    let keys = serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(&first);
    read.is_ok() && keys.is_ok_and(|keys| ["version", "segment", "point"].iter().all(|key| !keys.contains_key(*key)))
}

/// Cap on the first line of a file of JSON lines.
const FIRST_LINE_BYTES_MAX: u64 = 256 * 1024;

fn judge_directory(run: &Path) -> Result<Verdict, VerdictError> {
    for name in [layout::MEMORY, layout::VERDICT, layout::PLAN, layout::RESOLVED] {
        let path = run.join(name);
        if path.exists() {
            require_regular_file(&path)?;
        }
    }
    let recorded = read::verdict(run)?;
    // A result is often shared without its trace, the largest file.
    if !run.join(layout::MEMORY).exists()
        && let Some(recorded) = recorded
    {
        return Ok(recorded);
    }
    match (recorded, judge_run(run)) {
        (Some(recorded), Err(VerdictError::Read(ReadError::Lines { damage, .. }))) => {
            Ok(add_damage(recorded, vec![damage]))
        }
        (Some(recorded), Ok(judged)) if !judged.line_damage.is_empty() => Ok(add_damage(recorded, judged.line_damage)),
        (_, judged) => judged,
    }
}

/// Judges the samples of a run by its directory, each of its processes separately; the worst verdict counts.
///
/// # Errors
/// A record cannot be read.
pub fn judge_run(run: &Path) -> Result<Verdict, VerdictError> {
    if let Ok(manifest) = read::manifest(run)
        && let Some(watched) = &manifest.watched
    {
        return judge_command_samples(&run.join(layout::MEMORY), watched);
    }
    if run.join(layout::RESOLVED).exists() {
        // A damaged experiment could set other limits.
        resolved::read_text(run)?;
    }
    match xrun_core::experiment::read::read_resolved(&run.join(layout::RESOLVED), &[]) {
        Ok(checked) => judge_samples(&run.join(layout::MEMORY), memory_context(&read::plan(run)?, &checked.experiment)),
        // A missing data set does not prevent a verdict.
        Err(_) => trace(&run.join(layout::MEMORY)),
    }
}

/// Rejects a pipe or a device, which might never end.
fn require_regular_file(path: &Path) -> Result<(), VerdictError> {
    let kind = std::fs::metadata(path);
    match kind.map_err(|source| ReadError::File { path: path.to_path_buf(), source })?.is_file() {
        true => Ok(()),
        false => Err(VerdictError::Table { path: path.to_path_buf(), message: "is not a regular file".into() }),
    }
}
