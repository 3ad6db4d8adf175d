//! Training module: calibration, forward and backward passes at the precisions of a step, and checkpoints.

use std::path::Path;
use std::sync::Arc;

use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::Device;
use serde_json::Value;
use xrun_ops::{Teacher, staged_next_token_loss};

use super::batch::TokenBatch;
use super::context::{QuantConfig, QuantContext, RangeObserver};
use super::export::Export;
use super::network::{Gpt2Network, text_positions};
use super::precision::{Precision, draw, names, precisions};
use super::prepare::Prepared;
use super::ranges::{self, Ranges};
use super::settings::{self, QatLanguageModel};
use super::validation::Validation;
use super::{leaks, network, recompute};
use xrun_core::bounded::DeepSize;
use xrun_core::experiment::pipeline::Opening;
use xrun_core::files::write;
use xrun_core::task::predict::{PredictRequest, PredictionSink};
use xrun_core::task::{Phases, StepReport, TaskError, ValidationReport};
use xrun_training::nn::captured::Pass;
use xrun_training::nn::matmul::ComputeDtype;
use xrun_training::nn::micro_batches::MicroBatchSize;
use xrun_training::nn::module_task::{Evaluation, ModuleTask, Step};
use xrun_training::nn::step::{StepValues, TrainState};
use xrun_training::nn::training_module::TrainingModule;
use xrun_training::nn::transformer::{Tokens, tokens};
use xrun_training::nn::{Tensor, gpt2_file, gradients, opening};

type Network = Gpt2Network;

/// Training of a [`Gpt2Network`] at several precisions.
pub struct QatLanguageModule {
    pub(super) config: QuantConfig,
    pub(super) precisions: Vec<Precision>,
    seed: u32,
    /// Number of sequences of a micro-batch.
    pub(super) micro_batch_size: Arc<MicroBatchSize>,
    /// True if the backward pass recomputes activations.
    recompute: bool,
    /// True if gradients are clipped.
    clips_gradients: bool,
    pub(super) ranges: Ranges,
    pub(super) validation: Validation,
    /// Number of the running or last step.
    step: u64,
    /// Precisions of that step; `None` is the base in full precision.
    pub(super) step_precisions: Vec<Option<usize>>,
    /// Kind of that step.
    step_kind: &'static str,
}

/// Forward and backward pass of a micro-batch in its step.
#[derive(Clone, Copy, Debug)]
struct PrecisionPass {
    /// Index of the precision; `None` is the base in full precision.
    precision: Option<usize>,
    /// Set of gradients to add to.
    gradient_set: usize,
    /// True if its logits are the teacher of the next passes.
    is_teacher: bool,
}

/// Puts the model on the device and starts the workers.
///
/// # Errors
/// The device or a file of weights fails.
pub fn open(prepared: Prepared, opening: Opening<'_>) -> Result<ModuleTask<QatLanguageModule>, TaskError> {
    let Opening { experiment, ledger, first_step, .. } = opening;
    // Without Burn's checkpointing; the head of `recompute` says why.
    let device = opening::device(opening, false)?;
    let settings = prepared.settings.clone();
    let vocabulary = prepared.batches.store.corpus.tokenizer.size();
    let seed = experiment.experiment.seed;
    let mut network = network::new(&settings, &prepared.model, vocabulary, seed, &device.autodiff);
    if let Some(path) = &prepared.model.weights {
        gpt2_file::read(&mut network, Path::new(path))?;
    }
    let batches = prepared.batches.clone();
    let prepare = Arc::new(move |number| batches.training_batch(number));
    let feed = opening::feed(opening, &prepared.buffers.feed, prepare)?;
    let matmul = ComputeDtype::new(settings.matmul_dtype, &device)?;
    let precisions = precisions(&settings);
    let size = experiment.limits.batch_size.min(experiment.batch_size());
    let micro_batch_size = Arc::new(MicroBatchSize::new(size, size));
    let mut module = QatLanguageModule {
        config: QuantConfig { settings, matmul },
        seed,
        recompute: experiment.training.activation_checkpointing,
        clips_gradients: false,
        ranges: Ranges::new(precisions.len(), network.blocks()),
        validation: Validation::new(&prepared, experiment, micro_batch_size.clone(), ledger),
        micro_batch_size,
        step: first_step.saturating_sub(1),
        step_precisions: Vec::new(),
        step_kind: "",
        precisions,
    };
    if first_step <= 1 {
        module.calibrate(&network.valid(), &device.inner)?;
    }
    let callbacks = leaks::callbacks::callbacks(&experiment.leaks, ledger);
    Ok(ModuleTask::new(module, network, device, feed, experiment).with_callbacks(callbacks))
}

impl QatLanguageModule {
    /// Sets the ranges from the calibration batches. `network` and `device` are inner ones.
    fn calibrate(&mut self, network: &Network, device: &Device) -> Result<(), TaskError> {
        let mut calibrated = Ranges::new(self.precisions.len(), network.blocks());
        if self.config.settings.activation_ranges == settings::RangeSource::PerToken {
            self.ranges = calibrated;
            return Ok(());
        }
        for number in 0..self.config.settings.calibration_batches as u64 {
            let batch = self.validation.batches.calibration_batch(number)?;
            self.validation.reserving(batch.deep_size(), || {
                for batch in batch.micro_batches(self.micro_batch_size.get()) {
                    for (at, precision) in self.precisions.iter().enumerate() {
                        let mut quant = QuantContext::new(&self.config, Some((at, *precision)), &mut calibrated);
                        quant.observer = Some(RangeObserver::MinMax(text_positions(&batch, device)));
                        network.hidden(tokens(&batch.inputs, batch.size, batch.length, device), &mut quant);
                    }
                }
            });
        }
        self.ranges = calibrated;
        Ok(())
    }

    /// Computes the logits of the widest precision without a graph. `inputs` are on the inner device.
    fn teacher(&mut self, inputs: Tokens<2>, network: &Network) -> Tensor<2> {
        let mut quant = QuantContext::new(&self.config, Some((0, self.precisions[0])), &mut self.ranges);
        network.valid().forward(inputs, &mut quant)
    }

    /// Adds the gradients of one micro-batch at the precisions of `passes`. The logits of the widest precision are the teacher of the
    /// others; they are computed first if no pass does.
    fn forward_backward(
        &mut self,
        batch: &TokenBatch,
        passes: &[PrecisionPass],
        step: &mut Step<'_, Network>,
    ) -> Result<(), TaskError> {
        let divisor = batch.loss_target_count();
        let kind = passes.iter().map(|pass| pass.precision.map_or(0, |at| at as u32 + 1)).collect();
        let adds_repeatedly = passes.len() > 1 || self.recompute;
        let state = self.ranges.tensors(passes.iter().filter_map(|pass| pass.precision));
        let staged = Pass { kind, divisor, inputs: network::input_data(batch), state, adds_repeatedly };
        step.pass(staged, |network, inputs, accumulator, phases| {
            let mut teacher = None;
            let (tokens, labels) = (inputs.ints(), inputs.ints().inner());
            let (weights, text) = (inputs.floats().inner(), inputs.ints().inner());
            for pass in passes {
                let PrecisionPass { precision, gradient_set, is_teacher } = *pass;
                let distils = self.config.settings.distillation > 0.0 && precision.is_some_and(|at| at > 0);
                if distils && teacher.is_none() {
                    phases.enter("teacher");
                    teacher = Some(self.teacher(tokens.clone().inner(), network));
                }
                let QatLanguageModel { distillation: share, distillation_temperature: temperature, .. } =
                    self.config.settings;
                let distilled_from = teacher.clone().filter(|_| distils).map(|logits| Teacher {
                    logits,
                    divergence_fraction: share,
                    temperature,
                });
                phases.enter("forward_backward");
                let mut quant = QuantContext {
                    config: &self.config,
                    precision: precision.map(|at| (at, self.precisions[at])),
                    ranges: &mut self.ranges,
                    observer: (self.config.settings.activation_ranges == settings::RangeSource::Moving)
                        .then(|| RangeObserver::MovingAverage(text.clone())),
                    frozen: precision.is_some() && self.config.base_frozen(),
                };
                let loss = |logits| staged_next_token_loss(logits, labels.clone(), weights.clone(), distilled_from);
                let teacher = is_teacher.then_some(&mut teacher);
                let gradients = &mut accumulator.sets[gradient_set];
                let loss =
                    recompute::backward(network, tokens.clone(), &mut quant, self.recompute, loss, teacher, gradients);
                accumulator.record("loss", loss.total, divisor);
                accumulator.record("cross_entropy", loss.cross_entropy, divisor);
                if let Some(divergence) = loss.divergence {
                    accumulator.record("divergence", divergence, divisor);
                }
            }
            Ok(())
        })?;
        step.accumulator.items += (batch.size * passes.len()) as u64;
        Ok(())
    }

    /// Draws the precisions of a step and names its kind.
    fn precisions_of(&self, step: u64) -> (Vec<Option<usize>>, &'static str) {
        if step <= self.config.settings.pretraining_steps {
            return (vec![None], "pretraining");
        }
        let drawn = draw(self.config.settings.policy, self.precisions.len(), self.seed, step);
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
    const MODEL: &'static str = super::MODEL;
    const PREDICTS: bool = true;

    fn captures(&self) -> &'static str {
        super::prepare::captures(&self.config.settings)
    }

    fn before_step(
        &mut self,
        number: u64,
        trained: &mut TrainState<Network>,
        phases: &mut dyn Phases,
    ) -> Result<(), TaskError> {
        if number == self.config.settings.pretraining_steps + 1 && number > 1 {
            phases.enter("calibration");
            trained.reset_optimizer();
            self.calibrate(&trained.inner()?, &trained.device.inner)?;
        }
        (self.step_precisions, self.step_kind) = self.precisions_of(number);
        self.clips_gradients = trained.clip_norm.is_some();
        self.step = number;
        Ok(())
    }

    fn gradient_sets(&self) -> usize {
        // Each precision is clipped by its own norm.
        if self.clips_gradients { self.step_precisions.len() } else { 1 }
    }

    fn train(&mut self, batch: &TokenBatch, step: &mut Step<'_, Network>) -> Result<(), TaskError> {
        step.describe(&batch.description);
        step.accumulator.divisor += batch.loss_target_count();
        let distils = self.step_precisions.len() > 1 && self.config.settings.distillation > 0.0;
        let last_set = self.gradient_sets() - 1;
        let precisions = self.step_precisions.iter().enumerate();
        let passes: Vec<PrecisionPass> = precisions
            .map(|(number, precision)| PrecisionPass {
                precision: *precision,
                gradient_set: number.min(last_set),
                is_teacher: distils && *precision == Some(0),
            })
            .collect();
        batch
            .micro_batches(self.micro_batch_size.get())
            .try_for_each(|micro_batch| self.forward_backward(&micro_batch, &passes, step))
    }

    /// Updates learned scales with their own learning rate.
    fn update(
        &mut self,
        learning_rate: f64,
        mut gradients: GradientsParams,
        trained: &mut TrainState<Network>,
    ) -> Result<(), TaskError> {
        let factor = self.config.settings.scale_learning_rate_factor;
        let scales = if factor == 1.0 { Vec::new() } else { network::scales(trained.network()?) };
        let scale_gradients = gradients::take(&mut gradients, &scales);
        trained.update(learning_rate, gradients)?;
        if !scale_gradients.is_empty() {
            trained.update(learning_rate * factor, scale_gradients)?;
        }
        Ok(())
    }

    fn report(&mut self, fetched: StepValues) -> StepReport {
        let divisor = fetched.divisor.max(1.0);
        let mut sums = fetched.by_name();
        let loss = sums.remove(0).sum;
        StepReport {
            kind: self.step_kind,
            // The sum over precisions of the mean over tokens (Yu and Huang 2019).
            loss: loss / divisor,
            gradient_norm: fetched.norm,
            // Means over the passes that have them: the widest precision has no divergence.
            values: sums.into_iter().map(|number| (number.name, number.sum / number.divisor.max(1.0))).collect(),
            items: fetched.items,
            batch: fetched.batch,
        }
    }

    fn validate(
        &mut self,
        network: &Network,
        evaluation: &mut Evaluation<'_, Self>,
    ) -> Result<ValidationReport, TaskError> {
        let pretrains = self.step <= self.config.settings.pretraining_steps;
        if pretrains && self.step > 0 {
            // Pretraining has changed the base since the last calibration.
            evaluation.enter("calibration");
            self.calibrate(network, &evaluation.trained.device.inner)?;
        }
        self.validation.run(network, &self.precisions, &self.config, &mut self.ranges, !pretrains, evaluation)
    }

    fn save(&mut self, trained: &mut TrainState<Network>, directory: &Path) -> Result<(), TaskError> {
        trained.save(Self::MODEL, directory)?;
        let ranges = directory.join(ranges::FILE);
        write::replace(&ranges, &self.ranges.to_json()).map_err(|error| TaskError::file(&ranges, error))?;
        if self.config.settings.export_merged || self.config.settings.export_components {
            let network = trained.inner()?;
            let store = self.validation.batches.store.clone();
            let (config, precisions) = (&self.config, &self.precisions);
            let tokenizer = &store.corpus.tokenizer;
            Export { network, config, precisions, ranges: &mut self.ranges, tokenizer }.write(directory)?;
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
        // The ranges were calibrated with random weights.
        self.calibrate(&trained.inner()?, &trained.device.inner)
    }

    fn micro_batch_size(&self) -> Option<&MicroBatchSize> {
        Some(&self.micro_batch_size)
    }

    fn set_recompute(&mut self, recompute: bool) -> bool {
        self.recompute = recompute;
        true
    }

    fn evict_caches(&self, low_water: f64) -> u64 {
        self.validation.batches.store.evict_to_fraction(low_water)
    }

    fn device_name(&self, device: String) -> String {
        self.config.matmul.device_label(device)
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let cache = self.validation.batches.store.counters();
        vec![
            ("example_cache_hits", cache.hits),
            ("example_cache_misses", cache.misses),
            ("example_cache_evictions", cache.evictions),
        ]
    }

    fn predict(
        &mut self,
        trained: &TrainState<Network>,
        request: &PredictRequest<'_>,
        sink: &mut dyn PredictionSink,
    ) -> Result<Value, TaskError> {
        self.answer_files(&trained.inner()?, request, sink)
    }
}

#[cfg(test)]
#[path = "training_tests.rs"]
mod tests;
