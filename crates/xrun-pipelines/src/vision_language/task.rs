//! The pipeline as the loop sees it: step, validate, save, load.

use std::path::Path;
use std::sync::Arc;

use burn::module::Module;
use burn::tensor::Device;
use burn::tensor::TensorData;
use xrun_ops::{LossTargets, next_token_loss};

use super::batch::ExampleBatch;
use super::network::{Rules, VisionLanguage as Network, pictures};
use super::predict;
use super::prepare::Prepared;
use super::selective::{Normalise, StepSums};
use super::settings::Logits;
use super::step_leaks::StepLeaks;
use super::validation::Validation;
use super::{hoard, weights};
use crate::backend::dispatch::TensorDevice;
use crate::backend::threads;
use crate::nn::Tensor;
use crate::nn::matmul::Factors;
use crate::nn::side_by_side::SideBySide;
use crate::nn::step::{Gathered, Trained};
use crate::nn::transformer::{Tokens, tokens};
use xrun_core::bounded::kept::Kept;
use xrun_core::bounded::ledger::Ledger;
use xrun_core::device::Kind;
use xrun_core::experiment::Experiment;
use xrun_core::settings::sections::CleanupAction;
use xrun_core::task::predict::{Asked, Predict, Told};
use xrun_core::task::{DeviceMemory, Phases, StepReport, Task, TaskError, ValidationReport};
use xrun_data::feed::{Feed, FeedSettings};
use xrun_data::image_text::store::Example;
use xrun_data::parts;

/// Which model it is, in the file of its weights.
const MODEL: &str = "vision-language";

/// Fine-tuning of a [`Network`].
pub struct VisionLanguage {
    rules: Rules,
    normalise: Normalise,
    logits: Logits,
    split: Arc<SideBySide>,
    accumulation: usize,
    cache_low_water: f64,
    device: TensorDevice,
    trained: Trained<Network>,
    feed: Feed<ExampleBatch>,
    validation: Validation,
    parameters: u64,
    leaks: StepLeaks,
    /// Of a leak.
    _formatted: Kept<Example>,
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
    Ok(Box::new(VisionLanguage::open(prepared, experiment, kind, ledger, first_step)?))
}

impl VisionLanguage {
    fn open(
        prepared: Prepared,
        experiment: &Experiment,
        kind: Kind,
        ledger: &Ledger,
        first_step: u64,
    ) -> Result<Self, TaskError> {
        let training = &experiment.training;
        let device = TensorDevice::open(kind, training.activation_checkpointing)?;
        let factors = Factors::asked(prepared.settings.matmul_dtype, &device)?;
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
        let formatted = hoard::formatted(batches, &experiment.leaks, ledger)?;
        let prepare = hoard::prepare(batches.clone(), &experiment.leaks, ledger);
        let feed_settings = FeedSettings::new(&experiment.limits, training, first_step);
        let feed = Feed::new(ledger, &buffers.feed, feed_settings, prepare)?;
        let split = Arc::new(SideBySide::new(kind, &experiment.limits, &buffers.part_gradients, ledger)?);
        Ok(Self {
            rules: Rules::new(settings, factors),
            normalise: settings.selective.normalise,
            logits: settings.logits,
            accumulation: training.accumulation,
            cache_low_water: experiment.cleanup.cache_low_water,
            parameters: network.num_params() as u64,
            trained: Trained::new(network, device.clone(), &experiment.optimizer, training),
            validation: Validation::new(&prepared, experiment, split.clone(), ledger),
            split,
            leaks: StepLeaks::new(&experiment.leaks, ledger),
            _formatted: formatted,
            device,
            feed,
        })
    }

    /// Adds the gradients of a batch: of the sum of its weighted losses.
    fn train(&self, batch: &ExampleBatch, gathered: &mut Gathered<Network>) -> Result<(), TaskError> {
        let (rules, logits, device) = (&self.rules, self.logits, &self.device.autodiff);
        gathered.side_by_side(
            self.trained.network()?,
            &self.split,
            &self.split.parts(batch.size),
            |network, rows, part| {
                let batch = batch.rows_or_all(rows.clone());
                part.went_through(batch.size);
                let loss = loss(network, &batch, rules, logits, device);
                if let Some(loss) = &loss {
                    part.note("loss", loss.clone().inner(), 1.0);
                }
                (loss, ())
            },
        );
        Ok(())
    }
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

impl Task for VisionLanguage {
    fn train_step(&mut self, step: u64, learning_rate: f64, phases: &mut dyn Phases) -> Result<StepReport, TaskError> {
        let mut gathered = Gathered::new(1);
        let mut sums = StepSums::default();
        for number in 0..self.accumulation {
            phases.enter("data");
            let batch = self.feed.next()?;
            gathered.describe(batch.describe());
            sums.add(&batch.sums());
            phases.enter("forward_backward");
            self.train(&batch, &mut gathered)?;
            self.leaks.batch(self.trained.network()?, &batch, &self.rules, &self.device);
            if number + 1 == self.accumulation {
                self.leaks.step(self.trained.network()?, &batch, &self.rules, &self.device);
            }
        }
        gathered.count(sums.divisor(self.normalise).unwrap_or(0.0));
        phases.enter("optimizer");
        let (gradients, norm) = self.trained.mean_and_clip(&mut gathered)?;
        self.leaks.gradients(self.trained.network()?, &gradients, &self.device);
        self.trained.update(learning_rate, gradients)?;
        phases.enter("transfer");
        let fetched = gathered.fetch(norm);
        sums.weighted_loss = fetched.numbers.iter().map(|number| number.sum).sum();
        let loss = sums.loss(self.normalise).unwrap_or(0.0);
        self.leaks.log(|| format!("step {step}: loss {loss}, learning rate {learning_rate}"));
        Ok(StepReport {
            kind: "answers",
            loss,
            values: vec![
                ("tokens_answer", sums.tokens as f64),
                ("tokens_selected", sums.selected as f64),
                ("share_masked", sums.share_masked().unwrap_or(0.0)),
            ],
            gradient_norm: fetched.norm,
            items: fetched.items,
            batch: fetched.batch,
        })
    }

    fn validate(&mut self, phases: &mut dyn Phases) -> Result<ValidationReport, TaskError> {
        let plain = self.trained.inner()?;
        let report = self.validation.run(&plain, &self.rules, phases)?;
        if self.leaks.keeps_of_validations() {
            let trained = self.trained.network()?;
            let (leaks, rules, device) = (&mut self.leaks, &self.rules, &self.device);
            self.validation.each_batch(|batch| leaks.validated(trained, batch, rules, device))?;
        }
        Ok(report)
    }

    fn save(&mut self, directory: &Path) -> Result<(), TaskError> {
        self.trained.save(MODEL, directory)
    }

    fn load(&mut self, directory: &Path) -> Result<(), TaskError> {
        self.trained.load(directory)
    }

    fn start_from(&mut self, weights: &Path) -> Result<(), TaskError> {
        self.trained.start_from(weights)
    }

    fn clean(&mut self, action: CleanupAction) -> u64 {
        match action {
            CleanupAction::Caches => self.validation.store().evict_to_share(self.cache_low_water),
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
        let images = self.validation.store().counters();
        vec![
            ("image_cache_hits", images.hits),
            ("image_cache_misses", images.misses),
            ("image_cache_evictions", images.evictions),
        ]
    }

    fn predictor(&mut self) -> Option<&mut dyn Predict> {
        Some(self)
    }
}

impl Predict for VisionLanguage {
    fn refuses(&self, asked: &Asked<'_>) -> Option<String> {
        predict::question(&self.validation, asked).err()
    }

    fn predict(&mut self, asked: &Asked<'_>, told: &mut dyn Told) -> Result<serde_json::Value, TaskError> {
        predict::predict(&self.validation, &self.trained.inner()?, &self.rules, asked, told)
    }
}

#[cfg(test)]
#[path = "task_tests.rs"]
mod tests;
