//! Greedy decoding with a KV cache, for all prompts of a batch at once.
//!
//! Prompts have different lengths: the padding after a shorter one is masked.

use burn::tensor::TensorData;
use burn::tensor::activation::log_softmax;

use super::Tensor;
use super::gpt2::{ForwardContext, Gpt2Network, KvCache};
use super::transformer::{Tokens, padding_mask, tokens};
use xrun_core::bounded::ledger::Registration;

/// Limits of a completion.
#[derive(Clone, Copy, Debug)]
pub struct GenerationLimits {
    /// End-of-text token.
    pub eos_token: u32,
    /// Maximum number of tokens of a completion.
    pub tokens: usize,
    /// Maximum number of tokens of prompt and completion together.
    pub length: usize,
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
/// prompts (for example of an image); they count towards no limit. The network is without autodiff, and `cache` is the ledger entry
/// of the KV cache.
pub fn complete(
    network: &Gpt2Network,
    prefix: Option<Tensor<3>>,
    prompts: &[&[u32]],
    limits: GenerationLimits,
    cache: &Registration,
    context: &mut impl ForwardContext,
) -> Vec<Completion> {
    let (device, batch) = (network.inner_device(), prompts.len());
    let prompts: Vec<&[u32]> = prompts.iter().map(|prompt| &prompt[..prompt.len().min(limits.length)]).collect();
    let longest = prompts.iter().map(|prompt| prompt.len()).max().unwrap_or_default().max(1);
    let mut numbers = vec![limits.eos_token as i32; batch * longest];
    for (row, prompt) in prompts.iter().enumerate() {
        let filled = numbers[row * longest..].iter_mut().zip(*prompt);
        filled.for_each(|(number, token)| *number = *token as i32);
    }
    let before = prefix.as_ref().map_or(0, |prefix| prefix.dims()[1]);
    let text = network.token_embeddings(tokens(&numbers, batch, longest, &device), context);
    let embeddings = match prefix {
        Some(prefix) => Tensor::cat(vec![prefix, text], 1),
        None => text,
    };
    let (mut cached, mut reservation) = (KvCache::default(), cache.reserve());
    let hidden = network.hidden_of_embeddings(embeddings, Some(&mut cached), context);
    let first = before + longest;
    let on_device = |numbers: Vec<i32>| Tokens::<1>::from_data(TensorData::new(numbers, [batch]), &device);
    let last = prompts.iter().enumerate().map(|(row, prompt)| row * first + before + prompt.len().max(1) - 1);
    let last = on_device(last.map(|row| row as i32).collect());
    let mut logits = network.logits(hidden.select(0, last), context);
    let lengths: Vec<usize> = prompts.iter().map(|prompt| before + prompt.len()).collect();
    let padding = padding_mask(&lengths, first, &device);
    let mut completions: Vec<Vec<u32>> = vec![Vec::new(); batch];
    let mut sums = vec![(0.0, 0_u32); batch];
    let mut active: Vec<bool> = prompts.iter().map(|prompt| !prompt.is_empty()).collect();
    for number in 0..limits.tokens {
        reservation.set(cached.bytes());
        let best = logits.clone().argmax(1);
        let probabilities = log_softmax(logits, 1).gather(1, best.clone()).into_data();
        let best: Vec<u32> = best.into_data().iter::<i64>().map(|token| token as u32).collect();
        for (row, (token, probability)) in best.iter().zip(probabilities.iter::<f32>()).enumerate() {
            active[row] &= prompts[row].len() + number < limits.length;
            if !active[row] {
                continue;
            }
            let (sum, count) = &mut sums[row];
            (*sum, *count) = (*sum + f64::from(probability), *count + 1);
            match *token == limits.eos_token {
                true => active[row] = false,
                false => completions[row].push(*token),
            }
        }
        if number + 1 == limits.tokens || !active.iter().any(|active| *active) {
            break;
        }
        let token = on_device(best.iter().map(|token| *token as i32).collect());
        // Finished rows stay in the batch, at the last position; their tokens are ignored.
        let position = |prompt: &&[u32]| before + (prompt.len() + number).min(limits.length - 1);
        let position = on_device(prompts.iter().map(|prompt| position(prompt) as i32).collect());
        let generated = Tensor::zeros([batch, number + 1], &device);
        let mask = Tensor::cat(vec![padding.clone(), generated], 1);
        let hidden = network.decode(token, position, &mask, &mut cached, context);
        logits = network.logits(hidden, context);
    }
    let mean = |(sum, count): (f64, u32)| sum / f64::from(count);
    let completions = completions.into_iter().zip(sums);
    completions.map(|(tokens, sums)| Completion { tokens, mean_log_probability: mean(sums) }).collect()
}
