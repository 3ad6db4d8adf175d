//! Examples: a question as a sequence of tokens, `Question: … Context: … Answer: …` and the end of text.
//!
//! A context that does not fit is cut into windows. Which windows a validation looks at does not depend on the answer: they
//! slide over the context, as in SQuAD's own baselines (Devlin et al. 2018). Training takes one window that holds the
//! answer, at a random position. In neither case does the position of a token reveal the answer.

use std::collections::BTreeSet;
use std::ops::Range;

use rand::RngExt;

use super::squad::{self, Paragraph};
use crate::tokenizer::Tokenizer;
use xrun_core::bounded::DeepSize;
use xrun_core::dataset::error::DataError;
use xrun_core::seed::generator;

/// A question as a language model sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Example {
    /// Prompt, answer and end of text; at most one more than the sequence length.
    pub tokens: Vec<u32>,
    /// Tokens of the prompt; what follows is the answer.
    pub prompt_length: usize,
    /// Every answer that counts as right.
    pub answers: Vec<String>,
    /// Prompts with the other windows of a context that does not fit; of held-out questions only.
    pub others: Vec<Vec<u32>>,
}

impl Example {
    /// Prompts with all windows of the context that are looked at.
    pub fn prompts(&self) -> impl Iterator<Item = &[u32]> {
        std::iter::once(&self.tokens[..self.prompt_length]).chain(self.others.iter().map(Vec::as_slice))
    }

    /// Bytes of all tokens.
    pub fn token_bytes(&self) -> u64 {
        let tokens = self.tokens.capacity() + self.others.iter().map(Vec::capacity).sum::<usize>();
        (tokens * size_of::<u32>() + self.others.capacity() * size_of::<Vec<u32>>()) as u64
    }
}

impl DeepSize for Example {
    fn deep_size(&self) -> u64 {
        let answers: u64 = self.answers.iter().map(DeepSize::deep_size).sum();
        size_of::<Self>() as u64 + self.token_bytes() + answers
    }
}

/// Cut of a context that does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// One window with the answer in it, anywhere: for training. The place follows from seed and number.
    WithAnswer {
        /// The seed of the run.
        seed: u32,
        /// The number of the example among all that the run draws.
        number: u64,
    },
    /// Windows that begin every `stride` tokens, or every half of a window if that is less; at most `most` of them, those
    /// that share most with the question first.
    Sliding {
        /// Tokens from the beginning of a window to that of the next.
        stride: usize,
        /// The most windows.
        most: usize,
    },
}

/// A question and its context in tokens, before the context is cut.
struct Parts {
    /// `Question: …` and `Context:`.
    before: Vec<u32>,
    context: Vec<u32>,
    /// `Answer:`.
    after: Vec<u32>,
    /// Tokens of the context that fit.
    room: usize,
    /// Tokens of a prompt.
    longest: usize,
}

impl Parts {
    fn new(context: &str, question: &str, length: usize, tokenizer: &Tokenizer) -> Result<Self, DataError> {
        // The same for all questions: a size that depended on the answer would reveal its length.
        let reserved = (length / 4).max(1) + 1;
        let mut before = tokenizer.encode(&format!("Question: {}", question.trim()))?;
        before.truncate(length / 2);
        before.extend(tokenizer.encode("\nContext:")?);
        let after = tokenizer.encode("\nAnswer:")?;
        let room = (length + 1).saturating_sub(before.len() + after.len() + reserved);
        let context = tokenizer.encode(&format!(" {context}"))?;
        Ok(Self { before, context, after, room, longest: length + 1 - reserved })
    }

    fn fits(&self) -> bool {
        self.context.len() <= self.room
    }

    /// Windows that slide over the context.
    fn windows(
        &self,
        question: &str,
        stride: usize,
        most: usize,
        tokenizer: &Tokenizer,
    ) -> Result<Vec<Range<usize>>, DataError> {
        let asked: BTreeSet<u32> = tokenizer.encode(&format!(" {}", question.trim()))?.into_iter().collect();
        let mut windows = ranked(sliding(self.context.len(), self.room, stride), &self.context, &asked);
        windows.truncate(most.max(1));
        Ok(windows)
    }

    fn prompt(&self, window: &Range<usize>) -> Vec<u32> {
        let mut prompt = [&self.before[..], &self.context[window.clone()], &self.after[..]].concat();
        prompt.truncate(self.longest);
        prompt
    }
}

/// The prompts of a question that nobody has answered yet, those of a held-out one: of its windows, as [`Cut::Sliding`] has
/// them.
pub fn prompts(
    context: &str,
    question: &str,
    length: usize,
    (stride, most): (usize, usize),
    tokenizer: &Tokenizer,
) -> Result<Vec<Vec<u32>>, DataError> {
    let parts = Parts::new(context, question, length, tokenizer)?;
    let windows = match parts.fits() {
        true => std::iter::once(0..parts.context.len()).collect(),
        false => parts.windows(question, stride, most, tokenizer)?,
    };
    Ok(windows.iter().map(|window| parts.prompt(window)).collect())
}

/// The example of a question of a paragraph, of at most `length + 1` tokens.
pub fn example(
    paragraph: &Paragraph,
    question: usize,
    length: usize,
    cut: Cut,
    tokenizer: &Tokenizer,
) -> Result<Example, DataError> {
    let Some(asked) = paragraph.qas.get(question) else {
        return Err(DataError::content(format!("the paragraph has no question {question}")));
    };
    let first = asked.answers.first();
    let start = first.and_then(|answer| squad::start(&paragraph.context, answer));
    let (Some(first), Some(start)) = (first, start) else {
        return Err(DataError::content(format!("the question {} has no answer", asked.id)));
    };
    let mut answer = tokenizer.encode(&format!(" {}", first.text.trim()))?;
    answer.truncate((length / 4).max(1));
    answer.push(tokenizer.eos_token());
    let parts = Parts::new(&paragraph.context, &asked.question, length, tokenizer)?;
    let windows = match cut {
        _ if parts.fits() => std::iter::once(0..parts.context.len()).collect(),
        Cut::WithAnswer { seed, number } => {
            // One more byte: the space before the context.
            let answer = covering(&parts.context, start + 1..start + 1 + first.text.len(), tokenizer);
            vec![window_with(answer, parts.context.len(), parts.room, seed, number)]
        }
        Cut::Sliding { stride, most } => parts.windows(&asked.question, stride, most, tokenizer)?,
    };
    let mut tokens = parts.prompt(&windows[0]);
    let prompt_length = tokens.len();
    tokens.extend(answer);
    tokens.shrink_to_fit();
    Ok(Example {
        tokens,
        prompt_length,
        answers: asked.answers.iter().map(|answer| answer.text.clone()).collect(),
        others: windows[1..].iter().map(|window| parts.prompt(window)).collect(),
    })
}

/// Tokens that cover `bytes` of their text, the first and the last possibly in part.
fn covering(tokens: &[u32], bytes: Range<usize>, tokenizer: &Tokenizer) -> Range<usize> {
    let mut end = 0;
    let ends: Vec<usize> = tokens
        .iter()
        .map(|token| {
            end += tokenizer.bytes(*token);
            end
        })
        .collect();
    ends.partition_point(|end| *end <= bytes.start)..ends.partition_point(|end| *end < bytes.end) + 1
}

/// A window of `room` of `count` tokens around an answer, each that holds it as likely as the others.
fn window_with(answer: Range<usize>, count: usize, room: usize, seed: u32, number: u64) -> Range<usize> {
    let last = count - room;
    let latest = answer.start.min(last);
    // An answer that is longer than the window begins in it.
    let earliest = answer.end.saturating_sub(room).min(latest);
    let from = generator(seed, "window", number).random_range(earliest..=latest);
    from..from + room
}

/// Windows of `room` of `count` tokens, which are more, in their order; the last one ends with the context.
fn sliding(count: usize, room: usize, stride: usize) -> Vec<Range<usize>> {
    // A span at the end of a window is whole in the next one.
    let stride = stride.min(room / 2).max(1);
    let last = count - room;
    let starts = (0..last).step_by(stride).chain([last]);
    match room {
        0 => std::iter::once(0..0).collect(),
        _ => starts.map(|from| from..from + room).collect(),
    }
}

/// Order of windows: those that share more with the question first, of equals the earlier. A token of the question counts for the more, the
/// fewer windows have it.
fn ranked(windows: Vec<Range<usize>>, context: &[u32], asked: &BTreeSet<u32>) -> Vec<Range<usize>> {
    let found: Vec<BTreeSet<u32>> = windows
        .iter()
        .map(|window| context[window.clone()].iter().copied().filter(|token| asked.contains(token)).collect())
        .collect();
    let rare = |token: &u32| windows.len() - found.iter().filter(|tokens| tokens.contains(token)).count();
    let shared: Vec<usize> = found.iter().map(|tokens| tokens.iter().map(rare).sum()).collect();
    let mut order: Vec<usize> = (0..windows.len()).collect();
    order.sort_by_key(|at| std::cmp::Reverse(shared[*at]));
    order.into_iter().map(|at| windows[at].clone()).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use proptest::prelude::*;

    use super::super::squad::{Answer, Question};
    use super::*;
    use crate::tokenizer::Words;

    const TRAINING: Cut = Cut::WithAnswer { seed: 1, number: 0 };
    const HELD_OUT: Cut = Cut::Sliding { stride: 128, most: 1000 };

    fn bytes() -> &'static Tokenizer {
        static BYTES: LazyLock<Tokenizer> = LazyLock::new(|| Tokenizer::learn(&Words::default(), 257).unwrap());
        &BYTES
    }

    fn paragraph(context: &str, text: &str) -> Paragraph {
        let answer_start = context[..context.find(text).unwrap()].chars().count();
        let answer = Answer { text: text.into(), answer_start };
        let question = Question { id: "q".into(), question: "Which?".into(), answers: vec![answer] };
        Paragraph { context: context.into(), qas: vec![question] }
    }

    /// Window of the context in each prompt.
    fn windows(example: &Example, tokenizer: &Tokenizer) -> Vec<String> {
        let window = |prompt: &[u32]| {
            let text = tokenizer.decode(prompt);
            text.split_once("Context:").unwrap().1.split_once("\nAnswer:").unwrap().0.to_owned()
        };
        example.prompts().map(window).collect()
    }

    #[test]
    fn a_question_that_fits_is_written_as_a_whole() {
        let tokenizer = bytes();
        for cut in [TRAINING, HELD_OUT] {
            let example = example(&paragraph("One or two.", "two"), 0, 64, cut, tokenizer).unwrap();
            let text = |tokens: &[u32]| tokenizer.decode(tokens);
            assert_eq!(
                text(&example.tokens[..example.prompt_length]),
                "Question: Which?\nContext: One or two.\nAnswer:"
            );
            assert_eq!(text(&example.tokens[example.prompt_length..]), " two");
            let answers = (example.tokens.last(), &example.answers[..]);
            assert_eq!(answers, (Some(&tokenizer.eos_token()), &["two".to_owned()][..]));
            assert!(example.others.is_empty());
        }
    }

    /// By hand: room for 24 of 40 tokens, so windows begin at 0, 12 and 16. A window's place says nothing of the answer.
    #[test]
    fn held_out_windows_slide_over_the_context_whatever_the_answer_is() {
        let tokenizer = bytes();
        let text = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLM";
        let of = |answer: &str, stride, most| {
            let example = example(&paragraph(text, answer), 0, 76, Cut::Sliding { stride, most }, tokenizer).unwrap();
            windows(&example, tokenizer)
        };
        let all = [" abcdefghijklmnopqrstuvw", "lmnopqrstuvwxyzABCDEFGHI", "pqrstuvwxyzABCDEFGHIJKLM"];
        assert_eq!(of("a", 128, 9), all);
        assert_eq!(of("KLM", 128, 9), all);
        assert_eq!(of("KLM", 128, 1), all[..1]);
        assert_eq!(of("a", 10, 9), [all[0], &text[9..33], all[2]]);
    }

    #[test]
    fn the_window_that_shares_most_with_the_question_comes_first() {
        let mut words = Words::default();
        words.add("the cat has a red hat and blue eyes", 3).unwrap();
        let tokenizer = &Tokenizer::learn(&words, 300).unwrap();
        let filler = "the has a and the has a and ";
        let context = format!("{}red hat {}blue eyes {filler}", filler.repeat(3), filler.repeat(3));
        let mut paragraph = paragraph(&context, "red");
        for (asked, shown) in [("the blue", "blue"), ("has the red hat", "red hat")] {
            paragraph.qas[0].question = asked.into();
            let cut = Cut::Sliding { stride: 128, most: 3 };
            let example = example(&paragraph, 0, 60, cut, tokenizer).unwrap();
            let windows = windows(&example, tokenizer);
            assert!(windows[0].contains(shown) && windows.len() > 1, "{asked}: {windows:?}");
        }
    }

    #[test]
    fn a_training_window_is_drawn_by_seed_and_number() {
        let tokenizer = bytes();
        let context = format!("{} HERE {}", "x".repeat(300), "y".repeat(300));
        let paragraph = paragraph(&context, "HERE");
        let place = |seed, number| {
            let example = example(&paragraph, 0, 160, Cut::WithAnswer { seed, number }, tokenizer).unwrap();
            windows(&example, tokenizer)[0].find("HERE").unwrap()
        };
        assert_eq!(place(1, 2), place(1, 2));
        let places: Vec<usize> = (0..200).map(|number| place(1, number)).collect();
        assert_ne!(places, (0..200).map(|number| place(2, number)).collect::<Vec<_>>());
        // Room for 87 tokens, so the answer begins at 0 to 83, each as likely: 41.5 in the mean.
        let mean = places.iter().sum::<usize>() as f64 / 200.0;
        assert!((33.0..50.0).contains(&mean) && places.iter().max().unwrap() - places.iter().min().unwrap() > 70);
    }

    proptest! {
        #[test]
        fn one_that_does_not_fit_keeps_its_answer_in_the_context(
            before in 0usize..200,
            after in 0usize..200,
            number in 0u64..50,
        ) {
            let tokenizer = bytes();
            let context = format!("{}ŻERE{}", "ü".repeat(before), "y".repeat(after));
            let cut = Cut::WithAnswer { seed: 1, number };
            let example = example(&paragraph(&context, "ŻERE"), 0, 80, cut, tokenizer).unwrap();
            prop_assert!(example.tokens.len() <= 81 && example.others.is_empty());
            let prompt = tokenizer.decode(&example.tokens[..example.prompt_length]);
            prop_assert!(prompt.contains("ŻERE") && prompt.ends_with("\nAnswer:"), "{}", prompt);
            prop_assert_eq!(tokenizer.decode(&example.tokens[example.prompt_length..]), " ŻERE");
        }

        #[test]
        fn nothing_is_longer_than_it_may_be(question in "[a-z ]{1,300}", text in "[a-z]{1,200}", length in 32usize..100) {
            let tokenizer = bytes();
            let mut paragraph = paragraph(&text, &text);
            paragraph.qas[0].question = question;
            // Nothing of the answer is in the prompts: they are those of the question alone.
            let held_out = example(&paragraph, 0, length, HELD_OUT, tokenizer).unwrap();
            let alone = prompts(&text, &paragraph.qas[0].question, length, (128, 1000), tokenizer).unwrap();
            prop_assert!(held_out.prompts().eq(alone.iter().map(Vec::as_slice)));
            for cut in [TRAINING, HELD_OUT] {
                let example = example(&paragraph, 0, length, cut, tokenizer).unwrap();
                prop_assert!(example.tokens.len() <= length + 1);
                prop_assert!(example.prompt_length < example.tokens.len() && example.prompt_length > 0);
                prop_assert!(example.others.iter().all(|prompt| prompt.len() == example.prompt_length));
            }
        }
    }
}
