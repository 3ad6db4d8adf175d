//! Settings of federated adapters: task and model.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Federated training of adapters from sound to the text conditioning of an image generator. Nodes hold sound clips that may
/// not leave them; each trains its own copy of the adapters, and a server averages the copies after each round (McMahan et al.
/// 2017). An epoch is a round, and a step is one optimiser step of one node. `training.batch_size` counts clips; its default
/// is 8.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FederatedAdapters {
    /// Number of nodes that hold clips.
    #[schemars(range(min = 1, max = 1000))]
    pub nodes: usize,
    /// Distribution of the clips over nodes.
    pub partition: Partition,
    /// Column of the clips' table whose values `partition = "by-column"` distributes over nodes, such as `fold` or `src_file`.
    pub partition_column: String,
    /// Concentration of `partition = "dirichlet"`, by which the fractions of a class are drawn for the nodes (Hsu et al. 2019).
    /// 0.1 leaves a node with few classes; 100 is almost equal.
    #[schemars(range(min = 1e-3, max = 1e6))]
    pub dirichlet_alpha: f64,
    /// Minimum number of training clips of a node. `partition = "dirichlet"` is drawn again until it is met, at most 1,000 times.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub min_clips_per_node: usize,
    /// Number of nodes that are drawn for each round; all nodes by default. Fewer nodes require `local_steps`, which makes all
    /// rounds equally long.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub nodes_per_round: Option<usize>,
    /// Epochs of a node over its own clips in a round.
    #[schemars(range(min = 1, max = 100_000))]
    pub local_epochs: u64,
    /// Steps of a node in a round, in place of `local_epochs`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub local_steps: Option<u64>,
    /// Weights of the nodes in the mean of a round.
    pub aggregation: Aggregation,
    /// Update of the server's model by the mean of a round.
    pub server: Server,
    /// Optimiser of a node at the start of a round.
    pub node_optimizer: NodeOptimizer,
    /// Weight of the proximal term, half the squared distance from the round's first weights (FedProx, Li et al. 2020).
    #[schemars(range(min = 0.0, max = 1e6))]
    pub proximal: f64,
    /// Parts of the adapters that each node keeps for itself and the server never averages (FedPer, Arivazhagan et al. 2019).
    #[schemars(length(max = 3))]
    pub personal: Vec<Part>,
    /// Fraction of the nodes' results that are lost on the way to the server.
    #[schemars(range(min = 0.0, max = 0.999))]
    pub drop_rate: f64,
    /// Loss between an output and its target.
    pub loss: Loss,
    /// Weight of the loss of the pooled output.
    #[schemars(range(min = 0.0, max = 1e6))]
    pub pooled_weight: f64,
    /// Weight of the loss of the tokens.
    #[schemars(range(min = 0.0, max = 1e6))]
    pub tokens_weight: f64,
    /// Steps that train an encoder without a file of weights to classify public classes, once before the run. The encoder is
    /// stored in the cache directory.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub pretraining_steps: u64,
}

/// Default of `training.batch_size`.
pub const BATCH_SIZE: usize = 8;

impl Default for FederatedAdapters {
    fn default() -> Self {
        Self {
            nodes: 5,
            partition: Partition::ByClass,
            partition_column: "fold".into(),
            dirichlet_alpha: 0.5,
            min_clips_per_node: 1,
            nodes_per_round: None,
            local_epochs: 1,
            local_steps: None,
            aggregation: Aggregation::Weighted,
            server: Server::Average(Average {}),
            node_optimizer: NodeOptimizer::Fresh,
            proximal: 0.0,
            personal: Vec::new(),
            drop_rate: 0.0,
            loss: Loss::Mse,
            pooled_weight: 1.0,
            tokens_weight: 1.0,
            pretraining_steps: 300,
        }
    }
}

impl FederatedAdapters {
    /// Number of nodes of a round.
    pub fn nodes_per_round(&self) -> usize {
        self.nodes_per_round.unwrap_or(self.nodes)
    }

    /// Parts that stay with their node: all parts if nothing is averaged.
    pub fn personal(&self) -> Vec<Part> {
        match self.aggregation {
            Aggregation::None => Part::ALL.to_vec(),
            Aggregation::Weighted | Aggregation::Equal => self.personal.clone(),
        }
    }
}

/// Distribution of the clips over nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Partition {
    /// Random clips in equal numbers: independent and identically distributed.
    Iid,
    /// All clips of some classes; the classes are distributed over nodes.
    ByClass,
    /// A random fraction of each class.
    Dirichlet,
    /// All clips with some values of a column; the values are distributed over nodes.
    ByColumn,
}

/// Weights of the nodes in the mean of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Aggregation {
    /// By the number of their clips.
    Weighted,
    /// Equal weights.
    Equal,
    /// No averaging: nodes are trained independently.
    None,
}

xrun_core::settings::kinds::kinds! {
    /// Update of the server's model by the mean of a round.
    pub enum Server {
        "average" => Average(Average),
        "momentum" => Momentum(Momentum),
        "adam" => Adam(Adam),
    }
}

/// The mean is the new model (FedAvg, McMahan et al. 2017).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Average {}

/// Momentum of the server on the difference of the mean from the model (FedAvgM, Hsu et al. 2019).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Momentum {
    /// Learning rate of the server.
    #[schemars(range(min = 0.0, max = 1e3))]
    pub learning_rate: f64,
    /// Momentum: the fraction of the previous step that is added.
    #[schemars(range(min = 0.0, max = 0.999_999))]
    pub momentum: f64,
}

impl Default for Momentum {
    fn default() -> Self {
        Self { learning_rate: 1.0, momentum: 0.9 }
    }
}

/// Adam of the server on the difference of the mean from the model, without bias correction (FedAdam, Reddi et al. 2021).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Adam {
    /// Learning rate of the server.
    #[schemars(range(min = 0.0, max = 1e3))]
    pub learning_rate: f64,
    /// Decay of the first moment.
    #[schemars(range(min = 0.0, max = 0.999_999))]
    pub beta_1: f64,
    /// Decay of the second moment.
    #[schemars(range(min = 0.0, max = 0.999_999))]
    pub beta_2: f64,
    /// Constant added to the root of the second moment, which limits the adaptivity.
    #[schemars(range(min = 1e-12, max = 1e3))]
    pub tau: f64,
}

impl Default for Adam {
    fn default() -> Self {
        Self { learning_rate: 0.1, beta_1: 0.9, beta_2: 0.99, tau: 1e-3 }
    }
}

/// Optimiser of a node at the start of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NodeOptimizer {
    /// A new optimiser.
    Fresh,
    /// The optimiser of the node's last round; the process holds the state of each node's.
    Kept,
}

/// Part of the adapters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// Layers of the pooled output.
    Pooled,
    /// Layers of the tokens.
    Tokens,
    /// Attention of both adapters that pools over the tokens of the encoder.
    Pooling,
}

impl Part {
    /// All parts.
    pub const ALL: [Self; 3] = [Self::Pooled, Self::Tokens, Self::Pooling];
}

/// Loss between an output and its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Loss {
    /// Mean squared error.
    Mse,
    /// One minus the cosine similarity.
    Cosine,
    /// Sum of both.
    MseAndCosine,
}

/// A frozen encoder of sound and two trained adapters: one maps a clip to a single vector, the other to several, like
/// `pooled_prompt_embeds` and `prompt_embeds` of an image generator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AudioAdapters {
    /// Encoder of clips.
    pub encoder: EncoderKind,
    /// Number of mel bands of the spectrogram.
    #[schemars(range(min = 16, max = 256))]
    pub bands: usize,
    /// Number of frames of the spectrogram, of 10 ms each; shorter clips are padded, longer ones are cut.
    #[schemars(range(min = 16, max = 8192))]
    pub frames: usize,
    /// Side of a patch in bands and frames.
    #[schemars(range(min = 2, max = 64))]
    pub patch_size: usize,
    /// Distance of patches in bands and frames; 10 in the Audio Spectrogram Transformer.
    #[schemars(range(min = 1, max = 64))]
    pub stride: usize,
    /// Features of a token of the transformer.
    #[schemars(range(min = 2, max = 8192))]
    pub hidden_size: usize,
    /// Number of blocks of the transformer.
    #[schemars(range(min = 1, max = 96))]
    pub layers: usize,
    /// Number of attention heads of the transformer, a divisor of `hidden_size`.
    #[schemars(range(min = 1, max = 128))]
    pub heads: usize,
    /// Adapter of the single vector.
    pub pooled: AdapterShape,
    /// Adapter of the tokens.
    #[serde(default = "tokens")]
    pub tokens: AdapterShape,
    /// Number of attention heads of the adapters, a divisor of their widths.
    #[schemars(range(min = 1, max = 128))]
    pub pool_heads: usize,
    /// A safetensors file with the encoder's weights, with the names of Hugging Face's `ASTModel`. Without it the encoder is
    /// trained on public classes of the data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weights: Option<String>,
}

/// Encoder of clips.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EncoderKind {
    /// The Audio Spectrogram Transformer (Gong et al. 2021).
    SpectrogramTransformer,
    /// One token: mean and standard deviation of each band over time, without training.
    Statistics,
}

/// Sizes of an adapter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AdapterShape {
    /// Widths of the hidden layers.
    #[schemars(length(max = 16), inner(range(min = 1, max = 65536)))]
    pub hidden: Vec<usize>,
    /// Number of output vectors.
    #[schemars(range(min = 1, max = 4096))]
    pub latents: usize,
    /// Features of an output vector.
    #[schemars(range(min = 1, max = 65536))]
    pub output_size: usize,
}

impl Default for AdapterShape {
    fn default() -> Self {
        Self { hidden: vec![128], latents: 1, output_size: 64 }
    }
}

fn tokens() -> AdapterShape {
    AdapterShape { hidden: vec![128, 128], latents: 8, output_size: 96 }
}

impl Default for AudioAdapters {
    fn default() -> Self {
        Self {
            encoder: EncoderKind::SpectrogramTransformer,
            bands: 64,
            frames: 96,
            patch_size: 16,
            stride: 16,
            hidden_size: 64,
            layers: 2,
            heads: 4,
            pooled: AdapterShape::default(),
            tokens: tokens(),
            pool_heads: 4,
            weights: None,
        }
    }
}

/// Number of tokens of the transformer in addition to patches: class and distillation.
pub const EXTRA_TOKENS: usize = 2;

impl AudioAdapters {
    /// Number of patches along the bands and along the frames.
    pub fn patches(&self) -> [usize; 2] {
        let along = |size: usize| if size < self.patch_size { 0 } else { (size - self.patch_size) / self.stride + 1 };
        [along(self.bands), along(self.frames)]
    }

    /// Number of output tokens of the encoder.
    pub fn encoder_tokens(&self) -> usize {
        match self.encoder {
            EncoderKind::SpectrogramTransformer => self.patches().iter().product::<usize>() + EXTRA_TOKENS,
            EncoderKind::Statistics => 1,
        }
    }

    /// Features of an output token of the encoder.
    pub fn encoder_width(&self) -> usize {
        match self.encoder {
            EncoderKind::SpectrogramTransformer => self.hidden_size,
            EncoderKind::Statistics => 2 * self.bands,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The Audio Spectrogram Transformer of Hugging Face's `ASTConfig` has 12 x 101 + 2 tokens.
    #[test]
    fn tokens_equal_those_of_the_published_model() {
        let published =
            AudioAdapters { bands: 128, frames: 1024, stride: 10, hidden_size: 768, ..AudioAdapters::default() };
        assert_eq!((published.patches(), published.encoder_tokens()), ([12, 101], 1214));
        assert_eq!((AudioAdapters::default().encoder_tokens(), AudioAdapters::default().encoder_width()), (26, 64));
        let statistics = AudioAdapters { encoder: EncoderKind::Statistics, ..AudioAdapters::default() };
        assert_eq!((statistics.encoder_tokens(), statistics.encoder_width()), (1, 128));
        assert_eq!(AudioAdapters { bands: 8, ..AudioAdapters::default() }.encoder_tokens(), EXTRA_TOKENS);
    }
}
