//! How do weights come in from GPT-2's files, and go out as one of them?

use std::path::Path;

use burn_store::{ModuleSnapshot, ModuleStore, SafetensorsStore};

use super::gpt2::Gpt2;
use crate::nn::Backend;
use crate::nn::parameters::single_precision;
use crate::results::tensors;
use crate::task::TaskError;

/// Parameters that GPT-2's files do not have.
fn own(path: &str) -> bool {
    path.contains(".lora.") || path.contains(".scale_logarithms.")
}

/// What a file has beside the embedding when the two are not tied, and at times when they are.
const OUTPUT: &str = "lm_head.weight";

/// Whether the output in a file is the embedding that the network has from it.
fn is_tied(store: &mut SafetensorsStore, network: &Gpt2<Backend>) -> Result<bool, String> {
    let snapshot = store.get_snapshot(OUTPUT).map_err(|error| error.to_string())?;
    let Some(snapshot) = snapshot else { return Ok(true) };
    let output = snapshot.to_data().map_err(|error| format!("`{OUTPUT}` cannot be read: {error:?}"))?;
    let words = network.words().into_data();
    Ok(output.shape == words.shape && output.iter::<f32>().eq(words.iter::<f32>()))
}

/// Puts the weights of a file in Hugging Face's layout into the network. LoRA and scales stay as they are unless the file
/// has them, as xrun's own checkpoints do.
pub fn read(network: &mut Gpt2<Backend>, path: &Path) -> Result<(), TaskError> {
    let failed = |message: String| TaskError::File { path: path.display().to_string(), message };
    // Before Burn maps the file into memory: a pipe, a device, or a file that is not whole is refused by what it is.
    tensors::described(path).map_err(failed)?;
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
    let unknown = |path: &&String| !own(path) && !table(path) && *path != OUTPUT;
    if let Some(unknown) = applied.unused.iter().find(unknown) {
        let advice = if unknown.starts_with("h.") { "; `layers` must be the file's" } else { "" };
        return Err(failed(format!("has `{unknown}`, which this model has no place for{advice}")));
    }
    if applied.unused.iter().any(|path| path == OUTPUT) && !is_tied(&mut store, network).map_err(failed)? {
        return Err(failed(format!(
            "has an output of its own: `{OUTPUT}` differs from `wte.weight`, which is the output of this model; \
             without it other answers would come out"
        )));
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

#[cfg(test)]
mod tests {
    use safetensors::SafeTensors;
    use safetensors::tensor::{Dtype, TensorView};

    use super::super::settings::{Model, Settings};
    use super::*;
    use crate::nn::tests::autodiff;

    /// The reference model with one tensor more.
    fn read_with(name: &str, change: impl FnOnce(&mut [u8])) -> Result<(), TaskError> {
        let bytes = include_bytes!("../../../tests/reference/gpt2_tiny.safetensors");
        let file = SafeTensors::deserialize(bytes).unwrap();
        let words = file.tensor("transformer.wte.weight").unwrap();
        let mut more = words.data().to_vec();
        change(&mut more);
        let more = TensorView::new(Dtype::F32, words.shape().to_vec(), &more).unwrap();
        let mut tensors = file.tensors();
        tensors.push((name.to_owned(), more));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        safetensors::serialize_to_file(tensors, None, &path).unwrap();
        let tiny = Model { layers: Some(2), heads: Some(2), width: Some(8), context: Some(8), ..Model::default() };
        read(&mut Gpt2::new(&Settings::default(), &tiny, 11, 1, &autodiff()), &path)
    }

    #[test]
    fn an_output_of_its_own_is_refused_and_a_tied_one_is_read() {
        read_with("lm_head.weight", |_| {}).unwrap();
        let message = read_with("lm_head.weight", |bytes| bytes[7] ^= 1).unwrap_err().to_string();
        assert!(message.contains("`lm_head.weight` differs from `wte.weight`"), "{message}");
        assert!(message.contains("model.safetensors"), "{message}");
    }

    #[test]
    fn what_has_no_place_in_the_model_is_named() {
        let message = read_with("score.weight", |_| {}).unwrap_err().to_string();
        assert!(message.contains("has `score.weight`, which this model has no place for"), "{message}");
        read_with("transformer.h.0.attn.masked_bias", |_| {}).unwrap();
    }
}
