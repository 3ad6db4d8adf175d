//! What does the model answer? Greedy: the likeliest token, again and again, for all questions of a batch at once.
//!
//! Each pass sees the whole sequences again. With ranges that stand still, as in validation, that gives the numbers of a
//! cache of quantised keys and values, without holding one.

use std::sync::Arc;

use burn::tensor::TensorData;

use super::gpt2::{Gpt2, Tokens, tokens};
use super::pass::Pass;
use crate::data::question_answers::example::Example;
use crate::nn::Backend;

/// At most `most` tokens after each prompt, without the `end`. The network is the plain one.
pub fn answers(
    network: &Gpt2<Backend>,
    examples: &[Arc<Example>],
    length: usize,
    most: usize,
    end: u32,
    pass: &mut Pass<'_>,
) -> Vec<Vec<u32>> {
    let device = network.plain_device();
    let mut rows: Vec<Vec<u32>> = examples.iter().map(|one| one.tokens[..one.prompt.min(length)].to_vec()).collect();
    let prompts: Vec<usize> = rows.iter().map(Vec::len).collect();
    let mut going: Vec<bool> = prompts.iter().map(|prompt| *prompt > 0).collect();
    for _ in 0..most {
        let at: Vec<usize> = (0..rows.len()).filter(|row| going[*row] && rows[*row].len() < length).collect();
        let Some(longest) = at.iter().map(|row| rows[*row].len()).max() else { break };
        let mut numbers = vec![end as i32; at.len() * longest];
        for (place, row) in at.iter().enumerate() {
            let filled = numbers[place * longest..].iter_mut().zip(&rows[*row]);
            filled.for_each(|(number, token)| *number = *token as i32);
        }
        // What is filled up lies after a row's last token, which cannot see it.
        let hidden = network.hidden(tokens(&numbers, at.len(), longest, &device), pass);
        let last: Vec<i32> =
            at.iter().enumerate().map(|(place, row)| (place * longest + rows[*row].len() - 1) as i32).collect();
        let last = Tokens::<1>::from_data(TensorData::new(last, [at.len()]), &device);
        let said = network.logits(hidden.select(0, last), pass).argmax(1).into_data();
        for (row, token) in at.iter().zip(said.iter::<i64>()) {
            match token as u32 == end {
                true => going[*row] = false,
                false => rows[*row].push(token as u32),
            }
        }
    }
    rows.into_iter().zip(prompts).map(|(row, prompt)| row[prompt..].to_vec()).collect()
}
