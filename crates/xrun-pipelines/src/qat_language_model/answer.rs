//! What does the model answer? Greedy: the likeliest token, again and again, for all questions of a batch at once.
//!
//! Each pass sees the whole sequences again. With ranges that stand still, as in validation, that gives the numbers of a
//! cache of quantised keys and values, without holding one.

use burn::tensor::TensorData;
use burn::tensor::activation::log_softmax;

use super::gpt2::Gpt2;
use super::pass::Pass;
use crate::nn::transformer::{Tokens, tokens};

/// What was said after a prompt.
#[derive(Clone, Debug, PartialEq)]
pub struct Said {
    /// Without the end of the text.
    pub tokens: Vec<u32>,
    /// Of `log p`, over the tokens that were said and the end if it was: how sure the model is of it, whatever its length.
    pub mean: f64,
}

/// At most `most` tokens after each prompt, without the `end`. The network is the plain one.
pub fn answers(
    network: &Gpt2,
    prompts: &[&[u32]],
    length: usize,
    most: usize,
    end: u32,
    pass: &mut Pass<'_>,
) -> Vec<Said> {
    let device = network.plain_device();
    let mut rows: Vec<Vec<u32>> = prompts.iter().map(|prompt| prompt[..prompt.len().min(length)].to_vec()).collect();
    let prompts: Vec<usize> = rows.iter().map(Vec::len).collect();
    let mut going: Vec<bool> = prompts.iter().map(|prompt| *prompt > 0).collect();
    let mut sums = vec![(0.0, 0u32); rows.len()];
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
        let logits = network.logits(hidden.select(0, last), pass);
        let said = logits.clone().argmax(1);
        let sure = log_softmax(logits, 1).gather(1, said.clone()).into_data();
        let said = said.into_data();
        for ((row, token), sure) in at.iter().zip(said.iter::<i64>()).zip(sure.iter::<f32>()) {
            let (sum, count) = &mut sums[*row];
            (*sum, *count) = (*sum + f64::from(sure), *count + 1);
            match token as u32 == end {
                true => going[*row] = false,
                false => rows[*row].push(token as u32),
            }
        }
    }
    let said = rows.into_iter().zip(prompts).zip(sums);
    said.map(|((row, prompt), (sum, count))| Said { tokens: row[prompt..].to_vec(), mean: sum / f64::from(count) })
        .collect()
}

/// The answers of a few questions, each with the prompts of its windows: of each question the one that the model is surest
/// of, the first of equals; `None` of a question without prompts. `at_once` prompts are in a pass, whatever their number in all.
pub fn surest(
    prompts: &[Vec<&[u32]>],
    at_once: usize,
    mut answers: impl FnMut(&[&[u32]]) -> Vec<Said>,
) -> Vec<Option<Said>> {
    let all: Vec<(usize, &[u32])> =
        prompts.iter().enumerate().flat_map(|(at, prompts)| prompts.iter().map(move |prompt| (at, *prompt))).collect();
    let mut best: Vec<Option<Said>> = vec![None; prompts.len()];
    for part in all.chunks(at_once.max(1)) {
        let prompts: Vec<&[u32]> = part.iter().map(|(_, prompt)| *prompt).collect();
        for ((at, _), said) in part.iter().zip(answers(&prompts)) {
            // Of a model whose numbers are none, the first.
            if best[*at].as_ref().is_none_or(|best| said.mean > best.mean) {
                best[*at] = Some(said);
            }
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A model that repeats the last token of its prompt, the surer the greater it is.
    #[test]
    fn of_several_windows_the_surest_answer_counts_in_passes_of_a_few() {
        let prompts: [&[u32]; 6] = [&[1, 5], &[1, 9], &[1, 7], &[2, 3], &[4, 8], &[4, 8, 8]];
        let questions = vec![prompts[..3].to_vec(), prompts[3..4].to_vec(), prompts[4..].to_vec(), Vec::new()];
        let mut passes = Vec::new();
        let tokens = |said: Vec<Option<Said>>| -> Vec<Vec<u32>> {
            said.into_iter().map(|said| said.map(|said| said.tokens).unwrap_or_default()).collect()
        };
        let found = surest(&questions, 4, |prompts| {
            passes.push(prompts.len());
            let said = |prompt: &&[u32]| {
                let last = prompt[prompt.len() - 1];
                Said { tokens: vec![last, prompt.len() as u32], mean: f64::from(last) - 10.0 }
            };
            prompts.iter().map(said).collect()
        });
        assert_eq!(found[0].as_ref().map(|said| said.mean), Some(-1.0));
        assert_eq!(tokens(found), [vec![9, 2], vec![3, 2], vec![8, 2], vec![]], "the first of equals");
        assert_eq!(passes, [4, 2]);
        let nothing =
            surest(&questions[..1], 4, |prompts| vec![Said { tokens: vec![7], mean: f64::NAN }; prompts.len()]);
        assert_eq!(tokens(nothing), [[7]]);
    }
}
