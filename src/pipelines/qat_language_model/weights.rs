//! How do weights come in from GPT-2's files, and go out as one?

use std::path::Path;

use burn_store::{ModuleSnapshot, SafetensorsStore};

use super::gpt2::Gpt2;
use crate::nn::Backend;
use crate::nn::parameters::single_precision;
use crate::task::TaskError;

/// Parameters that GPT-2's files do not have.
fn own(path: &str) -> bool {
    path.contains(".lora.") || path.contains(".scale_logarithms.")
}

/// Puts the weights of a file in Hugging Face's layout into the network. LoRA and scales stay as they are unless the file
/// has them, as xrun's own checkpoints do.
pub fn read(network: &mut Gpt2<Backend>, path: &Path) -> Result<(), TaskError> {
    let failed = |message: String| TaskError::File { path: path.display().to_string(), message };
    // A file of the whole language model has a prefix that one of the transformer alone has not.
    let store = SafetensorsStore::from_file(path).with_key_remapping(r"^transformer\.", "");
    let mut store = store.allow_partial(true).validate(false);
    let applied = network.load_from(&mut store).map_err(|error| failed(format!("cannot be read: {error}")))?;
    if let Some(error) = applied.errors.first() {
        let advice = "layers, width and context must be those of the file, and the vocabulary that of `encoder`";
        return Err(failed(format!("does not fit the model: {error}; {advice}")));
    }
    // Tables that follow from the context are no parameters here.
    let table = |path: &str| path.ends_with(".attn.bias") || path.ends_with(".attn.masked_bias");
    if let Some(layer) = applied.unused.iter().find(|path| path.starts_with("h.") && !own(path) && !table(path)) {
        return Err(failed(format!("has `{layer}`, which this model has no place for; `layers` must be the file's")));
    }
    let missing: Vec<&str> = applied.missing.iter().map(|(path, _)| path.as_str()).filter(|path| !own(path)).collect();
    match missing.first() {
        Some(first) => Err(failed(format!(
            "has no `{first}` (and {} others are missing); is this GPT-2 as Hugging Face writes it?",
            missing.len() - 1
        ))),
        None => {
            // Files of GPT-2 often hold 16-bit floats.
            *network = single_precision(network.clone());
            Ok(())
        }
    }
}

/// Writes a merged network, on the plain device, as Hugging Face's programs read it.
pub fn write(network: &Gpt2<Backend>, path: &Path) -> Result<(), TaskError> {
    let mut store = SafetensorsStore::from_file(path).metadata("format", "pt");
    network
        .save_into(&mut store)
        .map_err(|error| TaskError::File { path: path.display().to_string(), message: error.to_string() })
}
