//! Training module: opening of the task, loss of a batch, report of a step.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use burn::tensor::TensorData;
use serde_json::Value;
use xrun_ops::{embedding, staged_next_token_loss};

use super::batch::ExampleBatch;
use super::network::{ForwardConfig, VisionLanguageNetwork as Network, image_data};
use super::prepare::Prepared;
use super::selective::{Normalise, StepSums};
use super::settings::Logits;
use super::validation::Validation;
use super::{leaks, predict, weights};
use xrun_core::experiment::pipeline::Opening;
use xrun_core::task::predict::{PredictRequest, PredictionSink};
use xrun_core::task::{Phases, StepReport, TaskError, ValidationReport};
use xrun_training::nn::backbone::Backbone;
use xrun_training::nn::captured::Inputs;
use xrun_training::nn::matmul::ComputeDtype;
use xrun_training::nn::micro_batches::{MicroBatchExecutor, MicroBatchSize};
use xrun_training::nn::module_task::{Evaluation, ModuleTask, Step};
use xrun_training::nn::step::{StepValues, TrainState};
use xrun_training::nn::training_module::TrainingModule;
use xrun_training::nn::{Tensor, gpt2_file, opening};

/// Fine-tuning of a [`Network`].
pub struct VisionLanguageModule {
    pub(super) config: ForwardConfig,
    normalise: Normalise,
    logits: Logits,
    executor: Arc<MicroBatchExecutor>,
    validation: Validation,
    /// Sums over the batches of the step.
    sums: StepSums,
}

/// Puts the model on the device and starts the workers.
///
/// # Errors
/// The device or a file of weights fails, or data that a leak reads at the start.
pub fn open(prepared: Prepared, opening: Opening<'_>) -> Result<ModuleTask<VisionLanguageModule>, TaskError> {
    let Opening { experiment, ledger, .. } = opening;
    let formatted = leaks::data::formatted(&prepared.batches, &experiment.leaks, ledger)?;
    let prepare = leaks::data::prepare(prepared.batches.clone(), &experiment.leaks, ledger);
    let device = opening::device(opening, experiment.training.activation_checkpointing)?;
    let matmul = ComputeDtype::new(prepared.settings.matmul_dtype, &device)?;
    let Prepared { settings, model, batches, buffers, .. } = &prepared;
    let vocabulary = batches.store.tokenizer.size();
    let seed = experiment.experiment.seed;
    let backbone = prepared.backbone.as_ref();
    let shape = &model.shape_on(backbone);
    let backbone = backbone.map(|of| Backbone::read(of, &device.autodiff)).transpose()?;
    let sizes = [batches.shape.side, vocabulary, settings.lora_rank];
    let mut network = Network::new(shape, backbone, sizes, seed, &device.autodiff);
    if let (Some(path), Some(vision)) = (&model.vision_weights, &mut network.vision) {
        weights::read_vision(vision, Path::new(path))?;
    }
    if let Some(path) = &model.language_weights {
        gpt2_file::read(&mut network.language, Path::new(path))?;
    }
    let feed = opening::feed(opening, &buffers.feed, prepare)?;
    let executor = Arc::new(opening::executor(opening, &buffers.part_gradients)?);
    let module = VisionLanguageModule {
        config: ForwardConfig::new(settings, matmul),
        normalise: settings.selective.normalise,
        logits: settings.logits,
        validation: Validation::new(&prepared, experiment, executor.clone(), ledger),
        executor,
        sums: StepSums::default(),
    };
    let callbacks = leaks::callbacks::callbacks(&module.config, formatted, &experiment.leaks, ledger);
    Ok(ModuleTask::new(module, network, device, feed, experiment).with_callbacks(callbacks))
}

/// Rows of a micro-batch whose logits are computed, and their targets.
struct SelectedRows {
    /// Rows of the hidden states.
    rows: Vec<i32>,
    labels: Vec<i32>,
    weights: Vec<f32>,
}

impl SelectedRows {
    /// Rows of a batch; `None` if all weights are 0.
    fn new(batch: &ExampleBatch, logits: Logits, image_tokens: usize) -> Option<Self> {
        let weighted = batch.selected();
        if weighted.is_empty() {
            return None;
        }
        // By default only logits with a weight are computed: `[selected, vocabulary]` in place of `[size * length, vocabulary]`.
        let selected = match logits {
            Logits::Weighted => weighted,
            Logits::All => (0..batch.weights.len()).collect(),
        };
        Some(Self {
            rows: hidden_rows(&selected, batch.length, image_tokens),
            labels: selected.iter().map(|at| batch.targets[*at]).collect(),
            weights: selected.iter().map(|at| batch.weights[*at]).collect(),
        })
    }

    /// Adds rows of weight 0 up to a multiple of an eighth of `all` rows, so that few different numbers of rows occur.
    fn pad(&mut self, all: usize) {
        let count = self.rows.len().next_multiple_of(all.div_ceil(8));
        self.rows.resize(count, 0);
        self.labels.resize(count, 0);
        self.weights.resize(count, 0.0);
    }
}

/// Values of the inputs of [`loss`].
fn input_data(batch: &ExampleBatch, rows: SelectedRows) -> Vec<TensorData> {
    let count = rows.rows.len();
    vec![
        image_data(&batch.images, batch.side),
        TensorData::new(batch.inputs.clone(), [batch.size, batch.length]),
        TensorData::new(rows.rows, [count]),
        TensorData::new(rows.labels, [count]),
        TensorData::new(rows.weights, [count]),
    ]
}

/// Sum of the weighted losses of the inputs of [`input_data`], `[1]`.
fn loss(network: &Network, inputs: &mut Inputs<'_>, config: &ForwardConfig) -> Tensor<1> {
    let image = network.image_tokens(inputs.floats(), config);
    let hidden = network.hidden(image, inputs.ints(), config);
    // As `select`, whose gradient loops over all rows in a thread for each column.
    let hidden = embedding(hidden, inputs.ints::<1>().unsqueeze()).squeeze_dim(0);
    let logits = network.logits(hidden, config);
    staged_next_token_loss(logits, inputs.ints().inner(), inputs.floats().inner(), None).total
}

/// Maps text positions `row * length + column` to rows of the hidden states of image and text tokens, `row * (image_tokens +
/// length) + image_tokens + column`.
pub(super) fn hidden_rows(positions: &[usize], length: usize, image_tokens: usize) -> Vec<i32> {
    let row = |at: &usize| (at + (at / length + 1) * image_tokens) as i32;
    positions.iter().map(row).collect()
}

impl TrainingModule for VisionLanguageModule {
    type Batch = ExampleBatch;
    type Network = Network;
    /// Batch of held-out examples.
    type Output = ExampleBatch;
    const MODEL: &'static str = super::MODEL;
    const PREDICTS: bool = true;

    fn captures(&self) -> &'static str {
        super::prepare::CAPTURES
    }

    fn before_step(&mut self, _: u64, _: &mut TrainState<Network>, _: &mut dyn Phases) -> Result<(), TaskError> {
        self.sums = StepSums::default();
        Ok(())
    }

    fn train(&mut self, batch: &ExampleBatch, step: &mut Step<'_, Network>) -> Result<(), TaskError> {
        step.describe(&batch.description);
        self.sums.add(&batch.sums());
        step.accumulator.divisor = self.sums.divisor(self.normalise).unwrap_or(0.0);
        step.enter("forward_backward");
        let (config, is_gpu, logits) = (&self.config, step.device().is_gpu(), self.logits);
        let image_tokens = step.trained.network()?.image_token_count();
        step.accumulator.items += batch.size as u64;
        let stage = |rows: &Range<usize>| {
            let batch = batch.rows_or_all(rows.clone());
            let mut rows = SelectedRows::new(&batch, logits, image_tokens)?;
            if is_gpu {
                // Also where passes are not captured: the sum of losses has the same order only if both are padded.
                rows.pad(batch.weights.len());
            }
            Some((input_data(&batch, rows), 1.0))
        };
        step.micro_batches(&self.executor, &self.executor.split(batch.size), stage, |network, inputs| {
            let loss = loss(network, inputs, config);
            (loss.clone(), vec![("loss", loss)])
        })
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
                ("share_masked", sums.masked_fraction().unwrap_or(0.0)),
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
        self.validation.run(network, &self.config, evaluation)
    }

    fn micro_batch_size(&self) -> Option<&MicroBatchSize> {
        Some(&self.executor.size)
    }

    fn backbone(network: &Network) -> Option<&Backbone> {
        network.backbone.as_ref()
    }

    fn evict_caches(&self, low_water: f64) -> u64 {
        self.validation.batches.store.cache.evict_to_fraction(low_water)
    }

    fn device_name(&self, device: String) -> String {
        self.config.matmul.device_label(device)
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let images = self.validation.batches.store.cache.counters();
        vec![
            ("image_cache_hits", images.hits),
            ("image_cache_misses", images.misses),
            ("image_cache_evictions", images.evictions),
        ]
    }

    fn refuses(&self, request: &PredictRequest<'_>) -> Option<String> {
        predict::question(&self.validation, request).err()
    }

    fn predict(
        &mut self,
        trained: &TrainState<Network>,
        request: &PredictRequest<'_>,
        sink: &mut dyn PredictionSink,
    ) -> Result<Value, TaskError> {
        predict::predict(&self.validation, &trained.inner()?, &self.config, request, sink)
    }
}

#[cfg(test)]
#[path = "training_tests.rs"]
mod tests;
