//! Training module: the loss of a batch, and which weights and data a task is opened with.

use std::path::Path;
use std::sync::Arc;

use burn::tensor::{Device, TensorData};
use serde_json::Value;
use xrun_ops::{LossTargets, next_token_loss};

use super::batch::ExampleBatch;
use super::network::{Rules, VisionLanguage as Network, pictures};
use super::prepare::Prepared;
use super::selective::{Normalise, StepSums};
use super::settings::Logits;
use super::validation::Validation;
use super::{VisionLanguageModel, predict, weights};
use crate::backend::dispatch::TensorDevice;
use crate::backend::threads;
use crate::nn::Tensor;
use crate::nn::matmul::MatmulPrecision;
use crate::nn::micro_batches::MicroBatchExecutor;
use crate::nn::module_task::{Evaluation, ModuleTask, Step};
use crate::nn::step::{StepValues, TrainState};
use crate::nn::training_module::TrainingModule;
use crate::nn::transformer::{Tokens, tokens};
use xrun_core::bounded::ledger::Ledger;
use xrun_core::device::Kind;
use xrun_core::experiment::Experiment;
use xrun_core::experiment::pipeline::ModelKind;
use xrun_core::task::predict::{PredictRequest, PredictionSink};
use xrun_core::task::{Phases, StepReport, TaskError, ValidationReport};
use xrun_data::feed::{Feed, FeedSettings, Prepare};
use xrun_data::parts;

/// Fine-tuning of a [`Network`].
pub struct VisionLanguageModule {
    pub(super) rules: Rules,
    normalise: Normalise,
    logits: Logits,
    executor: Arc<MicroBatchExecutor>,
    validation: Validation,
    /// Sums over the batches of the step.
    sums: StepSums,
}

/// Puts the model on the device and starts the workers, which call `prepare`, at the batch of step `first_step`.
///
/// # Errors
/// The device or a file of weights fails.
pub fn open(
    prepared: Prepared,
    prepare: Prepare<ExampleBatch>,
    experiment: &Experiment,
    kind: Kind,
    ledger: &Ledger,
    first_step: u64,
) -> Result<ModuleTask<VisionLanguageModule>, TaskError> {
    threads::start(parts::threads(&experiment.limits))?;
    let training = &experiment.training;
    let device = TensorDevice::open(kind, training.activation_checkpointing)?;
    let matmul = MatmulPrecision::new(prepared.settings.matmul_dtype, &device)?;
    let Prepared { settings, model, shape, batches, buffers, .. } = &prepared;
    let vocabulary = batches.store().tokenizer().size();
    let seed = experiment.experiment.seed;
    let mut network = Network::new(shape, batches.side(), vocabulary, settings.lora_rank, seed, &device.autodiff);
    if let Some(path) = &model.vision_weights {
        weights::read_vision(&mut network.vision, Path::new(path))?;
    }
    if let Some(path) = &model.language_weights {
        weights::read_language(&mut network.language, Path::new(path))?;
    }
    let feed_settings = FeedSettings::new(&experiment.limits, training, first_step);
    let feed = Feed::new(ledger, &buffers.feed, feed_settings, prepare)?;
    let executor = Arc::new(MicroBatchExecutor::new(kind, &experiment.limits, &buffers.part_gradients, ledger)?);
    let module = VisionLanguageModule {
        rules: Rules::new(settings, matmul),
        normalise: settings.selective.normalise,
        logits: settings.logits,
        validation: Validation::new(&prepared, experiment, executor.clone(), ledger),
        executor,
        sums: StepSums::default(),
    };
    Ok(ModuleTask::new(module, network, device, feed, experiment))
}

/// The sum of the weighted losses of some examples, `[1]`; `None` where no token weighs anything.
fn loss(network: &Network, batch: &ExampleBatch, rules: &Rules, logits: Logits, device: &Device) -> Option<Tensor<1>> {
    let weighted = batch.selected();
    if weighted.is_empty() {
        return None;
    }
    let selected = match logits {
        Logits::Weighted => weighted,
        Logits::All => (0..batch.weights.len()).collect(),
    };
    let image = network.image_tokens(pictures(&batch.pictures, batch.side, device), rules);
    let image_tokens = image.dims()[1];
    let text = tokens(&batch.inputs, batch.size, batch.length, device);
    let hidden = network.hidden(image, text, rules);
    // As a rule logits of what counts alone: `[selected, vocabulary]` and not `[size * length, vocabulary]`.
    let rows = rows_of(&selected, batch.length, image_tokens);
    let count = selected.len();
    let hidden = hidden.select(0, Tokens::<1>::from_data(TensorData::new(rows, [count]), device));
    let logits = network.logits(hidden, rules);
    let labels = selected.iter().map(|at| batch.targets[*at]).collect();
    let weights = selected.iter().map(|at| batch.weights[*at]).collect();
    Some(next_token_loss(logits, LossTargets { labels, weights, teacher: None }).total)
}

/// Where text positions, `row * length + at`, are among image and text tokens: `row * (image_tokens + length) + image_tokens +
/// at`.
pub(super) fn rows_of(positions: &[usize], length: usize, image_tokens: usize) -> Vec<i32> {
    let row = |at: &usize| (at + (at / length + 1) * image_tokens) as i32;
    positions.iter().map(row).collect()
}

impl TrainingModule for VisionLanguageModule {
    type Batch = ExampleBatch;
    type Network = Network;
    /// Batch of held-out examples.
    type Output = ExampleBatch;
    const MODEL: &'static str = VisionLanguageModel::NAME;
    const PREDICTS: bool = true;

    fn before_step(&mut self, _: u64, _: &mut TrainState<Network>, _: &mut dyn Phases) -> Result<(), TaskError> {
        self.sums = StepSums::default();
        Ok(())
    }

    fn train(&mut self, batch: &ExampleBatch, step: &mut Step<'_, Network>) -> Result<(), TaskError> {
        step.describe(batch.describe());
        self.sums.add(&batch.sums());
        step.accumulator.set_counted(self.sums.divisor(self.normalise).unwrap_or(0.0));
        step.enter("forward_backward");
        let (rules, logits, device) = (&self.rules, self.logits, &step.device().autodiff);
        let (network, parts) = (step.trained.network()?, self.executor.split(batch.size));
        step.accumulator.run_micro_batches(network, &self.executor, &parts, |network, rows, part| {
            let batch = batch.rows_or_all(rows.clone());
            part.add_items(batch.size);
            let loss = loss(network, &batch, rules, logits, device);
            if let Some(loss) = &loss {
                part.record("loss", loss.clone().inner(), 1.0);
            }
            (loss, ())
        });
        Ok(())
    }

    fn report(&mut self, fetched: StepValues) -> StepReport {
        let sums = &mut self.sums;
        sums.weighted_loss = fetched.values.iter().map(|number| number.sum).sum();
        StepReport {
            kind: "answers",
            loss: sums.loss(self.normalise).unwrap_or(0.0),
            values: vec![
                ("tokens_answer", sums.tokens as f64),
                ("tokens_selected", sums.selected as f64),
                ("share_masked", sums.share_masked().unwrap_or(0.0)),
            ],
            gradient_norm: fetched.norm,
            items: fetched.items,
            batch: fetched.batch,
        }
    }

    fn validate(
        &mut self,
        network: &Network,
        evaluation: &mut Evaluation<'_, Self>,
    ) -> Result<ValidationReport, TaskError> {
        self.validation.run(network, &self.rules, evaluation)
    }

    fn evict_caches(&self, low_water: f64) -> u64 {
        self.validation.store().evict_to_share(low_water)
    }

    fn device_name(&self, device: String) -> String {
        self.rules.matmul.device_label(device)
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let images = self.validation.store().counters();
        vec![
            ("image_cache_hits", images.hits),
            ("image_cache_misses", images.misses),
            ("image_cache_evictions", images.evictions),
        ]
    }

    fn refuses(&self, asked: &PredictRequest<'_>) -> Option<String> {
        predict::question(&self.validation, asked).err()
    }

    fn predict(
        &mut self,
        trained: &TrainState<Network>,
        asked: &PredictRequest<'_>,
        told: &mut dyn PredictionSink,
    ) -> Result<Value, TaskError> {
        predict::predict(&self.validation, &trained.inner()?, &self.rules, asked, told)
    }
}

#[cfg(test)]
#[path = "training_tests.rs"]
mod tests;
