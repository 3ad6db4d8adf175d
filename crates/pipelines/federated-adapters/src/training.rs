//! Training module: turns of nodes, rounds and checkpoints. A step is one optimiser step of one node.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;

use super::clips::{ClipBatch, ClipLoader};
use super::federation::Federation;
use super::frozen_encoder::FrozenEncoder;
use super::loss::loss;
use super::network::{Adapters, Conditioning};
use super::prepare::Prepared;
use super::rounds::{RoundPosition, Rounds};
use super::settings::{FederatedAdapters, NodeOptimizer};
use super::target_tensors::TargetTensors;
use super::validation::{EvaluationInputs, Validation};
use super::{leaks, pretraining};
use xrun_core::bounded::ledger::Registration;
use xrun_core::experiment::pipeline::Opening;
use xrun_core::panics;
use xrun_core::task::predict::{PredictRequest, PredictionSink};
use xrun_core::task::{Phases, StepReport, TaskError, ValidationReport};
use xrun_training::nn::micro_batches::{MicroBatchExecutor, MicroBatchSize};
use xrun_training::nn::module_task::{Evaluation, ModuleTask, Step};
use xrun_training::nn::proximal::ProximalAnchor;
use xrun_training::nn::step::{StepValues, TrainState};
use xrun_training::nn::training_module::TrainingModule;
use xrun_training::nn::{checkpoint_weights, flat, opening};

type Network = Adapters;

/// Values of a step: the losses of both outputs.
const LOSSES: [&str; 2] = ["loss_pooled", "loss_tokens"];

/// Federated training of [`Adapters`].
pub struct FederatedModule {
    pub(super) settings: FederatedAdapters,
    rounds: Rounds,
    executor: MicroBatchExecutor,
    pub(super) clip_loader: Arc<ClipLoader>,
    pub(super) frozen_encoder: FrozenEncoder,
    pub(super) targets: TargetTensors,
    federation: Federation,
    /// Parameters of the running node at the start of its turn, and their entry in the ledger; `None` without a proximal term.
    start: Option<(ProximalAnchor, Registration)>,
    validation: Validation,
    /// Position of the running step.
    pub(super) position: RoundPosition,
}

/// Puts the model on the device and starts the workers.
///
/// # Errors
/// The device fails, a file of weights cannot be read, or the cache cannot be written.
pub fn open(prepared: Prepared, opening: Opening<'_>) -> Result<ModuleTask<FederatedModule>, TaskError> {
    let Opening { experiment, ledger, first_step, .. } = opening;
    let seed = experiment.experiment.seed;
    let device = opening::device(opening, experiment.training.activation_checkpointing)?;
    let (encoder, encoder_digest) = pretraining::encoder(&prepared, seed, &device)?.unzip();
    let frozen_encoder = FrozenEncoder::new(encoder, &prepared.model, &device.inner);
    let network = Network::new(&prepared.model, seed, &device.autodiff);
    let validation = Validation::new(&prepared, experiment, ledger);
    let federation = Federation::new(&prepared, &network, validation.trained_classes, encoder_digest, ledger);
    let Prepared { settings, model: _, rounds, nodes, clip_loader, targets, buffers } = prepared;
    let targets = TargetTensors::new(targets, &device.inner, &buffers.targets, ledger);
    let batches = (rounds.clone(), clip_loader.clone());
    let prepare = Arc::new(move |number| {
        let (rounds, clip_loader) = &batches;
        let position = rounds.position(number);
        let clips = rounds.clips(&position).into_iter().map(|at| nodes[position.node][at]).collect();
        let RoundPosition { round, node, batch, .. } = position;
        clip_loader.batch(clips, &format!("round {}, node {node}, batch {batch}", round + 1))
    });
    let feed = opening::feed(opening, &buffers.feed, prepare)?;
    let start = buffers.round_start.as_ref().map(|buffer| (ProximalAnchor::new(&network), buffer.register(ledger)));
    let module = FederatedModule {
        executor: opening::executor(opening, &buffers.part_gradients)?,
        position: rounds.position(first_step.saturating_sub(1)),
        settings,
        rounds,
        clip_loader,
        frozen_encoder,
        targets,
        federation,
        start,
        validation,
    };
    let callbacks = leaks::callbacks::callbacks(&experiment.leaks, ledger);
    Ok(ModuleTask::new(module, network, device, feed, experiment).with_callbacks(callbacks))
}

impl FederatedModule {
    /// Loads the server's adapters with the personal parts of the node, and its optimiser state.
    fn begin_turn(&mut self, trained: &mut TrainState<Network>) -> Result<(), TaskError> {
        let node = self.position.node;
        let adapters = self.federation.begin_turn(node);
        trained.restart(&adapters)?;
        if let Some(state) = self.federation.optimizer_state(node) {
            trained.restore_optimizer(state)?;
        }
        if let Some((start, held)) = &mut self.start {
            *start = ProximalAnchor::new(trained.network()?);
            held.set(1, trained.parameters() * 4);
        }
        Ok(())
    }

    /// Validates the node's model and adds its adapters to the sum of the round.
    fn end_turn(&mut self, trained: &TrainState<Network>, phases: &mut dyn Phases) -> Result<(), TaskError> {
        let RoundPosition { round, node, ends_round, .. } = self.position;
        phases.enter("node_validation");
        let network = trained.inner()?;
        let inputs = EvaluationInputs { trained, encoder: &self.frozen_encoder, targets: &self.targets };
        let answers = self.validation.evaluate_node(&network, inputs)?;
        phases.batch_validated(self.validation.batches_of_node(), self.validation.batches_of_node());
        phases.enter("aggregate");
        let state = match self.settings.node_optimizer {
            NodeOptimizer::Fresh => None,
            NodeOptimizer::Kept => Some(trained.optimizer()?.to_bytes()?),
        };
        let weight = self.rounds.weight(round, node);
        self.federation.end_turn(node, flat::to_host(&network), weight, state, answers);
        if ends_round {
            self.federation.end_round();
        }
        Ok(())
    }
}

/// Network whose values are written back when it is dropped, also if the device had no memory for what was done meanwhile.
struct Overwritten<'a> {
    network: &'a Network,
    values: Vec<f32>,
}

impl Drop for Overwritten<'_> {
    fn drop(&mut self) {
        // A second panic would end the process.
        let _ = panics::caught(|| flat::overwrite(self.network, &self.values));
    }
}

impl TrainingModule for FederatedModule {
    type Batch = ClipBatch;
    type Network = Network;
    /// Outputs for held-out clips.
    type Output = Conditioning;
    const MODEL: &'static str = super::MODEL;
    const STEP: &'static str = "local";
    const PREDICTS: bool = true;

    fn captures(&self) -> &'static str {
        super::prepare::captures(&self.settings)
    }

    fn before_step(
        &mut self,
        number: u64,
        trained: &mut TrainState<Network>,
        phases: &mut dyn Phases,
    ) -> Result<(), TaskError> {
        self.position = self.rounds.position(number - 1);
        if self.position.begins_turn {
            phases.enter("distribute");
            self.begin_turn(trained)?;
        }
        Ok(())
    }

    fn train(&mut self, batch: &ClipBatch, step: &mut Step<'_, Network>) -> Result<(), TaskError> {
        step.describe(&batch.description);
        step.accumulator.divisor += batch.size() as f64;
        step.enter("encode");
        let embeddings = self.frozen_encoder.embed(batch, &self.clip_loader);
        if batch.is_first_use() {
            step.first_use();
        }
        step.enter("forward_backward");
        let (frozen_encoder, targets) = (&self.frozen_encoder, &self.targets);
        let FederatedAdapters { pooled_weight, tokens_weight, loss: kind, .. } = self.settings;
        step.accumulator.items += batch.size() as u64;
        let stage = |clips: &Range<usize>| {
            let rows = frozen_encoder.data(&embeddings, clips.start, clips.end);
            Some((vec![rows, TargetTensors::data(&batch.classes[clips.clone()])], clips.len() as f64))
        };
        step.micro_batches(&self.executor, &self.executor.split(batch.size()), stage, |network, inputs| {
            let outputs = network.forward(inputs.floats());
            let targets = targets.select_on_device(inputs.ints().inner());
            let losses =
                [loss(outputs.pooled, targets.pooled, kind), loss(outputs.token_embeds, targets.token_embeds, kind)];
            let values = LOSSES.into_iter().zip(losses.clone()).collect();
            let [pooled, tokens] = losses;
            (pooled.mul_scalar(pooled_weight) + tokens.mul_scalar(tokens_weight), values)
        })?;
        let (network, accumulator) = (step.trained.network()?, &mut step.accumulator);
        if let Some((start, _)) = &self.start {
            // The sum of gradients is later divided by the divisor clips.
            let factor = self.settings.proximal * accumulator.divisor;
            let pull = start.gradients(network, factor);
            accumulator.sets[0].accumulate(network, pull);
        }
        Ok(())
    }

    /// That of the round's first step, which makes nodes independent of their order.
    fn learning_rate(&mut self, scheduled: f64) -> f64 {
        self.federation.learning_rate_of_round(self.position.round, scheduled)
    }

    fn after_step(&mut self, trained: &mut TrainState<Network>, phases: &mut dyn Phases) -> Result<(), TaskError> {
        if self.position.ends_turn { self.end_turn(trained, phases) } else { Ok(()) }
    }

    fn report(&mut self, fetched: StepValues) -> StepReport {
        let report = fetched.report(Self::STEP);
        // In the order in which `train` records them.
        let weights = [self.settings.pooled_weight, self.settings.tokens_weight];
        let loss = report.values.iter().zip(weights).map(|((_, value), weight)| weight * value).sum();
        let turn = [
            ("round", (self.position.round + 1) as f64),
            ("node", self.position.node as f64),
            ("local_epoch", (self.position.local_epoch + 1) as f64),
        ];
        StepReport { loss, values: turn.into_iter().chain(report.values).collect(), ..report }
    }

    fn validate(
        &mut self,
        network: &Network,
        evaluation: &mut Evaluation<'_, Self>,
    ) -> Result<ValidationReport, TaskError> {
        let (trained, own) = (evaluation.trained, evaluation.trained.network()?);
        let inputs = EvaluationInputs { trained, encoder: &self.frozen_encoder, targets: &self.targets };
        let models = self.federation.models();
        let count = models.len();
        let mut evaluations = Vec::with_capacity(count);
        // Captured passes read this memory.
        let overwritten =
            trained.captures_passes().then(|| Overwritten { network: own, values: flat::to_host(network) });
        for (number, adapters) in models.enumerate() {
            let network = match &overwritten {
                Some(_) => {
                    flat::overwrite(own, &adapters);
                    network.clone()
                }
                None => flat::from_host(network.clone(), &adapters),
            };
            evaluations.push(self.validation.evaluate(&network, inputs, (number, count), evaluation)?);
        }
        let metrics = self.validation.metrics(&evaluations, self.federation.answers(), self.federation.drift());
        // Of several models on the same clips, that of the first.
        let interval = evaluations.first().and_then(|one| one.pooled.interval());
        let intervals = interval.map(|interval| ("retrieval".to_owned(), interval)).into_iter().collect();
        Ok(ValidationReport { metrics, intervals, ..ValidationReport::default() })
    }

    fn save(&mut self, trained: &mut TrainState<Network>, directory: &Path) -> Result<(), TaskError> {
        let network = trained.inner()?;
        let running = flat::to_host(&network);
        checkpoint_weights::save(&flat::from_host(network, self.federation.global()), Self::MODEL, directory)?;
        trained.save_optimizer(directory)?;
        self.federation.save(&running, directory)
    }

    fn load(&mut self, trained: &mut TrainState<Network>, directory: &Path) -> Result<(), TaskError> {
        let mut network = trained.inner()?;
        checkpoint_weights::load(&mut network, directory)?;
        let running = self.federation.load(flat::to_host(&network), directory)?;
        trained.replace(|network| flat::from_host(network, &running))?;
        if let Some((start, held)) = &mut self.start
            && let Some(adapters) = self.federation.turn_start()
        {
            let network = flat::from_host(trained.network()?.clone(), &adapters);
            *start = ProximalAnchor::new(&network);
            held.set(1, trained.parameters() * 4);
        }
        trained.load_optimizer(directory)
    }

    fn load_weights(&mut self, trained: &mut TrainState<Network>, weights: &Path) -> Result<(), TaskError> {
        self.federation.check_encoder(weights)?;
        let mut network = trained.inner()?;
        checkpoint_weights::load_file(&mut network, weights)?;
        let adapters = flat::to_host(&network);
        trained.replace(|network| flat::from_host(network, &adapters))?;
        self.federation.load_weights(adapters);
        Ok(())
    }

    fn micro_batch_size(&self) -> Option<&MicroBatchSize> {
        Some(&self.executor.size)
    }

    fn evict_caches(&self, low_water: f64) -> u64 {
        self.clip_loader.evict_to_fraction(low_water)
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let (clips, embeddings) = (self.clip_loader.store.cache.counters(), self.clip_loader.counters());
        vec![
            ("clip_cache_hits", clips.hits),
            ("clip_cache_misses", clips.misses),
            ("clip_cache_evictions", clips.evictions),
            ("embedding_cache_hits", embeddings.hits),
            ("embedding_cache_misses", embeddings.misses),
            ("embedding_cache_evictions", embeddings.evictions),
            ("silent_clips", self.clip_loader.store.library.silent),
        ]
    }

    fn predict(
        &mut self,
        trained: &TrainState<Network>,
        request: &PredictRequest<'_>,
        sink: &mut dyn PredictionSink,
    ) -> Result<Value, TaskError> {
        let network = flat::from_host(trained.inner()?, self.federation.global());
        self.answer_files(&network, request, sink)
    }
}

#[cfg(test)]
#[path = "training_tests.rs"]
mod tests;
