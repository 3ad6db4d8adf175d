//! Greedy decoding with a KV cache, for all prompts of a batch at once.
//!
//! Prompts have different lengths: the padding after a shorter one is masked. On a GPU the cache has fixed memory for as many sequences as
//! [`GenerationLimits::sequences`] and all their positions, so that each token is the same pass.

use std::sync::{Mutex, PoisonError};

use burn::module::Module;
use burn::tensor::TensorData;
use burn::tensor::activation::log_softmax;
use xrun_ops::in_place;

use super::Tensor;
use super::captured::{Inputs, Pass};
use super::gpt2::{CachePosition, ForwardContext, Gpt2Network, KvCache};
use super::pixels::fetch;
use super::step::TrainState;
use super::transformer::{padding_mask, tokens};
use xrun_core::bounded::ledger::{Registration, Reservation};
use xrun_core::task::TaskError;

/// Limits of a completion.
#[derive(Clone, Copy, Debug)]
pub struct GenerationLimits {
    /// End-of-text token.
    pub eos_token: u32,
    /// Maximum number of tokens of a completion.
    pub tokens: usize,
    /// Maximum number of tokens of prompt and completion together.
    pub length: usize,
    /// Number of sequences of a batch on a GPU, which are empty behind its last prompt.
    pub sequences: usize,
}

/// KV caches of a run: their ledger entry, and the one in fixed memory of a GPU.
#[derive(Debug)]
pub struct DecodeCache {
    registration: Registration,
    fixed: Mutex<Option<KvCache>>,
}

impl DecodeCache {
    /// Caches with this ledger entry, none yet.
    pub fn new(registration: Registration) -> Self {
        Self { registration, fixed: Mutex::new(None) }
    }

    /// Empty cache for a batch of at most `positions` tokens, and what the ledger counts of it for as long as it is used. A captured pass
    /// writes one that is kept; its shape changes only when captures are dropped.
    fn begin(
        &self,
        network: &Gpt2Network,
        positions: usize,
        batch: usize,
        is_captured: bool,
    ) -> (KvCache, Option<Reservation<'_>>) {
        if !in_place::is_possible(&network.embedding_matrix()) {
            return (KvCache::Growing(Vec::new()), Some(self.registration.reserve()));
        }
        let mut fixed = self.fixed.lock().unwrap_or_else(PoisonError::into_inner);
        let cache = KvCache::fixed(network, positions, batch, fixed.take());
        self.registration.set(0, 0);
        match is_captured {
            true => {
                self.registration.set(1, cache.bytes());
                (fixed.insert(cache).clone(), None)
            }
            false => (cache, Some(self.registration.reserve())),
        }
    }
}

/// Completion of a prompt.
#[derive(Clone, Debug, PartialEq)]
pub struct Completion {
    /// Generated tokens without the end-of-text token.
    pub tokens: Vec<u32>,
    /// Mean of `log p` over the tokens and the end-of-text token if it was reached; NaN without any.
    pub mean_log_probability: f64,
}

/// Completes each prompt, truncated to [`GenerationLimits::length`]. `prefix` are embeddings, `[batch, n, width]`, in front of those of the
/// prompts (for example of an image); they count towards no limit. The network is without autodiff. The pass of a token may be captured
/// with `captured`, as one of this kind.
///
/// # Errors
/// The device fails.
pub fn complete<M: Module>(
    network: &Gpt2Network,
    prefix: Option<Tensor<3>>,
    prompts: &[&[u32]],
    limits: GenerationLimits,
    cache: &DecodeCache,
    context: &mut impl ForwardContext,
    captured: Option<(&TrainState<M>, u32)>,
) -> Result<Vec<Completion>, TaskError> {
    let (device, asked) = (network.inner_device(), prompts.len());
    let mut prompts: Vec<&[u32]> = prompts.iter().map(|prompt| &prompt[..prompt.len().min(limits.length)]).collect();
    let before = prefix.as_ref().map_or(0, |prefix| prefix.dims()[1]);
    let positions_max = before + limits.length + limits.tokens;
    if in_place::is_possible(&network.embedding_matrix()) {
        prompts.resize(limits.sequences.max(asked), &[]);
    }
    let batch = prompts.len();
    let is_captured = captured.is_some_and(|(trained, _)| trained.captures_passes());
    let (mut cached, mut reservation) = cache.begin(network, positions_max, batch, is_captured);
    let longest = prompts.iter().map(|prompt| prompt.len()).max().unwrap_or_default().max(1);
    let mut numbers = vec![limits.eos_token as i32; batch * longest];
    for (row, prompt) in prompts.iter().enumerate() {
        let filled = numbers[row * longest..].iter_mut().zip(*prompt);
        filled.for_each(|(number, token)| *number = *token as i32);
    }
    let text = network.token_embeddings(tokens(&numbers, batch, longest, &device), context);
    let embeddings = match prefix {
        Some(prefix) => {
            let [_, count, width] = prefix.dims();
            let empty = (batch > asked).then(|| Tensor::zeros([batch - asked, count, width], &device));
            let prefix = Tensor::cat([prefix].into_iter().chain(empty).collect(), 0);
            Tensor::cat(vec![prefix, text], 1)
        }
        None => text,
    };
    let hidden = network.hidden_of_embeddings(embeddings, Some(&mut cached), context);
    let first = before + longest;
    let ints = |numbers: Vec<i32>| {
        let count = numbers.len();
        TensorData::new(numbers, [count])
    };
    let last = prompts.iter().enumerate().map(|(row, prompt)| row * first + before + prompt.len().max(1) - 1);
    let last = Inputs::on_host(vec![ints(last.map(|row| row as i32).collect())], &device).ints();
    let choose = |logits: Tensor<2>| {
        let best = logits.clone().argmax(1);
        let probability = log_softmax(logits, 1).gather(1, best.clone());
        vec![best.float().reshape([-1]), probability.reshape([-1])]
    };
    // Token of each sequence, exact as a float, and its `log p`.
    let mut chosen = fetch(choose(network.logits(hidden.select(0, last), context)));
    let lengths: Vec<usize> = prompts.iter().map(|prompt| before + prompt.len()).collect();
    let mut completions: Vec<Vec<u32>> = vec![Vec::new(); batch];
    let mut sums = vec![(0.0, 0_u32); batch];
    let mut active: Vec<bool> = prompts.iter().map(|prompt| !prompt.is_empty()).collect();
    for number in 0..limits.tokens {
        if let Some(reservation) = &mut reservation {
            reservation.set(cached.bytes());
        }
        for (row, (token, probability)) in chosen[0].iter().zip(&chosen[1]).enumerate() {
            active[row] &= prompts[row].len() + number < limits.length;
            if !active[row] {
                continue;
            }
            let (sum, count) = &mut sums[row];
            (*sum, *count) = (*sum + f64::from(*probability), *count + 1);
            match *token as u32 {
                token if token == limits.eos_token => active[row] = false,
                token => completions[row].push(token),
            }
        }
        if number + 1 == limits.tokens || !active.iter().any(|active| *active) {
            break;
        }
        // Finished rows stay in the batch, at the last position; their tokens are ignored.
        let position = |prompt: &&[u32]| (before + (prompt.len() + number).min(limits.length - 1)) as i32;
        let (row, state) = (first + number, cached.tables());
        let positions = if state.is_empty() { row + 1 } else { positions_max };
        let inputs = vec![
            ints(chosen[0].iter().map(|token| *token as i32).collect()),
            ints(prompts.iter().map(position).collect()),
            ints(vec![row as i32]),
            padding_mask(&lengths, first..row + 1, positions),
        ];
        let mut decode = |inputs: &mut Inputs<'_>| {
            let (token, position, row) = (inputs.ints(), inputs.ints(), inputs.ints());
            let place = CachePosition { row, mask: inputs.floats() };
            let hidden = network.decode(token, position, &place, &mut cached, context);
            choose(network.logits(hidden, context))
        };
        chosen = match captured {
            Some((trained, kind)) => {
                let pass = Pass { kind: vec![kind], inputs, state, ..Pass::default() };
                trained.outputs(pass, &mut decode)?
            }
            None => fetch(decode(&mut Inputs::on_host(inputs, &device))),
        };
    }
    let mean = |(sum, count): (f64, u32)| sum / f64::from(count);
    let completions = completions.into_iter().zip(sums).take(asked);
    Ok(completions.map(|(tokens, sums)| Completion { tokens, mean_log_probability: mean(sums) }).collect())
}
