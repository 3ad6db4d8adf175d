//! Settings of federated adapters: task and model.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use xrun_core::settings;

settings! {
    /// Federated training of adapters from sound to the text conditioning of an image generator. Nodes hold sound clips that may
    /// not leave them; each trains its own copy of the adapters, and a server averages the copies after each round (McMahan et al.
    /// 2017). An epoch is a round, and a step is one optimiser step of one node. `training.batch_size` counts clips; its default
    /// is 8.
    pub struct FederatedAdapters {
        /// Number of nodes that hold clips.
        #[schemars(range(min = 1, max = 1000))]
        pub nodes: usize = 5,
        /// Distribution of the clips over nodes.
        pub partition: Partition = Partition::ByClass,
        /// Column of the clips' table whose values `partition = "by-column"` distributes over nodes, such as `fold` or `src_file`.
        pub partition_column: String = "fold".into(),
        /// Concentration of `partition = "dirichlet"`, by which the fractions of a class are drawn for the nodes (Hsu et al. 2019).
        /// 0.1 leaves a node with few classes; 100 is almost equal.
        #[schemars(range(min = 1e-3, max = 1e6))]
        pub dirichlet_alpha: f64 = 0.5,
        /// Minimum number of training clips of a node. `partition = "dirichlet"` is drawn again until it is met, at most 1,000 times.
        #[schemars(range(min = 1, max = 1_000_000))]
        pub min_clips_per_node: usize = 1,
        /// Number of nodes that are drawn for each round; all nodes by default. Fewer nodes require `local_steps`, which makes all
        /// rounds equally long.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(range(min = 1, max = 1000))]
        pub nodes_per_round: Option<usize> = None,
        /// Epochs of a node over its own clips in a round.
        #[schemars(range(min = 1, max = 100_000))]
        pub local_epochs: u64 = 1,
        /// Steps of a node in a round, in place of `local_epochs`.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(range(min = 1, max = 1_000_000))]
        pub local_steps: Option<u64> = None,
        /// Weights of the nodes in the mean of a round.
        pub aggregation: Aggregation = Aggregation::Weighted,
        /// Update of the server's model by the mean of a round.
        pub server: Server = Server::Average(Average {}),
        /// Optimiser of a node at the start of a round.
        pub node_optimizer: NodeOptimizer = NodeOptimizer::Fresh,
        /// Weight of the proximal term, half the squared distance from the round's first weights (FedProx, Li et al. 2020).
        #[schemars(range(min = 0.0, max = 1e6))]
        pub proximal: f64 = 0.0,
        /// Parts of the adapters that each node keeps for itself and the server never averages (FedPer, Arivazhagan et al. 2019).
        #[schemars(length(max = 3))]
        pub personal: Vec<Part> = Vec::new(),
        /// Fraction of the nodes' results that are lost on the way to the server.
        #[schemars(range(min = 0.0, max = 0.999))]
        pub drop_rate: f64 = 0.0,
        /// Loss between an output and its target.
        pub loss: Loss = Loss::Mse,
        /// Weight of the loss of the pooled output.
        #[schemars(range(min = 0.0, max = 1e6))]
        pub pooled_weight: f64 = 1.0,
        /// Weight of the loss of the tokens.
        #[schemars(range(min = 0.0, max = 1e6))]
        pub tokens_weight: f64 = 1.0,
        /// Steps that train an encoder without a file of weights to classify public classes, once before the run. The encoder is
        /// stored in the cache directory.
        #[schemars(range(min = 0, max = 1_000_000))]
        pub pretraining_steps: u64 = 300,
    }
}

/// Default of `training.batch_size`.
pub const BATCH_SIZE: usize = 8;

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

settings! {
    /// Momentum of the server on the difference of the mean from the model (FedAvgM, Hsu et al. 2019).
    pub struct Momentum {
        /// Learning rate of the server.
        #[schemars(range(min = 0.0, max = 1e3))]
        pub learning_rate: f64 = 1.0,
        /// Momentum: the fraction of the previous step that is added.
        #[schemars(range(min = 0.0, max = 0.999_999))]
        pub momentum: f64 = 0.9,
    }

    /// Adam of the server on the difference of the mean from the model, without bias correction (FedAdam, Reddi et al. 2021).
    pub struct Adam {
        /// Learning rate of the server.
        #[schemars(range(min = 0.0, max = 1e3))]
        pub learning_rate: f64 = 0.1,
        /// Decay of the first moment.
        #[schemars(range(min = 0.0, max = 0.999_999))]
        pub beta_1: f64 = 0.9,
        /// Decay of the second moment.
        #[schemars(range(min = 0.0, max = 0.999_999))]
        pub beta_2: f64 = 0.99,
        /// Constant added to the root of the second moment, which limits the adaptivity.
        #[schemars(range(min = 1e-12, max = 1e3))]
        pub tau: f64 = 1e-3,
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

settings! {
    /// A frozen encoder of sound and two trained adapters: one maps a clip to a single vector, the other to several, like
    /// `pooled_prompt_embeds` and `prompt_embeds` of an image generator.
    pub struct AudioAdapters {
        /// Encoder of clips.
        pub encoder: EncoderKind = EncoderKind::SpectrogramTransformer,
        /// Number of mel bands of the spectrogram.
        #[schemars(range(min = 16, max = 256))]
        pub bands: usize = 64,
        /// Number of frames of the spectrogram, of 10 ms each; shorter clips are padded, longer ones are cut.
        #[schemars(range(min = 16, max = 8192))]
        pub frames: usize = 96,
        /// Side of a patch in bands and frames.
        #[schemars(range(min = 2, max = 64))]
        pub patch_size: usize = 16,
        /// Distance of patches in bands and frames; 10 in the Audio Spectrogram Transformer.
        #[schemars(range(min = 1, max = 64))]
        pub stride: usize = 16,
        /// Features of a token of the transformer.
        #[schemars(range(min = 2, max = 8192))]
        pub hidden_size: usize = 64,
        /// Number of blocks of the transformer.
        #[schemars(range(min = 1, max = 96))]
        pub layers: usize = 2,
        /// Number of attention heads of the transformer, a divisor of `hidden_size`.
        #[schemars(range(min = 1, max = 128))]
        pub heads: usize = 4,
        /// Adapter of the single vector.
        pub pooled: AdapterShape = AdapterShape::default(),
        /// Adapter of the tokens.
        #[serde(default = "tokens")]
        pub tokens: AdapterShape = tokens(),
        /// Number of attention heads of the adapters, a divisor of their widths.
        #[schemars(range(min = 1, max = 128))]
        pub pool_heads: usize = 4,
        /// A safetensors file with the encoder's weights, with the names of Hugging Face's `ASTModel`. Without it the encoder is
        /// trained on public classes of the data.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub weights: Option<String> = None,
    }
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

settings! {
    /// Sizes of an adapter.
    pub struct AdapterShape {
        /// Widths of the hidden layers.
        #[schemars(length(max = 16), inner(range(min = 1, max = 65536)))]
        pub hidden: Vec<usize> = vec![128],
        /// Number of output vectors.
        #[schemars(range(min = 1, max = 4096))]
        pub latents: usize = 1,
        /// Features of an output vector.
        #[schemars(range(min = 1, max = 65536))]
        pub output_size: usize = 64,
    }
}

fn tokens() -> AdapterShape {
    AdapterShape { hidden: vec![128, 128], latents: 8, output_size: 96 }
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
