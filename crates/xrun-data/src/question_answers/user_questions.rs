//! Reader of the questions in a file that the user names: JSON lines, one after another.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use serde::Deserialize;

use crate::json::{object_with, why_of_line};
use xrun_core::files::file;

/// Maximum length of a line, larger than any question with its context.
const LINE_BYTES_MAX: u64 = 1 << 20;
/// Content of a line.
pub const EXPECTED: &str = "{\"context\": …, \"question\": …} on each line";

/// Question and the text that has its answer. Other keys of the line are ignored.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct UserQuestion {
    /// Text that has the answer.
    pub context: String,
    /// Question, not empty.
    pub question: String,
    /// Identifier, which is copied to the answer.
    #[serde(default)]
    pub id: Option<String>,
}

/// Iterator over the non-empty lines of a file: their numbers, from 1, and their question or the reason why it is invalid.
#[derive(Debug)]
pub struct UserQuestions {
    reader: BufReader<std::fs::File>,
    line: u64,
    ended: bool,
}

impl UserQuestions {
    /// Opens a file.
    ///
    /// # Errors
    /// Message without the name of the file: it cannot be read.
    pub fn open(path: &Path) -> Result<Self, String> {
        let file = file::open(path).map_err(|error| format!("cannot be read: {error}"))?;
        Ok(Self { reader: BufReader::new(file), line: 0, ended: false })
    }
}

impl Iterator for UserQuestions {
    type Item = (u64, Result<UserQuestion, String>);

    fn next(&mut self) -> Option<Self::Item> {
        while !self.ended {
            let mut line = Vec::new();
            let read = self.reader.by_ref().take(LINE_BYTES_MAX + 1).read_until(b'\n', &mut line);
            let is_too_long = line.len() as u64 > LINE_BYTES_MAX;
            // The rest of the file may be the rest of a line that is too long.
            (self.line, self.ended) = (self.line + 1, is_too_long || !matches!(read, Ok(1..)));
            let question = match read {
                Err(error) => Err(format!("cannot be read: {error}")),
                Ok(_) if is_too_long => {
                    Err(format!("has more than {LINE_BYTES_MAX} bytes, expected {EXPECTED}; the rest is not read"))
                }
                Ok(_) if line.trim_ascii().is_empty() => continue,
                Ok(_) => parse(&line),
            };
            return Some((self.line, question));
        }
        None
    }
}

fn parse(line: &[u8]) -> Result<UserQuestion, String> {
    let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line).trim_ascii_end();
    object_with(line, EXPECTED)?;
    let question: UserQuestion = serde_json::from_slice(line).map_err(|error| match error.is_data() {
        true => format!("{}; expected {EXPECTED}", why_of_line(&error)),
        false => why_of_line(&error),
    })?;
    if question.question.trim().is_empty() { Err("the question is empty".into()) } else { Ok(question) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use xrun_core::files::write;

    #[test]
    fn each_line_is_a_question_or_says_why_it_is_none() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("mine.jsonl");
        let long = format!("{{\"context\": \"{}\"", "x".repeat(LINE_BYTES_MAX as usize));
        let text = "{\"context\": \"One.\", \"question\": \"What?\", \"id\": \"a\", \"answers\": []}\n\n\
                    {\"context\": \"One.\"}\n[1]\n{\"context\": \"\", \"question\": \" \"}\n{\"context\": \"";
        write::replace(&path, format!("{text}\n{long}\n").as_bytes()).unwrap();
        let found: Vec<_> = UserQuestions::open(&path).unwrap().collect();
        let asked = UserQuestion { context: "One.".into(), question: "What?".into(), id: Some("a".into()) };
        assert_eq!(found[0], (1, Ok(asked)));
        let wrong =
            [(3, "missing field `question`"), (4, "a list"), (5, "is empty"), (6, "is no JSON"), (7, "has more than")];
        for ((line, found), (at, words)) in found[1..].iter().zip(wrong) {
            let error = found.as_ref().unwrap_err();
            assert!(*line == at && error.contains(words), "{line}: {error}");
        }
        assert_eq!(found.len(), 6, "what is too long ends the file");
        assert!(UserQuestions::open(directory.path()).unwrap_err().contains("not a regular file"));
    }
}
