//! What may be set of quantisation-aware training of a language model: task and model?

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::gpt2_shape::Gpt2Shape;
pub use xrun_core::settings::matmul_dtype::MatmulDtype;
use xrun_core::settings::sections::Training;

/// Quantisation-aware training of a language model at several bit widths together: one frozen base, and for
/// each width its own LoRA and its own ranges. A step draws a width; the widest teaches the others by its logits
/// (LLM-QAT, Liu et al. 2023). `training.batch_size` counts sequences; it is 8 where the file says nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Tokens of a sequence, at most the model's `context`. Shorter texts are padded.
    #[schemars(range(min = 32, max = 65536))]
    pub sequence_length: usize,
    /// Which tokens the loss and the perplexity count.
    pub loss_on: LossOn,
    /// Bits of the weights, one number for each precision, widest first: 2 to 16, or 32 for no quantisation.
    #[schemars(length(min = 1, max = 8), inner(range(min = 2, max = 32)))]
    pub weight_bits: Vec<u32>,
    /// Bits of the inputs of linear layers, in the same order.
    #[schemars(length(min = 1, max = 8), inner(range(min = 2, max = 32)))]
    pub activation_bits: Vec<u32>,
    /// Bits of keys and values, in the same order.
    #[schemars(length(min = 1, max = 8), inner(range(min = 2, max = 32)))]
    pub key_value_bits: Vec<u32>,
    /// How the levels of a weight are placed.
    pub weight_scheme: Scheme,
    /// Which values of a weight share a scale.
    pub weight_granularity: Granularity,
    /// Where the scale of a weight comes from.
    pub weight_scale: WeightScale,
    /// The learning rate of learnt scales, as a multiple of the optimiser's. The logarithm of a scale is trained, so a
    /// step of AdamW changes the scale by about this fraction of itself.
    #[schemars(range(min = 0.0, max = 1e3))]
    pub scale_learning_rate_factor: f64,
    /// How the levels of activations, keys and values are placed.
    pub activation_scheme: Scheme,
    /// Which values of activations, keys and values share a scale.
    pub activation_granularity: Granularity,
    /// The weight of the old range when a training step moves the range of activations (a moving average).
    #[schemars(range(min = 0.0, max = 0.999_999))]
    pub range_momentum: f64,
    /// Training batches before the first quantised step. Ranges start from their minimum and maximum.
    #[schemars(range(min = 1, max = 10_000))]
    pub calibration_batches: usize,
    /// Where the ranges of activations, keys and values come from.
    pub ranges: Ranges,
    /// Which precision a step trains.
    pub policy: PrecisionPolicy,
    /// The element type of the operands of matrix products in linear layers, attention and output. Weights, gradients,
    /// normalisation and loss are in 32 bits.
    pub matmul_dtype: MatmulDtype,
    /// The fraction of the loss of the narrower precisions that compares them with the logits of the widest; the rest
    /// is cross-entropy with the text. LLM-QAT uses 1.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub distillation: f64,
    /// Both logits are divided by this before they are compared; above 1, unlikely tokens weigh more. The divergence is
    /// multiplied by its square (Hinton et al. 2015). LLM-QAT uses 1.
    #[schemars(range(min = 0.05, max = 100.0))]
    pub distillation_temperature: f64,
    /// Steps that train the base in full precision before it is quantised, for a model that starts from nothing.
    pub pretraining_steps: u64,
    /// Whether the base is trained after pretraining.
    pub base: Base,
    /// Rank of the LoRA matrices (Hu et al. 2021); 0 has none, and then the base must be trained.
    #[schemars(range(min = 0, max = 1024))]
    pub lora_rank: usize,
    /// LoRA is scaled by this over the rank.
    #[schemars(range(min = 1e-3, max = 1e4))]
    pub lora_alpha: f64,
    /// The layers that have LoRA.
    #[schemars(length(max = 4))]
    pub lora_layers: Vec<Layer>,
    /// Quantise the LoRA matrices to the bits of the weights.
    pub lora_quantised: bool,
    /// The maximum number of tokens of an answer in validation.
    #[schemars(range(min = 1, max = 1024))]
    pub answer_tokens: usize,
    /// Write into each checkpoint, for each precision, a folder that Hugging Face's transformers reads: the weights
    /// that its passes multiply by, grid and LoRA included, as floats.
    pub export_merged: bool,
    /// Write the same in parts: the base, the base on each precision's grid, the LoRA as adapters of PEFT, scales and
    /// ranges.
    pub export_parts: bool,
}

/// Sequences in a batch where the file does not say how many.
pub const BATCH_SIZE: usize = 8;

/// Sequences in a batch.
pub fn batch_size(training: &Training) -> usize {
    training.batch_size.unwrap_or(BATCH_SIZE)
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            sequence_length: 64,
            loss_on: LossOn::All,
            weight_bits: vec![32, 8, 4],
            activation_bits: vec![32, 8, 8],
            key_value_bits: vec![32, 8, 8],
            weight_scheme: Scheme::Symmetric,
            weight_granularity: Granularity::PerChannel,
            weight_scale: WeightScale::MinMax,
            scale_learning_rate_factor: 1.0,
            activation_scheme: Scheme::Asymmetric,
            activation_granularity: Granularity::PerTensor,
            range_momentum: 0.9,
            calibration_batches: 8,
            ranges: Ranges::Moving,
            policy: PrecisionPolicy::Cyclic,
            matmul_dtype: MatmulDtype::Tf32,
            distillation: 0.5,
            distillation_temperature: 1.0,
            pretraining_steps: 0,
            base: Base::Frozen,
            lora_rank: 8,
            lora_alpha: 16.0,
            lora_layers: Layer::ALL.to_vec(),
            lora_quantised: true,
            answer_tokens: 12,
            export_merged: false,
            export_parts: false,
        }
    }
}

/// Which tokens the loss counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LossOn {
    /// Every token but the first.
    All,
    /// The answer and the end of text.
    Answer,
}

/// Where the levels lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Scheme {
    /// As many below zero as above.
    Symmetric,
    /// From the minimum to the maximum; zero is a level.
    Asymmetric,
}

/// What shares a scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Granularity {
    /// All values.
    PerTensor,
    /// The values of one output of a weight, or of one feature of an activation.
    PerChannel,
}

/// Where the scale of a weight comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WeightScale {
    /// From its minimum and maximum at each step.
    MinMax,
    /// A parameter for each precision, trained with the rest (LSQ, Esser et al. 2020). Symmetric only.
    Learned,
}

/// Where ranges come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Ranges {
    /// From the calibration, then fixed.
    Frozen,
    /// From the calibration; then they follow the batches of training, each batch of a step by itself.
    Moving,
    /// Each token has its own, from its values in each pass. Nothing is calibrated, and no range is held. LLM-QAT uses
    /// these, with `activation_scheme = "symmetric"`.
    PerToken,
}

/// Which precision a step trains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PrecisionPolicy {
    /// One of them, drawn with equal probability.
    Uniform,
    /// One after another.
    Cyclic,
    /// The widest, the narrowest and one drawn from those between, in one step (Yu and Huang 2019). Their losses are
    /// summed, and the pass of the widest one teaches the others.
    Sandwich,
}

/// What becomes of the base in the quantised steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Base {
    /// Only LoRA, and learnt scales, are trained.
    Frozen,
    /// All parameters are trained.
    TrainState,
}

/// The linear layers of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Layer {
    /// Queries, keys and values: `attn.c_attn`.
    AttentionInput,
    /// `attn.c_proj`.
    AttentionOutput,
    /// `mlp.c_fc`.
    MlpInput,
    /// `mlp.c_proj`.
    MlpOutput,
}

impl Layer {
    /// All of them, in the order of a block.
    pub const ALL: [Self; 4] = [Self::AttentionInput, Self::AttentionOutput, Self::MlpInput, Self::MlpOutput];

    /// Rows of its weight in a model of that width.
    pub fn inputs(self, width: usize) -> usize {
        match self {
            Self::AttentionInput | Self::AttentionOutput | Self::MlpInput => width,
            Self::MlpOutput => 4 * width,
        }
    }

    /// Columns of its weight.
    pub fn outputs(self, width: usize) -> usize {
        match self {
            Self::AttentionInput => 3 * width,
            Self::AttentionOutput | Self::MlpOutput => width,
            Self::MlpInput => 4 * width,
        }
    }
}

/// GPT-2 (Radford et al. 2019): learned positions, normalisation before each part, tied output.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Model {
    /// The shape; the keys below change parts of it.
    pub preset: Preset,
    /// Blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 256))]
    pub layers: Option<usize>,
    /// Attention heads. They share the width evenly.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 256))]
    pub heads: Option<usize>,
    /// Features of a token.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 4, max = 65536))]
    pub width: Option<usize>,
    /// Positions.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 32, max = 65536))]
    pub context: Option<usize>,
    /// A safetensors file of GPT-2 as Hugging Face writes it, such as `gpt2/model.safetensors`. Default: weights are
    /// drawn from `experiment.seed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weights: Option<String>,
}

/// A shape of GPT-2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Preset {
    /// 2 layers, 4 heads, width 64, 128 positions.
    #[default]
    Tiny,
    /// GPT-2's smallest, 124M: 12 layers, 12 heads, width 768, 1,024 positions.
    Small,
    /// 355M: 24 layers, 16 heads, width 1,024.
    Medium,
    /// 774M: 36 layers, 20 heads, width 1,280.
    Large,
}

impl Model {
    /// The preset's numbers, with those of the keys in their place.
    pub fn shape(&self) -> Gpt2Shape {
        let (layers, heads, width, context) = match self.preset {
            Preset::Tiny => (2, 4, 64, 128),
            Preset::Small => (12, 12, 768, 1024),
            Preset::Medium => (24, 16, 1024, 1024),
            Preset::Large => (36, 20, 1280, 1024),
        };
        Gpt2Shape {
            layers: self.layers.unwrap_or(layers),
            heads: self.heads.unwrap_or(heads),
            width: self.width.unwrap_or(width),
            context: self.context.unwrap_or(context),
        }
    }
}
