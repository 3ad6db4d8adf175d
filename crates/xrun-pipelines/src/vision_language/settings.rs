//! What may be set of a vision-language model: task and model?

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::selective;
use crate::gpt2_shape::Gpt2Shape;
pub use xrun_core::settings::matmul_dtype::MatmulDtype;
use xrun_core::settings::sections::Training;

/// Fine-tuning of a model that sees a picture and an instruction and writes an answer, such as an object of JSON with what is
/// in the picture. The loss can leave out the structure of JSON. `training.batch_size` counts examples; it is 16 where the
/// file says nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Tokens of a sequence, those of the picture and those of the text together; at most the model's `context`. Shorter
    /// texts are filled up. Examples that are longer are broken: they are never cut.
    #[schemars(range(min = 16, max = 65536))]
    pub sequence_length: usize,
    /// The most tokens of a free answer in a validation.
    #[schemars(range(min = 1, max = 65536))]
    pub answer_tokens: usize,
    /// Parts that are trained; the others are frozen.
    #[schemars(length(max = 3))]
    pub trained: Vec<Part>,
    /// Rank of the LoRA matrices of the language part (Hu et al. 2021). Above 0 they are trained in its place, and it is
    /// frozen itself.
    #[schemars(range(min = 0, max = 1024))]
    pub lora_rank: usize,
    /// LoRA is scaled by this over the rank.
    #[schemars(range(min = 1e-3, max = 1e4))]
    pub lora_alpha: f64,
    /// The element type of the operands of matrix products in the language part. Weights, gradients, normalisation and loss
    /// are in 32 bits.
    pub matmul_dtype: MatmulDtype,
    /// At which tokens of the text logits are computed.
    pub logits: Logits,
    /// Validate a second time with a grey picture in place of each, which shows what the text alone gives.
    pub grey_pictures: bool,
    /// The most held-out examples that are answered freely in a validation, and as many unseen ones. Each answer takes a pass
    /// for each of its tokens.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub free_answers: usize,
    /// Train first on the batch that needs most memory: the examples with most tokens in the loss. What does not fit then fails
    /// in the first step, and not after an hour. That batch takes the place of the one that would have been the first. A probe of memory does so
    /// whatever stands here.
    pub longest_first: bool,
    /// Which tokens of an answer count in the loss.
    pub selective: selective::Settings,
}

/// Examples in a batch where the file does not say how many.
pub const BATCH_SIZE: usize = 16;

/// Examples in a batch.
pub fn batch_size(training: &Training) -> usize {
    training.batch_size.unwrap_or(BATCH_SIZE)
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            sequence_length: 64,
            answer_tokens: 40,
            trained: Part::ALL.to_vec(),
            lora_rank: 0,
            lora_alpha: 16.0,
            matmul_dtype: MatmulDtype::Tf32,
            logits: Logits::default(),
            grey_pictures: true,
            free_answers: 64,
            longest_first: false,
            selective: selective::Settings::default(),
        }
    }
}

impl Settings {
    /// Tokens of text that have a place beside the picture of a model of this shape.
    pub fn text_length(&self, shape: &Shape, image_size: usize) -> usize {
        self.sequence_length.saturating_sub(shape.image_tokens(image_size))
    }

    /// Tokens that prompt, answer and end of text may have together: the last is a target alone.
    pub fn tokens_that_fit(&self, shape: &Shape, image_size: usize) -> usize {
        self.text_length(shape, image_size) + 1
    }
}

/// Where logits are computed while training. The loss is the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Logits {
    /// Where a token weighs something in the loss.
    #[default]
    Weighted,
    /// At all text tokens, those of the prompt and the filling too, as trainers commonly do: to see what that takes.
    All,
}

/// Parts of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// The transformer that looks at the picture.
    Vision,
    /// The layer between the two.
    Projector,
    /// The transformer that writes; its LoRA where it has one.
    Language,
}

impl Part {
    /// All of them, in the order in which a picture goes through them.
    pub const ALL: [Self; 3] = [Self::Vision, Self::Projector, Self::Language];
}

/// A vision transformer (Dosovitskiy et al. 2021), a linear layer, and GPT-2 (Radford et al. 2019), which sees tokens of the
/// picture before those of the text.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Model {
    /// The shape; the keys below change parts of it.
    pub preset: Preset,
    /// Pixels along a side of a patch.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 2, max = 256))]
    pub patch: Option<usize>,
    /// Features of a patch in the vision part.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 4, max = 65536))]
    pub vision_width: Option<usize>,
    /// Blocks of the vision part.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 256))]
    pub vision_layers: Option<usize>,
    /// Attention heads of the vision part. They share its width evenly.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 256))]
    pub vision_heads: Option<usize>,
    /// Patches along a side of the square that becomes one token of the language part (pixel shuffle, Shi et al. 2016).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 16))]
    pub pixel_shuffle: Option<usize>,
    /// Blocks of the language part.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 256))]
    pub layers: Option<usize>,
    /// Attention heads of the language part. They share its width evenly.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 256))]
    pub heads: Option<usize>,
    /// Features of a token.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 4, max = 65536))]
    pub width: Option<usize>,
    /// Positions of the language part.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 16, max = 65536))]
    pub context: Option<usize>,
    /// A safetensors file with the weights of the vision part, named as Hugging Face's `ViTModel` names them. Without it they
    /// are drawn from `experiment.seed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vision_weights: Option<String>,
    /// A safetensors file of GPT-2 as Hugging Face writes it, for the language part. Without it its weights are drawn from
    /// `experiment.seed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub language_weights: Option<String>,
}

/// A shape of the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Preset {
    /// Patches of 8 pixels, and 2 layers, 4 heads and width 64 in both parts; 128 positions.
    #[default]
    Tiny,
    /// ViT-B/16 and GPT-2's smallest, near to nanoVLM-222M: 12 layers, 12 heads and width 768 in both parts; 1,024 positions.
    Nano,
}

/// The numbers of a shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Pixels along a side of a patch.
    pub patch: usize,
    /// Numbers of a patch between blocks of the vision part.
    pub vision_width: usize,
    /// Blocks of the vision part.
    pub vision_layers: usize,
    /// Heads of attention of a vision block.
    pub vision_heads: usize,
    /// Patches along a side of the square that becomes one token of the language part.
    pub pixel_shuffle: usize,
    /// Blocks of the language part.
    pub layers: usize,
    /// Heads of attention of a language block.
    pub heads: usize,
    /// Numbers of a token between blocks of the language part.
    pub width: usize,
    /// The most tokens of a sequence, those of the picture among them.
    pub context: usize,
}

impl Preset {
    fn shape(self) -> Shape {
        match self {
            Self::Tiny => Shape {
                patch: 8,
                vision_width: 64,
                vision_layers: 2,
                vision_heads: 4,
                pixel_shuffle: 2,
                layers: 2,
                heads: 4,
                width: 64,
                context: 128,
            },
            Self::Nano => Shape {
                patch: 16,
                vision_width: 768,
                vision_layers: 12,
                vision_heads: 12,
                pixel_shuffle: 2,
                layers: 12,
                heads: 12,
                width: 768,
                context: 1024,
            },
        }
    }
}

impl Model {
    /// The preset's numbers, with those of the keys in their place.
    pub fn shape(&self) -> Shape {
        let preset = self.preset.shape();
        Shape {
            patch: self.patch.unwrap_or(preset.patch),
            vision_width: self.vision_width.unwrap_or(preset.vision_width),
            vision_layers: self.vision_layers.unwrap_or(preset.vision_layers),
            vision_heads: self.vision_heads.unwrap_or(preset.vision_heads),
            pixel_shuffle: self.pixel_shuffle.unwrap_or(preset.pixel_shuffle),
            layers: self.layers.unwrap_or(preset.layers),
            heads: self.heads.unwrap_or(preset.heads),
            width: self.width.unwrap_or(preset.width),
            context: self.context.unwrap_or(preset.context),
        }
    }
}

impl Shape {
    /// Shape of the language part.
    pub fn language(&self) -> Gpt2Shape {
        let Self { layers, heads, width, context, .. } = *self;
        Gpt2Shape { layers, heads, width, context }
    }

    /// Patches of a square picture of so many pixels along a side.
    pub fn patches(&self, image_size: usize) -> usize {
        (image_size / self.patch).pow(2)
    }

    /// Tokens that the language part gets of it.
    pub fn image_tokens(&self, image_size: usize) -> usize {
        (image_size / self.patch / self.pixel_shuffle).pow(2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ViT-B/16 has 196 patches of a picture of 224 pixels, and nanoVLM's projector makes 49 tokens of them.
    #[test]
    fn patches_and_tokens_are_those_of_the_published_model() {
        let nano = Model { preset: Preset::Nano, ..Model::default() }.shape();
        assert_eq!((nano.patches(224), nano.image_tokens(224)), (196, 49));
        let tiny = Model::default().shape();
        assert_eq!((tiny.patches(48), tiny.image_tokens(48)), (36, 9));
        let coarse = Model { patch: Some(24), pixel_shuffle: Some(1), ..Model::default() }.shape();
        assert_eq!((coarse.patches(48), coarse.image_tokens(48), coarse.width), (4, 4, 64));
        let settings = Settings { sequence_length: 20, ..Settings::default() };
        assert_eq!((settings.text_length(&tiny, 48), settings.text_length(&tiny, 480)), (11, 0));
    }
}
