//! Reader of SQuAD v1.1's JSON: once as a whole for the index, then paragraph by paragraph.
//!
//! `data`: articles with `title` and `paragraphs`; a paragraph has `context` and `qas`; a question has `id`, `question`
//! and `answers` with `text` and `answer_start`, which counts characters, not bytes (Rajpurkar et al. 2016).

use std::path::Path;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::json::{object_with, why};
use crate::reading::broken::Judge;
use xrun_core::dataset::error::DataError;

/// A paragraph with its questions.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Paragraph {
    /// The text that the questions are about.
    pub context: String,
    /// Its questions.
    pub qas: Vec<Question>,
}

/// A question about a paragraph.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Question {
    /// Identifier in the file; empty where it has none.
    #[serde(default)]
    pub id: String,
    /// The question's text.
    pub question: String,
    /// The answers that count as right; training takes the first.
    pub answers: Vec<Answer>,
}

/// Answer: a span of the context.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Answer {
    /// Text of the span, as in the context.
    pub text: String,
    /// Position in characters from the beginning of the context.
    pub answer_start: usize,
}

/// Position of a question in its source: 24 bytes a question are all that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuestionLocation {
    /// Offset of its paragraph in bytes.
    pub offset: u64,
    /// Bytes of the paragraph.
    pub length: u32,
    /// Index of the question in the paragraph.
    pub question: u32,
    /// Index of the article in the file.
    pub article: u32,
}

#[derive(Deserialize)]
struct File<'a> {
    #[serde(borrow)]
    data: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct Article<'a> {
    #[serde(default)]
    title: String,
    #[serde(borrow)]
    paragraphs: Vec<&'a RawValue>,
}

/// Index of a file: positions of valid questions, and the number of articles.
#[derive(Debug)]
pub struct Index {
    /// The questions that can be used, in the order of the file.
    pub places: Vec<QuestionLocation>,
    /// Articles of the file, those without a sound question among them.
    pub articles: u32,
}

/// Looks through the text of a file; `path` is for messages. What is broken goes to the judge.
pub fn index(text: &[u8], path: &Path, judge: &mut Judge) -> Result<Index, DataError> {
    // Some editors put a byte order mark before the text. Offsets count from the file's first byte.
    let body = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let failed = |message: String| DataError::file(path, format!("is not JSON in SQuAD v1.1's form: {message}"));
    object_with(
        body,
        "an object with `data`: {\"data\": [{\"title\": …, \"paragraphs\": [{\"context\": …, \"qas\": […]}]}]}",
    )
    .map_err(failed)?;
    let file: File = serde_json::from_slice(body).map_err(|error| failed(why(body, &error)))?;
    let mut places = Vec::new();
    for (article, raw) in file.data.iter().enumerate() {
        let content: Article = match serde_json::from_str(raw.get()) {
            Ok(content) => content,
            Err(error) => {
                let offset = raw.get().as_ptr() as usize - text.as_ptr() as usize;
                let message = format!("article {article}, at byte {offset}, cannot be read: {error}");
                judge.broken("unreadable_article", path, message);
                continue;
            }
        };
        for (number, raw) in content.paragraphs.iter().enumerate() {
            let raw = raw.get();
            let offset = raw.as_ptr() as usize - text.as_ptr() as usize;
            let called = || format!("paragraph {number} of the article \"{}\"", content.title);
            let paragraph: Paragraph = match serde_json::from_str(raw) {
                Ok(paragraph) => paragraph,
                Err(error) => {
                    let message = format!("{}, at byte {offset}, cannot be read: {error}", called());
                    judge.broken("unreadable_paragraph", path, message);
                    continue;
                }
            };
            for (question, content) in paragraph.qas.iter().enumerate() {
                if let Some((reason, wrong)) = wrong(&paragraph, content) {
                    let message = format!("{}, question {question} ({}): {wrong}", called(), content.id);
                    judge.broken(reason, path, message);
                    continue;
                }
                places.push(QuestionLocation {
                    offset: offset as u64,
                    // A paragraph of four gigabytes is not read at all: files have a cap.
                    length: u32::try_from(raw.len()).unwrap_or(u32::MAX),
                    question: question as u32,
                    article: article as u32,
                });
            }
        }
    }
    Ok(Index { places, articles: file.data.len() as u32 })
}

/// Reason and message why a question is invalid; `None` where it is valid.
fn wrong(paragraph: &Paragraph, question: &Question) -> Option<(&'static str, String)> {
    if question.question.trim().is_empty() {
        return Some(("empty_question", "the question is empty".into()));
    }
    if question.answers.is_empty() {
        return Some(("unanswered", "has no answer (SQuAD v2's unanswerable questions are not used)".into()));
    }
    let misplaced = question.answers.iter().find(|answer| answer.text.is_empty() || at(paragraph, answer).is_none());
    misplaced.map(|answer| {
        let Answer { text, answer_start } = answer;
        ("misplaced_answer", format!("the answer \"{text}\" is not at character {answer_start} of the context"))
    })
}

/// Offset in bytes of an answer in its context; `None` if it is not there.
pub fn at(paragraph: &Paragraph, answer: &Answer) -> Option<usize> {
    let context = &paragraph.context;
    let byte = match context.is_ascii() {
        true => answer.answer_start,
        false => context.char_indices().map(|(byte, _)| byte).nth(answer.answer_start)?,
    };
    context.get(byte..)?.starts_with(&answer.text).then_some(byte)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::reading::broken::OnInvalid;

    const TEXT: &str = r#"{"version": "1.1", "data": [{"title": "Żuraw", "paragraphs": [
      {"context": "Ala ma kota. Żuraw też.", "qas": [
        {"id": "a", "question": "Who?", "answers": [{"text": "Ala", "answer_start": 0}]},
        {"id": "b", "question": "Also who?", "answers": [{"text": "też", "answer_start": 19}]}]}]}]}"#;

    fn read(text: &str, policy: OnInvalid) -> (Result<Index, DataError>, Judge) {
        let mut judge = Judge::new(policy);
        let index = index(text.as_bytes(), Path::new("dev.json"), &mut judge);
        (index.and_then(|index| judge.verdict().map(|()| index)), judge)
    }

    #[test]
    fn a_place_leads_to_its_paragraph_and_answers_are_counted_in_characters() {
        let index = read(TEXT, OnInvalid::Fail).0.unwrap();
        assert_eq!((index.places.len(), index.articles), (2, 1));
        let place = index.places[1];
        let part = &TEXT[place.offset as usize..][..place.length as usize];
        let paragraph: Paragraph = serde_json::from_str(part).unwrap();
        let question = &paragraph.qas[place.question as usize];
        let start = at(&paragraph, &question.answers[0]).unwrap();
        assert_eq!(&paragraph.context[start..], "też.");
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place_and_can_be_left_out() {
        for (from, to, part) in [
            ("\"answer_start\": 19", "\"answer_start\": 18", "\"też\" is not at character 18"),
            ("\"answer_start\": 19", "\"answer_start\": 999", "question 1 (b)"),
            ("\"question\": \"Who?\"", "\"question\": \" \"", "the question is empty"),
            (r#"[{"text": "Ala", "answer_start": 0}]"#, "[]", "unanswerable"),
            ("\"context\": \"Ala", "\"kontext\": \"Ala", "missing field `context`"),
        ] {
            let broken = TEXT.replace(from, to);
            let message = read(&broken, OnInvalid::Fail).0.unwrap_err().to_string();
            assert!(message.contains(part) && message.contains("dev.json"), "{message}");
            assert!(message.contains("Żuraw"), "{message}");
            let (index, judge) = read(&broken, OnInvalid::Skip);
            assert!(index.unwrap().places.len() < 2);
            assert_eq!(judge.found.total(), 1);
        }
        for (text, part) in [
            ("", "the file is empty"),
            ("{\"data\": [", "cut off"),
            ("[]", "begins with `[`, a list"),
            ("{\"data\": 3}", "line 1 column 10"),
        ] {
            let message = read(text, OnInvalid::Fail).0.unwrap_err().to_string();
            assert!(message.contains(part), "{message}");
        }
    }

    proptest! {
        #[test]
        fn mutated_records_never_panic(at in 0usize..TEXT.len(), byte: u8) {
            let mut bytes = TEXT.as_bytes().to_vec();
            bytes[at] = byte;
            let mut judge = Judge::new(OnInvalid::Skip);
            if let Ok(index) = index(&bytes, Path::new("dev.json"), &mut judge) {
                for place in index.places {
                    let part = &bytes[place.offset as usize..][..place.length as usize];
                    prop_assert!(serde_json::from_slice::<Paragraph>(part).is_ok());
                }
            }
        }
    }
}
