//! What may be set of federated adapters: task and model?

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use xrun_core::settings::sections::Training;

/// Federated training of adapters from sound to the text conditioning of an image generator. Nodes hold sound clips that
/// may not leave them; each trains its own copy of the adapters, and a server averages the copies after each round (McMahan
/// et al. 2017). An epoch is a round, and a step is one optimiser step of one node. `training.batch_size` counts clips; it
/// is 8 where the file says nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Nodes that hold clips.
    #[schemars(range(min = 1, max = 1000))]
    pub nodes: usize,
    /// Which clips a node holds.
    pub partition: Partition,
    /// The column of the clips' table whose values `partition = "by-column"` spreads over nodes, such as `fold` or
    /// `src_file`.
    pub partition_column: String,
    /// How unequal `partition = "dirichlet"` is: a class is spread over nodes by fractions that are drawn with this
    /// concentration (Hsu et al. 2019). 0.1 leaves a node with few classes; 100 is almost equal.
    #[schemars(range(min = 1e-3, max = 1e6))]
    pub dirichlet_alpha: f64,
    /// Clips to train on that each node must have. `partition = "dirichlet"` is drawn again, at most 1,000 times, until it
    /// has.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub min_clips_per_node: usize,
    /// Nodes that take part in a round, drawn anew for each; all of them where the file says nothing. Fewer need
    /// `local_steps`, so that all rounds are equally long.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub nodes_per_round: Option<usize>,
    /// Passes of a node over its own clips in a round.
    #[schemars(range(min = 1, max = 100_000))]
    pub local_epochs: u64,
    /// Steps of a node in a round, in place of `local_epochs`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub local_steps: Option<u64>,
    /// How the server weighs the nodes of a round.
    pub aggregation: Aggregation,
    /// What the server does with the mean of a round.
    pub server: Server,
    /// Whether a node begins a round with a new optimiser.
    pub node_optimizer: NodeOptimizer,
    /// Half of this times the squared distance from the round's first weights is added to the loss (FedProx, Li et al. 2020).
    #[schemars(range(min = 0.0, max = 1e6))]
    pub proximal: f64,
    /// Parts of the adapters that each node keeps for itself and the server never averages (FedPer, Arivazhagan et al. 2019).
    #[schemars(length(max = 3))]
    pub personal: Vec<Part>,
    /// The fraction of the nodes' results that get lost on the way to the server.
    #[schemars(range(min = 0.0, max = 0.999))]
    pub drop_rate: f64,
    /// How an output is compared with its target.
    pub loss: Loss,
    /// The weight of the loss of the pooled output.
    #[schemars(range(min = 0.0, max = 1e6))]
    pub pooled_weight: f64,
    /// The weight of the loss of the tokens.
    #[schemars(range(min = 0.0, max = 1e6))]
    pub tokens_weight: f64,
    /// Steps that train the encoder to tell public classes apart, once and before the run, where it has no file of weights.
    /// The encoder is kept in the cache folder.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub pretraining_steps: u64,
}

/// Clips in a batch where the file does not say how many.
pub const BATCH_SIZE: usize = 8;

/// Clips in a batch.
pub fn batch_size(training: &Training) -> usize {
    training.batch_size.unwrap_or(BATCH_SIZE)
}

impl Default for Settings {
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

impl Settings {
    /// Nodes of a round.
    pub fn nodes_per_round(&self) -> usize {
        self.nodes_per_round.unwrap_or(self.nodes)
    }

    /// Parts that stay with their node: all of them where nothing is averaged.
    pub fn personal(&self) -> Vec<Part> {
        match self.aggregation {
            Aggregation::None => Part::ALL.to_vec(),
            Aggregation::Weighted | Aggregation::Equal => self.personal.clone(),
        }
    }
}

/// Which clips a node holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Partition {
    /// Any, in equal numbers: independent and identically distributed.
    Iid,
    /// Those of its own classes; the classes are dealt out to the nodes.
    ByClass,
    /// A random fraction of each class.
    Dirichlet,
    /// Those of its own values of a column; the values are dealt out to the nodes.
    ByColumn,
}

/// How the server weighs the nodes of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Aggregation {
    /// By their clips.
    Weighted,
    /// All alike.
    Equal,
    /// Nothing is averaged: each node stays alone.
    None,
}

xrun_core::settings::kinds::kinds! {
    /// What the server does with the mean of a round.
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

/// The difference of the mean from the model is a gradient, and the server has momentum (FedAvgM, Hsu et al. 2019).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Momentum {
    /// The size of the server's step.
    #[schemars(range(min = 0.0, max = 1e3))]
    pub learning_rate: f64,
    /// The fraction of the last step that is taken again.
    #[schemars(range(min = 0.0, max = 0.999_999))]
    pub momentum: f64,
}

impl Default for Momentum {
    fn default() -> Self {
        Self { learning_rate: 1.0, momentum: 0.9 }
    }
}

/// The same with Adam on the server, without correction of the first steps (FedAdam, Reddi et al. 2021).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Adam {
    /// The size of the server's step.
    #[schemars(range(min = 0.0, max = 1e3))]
    pub learning_rate: f64,
    /// Decay of the running mean of differences.
    #[schemars(range(min = 0.0, max = 0.999_999))]
    pub beta_1: f64,
    /// Decay of the running mean of their squares.
    #[schemars(range(min = 0.0, max = 0.999_999))]
    pub beta_2: f64,
    /// Added to the root of the squares: how far the rule adapts.
    #[schemars(range(min = 1e-12, max = 1e3))]
    pub tau: f64,
}

impl Default for Adam {
    fn default() -> Self {
        Self { learning_rate: 0.1, beta_1: 0.9, beta_2: 0.99, tau: 1e-3 }
    }
}

/// Whether a node begins a round with a new optimiser.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NodeOptimizer {
    /// With a new one.
    Fresh,
    /// With the one that it ended its last round with; the server's process keeps one for each node.
    Kept,
}

/// Parts of the adapters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// The layers that make the pooled output of each token of the encoder.
    Pooled,
    /// The layers that make the tokens.
    Tokens,
    /// The attention of both that pools over tokens of the encoder.
    Pooling,
}

impl Part {
    /// All of them, in the order in which they are counted.
    pub const ALL: [Self; 3] = [Self::Pooled, Self::Tokens, Self::Pooling];
}

/// How an output is compared with its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Loss {
    /// The mean of the squared differences.
    Mse,
    /// One less the cosine of the angle between them.
    Cosine,
    /// The sum of both.
    MseAndCosine,
}

/// A frozen encoder of sound, and two adapters that are trained: one makes a single vector of a clip, the other several, as
/// `pooled_prompt_embeds` and `prompt_embeds` of an image generator are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Model {
    /// What makes tokens of a clip.
    pub encoder: EncoderKind,
    /// Mel bands of the spectrogram.
    #[schemars(range(min = 16, max = 256))]
    pub bands: usize,
    /// Frames of the spectrogram, of 10 ms each; shorter clips are filled up, longer ones are cut.
    #[schemars(range(min = 16, max = 8192))]
    pub frames: usize,
    /// Bands, and frames, of a patch.
    #[schemars(range(min = 2, max = 64))]
    pub patch: usize,
    /// Bands, and frames, from one patch to the next. The Audio Spectrogram Transformer has 10.
    #[schemars(range(min = 1, max = 64))]
    pub stride: usize,
    /// Numbers of a token of the transformer.
    #[schemars(range(min = 2, max = 8192))]
    pub width: usize,
    /// Blocks of the transformer.
    #[schemars(range(min = 1, max = 96))]
    pub layers: usize,
    /// Heads of its attention.
    #[schemars(range(min = 1, max = 128))]
    pub heads: usize,
    /// The adapter that makes one vector.
    pub pooled: AdapterShape,
    /// The adapter that makes several.
    #[serde(default = "tokens")]
    pub tokens: AdapterShape,
    /// Heads of the adapters' attention.
    #[schemars(range(min = 1, max = 128))]
    pub pool_heads: usize,
    /// A safetensors file with the encoder's weights, named as Hugging Face's `ASTModel` names them. Without it the encoder is
    /// trained on public classes of the data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weights: Option<String>,
}

/// What makes tokens of a clip.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EncoderKind {
    /// The Audio Spectrogram Transformer (Gong et al. 2021).
    SpectrogramTransformer,
    /// One token: the mean and the deviation of each band over time. Nothing is trained.
    Statistics,
}

/// Layers of an adapter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AdapterShape {
    /// Widths of the hidden layers.
    #[schemars(length(max = 16), inner(range(min = 1, max = 65536)))]
    pub hidden: Vec<usize>,
    /// Vectors that come out.
    #[schemars(range(min = 1, max = 4096))]
    pub latents: usize,
    /// Numbers of each of them.
    #[schemars(range(min = 1, max = 65536))]
    pub width: usize,
}

impl Default for AdapterShape {
    fn default() -> Self {
        Self { hidden: vec![128], latents: 1, width: 64 }
    }
}

fn tokens() -> AdapterShape {
    AdapterShape { hidden: vec![128, 128], latents: 8, width: 96 }
}

impl Default for Model {
    fn default() -> Self {
        Self {
            encoder: EncoderKind::SpectrogramTransformer,
            bands: 64,
            frames: 96,
            patch: 16,
            stride: 16,
            width: 64,
            layers: 2,
            heads: 4,
            pooled: AdapterShape::default(),
            tokens: tokens(),
            pool_heads: 4,
            weights: None,
        }
    }
}

/// Tokens that the transformer has beside those of patches: for the class, and for distillation.
pub const EXTRA_TOKENS: usize = 2;

impl Model {
    /// Patches along the bands, and along the frames.
    pub fn patches(&self) -> [usize; 2] {
        let along = |size: usize| if size < self.patch { 0 } else { (size - self.patch) / self.stride + 1 };
        [along(self.bands), along(self.frames)]
    }

    /// Tokens that come out of the encoder.
    pub fn encoder_tokens(&self) -> usize {
        match self.encoder {
            EncoderKind::SpectrogramTransformer => self.patches().iter().product::<usize>() + EXTRA_TOKENS,
            EncoderKind::Statistics => 1,
        }
    }

    /// Numbers of each.
    pub fn encoder_width(&self) -> usize {
        match self.encoder {
            EncoderKind::SpectrogramTransformer => self.width,
            EncoderKind::Statistics => 2 * self.bands,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of tokens of the Audio Spectrogram Transformer, as Hugging Face's `ASTConfig` has it: 12 x 101 and two.
    #[test]
    fn tokens_are_those_of_the_published_model() {
        let published = Model { bands: 128, frames: 1024, stride: 10, width: 768, ..Model::default() };
        assert_eq!((published.patches(), published.encoder_tokens()), ([12, 101], 1214));
        assert_eq!((Model::default().encoder_tokens(), Model::default().encoder_width()), (26, 64));
        let statistics = Model { encoder: EncoderKind::Statistics, ..Model::default() };
        assert_eq!((statistics.encoder_tokens(), statistics.encoder_width()), (1, 128));
        assert_eq!(Model { bands: 8, ..Model::default() }.encoder_tokens(), EXTRA_TOKENS);
    }
}
