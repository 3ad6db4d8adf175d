//! Initial weights of a run, from another run, a checkpoint or a file.

use std::path::{Path, PathBuf};

use super::evaluate::{self, CheckpointChoice};
use crate::plan::Plan;
use xrun_core::dataset::digest::digest_of_file;
use xrun_core::files::layout;
use xrun_results::format::Manifest;
use xrun_results::read;

/// Name of their digest among those of the data, in the manifest and in the fingerprint.
pub const DIGEST: &str = "initial_weights";

/// Initial weights that were located.
#[derive(Clone, Debug)]
pub struct InitialWeights {
    /// File of the tensors.
    pub file: PathBuf,
    /// SHA-256 of that file.
    pub digest: String,
    /// Run that trained them and the number of steps, if they are from a run.
    pub source: Option<(Manifest, u64)>,
}

/// Locates the weights that `training.initial_weights` names: by the directory of a run (its best checkpoint), the directory
/// of a checkpoint, or a file.
///
/// # Errors
/// There are no weights, or they are damaged.
pub fn find(path: &str) -> Result<InitialWeights, String> {
    let path = Path::new(path);
    let with_key = |message: String| format!("training.initial_weights: {message}");
    let (file, source) = if path.join(layout::MANIFEST).is_file() {
        let manifest = read::manifest(path).map_err(|error| with_key(error.to_string()))?;
        let best = evaluate::select_checkpoint(path, &manifest, CheckpointChoice::Best).map_err(with_key)?;
        (best.path.join(layout::WEIGHTS), Some((manifest, best.step)))
    } else if path.is_dir() || path.ends_with(layout::WEIGHTS) {
        // The weights file of a checkpoint means the checkpoint.
        let path = if path.is_dir() { path } else { path.parent().unwrap_or(path) };
        let file = path.join(layout::WEIGHTS);
        if !file.is_file() {
            let message =
                format!("{} is neither a run nor a checkpoint: {} is missing", path.display(), layout::WEIGHTS);
            return Err(with_key(message));
        }
        // The run is two directories above its checkpoint.
        let run = path.parent().and_then(Path::parent);
        let step = read::loop_state(path).ok().map(|state| state.step);
        (file, run.and_then(|run| read::manifest(run).ok()).zip(step))
    } else {
        (path.to_path_buf(), None)
    };
    let digest = digest_of_file(&file).map_err(|error| with_key(error.to_string()))?;
    Ok(InitialWeights { file, digest, source })
}

impl InitialWeights {
    /// Refuses a model that depends on its training data, for example by its tokenizer, if this experiment has other data.
    ///
    /// # Errors
    /// The data differs.
    pub fn check_data(&self, plan: &Plan) -> Result<(), String> {
        let Some((manifest, _)) = &self.source else { return Ok(()) };
        let result = evaluate::check_data(plan, manifest).map(|_| ());
        result.map_err(|message| format!("training.initial_weights: {}: {message}", self.file.display()))
    }

    /// Message about the source of the weights.
    pub fn description(&self) -> String {
        match &self.source {
            Some((manifest, step)) => format!("initial weights: {} after step {step}", manifest.run_id()),
            None => format!("initial weights: {}", self.file.display()),
        }
    }
}
