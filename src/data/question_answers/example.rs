//! How does a question become a sequence of tokens? `Question: … Context: … Answer: …` and the end of text.
//!
//! A context that is too long loses tokens on both sides of the answer, in training and in validation alike: what is
//! measured is whether the answer is found in what is shown.

use super::squad::{Paragraph, at};
use super::tokenizer::Tokenizer;
use crate::bounded::HeldBytes;
use crate::data::error::DataError;

/// A question as a language model sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Example {
    /// Prompt, answer and end of text; at most one more than the sequence length.
    pub tokens: Vec<u32>,
    /// Tokens of the prompt; what follows is the answer.
    pub prompt: usize,
    /// Every answer that counts as right.
    pub answers: Vec<String>,
}

impl HeldBytes for Example {
    fn held_bytes(&self) -> u64 {
        let answers: u64 = self.answers.iter().map(HeldBytes::held_bytes).sum();
        (size_of::<Self>() + self.tokens.capacity() * size_of::<u32>()) as u64 + answers
    }
}

/// The example of a question of a paragraph, of at most `length + 1` tokens.
pub fn example(
    paragraph: &Paragraph,
    question: usize,
    length: usize,
    tokenizer: &Tokenizer,
) -> Result<Example, DataError> {
    let Some(asked) = paragraph.qas.get(question) else {
        return Err(DataError::content(format!("the paragraph has no question {question}")));
    };
    let first = asked.answers.first();
    let start = first.and_then(|answer| at(paragraph, answer));
    let (Some(first), Some(start)) = (first, start) else {
        return Err(DataError::content(format!("the question {} has no answer", asked.id)));
    };
    // The same for all questions: room that followed from the answer would tell how long it is.
    let reserved = (length / 4).max(1) + 1;
    let mut answer = tokenizer.encode(&format!(" {}", first.text.trim()))?;
    answer.truncate((length / 4).max(1));
    answer.push(tokenizer.end());
    let mut tokens = tokenizer.encode(&format!("Question: {}", asked.question.trim()))?;
    tokens.truncate(length / 2);
    tokens.extend(tokenizer.encode("\nContext:")?);
    let after = tokenizer.encode("\nAnswer:")?;
    let room = (length + 1).saturating_sub(tokens.len() + after.len() + reserved);
    let context = tokenizer.encode(&format!(" {}", paragraph.context))?;
    if context.len() <= room {
        tokens.extend(context);
    } else {
        let before = tokenizer.encode(&paragraph.context[..start])?.len();
        let middle = before + answer.len() / 2;
        let from = middle.saturating_sub(room / 2).min(context.len() - room);
        tokens.extend(&context[from..from + room]);
    }
    tokens.extend(after);
    let prompt = tokens.len().min(length + 1 - reserved);
    tokens.truncate(prompt);
    tokens.extend(answer);
    tokens.shrink_to_fit();
    Ok(Example { tokens, prompt, answers: asked.answers.iter().map(|answer| answer.text.clone()).collect() })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::squad::{Answer, Question};
    use super::super::tokenizer::Words;
    use super::*;

    fn bytes() -> Tokenizer {
        Tokenizer::learn(&Words::default(), 257).unwrap()
    }

    fn paragraph(context: &str, text: &str) -> Paragraph {
        let answer_start = context.find(text).unwrap();
        let answer = Answer { text: text.into(), answer_start };
        let question = Question { id: "q".into(), question: "Which?".into(), answers: vec![answer] };
        Paragraph { context: context.into(), qas: vec![question] }
    }

    #[test]
    fn a_question_that_fits_is_written_as_a_whole() {
        let tokenizer = bytes();
        let example = example(&paragraph("One or two.", "two"), 0, 64, &tokenizer).unwrap();
        let text = |tokens: &[u32]| tokenizer.decode(tokens);
        assert_eq!(text(&example.tokens[..example.prompt]), "Question: Which?\nContext: One or two.\nAnswer:");
        assert_eq!(text(&example.tokens[example.prompt..]), " two");
        assert_eq!((example.tokens.last(), &example.answers[..]), (Some(&tokenizer.end()), &["two".to_owned()][..]));
    }

    proptest! {
        #[test]
        fn one_that_does_not_fit_keeps_its_answer_in_the_context(before in 0usize..200, after in 0usize..200) {
            let tokenizer = bytes();
            let context = format!("{}THERE{}", "x".repeat(before), "y".repeat(after));
            let example = example(&paragraph(&context, "THERE"), 0, 80, &tokenizer).unwrap();
            prop_assert!(example.tokens.len() <= 81);
            let prompt = tokenizer.decode(&example.tokens[..example.prompt]);
            prop_assert!(prompt.contains("THERE") && prompt.ends_with("\nAnswer:"), "{}", prompt);
            prop_assert_eq!(tokenizer.decode(&example.tokens[example.prompt..]), " THERE");
        }

        #[test]
        fn nothing_is_longer_than_it_may_be(question in "[a-z ]{1,300}", text in "[a-z]{1,200}", length in 32usize..100) {
            let tokenizer = bytes();
            let mut paragraph = paragraph(&text, &text);
            paragraph.qas[0].question = question;
            let example = example(&paragraph, 0, length, &tokenizer).unwrap();
            prop_assert!(example.tokens.len() <= length + 1);
            prop_assert!(example.prompt < example.tokens.len() && example.prompt > 0);
        }
    }
}
