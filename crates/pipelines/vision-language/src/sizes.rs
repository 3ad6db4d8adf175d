//! Counts of all parameters and of trainable ones, computed from the settings; used by the plan.

use super::settings::{Component, ModelShape, VisionLanguage};
use xrun_training::backbone::Pretrained;

/// Numbers of parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParameterCounts {
    /// Vision part: patches, positions, blocks and the last normalisation, without a class token.
    pub vision: u64,
    /// Linear layer between vision and language, without a bias.
    pub projector: u64,
    /// Language part: embeddings, positions, blocks and the last normalisation; the output is tied.
    pub language: u64,
    /// LoRA matrices of the language part.
    pub lora: u64,
}

impl ParameterCounts {
    /// These numbers, with that of a backbone in place of the vision transformer if there is one.
    pub fn on(self, backbone: Option<&Pretrained>) -> Self {
        Self { vision: backbone.map_or(self.vision, |of| of.architecture.parameters() as u64), ..self }
    }

    /// Counts the parameters for images of `image_size` pixels per side and a vocabulary of `vocabulary` tokens.
    pub fn new(settings: &VisionLanguage, shape: &ModelShape, image_size: usize, vocabulary: usize) -> Self {
        let ModelShape {
            patch_size: patch,
            vision_hidden_size,
            vision_layers,
            pixel_shuffle,
            layers,
            hidden_size: width,
            ..
        } = *shape;
        let patches = 3 * patch * patch * vision_hidden_size
            + vision_hidden_size
            + shape.patches(image_size) * vision_hidden_size;
        let vision = patches + vision_layers * block(vision_hidden_size) + 2 * vision_hidden_size;
        let projector = pixel_shuffle * pixel_shuffle * vision_hidden_size * width;
        // Inputs and outputs of the four linear layers of a block: 1 and 3 widths, 1 and 1, 1 and 4, 4 and 1.
        let lora = layers * settings.lora_rank * 16 * width;
        let [vision, projector, lora] = [vision, projector, lora].map(|count| count as u64);
        Self { vision, projector, language: shape.language().parameters(vocabulary), lora }
    }

    /// Number of all parameters.
    pub fn all(&self) -> u64 {
        self.vision + self.projector + self.language + self.lora
    }

    /// Number of trained parameters.
    pub fn trained(&self, settings: &VisionLanguage) -> u64 {
        let component_size = |component: &Component| match component {
            Component::Vision => self.vision,
            Component::Projector => self.projector,
            Component::Language if settings.lora_rank > 0 => self.lora,
            Component::Language => self.language,
        };
        settings.trainable.iter().map(component_size).sum()
    }
}

/// Number of parameters of a block: linear layers and two normalisations.
fn block(width: usize) -> usize {
    12 * width * width + 9 * width + 4 * width
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Preset, VisionLanguageModel};

    /// Patches and positions have 12,352 + 2,304 parameters, a block 49,984, a normalisation 128.
    #[test]
    fn parameters_of_the_tiny_model_by_hand() {
        let settings = VisionLanguage::default();
        let sizes = ParameterCounts::new(&settings, &VisionLanguageModel::default().shape(), 48, 512);
        let vision = 12_352 + 2_304 + 2 * 49_984 + 128;
        let language = (512 + 128) * 64 + 2 * 49_984 + 128;
        assert_eq!(sizes, ParameterCounts { vision, projector: 4 * 64 * 64, language, lora: 0 });
        assert_eq!((sizes.all(), sizes.trained(&settings)), (272_192, 272_192));
        let settings =
            VisionLanguage { trainable: vec![Component::Projector, Component::Language], lora_rank: 8, ..settings };
        let sizes = ParameterCounts::new(&settings, &VisionLanguageModel::default().shape(), 48, 512);
        // Of each block 8 x (64 + 192), 8 x (64 + 64), 8 x (64 + 256) and 8 x (256 + 64).
        assert_eq!((sizes.lora, sizes.trained(&settings)), (2 * 8 * 1024, 16_384 + 16_384));
    }

    /// GPT-2 has 124,439,808 parameters in its authors' file, ViT-B/16 has 85,798,656 in transformers' `ViTModel` without its
    /// pooler, 2 x 768 of which are the class token and its position.
    #[test]
    fn parameters_of_the_nano_model_equal_those_of_the_published_parts() {
        let shape = VisionLanguageModel { preset: Preset::Nano, ..VisionLanguageModel::default() }.shape();
        let sizes = ParameterCounts::new(&VisionLanguage::default(), &shape, 224, 50_257);
        assert_eq!((sizes.vision, sizes.language), (85_798_656 - 2 * 768, 124_439_808));
        assert_eq!(sizes.projector, 4 * 768 * 768);
    }
}
