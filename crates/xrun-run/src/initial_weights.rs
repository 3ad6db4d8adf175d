//! Which file does a run start from that does not start from random weights?

use std::path::{Path, PathBuf};

use super::evaluate::{self, Which};
use crate::plan::Plan;
use xrun_core::dataset::digest::digest_of_file;
use xrun_core::files::layout;
use xrun_results::format::Manifest;
use xrun_results::read;

/// The name of their digest beside those of the data, in the manifest and in the fingerprint.
pub const DIGEST: &str = "initial_weights";

/// Weights that were found.
#[derive(Clone, Debug)]
pub struct InitialWeights {
    /// The file of the tensors.
    pub file: PathBuf,
    /// SHA-256 of that file.
    pub digest: String,
    /// The run that trained them, where they are a run's, and after how many steps.
    pub of_run: Option<(Manifest, u64)>,
}

/// Finds them by what `training.initial_weights` names: the folder of a run (its best checkpoint), that of a checkpoint, or a
/// file.
///
/// # Errors
/// For people: nothing there has weights, or they are damaged.
pub fn find(path: &str) -> Result<InitialWeights, String> {
    let path = Path::new(path);
    let blamed = |message: String| format!("training.initial_weights: {message}");
    let (file, of_run) = if path.join(layout::MANIFEST).is_file() {
        let manifest = read::manifest(path).map_err(|error| blamed(error.to_string()))?;
        let chosen = evaluate::choose(path, &manifest, Which::Best).map_err(blamed)?;
        (chosen.path.join(layout::WEIGHTS), Some((manifest, chosen.step)))
    } else if path.is_dir() || path.ends_with(layout::WEIGHTS) {
        // A file of a checkpoint is the checkpoint's, however it is named.
        let path = if path.is_dir() { path } else { path.parent().unwrap_or(path) };
        let file = path.join(layout::WEIGHTS);
        if !file.is_file() {
            let message =
                format!("{} is neither a run nor a checkpoint: it has no {}", path.display(), layout::WEIGHTS);
            return Err(blamed(message));
        }
        // A checkpoint lies in its run.
        let run = path.parent().and_then(Path::parent);
        let step = read::loop_state(path).ok().map(|state| state.step);
        (file, run.and_then(|run| read::manifest(run).ok()).zip(step))
    } else {
        (path.to_path_buf(), None)
    };
    let digest = digest_of_file(&file).map_err(|error| blamed(error.to_string()))?;
    Ok(InitialWeights { file, digest, of_run })
}

impl InitialWeights {
    /// Refuses a model that has more of its data than its weights, such as a tokenizer, where this experiment has other data.
    ///
    /// # Errors
    /// For people: what would not fit.
    pub fn fit(&self, plan: &Plan) -> Result<(), String> {
        let Some((manifest, _)) = &self.of_run else { return Ok(()) };
        let result = evaluate::fits(plan, manifest).map(|_| ());
        result.map_err(|message| format!("training.initial_weights: {}: {message}", self.file.display()))
    }

    /// What training starts from, for people.
    pub fn words(&self) -> String {
        match &self.of_run {
            Some((manifest, step)) => format!("training starts from {} after step {step}", manifest.whose()),
            None => format!("training starts from {}", self.file.display()),
        }
    }
}
