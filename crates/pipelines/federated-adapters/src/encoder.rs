//! Frozen encoders: the Audio Spectrogram Transformer (Gong et al. 2021), and statistics of the spectrogram.
//!
//! ```text
//! [batch, frames, bands] -> patches -> two learned tokens and those of patches, plus positions
//! each block: x += attention(norm(x)), x += mlp(norm(x));   norm -> [batch, tokens, width]
//! ```

use std::path::Path;

use burn::module::{Module, Param};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::tensor::Device;

use super::settings::AudioAdapters;
use xrun_core::task::TaskError;
use xrun_training::nn::Tensor;
use xrun_training::nn::encoder_block;
use xrun_training::nn::encoder_block::{EPSILON, EncoderBlock, Norm};
use xrun_training::nn::hugging_face;
use xrun_training::nn::hugging_face::WeightFile;
use xrun_training::nn::parameters::{Deviation, initialise};

/// Patch and position embeddings, and the two learned tokens.
#[derive(Module, Debug)]
pub struct Embeddings {
    cls_token: Param<Tensor<3>>,
    distillation_token: Param<Tensor<3>>,
    position_embeddings: Param<Tensor<3>>,
    patches: Conv2d,
}

/// Audio Spectrogram Transformer.
#[derive(Module, Debug)]
pub struct Encoder {
    embeddings: Embeddings,
    layer: Vec<EncoderBlock>,
    layernorm: Norm,
}

/// Returns whether the model lacks a tensor of the file, such as a classifier's last layer.
fn left_out(path: &str) -> bool {
    path.starts_with("classifier.")
}

const FILE: WeightFile = WeightFile {
    names: &[
        &[
            (r"^audio_spectrogram_transformer\.", ""),
            (r"^embeddings\.patch_embeddings\.projection\.", "embeddings.patches."),
        ],
        &encoder_block::HUGGING_FACE_NAMES,
    ],
    transposed: true,
    ignored: left_out,
    optional: |_| false,
    architecture: "an `ASTModel`",
    advice: "bands, frames, patch_size, stride, hidden_size, layers and heads must be those of the file",
    layers_key: "layers",
};

impl Encoder {
    /// Encoder with initial weights drawn from `seed`.
    pub fn new(model: &AudioAdapters, seed: u32, device: &Device) -> Self {
        let learned = |tokens: usize| {
            let shape = [1, tokens, model.hidden_size];
            Param::from_tensor(Tensor::zeros(shape, device))
        };
        let embeddings = Embeddings {
            cls_token: learned(1),
            distillation_token: learned(1),
            position_embeddings: learned(model.encoder_tokens()),
            patches: Conv2dConfig::new([1, model.hidden_size], [model.patch_size, model.patch_size])
                .with_stride([model.stride, model.stride])
                .init(device),
        };
        let layer = (0..model.layers).map(|_| EncoderBlock::new(model.hidden_size, model.heads, device)).collect();
        initialise(
            Self { embeddings, layer, layernorm: Norm::new(model.hidden_size, EPSILON, device) },
            seed,
            Deviation::Inputs,
        )
    }

    /// Encodes spectrograms `[batch, frames, bands]` as `[batch, tokens, width]`.
    pub fn forward(&self, spectrograms: Tensor<3>) -> Tensor<3> {
        let [batch, frames, bands] = spectrograms.dims();
        // Patches are ordered by band, then by frame.
        let images = spectrograms.swap_dims(1, 2).reshape([batch, 1, bands, frames]);
        let patches = self.embeddings.patches.forward(images).flatten::<3>(2, 3).swap_dims(1, 2);
        let width = patches.dims()[2];
        let learned = |token: &Param<Tensor<3>>| token.val().expand([batch, 1, width]);
        let extra = [learned(&self.embeddings.cls_token), learned(&self.embeddings.distillation_token)];
        let tokens = Tensor::cat(extra.into_iter().chain([patches]).collect(), 1);
        let start = tokens + self.embeddings.position_embeddings.val();
        let hidden = self.layer.iter().fold(start, |hidden, block| block.forward(hidden));
        self.layernorm.forward(hidden)
    }

    /// Reads weights in Hugging Face's layout into the encoder.
    ///
    /// # Errors
    /// The file cannot be read or does not fit the model.
    pub fn read(&mut self, path: &Path) -> Result<(), TaskError> {
        hugging_face::read(self, path, FILE, |_, _, _| Ok(()))
    }
}

/// Mean and standard deviation of each band over time: `[batch, frames, bands]` to `[batch, 1, 2 * bands]`.
pub fn statistics(spectrograms: Tensor<3>) -> Tensor<3> {
    let mean = spectrograms.clone().mean_dim(1);
    let centred = spectrograms - mean.clone();
    let deviation = (centred.clone() * centred).mean_dim(1).sqrt();
    Tensor::cat(vec![mean, deviation], 2)
}

#[cfg(test)]
mod tests {
    use burn::tensor::TensorData;
    use serde_json::Value;

    use super::*;
    use xrun_training::nn::testing::{assert_kernels_agree, changed, json_numbers, numbers};
    use xrun_training::nn::testing::{autodiff, close, plain, values};

    fn tiny() -> AudioAdapters {
        let shape = AudioAdapters {
            bands: 10,
            frames: 14,
            patch_size: 4,
            stride: 3,
            hidden_size: 8,
            ..AudioAdapters::default()
        };
        AudioAdapters { layers: 2, heads: 2, ..shape }
    }

    fn file() -> &'static Path {
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../tests/reference/ast_tiny.safetensors"))
    }

    /// Oracle: Hugging Face's `ASTModel`, `tests/reference/ast_tiny.py`.
    #[test]
    fn tokens_equal_those_of_hugging_face() {
        let all: Value = serde_json::from_str(include_str!("../../../../tests/reference/ast_tiny.json")).unwrap();
        let row = |name: &str| json_numbers(&all[name]);
        let mut encoder = Encoder::new(&tiny(), 1, &plain());
        encoder.read(file()).unwrap();
        let spectrograms = Tensor::from_data(TensorData::new(row("spectrograms"), [2, 14, 10]), &plain());
        let found = encoder.forward(spectrograms);
        assert_eq!(found.dims(), [2, 3 * 4 + 2, 8]);
        close(&values(found), &row("last_hidden_state"), 1e-4);
    }

    #[test]
    fn fused_operations_give_the_outputs_and_gradients_of_burns() {
        // The last model has more tokens than one tile of the attention kernel.
        let long = AudioAdapters { frames: 60, stride: 2, hidden_size: 15, heads: 3, layers: 1, ..tiny() };
        for (model, clips) in [(tiny(), 2), (AudioAdapters::default(), 3), (long, 1)] {
            let encoder = changed(Encoder::new(&model, 1, &autodiff()));
            let shape = [clips, model.frames, model.bands];
            let spectra = TensorData::new((0..shape.iter().product()).map(numbers).collect::<Vec<_>>(), shape);
            assert_kernels_agree(&encoder, 1e-5, |encoder| {
                let tokens = encoder.forward(Tensor::from_data(spectra.clone(), &autodiff())).flatten::<2>(1, 2);
                // The sum of a normalised row is constant, and has no gradient.
                let cubes = tokens.clone() * tokens.clone() * tokens.clone();
                (vec![tokens], cubes.mean())
            });
        }
    }

    #[test]
    fn a_file_of_another_shape_is_refused_by_file_and_key() {
        for (model, expected) in [
            (AudioAdapters { hidden_size: 12, ..tiny() }, "hidden_size"),
            (AudioAdapters { layers: 1, ..tiny() }, "`layers`"),
            (AudioAdapters { layers: 3, ..tiny() }, "layer.2."),
        ] {
            let message = Encoder::new(&model, 1, &plain()).read(file()).unwrap_err().to_string();
            assert!(message.contains(expected) && message.contains("ast_tiny.safetensors"), "{message}");
        }
    }

    #[test]
    fn statistics_by_hand() {
        let spectrogram = Tensor::<3>::from_floats([[[1.0, 5.0], [3.0, 5.0]]], &plain());
        close(&values(statistics(spectrogram)), &[2.0, 5.0, 1.0, 0.0], 1e-6);
    }
}
