//! Reading and writing of weights in GPT-2's file layout.

use std::path::Path;

use burn_store::ModuleSnapshot;

use super::network::Gpt2Network;
use xrun_core::task::TaskError;
use xrun_training::nn::{checkpoint_weights, gpt2_file};

/// Returns whether GPT-2's files lack a parameter.
fn is_own(path: &str) -> bool {
    path.contains(".lora.") || path.contains(".scale_logarithms.")
}

/// Reads weights in Hugging Face's layout into the network. LoRA and scales are read if the file has them, as xrun's own
/// checkpoints do, and stay as they are otherwise.
///
/// # Errors
/// The file cannot be read or does not fit the network.
pub fn read(network: &mut Gpt2Network, path: &Path) -> Result<(), TaskError> {
    gpt2_file::read(network, path, is_own, Gpt2Network::embedding_matrix)
}

/// Writes a merged network of the inner device in Hugging Face's layout.
///
/// # Errors
/// The file cannot be written.
pub fn write(network: &Gpt2Network, path: &Path) -> Result<(), TaskError> {
    let mut store = checkpoint_weights::to_file(path, "format", "pt");
    network
        .save_into(&mut store)
        .map_err(|error| TaskError::File { path: path.display().to_string(), message: error.to_string() })
}

#[cfg(test)]
mod tests {
    use safetensors::SafeTensors;
    use safetensors::tensor::{Dtype, TensorView};

    use super::super::network;
    use super::super::settings::{Gpt2, QatLanguageModel};
    use super::*;
    use xrun_training::nn::testing::autodiff;

    /// Reads the reference model with one more tensor.
    fn read_with(name: &str, change: impl FnOnce(&mut [u8])) -> Result<(), TaskError> {
        let bytes = include_bytes!("../../../../tests/reference/gpt2_tiny.safetensors");
        let file = SafeTensors::deserialize(bytes).unwrap();
        let words = file.tensor("transformer.wte.weight").unwrap();
        let mut more = words.data().to_vec();
        change(&mut more);
        let more = TensorView::new(Dtype::F32, words.shape().to_vec(), &more).unwrap();
        let mut tensors = file.tensors();
        tensors.push((name.to_owned(), more));
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("model.safetensors");
        safetensors::serialize_to_file(tensors, None, &path).unwrap();
        let tiny =
            Gpt2 { layers: Some(2), heads: Some(2), hidden_size: Some(8), context_length: Some(8), ..Gpt2::default() };
        read(&mut network::new(&QatLanguageModel::default(), &tiny, 11, 1, &autodiff()), &path)
    }

    #[test]
    fn an_untied_output_is_refused_and_a_tied_one_is_read() {
        read_with("lm_head.weight", |_| {}).unwrap();
        let message = read_with("lm_head.weight", |bytes| bytes[7] ^= 1).unwrap_err().to_string();
        for name in ["`lm_head.weight`", "`wte.weight`", "model.safetensors"] {
            assert!(message.contains(name), "{message}");
        }
    }

    #[test]
    fn an_unknown_tensor_is_refused_by_name() {
        let message = read_with("score.weight", |_| {}).unwrap_err().to_string();
        assert!(message.contains("`score.weight`"), "{message}");
        read_with("transformer.h.0.attn.masked_bias", |_| {}).unwrap();
    }
}
