//! What is known between the turns of nodes: the server's model, the sum of the running round, and what each node keeps.
//!
//! All of it is on the host, has a fixed size, and is in the ledger; all of it is in a checkpoint, which can be taken in the
//! middle of a round.

use std::borrow::Cow;
use std::ops::Range;
use std::path::Path;

use burn::module::Module;
use safetensors::tensor::{Dtype, TensorView};
use serde::{Deserialize, Serialize};

use super::prepare::Prepared;
use super::retrieval::Answers;
use super::server::{RoundSum, Server};
use super::settings::NodeOptimizer;
use super::sizes::part_of;
use crate::nn::flat;
use xrun_core::bounded::ledger::{Holding, Ledger};
use xrun_core::files::{file, write};
use xrun_core::task::TaskError;

/// Rows of adapters, and of parts of them.
const ROWS: &str = "federation.safetensors";
/// Everything else.
const STATE: &str = "federation.json";
/// A checkpoint's file is not larger.
const FILE_BYTES_MAX: u64 = 1 << 40;

/// See the file's head.
pub struct Federation {
    server: Server,
    sum: RoundSum,
    /// Where the parts are that stay with their node.
    personal: Vec<Range<usize>>,
    keeps_optimizers: bool,
    /// Of each node that has ended a turn.
    nodes: Vec<Option<Node>>,
    state: State,
    held: Held,
}

/// What a node keeps between its turns.
#[derive(Clone, Debug, Default)]
struct Node {
    /// Its personal parts, one after the other.
    personal: Vec<f32>,
    /// The optimiser's running values.
    running_values: Vec<u8>,
}

/// Reads the numbers of a checkpoint.
fn state_of(path: &Path) -> Result<State, TaskError> {
    let text = file::bytes(path, FILE_BYTES_MAX).map_err(|error| TaskError::file(path, error))?;
    serde_json::from_slice(&text).map_err(|error| TaskError::file(path, error))
}

/// Numbers of a checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct State {
    /// Of the encoder's weights; `None` where statistics take its place.
    encoder: Option<String>,
    /// The round whose learning rate is known, and the rate.
    rate: Option<(u64, f64)>,
    /// The node that is at work, if one is: it began with the server's adapters and its own personal parts.
    at_work: Option<usize>,
    count: u64,
    squared_distance: f64,
    drift: Option<f64>,
    /// What each node's own model said at the end of its last turn.
    answers: Vec<Answers>,
    /// Nodes that keep something.
    keep: Vec<usize>,
}

#[derive(Debug)]
struct Held {
    _global: Holding,
    sum: Holding,
    server: Option<Holding>,
    nodes: Option<Holding>,
    _answers: Holding,
}

impl Federation {
    /// A federation before its first round: the server has the adapters of `network`. Its buffers enter the ledger.
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
        let answers = vec![Answers::new(classes, classes); settings.nodes];
        let held = Held {
            _global: buffers.global_adapters.register(ledger),
            sum: buffers.round_sum.register(ledger),
            server: buffers.server_state.as_ref().map(|buffer| buffer.register(ledger)),
            nodes: buffers.node_states.as_ref().map(|buffer| buffer.register(ledger)),
            _answers: buffers.node_counts.register(ledger),
        };
        held._global.set(1, size_of_val(&*global) as u64);
        held._answers.set(settings.nodes as u64, answers.iter().map(Answers::bytes).sum());
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

    /// The server's adapters.
    pub fn global(&self) -> &[f32] {
        &self.server.global
    }

    /// Gives the server other adapters, before the first round. Each node begins with them.
    pub fn load_weights(&mut self, adapters: Vec<f32>) {
        self.server.global = adapters;
    }

    /// What a node begins with.
    fn of_node(&self, node: usize) -> Cow<'_, [f32]> {
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

    /// What a node begins its turn with.
    pub fn adapters_of(&mut self, node: usize) -> Cow<'_, [f32]> {
        self.state.at_work = Some(node);
        self.of_node(node)
    }

    /// What the node that is at work began with.
    pub fn began(&self) -> Option<Cow<'_, [f32]>> {
        self.state.at_work.map(|node| self.of_node(node))
    }

    /// The optimiser's running values that a node ended its last turn with, if it keeps them.
    pub fn running_values(&self, node: usize) -> Option<Vec<u8>> {
        let node = self.nodes[node].as_ref().filter(|_| self.keeps_optimizers)?;
        Some(node.running_values.clone())
    }

    /// The learning rate of a round: what its first step was given.
    pub fn rate_of_round(&mut self, round: u64, rate: f64) -> f64 {
        match self.state.rate {
            Some((of, rate)) if of == round => rate,
            _ => {
                self.state.rate = Some((round, rate));
                rate
            }
        }
    }

    /// Takes in what a node learnt. `weight` is `None` where its result is lost on the way; what it keeps for itself, it keeps.
    pub fn node_ended(
        &mut self,
        node: usize,
        mut adapters: Vec<f32>,
        weight: Option<f64>,
        running_values: Option<Vec<u8>>,
        answers: Answers,
    ) {
        self.state.answers[node] = answers;
        self.state.at_work = None;
        if self.held.nodes.is_some() {
            let personal = self.personal.iter().flat_map(|range| &adapters[range.clone()]).copied().collect();
            self.nodes[node] = Some(Node { personal, running_values: running_values.unwrap_or_default() });
            self.hold_nodes();
        }
        // What stays with the node is no part of the mean, nor of how far nodes lie apart.
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

    fn hold_nodes(&self) {
        if let Some(held) = &self.held.nodes {
            let bytes = |node: &Node| (size_of_val(&*node.personal) + node.running_values.len()) as u64;
            let present = || self.nodes.iter().flatten();
            held.set(present().count() as u64, present().map(bytes).sum());
        }
    }

    /// The server makes its new model. Where no result came, it stays as it is.
    pub fn round_ended(&mut self) {
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
        self.hold_server();
    }

    fn hold_server(&self) {
        if let Some(held) = &self.held.server {
            let rows = [&self.server.momentum, &self.server.squares];
            let present = rows.iter().filter(|row| !row.is_empty());
            let bytes = present.clone().map(|row| size_of_val(&***row) as u64).sum();
            held.set(present.count() as u64, bytes);
        }
    }

    /// The models that a validation looks at: the server's, or one for each node where parts stay with nodes.
    pub fn models(&self) -> impl Iterator<Item = Cow<'_, [f32]>> {
        let count = if self.personal.is_empty() { 1 } else { self.nodes.len() };
        (0..count).map(|node| self.of_node(node))
    }

    /// What each node's own model said at the end of its last turn, by node.
    pub fn answers(&self) -> &[Answers] {
        &self.state.answers
    }

    /// How far the nodes' results lay from their mean in the last round, as a share of its length; `None` before its end.
    pub fn drift(&self) -> Option<f64> {
        self.state.drift
    }

    /// Writes all but the server's adapters into a checkpoint's folder. `running` are the adapters of the node at work.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn save(&self, running: &[f32], directory: &Path) -> Result<(), TaskError> {
        let keep = (0..self.nodes.len()).filter(|node| self.nodes[*node].is_some()).collect();
        let state =
            State { count: self.sum.count, squared_distance: self.sum.squared_distance, keep, ..self.state.clone() };
        let path = directory.join(STATE);
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
            bytes.push((format!("node.{number}.optimizer"), &node.running_values));
        }
        let path = directory.join(ROWS);
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

    /// Refuses weights of a checkpoint whose adapters learned behind another encoder. A file that lies alone says nothing of it.
    ///
    /// # Errors
    /// The state beside the weights does not read, or names another encoder.
    pub fn refuse_another_encoder(&self, weights: &Path) -> Result<(), TaskError> {
        let path = weights.with_file_name(STATE);
        if !path.is_file() {
            return Ok(());
        }
        match state_of(&path)?.encoder == self.state.encoder {
            true => Ok(()),
            false => {
                Err(TaskError::file(&path, "these adapters learned behind another encoder than this experiment's"))
            }
        }
    }

    /// Reads what [`Self::save`] wrote; returns the adapters of the node at work.
    ///
    /// # Errors
    /// A file cannot be read, or is of another experiment or another encoder.
    pub fn load(&mut self, global: Vec<f32>, directory: &Path) -> Result<Vec<f32>, TaskError> {
        let path = directory.join(STATE);
        let state = state_of(&path)?;
        if state.encoder != self.state.encoder {
            let message =
                "was saved with another encoder than the cache now has: it would hear something else; start a new run";
            return Err(TaskError::file(&path, message));
        }
        if state.answers.len() != self.nodes.len() || state.keep.iter().any(|node| *node >= self.nodes.len()) {
            return Err(TaskError::file(&path, "does not fit the nodes of this experiment"));
        }
        let path = directory.join(ROWS);
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
                running_values: raw(&format!("node.{node}.optimizer"))?,
            });
        }
        self.nodes = nodes;
        self.state = state;
        self.held.sum.set(u64::from(!self.sum.values.is_empty()), size_of_val(&*self.sum.values) as u64);
        self.hold_nodes();
        self.hold_server();
        row("running", &[all])
    }
}
