//! Answers to questions whose context has several windows.

use crate::nn::generate::Completion;

/// The answers of a few questions, each with the prompts of its windows: of each question the one that the model is surest
/// of, the first of equals; `None` of a question without prompts. `at_once` prompts are in a pass, whatever their number in all.
pub fn surest(
    prompts: &[Vec<&[u32]>],
    at_once: usize,
    mut answers: impl FnMut(&[&[u32]]) -> Vec<Completion>,
) -> Vec<Option<Completion>> {
    let all: Vec<(usize, &[u32])> =
        prompts.iter().enumerate().flat_map(|(at, prompts)| prompts.iter().map(move |prompt| (at, *prompt))).collect();
    let mut best: Vec<Option<Completion>> = vec![None; prompts.len()];
    for part in all.chunks(at_once.max(1)) {
        let prompts: Vec<&[u32]> = part.iter().map(|(_, prompt)| *prompt).collect();
        for ((at, _), said) in part.iter().zip(answers(&prompts)) {
            // Of a model whose numbers are none, the first.
            if best[*at].as_ref().is_none_or(|best| said.mean_log_probability > best.mean_log_probability) {
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
        let tokens = |said: Vec<Option<Completion>>| -> Vec<Vec<u32>> {
            said.into_iter().map(|said| said.map(|said| said.tokens).unwrap_or_default()).collect()
        };
        let found = surest(&questions, 4, |prompts| {
            passes.push(prompts.len());
            let said = |prompt: &&[u32]| {
                let last = prompt[prompt.len() - 1];
                Completion { tokens: vec![last, prompt.len() as u32], mean_log_probability: f64::from(last) - 10.0 }
            };
            prompts.iter().map(said).collect()
        });
        assert_eq!(found[0].as_ref().map(|said| said.mean_log_probability), Some(-1.0));
        assert_eq!(tokens(found), [vec![9, 2], vec![3, 2], vec![8, 2], vec![]], "the first of equals");
        assert_eq!(passes, [4, 2]);
        let nothing = surest(&questions[..1], 4, |prompts| {
            vec![Completion { tokens: vec![7], mean_log_probability: f64::NAN }; prompts.len()]
        });
        assert_eq!(tokens(nothing), [[7]]);
    }
}
