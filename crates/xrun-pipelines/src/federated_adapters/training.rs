//! The pipeline as the loop sees it: step, validate, save, load. A step is one optimiser step of one node.

use std::path::Path;
use std::sync::Arc;

use burn::module::Module;

use super::adapters::Adapters;
use super::encoding::Encoding;
use super::federation::Federation;
use super::loss::loss;
use super::predict;
use super::prepare::Prepared;
use super::pretraining;
use super::rounds::{Place, Rounds};
use super::settings::{NodeOptimizer, Settings};
use super::sounds::{ClipBatch, Sounds};
use super::step_leaks::{Step, StepLeaks};
use super::target_tensors::TargetTensors;
use super::validation::{Means, Validation};
use crate::backend::dispatch::TensorDevice;
use crate::backend::threads;
use crate::nn::proximal::Start;
use crate::nn::side_by_side::SideBySide;
use crate::nn::step::{Gathered, Trained};
use crate::nn::{checkpoint_weights, flat};
use xrun_core::bounded::ledger::{Holding, Ledger};
use xrun_core::device::Kind;
use xrun_core::experiment::Experiment;
use xrun_core::settings::sections::CleanupAction;
use xrun_core::task::predict::{Asked, Predict, Told};
use xrun_core::task::{DeviceMemory, Phases, StepReport, Task, TaskError, ValidationReport};
use xrun_data::feed::{Feed, FeedSettings};
use xrun_data::parts;

type Network = Adapters;

/// Which model it is, in the file of its weights.
const MODEL: &str = "audio-adapters";

/// Federated training of [`Adapters`].
pub struct FederatedAdapters {
    settings: Settings,
    rounds: Rounds,
    split: SideBySide,
    cache_low_water: f64,
    device: TensorDevice,
    sounds: Arc<Sounds>,
    encoding: Encoding,
    targets: TargetTensors,
    /// The adapters of the running node.
    trained: Trained<Network>,
    federation: Federation,
    /// Where the running node began its turn, and the bytes of it; `None` where nothing pulls it back there.
    start: Option<(Start, Holding)>,
    feed: Feed<ClipBatch>,
    validation: Validation,
    parameters: u64,
    leaks: StepLeaks,
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
) -> Result<Box<dyn Task>, TaskError> {
    threads::start(parts::threads(&experiment.limits))?;
    Ok(Box::new(FederatedAdapters::open(prepared, experiment, kind, ledger, first_step)?))
}

impl FederatedAdapters {
    fn open(
        prepared: Prepared,
        experiment: &Experiment,
        kind: Kind,
        ledger: &Ledger,
        first_step: u64,
    ) -> Result<Self, TaskError> {
        let seed = experiment.experiment.seed;
        let device = TensorDevice::open(kind, experiment.training.activation_checkpointing)?;
        let (encoder, encoder_digest) = pretraining::encoder(&prepared, seed, &device)?.unzip();
        let encoding = Encoding::new(encoder, &prepared.model, &device.plain);
        let network = Network::new(&prepared.model, seed, &device.autodiff);
        let validation = Validation::new(&prepared, experiment, ledger);
        let federation = Federation::new(&prepared, &network, validation.classes(), encoder_digest, ledger);
        let Prepared { settings, model: _, rounds, nodes, sounds, targets, buffers } = prepared;
        let targets = TargetTensors::new(targets, &device.plain, &buffers.targets, ledger);
        let batches = (rounds.clone(), sounds.clone());
        let prepare = Arc::new(move |number| {
            let (rounds, sounds) = &batches;
            let place = rounds.place(number);
            let clips = rounds.clips(&place).into_iter().map(|at| nodes[place.node][at]).collect();
            sounds.batch(clips, &format!("round {}, node {}, batch {}", place.round + 1, place.node, place.batch))
        });
        let feed_settings = FeedSettings::new(&experiment.limits, &experiment.training, first_step);
        let feed = Feed::new(ledger, &buffers.feed, feed_settings, prepare)?;
        let start = buffers.round_start.as_ref().map(|buffer| (Start::of(&network), buffer.register(ledger)));
        Ok(Self {
            split: SideBySide::new(kind, &experiment.limits, &buffers.part_gradients, ledger)?,
            cache_low_water: experiment.cleanup.cache_low_water,
            parameters: network.num_params() as u64,
            trained: Trained::new(network, device.clone(), &experiment.optimizer, &experiment.training),
            leaks: StepLeaks::new(&experiment.leaks, ledger),
            settings,
            rounds,
            device,
            sounds,
            encoding,
            targets,
            federation,
            start,
            feed,
            validation,
        })
    }

    /// The node takes the server's adapters, with its own in the place of those that it keeps for itself.
    fn begin_turn(&mut self, place: &Place) -> Result<(), TaskError> {
        let adapters = self.federation.adapters_of(place.node);
        self.trained.replace(|network| flat::from_host(network, &adapters))?;
        match self.federation.running_values(place.node) {
            Some(kept) => self.trained.restore_optimizer(kept)?,
            None => self.trained.reset_optimizer(),
        }
        if let Some((start, held)) = &mut self.start {
            *start = Start::of(self.trained.network()?);
            held.set(1, self.parameters * 4);
        }
        Ok(())
    }

    /// The node's adapters go to the host, once, and into the sum of the round.
    fn end_turn(&mut self, place: &Place, phases: &mut dyn Phases) -> Result<(), TaskError> {
        phases.enter("node_validation");
        let plain = self.trained.inner()?;
        let means = Means { encoding: &self.encoding, targets: &self.targets };
        let answers = self.validation.of_node(&plain, means)?;
        phases.enter("aggregate");
        let kept = match self.settings.node_optimizer {
            NodeOptimizer::Fresh => None,
            NodeOptimizer::Kept => Some(self.trained.optimizer()?.to_bytes()?),
        };
        let adapters = flat::to_host(&plain);
        self.leaks.result(&adapters);
        let weight = self.rounds.weight(place.round, place.node);
        self.federation.node_ended(place.node, adapters, weight, kept, answers);
        if self.leaks.keeps_models() {
            let copies = self.trained.state_copies();
            let optimizer = self.trained.optimizer()?.clone();
            self.leaks.model(self.trained.network()?, optimizer, copies);
        }
        if place.ends_round {
            self.federation.round_ended();
            self.leaks.round(self.sounds.store().samples_of_clip(), &self.device)?;
        }
        Ok(())
    }

    /// Adds the gradients of a batch.
    fn train(&mut self, batch: &ClipBatch, tokens: &[f32], gathered: &mut Gathered<Network>) -> Result<(), TaskError> {
        let (encoding, targets, device) = (&self.encoding, &self.targets, &self.device.autodiff);
        let network = self.trained.network()?;
        let Settings { pooled_weight, tokens_weight, loss: kind, .. } = self.settings;
        gathered.side_by_side(network, &self.split, &self.split.parts(batch.size()), |network, clips, part| {
            let outputs = network.forward(encoding.on_device(tokens, clips.start, clips.end, device));
            let targets = targets.of(&batch.classes[clips.clone()]);
            let pooled = loss(outputs.pooled, targets.pooled, kind);
            let of_tokens = loss(outputs.tokens, targets.tokens, kind);
            part.note("loss_pooled", pooled.clone().inner(), clips.len() as f64);
            part.note("loss_tokens", of_tokens.clone().inner(), clips.len() as f64);
            part.went_through(clips.len());
            (Some(pooled.mul_scalar(pooled_weight) + of_tokens.mul_scalar(tokens_weight)), ())
        });
        if let Some((start, _)) = &self.start {
            // Sums of gradients are divided by what the step counted.
            let factor = self.settings.proximal * gathered.counted();
            let pull = start.gradients(network, factor);
            gathered.set(0).accumulate(network, pull);
        }
        Ok(())
    }
}

impl Task for FederatedAdapters {
    fn train_step(&mut self, step: u64, learning_rate: f64, phases: &mut dyn Phases) -> Result<StepReport, TaskError> {
        let place = self.rounds.place(step - 1);
        // All nodes of a round have the rate of its first step: else later ones would train with a smaller one.
        let rate = self.federation.rate_of_round(place.round, learning_rate);
        if place.begins_turn {
            phases.enter("distribute");
            self.begin_turn(&place)?;
        }
        phases.enter("data");
        let batch = self.feed.next()?;
        let mut gathered = Gathered::new(1);
        gathered.describe(&batch.described);
        gathered.count(batch.size() as f64);
        phases.enter("encode");
        let tokens = self.encoding.tokens(&batch, &self.sounds);
        phases.enter("forward_backward");
        self.train(&batch, &tokens, &mut gathered)?;
        self.leaks.batch(&Step {
            place: &place,
            batch: &batch,
            tokens: &tokens,
            network: self.trained.network()?,
            encoding: &self.encoding,
            sounds: &self.sounds,
            targets: &self.targets,
            loss: self.settings.loss,
            device: &self.device,
        })?;
        drop(batch);
        phases.enter("optimizer");
        let (gradients, norm) = self.trained.mean_and_clip(&mut gathered)?;
        self.leaks.gradients(self.trained.network()?, &gradients, &self.device);
        self.trained.update(rate, gradients)?;
        phases.enter("transfer");
        let fetched = gathered.fetch(norm);
        if place.ends_turn {
            self.end_turn(&place, phases)?;
        }
        let report = fetched.report("local");
        // In the order in which the losses were noted.
        let weights = [self.settings.pooled_weight, self.settings.tokens_weight];
        let loss = report.values.iter().zip(weights).map(|((_, value), weight)| weight * value).sum();
        let turn = [
            ("round", (place.round + 1) as f64),
            ("node", place.node as f64),
            ("local_epoch", (place.local_epoch + 1) as f64),
        ];
        Ok(StepReport { loss, values: turn.into_iter().chain(report.values).collect(), ..report })
    }

    fn validate(&mut self, phases: &mut dyn Phases) -> Result<ValidationReport, TaskError> {
        let means = Means { encoding: &self.encoding, targets: &self.targets };
        let plain = self.trained.inner()?;
        let mut outputs = self.leaks.keeps_outputs_of_validations().then(Vec::new);
        let mut looked = Vec::with_capacity(1);
        for adapters in self.federation.models() {
            let network = flat::from_host(plain.clone(), &adapters);
            looked.push(self.validation.look(&network, means, outputs.as_mut(), phases)?);
        }
        if let Some(outputs) = outputs {
            self.leaks.validated(outputs);
        }
        let metrics = self.validation.metrics(&looked, self.federation.answers(), self.federation.drift());
        Ok(ValidationReport { metrics, ..ValidationReport::default() })
    }

    fn save(&mut self, directory: &Path) -> Result<(), TaskError> {
        let plain = self.trained.inner()?;
        let running = flat::to_host(&plain);
        checkpoint_weights::save(&flat::from_host(plain, self.federation.global()), MODEL, directory)?;
        self.trained.save_optimizer(directory)?;
        self.federation.save(&running, directory)
    }

    fn load(&mut self, directory: &Path) -> Result<(), TaskError> {
        let mut network = self.trained.inner()?;
        checkpoint_weights::load(&mut network, directory)?;
        let running = self.federation.load(flat::to_host(&network), directory)?;
        self.trained.replace(|network| flat::from_host(network, &running))?;
        if let Some((start, held)) = &mut self.start
            && let Some(began) = self.federation.began()
        {
            let network = flat::from_host(self.trained.network()?.clone(), &began);
            *start = Start::of(&network);
            held.set(1, self.parameters * 4);
        }
        self.trained.load_optimizer(directory)
    }

    fn start_from(&mut self, weights: &Path) -> Result<(), TaskError> {
        self.federation.refuse_another_encoder(weights)?;
        let mut network = self.trained.inner()?;
        checkpoint_weights::load_file(&mut network, weights)?;
        let adapters = flat::to_host(&network);
        self.trained.replace(|network| flat::from_host(network, &adapters))?;
        self.federation.start_from(adapters);
        Ok(())
    }

    fn clean(&mut self, action: CleanupAction) -> u64 {
        match action {
            CleanupAction::Caches => self.sounds.evict_to_share(self.cache_low_water),
            CleanupAction::DevicePool => self.device.clean_pool(),
            // The heap is the loop's, and gradients go with the step.
            CleanupAction::Gradients | CleanupAction::Heap => 0,
        }
    }

    fn synchronise(&mut self) -> Result<(), TaskError> {
        self.device.synchronise()
    }

    fn device_memory(&mut self) -> Option<DeviceMemory> {
        self.device.memory()
    }

    fn parameters(&self) -> u64 {
        self.parameters
    }

    fn device_name(&self) -> String {
        self.device.name()
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

    fn predictor(&mut self) -> Option<&mut dyn Predict> {
        Some(self)
    }
}

impl Predict for FederatedAdapters {
    fn predict(&mut self, asked: &Asked<'_>, told: &mut dyn Told) -> Result<serde_json::Value, TaskError> {
        let network = flat::from_host(self.trained.inner()?, self.federation.global());
        let (encoding, targets, sounds) = (&self.encoding, &self.targets, &*self.sounds);
        predict::Model { network, encoding, targets, sounds }.predict(asked, told)
    }
}

#[cfg(test)]
#[path = "task_tests.rs"]
mod tests;
