//! Validation: losses and answers for held-out images, on the inner device, one batch at a time.

use std::ops::Range;
use std::sync::Arc;

use burn::tensor::Device;
use burn::tensor::TensorData;
use burn::tensor::activation::log_softmax;

use super::batch::{BatchLoader, ExampleBatch, validation_bytes};
use super::captions;
use super::metrics;
use super::network::{ForwardConfig, VisionLanguageNetwork, image_tensor};
use super::prepare::Prepared;
use super::selective::{TokenKind, WeighedAnswer};
use super::training::{VisionLanguageModule, hidden_rows};
use xrun_core::bounded::ledger::{Ledger, Registration};
use xrun_core::dataset::error::DataError;
use xrun_core::dataset::sample::HostImage;
use xrun_core::dataset::split::Split;
use xrun_core::experiment::Experiment;
use xrun_core::task::{Metric, TaskError, ValidationReport};
use xrun_data::image_text::store::Example;
use xrun_training::metrics::fields::{AnswerComparison, FieldScores, Tally};
use xrun_training::metrics::perplexity::perplexity;
use xrun_training::nn::Tensor;
use xrun_training::nn::generate::{DecodeCache, GenerationLimits, complete};
use xrun_training::nn::micro_batches::MicroBatchExecutor;
use xrun_training::nn::module_task::Evaluation;
use xrun_training::nn::step::TrainState;
use xrun_training::nn::transformer::{Tokens, tokens};

type Network = VisionLanguageNetwork;

/// Value of each byte of a grey image.
const GREY: u8 = 128;

/// State of all validations of a run.
pub struct Validation {
    /// Batches of the data.
    pub batches: BatchLoader,
    /// Maximum number of batches of a validation.
    batches_max: u64,
    generated_answers: usize,
    answer_tokens: usize,
    grey_images: bool,
    /// JSON pointers of fields with a metric, and its name.
    fields: Vec<(String, String)>,
    /// Metrics that the data allows.
    metrics: Vec<Metric>,
    /// Number of images in a report.
    report_images: usize,
    selective: super::selective::SelectiveLoss,
    executor: Arc<MicroBatchExecutor>,
    batch: Registration,
    cache: DecodeCache,
    _counts: Registration,
}

/// Sums over the tokens of answers with teacher forcing.
#[derive(Default)]
struct TeacherForced {
    /// Negative log-likelihood by kind of token: values, keys, structure.
    nll: [f64; 3],
    /// Number of tokens by kind.
    tokens: [u64; 3],
    /// Fields all of whose tokens are the most probable ones.
    fields: Tally,
}

/// Batch of held-out examples.
struct HeldOutBatch {
    examples: Vec<Example>,
    batch: ExampleBatch,
    weighed: Vec<WeighedAnswer>,
}

/// Image that the model is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ShownImage {
    Original,
    Grey,
}

impl Validation {
    /// State before the first validation. Registers its buffers in the ledger.
    pub fn new(
        prepared: &Prepared,
        experiment: &Experiment,
        executor: Arc<MicroBatchExecutor>,
        ledger: &Ledger,
    ) -> Self {
        let Prepared { settings, batches, buffers, fields, .. } = prepared;
        let pointers: Vec<String> = fields.iter().map(|(pointer, _)| pointer.clone()).collect();
        let has_unseen = batches.store.count(Split::Unseen) > 0;
        let counts = buffers.field_counts.register(ledger);
        counts.set(buffers.field_counts.cap.items, buffers.field_counts.cap.bytes);
        Self {
            batches: batches.clone(),
            batches_max: experiment.validation.batches as u64,
            generated_answers: settings.generated_answers,
            answer_tokens: settings.max_new_tokens,
            grey_images: settings.grey_images,
            fields: fields.clone(),
            metrics: metrics::available(&pointers, has_unseen, settings.grey_images),
            report_images: experiment.validation.images,
            selective: settings.selective.clone(),
            executor,
            batch: buffers.validation_batch.register(ledger),
            cache: DecodeCache::new(buffers.decode_cache.register(ledger)),
            _counts: counts,
        }
    }

    /// Reads held-out batch `number` of a split; `None` behind its end.
    fn held_out(&self, split: Split, number: u64) -> Result<Option<HeldOutBatch>, DataError> {
        let (numbers, examples) = self.batches.held_out(split, number)?;
        if numbers.is_empty() {
            return Ok(None);
        }
        let description = format!("validation batch {number}");
        let (batch, weighed) = self.batches.assemble(&examples, &numbers, false, &description)?;
        self.batch.set(1, validation_bytes(&batch, &examples, &weighed));
        Ok(Some(HeldOutBatch { examples, batch, weighed }))
    }

    /// First held-out batch, for tests.
    #[cfg(test)]
    pub fn first_batch(&self) -> Option<ExampleBatch> {
        self.held_out(Split::Validation, 0).ok().flatten().map(|held_out| held_out.batch)
    }

    /// Runs a validation. `network` is on the inner device.
    ///
    /// # Errors
    /// An example cannot be read, or a callback fails.
    pub fn run(
        &self,
        network: &Network,
        config: &ForwardConfig,
        evaluation: &mut Evaluation<'_, VisionLanguageModule>,
    ) -> Result<ValidationReport, TaskError> {
        let mut forced = TeacherForced::default();
        let (mut free, mut grey, mut unseen) = (FieldScores::default(), FieldScores::default(), FieldScores::default());
        let (mut shown, trained) = (Vec::new(), Some(evaluation.trained));
        let (all, mut done) = (self.batches.answered(self.batches_max, self.generated_answers, self.grey_images), 0);
        for split in [Split::Validation, Split::Unseen] {
            let (mut left, is_unseen) = (self.generated_answers, split == Split::Unseen);
            for number in 0..self.batches_max {
                if is_unseen && left == 0 {
                    break;
                }
                evaluation.enter("validation_data");
                let Some(held_out) = self.held_out(split, number)? else { break };
                if !is_unseen {
                    evaluation.enter("validation");
                    self.evaluate_forced(network, config, &held_out, &mut forced);
                    evaluation.output(&held_out.batch)?;
                }
                evaluation.enter("generated_answers");
                let examples = &held_out.examples[..left.min(held_out.examples.len())];
                left -= examples.len();
                for (example, answer) in self.answers(network, config, examples, ShownImage::Original, trained)? {
                    let scores = if is_unseen { &mut unseen } else { &mut free };
                    let judged = scores.add(&answer, &example.text.answer_text);
                    if !is_unseen && shown.len() < self.report_images {
                        shown.push(self.captioned(example, &answer, &judged, shown.is_empty()));
                    }
                }
                let shows_grey = self.grey_images && !is_unseen;
                if shows_grey {
                    for (example, answer) in self.answers(network, config, examples, ShownImage::Grey, trained)? {
                        grey.add(&answer, &example.text.answer_text);
                    }
                }
                done += examples.len() as u64 * (1 + u64::from(shows_grey));
                evaluation.batch_done(done, all);
            }
        }
        self.batch.set(0, 0);
        let metrics = self.metrics(&forced, &free, &grey, &unseen);
        Ok(ValidationReport { metrics, images: shown, ..ValidationReport::default() })
    }

    /// Adds the losses and fields of a batch with teacher forcing to `forced`.
    fn evaluate_forced(
        &self,
        network: &Network,
        config: &ForwardConfig,
        HeldOutBatch { examples, batch, weighed }: &HeldOutBatch,
        forced: &mut TeacherForced,
    ) {
        let device = network.inner_device();
        // Whether the target at a position is the most probable token.
        let mut correct = vec![false; batch.targets.len()];
        let parts = self.executor.split(batch.size);
        let passes = self.executor.forward(network, &parts, |network, rows| {
            let part = batch.rows_or_all(rows.clone());
            let answered = part.answered();
            let pass = (!answered.is_empty()).then(|| forced_pass(network, config, &part, &answered, &device));
            (answered, pass)
        });
        for (rows, (answered, pass)) in parts.iter().zip(passes) {
            let Some((log_probabilities, argmax)) = pass else { continue };
            let first = rows.start * batch.length;
            for ((at, log_probability), token) in
                answered.iter().map(|at| first + at).zip(log_probabilities).zip(argmax)
            {
                correct[at] = token == i64::from(batch.targets[at]);
                let Some(kind) = batch.kinds[at] else { continue };
                let kind = match kind {
                    TokenKind::Value => 0,
                    TokenKind::Key => 1,
                    TokenKind::Structure => 2,
                };
                forced.nll[kind] -= f64::from(log_probability);
                forced.tokens[kind] += 1;
            }
        }
        for (row, (example, weighed)) in examples.iter().zip(weighed).enumerate() {
            // The last token of the prompt predicts the first one of the answer.
            let answer = (row * batch.length + example.text.prompt.len()).saturating_sub(1);
            for tokens in &weighed.fields {
                forced.fields.add(correct[answer + tokens.start..answer + tokens.end].iter().all(|correct| *correct));
            }
        }
    }

    /// Returns the model's free answer to each example; `examples` are at most a batch.
    ///
    /// # Errors
    /// The device fails.
    pub fn generated_answers(
        &self,
        network: &Network,
        config: &ForwardConfig,
        examples: &[Example],
    ) -> Result<Vec<String>, TaskError> {
        let answers = self.answers(network, config, examples, ShownImage::Original, None)?;
        Ok(answers.map(|(_, answer)| answer).collect())
    }

    /// Returns each example with the model's free answer. Passes may be captured with `trained`.
    fn answers<'a>(
        &self,
        network: &Network,
        config: &ForwardConfig,
        examples: &'a [Example],
        shown: ShownImage,
        trained: Option<&TrainState<Network>>,
    ) -> Result<impl Iterator<Item = (&'a Example, String)> + use<'a>, TaskError> {
        let device = network.inner_device();
        let tokenizer = &self.batches.store.tokenizer;
        let limits = GenerationLimits {
            eos_token: tokenizer.eos_token(),
            tokens: self.answer_tokens,
            length: self.batches.shape.length,
            sequences: self.executor.size.get().min(self.batches.shape.size),
        };
        let parts = self.executor.split(examples.len());
        let answer = |network: &Network, range: &Range<usize>, captured: Option<(&TrainState<Network>, u32)>| {
            let part = &examples[range.clone()];
            let rgb: Vec<u8> = match shown {
                ShownImage::Original => part.iter().flat_map(|example| example.image.rgb.iter().copied()).collect(),
                ShownImage::Grey => vec![GREY; part.iter().map(|example| example.image.rgb.len()).sum()],
            };
            let image = network.image_tokens(image_tensor(&rgb, self.batches.shape.side, &device), config);
            let prompts: Vec<&[u32]> = part.iter().map(|example| example.text.prompt.as_slice()).collect();
            let (language, prefix, context) = (&network.language, Some(image), &mut { config });
            let answers = complete(language, prefix, &prompts, limits, &self.cache, context, captured)?;
            Ok(answers.iter().map(|answer| tokenizer.decode(&answer.tokens)).collect())
        };
        let all: Result<Vec<Vec<String>>, TaskError> = match trained.filter(|trained| trained.captures_passes()) {
            Some(trained) => parts.iter().map(|range| answer(network, range, Some((trained, 0)))).collect(),
            None => {
                let all = self.executor.forward(network, &parts, |network, range| answer(network, range, None));
                all.into_iter().collect()
            }
        };
        Ok(examples.iter().zip(all?.into_iter().flatten()))
    }

    /// Image for the report with its caption; the first one also shows the masked tokens of its answer.
    fn captioned(
        &self,
        example: &Example,
        answer: &str,
        judged: &AnswerComparison,
        first: bool,
    ) -> (HostImage, String) {
        let mut caption = captions::caption(&example.text.question, answer, &example.text.answer_text, judged);
        if first {
            caption += &captions::masking(&example.text, &self.batches.store.tokenizer, &self.selective);
        }
        (example.image.clone(), caption)
    }

    fn metrics(
        &self,
        forced: &TeacherForced,
        free: &FieldScores,
        grey: &FieldScores,
        unseen: &FieldScores,
    ) -> Vec<(String, Option<f64>)> {
        let mean = |kinds: &[usize]| {
            let tokens: u64 = kinds.iter().map(|kind| forced.tokens[*kind]).sum();
            let nll: f64 = kinds.iter().map(|kind| forced.nll[*kind]).sum();
            (tokens > 0).then(|| nll / tokens as f64)
        };
        let value = mean(&[0]);
        let mut metrics = vec![
            ("field_accuracy", free.fields.percent()),
            ("field_accuracy_forced", forced.fields.percent()),
            ("field_accuracy_unseen", unseen.fields.percent()),
            ("field_accuracy_grey", grey.fields.percent()),
            ("valid_json", free.valid_json.percent()),
            ("exact_object", free.exact_object.percent()),
            ("exact_match", free.exact_match.percent()),
            ("loss_value", value),
            ("loss_key", mean(&[1])),
            ("loss_structure", mean(&[2])),
            ("loss_all", mean(&[0, 1, 2])),
            ("perplexity_value", value.and_then(perplexity)),
        ]
        .into_iter()
        .filter(|(name, _)| self.metrics.iter().any(|metric| metric.name == *name))
        .map(|(name, value)| (name.to_owned(), value))
        .collect::<Vec<_>>();
        for (pointer, name) in &self.fields {
            let counts = free.named().find(|(known, _)| known == pointer);
            metrics.push((name.clone(), counts.and_then(|(_, counts)| counts.percent())));
        }
        metrics
    }
}

/// Returns `log p` of the target and the most probable token at each of `positions`.
fn forced_pass(
    network: &Network,
    config: &ForwardConfig,
    part: &ExampleBatch,
    positions: &[usize],
    device: &Device,
) -> (Vec<f32>, Vec<i64>) {
    let image = network.image_tokens(image_tensor(&part.images, part.side, device), config);
    let image_tokens = image.dims()[1];
    let hidden = network.hidden(image, tokens(&part.inputs, part.size, part.length, device), config);
    let count = positions.len();
    let rows = TensorData::new(hidden_rows(positions, part.length, image_tokens), [count]);
    let logits: Tensor<2> = network.logits(hidden.select(0, Tokens::<1>::from_data(rows, device)), config);
    let targets: Vec<i32> = positions.iter().map(|at| part.targets[*at]).collect();
    let targets = Tokens::<2>::from_data(TensorData::new(targets, [count, 1]), device);
    let argmax = logits.clone().argmax(1).into_data();
    let log_probabilities = log_softmax(logits, 1).gather(1, targets).into_data();
    (log_probabilities.iter::<f32>().collect(), argmax.iter::<i64>().collect())
}
