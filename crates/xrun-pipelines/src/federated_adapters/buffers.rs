//! Which buffers does the task have, and how much may each hold? Declared once, for the plan and for whoever fills them.

use super::server::Server;
use super::settings::{Model, NodeOptimizer, Settings};
use super::sizes::{self, parameters};
use super::sounds::{ClipBatch, embedding_cache};
use xrun_core::bounded::buffer::Buffer;
use xrun_core::bounded::ledger::{Cap, Policy};
use xrun_core::experiment::Experiment;
use xrun_data::feed;
use xrun_data::parts;
use xrun_data::sound_clips::library::{Library, Options};
use xrun_data::sound_clips::targets;

/// Names and numbers of a parameter in a file of the optimiser's running values, beside the values.
const RECORD_BYTES_OF_PARAMETER: u64 = 512;
/// Parameters, as matrices and vectors: of a hidden layer, and of the rest of an adapter.
const PARAMETERS_OF_HIDDEN: u64 = 4;
const PARAMETERS_OF_ADAPTER: u64 = 11;

/// All but those of the data set, which has its own.
#[derive(Clone, Debug)]
pub struct Buffers {
    /// Batches on their way to the trainer.
    pub feed: feed::Buffers,
    /// The batch that a validation is looking at.
    pub validation_batch: Buffer,
    /// What the encoder made of clips.
    pub embedding_cache: Buffer,
    /// The vectors that are to be given for each class.
    pub targets: Buffer,
    /// The adapters that a round begins with.
    pub global_adapters: Buffer,
    /// The sum over the nodes of a round, and the adapters that are being added.
    pub round_sum: Buffer,
    /// None where the server's rule keeps nothing.
    pub server_state: Option<Buffer>,
    /// None where a node keeps nothing.
    pub node_states: Option<Buffer>,
    /// What the running node's adapters were at its first step; none where nothing holds them there.
    pub round_start: Option<Buffer>,
    /// Right and wrong answers of each node by class.
    pub node_counts: Buffer,
    /// Gradients of the parts of a batch.
    pub part_gradients: Buffer,
}

/// Sizes that buffers follow from.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Clips in a batch.
    pub batch: usize,
    /// Numbers of all adapters that a node keeps for itself.
    pub personal: u64,
    /// Classes to be learnt.
    pub classes: usize,
}

impl Buffers {
    /// Declares them from the settings and from what the data says; `sizes` are those of the data.
    pub fn new(
        settings: &Settings,
        model: &Model,
        data: &Options,
        library: &Library,
        experiment: &Experiment,
        sizes: Sizes,
    ) -> Self {
        let clips = library.clips.len() as u64;
        let spectrum = (model.bands * model.frames) as u64 * 4;
        let numbers = sizes::embedding(model);
        let batch = ClipBatch::bytes_max(sizes.batch, spectrum.max(numbers * data.embedding_dtype.bytes()));
        let adapters = parameters(model) * 4;
        let fixed = |name, items, bytes| Buffer::new(name, Policy::Refuse, Cap { items, bytes });
        let nodes = settings.nodes as u64;
        let copies = Server::copies(&settings.server);
        let kept = match settings.node_optimizer {
            NodeOptimizer::Fresh => 0,
            NodeOptimizer::Kept => adapters * experiment.optimizer.running_copies() + record_bytes(model),
        };
        let of_node = sizes.personal * 4 + kept;
        let because = match settings.node_optimizer {
            NodeOptimizer::Fresh => "personal parts of each node that has taken part",
            NodeOptimizer::Kept => "personal parts and the optimiser's running values of each node that has taken part",
        };
        Self {
            feed: feed::Buffers::new(&experiment.limits, batch),
            validation_batch: fixed("validation_batch", 1, batch).because("one batch of a validation"),
            embedding_cache: embedding_cache(data, clips, numbers),
            targets: targets::buffer(library, sizes::targets(model)),
            global_adapters: fixed("global_adapters", 1, adapters).because("the adapters that a round begins with"),
            round_sum: fixed("round_sum", 2, 2 * adapters)
                .because("the sum over the nodes of a round, and the adapters that are being added"),
            server_state: (copies > 0).then(|| {
                let because = "what the server's rule keeps of earlier rounds";
                fixed("server_state", copies, copies * adapters).because(because)
            }),
            node_states: (of_node > 0).then(|| fixed("node_states", nodes, nodes * of_node).because(because)),
            round_start: (settings.proximal > 0.0).then(|| {
                fixed("round_start", 1, adapters).because("the adapters that `proximal` holds the node near to")
            }),
            node_counts: fixed("node_counts", nodes, nodes * (sizes.classes * (sizes.classes + 1) * 8) as u64)
                .because("right and wrong answers of each node by class"),
            part_gradients: parts::part_gradients(parameters(model), &experiment.limits),
        }
    }

    /// All of them that this experiment has.
    pub fn all(&self) -> impl Iterator<Item = &Buffer> {
        let fixed =
            [&self.validation_batch, &self.embedding_cache, &self.targets, &self.global_adapters, &self.round_sum];
        let others = [&self.server_state, &self.node_states, &self.round_start].into_iter().flatten();
        self.feed.all().into_iter().chain(fixed).chain(others).chain([&self.node_counts, &self.part_gradients])
    }
}

/// What a record of running values has beside them.
fn record_bytes(model: &Model) -> u64 {
    let hidden = (model.pooled.hidden.len() + model.tokens.hidden.len()) as u64;
    (PARAMETERS_OF_HIDDEN * hidden + 2 * PARAMETERS_OF_ADAPTER) * RECORD_BYTES_OF_PARAMETER
}
