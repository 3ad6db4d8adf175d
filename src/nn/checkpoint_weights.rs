//! How do the weights of a checkpoint go to a file, and come back?

use std::path::{Path, PathBuf};

use burn_store::{ModuleSnapshot, SafetensorsStore};

use super::Backend;
use crate::results::{layout, tensors};
use crate::task::TaskError;

/// A file of weights that is to be written, with one word about them. Burn's own words go: several stand in an order that
/// differs from process to process, and equal weights would be unequal files.
pub fn to_file(path: impl Into<PathBuf>, key: &str, word: &str) -> SafetensorsStore {
    SafetensorsStore::from_file(path).clear_metadata().metadata(key, word)
}

/// Writes the weights of a plain network into a checkpoint's folder; `model` says in the file which kind it is.
pub fn save(network: &impl ModuleSnapshot<Backend>, model: &str, directory: &Path) -> Result<(), TaskError> {
    let path = directory.join(layout::WEIGHTS);
    let mut store = to_file(path.clone(), "model", model);
    network.save_into(&mut store).map_err(|error| TaskError::file(&path, error))
}

/// Reads what [`save`] wrote. All weights must be there and fit.
pub fn load(network: &mut impl ModuleSnapshot<Backend>, directory: &Path) -> Result<(), TaskError> {
    let path = directory.join(layout::WEIGHTS);
    tensors::described(&path).map_err(|error| TaskError::file(&path, error))?;
    let mut store = SafetensorsStore::from_file(path.clone());
    let applied = network.load_from(&mut store).map_err(|error| TaskError::file(&path, error))?;
    match applied.missing.is_empty() && applied.errors.is_empty() {
        true => Ok(()),
        false => Err(TaskError::file(&path, "does not fit the model of this experiment")),
    }
}
