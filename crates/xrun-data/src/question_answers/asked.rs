//! Reader of the questions in a file that the user names: JSON lines, one after another.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use serde::Deserialize;

use crate::json::{object_with, why_of_line};
use xrun_core::files::file;

/// A longer line is no question with its context.
const LINE_BYTES_MAX: u64 = 1 << 20;
/// Content of a line.
pub const EXPECTED: &str = "{\"context\": …, \"question\": …} on each line";

/// A question, and the text that has its answer. What else stands in the line is passed over.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Asked {
    /// Has the answer.
    pub context: String,
    /// Not empty.
    pub question: String,
    /// Given back with the answer.
    #[serde(default)]
    pub id: Option<String>,
}

/// The lines of a file that are not empty, from 1, each a question or why it is none.
#[derive(Debug)]
pub struct Questions {
    reader: BufReader<std::fs::File>,
    line: u64,
    ended: bool,
}

impl Questions {
    /// Opens a file.
    ///
    /// # Errors
    /// For people, without the name: it cannot be read.
    pub fn open(path: &Path) -> Result<Self, String> {
        let file = file::open(path).map_err(|error| format!("cannot be read: {error}"))?;
        Ok(Self { reader: BufReader::new(file), line: 0, ended: false })
    }

    fn next_line(&mut self) -> Result<Option<Vec<u8>>, String> {
        let mut line = Vec::new();
        let failed = |error: std::io::Error| format!("cannot be read: {error}");
        self.reader.by_ref().take(LINE_BYTES_MAX + 1).read_until(b'\n', &mut line).map_err(|error| {
            self.ended = true;
            failed(error)
        })?;
        self.ended |= line.is_empty();
        self.line += u64::from(!self.ended);
        if line.len() as u64 > LINE_BYTES_MAX {
            // What follows is still this line.
            self.ended = true;
            return Err(format!("has more than {LINE_BYTES_MAX} bytes, expected {EXPECTED}; the rest is not read"));
        }
        Ok((!self.ended).then_some(line))
    }
}

impl Iterator for Questions {
    type Item = (u64, Result<Asked, String>);

    fn next(&mut self) -> Option<Self::Item> {
        while !self.ended {
            match self.next_line() {
                Ok(None) => return None,
                Ok(Some(line)) if line.trim_ascii().is_empty() => {}
                Ok(Some(line)) => return Some((self.line, of_line(&line))),
                Err(error) => return Some((self.line, Err(error))),
            }
        }
        None
    }
}

fn of_line(line: &[u8]) -> Result<Asked, String> {
    let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line).trim_ascii_end();
    object_with(line, EXPECTED)?;
    let asked: Asked = serde_json::from_slice(line).map_err(|error| match error.is_data() {
        true => format!("{}; expected {EXPECTED}", why_of_line(line, &error)),
        false => why_of_line(line, &error),
    })?;
    match asked.question.trim().is_empty() {
        true => Err("the question is empty".into()),
        false => Ok(asked),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use xrun_core::files::write;

    #[test]
    fn each_line_is_a_question_or_says_why_it_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mine.jsonl");
        let long = format!("{{\"context\": \"{}\"", "x".repeat(LINE_BYTES_MAX as usize));
        let text = "{\"context\": \"One.\", \"question\": \"What?\", \"id\": \"a\", \"answers\": []}\n\n\
                    {\"context\": \"One.\"}\n[1]\n{\"context\": \"\", \"question\": \" \"}\n{\"context\": \"";
        write::replace(&path, format!("{text}\n{long}\n").as_bytes()).unwrap();
        let found: Vec<_> = Questions::open(&path).unwrap().collect();
        let asked = Asked { context: "One.".into(), question: "What?".into(), id: Some("a".into()) };
        assert_eq!(found[0], (1, Ok(asked)));
        let wrong =
            [(3, "missing field `question`"), (4, "a list"), (5, "is empty"), (6, "ends at"), (7, "has more than")];
        for ((line, found), (at, words)) in found[1..].iter().zip(wrong) {
            let error = found.as_ref().unwrap_err();
            assert!(*line == at && error.contains(words), "{line}: {error}");
        }
        assert_eq!(found.len(), 6, "what is too long ends the file");
        assert!(Questions::open(folder.path()).unwrap_err().contains("not a regular file"));
    }
}
