//! Resuming a run, with the numbers that it would have had without the interruption.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use super::checkpoint;
use super::fingerprint::fingerprint;
use crate::plan::Plan;
use xrun_core::experiment::overrides::overridden_key;
use xrun_core::experiment::resolved;
use xrun_core::files::checksum::LineSum;
use xrun_core::files::write;
use xrun_core::files::write::WriteError;
use xrun_core::files::{checksum, layout};
use xrun_core::units::pluralize;
use xrun_results::command_line;
use xrun_results::format::{LoopState, Manifest, MetricsLine, SamplePoint, WrittenLines};
use xrun_results::read;
use xrun_results::read::{KnownLines, ReadError};
use xrun_results::timestamp;
use xrun_results::trust;

/// Point from which a run can be resumed.
#[derive(Debug)]
pub struct ResumePoint {
    /// State of the loop at the checkpoint; all zero without one.
    pub state: LoopState,
    /// Checkpoint to load; `None` restarts at step 0.
    pub checkpoint: Option<PathBuf>,
    /// Manifest of the run.
    pub manifest: Manifest,
    /// Number of processes that wrote to the directory before.
    pub segment: u32,
    /// Messages about damaged files that were ignored.
    pub ignored: Vec<String>,
    /// Damaged checkpoints that are newer.
    damaged: Vec<PathBuf>,
}

/// Reason why a run cannot be resumed.
#[derive(Debug, thiserror::Error)]
pub enum ResumeError {
    /// A record of the run is missing or damaged.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The run has ended, and is not to be trained further.
    #[error("{}: {why}", run.display())]
    Ended {
        /// Directory of the run.
        run: PathBuf,
        /// How it ended, and how to train further.
        why: String,
    },
    /// Something that the run needs cannot be used.
    #[error("{}: {why}", path.display())]
    Refused {
        /// The run, or one of its files.
        path: PathBuf,
        /// Reason, and what to do.
        why: String,
    },
}

impl ResumeError {
    /// Refusal of a run because of itself or one of its files.
    pub fn refused(path: &Path, why: String) -> Self {
        Self::Refused { path: path.to_path_buf(), why }
    }
}

/// Finds the point from which a run can be resumed. Changes nothing. `from_start` allows a run that has lost its
/// checkpoints.
///
/// # Errors
/// The run is finished, or its records are missing, damaged or cannot be read.
pub fn find_resume_point(run: &Path, from_start: bool) -> Result<ResumePoint, ResumeError> {
    let manifest = read::manifest(run)?;
    let summary = read::summary(run)?;
    let written = summary.as_ref().and_then(|summary| summary.lines);
    let trained = summary.as_ref().is_some_and(|summary| summary.steps > 0);
    let done = summary.filter(|summary| summary.outcome.is_complete());
    if let Some(summary) = done.as_ref().filter(|summary| summary.steps < summary.steps_planned) {
        let why = format!(
            "the run {}; to train further, start a new run of its `{}` with a larger `training.early_stopping.patience`",
            summary.message,
            layout::RESOLVED
        );
        return Err(ResumeError::Ended { run: run.to_path_buf(), why });
    }
    if done.is_some() {
        let hint = match command_line::command_without_shortening(&manifest.command) {
            Some(whole) => format!("it was a short run: `{whole}` runs all steps of the experiment"),
            None => format!(
                "`fork RUN -s training.epochs=N` trains further, or start a new run of its `{}`",
                layout::RESOLVED
            ),
        };
        return Err(ResumeError::Ended { run: run.to_path_buf(), why: format!("all steps are done; {hint}") });
    }
    let directory = run.join(layout::CHECKPOINTS);
    if std::fs::symlink_metadata(&directory).is_ok_and(|found| found.is_symlink()) {
        let why =
            "is a symlink, which a resume does not follow because it deletes checkpoints; replace it by the directory";
        return Err(ResumeError::refused(&directory, why.into()));
    }
    let (mut ignored, mut damaged) = (Vec::new(), Vec::new());
    let (mut state, mut checkpoint) = (LoopState::default(), None);
    // Newest first; a damaged checkpoint is skipped.
    for (step, path) in read::checkpoints(run)?.into_iter().rev() {
        match checkpoint::verify(&path, step, &manifest) {
            Ok(found) => {
                (state, checkpoint) = (found, Some(path));
                break;
            }
            Err(error) if error.may_be_intact() => {
                let why = format!("{error}; nothing was changed: try again when the file can be read");
                return Err(ResumeError::refused(run, why));
            }
            Err(error) => {
                ignored.push(error.to_string());
                damaged.push(path);
            }
        }
    }
    check_metrics(run, &state)?;
    if let Err(error @ ReadError::Content { .. }) = read::plan(run) {
        ignored.push(error.to_string());
    }
    state.lines = check_memory(run, written, &state, &mut ignored)?;
    if checkpoint.is_none() && !from_start {
        let why = match ignored.first() {
            Some(first) if !damaged.is_empty() => Some(first.clone()),
            _ if manifest.parent.is_some() => Some("the run is a fork".into()),
            _ => evidence_of_checkpoint(run, trained)?,
        };
        if let Some(why) = why {
            let why = format!(
                "no intact checkpoint, although {why}; restore one below `{}`, or start again at step 0 with `--from-start`",
                layout::CHECKPOINTS
            );
            return Err(ResumeError::refused(run, why));
        }
    }
    let segment = u32::try_from(manifest.resumed.len() + 1).unwrap_or(u32::MAX);
    Ok(ResumePoint { state, checkpoint, manifest, segment, ignored, damaged })
}

/// Evidence that a run without checkpoints has saved one; `None` for one that was killed before its first, which starts again
/// by itself: its trace proves that.
fn evidence_of_checkpoint(run: &Path, trained: bool) -> Result<Option<String>, ReadError> {
    let mut saved = 0;
    match read::memory_with(run, None) {
        Err(error) if error.is_missing() => {
            let has_steps =
                || read::metrics_with(run, None).into_iter().flatten().flatten().any(|line| line.step() > 0);
            let why = || format!("it has trained, and its `{}` is missing", layout::MEMORY);
            return Ok((trained || has_steps()).then(why));
        }
        lines => {
            for line in lines? {
                match line {
                    Ok(line) => saved += u64::from(line.point == SamplePoint::Checkpoint),
                    Err(ReadError::Content { .. } | ReadError::Lines { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
    }
    Ok((saved > 0).then(|| format!("the run has saved {}", pluralize(saved, "checkpoint"))))
}

/// Returns true if a line of the metrics was written before this state was saved.
fn is_before(line: &MetricsLine, state: &LoopState) -> bool {
    match line {
        MetricsLine::Train { step, .. } => *step <= state.step,
        MetricsLine::Validation { step, .. } => *step < state.step || (*step == state.step && state.validated),
    }
}

/// Adds messages about damaged samples. Returns the sums that the files should have where samples are missing: the resume
/// continues from it, so that readers still notice.
fn check_memory(
    run: &Path,
    written: Option<WrittenLines>,
    state: &LoopState,
    ignored: &mut Vec<String>,
) -> Result<Option<WrittenLines>, ReadError> {
    let Some(sum) = written.or(state.lines).map(|lines| lines.memory) else { return Ok(None) };
    let known = KnownLines { sum, complete: written.is_some() };
    let (mut lines, mut damaged, mut should_have) = (0, 0, None);
    let found = match read::memory_with(run, Some(known)) {
        Err(error) if error.is_missing() => None,
        found => Some(found?),
    };
    for line in found.into_iter().flatten() {
        match line {
            Err(error @ ReadError::Lines { .. }) => {
                ignored.push(error.to_string());
                let ReadError::Lines { damage, .. } = error else { continue };
                let memory = LineSum { lines: lines + damage.missing - damage.doubled.min(lines), ..sum };
                should_have = Some(WrittenLines { memory, ..WrittenLines::default() });
            }
            Err(ReadError::Content { .. }) => damaged += 1,
            Err(error) => return Err(error),
            Ok(_) => {}
        }
        lines += 1;
    }
    if damaged > 0 {
        let lines = pluralize(damaged, "damaged line");
        ignored.push(format!("{}: {lines}", run.join(layout::MEMORY).display()));
    }
    Ok(should_have)
}

/// Checks that the metrics are complete up to the checkpoint: lines that are missing would not be noticed after the resume.
fn check_metrics(run: &Path, state: &LoopState) -> Result<(), ResumeError> {
    let path = run.join(layout::METRICS);
    let written = state.lines.map(|lines| lines.metrics);
    let known = written.map(|sum| KnownLines { sum, complete: false });
    let lines = match read::metrics_with(run, known) {
        Err(error) if error.is_missing() && state.step == 0 => return Ok(()),
        lines => lines?,
    };
    let needed = |message: &dyn Display| {
        let why = format!(
            "{message}; a resume needs all lines up to the checkpoint of step {}; restore the file from a copy, or continue \
             from the checkpoint in a new run with `xrun fork`",
            state.step
        );
        Err(ResumeError::refused(&path, why))
    };
    for (before, line) in (0..).zip(lines) {
        match line {
            Err(ReadError::Lines { damage, .. }) => return needed(&damage),
            Err(ReadError::Content { message, .. }) if written.is_some_and(|sum| before < sum.lines) => {
                return needed(&message);
            }
            // Lines after the checkpoint may be missing or damaged: the resume removes them.
            Ok(_) | Err(ReadError::Content { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Checks that the data has not changed since the run was started.
///
/// # Errors
/// It has changed.
pub fn check_data(run: &Path, before: &Manifest, plan: &Plan) -> Result<(), ResumeError> {
    for (name, found) in &plan.facts.data_digests {
        if let Some(then) = before.data.get(name).filter(|then| *then != found) {
            let why = format!(
                "the data `{name}` has changed since the run was started (digest {then}, now {found}); restore the original \
                 data or start a new run"
            );
            return Err(ResumeError::refused(run, why));
        }
    }
    Ok(())
}

/// Rewinds the directory to the checkpoint: removes the summary and the lines of later steps, and records the resume in the
/// manifest with its command and the values (`section.key=value`) that it changes. The caller holds the run's lock.
///
/// # Errors
/// A file cannot be written.
pub fn rewind(run: &Path, point: &mut ResumePoint, overrides: &[String]) -> Result<(), WriteError> {
    remove_unfinished(run)?;
    let state = &point.state;
    write::keep_first_lines(&run.join(layout::METRICS), |line| {
        read::parse_line(line.as_bytes()).is_ok_and(|line| is_before(&line, state))
    })?;
    point.damaged.iter().try_for_each(|path| checkpoint::set_aside(path, point.segment))?;
    record_resume(run, point, overrides)
}

/// Removes the temporary files of killed writes, in the directories to which only the run writes.
fn remove_unfinished(run: &Path) -> Result<(), WriteError> {
    write::with_path(run, write::remove_unfinished(run))?;
    let images = run.join(layout::IMAGES);
    match std::fs::symlink_metadata(&images) {
        // Symlinks are not followed.
        Ok(found) if found.is_dir() => write::with_path(&images, write::remove_unfinished(&images)),
        _ => Ok(()),
    }
}

/// Variant of [`rewind`] for a run whose work is done by a command: only the command knows its checkpoint.
///
/// # Errors
/// A file cannot be written.
pub fn rewind_command(
    run: &Path,
    point: &mut ResumePoint,
    plan: &Plan,
    overrides: &[String],
) -> Result<(), WriteError> {
    remove_unfinished(run)?;
    if !overrides.is_empty() {
        replace_experiment(run, plan)?;
    }
    write::replace_json(&run.join(layout::PLAN), &plan.to_file(0))?;
    if fingerprint(plan) != point.manifest.fingerprint {
        point.manifest.fingerprint = checkpoint::CHANGED_BY_RESUME.into();
    }
    record_resume(run, point, overrides)
}

/// Replaces `resolved.toml` by the experiment of the resume. The signature of a directory that this user created is renewed;
/// another directory is not signed.
///
/// # Errors
/// The file cannot be written.
pub fn replace_experiment(run: &Path, plan: &Plan) -> Result<(), WriteError> {
    let own = trust::check_run(run).is_ok();
    xrun_results::resolved::write(
        &run.join(layout::RESOLVED),
        &checksum::text(resolved::to_toml(&plan.experiment, None)),
    )?;
    if own {
        trust::sign_run(run, &plan.experiment);
    }
    Ok(())
}

/// Removes the records that mark the run as ended. A kill after this leaves a run that can be resumed.
///
/// # Errors
/// A file cannot be removed.
pub fn clear_ending(run: &Path) -> Result<(), WriteError> {
    for file in [layout::SUMMARY, layout::VERDICT, layout::POST_MORTEM, layout::EXPLANATION] {
        let path = run.join(file);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            removed => write::with_path(&path, removed)?,
        }
    }
    Ok(())
}

/// Records the resume in the manifest and removes the records that mark the run as ended.
fn record_resume(run: &Path, point: &mut ResumePoint, overrides: &[String]) -> Result<(), WriteError> {
    clear_ending(run)?;
    let (now, manifest) = (timestamp::now(), &mut point.manifest);
    for key in overrides.iter().map(|text| overridden_key(text)) {
        manifest.origins.insert(key.to_owned(), format!("command line of the resume at {now}"));
    }
    manifest.resumed.push(now);
    manifest.resume_commands.push(command_line::command());
    write::replace_json(&run.join(layout::MANIFEST), manifest)
}
