//! Training module: calibration, the passes of a step at its precisions, and what a checkpoint has beside the weights.

use std::path::Path;
use std::sync::Arc;

use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::Device;
use serde_json::Value;
use xrun_ops::Teacher;

use super::batch::TokenBatch;
use super::context::{Observe, QuantContext, Rules};
use super::export::Export;
use super::gpt2::{Gpt2, targets, text};
use super::precision::{Precision, drawn, names, precisions};
use super::predict;
use super::prepare::Prepared;
use super::ranges::{self, Ranges};
use super::settings::{self, Settings};
use super::validation::Validation;
use super::{recompute, weights};
use crate::backend::dispatch::TensorDevice;
use crate::backend::threads;
use crate::nn::matmul::MatmulPrecision;
use crate::nn::module_task::{Evaluation, ModuleTask, Step};
use crate::nn::step::{StepValues, TrainState};
use crate::nn::training_module::TrainingModule;
use crate::nn::transformer::tokens;
use crate::nn::{Tensor, gradients};
use xrun_core::bounded::HeldBytes;
use xrun_core::bounded::ledger::Ledger;
use xrun_core::device::Kind;
use xrun_core::experiment::Experiment;
use xrun_core::experiment::pipeline::ModelKind;
use xrun_core::files::write;
use xrun_core::task::predict::{PredictRequest, PredictionSink};
use xrun_core::task::{Phases, StepReport, TaskError, ValidationReport};
use xrun_data::feed::{Feed, FeedSettings};
use xrun_data::parts;

type Network = Gpt2;

/// Training of a [`Gpt2`] at several precisions.
pub struct QatLanguageModule {
    settings: Settings,
    pub(super) rules: Rules,
    pub(super) precisions: Vec<Precision>,
    seed: u32,
    /// Number of sequences on the device at once.
    pub(super) micro_batch_size: usize,
    /// Whether the backward pass computes activations again.
    recompute: bool,
    /// Whether gradients are clipped.
    clips: bool,
    pub(super) ranges: Ranges,
    validation: Validation,
    /// Number of the running or last step.
    step: u64,
    /// Precisions of that step; `None` is the base in full precision.
    pub(super) drawn: Vec<Option<usize>>,
    /// Kind of that step.
    kind: &'static str,
}

/// Role of a pass in its step.
#[derive(Clone, Copy, Debug)]
struct Part {
    /// Index of the precision; `None` is the base in full precision.
    at: Option<usize>,
    /// Set of gradients that it adds to.
    set: usize,
    /// Whether its logits are kept for the passes after it.
    teaches: bool,
}

/// Puts the model on the device and starts the workers at the batch of step `first_step`.
///
/// # Errors
/// The device or a file of weights fails.
pub fn open(
    prepared: Prepared,
    experiment: &Experiment,
    kind: Kind,
    ledger: &Ledger,
    first_step: u64,
) -> Result<ModuleTask<QatLanguageModule>, TaskError> {
    threads::start(parts::threads(&experiment.limits))?;
    let training = &experiment.training;
    // Not Burn's checkpointing, which `recompute` explains.
    let device = TensorDevice::open(kind, false)?;
    let settings = prepared.settings.clone();
    let vocabulary = prepared.batches.store().corpus().tokenizer.size();
    let seed = experiment.experiment.seed;
    let mut network = Network::new(&settings, &prepared.model, vocabulary, seed, &device.autodiff);
    if let Some(path) = &prepared.model.weights {
        weights::read(&mut network, Path::new(path))?;
    }
    let feed_settings = FeedSettings::new(&experiment.limits, training, first_step);
    let batches = prepared.batches.clone();
    let prepare = Arc::new(move |number| batches.train(number));
    let feed = Feed::new(ledger, &prepared.buffers.feed, feed_settings, prepare)?;
    let matmul = MatmulPrecision::new(settings.matmul_dtype, &device)?;
    let precisions = precisions(&settings);
    let mut module = QatLanguageModule {
        rules: Rules::new(&settings).with(matmul),
        seed,
        micro_batch_size: experiment.limits.batch_size,
        recompute: training.activation_checkpointing,
        clips: false,
        ranges: Ranges::new(precisions.len(), network.blocks()),
        validation: Validation::new(&prepared, experiment, ledger),
        step: first_step.saturating_sub(1),
        drawn: Vec::new(),
        kind: "",
        precisions,
        settings,
    };
    if first_step <= 1 {
        module.calibrate(&network.valid(), &device.inner)?;
    }
    Ok(ModuleTask::new(module, network, device, feed, experiment))
}

impl QatLanguageModule {
    /// Sets the ranges by batches for calibration. `network` and `device` are without autodiff.
    fn calibrate(&mut self, network: &Network, device: &Device) -> Result<(), TaskError> {
        let mut found = Ranges::new(self.precisions.len(), network.blocks());
        if self.settings.ranges == settings::Ranges::PerToken {
            self.ranges = found;
            return Ok(());
        }
        for number in 0..self.settings.calibration_batches as u64 {
            let batch = self.validation.batches.calibration(number)?;
            self.validation.counted(batch.held_bytes(), || {
                for batch in batch.parts(self.micro_batch_size) {
                    for (at, precision) in self.precisions.iter().enumerate() {
                        let mut pass = QuantContext {
                            rules: &self.rules,
                            at: Some((at, *precision)),
                            ranges: &mut found,
                            observe: Some(Observe::Widen(text(&batch, device))),
                            frozen: true,
                        };
                        network.hidden(tokens(&batch.inputs, batch.size, batch.length, device), &mut pass);
                    }
                }
            });
        }
        self.ranges = found;
        Ok(())
    }

    /// Computes the logits of the widest precision, without autodiff.
    fn teacher(&mut self, batch: &TokenBatch, trained: &TrainState<Network>) -> Result<Tensor<2>, TaskError> {
        let mut pass = QuantContext {
            rules: &self.rules,
            at: Some((0, self.precisions[0])),
            ranges: &mut self.ranges,
            observe: None,
            frozen: true,
        };
        let inputs = tokens(&batch.inputs, batch.size, batch.length, &trained.device.inner);
        Ok(trained.inner()?.forward(inputs, &mut pass))
    }

    /// Adds the gradients of one batch at one precision. `teacher` has the widest precision's logits of this batch once
    /// they are known.
    fn pass(
        &mut self,
        batch: &TokenBatch,
        part: Part,
        teacher: &mut Option<Tensor<2>>,
        step: &mut Step<'_, Network>,
    ) -> Result<(), TaskError> {
        let Part { at, set, teaches } = part;
        let taught = self.settings.distillation > 0.0 && at.is_some_and(|at| at > 0);
        if taught && teacher.is_none() {
            step.enter("teacher");
            *teacher = Some(self.teacher(batch, step.trained)?);
        }
        let Settings { distillation: share, distillation_temperature: temperature, .. } = self.settings;
        let taught_by = teacher.clone().filter(|_| taught).map(|logits| Teacher {
            logits,
            divergence_fraction: share,
            temperature,
        });
        step.enter("forward_backward");
        let targets = targets(batch, taught_by);
        let mut pass = QuantContext {
            rules: &self.rules,
            at: at.map(|at| (at, self.precisions[at])),
            ranges: &mut self.ranges,
            observe: (self.settings.ranges == settings::Ranges::Moving)
                .then(|| Observe::Move(text(batch, &step.device().inner))),
            frozen: at.is_some() && self.rules.base_frozen,
        };
        let (network, accumulator) = (step.trained.network()?, &mut step.accumulator);
        let teaches = teaches.then_some(teacher);
        let loss = recompute::backward(
            network,
            batch,
            &mut pass,
            self.recompute,
            targets,
            teaches,
            accumulator.gradient_set(set),
        );
        let counted = batch.counted();
        accumulator.record("loss", loss.total, counted);
        accumulator.record("cross_entropy", loss.cross_entropy, counted);
        if let Some(divergence) = loss.divergence {
            accumulator.record("divergence", divergence, counted);
        }
        accumulator.items += batch.size as u64;
        Ok(())
    }

    /// Draws the precisions of a step, and names its kind.
    fn draw(&self, step: u64) -> (Vec<Option<usize>>, &'static str) {
        if step <= self.settings.pretraining_steps {
            return (vec![None], "pretraining");
        }
        let drawn = drawn(self.settings.policy, self.precisions.len(), self.seed, step);
        let kind = match drawn[..] {
            [only] => names(self.precisions[only].weights).kind,
            _ => "sandwich",
        };
        (drawn.into_iter().map(Some).collect(), kind)
    }
}

impl TrainingModule for QatLanguageModule {
    type Batch = TokenBatch;
    type Network = Network;
    type Output = ();
    const MODEL: &'static str = super::Gpt2::NAME;
    const PREDICTS: bool = true;

    fn before_step(
        &mut self,
        number: u64,
        trained: &mut TrainState<Network>,
        phases: &mut dyn Phases,
    ) -> Result<(), TaskError> {
        if number == self.settings.pretraining_steps + 1 && number > 1 {
            phases.enter("calibration");
            trained.reset_optimizer();
            self.calibrate(&trained.inner()?, &trained.device.inner)?;
        }
        (self.drawn, self.kind) = self.draw(number);
        self.clips = trained.clip_norm.is_some();
        self.step = number;
        Ok(())
    }

    fn gradient_sets(&self) -> usize {
        // Each precision is clipped by its own norm.
        if self.clips { self.drawn.len() } else { 1 }
    }

    fn train(&mut self, batch: &TokenBatch, step: &mut Step<'_, Network>) -> Result<(), TaskError> {
        step.describe(batch.describe());
        step.accumulator.count(batch.counted());
        let several = self.drawn.len() > 1 && self.settings.distillation > 0.0;
        for sequences in batch.parts(self.micro_batch_size) {
            let mut teacher = None;
            for number in 0..self.drawn.len() {
                let at = self.drawn[number];
                let set = number.min(self.gradient_sets() - 1);
                let part = Part { at, set, teaches: several && at == Some(0) };
                self.pass(&sequences, part, &mut teacher, step)?;
            }
        }
        Ok(())
    }

    /// Learnt scales may have a learning rate of their own.
    fn update(
        &mut self,
        learning_rate: f64,
        mut gradients: GradientsParams,
        trained: &mut TrainState<Network>,
    ) -> Result<(), TaskError> {
        let factor = self.settings.scale_learning_rate_factor;
        let scales = if factor == 1.0 { Vec::new() } else { trained.network()?.scales() };
        let of_scales = gradients::take(&mut gradients, &scales);
        trained.update(learning_rate, gradients)?;
        if !of_scales.is_empty() {
            trained.update(learning_rate * factor, of_scales)?;
        }
        Ok(())
    }

    fn report(&mut self, fetched: StepValues) -> StepReport {
        let counted = fetched.counted.max(1.0);
        let mut sums = fetched.by_name();
        let loss = sums.remove(0).sum;
        StepReport {
            kind: self.kind,
            // The sum over precisions of the mean over tokens (Yu and Huang 2019).
            loss: loss / counted,
            gradient_norm: fetched.norm,
            // Of the passes that have them: the widest precision has no teacher.
            values: sums.into_iter().map(|number| (number.name, number.sum / number.counted.max(1.0))).collect(),
            items: fetched.items,
            batch: fetched.batch,
        }
    }

    fn validate(
        &mut self,
        network: &Network,
        evaluation: &mut Evaluation<'_, Self>,
    ) -> Result<ValidationReport, TaskError> {
        if self.step > 0 && self.step <= self.settings.pretraining_steps {
            // Ranges of a base that has changed since are out of date.
            evaluation.enter("calibration");
            self.calibrate(network, &evaluation.trained.device.inner)?;
        }
        self.validation.run(network, &self.precisions, &self.rules, &mut self.ranges, evaluation)
    }

    fn save(&mut self, trained: &mut TrainState<Network>, directory: &Path) -> Result<(), TaskError> {
        trained.save(Self::MODEL, directory)?;
        let ranges = directory.join(ranges::FILE);
        write::replace(&ranges, &self.ranges.to_json()).map_err(|error| TaskError::file(&ranges, error))?;
        if self.settings.export_merged || self.settings.export_parts {
            let network = trained.inner()?;
            let store = self.validation.batches.store().clone();
            let (settings, rules, precisions) = (&self.settings, &self.rules, &self.precisions);
            let tokenizer = &store.corpus().tokenizer;
            Export { network, settings, rules, precisions, ranges: &mut self.ranges, tokenizer }.write(directory)?;
        }
        Ok(())
    }

    fn load(&mut self, trained: &mut TrainState<Network>, directory: &Path) -> Result<(), TaskError> {
        trained.load(directory)?;
        let ranges = directory.join(ranges::FILE);
        self.ranges.read(&ranges, &trained.device.inner).map_err(|error| TaskError::file(&ranges, error))
    }

    fn load_weights(&mut self, trained: &mut TrainState<Network>, weights: &Path) -> Result<(), TaskError> {
        trained.load_weights(weights)?;
        // The ranges so far came from random weights.
        self.calibrate(&trained.inner()?, &trained.device.inner)
    }

    fn evict_caches(&self, low_water: f64) -> u64 {
        self.validation.batches.store().evict_to_share(low_water)
    }

    fn device_name(&self, device: String) -> String {
        self.rules.matmul.device_label(device)
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let cache = self.validation.batches.store().counters();
        vec![
            ("example_cache_hits", cache.hits),
            ("example_cache_misses", cache.misses),
            ("example_cache_evictions", cache.evictions),
        ]
    }

    fn predict(
        &mut self,
        trained: &TrainState<Network>,
        asked: &PredictRequest<'_>,
        told: &mut dyn PredictionSink,
    ) -> Result<Value, TaskError> {
        let network = trained.inner()?;
        let (precisions, rules, ranges) = (&self.precisions, &self.rules, &mut self.ranges);
        let mut model = predict::Model { network, precisions, rules, ranges, validation: &self.validation };
        model.predict(asked, told)
    }
}

#[cfg(test)]
#[path = "training_tests.rs"]
mod tests;
