//! Checkpoints: atomic saving, and verification before one is used.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use super::RunError;
use xrun_core::dataset::digest::digest_of_reader;
use xrun_core::files::write;
use xrun_core::files::write::{WRITING, WriteError};
use xrun_core::files::{checksum, file, layout};
use xrun_core::task::Task;
use xrun_results::format::{LoopState, Manifest, RungTaken};
use xrun_results::read;
use xrun_results::read::ReadError;

/// Value of the manifest's fingerprint after a resume that changed the experiment or the program.
pub const CHANGED_BY_RESUME: &str = "changed by a resume";

/// Writes `checkpoints/step_…` and removes the old ones beyond `keep_last`, except the best. A kill at any moment leaves the
/// last checkpoint whole: the directory is written under a temporary name and renamed.
pub fn save(task: &mut dyn Task, state: &LoopState, run: &Path, keep_last: usize) -> Result<(), RunError> {
    let directory = run.join(layout::CHECKPOINTS);
    // Without parents: a run that was removed must not come back as an empty directory.
    write::create_directory(&directory)?;
    remove_unfinished(&directory)?;
    let checkpoint = layout::checkpoint(run, state.step);
    match read::loop_state(&checkpoint) {
        // The same step again, after a resume that only validated: the weights are unchanged.
        Ok(before) => {
            let state = LoopState { files: before.files, ..state.clone() };
            write::replace_json(&checkpoint.join(layout::LOOP_STATE), &state)?;
            return Ok(remove_old(run, &state, keep_last)?);
        }
        // A half-written one, if any.
        Err(error) if error.is_missing() => {}
        Err(error) => write::with_path(&checkpoint, Err(io::Error::other(error)))?,
    }
    let temporary = directory.join(format!("{WRITING}{:08}", state.step));
    write::create_new_directory(&temporary)?;
    let saved = task.save(&temporary).map_err(|source| RunError::Checkpoint { step: state.step, source });
    let written = saved.and_then(|()| {
        write::with_path(&temporary, write::sync_files(&temporary))?;
        let files = write::with_path(&temporary, digests(&temporary))?;
        write::replace_json(&temporary.join(layout::LOOP_STATE), &LoopState { files, ..state.clone() })?;
        if checkpoint.exists() {
            write::with_path(&checkpoint, std::fs::remove_dir_all(&checkpoint))?;
        }
        write::with_path(&checkpoint, std::fs::rename(&temporary, &checkpoint))?;
        write::with_path(&directory, write::sync_directory(&directory))?;
        Ok(())
    });
    if written.is_err() {
        // Frees space for the log and the summary on a full disk.
        let _ = std::fs::remove_dir_all(&temporary);
        return written;
    }
    remove_old(run, state, keep_last)?;
    Ok(())
}

/// Replaces the rungs in the state of the newest checkpoint; returns `false` if there is none.
///
/// # Errors
/// The state cannot be read or written.
pub fn replace_rungs(run: &Path, rungs: &[RungTaken]) -> Result<bool, RunError> {
    let Some((_, checkpoint)) = read::checkpoints(run).unwrap_or_default().pop() else { return Ok(false) };
    let Ok(state) = read::loop_state(&checkpoint) else { return Ok(false) };
    write::replace_json(&checkpoint.join(layout::LOOP_STATE), &LoopState { rungs: rungs.to_vec(), ..state })?;
    Ok(true)
}

/// SHA-256 of each file below a directory, by relative path.
fn digests(directory: &Path) -> io::Result<BTreeMap<String, String>> {
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type()?.is_dir() {
            all.extend(digests(&entry.path())?.into_iter().map(|(inner, digest)| (format!("{name}/{inner}"), digest)));
        } else {
            all.insert(name, digest_at(&entry.path())?);
        }
    }
    Ok(all)
}

/// SHA-256 of a file, with the error of the system.
fn digest_at(path: &Path) -> io::Result<String> {
    file::open(path).and_then(digest_of_reader)
}

/// Reason why a checkpoint cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum UnusableCheckpoint {
    /// The state, or a file that it lists, is missing, damaged or cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A file is not as this run wrote it after this step.
    #[error("{}: {why}", path.display())]
    Other {
        /// The file.
        path: PathBuf,
        /// Difference, for people.
        why: String,
    },
}

impl UnusableCheckpoint {
    /// Returns true if the checkpoint may be intact ([`ReadError::may_be_intact`]).
    pub fn may_be_intact(&self) -> bool {
        matches!(self, Self::Read(error) if error.may_be_intact())
    }
}

/// Verifies that a checkpoint is exactly what the run of this manifest wrote after that step, and returns its state. Reads
/// all its files.
pub fn verify(checkpoint: &Path, step: u64, manifest: &Manifest) -> Result<LoopState, UnusableCheckpoint> {
    let state = read::loop_state(checkpoint)?;
    let path = checkpoint.join(layout::LOOP_STATE);
    let other = |path, why: String| Err(UnusableCheckpoint::Other { path, why });
    if state.step != step {
        return other(path, format!("the state is of step {}, but the directory is of step {step}", state.step));
    }
    if state.run != manifest.run_id() {
        return other(path, format!("written by the run {}, not by {}", state.run, manifest.run_id()));
    }
    if manifest.fingerprint != CHANGED_BY_RESUME && state.fingerprint != manifest.fingerprint {
        return other(path, "the fingerprint is of another experiment, other data or another program".into());
    }
    for (name, written) in &state.files {
        let path = checkpoint.join(name);
        match digest_at(&path) {
            Ok(digest) if digest == *written => {}
            Ok(_) => return other(path, checksum::DAMAGED.into()),
            Err(source) => return Err(ReadError::File { path, source }.into()),
        }
    }
    Ok(state)
}

/// Removes the temporary directories that a kill in the middle of [`save`] leaves.
fn remove_unfinished(directory: &Path) -> Result<(), WriteError> {
    for entry in write::with_path(directory, std::fs::read_dir(directory))?.flatten() {
        if entry.file_name().to_string_lossy().starts_with(WRITING) {
            write::with_path(&entry.path(), std::fs::remove_dir_all(entry.path()))?;
        }
    }
    Ok(())
}

/// Renames a damaged checkpoint, of which a part may be of use, so that no resume tries it again. `segment` makes its name
/// unique.
///
/// # Errors
/// It cannot be renamed.
pub fn set_aside(checkpoint: &Path, segment: u32) -> Result<(), WriteError> {
    let name = checkpoint.file_name().unwrap_or_default().to_string_lossy();
    let aside = checkpoint.with_file_name(format!("{}{name}-{segment}", layout::DAMAGED));
    let renamed = std::fs::rename(checkpoint, &aside);
    write::with_path(checkpoint, renamed.and_then(|()| write::sync_entry(&aside)))
}

/// Removes a checkpoint. It is renamed first: what a kill leaves of it is removed with the next save, and has not its name.
///
/// # Errors
/// It cannot be renamed or removed.
pub fn remove(checkpoint: &Path) -> Result<(), WriteError> {
    let name = checkpoint.file_name().unwrap_or_default().to_string_lossy();
    let removed = checkpoint.with_file_name(format!("{WRITING}removed-{name}"));
    write::with_path(checkpoint, std::fs::rename(checkpoint, &removed))?;
    write::with_path(&removed, std::fs::remove_dir_all(&removed))
}

fn remove_old(run: &Path, state: &LoopState, keep_last: usize) -> Result<(), WriteError> {
    // Where they cannot be listed, they stay.
    let all = read::checkpoints(run).unwrap_or_default();
    let old = all.len().saturating_sub(keep_last);
    for (step, path) in &all[..old] {
        if *step != state.step && state.best.as_ref().is_none_or(|best| best.step != *step) {
            remove(path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use xrun_core::bounded::ledger::Ledger;
    use xrun_core::pipelines::dummy::settings::Dummy;
    use xrun_core::pipelines::dummy::task::DummyTask;
    use xrun_core::settings::sections::Limits;
    use xrun_results::format::Best;

    fn steps(run: &Path) -> Vec<u64> {
        read::checkpoints(run).unwrap().into_iter().map(|(step, _)| step).collect()
    }

    /// Saves this state of a dummy run.
    fn save(state: &LoopState, run: &Path, keep_last: usize) -> Result<(), RunError> {
        super::save(
            &mut DummyTask::new(Dummy::default(), 0, &Limits::default(), &Ledger::default()),
            state,
            run,
            keep_last,
        )
    }

    #[test]
    fn the_last_checkpoints_and_the_best_are_kept() {
        let run = tempfile::tempdir().unwrap();
        for step in 1..=6 {
            let best = (step >= 2).then(|| Best { metric: "score".into(), value: 1.0, step: 2 });
            save(&LoopState { step, best, ..LoopState::default() }, run.path(), 2).unwrap();
        }
        assert_eq!(steps(run.path()), [2, 5, 6]);
        let removed = run.path().join("removed");
        let saved = save(&LoopState::default(), &removed, 1);
        assert!(matches!(saved, Err(RunError::Write(_))) && !removed.exists(), "no directory of a removed run");
    }

    #[test]
    fn a_half_written_checkpoint_does_not_count_and_is_removed_by_the_next_save() {
        let run = tempfile::tempdir().unwrap();
        let half = run.path().join("checkpoints/.writing-00000003");
        std::fs::create_dir_all(&half).unwrap();
        let unnamed = run.path().join("checkpoints/step_00000004");
        std::fs::create_dir_all(&unnamed).unwrap();
        assert_eq!(steps(run.path()), [0u64; 0], "a directory without a state is not a checkpoint");
        save(&LoopState { step: 4, ..LoopState::default() }, run.path(), 1).unwrap();
        assert_eq!(steps(run.path()), [4]);
        assert!(!half.exists());
    }

    fn manifest(run: &str, fingerprint: &str) -> Manifest {
        Manifest { run: run.into(), fingerprint: fingerprint.into(), ..Manifest::default() }
    }

    /// State after four steps.
    fn state_of(manifest: &Manifest) -> LoopState {
        let fingerprint = manifest.fingerprint.clone();
        LoopState { step: 4, run: manifest.run_id(), fingerprint, ..LoopState::default() }
    }

    #[test]
    fn only_an_unchanged_checkpoint_of_the_same_run_and_step_is_used() {
        let run = tempfile::tempdir().unwrap();
        let mine = manifest("r1", "ab");
        save(&state_of(&mine), run.path(), 2).unwrap();
        let checkpoint = layout::checkpoint(run.path(), 4);
        let verify = |step, manifest: &Manifest| verify(&checkpoint, step, manifest);
        assert_eq!(verify(4, &mine).unwrap().files.len(), 1);
        assert!(verify(4, &manifest("r1", CHANGED_BY_RESUME)).is_ok(), "its run was resumed with another value");
        let refused = |step, manifest: &Manifest| match verify(step, manifest) {
            Err(UnusableCheckpoint::Other { why, .. }) => why,
            other => panic!("{other:?}"),
        };
        assert!(refused(5, &mine).contains("of step 4, but the directory is of step 5"));
        assert!(refused(4, &manifest("r2", "ab")).contains("/r1"));
        assert!(refused(4, &manifest("r1", "cd")).contains("fingerprint"));
        let weights = checkpoint.join(layout::WEIGHTS);
        let mut bytes = std::fs::read(&weights).unwrap();
        bytes[3] ^= 1;
        write::replace(&weights, &bytes).unwrap();
        assert!(matches!(verify(4, &mine), Err(UnusableCheckpoint::Other { path, .. }) if path == weights));
        std::fs::remove_file(&weights).unwrap();
        assert!(verify(4, &mine).is_err_and(|error| !error.may_be_intact()), "a part is missing");
        std::fs::create_dir(&weights).unwrap();
        assert!(verify(4, &mine).is_err_and(|error| error.may_be_intact()), "it cannot be read");
    }

    #[test]
    fn exported_models_in_a_checkpoint_are_verified_too() {
        let run = tempfile::tempdir().unwrap();
        let mine = manifest("r", "ab");
        save(&state_of(&mine), run.path(), 2).unwrap();
        let checkpoint = layout::checkpoint(run.path(), 4);
        // Layout of the export of a language model.
        let exported = checkpoint.join("merged_lora_w8/model.safetensors");
        std::fs::create_dir(checkpoint.join("merged_lora_w8")).unwrap();
        write::replace(&exported, b"weights").unwrap();
        std::fs::remove_file(checkpoint.join(layout::LOOP_STATE)).unwrap();
        let files = digests(&checkpoint).unwrap();
        assert_eq!(files.keys().collect::<Vec<_>>(), ["merged_lora_w8/model.safetensors", "model.safetensors"]);
        write::replace_json(&checkpoint.join(layout::LOOP_STATE), &LoopState { files, ..state_of(&mine) }).unwrap();
        assert!(verify(&checkpoint, 4, &mine).is_ok());
        write::replace(&exported, b"weighty").unwrap();
        let damaged = verify(&checkpoint, 4, &mine).unwrap_err();
        assert!(matches!(&damaged, UnusableCheckpoint::Other { path, .. } if *path == exported), "{damaged}");
    }

    #[test]
    fn a_step_that_is_saved_again_keeps_the_digests_of_its_files() {
        let run = tempfile::tempdir().unwrap();
        let mine = manifest("r", "ab");
        save(&state_of(&mine), run.path(), 2).unwrap();
        save(&LoopState { validated: true, ..state_of(&mine) }, run.path(), 2).unwrap();
        let state = verify(&layout::checkpoint(run.path(), 4), 4, &mine).unwrap();
        assert!(state.validated && state.files.len() == 1);
    }
}
