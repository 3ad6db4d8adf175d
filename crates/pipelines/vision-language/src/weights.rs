//! Reading of weights from files of a ViT.

use std::path::Path;

use burn::tensor::TensorData;
use burn_store::SafetensorsStore;

use xrun_core::task::TaskError;
use xrun_training::nn::hugging_face;
use xrun_training::nn::hugging_face::WeightFile;
use xrun_training::nn::vit::VisionTransformer;
use xrun_training::nn::{Tensor, encoder_block};

/// Position embeddings in a file, the first of which belongs to the class token that this model lacks.
const FILE_POSITIONS: &str = "embeddings.position_embeddings";
const POSITIONS: &str = "embeddings.positions";

/// Returns whether the model lacks a tensor of the file.
fn left_out(path: &str) -> bool {
    path == FILE_POSITIONS
        || path == "embeddings.cls_token"
        || path.starts_with("pooler.")
        || path.starts_with("classifier.")
}

const FILE: WeightFile = WeightFile {
    names: &[
        &[(r"^vit\.", ""), (r"^embeddings\.patch_embeddings\.projection\.", "embeddings.patches.")],
        &encoder_block::HUGGING_FACE_NAMES,
    ],
    transposed: true,
    ignored: left_out,
    optional: |path| path == POSITIONS,
    architecture: "a `ViTModel`",
    advice: "`dataset.image-text.image_size`, patch_size, vision_hidden_size, vision_layers and vision_heads must be those of the file",
    layers_key: "vision_layers",
};

/// Reads the weights of a `ViTModel` in Hugging Face's layout into the vision part, without its class token.
///
/// # Errors
/// The file cannot be read or does not fit the model.
pub fn read_vision(vision: &mut VisionTransformer, path: &Path) -> Result<(), TaskError> {
    hugging_face::read(vision, path, FILE, |vision, store, _| {
        let positions = &vision.embeddings.positions;
        let data = positions_of(store, positions.dims())?;
        vision.embeddings.positions = positions.clone().map(|old| {
            let trained = old.is_require_grad();
            Tensor::from_data(data, &old.device()).set_require_grad(trained)
        });
        Ok(())
    })
}

/// Position embeddings of patches in a file, `[1, patches, width]`.
fn positions_of(store: &mut SafetensorsStore, [_, patches, width]: [usize; 3]) -> Result<TensorData, String> {
    let data = hugging_face::tensor(store, FILE_POSITIONS)?.ok_or_else(|| format!("has no `{FILE_POSITIONS}`"))?;
    let expected = [1, patches + 1, width];
    if data.shape().as_slice() != expected {
        let found = data.shape().as_slice();
        return Err(format!("`{FILE_POSITIONS}` is {found:?}, and this model needs {expected:?}; {}", FILE.advice));
    }
    let values: Vec<f32> = data.iter::<f32>().skip(width).collect();
    Ok(TensorData::new(values, [1, patches, width]))
}
