//! Validation: perplexity and answers of each precision on held-out questions, on the inner device.

use std::sync::Arc;

use xrun_ops::next_token_loss;

use super::batch::{BatchLoader, TokenBatch, validation_bytes};
use super::context::{QuantConfig, QuantContext};
use super::network::{Gpt2Network, loss_targets};
use super::precision::{Precision, names};
use super::prepare::Prepared;
use super::ranges::Ranges;
use super::settings::QatLanguageModel;
use super::training::QatLanguageModule;
use super::windowed_answers::best_answers;
use xrun_core::bounded::ledger::{Ledger, Registration};
use xrun_core::experiment::Experiment;
use xrun_core::task::{TaskError, ValidationReport};
use xrun_data::question_answers::example::Example;
use xrun_training::metrics::perplexity::perplexity;
use xrun_training::metrics::squad::SquadScore;
use xrun_training::nn::generate::{Completion, DecodeCache, GenerationLimits, complete};
use xrun_training::nn::micro_batches::MicroBatchSize;
use xrun_training::nn::module_task::Evaluation;
use xrun_training::nn::step::TrainState;
use xrun_training::nn::transformer::tokens;

/// State of all validations of a run.
#[derive(Debug)]
pub struct Validation {
    /// Source of the held-out questions.
    pub batches: BatchLoader,
    settings: QatLanguageModel,
    /// Maximum number of batches of a validation.
    batches_max: u64,
    /// Number of sequences of a micro-batch.
    micro_batch_size: Arc<MicroBatchSize>,
    batch: Registration,
    cache: DecodeCache,
}

/// Sums of one precision.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    /// Negative log-likelihood of the tokens that count.
    nll: f64,
    tokens: f64,
    /// Bytes of text of these tokens.
    bytes: f64,
    answers: SquadScore,
}

impl Validation {
    /// State before the first validation. Registers its buffers in the ledger.
    pub fn new(
        prepared: &Prepared,
        experiment: &Experiment,
        micro_batch_size: Arc<MicroBatchSize>,
        ledger: &Ledger,
    ) -> Self {
        Self {
            batches: prepared.batches.clone(),
            settings: prepared.settings.clone(),
            batches_max: experiment.validation.batches as u64,
            micro_batch_size,
            batch: prepared.buffers.validation_batch.register(ledger),
            cache: DecodeCache::new(prepared.buffers.decode_cache.register(ledger)),
        }
    }

    /// Runs `evaluate` while the ledger counts a batch of `bytes` bytes.
    pub fn reserving<T>(&self, bytes: u64, evaluate: impl FnOnce() -> T) -> T {
        self.batch.set(1, bytes);
        let result = evaluate();
        self.batch.set(0, 0);
        result
    }

    /// Evaluates all batches at all precisions. `network` is on the inner device. Passes with fixed ranges may be captured.
    pub fn run(
        &self,
        network: &Gpt2Network,
        precisions: &[Precision],
        config: &QuantConfig,
        ranges: &mut Ranges,
        has_fixed_ranges: bool,
        evaluation: &mut Evaluation<'_, QatLanguageModule>,
    ) -> Result<ValidationReport, TaskError> {
        let mut sums = vec![Sums::default(); precisions.len()];
        let captures = has_fixed_ranges.then_some(evaluation.trained);
        for number in 0..self.batches_max {
            evaluation.enter("validation_data");
            let examples = self.batches.held_out(number)?;
            if examples.is_empty() {
                break;
            }
            let batch = self.batches.validation_batch(&examples, self.settings.loss_tokens, number);
            evaluation.enter("validation");
            self.reserving(validation_bytes(&batch, &examples), || {
                precisions.iter().enumerate().try_for_each(|(at, precision)| {
                    let mut quant = QuantContext::new(config, Some((at, *precision)), ranges);
                    let captured = captures.map(|trained| (trained, at as u32));
                    self.evaluate(network, &batch, &examples, &mut quant, captured, &mut sums[at])
                })
            })?;
            evaluation.batch_done(number + 1, self.batches.validation_batches(self.batches_max));
        }
        Ok(ValidationReport { metrics: self.metrics(precisions, &sums), ..ValidationReport::default() })
    }

    /// Adds the loss and the answers of a batch at one precision to `sums`.
    fn evaluate(
        &self,
        network: &Gpt2Network,
        batch: &TokenBatch,
        examples: &[Arc<Example>],
        quant: &mut QuantContext<'_>,
        captured: Option<(&TrainState<Gpt2Network>, u32)>,
        sums: &mut Sums,
    ) -> Result<(), TaskError> {
        let device = network.inner_device();
        for micro_batch in batch.micro_batches(self.micro_batch_size.get()) {
            let inputs = tokens(&micro_batch.inputs, micro_batch.size, micro_batch.length, &device);
            let loss = next_token_loss(network.forward(inputs, quant), loss_targets(&micro_batch, None));
            sums.nll += loss.cross_entropy.into_data().iter::<f32>().next().map_or(f64::NAN, f64::from);
        }
        sums.tokens += batch.loss_target_count();
        let tokenizer = &self.batches.store.corpus.tokenizer;
        sums.bytes += batch.target_bytes(tokenizer) as f64;
        let prompts: Vec<Vec<&[u32]>> = examples.iter().map(|example| example.prompts().collect()).collect();
        for (completion, example) in self.answers(network, &prompts, quant, captured)?.iter().zip(examples) {
            let answer = completion.as_ref().map_or(String::new(), |completion| tokenizer.decode(&completion.tokens));
            sums.answers.add(&answer, &example.answers);
        }
        Ok(())
    }

    /// Returns the most probable answer to each question, which is given by the prompts of its windows. `captured` is that of [`complete`].
    ///
    /// # Errors
    /// The device fails.
    pub fn answers(
        &self,
        network: &Gpt2Network,
        prompts: &[Vec<&[u32]>],
        quant: &mut QuantContext<'_>,
        captured: Option<(&TrainState<Gpt2Network>, u32)>,
    ) -> Result<Vec<Option<Completion>>, TaskError> {
        let limits = GenerationLimits {
            eos_token: self.batches.store.corpus.tokenizer.eos_token(),
            tokens: self.settings.max_new_tokens,
            length: self.settings.sequence_length,
            sequences: self.micro_batch_size.get(),
        };
        let complete = |prompts: &[&[u32]]| complete(network, None, prompts, limits, &self.cache, quant, captured);
        best_answers(prompts, limits.sequences, complete)
    }

    fn metrics(&self, precisions: &[Precision], sums: &[Sums]) -> Vec<(String, Option<f64>)> {
        let mut metrics = Vec::with_capacity(1 + 4 * precisions.len());
        let entropies: Vec<f64> = sums.iter().map(|sums| sums.nll / sums.tokens.max(1.0)).collect();
        let mean = entropies.iter().sum::<f64>() / entropies.len().max(1) as f64;
        metrics.push(("perplexity".to_owned(), perplexity(mean)));
        for ((precision, sums), entropy) in precisions.iter().zip(sums).zip(entropies) {
            let names = names(precision.weights);
            let answers = sums.answers.mean();
            metrics.push((names.perplexity.to_owned(), perplexity(entropy)));
            metrics.push((names.exact_match.to_owned(), answers.map(|(exact, _)| exact)));
            metrics.push((names.f1.to_owned(), answers.map(|(_, f1)| f1)));
            let bits = sums.nll / std::f64::consts::LN_2 / sums.bytes;
            metrics.push((names.bits_per_byte.to_owned(), bits.is_finite().then_some(bits)));
        }
        metrics
    }
}
