//! Weights of a checkpoint as a safetensors file.

use std::path::Path;

use burn_store::{ApplyError, ModuleSnapshot, SafetensorsStore};

use xrun_core::files::{layout, tensors};
use xrun_core::task::TaskError;

/// Writes the weights of an inner (non-autodiff) network with a single metadata entry. Burn's own metadata is dropped: the order of
/// its entries differs between processes, so that equal weights would give unequal files.
///
/// # Errors
/// The file cannot be written.
pub fn write(network: &impl ModuleSnapshot, path: &Path, key: &str, value: &str) -> Result<(), TaskError> {
    let mut store = SafetensorsStore::from_file(path).clear_metadata().metadata(key, value);
    network.save_into(&mut store).map_err(|error| TaskError::file(path, error))
}

/// Writes the weights into the directory of a checkpoint, with `model` as the name of its kind. As [`write`].
pub fn save(network: &impl ModuleSnapshot, model: &str, directory: &Path) -> Result<(), TaskError> {
    write(network, &directory.join(layout::WEIGHTS), "model", model)
}

/// Reads the weights that [`save`] wrote. As [`load_file`].
pub fn load(network: &mut impl ModuleSnapshot, directory: &Path) -> Result<(), TaskError> {
    load_file(network, &directory.join(layout::WEIGHTS))
}

/// Reads a file of weights that [`save`] wrote. All weights must be there and fit.
///
/// # Errors
/// The file cannot be read, or belongs to another model: the message names the first tensor that does not fit.
pub fn load_file(network: &mut impl ModuleSnapshot, path: &Path) -> Result<(), TaskError> {
    tensors::read_header(path).map_err(|error| TaskError::file(path, error))?;
    let mut store = SafetensorsStore::from_file(path.to_path_buf()).allow_partial(true).validate(false);
    let applied = network.load_from(&mut store).map_err(|error| TaskError::file(path, error))?;
    let missing = applied.missing.first().map(|(name, _)| format!("tensor `{name}` is missing"));
    let Some(reason) = missing.or_else(|| applied.errors.first().map(message)) else { return Ok(()) };
    Err(TaskError::file(path, format!("does not fit the model of this experiment: {reason}")))
}

fn message(error: &ApplyError) -> String {
    match error {
        ApplyError::ShapeMismatch { path, expected, found } => {
            format!("tensor `{path}` has the shape {:?}, expected {:?}", found.as_slice(), expected.as_slice())
        }
        other => other.to_string(),
    }
}
