//! Import of GPT-2's weights from Hugging Face's files.

use std::path::Path;

use burn_store::{ModuleSnapshot, SafetensorsStore};

use super::Tensor;
use super::hugging_face::{self, WeightFile};
use xrun_core::task::TaskError;

/// Weight of the output layer, which some files have in addition to the embedding that it is tied to.
const OUTPUT: &str = "lm_head.weight";

/// Returns whether a tensor of a file is no parameter: the tied output, and the causal masks.
fn left_out(path: &str) -> bool {
    path == OUTPUT || path.ends_with(".attn.bias") || path.ends_with(".attn.masked_bias")
}

/// Reads the weights of a file in Hugging Face's layout into a module with the same names. `own` selects parameters that such
/// files lack; they keep their values unless the file has them, as xrun's own checkpoints do. `embedding` returns the token embedding
/// of the module, `[vocabulary, width]`, which is also its output.
///
/// # Errors
/// As [`hugging_face::read`], or the output of the file is not tied to its embedding.
pub fn read<M>(
    module: &mut M,
    path: &Path,
    own: fn(&str) -> bool,
    embedding: impl Fn(&M) -> Tensor<2>,
) -> Result<(), TaskError>
where
    M: ModuleSnapshot,
{
    let file = WeightFile {
        // Files of the whole language model have this prefix, files of the transformer alone do not.
        names: &[&[(r"^transformer\.", "")]],
        transposed: false,
        ignored: left_out,
        optional: own,
        architecture: "GPT-2",
        advice: "layers, hidden_size and context_length must equal those of the file, and the vocabulary that of `encoder`",
        layers_key: "layers",
    };
    hugging_face::read(module, path, file, |module, store, applied| {
        match applied.unused.iter().any(|path| path == OUTPUT) && !is_tied(store, embedding(module))? {
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
