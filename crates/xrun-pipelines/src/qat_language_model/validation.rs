//! How well does each precision know held-out text, and answer its questions? Without autodiff, one batch at a time.

use std::sync::Arc;

use xrun_ops::next_token_loss;

use super::answer::surest;
use super::batch::{Batches, TokenBatch, validation_bytes};
use super::context::{QuantContext, Rules};
use super::gpt2::{Gpt2, targets};
use super::precision::{Precision, names};
use super::prepare::Prepared;
use super::ranges::Ranges;
use super::settings::{Settings, batch_size};
use super::training::QatLanguageModule;
use crate::metrics::perplexity::perplexity;
use crate::metrics::squad::SquadScore;
use crate::nn::generate::{Completion, Limits, complete};
use crate::nn::module_task::Evaluation;
use crate::nn::transformer::tokens;
use xrun_core::bounded::ledger::{Holding, Ledger};
use xrun_core::experiment::Experiment;
use xrun_core::task::{TaskError, ValidationReport};
use xrun_data::question_answers::example::Example;

/// What every validation uses again.
#[derive(Debug)]
pub struct Validation {
    /// What tokenises the held-out questions.
    pub batches: Batches,
    settings: Settings,
    episodes: u64,
    /// Sequences that are on the device at once.
    part_size: usize,
    batch: Holding,
    cache: Holding,
}

/// Sums of one precision.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    /// Of `-log p`, over tokens that count.
    surprise: f64,
    tokens: f64,
    /// Of text that these tokens stand for.
    bytes: f64,
    answers: SquadScore,
}

impl Validation {
    /// What every validation uses again. Its buffer enters the ledger.
    pub fn new(prepared: &Prepared, experiment: &Experiment, ledger: &Ledger) -> Self {
        Self {
            batches: prepared.batches.clone(),
            settings: prepared.settings.clone(),
            episodes: experiment.validation.episodes as u64,
            part_size: experiment.limits.batch_size.min(batch_size(&experiment.training)),
            batch: prepared.buffers.validation_batch.register(ledger),
            cache: prepared.buffers.decode_cache.register(ledger),
        }
    }

    /// Says that a batch of so many bytes is looked at, while `use_it` does.
    pub fn counted<T>(&self, bytes: u64, use_it: impl FnOnce() -> T) -> T {
        self.batch.set(1, bytes);
        let result = use_it();
        self.batch.set(0, 0);
        result
    }

    /// All batches at all precisions. `network` is the plain one.
    pub fn run(
        &self,
        network: &Gpt2,
        precisions: &[Precision],
        rules: &Rules,
        ranges: &mut Ranges,
        evaluation: &mut Evaluation<'_, QatLanguageModule>,
    ) -> Result<ValidationReport, TaskError> {
        let mut sums = vec![Sums::default(); precisions.len()];
        for number in 0..self.episodes {
            evaluation.enter("validation_data");
            let examples = self.batches.validation(number)?;
            if examples.is_empty() {
                break; // there are fewer questions than were asked for
            }
            let batch = self.batches.of(&examples, self.settings.loss_on, number);
            evaluation.enter("validation");
            self.counted(validation_bytes(&batch, &examples), || {
                for (at, precision) in precisions.iter().enumerate() {
                    let mut pass = QuantContext {
                        rules,
                        at: Some((at, *precision)),
                        ranges: &mut *ranges,
                        observe: None,
                        frozen: true,
                    };
                    self.look(network, &batch, &examples, &mut pass, &mut sums[at]);
                }
            });
        }
        Ok(ValidationReport { metrics: self.metrics(precisions, &sums), ..ValidationReport::default() })
    }

    fn look(
        &self,
        network: &Gpt2,
        batch: &TokenBatch,
        examples: &[Arc<Example>],
        pass: &mut QuantContext<'_>,
        sums: &mut Sums,
    ) {
        let device = network.inner_device();
        for part in batch.parts(self.part_size) {
            let logits = network.forward(tokens(&part.inputs, part.size, part.length, &device), pass);
            let surprise = next_token_loss(logits, targets(&part, None)).cross_entropy.into_data();
            sums.surprise += surprise.iter::<f32>().next().map_or(f64::NAN, f64::from);
        }
        sums.tokens += batch.weights.iter().map(|weight| f64::from(*weight)).sum::<f64>();
        let tokenizer = &self.batches.store().corpus().tokenizer;
        sums.bytes += batch.counted_bytes(tokenizer) as f64;
        let prompts: Vec<Vec<&[u32]>> = examples.iter().map(|example| example.prompts().collect()).collect();
        for (said, example) in self.answers(network, &prompts, pass).iter().zip(examples) {
            let said = said.as_ref().map_or(String::new(), |said| tokenizer.decode(&said.tokens));
            sums.answers.add(&said, &example.answers);
        }
    }

    /// Of each question, with the prompts of its windows, the answer that the model is surest of.
    pub fn answers(
        &self,
        network: &Gpt2,
        prompts: &[Vec<&[u32]>],
        pass: &mut QuantContext<'_>,
    ) -> Vec<Option<Completion>> {
        let end = self.batches.store().corpus().tokenizer.end();
        let limits = Limits { end, tokens: self.settings.answer_tokens, length: self.settings.sequence_length };
        surest(prompts, self.part_size, |prompts| complete(network, None, prompts, limits, &self.cache, pass))
    }

    fn metrics(&self, precisions: &[Precision], sums: &[Sums]) -> Vec<(String, Option<f64>)> {
        let mut metrics = Vec::with_capacity(1 + 4 * precisions.len());
        let entropies: Vec<f64> = sums.iter().map(|sums| sums.surprise / sums.tokens.max(1.0)).collect();
        let mean = entropies.iter().sum::<f64>() / entropies.len().max(1) as f64;
        metrics.push(("perplexity".to_owned(), perplexity(mean)));
        for ((precision, sums), entropy) in precisions.iter().zip(sums).zip(entropies) {
            let names = names(precision.weights);
            let answers = sums.answers.mean();
            metrics.push((names.perplexity.to_owned(), perplexity(entropy)));
            metrics.push((names.exact_match.to_owned(), answers.map(|(exact, _)| exact)));
            metrics.push((names.f1.to_owned(), answers.map(|(_, f1)| f1)));
            let bits = sums.surprise / std::f64::consts::LN_2 / sums.bytes;
            metrics.push((names.bits_per_byte.to_owned(), bits.is_finite().then_some(bits)));
        }
        metrics
    }
}
