//! How do weights come in from GPT-2's files?

use std::path::Path;

use burn_store::{ModuleSnapshot, SafetensorsStore};

use super::Tensor;
use super::hugging_face::{self, FileOf};
use xrun_core::task::TaskError;

/// What a file has beside the embedding when the two are not tied, and at times when they are.
const OUTPUT: &str = "lm_head.weight";

/// What of a file is no parameter: the output, and tables that follow from the context.
fn left_out(path: &str) -> bool {
    path == OUTPUT || path.ends_with(".attn.bias") || path.ends_with(".attn.masked_bias")
}

/// Puts the weights of a file in Hugging Face's layout into a module whose names are the file's. `own` are parameters that
/// such files do not have; they stay as they are unless the file has them, as xrun's own checkpoints do. `words` is the
/// embedding of the module, `[vocabulary, width]`, which is its output as well.
///
/// # Errors
/// As [`hugging_face::read`], and where the file has an output of its own.
pub fn read<M>(
    module: &mut M,
    path: &Path,
    own: fn(&str) -> bool,
    words: impl Fn(&M) -> Tensor<2>,
) -> Result<(), TaskError>
where
    M: ModuleSnapshot,
{
    let file = FileOf {
        // A file of the whole language model has a prefix that one of the transformer alone has not.
        names: &[&[(r"^transformer\.", "")]],
        transposed: false,
        left_out,
        own,
        called: "GPT-2",
        advice: "layers, width and context must be those of the file, and the vocabulary that of `encoder`",
        layers: "layers",
    };
    hugging_face::read(module, path, file, |module, store, applied| {
        match applied.unused.iter().any(|path| path == OUTPUT) && !is_tied(store, words(module))? {
            true => Err(format!(
                "has an output of its own: `{OUTPUT}` differs from `wte.weight`, which is the output of this model; \
                 without it other answers would come out"
            )),
            false => Ok(()),
        }
    })
}

/// Whether the output in a file is the embedding that the module has from it.
fn is_tied(store: &mut SafetensorsStore, words: Tensor<2>) -> Result<bool, String> {
    let Some(output) = hugging_face::tensor(store, OUTPUT)? else { return Ok(true) };
    let words = words.into_data();
    Ok(output.shape() == words.shape() && output.iter::<f32>().eq(words.iter::<f32>()))
}
