//! Import of GPT-2's weights from Hugging Face's files.

use std::path::Path;

use burn_store::SafetensorsStore;

use super::Tensor;
use super::gpt2::Gpt2Network;
use super::hugging_face::{self, WeightFile};
use xrun_core::task::TaskError;

/// Weight of the output layer, which some files have in addition to the embedding that it is tied to.
const OUTPUT: &str = "lm_head.weight";

/// Returns whether a tensor of a file is no parameter: the tied output, and the causal masks.
fn left_out(path: &str) -> bool {
    path == OUTPUT || path.ends_with(".attn.bias") || path.ends_with(".attn.masked_bias")
}

/// Returns whether GPT-2's files lack a parameter. It keeps its value unless the file has it, as xrun's own checkpoints do.
fn is_own(path: &str) -> bool {
    path.contains(".lora.") || path.contains(".scale_logarithms.")
}

const FILE: WeightFile = WeightFile {
    // Files of the whole language model have this prefix, files of the transformer alone do not.
    names: &[&[(r"^transformer\.", "")]],
    transposed: false,
    ignored: left_out,
    optional: is_own,
    architecture: "GPT-2",
    advice: "layers, hidden_size and context_length must equal those of the file, and the vocabulary that of `encoder`",
    layers_key: "layers",
};

/// Reads the weights of a file in Hugging Face's layout into the network.
///
/// # Errors
/// As [`hugging_face::read`], or the output of the file is not tied to its embedding.
pub fn read(network: &mut Gpt2Network, path: &Path) -> Result<(), TaskError> {
    hugging_face::read(network, path, FILE, |network, store, applied| {
        match applied.unused.iter().any(|path| path == OUTPUT) && !is_tied(store, network.embedding_matrix())? {
            true => Err(format!(
                "has an untied output: `{OUTPUT}` differs from `wte.weight`, and this model supports tied weights only"
            )),
            false => Ok(()),
        }
    })
}

/// Returns whether the output in a file equals the embedding that was read from it.
fn is_tied(store: &mut SafetensorsStore, embedding: Tensor<2>) -> Result<bool, String> {
    let Some(output) = hugging_face::tensor(store, OUTPUT)? else { return Ok(true) };
    let embedding = embedding.into_data();
    Ok(output.shape() == embedding.shape() && output.iter::<f32>().eq(embedding.iter::<f32>()))
}
