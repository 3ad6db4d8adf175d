//! Settings of quantisation-aware training of a language model: task and model.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use xrun_core::settings;
pub use xrun_core::settings::matmul_dtype::MatmulDtype;
use xrun_training::gpt2_shape::Gpt2Shape;

settings! {
    /// Quantisation-aware training of a language model at several bit widths together: a frozen base, and a LoRA and ranges for
    /// each width. A step draws a width; the widest is the teacher of the others by its logits (LLM-QAT, Liu et al. 2023).
    /// `training.batch_size` counts sequences; its default is 8.
    pub struct QatLanguageModel {
        /// Tokens of a sequence, at most the model's `context_length`. Shorter texts are padded.
        #[schemars(range(min = 32, max = 65536))]
        pub sequence_length: usize = 64,
        /// Tokens that the loss and the perplexity count.
        pub loss_tokens: LossTokens = LossTokens::All,
        /// Bits of the weights, one number per precision, widest first: 2 to 16, or 32 for no quantisation.
        #[schemars(length(min = 1, max = 8), inner(range(min = 2, max = 32)))]
        pub weight_bits: Vec<u32> = vec![32, 8, 4],
        /// Bits of the inputs of linear layers, in the same order.
        #[schemars(length(min = 1, max = 8), inner(range(min = 2, max = 32)))]
        pub activation_bits: Vec<u32> = vec![32, 8, 8],
        /// Bits of keys and values, in the same order.
        #[schemars(length(min = 1, max = 8), inner(range(min = 2, max = 32)))]
        pub kv_cache_bits: Vec<u32> = vec![32, 8, 8],
        /// Placement of the quantisation levels of weights.
        pub weight_scheme: Scheme = Scheme::Symmetric,
        /// Values of a weight that share a scale.
        pub weight_granularity: Granularity = Granularity::PerChannel,
        /// Source of the scale of a weight.
        pub weight_scale: WeightScale = WeightScale::MinMax,
        /// Learning rate of learned scales, as a multiple of the optimiser's. The logarithm of a scale is trained: one step of AdamW
        /// changes a scale by about the learning rate times itself.
        #[schemars(range(min = 0.0, max = 1e3))]
        pub scale_learning_rate_factor: f64 = 1.0,
        /// Placement of the quantisation levels of activations, keys and values.
        pub activation_scheme: Scheme = Scheme::Asymmetric,
        /// Values of activations, keys and values that share a scale.
        pub activation_granularity: Granularity = Granularity::PerTensor,
        /// Weight of the previous range in the moving average of the ranges of activations.
        #[schemars(range(min = 0.0, max = 0.999_999))]
        pub range_momentum: f64 = 0.9,
        /// Training batches of the calibration before the first quantised step. Their minimum and maximum are the initial ranges.
        #[schemars(range(min = 1, max = 10_000))]
        pub calibration_batches: usize = 8,
        /// Source of the ranges of activations, keys and values.
        pub activation_ranges: RangeSource = RangeSource::Moving,
        /// Precisions that a step trains.
        pub policy: PrecisionPolicy = PrecisionPolicy::Cyclic,
        /// Element type of the operands of matrix products in linear layers, attention and output. Weights, gradients,
        /// normalisation and loss are in 32 bits.
        pub matmul_dtype: MatmulDtype = MatmulDtype::Tf32,
        /// Weight of the divergence from the logits of the widest precision in the loss of the narrower ones; the rest is the
        /// cross-entropy with the text. LLM-QAT uses 1.
        #[schemars(range(min = 0.0, max = 1.0))]
        pub distillation: f64 = 0.5,
        /// Temperature that divides both logits in the divergence, which is multiplied by its square (Hinton et al. 2015). Above 1,
        /// unlikely tokens weigh more. LLM-QAT uses 1.
        #[schemars(range(min = 0.05, max = 100.0))]
        pub distillation_temperature: f64 = 1.0,
        /// Steps that train the base in full precision before it is quantised, for a model without weights.
        pub pretraining_steps: u64 = 0,
        /// Training of the base after pretraining.
        pub base: BaseTraining = BaseTraining::Frozen,
        /// Rank of the LoRA matrices (Hu et al. 2021); 0 for no LoRA, which requires `base = "trained"`.
        #[schemars(range(min = 0, max = 1024))]
        pub lora_rank: usize = 8,
        /// Scale of LoRA, which is divided by the rank.
        #[schemars(range(min = 1e-3, max = 1e4))]
        pub lora_alpha: f64 = 16.0,
        /// Layers with LoRA.
        #[schemars(length(max = 4))]
        pub lora_layers: Vec<Layer> = Layer::ALL.to_vec(),
        /// Quantise the LoRA matrices to the bits of the weights.
        pub lora_quantised: bool = true,
        /// Order of the products with the LoRA matrices. The result differs only by rounding.
        pub lora_product: LoraProduct = LoraProduct::InputFirst,
        /// Number of blocks after which a forward pass returns free memory to the operating system and the driver; 0 never does. Costs
        /// time and, as docs/claims.md shows, does not lower the peak.
        #[schemars(range(max = 1024))]
        pub clean_every_blocks: usize = 0,
        /// Maximum number of tokens of an answer in validation.
        #[schemars(range(min = 1, max = 1024))]
        pub max_new_tokens: usize = 12,
        /// Write into each checkpoint, for each precision, a directory that Hugging Face's transformers reads: the weights of its
        /// forward pass, quantisation and LoRA included, as floats.
        pub export_merged: bool = false,
        /// Write the parts of the model separately: the base, the base quantised at each precision, LoRA as PEFT adapters, scales
        /// and ranges.
        pub export_components: bool = false,
    }
}

/// Default of `training.batch_size`.
pub const BATCH_SIZE: usize = 8;

/// Tokens that the loss counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LossTokens {
    /// Every token but the first.
    All,
    /// The answer and the end of text.
    Answer,
}

/// Placement of quantisation levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Scheme {
    /// As many below zero as above.
    Symmetric,
    /// From the minimum to the maximum; zero is a level.
    Asymmetric,
}

/// Values that share a scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Granularity {
    /// All values of a tensor.
    PerTensor,
    /// Values of one output of a weight, or of one feature of an activation.
    PerChannel,
}

/// Source of the scale of a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WeightScale {
    /// Minimum and maximum of the weight at each step.
    MinMax,
    /// A parameter for each precision, trained with the rest (LSQ, Esser et al. 2020). Symmetric only.
    Learned,
}

/// Source of the ranges of activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RangeSource {
    /// The calibration; then they are fixed.
    Frozen,
    /// The calibration; then a moving average over the training batches, each batch of a step separately.
    Moving,
    /// Each token has its own range, from its values in each forward pass, without calibration. LLM-QAT uses this with
    /// `activation_scheme = "symmetric"`.
    PerToken,
}

/// Order of the products of an input with the two LoRA matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LoraProduct {
    /// `(x A) B`: the intermediate result has a column for each rank.
    InputFirst,
    /// `x (A B)`: the intermediate result is as large as the weight.
    MatricesFirst,
}

/// Precisions that a step trains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PrecisionPolicy {
    /// One precision, drawn with equal probability.
    Uniform,
    /// One after another.
    Cyclic,
    /// The widest, the narrowest and one drawn from those between, in one step (Yu and Huang 2019). Their losses are summed,
    /// and the widest one is the teacher of the others.
    Sandwich,
}

/// Training of the base in quantised steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BaseTraining {
    /// Only LoRA and learned scales are trained.
    Frozen,
    /// All parameters are trained.
    Trained,
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
    /// All layers, in the order of a block.
    pub const ALL: [Self; 4] = [Self::AttentionInput, Self::AttentionOutput, Self::MlpInput, Self::MlpOutput];

    /// Rows of the weight in a model of width `width`.
    pub fn inputs(self, width: usize) -> usize {
        match self {
            Self::AttentionInput | Self::AttentionOutput | Self::MlpInput => width,
            Self::MlpOutput => 4 * width,
        }
    }

    /// Columns of the weight in a model of width `width`.
    pub fn outputs(self, width: usize) -> usize {
        match self {
            Self::AttentionInput => 3 * width,
            Self::AttentionOutput | Self::MlpOutput => width,
            Self::MlpInput => 4 * width,
        }
    }
}

/// GPT-2 (Radford et al. 2019): learned positions, pre-normalisation, tied output.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Gpt2 {
    /// Shape of the model; the keys below replace parts of it.
    pub preset: Preset,
    /// Number of blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 256))]
    pub layers: Option<usize>,
    /// Number of attention heads, a divisor of `hidden_size`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 256))]
    pub heads: Option<usize>,
    /// Features of a token.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 4, max = 65536))]
    pub hidden_size: Option<usize>,
    /// Number of positions.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 32, max = 65536))]
    pub context_length: Option<usize>,
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

impl Gpt2 {
    /// Shape of the preset, with the keys that are given.
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
            hidden_size: self.hidden_size.unwrap_or(width),
            context_length: self.context_length.unwrap_or(context),
        }
    }
}
