//! How do the weights of a checkpoint go to a file, and come back?

use std::path::{Path, PathBuf};

use burn_store::{ApplyError, ModuleSnapshot, SafetensorsStore};

use xrun_core::files::{layout, tensors};
use xrun_core::task::TaskError;

/// A file of weights that is to be written, with one word about them. Burn's own words go: several stand in an order that
/// differs from process to process, and equal weights would be unequal files.
pub fn to_file(path: impl Into<PathBuf>, key: &str, word: &str) -> SafetensorsStore {
    SafetensorsStore::from_file(path).clear_metadata().metadata(key, word)
}

/// Writes the weights of a plain network into a checkpoint's folder; `model` says in the file which kind it is.
pub fn save(network: &impl ModuleSnapshot, model: &str, directory: &Path) -> Result<(), TaskError> {
    let path = directory.join(layout::WEIGHTS);
    let mut store = to_file(path.clone(), "model", model);
    network.save_into(&mut store).map_err(|error| TaskError::file(&path, error))
}

/// Reads what [`save`] wrote. All weights must be there and fit.
pub fn load(network: &mut impl ModuleSnapshot, directory: &Path) -> Result<(), TaskError> {
    load_file(network, &directory.join(layout::WEIGHTS))
}

/// Reads a file of weights that [`save`] wrote. All weights must be there and fit.
///
/// # Errors
/// The file does not read, or is of another model: then it names the first tensor that does not fit.
pub fn load_file(network: &mut impl ModuleSnapshot, path: &Path) -> Result<(), TaskError> {
    tensors::read_header(path).map_err(|error| TaskError::file(path, error))?;
    let mut store = SafetensorsStore::from_file(path.to_path_buf()).allow_partial(true).validate(false);
    let applied = network.load_from(&mut store).map_err(|error| TaskError::file(path, error))?;
    let missing = applied.missing.first().map(|(name, _)| format!("it has no tensor `{name}`"));
    let Some(what) = missing.or_else(|| applied.errors.first().map(words)) else { return Ok(()) };
    Err(TaskError::file(path, format!("does not fit the model of this experiment: {what}")))
}

fn words(error: &ApplyError) -> String {
    match error {
        ApplyError::ShapeMismatch { path, expected, found } => {
            format!("its `{path}` has the shape {:?}, and {:?} is needed", found.as_slice(), expected.as_slice())
        }
        other => other.to_string(),
    }
}
