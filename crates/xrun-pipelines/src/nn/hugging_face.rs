//! How do weights come in from a file as Hugging Face's programs write it?

use std::path::Path;

use burn::tensor::TensorData;
use burn_store::{ApplyResult, ModuleSnapshot, ModuleStore, PyTorchToBurnAdapter, SafetensorsStore};

use super::parameters::single_precision;
use xrun_core::files::tensors;
use xrun_core::task::TaskError;

/// What a file has, and what of it is wanted.
#[derive(Clone, Copy, Debug)]
pub struct FileOf {
    /// Names in the file, as patterns, and those in the module; one after the other.
    pub names: &'static [&'static [(&'static str, &'static str)]],
    /// Whether matrices of linear layers stand in it as PyTorch's do, `[outputs, inputs]`.
    pub transposed: bool,
    /// What the file may have beyond the module, by its name in the module.
    pub left_out: fn(&str) -> bool,
    /// What the module may have beyond the file.
    pub own: fn(&str) -> bool,
    /// What kind of file it is, such as "GPT-2".
    pub called: &'static str,
    /// Which keys must agree with the file, for the message of one that does not fit.
    pub advice: &'static str,
    /// The key that counts the blocks.
    pub layers: &'static str,
}

/// Puts the weights of a file into the module, in 32-bit floats whatever the file has; `look` may then look at what was read.
///
/// # Errors
/// The file cannot be read, does not fit, lacks a weight, has one more than the module, or `look` refuses it.
pub fn read<M>(
    module: &mut M,
    path: &Path,
    file: FileOf,
    look: impl FnOnce(&mut M, &mut SafetensorsStore, &ApplyResult) -> Result<(), String>,
) -> Result<(), TaskError>
where
    M: ModuleSnapshot,
{
    let failed = |message: String| TaskError::File { path: path.display().to_string(), message };
    // Before Burn maps the file into memory: a pipe, a device, or a file that is not whole is refused by what it is.
    tensors::read_header(path).map_err(failed)?;
    let mut store = SafetensorsStore::from_file(path).allow_partial(true).validate(false);
    if file.transposed {
        store = store.with_from_adapter(PyTorchToBurnAdapter);
    }
    for (pattern, name) in file.names.iter().copied().flatten() {
        store = store.with_key_remapping(*pattern, *name);
    }
    let applied = module.load_from(&mut store).map_err(|error| failed(format!("cannot be read: {error}")))?;
    if let Some(error) = applied.errors.first() {
        return Err(failed(format!("does not fit the model: {error}; {}", file.advice)));
    }
    if let Some(unknown) = applied.unused.iter().find(|path| !(file.left_out)(path) && !(file.own)(path)) {
        let is_of_block = unknown.starts_with("h.") || unknown.contains("layer.");
        let advice = if is_of_block { format!("; `{}` must be the file's", file.layers) } else { String::new() };
        return Err(failed(format!("has `{unknown}`, which this model has no place for{advice}")));
    }
    look(module, &mut store, &applied).map_err(failed)?;
    let mut missing = applied.missing.iter().map(|(path, _)| path.as_str()).filter(|path| !(file.own)(path));
    match missing.next() {
        Some(first) => {
            let others = missing.count();
            let called = file.called;
            let message = format!(
                "has no `{first}` (and {others} others are missing); is this {called} as Hugging Face writes it?"
            );
            Err(failed(message))
        }
        None => {
            *module = single_precision(module.clone());
            Ok(())
        }
    }
}

/// A tensor of a file by its name there, if the file has it.
///
/// # Errors
/// It cannot be read.
pub fn tensor(store: &mut SafetensorsStore, name: &str) -> Result<Option<TensorData>, String> {
    let Some(found) = store.get_tensor(name).map_err(|error| error.to_string())? else { return Ok(None) };
    let bytes = found.to_bytes().map_err(|error| format!("`{name}` cannot be read: {error:?}"))?;
    Ok(Some(TensorData::from_bytes(bytes, found.shape.clone(), found.dtype)))
}
