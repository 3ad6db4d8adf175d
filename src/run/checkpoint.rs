//! How is the state of a run saved, so that a kill at any moment leaves the last one whole?

use std::path::Path;

use super::RunError;
use crate::results::format::LoopState;
use crate::results::write::{self, WriteError};
use crate::results::{layout, read};
use crate::task::Task;

/// A checkpoint is written beside its place and moved there when it is complete.
const WRITING: &str = ".writing-";

/// Writes `checkpoints/step_…` and removes those that are no longer kept.
pub fn save(task: &mut dyn Task, state: &LoopState, run: &Path, keep_last: usize) -> Result<(), RunError> {
    let folder = run.join(layout::CHECKPOINTS);
    write::at(&folder, std::fs::create_dir_all(&folder))?;
    remove_unfinished(&folder)?;
    let place = layout::checkpoint(run, state.step);
    if place.join(layout::LOOP_STATE).is_file() {
        // The same step again, after a resume that only validated: weights are as they were.
        write::replace_json(&place.join(layout::LOOP_STATE), state)?;
        return Ok(remove_old(run, state, keep_last)?);
    }
    let temporary = folder.join(format!("{WRITING}{:08}", state.step));
    write::at(&temporary, std::fs::create_dir(&temporary))?;
    let saved = task.save(&temporary).map_err(|source| RunError::Checkpoint { step: state.step, source });
    let written = saved.and_then(|()| {
        write::at(&temporary, write::sync_files(&temporary))?;
        write::replace_json(&temporary.join(layout::LOOP_STATE), state)?;
        if place.exists() {
            write::at(&place, std::fs::remove_dir_all(&place))?;
        }
        write::at(&place, std::fs::rename(&temporary, &place))?;
        write::at(&folder, write::sync_folder(&folder))?;
        Ok(())
    });
    if written.is_err() {
        // Room for the message and the summary on a full disk.
        let _ = std::fs::remove_dir_all(&temporary);
        return written;
    }
    remove_old(run, state, keep_last)?;
    Ok(())
}

/// What a kill in the middle of [`save`] leaves.
fn remove_unfinished(folder: &Path) -> Result<(), WriteError> {
    for entry in write::at(folder, std::fs::read_dir(folder))?.flatten() {
        if entry.file_name().to_string_lossy().starts_with(WRITING) {
            write::at(&entry.path(), std::fs::remove_dir_all(entry.path()))?;
        }
    }
    Ok(())
}

fn remove_old(run: &Path, state: &LoopState, keep_last: usize) -> Result<(), WriteError> {
    let all = read::checkpoints(run);
    let old = all.len().saturating_sub(keep_last);
    for (step, path) in &all[..old] {
        if *step != state.step && state.best.as_ref().is_none_or(|best| best.step != *step) {
            write::at(path, std::fs::remove_dir_all(path))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::ledger::Ledger;
    use crate::pipelines::dummy::settings::Settings;
    use crate::pipelines::dummy::task::Dummy;
    use crate::results::format::Best;

    fn steps(run: &Path) -> Vec<u64> {
        read::checkpoints(run).into_iter().map(|(step, _)| step).collect()
    }

    #[test]
    fn the_last_ones_and_the_best_are_kept() {
        let run = tempfile::tempdir().unwrap();
        let mut task = Dummy::new(Settings::default(), 0, &Ledger::default());
        for step in 1..=6 {
            let best = (step >= 2).then(|| Best { metric: "score".into(), value: 1.0, step: 2 });
            save(&mut task, &LoopState { step, best, ..LoopState::default() }, run.path(), 2).unwrap();
        }
        assert_eq!(steps(run.path()), [2, 5, 6]);
    }

    #[test]
    fn what_a_kill_leaves_half_written_is_not_a_checkpoint_and_goes_with_the_next() {
        let run = tempfile::tempdir().unwrap();
        let half = run.path().join("checkpoints/.writing-00000003");
        std::fs::create_dir_all(&half).unwrap();
        let unnamed = run.path().join("checkpoints/step_00000004");
        std::fs::create_dir_all(&unnamed).unwrap();
        assert_eq!(steps(run.path()), [0u64; 0], "without its state a folder is no checkpoint");
        let mut task = Dummy::new(Settings::default(), 0, &Ledger::default());
        save(&mut task, &LoopState { step: 4, ..LoopState::default() }, run.path(), 1).unwrap();
        assert_eq!(steps(run.path()), [4]);
        assert!(!half.exists());
    }
}
