//! Settings of a vision-language model: task and model.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::selective;
use xrun_core::settings;
use xrun_core::settings::backbone::PretrainedWeights;
pub use xrun_core::settings::matmul_dtype::MatmulDtype;
use xrun_training::backbone::Pretrained;
use xrun_training::gpt2_shape::Gpt2Shape;

settings! {
    /// Fine-tuning of a model that answers an instruction about an image, for example with a JSON object of its content. The loss
    /// can mask the structure of JSON. `training.batch_size` counts examples; its default is 16.
    pub struct VisionLanguage {
        /// Tokens of a sequence, image and text together; at most the model's `context_length`. Shorter texts are padded. Longer examples
        /// are invalid: they are never cut.
        #[schemars(range(min = 16, max = 65536))]
        pub sequence_length: usize = 64,
        /// Maximum number of tokens of a free answer in a validation.
        #[schemars(range(min = 1, max = 65536))]
        pub max_new_tokens: usize = 40,
        /// Trained parts; the others are frozen. A backbone is trained unless it is `frozen`, whether `vision` is named or not.
        #[schemars(length(max = 3))]
        pub trainable: Vec<Component> = Component::ALL.to_vec(),
        /// Rank of the LoRA matrices of the language part (Hu et al. 2021). Above 0 they are trained and the part itself is frozen.
        #[schemars(range(min = 0, max = 1024))]
        pub lora_rank: usize = 0,
        /// Scale of LoRA, which is divided by the rank.
        #[schemars(range(min = 1e-3, max = 1e4))]
        pub lora_alpha: f64 = 16.0,
        /// Element type of the operands of matrix products in the language part. Weights, gradients, normalisation and loss are in
        /// 32 bits.
        pub matmul_dtype: MatmulDtype = MatmulDtype::Tf32,
        /// Tokens of the text whose logits are computed.
        pub logits: Logits = Logits::default(),
        /// Validate a second time with a grey image in place of each, which shows the accuracy of the text alone.
        pub grey_images: bool = true,
        /// Maximum number of held-out examples that are answered freely in a validation, and of unseen ones. An answer takes one
        /// forward pass per token.
        #[schemars(range(min = 1, max = 1_000_000))]
        pub generated_answers: usize = 64,
        /// Train first on the batch that needs most memory, the examples with most tokens in the loss, in place of the regular first
        /// batch: a run that does not fit in memory fails in its first step. A memory probe always does so.
        pub longest_first: bool = false,
        /// Tokens of an answer that count in the loss.
        pub selective: selective::SelectiveLoss = selective::SelectiveLoss::default(),
    }
}

/// Default of `training.batch_size`.
pub const BATCH_SIZE: usize = 16;

impl VisionLanguage {
    /// Settings whose trained parts are those with this backbone, if there is one.
    pub fn on(&self, backbone: Option<&PretrainedWeights>) -> Self {
        let mut settings = self.clone();
        if let Some(backbone) = backbone {
            settings.trainable.retain(|part| *part != Component::Vision);
            settings.trainable.extend((!backbone.frozen).then_some(Component::Vision));
        }
        settings
    }

    /// Text tokens of a sequence, without the image tokens.
    pub fn text_length(&self, shape: &ModelShape, image_size: usize) -> usize {
        self.sequence_length.saturating_sub(shape.image_tokens(image_size))
    }

    /// Maximum number of tokens of prompt, answer and end of text; the last one is only a target.
    pub fn text_tokens_max(&self, shape: &ModelShape, image_size: usize) -> usize {
        self.text_length(shape, image_size) + 1
    }
}

/// Tokens whose logits are computed in training. The loss is the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Logits {
    /// Tokens with a weight above 0 in the loss.
    #[default]
    Weighted,
    /// All text tokens, prompt and padding included, as trainers commonly do, to measure its cost.
    All,
}

/// Component of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Component {
    /// Vision transformer of the image.
    Vision,
    /// Linear layer between vision and language.
    Projector,
    /// Language model of the text, or its LoRA if it has one.
    Language,
}

impl Component {
    /// All components, in the order of the forward pass.
    pub const ALL: [Self; 3] = [Self::Vision, Self::Projector, Self::Language];
}

/// Vision transformer (Dosovitskiy et al. 2021), linear layer, and GPT-2 (Radford et al. 2019), whose sequence has the image
/// tokens before the text tokens. A backbone (`[backbone.vit]`, …) may take the place of the vision transformer: the cells of its feature
/// map are the patches.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct VisionLanguageModel {
    /// Shape of the model; the keys below replace parts of it.
    pub preset: Preset,
    /// Side of a patch in pixels.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 2, max = 256))]
    pub patch_size: Option<usize>,
    /// Features of a patch in the vision part.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 4, max = 65536))]
    pub vision_hidden_size: Option<usize>,
    /// Number of blocks of the vision part.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 256))]
    pub vision_layers: Option<usize>,
    /// Number of attention heads of the vision part, a divisor of `vision_hidden_size`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 256))]
    pub vision_heads: Option<usize>,
    /// Side, in patches, of the square that becomes one token of the language part (pixel shuffle, Shi et al. 2016).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 16))]
    pub pixel_shuffle: Option<usize>,
    /// Number of blocks of the language part.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 256))]
    pub layers: Option<usize>,
    /// Number of attention heads of the language part, a divisor of `hidden_size`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 256))]
    pub heads: Option<usize>,
    /// Features of a token.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 4, max = 65536))]
    pub hidden_size: Option<usize>,
    /// Number of positions of the language part.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 16, max = 65536))]
    pub context_length: Option<usize>,
    /// A safetensors file with the weights of the vision part, with the names of Hugging Face's `ViTModel`. Default: weights are
    /// drawn from `experiment.seed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vision_weights: Option<String>,
    /// A safetensors file of GPT-2 as Hugging Face writes it, for the language part. Default: weights are drawn from
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
    /// ViT-B/16 and GPT-2's smallest, similar to nanoVLM-222M: 12 layers, 12 heads and width 768 in both parts; 1,024 positions.
    Nano,
}

/// Shape of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelShape {
    /// Side of a patch in pixels.
    pub patch_size: usize,
    /// Features of a patch in the vision part.
    pub vision_hidden_size: usize,
    /// Number of blocks of the vision part.
    pub vision_layers: usize,
    /// Number of attention heads of a vision block.
    pub vision_heads: usize,
    /// Side, in patches, of the square that becomes one token of the language part.
    pub pixel_shuffle: usize,
    /// Number of blocks of the language part.
    pub layers: usize,
    /// Number of attention heads of a language block.
    pub heads: usize,
    /// Features of a token in the language part.
    pub hidden_size: usize,
    /// Number of positions: image and text tokens of a sequence.
    pub context_length: usize,
}

impl Preset {
    fn shape(self) -> ModelShape {
        match self {
            Self::Tiny => ModelShape {
                patch_size: 8,
                vision_hidden_size: 64,
                vision_layers: 2,
                vision_heads: 4,
                pixel_shuffle: 2,
                layers: 2,
                heads: 4,
                hidden_size: 64,
                context_length: 128,
            },
            Self::Nano => ModelShape {
                patch_size: 16,
                vision_hidden_size: 768,
                vision_layers: 12,
                vision_heads: 12,
                pixel_shuffle: 2,
                layers: 12,
                heads: 12,
                hidden_size: 768,
                context_length: 1024,
            },
        }
    }
}

impl VisionLanguageModel {
    /// Shape of the preset, with the keys that are given.
    pub fn shape(&self) -> ModelShape {
        let preset = self.preset.shape();
        ModelShape {
            patch_size: self.patch_size.unwrap_or(preset.patch_size),
            vision_hidden_size: self.vision_hidden_size.unwrap_or(preset.vision_hidden_size),
            vision_layers: self.vision_layers.unwrap_or(preset.vision_layers),
            vision_heads: self.vision_heads.unwrap_or(preset.vision_heads),
            pixel_shuffle: self.pixel_shuffle.unwrap_or(preset.pixel_shuffle),
            layers: self.layers.unwrap_or(preset.layers),
            heads: self.heads.unwrap_or(preset.heads),
            hidden_size: self.hidden_size.unwrap_or(preset.hidden_size),
            context_length: self.context_length.unwrap_or(preset.context_length),
        }
    }

    /// As [`Self::shape`], with the cells and features of the backbone in place of the vision transformer's, if there is one.
    pub fn shape_on(&self, backbone: Option<&Pretrained>) -> ModelShape {
        let own = self.shape();
        let on = |of: &Pretrained| (of.architecture.stride(), of.architecture.outputs());
        let (patch_size, vision_hidden_size) = backbone.map_or((own.patch_size, own.vision_hidden_size), on);
        ModelShape { patch_size, vision_hidden_size, ..own }
    }
}

impl ModelShape {
    /// Shape of the language part.
    pub fn language(&self) -> Gpt2Shape {
        let Self { layers, heads, hidden_size, context_length, .. } = *self;
        Gpt2Shape { layers, heads, hidden_size, context_length }
    }

    /// Number of patches of a square image with `image_size` pixels per side.
    pub fn patches(&self, image_size: usize) -> usize {
        (image_size / self.patch_size).pow(2)
    }

    /// Number of image tokens of a square image with `image_size` pixels per side.
    pub fn image_tokens(&self, image_size: usize) -> usize {
        (image_size / self.patch_size / self.pixel_shuffle).pow(2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ViT-B/16 has 196 patches of an image of 224 pixels, which nanoVLM's projector turns into 49 tokens.
    #[test]
    fn patches_and_tokens_equal_those_of_the_published_model() {
        let nano = VisionLanguageModel { preset: Preset::Nano, ..VisionLanguageModel::default() }.shape();
        assert_eq!((nano.patches(224), nano.image_tokens(224)), (196, 49));
        let tiny = VisionLanguageModel::default().shape();
        assert_eq!((tiny.patches(48), tiny.image_tokens(48)), (36, 9));
        let coarse =
            VisionLanguageModel { patch_size: Some(24), pixel_shuffle: Some(1), ..VisionLanguageModel::default() }
                .shape();
        assert_eq!((coarse.patches(48), coarse.image_tokens(48), coarse.hidden_size), (4, 4, 64));
        let settings = VisionLanguage { sequence_length: 20, ..VisionLanguage::default() };
        assert_eq!((settings.text_length(&tiny, 48), settings.text_length(&tiny, 480)), (11, 0));
    }
}
