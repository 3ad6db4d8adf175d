//! Import of weights from safetensors files in Hugging Face's layout.

use std::path::Path;

use burn::tensor::TensorData;
use burn_store::{ApplyResult, ModuleSnapshot, ModuleStore, PyTorchToBurnAdapter, SafetensorsStore};

use super::parameters::single_precision;
use xrun_core::files::tensors;
use xrun_core::task::TaskError;
use xrun_core::units::pluralize;

/// Layout of a file, and its mapping to a module.
#[derive(Clone, Copy, Debug)]
pub struct WeightFile {
    /// Patterns of names in the file and their replacements, applied one after the other.
    pub names: &'static [&'static [(&'static str, &'static str)]],
    /// True if matrices of linear layers are `[outputs, inputs]`, as in PyTorch.
    pub transposed: bool,
    /// Tensors of the file that are ignored, by their mapped names.
    pub ignored: fn(&str) -> bool,
    /// Parameters of the module that the file may lack.
    pub optional: fn(&str) -> bool,
    /// Name of the architecture, such as "GPT-2", for messages.
    pub architecture: &'static str,
    /// Keys of the experiment that must agree with the file, for messages.
    pub advice: &'static str,
    /// Key of the number of blocks, for messages.
    pub layers_key: &'static str,
}

/// Reads the weights of a file into the module and converts them to 32-bit floats. `check` then inspects the result.
///
/// # Errors
/// The file cannot be read, does not fit, lacks a tensor, has a tensor that the module lacks, or `check` fails.
pub fn read<M>(
    module: &mut M,
    path: &Path,
    file: WeightFile,
    check: impl FnOnce(&mut M, &mut SafetensorsStore, &ApplyResult) -> Result<(), String>,
) -> Result<(), TaskError>
where
    M: ModuleSnapshot,
{
    let failed = |message: String| TaskError::File { path: path.display().to_string(), message };
    // Burn maps the file into memory: a pipe, a device or a truncated file is refused before, with its own message.
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
    if let Some(unknown) = applied.unused.iter().find(|path| !(file.ignored)(path) && !(file.optional)(path)) {
        let in_block = unknown.starts_with("h.") || unknown.contains("layer.");
        let advice = if in_block {
            format!("; set `{}` to the number of blocks in the file", file.layers_key)
        } else {
            String::new()
        };
        return Err(failed(format!("has the tensor `{unknown}`, which this model lacks{advice}")));
    }
    check(module, &mut store, &applied).map_err(failed)?;
    let mut missing = applied.missing.iter().map(|(path, _)| path.as_str()).filter(|path| !(file.optional)(path));
    match missing.next() {
        Some(first) => {
            let others = match missing.count() {
                0 => String::new(),
                others => format!(" and {}", pluralize(others as u64, "other tensor")),
            };
            Err(failed(format!(
                "lacks the tensor `{first}`{others}; expected a {} file in Hugging Face's layout",
                file.architecture
            )))
        }
        None => {
            *module = single_precision(module.clone());
            Ok(())
        }
    }
}

/// Reads a tensor of a file by its (mapped) name; `None` if the file lacks it.
///
/// # Errors
/// The tensor cannot be read.
pub fn tensor(store: &mut SafetensorsStore, name: &str) -> Result<Option<TensorData>, String> {
    let Some(found) = store.get_tensor(name).map_err(|error| error.to_string())? else { return Ok(None) };
    let bytes = found.to_bytes().map_err(|error| format!("`{name}` cannot be read: {error:?}"))?;
    Ok(Some(TensorData::from_bytes(bytes, found.shape.clone(), found.dtype)))
}
