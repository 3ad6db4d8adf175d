//! Forks: a new run that starts from a checkpoint of another run, with other settings.
//!
//! The weights, the state of the optimiser and the number of the step are those of the checkpoint. Everything that was
//! measured (losses, best validation, time) starts anew: a fork reports what it did itself.

use std::path::{Path, PathBuf};

use super::checkpoint::{self, UnusableCheckpoint};
use super::evaluate::SelectedCheckpoint;
use super::prepare::Planned;
use crate::plan::Plan;
use xrun_core::dataset::digest::digest;
use xrun_core::experiment::overrides::overridden_key;
use xrun_core::files::layout;
use xrun_core::files::write;
use xrun_core::files::write::WriteError;
use xrun_results::format::{LoopState, Manifest, Parent, VERSION};

/// Name of the checkpoint's digest among those of the data, in the manifest and in the fingerprint.
const DIGEST: &str = "parent_checkpoint";

/// Start of a run from a checkpoint of another run.
#[derive(Clone, Debug)]
pub struct Fork {
    /// Record of the checkpoint.
    pub parent: Parent,
    /// Directory of the checkpoint.
    pub checkpoint: PathBuf,
    state: LoopState,
}

impl Fork {
    /// Fork of the run of this manifest at a checkpoint. `overrides` are the changes, as `section.key=value`.
    ///
    /// # Errors
    /// The checkpoint is damaged or of another run.
    pub fn new(
        manifest: &Manifest,
        checkpoint: &SelectedCheckpoint,
        overrides: &[String],
    ) -> Result<Self, UnusableCheckpoint> {
        let state = checkpoint::verify(&checkpoint.path, checkpoint.step, manifest)?;
        let changed = overrides.iter().map(|text| overridden_key(text).to_owned()).collect();
        let parent = Parent { run: manifest.run_id(), step: state.step, changed };
        Ok(Self { parent, checkpoint: checkpoint.path.clone(), state })
    }

    /// Adds the checkpoint to the data of the run: its fingerprint differs from that of a run from step 0.
    pub fn add_to(&self, planned: &mut Planned) {
        let files: Vec<String> = self.state.files.iter().map(|(name, digest)| format!("{name} {digest}")).collect();
        let digest = digest(format!("{}\n{}", self.parent, files.join("\n")).as_bytes());
        planned.plan.facts.data_digests.push((DIGEST.to_owned(), digest));
    }

    /// Copies the checkpoint into the directory of the new run, so that a run that is killed before its own first checkpoint
    /// can be resumed, and returns the state of the loop.
    pub(super) fn start(&self, run: &Path, id: String, fingerprint: String) -> Result<LoopState, WriteError> {
        let state = LoopState {
            version: VERSION,
            step: self.state.step,
            began_at: self.state.step,
            epoch: self.state.epoch,
            gradient_norms: self.state.gradient_norms.clone(),
            // Unless the fork validates where it begins.
            metrics_first: self.state.metrics_last.clone(),
            files: self.state.files.clone(),
            run: id,
            fingerprint,
            ..LoopState::default()
        };
        let copy = layout::checkpoint(run, state.step);
        write::create_directories(&copy)?;
        for name in state.files.keys() {
            let (from, to) = (self.checkpoint.join(name), copy.join(name));
            if let Some(parent) = to.parent() {
                write::create_directories(parent)?;
            }
            write::with_path(&from, std::fs::copy(&from, &to))?;
        }
        write::with_path(&copy, write::sync_files(&copy))?;
        // Last: its presence means that the checkpoint is complete.
        write::replace_json(&copy.join(layout::LOOP_STATE), &state)?;
        Ok(state)
    }
}

/// Adds the digest of its parent's checkpoint to the plan of a fork that is resumed.
pub fn add_recorded(plan: &mut Plan, manifest: &Manifest) {
    let digest = manifest.data.get(DIGEST);
    plan.facts.data_digests.extend(digest.map(|digest| (DIGEST.to_owned(), digest.clone())));
}
