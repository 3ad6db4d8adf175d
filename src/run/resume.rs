//! How is a run continued, so that it gives the numbers that it would have given?

use std::path::{Path, PathBuf};

use super::manifest;
use crate::plan::Plan;
use crate::results::format::{LoopState, Manifest, MetricsLine, Outcome};
use crate::results::layout;
use crate::results::read::{self, ReadError};
use crate::results::write::{self, WriteError};

/// Where a run can be continued from.
#[derive(Debug)]
pub struct Continuation {
    pub state: LoopState,
    /// The checkpoint to load; `None` starts again at step 0.
    pub checkpoint: Option<PathBuf>,
    pub manifest: Manifest,
    /// Counts the processes that wrote into the directory before.
    pub segment: u32,
}

/// A run cannot be continued.
#[derive(Debug, thiserror::Error)]
pub enum ResumeError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error("{} is finished: all its steps are done; run its `{}` again for a new run", run.display(), layout::RESOLVED)]
    Finished { run: PathBuf },
    #[error("{} is being written by another process; wait for it or stop it first", run.display())]
    Busy { run: PathBuf },
    #[error("the data set `{name}` is no longer what {} was trained on (digest {found}, then {then}); give the old data back, or start a new run", run.display())]
    OtherData { run: PathBuf, name: String, found: String, then: String },
}

/// Looks at what a run left. Changes nothing.
pub fn continuation(run: &Path) -> Result<Continuation, ResumeError> {
    let manifest = read::manifest(run)?;
    if read::summary(run)?.is_some_and(|summary| matches!(summary.outcome, Outcome::Finished | Outcome::MemoryGrew)) {
        return Err(ResumeError::Finished { run: run.to_path_buf() });
    }
    // Newest first; one that does not read is passed over.
    let found = read::checkpoints(run)
        .into_iter()
        .rev()
        .find_map(|(_, path)| read::loop_state(&path).ok().map(|state| (state, path)));
    let (state, checkpoint) = found.map_or((LoopState::default(), None), |(state, path)| (state, Some(path)));
    let segment = u32::try_from(manifest.resumed.len() + 1).unwrap_or(u32::MAX);
    Ok(Continuation { state, checkpoint, manifest, segment })
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
    let state = &continuation.state;
    write::keep_first_lines(&run.join(layout::METRICS), |line| match serde_json::from_str(line) {
        Ok(MetricsLine::Train { step, .. }) => step <= state.step,
        Ok(MetricsLine::Validation { step, .. }) => step < state.step || (step == state.step && state.validated),
        Err(_) => false,
    })?;
    // Later checkpoints are there only when they did not read; they would be taken for the newest again.
    for (step, path) in read::checkpoints(run) {
        if step > state.step {
            write::at(&path, std::fs::remove_dir_all(&path))?;
        }
    }
    for file in [layout::SUMMARY, layout::VERDICT] {
        let path = run.join(file);
        if path.exists() {
            write::at(&path, std::fs::remove_file(&path))?;
        }
    }
    let (now, manifest) = (manifest::now(), &mut continuation.manifest);
    for (key, _) in overrides.iter().filter_map(|text| text.split_once('=')) {
        manifest.origins.insert(key.trim().to_owned(), format!("command line of the resume at {now}"));
    }
    manifest.resumed.push(now);
    manifest.resume_commands.push(manifest::command());
    write::replace_json(&run.join(layout::MANIFEST), manifest)
}
