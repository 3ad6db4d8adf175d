//! State between the turns of nodes: the server's model, the sum of the running round, and the states of nodes.
//!
//! All state is on the host, has a fixed size, and is in the ledger and in checkpoints, which can be saved within a round.

use std::borrow::Cow;
use std::ops::Range;
use std::path::Path;

use burn::module::Module;
use safetensors::tensor::{Dtype, TensorView};
use serde::{Deserialize, Serialize};

use super::prepare::Prepared;
use super::retrieval::ConfusionMatrix;
use super::server::{RoundSum, Server};
use super::settings::NodeOptimizer;
use super::sizes::part_of;
use xrun_core::bounded::ledger::{Ledger, Registration};
use xrun_core::files::{file, write};
use xrun_core::task::TaskError;
use xrun_training::nn::flat;

/// File of adapters and optimiser states in a checkpoint.
const TENSORS_FILE: &str = "federation.safetensors";
/// File of [`State`] in a checkpoint.
const STATE_FILE: &str = "federation.json";
/// Maximum size of a file of a checkpoint.
const FILE_BYTES_MAX: u64 = 1 << 40;

/// Server and nodes of a federated training.
pub struct Federation {
    server: Server,
    sum: RoundSum,
    /// Ranges of the parameters that stay with their node.
    personal: Vec<Range<usize>>,
    keeps_optimizers: bool,
    /// State of each node; `None` before the end of its first turn.
    nodes: Vec<Option<Node>>,
    state: State,
    held: Registrations,
}

/// State of a node between its turns.
#[derive(Clone, Debug, Default)]
struct Node {
    /// Personal parameters, concatenated.
    personal: Vec<f32>,
    /// Record of the optimiser's state.
    optimizer_state: Vec<u8>,
}

fn read_state(path: &Path) -> Result<State, TaskError> {
    let text = file::bytes(path, FILE_BYTES_MAX).map_err(|error| TaskError::file(path, error))?;
    serde_json::from_slice(&text).map_err(|error| TaskError::file(path, error))
}

/// Scalars and counts of a checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct State {
    /// Digest of the encoder's weights; `None` for statistics.
    encoder: Option<String>,
    /// Round and its learning rate.
    rate: Option<(u64, f64)>,
    /// Node whose turn is running.
    at_work: Option<usize>,
    count: u64,
    squared_distance: f64,
    drift: Option<f64>,
    /// Retrieval counts of each node's own model at the end of its last turn.
    answers: Vec<ConfusionMatrix>,
    /// Nodes with a state.
    keep: Vec<usize>,
}

/// Entries of the ledger.
#[derive(Debug)]
struct Registrations {
    _global: Registration,
    sum: Registration,
    server: Option<Registration>,
    nodes: Option<Registration>,
    _answers: Registration,
}

impl Federation {
    /// Federation before its first round, whose server has the adapters of `network`. Registers its buffers in the ledger.
    pub fn new<M: Module>(
        prepared: &Prepared,
        network: &M,
        classes: usize,
        encoder: Option<String>,
        ledger: &Ledger,
    ) -> Self {
        let (settings, buffers) = (&prepared.settings, &prepared.buffers);
        let parts = settings.personal();
        let personal = flat::parameter_ranges(network).into_iter().filter(|(path, _)| parts.contains(&part_of(path)));
        let global = flat::to_host(network);
        let answers = vec![ConfusionMatrix::new(classes, classes); settings.nodes];
        let held = Registrations {
            _global: buffers.global_adapters.register(ledger),
            sum: buffers.round_sum.register(ledger),
            server: buffers.server_state.as_ref().map(|buffer| buffer.register(ledger)),
            nodes: buffers.node_states.as_ref().map(|buffer| buffer.register(ledger)),
            _answers: buffers.node_counts.register(ledger),
        };
        held._global.set(1, size_of_val(&*global) as u64);
        held._answers.set(settings.nodes as u64, answers.iter().map(ConfusionMatrix::bytes).sum());
        let state = State {
            encoder,
            rate: None,
            at_work: None,
            count: 0,
            squared_distance: 0.0,
            drift: None,
            answers,
            keep: Vec::new(),
        };
        Self {
            server: Server::new(settings.server.clone(), global),
            sum: RoundSum::default(),
            personal: personal.map(|(_, range)| range).collect(),
            keeps_optimizers: settings.node_optimizer == NodeOptimizer::Kept,
            nodes: vec![None; settings.nodes],
            state,
            held,
        }
    }

    /// Adapters of the server.
    pub fn global(&self) -> &[f32] {
        &self.server.global
    }

    /// Replaces the adapters of the server before the first round.
    pub fn load_weights(&mut self, adapters: Vec<f32>) {
        self.server.global = adapters;
    }

    /// Adapters of a node at the start of a turn: the server's, with its personal parts.
    fn node_adapters(&self, node: usize) -> Cow<'_, [f32]> {
        let mut adapters = Cow::from(&self.server.global);
        if let Some(Node { personal, .. }) = &self.nodes[node] {
            let mut from = 0;
            for range in &self.personal {
                adapters.to_mut()[range.clone()].copy_from_slice(&personal[from..from + range.len()]);
                from += range.len();
            }
        }
        adapters
    }

    /// Starts the turn of a node and returns its adapters.
    pub fn begin_turn(&mut self, node: usize) -> Cow<'_, [f32]> {
        self.state.at_work = Some(node);
        self.node_adapters(node)
    }

    /// Adapters at the start of the running turn; `None` between turns.
    pub fn turn_start(&self) -> Option<Cow<'_, [f32]>> {
        self.state.at_work.map(|node| self.node_adapters(node))
    }

    /// Optimiser state at the end of a node's last turn; `None` before its first one or if nodes keep none.
    pub fn optimizer_state(&self, node: usize) -> Option<Vec<u8>> {
        let node = self.nodes[node].as_ref().filter(|_| self.keeps_optimizers)?;
        Some(node.optimizer_state.clone())
    }

    /// Learning rate of a round: the `rate` of its first step.
    pub fn learning_rate_of_round(&mut self, round: u64, rate: f64) -> f64 {
        match self.state.rate {
            Some((known, rate)) if known == round => rate,
            _ => {
                self.state.rate = Some((round, rate));
                rate
            }
        }
    }

    /// Ends the turn of a node: stores its state and adds its adapters to the sum of the round. `weight` is `None` if the result
    /// is lost on its way to the server.
    pub fn end_turn(
        &mut self,
        node: usize,
        mut adapters: Vec<f32>,
        weight: Option<f64>,
        optimizer_state: Option<Vec<u8>>,
        answers: ConfusionMatrix,
    ) {
        self.state.answers[node] = answers;
        self.state.at_work = None;
        if self.held.nodes.is_some() {
            let personal = self.personal.iter().flat_map(|range| &adapters[range.clone()]).copied().collect();
            self.nodes[node] = Some(Node { personal, optimizer_state: optimizer_state.unwrap_or_default() });
            self.record_nodes();
        }
        // Personal parts contribute neither to the mean nor to the drift.
        for range in &self.personal {
            adapters[range.clone()].copy_from_slice(&self.server.global[range.clone()]);
        }
        if let Some(weight) = weight {
            let bytes = size_of_val(&*adapters) as u64;
            self.held.sum.set(2, 2 * bytes);
            self.sum.add(adapters, weight, &self.server.global);
            self.held.sum.set(1, bytes);
        }
    }

    /// Records the bytes of node states in the ledger.
    fn record_nodes(&self) {
        if let Some(held) = &self.held.nodes {
            let bytes = |node: &Node| (size_of_val(&*node.personal) + node.optimizer_state.len()) as u64;
            let present = || self.nodes.iter().flatten();
            held.set(present().count() as u64, present().map(bytes).sum());
        }
    }

    /// Ends a round: the server updates its model, unless all results were lost.
    pub fn end_round(&mut self) {
        let sum = std::mem::take(&mut self.sum);
        self.held.sum.set(0, 0);
        self.state.drift = sum.drift(&sum.values, &self.server.global);
        if sum.count == 0 {
            return;
        }
        let before: Vec<(Range<usize>, Vec<f32>)> =
            self.personal.iter().map(|range| (range.clone(), self.server.global[range.clone()].to_vec())).collect();
        self.server.apply(sum.values);
        for (range, values) in before {
            self.server.global[range].copy_from_slice(&values);
        }
        self.record_server();
    }

    /// Records the bytes of the server's state in the ledger.
    fn record_server(&self) {
        if let Some(held) = &self.held.server {
            let rows = [&self.server.momentum, &self.server.squares];
            let present = rows.iter().filter(|row| !row.is_empty());
            let bytes = present.clone().map(|row| size_of_val(&***row) as u64).sum();
            held.set(present.count() as u64, bytes);
        }
    }

    /// Models to validate: the server's, or one per node if nodes have personal parts.
    pub fn models(&self) -> impl ExactSizeIterator<Item = Cow<'_, [f32]>> {
        let count = if self.personal.is_empty() { 1 } else { self.nodes.len() };
        (0..count).map(|node| self.node_adapters(node))
    }

    /// Retrieval counts of each node's own model at the end of its last turn.
    pub fn answers(&self) -> &[ConfusionMatrix] {
        &self.state.answers
    }

    /// Drift of the last round, see [`RoundSum::drift`]; `None` before the first one ends.
    pub fn drift(&self) -> Option<f64> {
        self.state.drift
    }

    /// Writes the state without the server's adapters into the directory of a checkpoint. `running` are the adapters of the
    /// running turn.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn save(&self, running: &[f32], directory: &Path) -> Result<(), TaskError> {
        let keep = (0..self.nodes.len()).filter(|node| self.nodes[*node].is_some()).collect();
        let state =
            State { count: self.sum.count, squared_distance: self.sum.squared_distance, keep, ..self.state.clone() };
        let path = directory.join(STATE_FILE);
        write::replace_json(&path, &state)?;
        let mut rows: Vec<(String, &[f32])> = vec![
            ("running".into(), running),
            ("sum".into(), &self.sum.values),
            ("momentum".into(), &self.server.momentum),
            ("squares".into(), &self.server.squares),
        ];
        let mut bytes: Vec<(String, &[u8])> = Vec::new();
        for (number, node) in self.nodes.iter().enumerate() {
            let Some(node) = node else { continue };
            rows.push((format!("node.{number}.personal"), &node.personal));
            bytes.push((format!("node.{number}.optimizer"), &node.optimizer_state));
        }
        let path = directory.join(TENSORS_FILE);
        let failed = |error: safetensors::SafeTensorError| TaskError::file(&path, error);
        let rows: Vec<(String, Vec<u8>)> = rows
            .into_iter()
            .map(|(name, row)| (name, row.iter().flat_map(|number| number.to_le_bytes()).collect()))
            .collect();
        let mut tensors = Vec::with_capacity(rows.len() + bytes.len());
        for (name, row) in &rows {
            tensors.push((name, TensorView::new(Dtype::F32, vec![row.len() / 4], row).map_err(failed)?));
        }
        for (name, row) in &bytes {
            tensors.push((name, TensorView::new(Dtype::U8, vec![row.len()], row).map_err(failed)?));
        }
        safetensors::serialize_to_file(tensors, None, &path).map_err(failed)
    }

    /// Checks that the adapters of a checkpoint were trained with this encoder. A file without a state next to it is accepted.
    ///
    /// # Errors
    /// The state next to the weights cannot be read or names another encoder.
    pub fn check_encoder(&self, weights: &Path) -> Result<(), TaskError> {
        let path = weights.with_file_name(STATE_FILE);
        if !path.is_file() {
            return Ok(());
        }
        match read_state(&path)?.encoder == self.state.encoder {
            true => Ok(()),
            false => Err(TaskError::file(&path, "these adapters were trained with another encoder")),
        }
    }

    /// Reads the files of [`Self::save`] and returns the adapters of the running turn.
    ///
    /// # Errors
    /// A file cannot be read, or belongs to another experiment or another encoder.
    pub fn load(&mut self, global: Vec<f32>, directory: &Path) -> Result<Vec<f32>, TaskError> {
        let path = directory.join(STATE_FILE);
        let state = read_state(&path)?;
        if state.encoder != self.state.encoder {
            let message = "was saved with another encoder than the cache has now; start a new run";
            return Err(TaskError::file(&path, message));
        }
        if state.answers.len() != self.nodes.len() || state.keep.iter().any(|node| *node >= self.nodes.len()) {
            return Err(TaskError::file(&path, "does not fit the nodes of this experiment"));
        }
        let path = directory.join(TENSORS_FILE);
        let bytes = file::bytes(&path, FILE_BYTES_MAX).map_err(|error| TaskError::file(&path, error))?;
        let tensors = safetensors::SafeTensors::deserialize(&bytes).map_err(|error| TaskError::file(&path, error))?;
        let raw = |name: &str| {
            let found = tensors.tensor(name).map_err(|error| TaskError::file(&path, format!("{name}: {error}")))?;
            Ok::<Vec<u8>, TaskError>(found.data().to_vec())
        };
        let row = |name: &str, lengths: &[usize]| {
            let row: Vec<f32> = raw(name)?.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
            match lengths.contains(&row.len()) {
                true => Ok(row),
                false => Err(TaskError::file(&path, format!("`{name}` does not fit the model of this experiment"))),
            }
        };
        let all = global.len();
        let personal: usize = self.personal.iter().map(Range::len).sum();
        self.server.global = global;
        self.sum =
            RoundSum { values: row("sum", &[0, all])?, count: state.count, squared_distance: state.squared_distance };
        self.server.momentum = row("momentum", &[0, all])?;
        self.server.squares = row("squares", &[0, all])?;
        let mut nodes = vec![None; self.nodes.len()];
        for node in &state.keep {
            nodes[*node] = Some(Node {
                personal: row(&format!("node.{node}.personal"), &[personal])?,
                optimizer_state: raw(&format!("node.{node}.optimizer"))?,
            });
        }
        self.nodes = nodes;
        self.state = state;
        self.held.sum.set(u64::from(!self.sum.values.is_empty()), size_of_val(&*self.sum.values) as u64);
        self.record_nodes();
        self.record_server();
        row("running", &[all])
    }
}
