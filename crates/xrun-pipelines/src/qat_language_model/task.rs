//! The pipeline as the loop sees it: step, validate, save, load.

use std::path::Path;
use std::sync::Arc;

use burn::module::Module;
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
use super::step_leaks::StepLeaks;
use super::validation::Validation;
use super::{recompute, weights};
use crate::backend::dispatch::TensorDevice;
use crate::backend::threads;
use crate::nn::matmul::Factors;
use crate::nn::step::{Gathered, Trained};
use crate::nn::transformer::tokens;
use crate::nn::{Tensor, gradients};
use xrun_core::bounded::HeldBytes;
use xrun_core::bounded::ledger::Ledger;
use xrun_core::device::Kind;
use xrun_core::experiment::Experiment;
use xrun_core::files::write;
use xrun_core::settings::sections::CleanupAction;
use xrun_core::task::predict::{Asked, Predict, Told};
use xrun_core::task::{DeviceMemory, Phases, StepReport, Task, TaskError, ValidationReport};
use xrun_data::feed::{Feed, FeedSettings};
use xrun_data::parts;

type Network = Gpt2;

/// Training of a [`Gpt2`] at several precisions.
pub struct QatLanguageModel {
    settings: Settings,
    rules: Rules,
    precisions: Vec<Precision>,
    seed: u32,
    /// Sequences that are on the device at once.
    part_size: usize,
    accumulation: usize,
    cache_low_water: f64,
    /// Compute activations again in the backward pass.
    recompute: bool,
    device: TensorDevice,
    trained: Trained<Network>,
    ranges: Ranges,
    feed: Feed<TokenBatch>,
    validation: Validation,
    parameters: u64,
    /// The last step that was made.
    step: u64,
    leaks: StepLeaks,
}

/// What a pass is in its step.
#[derive(Clone, Copy, Debug)]
struct Part {
    /// Which precision; `None` is the base in full precision.
    at: Option<usize>,
    /// Which of the gathered gradients it adds to.
    set: usize,
    /// Whether its logits are kept for the passes after it.
    teaches: bool,
}

/// Puts the model on the device and starts the workers at the batch of step `first_step`.
///
/// # Errors
/// The device, or a file of weights.
pub fn open(
    prepared: Prepared,
    experiment: &Experiment,
    kind: Kind,
    ledger: &Ledger,
    first_step: u64,
) -> Result<Box<dyn Task>, TaskError> {
    threads::start(parts::threads(&experiment.limits))?;
    Ok(Box::new(QatLanguageModel::open(prepared, experiment, kind, ledger, first_step)?))
}

impl QatLanguageModel {
    /// Puts the model on the device and starts the workers at the batch of step `first_step`.
    pub fn open(
        prepared: Prepared,
        experiment: &Experiment,
        kind: Kind,
        ledger: &Ledger,
        first_step: u64,
    ) -> Result<Self, TaskError> {
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
        let factors = Factors::asked(settings.matmul_dtype, &device)?;
        let precisions = precisions(&settings);
        let mut task = Self {
            rules: Rules::new(&settings).with(factors),
            seed,
            part_size: experiment.limits.batch_size,
            accumulation: training.accumulation,
            cache_low_water: experiment.cleanup.cache_low_water,
            recompute: training.activation_checkpointing,
            parameters: network.num_params() as u64,
            ranges: Ranges::new(precisions.len(), network.blocks()),
            trained: Trained::new(network, &experiment.optimizer, training),
            validation: Validation::new(&prepared, experiment, ledger),
            step: first_step.saturating_sub(1),
            leaks: StepLeaks::new(&experiment.leaks, ledger),
            precisions,
            settings,
            device,
            feed,
        };
        if first_step <= 1 {
            task.calibrate()?;
        }
        Ok(task)
    }

    /// Ranges from batches for calibration.
    fn calibrate(&mut self) -> Result<(), TaskError> {
        let plain = self.trained.plain()?;
        let mut found = Ranges::new(self.precisions.len(), plain.blocks());
        if self.settings.ranges == settings::Ranges::PerToken {
            self.ranges = found;
            return Ok(());
        }
        for number in 0..self.settings.calibration_batches as u64 {
            let batch = self.validation.batches.calibration(number)?;
            self.validation.counted(batch.held_bytes(), || {
                for batch in batch.parts(self.part_size) {
                    for (at, precision) in self.precisions.iter().enumerate() {
                        let mut pass = QuantContext {
                            rules: &self.rules,
                            at: Some((at, *precision)),
                            ranges: &mut found,
                            observe: Some(Observe::Widen(text(&batch, &self.device.plain))),
                            frozen: true,
                        };
                        plain.hidden(tokens(&batch.inputs, batch.size, batch.length, &self.device.plain), &mut pass);
                    }
                }
            });
        }
        self.ranges = found;
        Ok(())
    }

    /// The logits of the widest precision, on the plain device.
    fn teacher(&mut self, batch: &TokenBatch) -> Result<Tensor<2>, TaskError> {
        let plain = self.trained.plain()?;
        let mut pass = QuantContext {
            rules: &self.rules,
            at: Some((0, self.precisions[0])),
            ranges: &mut self.ranges,
            observe: None,
            frozen: true,
        };
        Ok(plain.forward(tokens(&batch.inputs, batch.size, batch.length, &self.device.plain), &mut pass))
    }

    /// Adds the gradients of one batch at one precision. `teacher` has the widest precision's logits of this batch once
    /// they are known.
    fn train(
        &mut self,
        batch: &TokenBatch,
        part: Part,
        teacher: &mut Option<Tensor<2>>,
        gathered: &mut Gathered<Network>,
        phases: &mut dyn Phases,
    ) -> Result<(), TaskError> {
        let Part { at, set, teaches } = part;
        let taught = self.settings.distillation > 0.0 && at.is_some_and(|at| at > 0);
        if taught && teacher.is_none() {
            phases.enter("teacher");
            *teacher = Some(self.teacher(batch)?);
        }
        let Settings { distillation: share, distillation_temperature: temperature, .. } = self.settings;
        let taught_by = teacher.clone().filter(|_| taught).map(|logits| Teacher { logits, share, temperature });
        phases.enter("forward_backward");
        let targets = targets(batch, taught_by);
        let mut pass = QuantContext {
            rules: &self.rules,
            at: at.map(|at| (at, self.precisions[at])),
            ranges: &mut self.ranges,
            observe: (self.settings.ranges == settings::Ranges::Moving)
                .then(|| Observe::Move(text(batch, &self.device.plain))),
            frozen: at.is_some() && self.rules.base_frozen,
        };
        let network = self.trained.network()?;
        let teaches = teaches.then_some(teacher);
        let loss = recompute::backward(network, batch, &mut pass, self.recompute, targets, teaches, gathered.set(set));
        let counted = batch.counted();
        gathered.note("loss", loss.total, counted);
        gathered.note("cross_entropy", loss.cross_entropy, counted);
        if let Some(divergence) = loss.divergence {
            gathered.note("divergence", divergence, counted);
        }
        gathered.items += batch.size as u64;
        let at = at.map(|at| (at, self.precisions[at]));
        self.leaks.batch(network, batch, at, &self.rules, &self.ranges, &self.device);
        Ok(())
    }

    /// Makes the optimiser's step of what was gathered; learnt scales may have a learning rate of their own. Returns the norm of
    /// the gradients before clipping.
    fn update(&mut self, learning_rate: f64, gathered: &mut Gathered<Network>) -> Result<Option<Tensor<1>>, TaskError> {
        let (mut rest, norm) = self.trained.mean_and_clip(gathered)?;
        let factor = self.settings.scale_learning_rate_factor;
        let scales = if factor == 1.0 { Vec::new() } else { self.trained.network()?.scales() };
        let of_scales = gradients::take(&mut rest, &scales);
        self.trained.update(learning_rate, rest)?;
        if !of_scales.is_empty() {
            self.trained.update(learning_rate * factor, of_scales)?;
        }
        Ok(norm)
    }

    /// Which precisions a step trains, and what it is called.
    fn drawn(&self, step: u64) -> (Vec<Option<usize>>, &'static str) {
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

impl Task for QatLanguageModel {
    fn train_step(&mut self, step: u64, learning_rate: f64, phases: &mut dyn Phases) -> Result<StepReport, TaskError> {
        if step == self.settings.pretraining_steps + 1 && step > 1 {
            phases.enter("calibration");
            self.trained.forget();
            self.calibrate()?;
        }
        let (drawn, kind) = self.drawn(step);
        // Each precision is clipped by itself.
        let sets = if self.trained.clip_norm.is_some() { drawn.len() } else { 1 };
        let mut gathered = Gathered::new(sets);
        let several = drawn.len() > 1 && self.settings.distillation > 0.0;
        for _ in 0..self.accumulation {
            phases.enter("data");
            let batch = self.feed.next()?;
            gathered.describe(batch.describe());
            gathered.count(batch.counted());
            for sequences in batch.parts(self.part_size) {
                let mut teacher = None;
                for (number, at) in drawn.iter().enumerate() {
                    let part = Part { at: *at, set: number.min(sets - 1), teaches: several && *at == Some(0) };
                    self.train(&sequences, part, &mut teacher, &mut gathered, phases)?;
                }
            }
        }
        phases.enter("optimizer");
        let norm = self.update(learning_rate, &mut gathered)?;
        phases.enter("transfer");
        let counted = gathered.counted().max(1.0);
        let fetched = gathered.fetch(norm);
        let mut sums = fetched.by_name();
        let loss = sums.remove(0).sum;
        self.step = step;
        Ok(StepReport {
            kind,
            // The sum over precisions of the mean over tokens (Yu and Huang 2019).
            loss: loss / counted,
            gradient_norm: fetched.norm,
            // Of the passes that have them: the widest precision has no teacher.
            values: sums.into_iter().map(|number| (number.name, number.sum / number.counted.max(1.0))).collect(),
            items: fetched.items,
            batch: fetched.batch,
        })
    }

    fn validate(&mut self, phases: &mut dyn Phases) -> Result<ValidationReport, TaskError> {
        if self.step > 0 && self.step <= self.settings.pretraining_steps {
            // Ranges of a base that has changed since say nothing of it.
            phases.enter("calibration");
            self.calibrate()?;
        }
        let plain = self.trained.plain()?;
        self.validation.run(&plain, &self.precisions, &self.rules, &mut self.ranges, phases)
    }

    fn save(&mut self, directory: &Path) -> Result<(), TaskError> {
        self.trained.save("gpt2", directory)?;
        let ranges = directory.join(ranges::FILE);
        write::replace(&ranges, &self.ranges.to_json()).map_err(|error| TaskError::file(&ranges, error))?;
        if self.settings.export_merged || self.settings.export_parts {
            let network = self.trained.plain()?;
            let store = self.validation.batches.store().clone();
            let (settings, rules, precisions) = (&self.settings, &self.rules, &self.precisions);
            let tokenizer = &store.corpus().tokenizer;
            Export { network, settings, rules, precisions, ranges: &mut self.ranges, tokenizer }.write(directory)?;
        }
        Ok(())
    }

    fn load(&mut self, directory: &Path) -> Result<(), TaskError> {
        self.trained.load(directory)?;
        let ranges = directory.join(ranges::FILE);
        self.ranges.read(&ranges, &self.device.plain).map_err(|error| TaskError::file(&ranges, error))
    }

    fn start_from(&mut self, weights: &Path) -> Result<(), TaskError> {
        self.trained.start_from(weights)?;
        // What was observed so far came from random weights.
        self.calibrate()
    }

    fn clean(&mut self, action: CleanupAction) -> u64 {
        match action {
            CleanupAction::Caches => self.validation.batches.store().evict_to_share(self.cache_low_water),
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
        self.rules.factors.beside(self.device.name())
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let cache = self.validation.batches.store().counters();
        vec![
            ("example_cache_hits", cache.hits),
            ("example_cache_misses", cache.misses),
            ("example_cache_evictions", cache.evictions),
        ]
    }

    fn predictor(&mut self) -> Option<&mut dyn Predict> {
        Some(self)
    }
}

impl Predict for QatLanguageModel {
    fn predict(&mut self, asked: &Asked<'_>, told: &mut dyn Told) -> Result<serde_json::Value, TaskError> {
        let network = self.trained.plain()?;
        let (precisions, rules, ranges) = (&self.precisions, &self.rules, &mut self.ranges);
        let mut model = predict::Model { network, precisions, rules, ranges, validation: &self.validation };
        model.predict(asked, told)
    }
}

#[cfg(test)]
#[path = "task_tests.rs"]
mod tests;
