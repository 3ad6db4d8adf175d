//! Training module: turns of nodes and rounds, and what a checkpoint has beside the adapters. A step is one optimiser step of
//! one node.

use std::path::Path;
use std::sync::Arc;

use burn::optim::GradientsParams;
use serde_json::Value;

use super::adapters::{Adapters, Conditioning};
use super::encoding::Encoding;
use super::federation::Federation;
use super::loss::loss;
use super::prepare::Prepared;
use super::rounds::{Place, Rounds};
use super::settings::{NodeOptimizer, Settings};
use super::sounds::{ClipBatch, Sounds};
use super::target_tensors::TargetTensors;
use super::validation::{Means, Validation};
use super::{AudioAdapters, predict, pretraining};
use crate::backend::dispatch::TensorDevice;
use crate::backend::threads;
use crate::nn::micro_batches::MicroBatchExecutor;
use crate::nn::module_task::{Evaluation, ModuleTask, Step};
use crate::nn::proximal::ProximalAnchor;
use crate::nn::step::{StepValues, TrainState};
use crate::nn::training_module::TrainingModule;
use crate::nn::{checkpoint_weights, flat};
use xrun_core::bounded::ledger::{Holding, Ledger};
use xrun_core::device::Kind;
use xrun_core::experiment::Experiment;
use xrun_core::experiment::pipeline::ModelKind;
use xrun_core::task::predict::{PredictRequest, PredictionSink};
use xrun_core::task::{Phases, StepReport, TaskError, ValidationReport};
use xrun_data::feed::{Feed, FeedSettings};
use xrun_data::parts;

type Network = Adapters;

/// Federated training of [`Adapters`].
pub struct FederatedModule {
    pub(super) settings: Settings,
    rounds: Rounds,
    executor: MicroBatchExecutor,
    pub(super) sounds: Arc<Sounds>,
    pub(super) encoding: Encoding,
    pub(super) targets: TargetTensors,
    federation: Federation,
    /// Parameters that the running node began its turn with, and their bytes; `None` where nothing pulls it back there.
    start: Option<(ProximalAnchor, Holding)>,
    validation: Validation,
    /// Round and node of the running step.
    pub(super) place: Place,
}

/// Puts the model on the device and starts the workers at the batch of step `first_step`.
///
/// # Errors
/// The device, a file of weights, or a cache that cannot be written.
pub fn open(
    prepared: Prepared,
    experiment: &Experiment,
    kind: Kind,
    ledger: &Ledger,
    first_step: u64,
) -> Result<ModuleTask<FederatedModule>, TaskError> {
    threads::start(parts::threads(&experiment.limits))?;
    let seed = experiment.experiment.seed;
    let device = TensorDevice::open(kind, experiment.training.activation_checkpointing)?;
    let (encoder, encoder_digest) = pretraining::encoder(&prepared, seed, &device)?.unzip();
    let encoding = Encoding::new(encoder, &prepared.model, &device.inner);
    let network = Network::new(&prepared.model, seed, &device.autodiff);
    let validation = Validation::new(&prepared, experiment, ledger);
    let federation = Federation::new(&prepared, &network, validation.classes(), encoder_digest, ledger);
    let Prepared { settings, model: _, rounds, nodes, sounds, targets, buffers } = prepared;
    let targets = TargetTensors::new(targets, &device.inner, &buffers.targets, ledger);
    let batches = (rounds.clone(), sounds.clone());
    let prepare = Arc::new(move |number| {
        let (rounds, sounds) = &batches;
        let place = rounds.place(number);
        let clips = rounds.clips(&place).into_iter().map(|at| nodes[place.node][at]).collect();
        sounds.batch(clips, &format!("round {}, node {}, batch {}", place.round + 1, place.node, place.batch))
    });
    let feed_settings = FeedSettings::new(&experiment.limits, &experiment.training, first_step);
    let feed = Feed::new(ledger, &buffers.feed, feed_settings, prepare)?;
    let start = buffers.round_start.as_ref().map(|buffer| (ProximalAnchor::new(&network), buffer.register(ledger)));
    let module = FederatedModule {
        executor: MicroBatchExecutor::new(kind, &experiment.limits, &buffers.part_gradients, ledger)?,
        place: rounds.place(first_step.saturating_sub(1)),
        settings,
        rounds,
        sounds,
        encoding,
        targets,
        federation,
        start,
        validation,
    };
    Ok(ModuleTask::new(module, network, device, feed, experiment))
}

impl FederatedModule {
    /// The node takes the server's adapters, with its own in the place of those that it keeps for itself.
    fn begin_turn(&mut self, trained: &mut TrainState<Network>) -> Result<(), TaskError> {
        let node = self.place.node;
        let adapters = self.federation.adapters_of(node);
        trained.replace(|network| flat::from_host(network, &adapters))?;
        match self.federation.running_values(node) {
            Some(state) => trained.restore_optimizer(state)?,
            None => trained.reset_optimizer(),
        }
        if let Some((start, held)) = &mut self.start {
            *start = ProximalAnchor::new(trained.network()?);
            held.set(1, trained.parameters() * 4);
        }
        Ok(())
    }

    /// The node's adapters go to the host, once, and into the sum of the round.
    fn end_turn(&mut self, trained: &TrainState<Network>, phases: &mut dyn Phases) -> Result<(), TaskError> {
        let Place { round, node, ends_round, .. } = self.place;
        phases.enter("node_validation");
        let network = trained.inner()?;
        let means = Means { encoding: &self.encoding, targets: &self.targets };
        let answers = self.validation.of_node(&network, means)?;
        phases.enter("aggregate");
        let state = match self.settings.node_optimizer {
            NodeOptimizer::Fresh => None,
            NodeOptimizer::Kept => Some(trained.optimizer()?.to_bytes()?),
        };
        let weight = self.rounds.weight(round, node);
        self.federation.node_ended(node, flat::to_host(&network), weight, state, answers);
        if ends_round {
            self.federation.round_ended();
        }
        Ok(())
    }
}

impl TrainingModule for FederatedModule {
    type Batch = ClipBatch;
    type Network = Network;
    /// DeferredOutputs for held-out clips.
    type Output = Conditioning;
    const MODEL: &'static str = AudioAdapters::NAME;
    const STEP: &'static str = "local";
    const PREDICTS: bool = true;

    fn before_step(
        &mut self,
        number: u64,
        trained: &mut TrainState<Network>,
        phases: &mut dyn Phases,
    ) -> Result<(), TaskError> {
        self.place = self.rounds.place(number - 1);
        if self.place.begins_turn {
            phases.enter("distribute");
            self.begin_turn(trained)?;
        }
        Ok(())
    }

    fn train(&mut self, batch: &ClipBatch, step: &mut Step<'_, Network>) -> Result<(), TaskError> {
        step.describe(&batch.described);
        step.accumulator.count(batch.size() as f64);
        step.enter("encode");
        let tokens = self.encoding.tokens(batch, &self.sounds);
        step.enter("forward_backward");
        let (encoding, targets, device) = (&self.encoding, &self.targets, &step.device().autodiff);
        let (network, accumulator) = (step.trained.network()?, &mut step.accumulator);
        let Settings { pooled_weight, tokens_weight, loss: kind, .. } = self.settings;
        accumulator.run_micro_batches(
            network,
            &self.executor,
            &self.executor.split(batch.size()),
            |network, clips, part| {
                let outputs = network.forward(encoding.on_device(&tokens, clips.start, clips.end, device));
                let targets = targets.of(&batch.classes[clips.clone()]);
                let pooled = loss(outputs.pooled, targets.pooled, kind);
                let of_tokens = loss(outputs.tokens, targets.tokens, kind);
                part.record("loss_pooled", pooled.clone().inner(), clips.len() as f64);
                part.record("loss_tokens", of_tokens.clone().inner(), clips.len() as f64);
                part.add_items(clips.len());
                (Some(pooled.mul_scalar(pooled_weight) + of_tokens.mul_scalar(tokens_weight)), ())
            },
        );
        if let Some((start, _)) = &self.start {
            // Sums of gradients are divided by what the step counted.
            let factor = self.settings.proximal * accumulator.counted();
            let pull = start.gradients(network, factor);
            accumulator.gradient_set(0).accumulate(network, pull);
        }
        Ok(())
    }

    /// All nodes of a round have the rate of its first step: else later ones would train with a smaller one.
    fn update(
        &mut self,
        learning_rate: f64,
        gradients: GradientsParams,
        trained: &mut TrainState<Network>,
    ) -> Result<(), TaskError> {
        trained.update(self.federation.rate_of_round(self.place.round, learning_rate), gradients)
    }

    fn after_step(&mut self, trained: &mut TrainState<Network>, phases: &mut dyn Phases) -> Result<(), TaskError> {
        if self.place.ends_turn { self.end_turn(trained, phases) } else { Ok(()) }
    }

    fn report(&mut self, fetched: StepValues) -> StepReport {
        let report = fetched.report(Self::STEP);
        // In the order in which the losses were noted.
        let weights = [self.settings.pooled_weight, self.settings.tokens_weight];
        let loss = report.values.iter().zip(weights).map(|((_, value), weight)| weight * value).sum();
        let turn = [
            ("round", (self.place.round + 1) as f64),
            ("node", self.place.node as f64),
            ("local_epoch", (self.place.local_epoch + 1) as f64),
        ];
        StepReport { loss, values: turn.into_iter().chain(report.values).collect(), ..report }
    }

    fn validate(
        &mut self,
        network: &Network,
        evaluation: &mut Evaluation<'_, Self>,
    ) -> Result<ValidationReport, TaskError> {
        let means = Means { encoding: &self.encoding, targets: &self.targets };
        let mut evaluated = Vec::with_capacity(1);
        for adapters in self.federation.models() {
            let network = flat::from_host(network.clone(), &adapters);
            evaluated.push(self.validation.evaluate(&network, means, evaluation)?);
        }
        let metrics = self.validation.metrics(&evaluated, self.federation.answers(), self.federation.drift());
        Ok(ValidationReport { metrics, ..ValidationReport::default() })
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
            && let Some(began) = self.federation.began()
        {
            let network = flat::from_host(trained.network()?.clone(), &began);
            *start = ProximalAnchor::new(&network);
            held.set(1, trained.parameters() * 4);
        }
        trained.load_optimizer(directory)
    }

    fn load_weights(&mut self, trained: &mut TrainState<Network>, weights: &Path) -> Result<(), TaskError> {
        self.federation.refuse_another_encoder(weights)?;
        let mut network = trained.inner()?;
        checkpoint_weights::load_file(&mut network, weights)?;
        let adapters = flat::to_host(&network);
        trained.replace(|network| flat::from_host(network, &adapters))?;
        self.federation.load_weights(adapters);
        Ok(())
    }

    fn evict_caches(&self, low_water: f64) -> u64 {
        self.sounds.evict_to_share(low_water)
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let (clips, embeddings) = (self.sounds.store().counters(), self.sounds.counters());
        vec![
            ("clip_cache_hits", clips.hits),
            ("clip_cache_misses", clips.misses),
            ("clip_cache_evictions", clips.evictions),
            ("embedding_cache_hits", embeddings.hits),
            ("embedding_cache_misses", embeddings.misses),
            ("embedding_cache_evictions", embeddings.evictions),
            ("silent_clips", self.sounds.store().library().silent),
        ]
    }

    fn predict(
        &mut self,
        trained: &TrainState<Network>,
        asked: &PredictRequest<'_>,
        told: &mut dyn PredictionSink,
    ) -> Result<Value, TaskError> {
        let network = flat::from_host(trained.inner()?, self.federation.global());
        let (encoding, targets, sounds) = (&self.encoding, &self.targets, &*self.sounds);
        predict::Model { network, encoding, targets, sounds }.predict(asked, told)
    }
}

#[cfg(test)]
#[path = "training_tests.rs"]
mod tests;
