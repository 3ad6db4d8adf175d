//! What does the model answer? Greedy: the likeliest token, again and again, for all examples of a batch at once.
//!
//! Keys and values of all tokens are kept while a batch is answered, so that each pass after the first is of one token a row.
//! Prompts have different lengths: what fills a shorter one up is hidden from what comes after.

use burn::tensor::TensorData;

use super::network::{KeptTokens, Rules, VisionLanguage};
use crate::nn::Tensor;
use crate::nn::transformer::{Tokens, hidden_after, tokens};
use xrun_core::bounded::ledger::Holding;

/// What an answer may be.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The token that ends a text.
    pub end: u32,
    /// Tokens of an answer.
    pub tokens: usize,
    /// Text tokens of prompt and answer together, for which there are positions.
    pub text: usize,
}

/// The tokens said after each prompt, without the end of text. `image` is `[batch, I, width]` and the network the plain one;
/// `cache` says what is kept meanwhile.
pub fn answers(
    network: &VisionLanguage,
    image: Tensor<3>,
    prompts: &[&[u32]],
    limits: Limits,
    cache: &Holding,
    rules: &Rules,
) -> Vec<Vec<u32>> {
    let device = network.plain_device();
    let [batch, image_tokens, _] = image.dims();
    let longest = prompts.iter().map(|prompt| prompt.len()).max().unwrap_or_default().max(1);
    let mut numbers = vec![limits.end as i32; batch * longest];
    for (row, prompt) in prompts.iter().enumerate() {
        let filled = numbers[row * longest..].iter_mut().zip(*prompt);
        filled.for_each(|(number, token)| *number = *token as i32);
    }
    let (mut kept, mut held) = (KeptTokens::default(), cache.share());
    let hidden = network.begin(image, tokens(&numbers, batch, longest, &device), &mut kept, rules);
    let first = image_tokens + longest;
    let last = |row: usize| (row * first + image_tokens + prompts[row].len() - 1) as i32;
    let last: Vec<i32> = (0..batch).map(last).collect();
    let on_device = |numbers: Vec<i32>| Tokens::<1>::from_data(TensorData::new(numbers, [batch]), &device);
    let mut next = network.logits(hidden.select(0, on_device(last)), rules);
    let mut said: Vec<Vec<u32>> = vec![Vec::new(); batch];
    let mut going: Vec<bool> = prompts.iter().map(|prompt| !prompt.is_empty()).collect();
    // Prompts of their own lengths are seen; what fills them up, between them and the answer, is not.
    let visible: Vec<usize> = prompts.iter().map(|prompt| image_tokens + prompt.len()).collect();
    let filling = hidden_after(&visible, first, &device);
    for number in 0..limits.tokens {
        held.set(kept.bytes());
        let likeliest: Vec<u32> = next.argmax(1).into_data().iter::<i64>().map(|token| token as u32).collect();
        for (row, token) in likeliest.iter().enumerate() {
            going[row] &= *token != limits.end && prompts[row].len() + number < limits.text;
            if going[row] {
                said[row].push(*token);
            }
        }
        if number + 1 == limits.tokens || !going.iter().any(|going| *going) {
            break;
        }
        let token = on_device(likeliest.iter().map(|token| *token as i32).collect());
        // Rows that have ended go on to the last position; nobody looks at what they say.
        let position = |prompt: &&[u32]| image_tokens + (prompt.len() + number).min(limits.text - 1);
        let position = on_device(prompts.iter().map(|prompt| position(prompt) as i32).collect());
        let own = Tensor::zeros([batch, number + 1], &device);
        let hidden = Tensor::cat(vec![filling.clone(), own], 1);
        next = network.logits(network.go_on(token, position, hidden, &mut kept, rules), rules);
    }
    said
}
