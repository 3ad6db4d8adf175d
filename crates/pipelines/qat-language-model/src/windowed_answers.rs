//! Answers to questions whose context has several windows.

use xrun_training::nn::generate::Completion;

/// Returns the most probable answer to each question, which has one prompt per window of its context; the first of equally
/// probable ones, and `None` for a question without prompts. `complete` answers at most `batch_size` prompts per call.
///
/// # Errors
/// That of `complete`.
pub fn best_answers<E>(
    prompts: &[Vec<&[u32]>],
    batch_size: usize,
    mut complete: impl FnMut(&[&[u32]]) -> Result<Vec<Completion>, E>,
) -> Result<Vec<Option<Completion>>, E> {
    let all: Vec<(usize, &[u32])> = prompts
        .iter()
        .enumerate()
        .flat_map(|(question, prompts)| prompts.iter().map(move |prompt| (question, *prompt)))
        .collect();
    let mut best: Vec<Option<Completion>> = vec![None; prompts.len()];
    for batch in all.chunks(batch_size.max(1)) {
        let prompts: Vec<&[u32]> = batch.iter().map(|(_, prompt)| *prompt).collect();
        for ((question, _), completion) in batch.iter().zip(complete(&prompts)?) {
            // A NaN replaces nothing: a diverged model gives its first answer.
            let best = &mut best[*question];
            if best.as_ref().is_none_or(|best| completion.mean_log_probability > best.mean_log_probability) {
                *best = Some(completion);
            }
        }
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    /// The model repeats the last token of its prompt; its log probability grows with the token.
    #[test]
    fn the_most_probable_answer_of_all_windows_is_returned() {
        let prompts: [&[u32]; 6] = [&[1, 5], &[1, 9], &[1, 7], &[2, 3], &[4, 8], &[4, 8, 8]];
        let questions = vec![prompts[..3].to_vec(), prompts[3..4].to_vec(), prompts[4..].to_vec(), Vec::new()];
        let mut passes = Vec::new();
        let tokens = |answers: Vec<Option<Completion>>| -> Vec<Vec<u32>> {
            answers.into_iter().map(|answer| answer.map(|answer| answer.tokens).unwrap_or_default()).collect()
        };
        let found = best_answers(&questions, 4, |prompts| {
            passes.push(prompts.len());
            let answer = |prompt: &&[u32]| {
                let last = prompt[prompt.len() - 1];
                Completion { tokens: vec![last, prompt.len() as u32], mean_log_probability: f64::from(last) - 10.0 }
            };
            Ok::<_, Infallible>(prompts.iter().map(answer).collect())
        });
        let Ok(found) = found;
        assert_eq!(found[0].as_ref().map(|answer| answer.mean_log_probability), Some(-1.0));
        assert_eq!(tokens(found), [vec![9, 2], vec![3, 2], vec![8, 2], vec![]], "the first of equals");
        assert_eq!(passes, [4, 2]);
        let diverged = best_answers(&questions[..1], 4, |prompts| {
            let answer = Completion { tokens: vec![7], mean_log_probability: f64::NAN };
            Ok::<_, Infallible>(vec![answer; prompts.len()])
        });
        let Ok(diverged) = diverged;
        assert_eq!(tokens(diverged), [[7]]);
    }
}
