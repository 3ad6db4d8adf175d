//! How well does the model answer about held-out pictures? Without autodiff, one batch at a time; numbers are all that is kept.

use std::sync::Arc;

use burn::tensor::Device;
use burn::tensor::TensorData;
use burn::tensor::activation::log_softmax;

use super::batch::{Batches, ExampleBatch, validation_bytes};
use super::metrics;
use super::network::{Rules, VisionLanguage, pictures};
use super::prepare::Prepared;
use super::selective::{TokenKind, Weighed};
use super::shown;
use super::training::{VisionLanguageModule, rows_of};
use crate::metrics::fields::{AnswerComparison, FieldScores, Tally};
use crate::metrics::perplexity::perplexity;
use crate::nn::Tensor;
use crate::nn::generate::{Limits, complete};
use crate::nn::micro_batches::MicroBatchExecutor;
use crate::nn::module_task::Evaluation;
use crate::nn::transformer::{Tokens, tokens};
use xrun_core::bounded::ledger::{Holding, Ledger};
use xrun_core::dataset::error::DataError;
use xrun_core::dataset::sample::HostImage;
use xrun_core::dataset::split::Split;
use xrun_core::experiment::Experiment;
use xrun_core::task::{Metric, TaskError, ValidationReport};
use xrun_data::image_text::store::{Example, ImageTextStore};

type Network = VisionLanguage;

/// A grey that tells nothing: each byte of a picture.
const GREY: u8 = 128;

/// What every validation uses again.
pub struct Validation {
    batches: Batches,
    episodes: u64,
    free_answers: usize,
    answer_tokens: usize,
    grey_pictures: bool,
    /// Fields that have a metric, by their JSON pointers and its name.
    fields: Vec<(String, String)>,
    /// What can be measured on this data.
    metrics: Vec<Metric>,
    /// For the report.
    pictures: usize,
    selective: super::selective::Settings,
    executor: Arc<MicroBatchExecutor>,
    batch: Holding,
    cache: Holding,
    _counts: Holding,
}

/// Sums over the tokens of answers, given the true text before each.
#[derive(Default)]
struct Forced {
    /// Of `-log p`, and of tokens, by kind: values, keys, structure.
    surprise: [f64; 3],
    tokens: [u64; 3],
    /// Fields all of whose tokens are the likeliest.
    fields: Tally,
}

/// A batch of held-out examples.
struct HeldOut {
    examples: Vec<Example>,
    batch: ExampleBatch,
    weighed: Vec<Weighed>,
}

/// Which answers are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Pictures,
    Grey,
}

impl Validation {
    /// What every validation uses again. Its buffers enter the ledger.
    pub fn new(
        prepared: &Prepared,
        experiment: &Experiment,
        executor: Arc<MicroBatchExecutor>,
        ledger: &Ledger,
    ) -> Self {
        let Prepared { settings, batches, buffers, fields, .. } = prepared;
        let pointers: Vec<String> = fields.iter().map(|(pointer, _)| pointer.clone()).collect();
        let has_unseen = batches.store().count(Split::Unseen) > 0;
        let counts = buffers.field_counts.register(ledger);
        counts.set(buffers.field_counts.cap.items, buffers.field_counts.cap.bytes);
        Self {
            batches: batches.clone(),
            episodes: experiment.validation.episodes as u64,
            free_answers: settings.free_answers,
            answer_tokens: settings.answer_tokens,
            grey_pictures: settings.grey_pictures,
            fields: fields.clone(),
            metrics: metrics::of_data(&pointers, has_unseen, settings.grey_pictures),
            pictures: experiment.validation.pictures,
            selective: settings.selective.clone(),
            executor,
            batch: buffers.validation_batch.register(ledger),
            cache: buffers.decode_cache.register(ledger),
            _counts: counts,
        }
    }

    /// What reads the examples.
    pub fn store(&self) -> &Arc<ImageTextStore> {
        self.batches.store()
    }

    /// Held-out batch `number`; `None` where there are no more.
    fn held_out(&self, split: Split, number: u64) -> Result<Option<HeldOut>, DataError> {
        let (numbers, examples) = self.batches.held_out(split, number)?;
        if numbers.is_empty() {
            return Ok(None);
        }
        let described = format!("validation batch {number}");
        let (batch, weighed) = self.batches.of(&examples, &numbers, false, &described)?;
        self.batch.set(1, validation_bytes(&batch, &examples, &weighed));
        Ok(Some(HeldOut { examples, batch, weighed }))
    }

    /// For tests.
    #[cfg(test)]
    pub fn first_batch(&self) -> Option<ExampleBatch> {
        self.held_out(Split::Validation, 0).ok().flatten().map(|held_out| held_out.batch)
    }

    /// `network` is the plain one.
    ///
    /// # Errors
    /// The data.
    pub fn run(
        &self,
        network: &Network,
        rules: &Rules,
        evaluation: &mut Evaluation<'_, VisionLanguageModule>,
    ) -> Result<ValidationReport, TaskError> {
        let mut forced = Forced::default();
        let (mut free, mut grey, mut unseen) = (FieldScores::default(), FieldScores::default(), FieldScores::default());
        let mut shown = Vec::new();
        let mut left = self.free_answers;
        for number in 0..self.episodes {
            evaluation.enter("validation_data");
            let Some(held_out) = self.held_out(Split::Validation, number)? else { break };
            evaluation.enter("validation");
            self.force(network, rules, &held_out, &mut forced);
            evaluation.output(&held_out.batch)?;
            evaluation.enter("free_answers");
            let examples = &held_out.examples[..left.min(held_out.examples.len())];
            left -= examples.len();
            for (example, said) in self.answers(network, rules, examples, Seen::Pictures) {
                let judged = free.add(&said, &example.text.answer_text);
                if shown.len() < self.pictures {
                    shown.push(self.show(example, &said, &judged, shown.is_empty()));
                }
            }
            if self.grey_pictures {
                for (example, said) in self.answers(network, rules, examples, Seen::Grey) {
                    grey.add(&said, &example.text.answer_text);
                }
            }
        }
        let mut left = self.free_answers;
        for number in 0..self.episodes {
            if left == 0 {
                break;
            }
            evaluation.enter("validation_data");
            let Some(held_out) = self.held_out(Split::Unseen, number)? else { break };
            evaluation.enter("free_answers");
            let examples = &held_out.examples[..left.min(held_out.examples.len())];
            left -= examples.len();
            for (example, said) in self.answers(network, rules, examples, Seen::Pictures) {
                unseen.add(&said, &example.text.answer_text);
            }
        }
        self.batch.set(0, 0);
        let metrics = self.metrics(&forced, &free, &grey, &unseen);
        Ok(ValidationReport { metrics, pictures: shown, ..ValidationReport::default() })
    }

    /// Looks at each token of the answers with the true text before it.
    fn force(
        &self,
        network: &Network,
        rules: &Rules,
        HeldOut { examples, batch, weighed }: &HeldOut,
        forced: &mut Forced,
    ) {
        let device = network.inner_device();
        // Whether the token at a position of the batch is the likeliest.
        let mut likeliest = vec![false; batch.targets.len()];
        let parts = self.executor.split(batch.size);
        let passes = self.executor.forward(network, &parts, |network, rows| {
            let part = batch.rows_or_all(rows.clone());
            let answered = part.answered();
            let pass = (!answered.is_empty()).then(|| forced_pass(network, rules, &part, &answered, &device));
            (answered, pass)
        });
        for (rows, (answered, pass)) in parts.iter().zip(passes) {
            let Some((surprise, said)) = pass else { continue };
            let first = rows.start * batch.length;
            for ((at, surprise), said) in answered.iter().map(|at| first + at).zip(surprise).zip(said) {
                likeliest[at] = said == i64::from(batch.targets[at]);
                let Some(kind) = batch.kinds[at] else { continue };
                let kind = match kind {
                    TokenKind::Value => 0,
                    TokenKind::Key => 1,
                    TokenKind::Structure => 2,
                };
                forced.surprise[kind] -= f64::from(surprise);
                forced.tokens[kind] += 1;
            }
        }
        for (row, (example, weighed)) in examples.iter().zip(weighed).enumerate() {
            // The target of the prompt's last token is the answer's first.
            let answer = (row * batch.length + example.text.prompt.len()).saturating_sub(1);
            for tokens in &weighed.fields {
                forced.fields.add(likeliest[answer + tokens.start..answer + tokens.end].iter().all(|right| *right));
            }
        }
    }

    /// Of the data that is validated on.
    pub fn batches(&self) -> &Batches {
        &self.batches
    }

    /// What the model says about each of a few examples, at most a batch, as text.
    pub fn free_answers(&self, network: &Network, rules: &Rules, examples: &[Example]) -> Vec<String> {
        self.answers(network, rules, examples, Seen::Pictures).map(|(_, said)| said).collect()
    }

    /// What the model says about each example, as text.
    fn answers<'a>(
        &self,
        network: &Network,
        rules: &Rules,
        examples: &'a [Example],
        seen: Seen,
    ) -> impl Iterator<Item = (&'a Example, String)> + use<'a> {
        let device = network.inner_device();
        let tokenizer = self.store().tokenizer();
        let limits = Limits { end: tokenizer.end(), tokens: self.answer_tokens, length: self.batches.length() };
        let parts = self.executor.split(examples.len());
        let all = self.executor.forward(network, &parts, |network, range| {
            let part = &examples[range.clone()];
            let rgb: Vec<u8> = match seen {
                Seen::Pictures => part.iter().flat_map(|example| example.picture.rgb.iter().copied()).collect(),
                Seen::Grey => vec![GREY; part.iter().map(|example| example.picture.rgb.len()).sum()],
            };
            let image = network.image_tokens(pictures(&rgb, self.batches.side(), &device), rules);
            let prompts: Vec<&[u32]> = part.iter().map(|example| example.text.prompt.as_slice()).collect();
            let said = complete(&network.language, Some(image), &prompts, limits, &self.cache, &mut { rules });
            said.iter().map(|said| tokenizer.decode(&said.tokens)).collect::<Vec<String>>()
        });
        examples.iter().zip(all.into_iter().flatten())
    }

    /// A picture for the report with what was said of it; with the first one, which tokens of its answer are masked.
    fn show(&self, example: &Example, said: &str, judged: &AnswerComparison, first: bool) -> (HostImage, String) {
        let mut caption = shown::caption(&example.text.question, said, &example.text.answer_text, judged);
        if first {
            caption += &shown::masking(&example.text, self.store().tokenizer(), &self.selective);
        }
        (example.picture.clone(), caption)
    }

    fn metrics(
        &self,
        forced: &Forced,
        free: &FieldScores,
        grey: &FieldScores,
        unseen: &FieldScores,
    ) -> Vec<(String, Option<f64>)> {
        let mean = |kinds: &[usize]| {
            let tokens: u64 = kinds.iter().map(|kind| forced.tokens[*kind]).sum();
            let surprise: f64 = kinds.iter().map(|kind| forced.surprise[*kind]).sum();
            (tokens > 0).then(|| surprise / tokens as f64)
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

/// `log p` of the true token at each of these positions, and which token is the likeliest there.
fn forced_pass(
    network: &Network,
    rules: &Rules,
    part: &ExampleBatch,
    positions: &[usize],
    device: &Device,
) -> (Vec<f32>, Vec<i64>) {
    let image = network.image_tokens(pictures(&part.pictures, part.side, device), rules);
    let image_tokens = image.dims()[1];
    let hidden = network.hidden(image, tokens(&part.inputs, part.size, part.length, device), rules);
    let count = positions.len();
    let rows = TensorData::new(rows_of(positions, part.length, image_tokens), [count]);
    let logits: Tensor<2> = network.logits(hidden.select(0, Tokens::<1>::from_data(rows, device)), rules);
    let targets: Vec<i32> = positions.iter().map(|at| part.targets[*at]).collect();
    let targets = Tokens::<2>::from_data(TensorData::new(targets, [count, 1]), device);
    let said = logits.clone().argmax(1).into_data();
    let sure = log_softmax(logits, 1).gather(1, targets).into_data();
    (sure.iter::<f32>().collect(), said.iter::<i64>().collect())
}
