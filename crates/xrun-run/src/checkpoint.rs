//! How is the state of a run saved, so that a kill at any moment leaves the last one whole, and how is it known later that
//! it still is?

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use super::RunError;
use xrun_core::dataset::digest::digest_of_file;
use xrun_core::files::write;
use xrun_core::files::write::{WRITING, WriteError};
use xrun_core::files::{layout, seal};
use xrun_core::task::Task;
use xrun_results::format::{LoopState, Manifest};
use xrun_results::read;

/// What the manifest says in place of a fingerprint once a resume changed what is trained, or the program.
pub const CHANGED: &str = "changed by a resume";

/// Writes `checkpoints/step_…` and removes those that are no longer kept.
pub fn save(task: &mut dyn Task, state: &LoopState, run: &Path, keep_last: usize) -> Result<(), RunError> {
    let folder = run.join(layout::CHECKPOINTS);
    // Not the run's own folder: where that is gone, nothing is made in its place.
    match std::fs::create_dir(&folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => write::at(&folder, made)?,
    }
    remove_unfinished(&folder)?;
    let place = layout::checkpoint(run, state.step);
    if let Ok(before) = read::loop_state(&place) {
        // The same step again, after a resume that only validated: weights are as they were.
        let state = LoopState { files: before.files, ..state.clone() };
        write::replace_json(&place.join(layout::LOOP_STATE), &state)?;
        return Ok(remove_old(run, &state, keep_last)?);
    }
    let temporary = folder.join(format!("{WRITING}{:08}", state.step));
    write::at(&temporary, std::fs::create_dir(&temporary))?;
    let saved = task.save(&temporary).map_err(|source| RunError::Checkpoint { step: state.step, source });
    let written = saved.and_then(|()| {
        write::at(&temporary, write::sync_files(&temporary))?;
        let files = write::at(&temporary, digests(&temporary))?;
        write::replace_json(&temporary.join(layout::LOOP_STATE), &LoopState { files, ..state.clone() })?;
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

/// SHA-256 of each file in a folder, by name; of those in folders below it, which are exports, by path.
fn digests(folder: &Path) -> io::Result<BTreeMap<String, String>> {
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type()?.is_dir() {
            all.extend(digests(&entry.path())?.into_iter().map(|(inner, digest)| (format!("{name}/{inner}"), digest)));
        } else {
            let digest = digest_of_file(&entry.path()).map_err(|error| io::Error::other(error.to_string()))?;
            all.insert(name, digest);
        }
    }
    Ok(all)
}

/// The state of a checkpoint, if all of it is what the run of this manifest wrote after that step; otherwise what is
/// wrong with it, with the file's name. Reads all its files.
pub fn sound(place: &Path, step: u64, manifest: &Manifest) -> Result<LoopState, String> {
    let state = read::loop_state(place).map_err(|error| error.to_string())?;
    let path = place.join(layout::LOOP_STATE);
    let wrong = |message: String| Err(format!("{}: {message}", path.display()));
    if state.step != step {
        return wrong(format!("is of step {}, and its folder is that of step {step}", state.step));
    }
    if state.run != manifest.whose() {
        return wrong(format!("was written by the run {}, and this is {}", state.run, manifest.whose()));
    }
    if manifest.fingerprint != CHANGED && state.fingerprint != manifest.fingerprint {
        return wrong("is of another experiment, of other data or of another program (its fingerprint differs)".into());
    }
    for (name, written) in &state.files {
        let path = place.join(name);
        match digest_of_file(&path) {
            Ok(found) if found == *written => {}
            Ok(_) => return Err(format!("{}: {}", path.display(), seal::DAMAGED)),
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(state)
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
    use xrun_core::bounded::ledger::Ledger;
    use xrun_core::pipelines::dummy::settings::Settings;
    use xrun_core::pipelines::dummy::task::Dummy;
    use xrun_results::format::Best;

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

    fn manifest(run: &str, fingerprint: &str) -> Manifest {
        let plan = crate::plan::tests::plan_of("[pipeline.dummy]\n");
        let chosen = xrun_core::device::choose("cpu").unwrap();
        super::super::manifest::manifest(&plan, run, fingerprint, &chosen, &[], &BTreeMap::new())
    }

    /// After four steps.
    fn state_of(manifest: &Manifest) -> LoopState {
        let fingerprint = manifest.fingerprint.clone();
        LoopState { step: 4, run: manifest.whose(), fingerprint, ..LoopState::default() }
    }

    #[test]
    fn a_checkpoint_is_taken_only_as_it_was_written_and_for_what_it_is() {
        let run = tempfile::tempdir().unwrap();
        let mut task = Dummy::new(Settings::default(), 0, &Ledger::default());
        let mine = manifest("r1", "ab");
        save(&mut task, &state_of(&mine), run.path(), 2).unwrap();
        let place = layout::checkpoint(run.path(), 4);
        assert_eq!(sound(&place, 4, &mine).unwrap().files.len(), 1);
        assert!(sound(&place, 4, &manifest("r1", CHANGED)).is_ok(), "its run was resumed with another value");
        for (other, step, part) in [
            (&mine, 5, "its folder is that of step 5"),
            (&manifest("r2", "ab"), 4, "/r1, and this is"),
            (&manifest("r1", "cd"), 4, "another experiment"),
        ] {
            let message = sound(&place, step, other).unwrap_err();
            assert!(message.contains(part) && message.contains("state.json"), "{message}");
        }
        let weights = place.join(layout::WEIGHTS);
        let mut bytes = std::fs::read(&weights).unwrap();
        bytes[3] ^= 1;
        write::replace(&weights, &bytes).unwrap();
        let message = sound(&place, 4, &mine).unwrap_err();
        assert!(message.contains("model.safetensors") && message.contains("checksum"), "{message}");
        std::fs::remove_file(&weights).unwrap();
        assert!(sound(&place, 4, &mine).unwrap_err().contains("model.safetensors"));
    }

    #[test]
    fn exported_models_in_a_checkpoint_are_checked_too() {
        let run = tempfile::tempdir().unwrap();
        let mut task = Dummy::new(Settings::default(), 0, &Ledger::default());
        let mine = manifest("r", "ab");
        save(&mut task, &state_of(&mine), run.path(), 2).unwrap();
        let place = layout::checkpoint(run.path(), 4);
        // As the export of a language model leaves them.
        let exported = place.join("merged_lora_w8/model.safetensors");
        std::fs::create_dir(place.join("merged_lora_w8")).unwrap();
        write::replace(&exported, b"weights").unwrap();
        std::fs::remove_file(place.join(layout::LOOP_STATE)).unwrap();
        let files = digests(&place).unwrap();
        assert_eq!(files.keys().collect::<Vec<_>>(), ["merged_lora_w8/model.safetensors", "model.safetensors"]);
        write::replace_json(&place.join(layout::LOOP_STATE), &LoopState { files, ..state_of(&mine) }).unwrap();
        assert!(sound(&place, 4, &mine).is_ok());
        write::replace(&exported, b"weighty").unwrap();
        let message = sound(&place, 4, &mine).unwrap_err();
        assert!(message.contains("merged_lora_w8/model.safetensors") && message.contains("checksum"), "{message}");
    }

    #[test]
    fn a_step_that_is_saved_again_keeps_what_is_known_of_its_files() {
        let run = tempfile::tempdir().unwrap();
        let mut task = Dummy::new(Settings::default(), 0, &Ledger::default());
        let mine = manifest("r", "ab");
        save(&mut task, &state_of(&mine), run.path(), 2).unwrap();
        save(&mut task, &LoopState { validated: true, ..state_of(&mine) }, run.path(), 2).unwrap();
        let state = sound(&layout::checkpoint(run.path(), 4), 4, &mine).unwrap();
        assert!(state.validated && state.files.len() == 1);
    }

    #[test]
    fn where_the_run_is_gone_no_checkpoint_is_made_in_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("run");
        let mut task = Dummy::new(Settings::default(), 0, &Ledger::default());
        let error = save(&mut task, &LoopState { step: 1, ..LoopState::default() }, &run, 1).unwrap_err();
        assert!(error.to_string().contains("checkpoints") && !run.exists(), "{error}");
    }
}
