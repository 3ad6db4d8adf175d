//! The pipeline as the loop sees it: step, validate, save, load.

use std::path::Path;
use std::sync::Arc;

use burn::module::{AutodiffModule, Module};
use burn::optim::GradientsAccumulator;
use burn::tensor::TensorData;

use super::batch::{TokenBatch, batch_bytes_max};
use super::export::Export;
use super::gpt2::{Gpt2, Tokens, text, tokens};
use super::leaks::StepLeaks;
use super::pass::{Observe, Pass, Rules};
use super::precision::{Precision, drawn, names, precisions};
use super::prepare::Prepared;
use super::ranges::{self, Ranges};
use super::settings::{self, MatmulDtype, Settings};
use super::validation::Validation;
use super::{recompute, weights};
use crate::bounded::HeldBytes;
use crate::data::feed::{Feed, FeedSettings};
use crate::device::Kind;
use crate::device::dispatch::TensorDevice;
use crate::experiment::Experiment;
use crate::experiment::sections::{CleanupAction, Optimizer};
use crate::memory::ledger::Ledger;
use crate::nn::matmul::Factors;
use crate::nn::next_token_loss::{Teacher, next_token_loss};
use crate::nn::optimizer::ModuleOptimizer;
use crate::nn::{Backend, Tensor, checkpoint_weights, gradients};
use crate::results::write;
use crate::task::{DeviceMemory, Phases, StepReport, Task, TaskError, ValidationReport};

type Network = Gpt2<Backend>;

/// Training of a [`Gpt2`] at several precisions.
pub struct QatLanguageModel {
    settings: Settings,
    rules: Rules,
    precisions: Vec<Precision>,
    seed: u32,
    accumulation: usize,
    clip_norm: Option<f64>,
    cache_low_water: f64,
    /// Compute activations again in the backward pass.
    recompute: bool,
    device: TensorDevice,
    /// `None` only while the optimiser has it: so weights are not held twice.
    network: Option<Network>,
    optimizer_settings: Optimizer,
    /// `None` only while it is loaded.
    optimizer: Option<ModuleOptimizer<Network>>,
    ranges: Ranges,
    feed: Feed<TokenBatch>,
    validation: Validation,
    parameters: u64,
    /// The last step that was made.
    step: u64,
    leaks: StepLeaks,
}

/// Gradients and numbers of a step while it is put together. All are sums over tokens that count, and are divided once, by
/// all of the step: so it does not matter how its sequences are split into batches.
struct Gathered {
    /// One for each precision of the step, as each is clipped by itself; gradients of one for all that are not clipped.
    gradients: Vec<GradientsAccumulator<Network>>,
    /// Names and sums `[1]` of each pass without their graphs, and how many tokens it counted; fetched in one transfer at
    /// the end.
    parts: Vec<(&'static str, Tensor<1>, f64)>,
    /// Tokens of all batches that count.
    counted: f64,
    sequences: u64,
    batch: String,
}

impl Gathered {
    fn new(sets: usize) -> Self {
        Self {
            gradients: (0..sets).map(|_| GradientsAccumulator::new()).collect(),
            parts: Vec::new(),
            counted: 0.0,
            sequences: 0,
            batch: String::new(),
        }
    }

    fn describe(&mut self, batch: &TokenBatch) {
        match self.batch.is_empty() {
            true => self.batch = batch.describe().to_owned(),
            false if !self.batch.ends_with('…') => self.batch += " and those after it …",
            false => {}
        }
    }
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
        let feed_settings = FeedSettings {
            workers: experiment.limits.workers,
            prefetch: experiment.limits.prefetch,
            first: first_step.saturating_sub(1) * training.accumulation as u64,
            item_bytes_max: batch_bytes_max(&settings, experiment.limits.batch_size),
            leak: None,
        };
        let batches = prepared.batches.clone();
        let feed = Feed::new(ledger, feed_settings, Arc::new(move |number| batches.train(number)))?;
        if settings.matmul_dtype == MatmulDtype::Float32 && device.multiplies_in_tf32() {
            return Err(TaskError::Device(
                "`matmul_dtype = \"float32\"` cannot be had: from compute capability 8.0 on CubeCL multiplies 32-bit floats \
                 in TF32, with ten bits of mantissa, wherever that is fastest; write \"tf32\" or \"bfloat16\", or use the CPU"
                    .into(),
            ));
        }
        let precisions = precisions(&settings);
        let mut task = Self {
            rules: Rules::new(&settings).on(&device.plain, settings.matmul_dtype)?,
            seed,
            accumulation: training.accumulation,
            clip_norm: training.clip_norm,
            cache_low_water: experiment.cleanup.cache_low_water,
            recompute: training.activation_checkpointing,
            parameters: network.num_params() as u64,
            ranges: Ranges::new(precisions.len(), network.blocks()),
            network: Some(network),
            optimizer_settings: experiment.optimizer.clone(),
            optimizer: Some(ModuleOptimizer::new(&experiment.optimizer)),
            validation: Validation::new(&prepared, experiment, ledger),
            step: first_step.saturating_sub(1),
            leaks: StepLeaks::new(&experiment.leaks, ledger),
            precisions,
            settings,
            device,
            feed,
        };
        if first_step <= 1 {
            task.begin_quantisation()?;
        }
        Ok(task)
    }

    fn network(&self) -> Result<&Network, TaskError> {
        self.network.as_ref().ok_or_else(TaskError::model_lost)
    }

    /// Ranges from batches for calibration, and an optimiser without a past.
    fn begin_quantisation(&mut self) -> Result<(), TaskError> {
        let plain = self.network()?.valid();
        self.optimizer = Some(ModuleOptimizer::new(&self.optimizer_settings));
        let mut found = Ranges::new(self.precisions.len(), plain.blocks());
        if self.settings.ranges == settings::Ranges::PerToken {
            self.ranges = found;
            return Ok(());
        }
        for number in 0..self.settings.calibration_batches as u64 {
            let batch = self.validation.batches.calibration(number)?;
            self.validation.counted(batch.held_bytes(), || {
                for (at, precision) in self.precisions.iter().enumerate() {
                    let mut pass = Pass {
                        rules: &self.rules,
                        at: Some((at, *precision)),
                        ranges: &mut found,
                        observe: Some(Observe::Widen(text(&batch, &self.device.plain))),
                        frozen: true,
                    };
                    plain.hidden(tokens(&batch.inputs, batch.size, batch.length, &self.device.plain), &mut pass);
                }
            });
        }
        self.ranges = found;
        Ok(())
    }

    /// The logits of the widest precision, on the plain device.
    fn teacher(&mut self, batch: &TokenBatch) -> Result<Tensor<2>, TaskError> {
        let plain = self.network()?.valid();
        let mut pass = Pass {
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
        gathered: &mut Gathered,
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
        let count = batch.size * batch.length;
        let device = &self.device.autodiff;
        let targets = Tokens::<1>::from_data(TensorData::new(batch.targets.clone(), [count]), device);
        let weights = Tensor::<1>::from_data(TensorData::new(batch.weights.clone(), [count]), device);
        let mut pass = Pass {
            rules: &self.rules,
            at: at.map(|at| (at, self.precisions[at])),
            ranges: &mut self.ranges,
            observe: (self.settings.ranges == settings::Ranges::Moving)
                .then(|| Observe::Move(text(batch, &self.device.plain))),
            frozen: at.is_some() && self.rules.base_frozen,
        };
        let network = self.network.as_ref().ok_or_else(TaskError::model_lost)?;
        let loss_of = |logits: Tensor<2>| {
            if teaches {
                *teacher = Some(logits.clone().inner());
            }
            next_token_loss(logits, targets, weights, taught_by)
        };
        let gradients = &mut gathered.gradients[set];
        let loss = recompute::backward(network, batch, &mut pass, self.recompute, loss_of, gradients);
        let counted = batch.counted();
        gathered.parts.push(("loss", loss.total, counted));
        gathered.parts.push(("cross_entropy", loss.cross_entropy, counted));
        if let Some(divergence) = loss.divergence {
            gathered.parts.push(("divergence", divergence, counted));
        }
        gathered.sequences += batch.size as u64;
        let at = at.map(|at| (at, self.precisions[at]));
        self.leaks.batch(network, batch, at, &self.rules, &self.ranges, &self.device);
        Ok(())
    }

    /// Makes the optimiser's step of what was gathered. Returns the norm of the gradients before clipping.
    fn update(&mut self, learning_rate: f64, gathered: &mut Gathered) -> Result<Option<Tensor<1>>, TaskError> {
        let network = self.network.take().ok_or_else(TaskError::model_lost)?;
        let optimizer = self.optimizer.as_mut().ok_or_else(TaskError::model_lost)?;
        let mut all = GradientsAccumulator::new();
        let mut norms = Vec::with_capacity(gathered.gradients.len());
        for sums in &mut gathered.gradients {
            let (clipped, norm) = gradients::mean_and_clip(&network, sums.grads(), gathered.counted, self.clip_norm);
            all.accumulate(&network, clipped);
            norms.extend(norm);
        }
        let mut rest = all.grads();
        let factor = self.settings.scale_learning_rate_factor;
        let scales = if factor == 1.0 { Vec::new() } else { network.scales() };
        let of_scales = gradients::take(&mut rest, &scales);
        let mut network = optimizer.step(learning_rate, network, rest);
        if !of_scales.is_empty() {
            network = optimizer.step(learning_rate * factor, network, of_scales);
        }
        self.network = Some(network);
        Ok(gradients::norm_of(norms))
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
            self.begin_quantisation()?;
        }
        let (drawn, kind) = self.drawn(step);
        let sets = if self.clip_norm.is_some() { drawn.len() } else { 1 };
        let mut gathered = Gathered::new(sets);
        let several = drawn.len() > 1 && self.settings.distillation > 0.0;
        for _ in 0..self.accumulation {
            phases.enter("data");
            let batch = self.feed.next()?;
            gathered.describe(&batch);
            gathered.counted += batch.counted();
            let mut teacher = None;
            for (number, at) in drawn.iter().enumerate() {
                let part = Part { at: *at, set: number.min(sets - 1), teaches: several && *at == Some(0) };
                self.train(&batch, part, &mut teacher, &mut gathered, phases)?;
            }
        }
        phases.enter("optimizer");
        let norm = self.update(learning_rate, &mut gathered)?;
        phases.enter("transfer");
        let mut values: Vec<Tensor<1>> = gathered.parts.iter().map(|(_, value, _)| value.clone()).collect();
        values.extend(norm.clone());
        let mut numbers =
            Tensor::cat(values, 0).into_data().iter::<f32>().map(f64::from).collect::<Vec<_>>().into_iter();
        let mut sums: Vec<(&'static str, f64, f64)> = Vec::with_capacity(3);
        for (name, _, counted) in &gathered.parts {
            let value = numbers.next().unwrap_or(f64::NAN);
            match sums.iter_mut().find(|(known, ..)| known == name) {
                Some((_, sum, count)) => (*sum, *count) = (*sum + value, *count + counted),
                None => sums.push((name, value, *counted)),
            }
        }
        let (_, loss, _) = sums.remove(0);
        self.step = step;
        Ok(StepReport {
            kind,
            // The sum over precisions of the mean over tokens (Yu and Huang 2019).
            loss: loss / gathered.counted.max(1.0),
            gradient_norm: norm.and_then(|_| numbers.next()),
            // Of the passes that have them: the widest precision has no teacher.
            values: sums.into_iter().map(|(name, sum, count)| (name, sum / count.max(1.0))).collect(),
            items: gathered.sequences,
            batch: gathered.batch,
        })
    }

    fn validate(&mut self, phases: &mut dyn Phases) -> Result<ValidationReport, TaskError> {
        if self.step > 0 && self.step <= self.settings.pretraining_steps {
            // Ranges of a base that has changed since say nothing of it.
            phases.enter("calibration");
            let optimizer = self.optimizer.take();
            self.begin_quantisation()?;
            self.optimizer = optimizer;
        }
        // The plain model shares its weights with the trained one; it builds no graph.
        let plain = self.network()?.valid();
        self.validation.run(&plain, &self.precisions, &self.rules, &mut self.ranges, phases)
    }

    fn save(&mut self, directory: &Path) -> Result<(), TaskError> {
        checkpoint_weights::save(&self.network()?.valid(), "gpt2", directory)?;
        self.optimizer.as_ref().ok_or_else(TaskError::model_lost)?.save(directory)?;
        let ranges = directory.join(ranges::FILE);
        write::replace(&ranges, &self.ranges.to_json()).map_err(|error| TaskError::file(&ranges, error))?;
        if self.settings.export_merged || self.settings.export_parts {
            let network = self.network()?.valid();
            let store = self.validation.batches.store().clone();
            let (settings, rules, precisions) = (&self.settings, &self.rules, &self.precisions);
            let tokenizer = &store.corpus().tokenizer;
            Export { network, settings, rules, precisions, ranges: &mut self.ranges, tokenizer }.write(directory)?;
        }
        Ok(())
    }

    fn load(&mut self, directory: &Path) -> Result<(), TaskError> {
        checkpoint_weights::load(self.network.as_mut().ok_or_else(TaskError::model_lost)?, directory)?;
        let ranges = directory.join(ranges::FILE);
        self.ranges.read(&ranges, &self.device.plain).map_err(|error| TaskError::file(&ranges, error))?;
        let optimizer = self.optimizer.take().ok_or_else(TaskError::model_lost)?;
        self.optimizer = Some(optimizer.load(directory, &self.device.plain)?);
        Ok(())
    }

    fn clean(&mut self, action: CleanupAction) -> u64 {
        match action {
            CleanupAction::Caches => self.validation.batches.store().evict_to_share(self.cache_low_water),
            CleanupAction::DevicePool => self.device.clean_pool(),
            // Gradients never outlive their step here; the heap is the loop's.
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
        match self.rules.factors {
            Factors::Float32 => self.device.name(),
            Factors::Bfloat16 => format!("{}, matrix products in bfloat16", self.device.name()),
        }
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let cache = self.validation.batches.store().counters();
        vec![
            ("example_cache_hits", cache.hits),
            ("example_cache_misses", cache.misses),
            ("example_cache_evictions", cache.evictions),
        ]
    }
}

#[cfg(test)]
#[path = "task_tests.rs"]
mod tests;
