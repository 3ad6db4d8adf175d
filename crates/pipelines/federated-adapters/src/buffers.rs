//! Buffers of the task and their caps, declared once for the plan and for the code that fills them.

use super::clips::{ClipBatch, embedding_cache};
use super::server::Server;
use super::settings::{AudioAdapters, FederatedAdapters, NodeOptimizer};
use super::sizes::{self, parameters};
use xrun_core::bounded::buffer::Buffer;
use xrun_core::bounded::ledger::{Cap, Policy};
use xrun_core::experiment::Experiment;
use xrun_data::feed;
use xrun_data::micro_batches;
use xrun_data::sound_clips::library::{ClassSplit, Library};
use xrun_data::sound_clips::settings::LoaderSettings;
use xrun_data::sound_clips::targets;

/// Bytes of names and metadata per tensor in the record of an optimiser's state.
const RECORD_BYTES_PER_TENSOR: u64 = 512;
/// Number of parameter tensors of a hidden layer.
const TENSORS_PER_HIDDEN: u64 = 4;
/// Number of parameter tensors of an adapter without its hidden layers.
const TENSORS_PER_ADAPTER: u64 = 11;

xrun_core::buffers! {
    /// Buffers of the task; the data set declares its own.
    pub struct Buffers {
        /// Batches that wait for the training thread.
        pub feed: feed::Buffers,
        /// Batch of the running validation.
        pub validation_batch: Buffer,
        /// Cached embeddings of clips.
        pub embedding_cache: Buffer,
        /// Target vectors of all classes.
        pub targets: Buffer,
        /// Adapters at the start of a round.
        pub global_adapters: Buffer,
        /// Sum over the nodes of a round, and the adapters that are being added.
        pub round_sum: Buffer,
        /// State of the server's rule; `None` for a rule without state.
        pub server_state: Option<Buffer>,
        /// States of the nodes; `None` if they keep nothing between rounds.
        pub node_states: Option<Buffer>,
        /// Adapters at the first step of the running node; `None` without a proximal term.
        pub round_start: Option<Buffer>,
        /// Retrieval counts of each node.
        pub node_counts: Buffer,
        /// Gradients of the micro-batches of a batch.
        pub part_gradients: Buffer,
    }
}

impl Buffers {
    /// Declares the buffers for the settings and the data, of which steps and validations use a number of clips.
    pub fn new(
        settings: &FederatedAdapters,
        model: &AudioAdapters,
        data: &LoaderSettings,
        library: &Library,
        experiment: &Experiment,
        clips: u64,
    ) -> Self {
        let spectrum = (model.bands * model.frames) as u64 * 4;
        let numbers = sizes::embedding(model);
        let batch = ClipBatch::bytes_max(experiment.batch_size(), spectrum.max(numbers * data.embedding_dtype.bytes()));
        let adapters = parameters(model) * 4;
        let fixed = |name, items, bytes| Buffer::new(name, Policy::Refuse, Cap { items, bytes });
        let (nodes, classes) = (settings.nodes as u64, library.classes_of(ClassSplit::Federated).len());
        let copies = Server::copies(&settings.server);
        let optimizer_bytes = match settings.node_optimizer {
            NodeOptimizer::Fresh => 0,
            NodeOptimizer::Kept => adapters * experiment.optimizer.running_copies() + record_bytes(model),
        };
        let personal: u64 = settings.personal().into_iter().map(|part| sizes::parameters_of(part, model)).sum();
        let node_bytes = personal * 4 + optimizer_bytes;
        let because = match settings.node_optimizer {
            NodeOptimizer::Fresh => "personal parts of each node after its first turn",
            NodeOptimizer::Kept => "personal parts and optimiser state of each node after its first turn",
        };
        Self {
            feed: feed::Buffers::new(&experiment.limits, batch),
            validation_batch: fixed("validation_batch", 1, batch).because("one batch of a validation"),
            embedding_cache: embedding_cache(data, clips, numbers),
            targets: targets::buffer(library, sizes::targets(model)),
            global_adapters: fixed("global_adapters", 1, adapters).because("the adapters at the start of a round"),
            round_sum: fixed("round_sum", 2, 2 * adapters)
                .because("the sum over the nodes of a round, and the adapters that are being added"),
            server_state: (copies > 0).then(|| {
                let because = "running means of the server's rule";
                fixed("server_state", copies, copies * adapters).because(because)
            }),
            node_states: (node_bytes > 0).then(|| fixed("node_states", nodes, nodes * node_bytes).because(because)),
            round_start: (settings.proximal > 0.0)
                .then(|| fixed("round_start", 1, adapters).because("the adapters that `proximal` pulls the node to")),
            node_counts: fixed("node_counts", nodes, nodes * (classes * (classes + 1) * 8) as u64)
                .because("retrieval counts of each node by class"),
            part_gradients: micro_batches::gradient_buffer(parameters(model), &experiment.limits),
        }
    }
}

/// Maximum bytes of metadata in the record of an optimiser's state.
fn record_bytes(model: &AudioAdapters) -> u64 {
    let hidden = (model.pooled.hidden.len() + model.tokens.hidden.len()) as u64;
    (TENSORS_PER_HIDDEN * hidden + 2 * TENSORS_PER_ADAPTER) * RECORD_BYTES_PER_TENSOR
}
