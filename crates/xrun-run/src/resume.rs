//! How is a run continued, so that it gives the numbers that it would have given?

use std::path::{Path, PathBuf};

use super::checkpoint;
use super::fingerprint::fingerprint;
use crate::plan::Plan;
use xrun_core::experiment::overrides::key_of;
use xrun_core::experiment::resolved;
use xrun_core::files::write;
use xrun_core::files::write::WriteError;
use xrun_core::files::{layout, seal};
use xrun_results::command_line;
use xrun_results::format::{LoopState, Manifest, MetricsLine};
use xrun_results::read;
use xrun_results::read::ReadError;
use xrun_results::timestamp;
use xrun_results::trust;

/// Where a run can be continued from.
#[derive(Debug)]
pub struct Continuation {
    /// Where the loop stood at the checkpoint; at its beginning where there is none.
    pub state: LoopState,
    /// The checkpoint to load; `None` starts again at step 0.
    pub checkpoint: Option<PathBuf>,
    /// The run's manifest, as it is on the disk.
    pub manifest: Manifest,
    /// Counts the processes that wrote into the directory before.
    pub segment: u32,
    /// What is damaged and was passed over, for people; each names a file.
    pub passed_over: Vec<String>,
}

/// A run cannot be continued.
#[derive(Debug, thiserror::Error)]
pub enum ResumeError {
    /// A record of the run is missing or damaged.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Files that came after the checkpoint cannot be cut off.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// All its steps are done.
    #[error("{} is finished: all its steps are done; {again}", run.display())]
    Finished {
        /// The run's folder.
        run: PathBuf,
        /// What to do for a new run.
        again: String,
    },
    /// Early stopping ended it.
    #[error(
        "{} is finished: it {why}; run its `{}` again with a larger `training.early_stopping.patience` for a new run that \
         goes further",
        run.display(),
        layout::RESOLVED
    )]
    StoppedEarly {
        /// The run's folder.
        run: PathBuf,
        /// Why it stopped, for people.
        why: String,
    },
    /// Another process holds the run's lock.
    #[error("{} is being written by another process; wait for it or stop it first", run.display())]
    Busy {
        /// The run's folder.
        run: PathBuf,
    },
    /// The metrics do not reach up to the checkpoint, or are damaged before it.
    #[error("{}: {message}; put the file back from a copy, or start a new run with `{}`", path.display(), layout::RESOLVED)]
    Metrics {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, for people.
        message: String,
    },
    /// A folder that a resume deletes from is a symbolic link.
    #[error("{} is a link, and a resume deletes checkpoints; put the folder itself there", path.display())]
    Link {
        /// The link.
        path: PathBuf,
    },
    /// The data is not what the run was trained on.
    #[error("the data set `{name}` is no longer what {} was trained on (digest {found}, then {then}); give the old data back, or start a new run", run.display())]
    OtherData {
        /// The run's folder.
        run: PathBuf,
        /// The name of the data set.
        name: String,
        /// The digest of the data that is there.
        found: String,
        /// The digest in the run's manifest.
        then: String,
    },
}

/// Looks at what a run left. Changes nothing. `further`: one that has done all its steps is to do more.
///
/// # Errors
/// There is nothing to go on with, or what is there does not read.
pub fn continuation(run: &Path, further: bool) -> Result<Continuation, ResumeError> {
    let manifest = read::manifest(run)?;
    let done = read::summary(run)?.filter(|summary| summary.outcome.is_done());
    if let Some(summary) = done.as_ref().filter(|summary| summary.steps < summary.steps_planned) {
        return Err(ResumeError::StoppedEarly { run: run.to_path_buf(), why: summary.message.clone() });
    }
    if done.is_some() && !further {
        let again = match command_line::command_of_the_whole(&manifest.command) {
            Some(whole) => format!("it was a short run: `{whole}` runs all steps of the experiment"),
            None => format!("`resume --epochs N` trains it further, and its `{}` begins a new run", layout::RESOLVED),
        };
        return Err(ResumeError::Finished { run: run.to_path_buf(), again });
    }
    let folder = run.join(layout::CHECKPOINTS);
    if std::fs::symlink_metadata(&folder).is_ok_and(|found| found.is_symlink()) {
        return Err(ResumeError::Link { path: folder });
    }
    let mut passed_over = Vec::new();
    // Newest first; one that is not what was written is passed over.
    let found = read::checkpoints(run).into_iter().rev().find_map(|(step, path)| {
        let sound = checkpoint::sound(&path, step, &manifest);
        sound.map_err(|message| passed_over.push(message)).ok().map(|state| (state, path))
    });
    let (state, checkpoint) = found.map_or((LoopState::default(), None), |(state, path)| (state, Some(path)));
    reaches(run, &state)?;
    if let Err(error @ ReadError::Content { .. }) = read::plan(run) {
        passed_over.push(error.to_string());
    }
    let damaged = read::memory(run).into_iter().flatten().filter(|line| matches!(line, Err(ReadError::Content { .. })));
    if let count @ 1.. = damaged.count() {
        passed_over.push(format!("{}: {count} lines are damaged", run.join(layout::MEMORY).display()));
    }
    let segment = u32::try_from(manifest.resumed.len() + 1).unwrap_or(u32::MAX);
    Ok(Continuation { state, checkpoint, manifest, segment, passed_over })
}

/// Whether a line of the metrics is of the time up to this state.
fn belongs(line: &MetricsLine, state: &LoopState) -> bool {
    match line {
        MetricsLine::Train { step, .. } => *step <= state.step,
        MetricsLine::Validation { step, .. } => *step < state.step || (*step == state.step && state.validated),
    }
}

/// The metrics are whole up to the checkpoint, or an error: a run that went on would be without lines that nobody misses.
fn reaches(run: &Path, state: &LoopState) -> Result<(), ResumeError> {
    let path = run.join(layout::METRICS);
    let wrong = |message: String| Err(ResumeError::Metrics { path: path.clone(), message });
    let lines = match read::metrics(run) {
        Err(error) if error.is_missing() && state.step == 0 => return Ok(()),
        lines => lines?,
    };
    let mut count = 0;
    // Behind the checkpoint lines may be missing or damaged: they are cut off.
    for line in lines.take(state.metrics_lines as usize) {
        match line {
            Ok(line) if belongs(&line, state) => count += 1,
            Ok(_) => break,
            Err(ReadError::Content { message, .. }) => {
                let step = state.step;
                return wrong(format!("{message}; lines up to the checkpoint of step {step} are needed to go on"));
            }
            Err(error) => return Err(error.into()),
        }
    }
    match state.metrics_lines {
        lines if lines == count => Ok(()),
        lines => wrong(format!(
            "has {count} lines up to the checkpoint of step {}, which was written after {lines}",
            state.step
        )),
    }
}

/// The same data as before, or an error that names what changed.
pub fn same_data(run: &Path, before: &Manifest, plan: &Plan) -> Result<(), ResumeError> {
    for (name, found) in &plan.facts.data_digests {
        if let Some(then) = before.data.get(name).filter(|then| *then != found) {
            let run = run.to_path_buf();
            return Err(ResumeError::OtherData { run, name: name.clone(), found: found.clone(), then: then.clone() });
        }
    }
    Ok(())
}

/// Makes the directory what it was at the checkpoint: lines of later steps go, the summary goes, and the manifest
/// says that the run was resumed, by which command, and which values (`section.key=value`) changed. The caller holds the
/// run's lock.
pub fn rewind(run: &Path, continuation: &mut Continuation, overrides: &[String]) -> Result<(), WriteError> {
    remove_unfinished(run)?;
    let state = &continuation.state;
    let mut kept = 0;
    write::keep_first_lines(&run.join(layout::METRICS), |line| {
        let keeps = read::parsed(line.as_bytes()).is_ok_and(|line| belongs(&line, state));
        kept += u64::from(keeps);
        keeps
    })?;
    continuation.state.metrics_lines = kept;
    let state = &continuation.state;
    // Later checkpoints are there only when they did not read; they would be taken for the newest again.
    for (step, path) in read::checkpoints(run) {
        if step > state.step {
            write::at(&path, std::fs::remove_dir_all(&path))?;
        }
    }
    goes_on(run, continuation, overrides)
}

/// Removes the temporary files of killed writes, in the folders that the run alone writes to.
fn remove_unfinished(run: &Path) -> Result<(), WriteError> {
    write::at(run, write::remove_unfinished(run))?;
    let pictures = run.join(layout::PICTURES);
    match std::fs::symlink_metadata(&pictures) {
        // Behind a link nothing is removed.
        Ok(found) if found.is_dir() => write::at(&pictures, write::remove_unfinished(&pictures)),
        _ => Ok(()),
    }
}

/// As [`rewind`], of a run whose work a command does: how far it goes back, only the command knows.
///
/// # Errors
/// A file cannot be written.
pub fn begin_again(
    run: &Path,
    continuation: &mut Continuation,
    plan: &Plan,
    overrides: &[String],
) -> Result<(), WriteError> {
    remove_unfinished(run)?;
    if !overrides.is_empty() {
        replace_experiment(run, plan)?;
    }
    write::replace_json(&run.join(layout::PLAN), &plan.to_file(0))?;
    if fingerprint(plan) != continuation.manifest.fingerprint {
        continuation.manifest.fingerprint = checkpoint::CHANGED.into();
    }
    goes_on(run, continuation, overrides)
}

/// Replaces `resolved.toml` by what a resume changed. A folder that this user created stays known as such; another does not
/// become so.
///
/// # Errors
/// It cannot be written.
pub fn replace_experiment(run: &Path, plan: &Plan) -> Result<(), WriteError> {
    let own = trust::check_run(run).is_ok();
    xrun_results::resolved::keep(&run.join(layout::RESOLVED), &seal::text(&resolved::to_toml(&plan.experiment, None)))?;
    if own {
        trust::sign_run(run, &plan.experiment);
    }
    Ok(())
}

/// Takes away what said that the run had ended. A kill behind this leaves a run that can be resumed.
///
/// # Errors
/// A file cannot be removed.
pub fn open_again(run: &Path) -> Result<(), WriteError> {
    for file in [layout::SUMMARY, layout::VERDICT, layout::POST_MORTEM] {
        let path = run.join(file);
        if path.exists() {
            write::at(&path, std::fs::remove_file(&path))?;
        }
    }
    Ok(())
}

/// Says in the manifest that the run goes on, and nowhere that it has ended.
fn goes_on(run: &Path, continuation: &mut Continuation, overrides: &[String]) -> Result<(), WriteError> {
    open_again(run)?;
    let (now, manifest) = (timestamp::now(), &mut continuation.manifest);
    for key in overrides.iter().map(|text| key_of(text)) {
        manifest.origins.insert(key.to_owned(), format!("command line of the resume at {now}"));
    }
    manifest.resumed.push(now);
    manifest.resume_commands.push(command_line::command());
    write::replace_json(&run.join(layout::MANIFEST), manifest)
}
