//! Reader of SQuAD v1.1's JSON, and of its rows as Hugging Face's `datasets` writes them: paragraph by paragraph.
//!
//! `data`: articles with `title` and `paragraphs`; a paragraph has `context` and `qas`; a question has `id`, `question`
//! and `answers` with `text` and `answer_start`, which counts characters, not bytes (Rajpurkar et al. 2016). A row is a line with
//! `context`, `question`, `answers` and, where there are articles, `title`.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{Read, Seek};
use std::path::Path;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use crate::json::{self, integer, why_of_line};
use crate::reading::invalid::InvalidCollector;
use crate::reading::json_stream::{FILE, JsonStream, VALUE_BYTES_MAX};
use xrun_core::dataset::digest::hexadecimal;
use xrun_core::dataset::error::DataError;

/// A paragraph with its questions.
#[derive(Clone, Debug, PartialEq)]
pub struct Paragraph {
    /// The text that the questions are about.
    pub context: String,
    /// Its questions, in the order of the file. One that cannot be read is empty.
    pub qas: Vec<Question>,
}

/// A question about a paragraph: an object of SQuAD's `qas`, or the columns of a row.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(expecting = "an object")]
pub struct Question {
    /// Identifier in the file; empty where it has none.
    #[serde(default, deserialize_with = "identifier")]
    pub id: String,
    /// The question's text.
    pub question: String,
    /// The answers that count as right; training takes the first.
    #[serde(default, deserialize_with = "answers")]
    pub answers: Vec<Answer>,
}

/// Answer: a span of the context.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(expecting = "an object")]
pub struct Answer {
    /// Text of the span, as in the context.
    pub text: String,
    /// Position in characters from the beginning of the context.
    #[serde(deserialize_with = "position")]
    pub answer_start: usize,
}

fn identifier<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected a text or a number")]
    enum Identifier {
        Text(String),
        Number(serde_json::Number),
    }
    Ok(match Option::deserialize(deserializer)? {
        None => String::new(),
        Some(Identifier::Text(text)) => text,
        Some(Identifier::Number(number)) => number.to_string(),
    })
}

fn position<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    let number = integer(deserializer)?;
    usize::try_from(number).map_err(|_| D::Error::custom(format_args!("{number}, expected a whole number from 0")))
}

/// Answers: a list of objects, one object, or one object of lists, as the rows of `datasets` have it.
fn answers<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Answer>, D::Error> {
    #[derive(Deserialize)]
    struct Columns {
        text: Vec<String>,
        answer_start: Vec<Position>,
    }
    #[derive(Deserialize)]
    struct Position(#[serde(deserialize_with = "position")] usize);
    #[derive(Deserialize)]
    #[serde(
        untagged,
        expecting = "expected a list of objects, or an object, with `text` and `answer_start`, a whole number from 0"
    )]
    enum Answers {
        List(Vec<Answer>),
        One(Answer),
        Columns(Columns),
    }
    Ok(match Option::deserialize(deserializer)? {
        None => Vec::new(),
        Some(Answers::List(answers)) => answers,
        Some(Answers::One(answer)) => vec![answer],
        Some(Answers::Columns(Columns { text, answer_start })) if text.len() == answer_start.len() => {
            let answer = |(text, Position(answer_start))| Answer { text, answer_start };
            text.into_iter().zip(answer_start).map(answer).collect()
        }
        Some(Answers::Columns(Columns { text, answer_start })) => {
            let (texts, starts) = (text.len(), answer_start.len());
            return Err(D::Error::custom(format_args!("{texts} texts and {starts} starts, expected as many")));
        }
    })
}

/// A paragraph as it is written, or a row, which is one with a single question.
#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct Written<'a> {
    context: String,
    #[serde(default)]
    title: Option<String>,
    #[serde(borrow)]
    qas: Option<Vec<&'a RawValue>>,
}

impl Written<'_> {
    /// Its questions, or the reason why one cannot be read; `text` is all of it.
    fn questions(&self, text: &[u8]) -> Vec<Result<Question, String>> {
        let read = |text: &[u8]| json::read(text).map_err(|error| error.message);
        match &self.qas {
            Some(qas) => qas.iter().map(|question| read(question.get().as_bytes())).collect(),
            None => vec![read(text)],
        }
    }
}

impl Paragraph {
    /// Reads a paragraph or a row.
    ///
    /// # Errors
    /// It is neither.
    pub fn read(text: &[u8]) -> serde_json::Result<Self> {
        let written: Written<'_> = serde_json::from_slice(text)?;
        let qas = written.questions(text).into_iter().map(Result::unwrap_or_default).collect();
        Ok(Self { context: written.context, qas })
    }
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

/// Index of a file: positions of valid questions, and the number of articles.
#[derive(Debug)]
pub struct Index {
    /// The questions that can be used, in the order of the file.
    pub places: Vec<QuestionLocation>,
    /// Articles of the file, those without a sound question among them.
    pub articles: u32,
    /// SHA-256 of the file's bytes, in hexadecimal.
    pub digest: String,
    /// Bytes that reading took beside the index.
    pub opening_bytes: u64,
}

const FORM: &str = "JSON in SQuAD v1.1's form";
const EXPECTED: &str = "an object with `data`: {\"data\": [{\"title\": …, \"paragraphs\": [{\"context\": …, \"qas\": […]}]}]}, or rows on a line \
     each: {\"context\": …, \"question\": …, \"answers\": …}";

/// Looks through a file; `path` is for messages. What is broken goes to the judge.
pub fn index(mut file: impl Read + Seek, path: &Path, invalid: &mut InvalidCollector) -> Result<Index, DataError> {
    let failed = |error: std::io::Error| DataError::file(path, format!("cannot be read: {error}"));
    let rows = is_rows(JsonStream::new(&mut file, path, FORM, &mut |_| {})?).unwrap_or(false);
    file.rewind().map_err(failed)?;
    let mut digest = Sha256::new();
    let mut seen = |bytes: &[u8]| digest.update(bytes);
    let stream = JsonStream::new(file, path, FORM, &mut seen)?;
    let mut reading = Reading { path, invalid, places: Vec::new(), opening_bytes: 0 };
    let articles = if rows { reading.rows(stream)? } else { reading.squad(stream)? };
    let Reading { mut places, opening_bytes, .. } = reading;
    places.shrink_to_fit();
    Ok(Index { places, articles, digest: hexadecimal(&digest.finalize()), opening_bytes })
}

/// Returns whether the first object is a row, and not all of SQuAD's file.
fn is_rows(mut stream: JsonStream<'_, impl Read>) -> Result<bool, DataError> {
    stream.enter(b'{', "", "")?;
    while let Some(key) = stream.key()? {
        match key.as_str() {
            "data" => return Ok(false),
            "context" | "question" => return Ok(true),
            _ => stream.skip()?,
        };
    }
    Ok(false)
}

struct Reading<'a, 'b> {
    path: &'a Path,
    invalid: &'b mut InvalidCollector,
    places: Vec<QuestionLocation>,
    opening_bytes: u64,
}

impl Reading<'_, '_> {
    /// Reads the lines of a file of rows; returns the number of articles, which are titles, or else contexts.
    fn rows(&mut self, mut stream: JsonStream<'_, impl Read>) -> Result<u32, DataError> {
        loop {
            let place = stream.place();
            let called = format!("line {}", place.line);
            let Some(bytes) = stream.line()? else {
                self.invalid.add(
                    "too_long_line",
                    self.path,
                    format!("{called}: has more than {VALUE_BYTES_MAX} bytes"),
                );
                continue;
            };
            if bytes.is_empty() {
                break;
            }
            let bytes = bytes.trim_ascii_end();
            if bytes.is_empty() {
                continue;
            }
            let mut row: Written<'_> = match serde_json::from_slice(bytes) {
                Ok(row) => row,
                Err(error) => {
                    let message = format!("{called}: {}", why_of_line(&error));
                    self.invalid.add("unreadable_paragraph", self.path, message);
                    continue;
                }
            };
            let title = row.title.take().filter(|title| !title.is_empty());
            let location = QuestionLocation { offset: place.offset, length: length(bytes), question: 0, article: 0 };
            let (before, key) = (self.places.len(), hash(title.as_deref().unwrap_or(&row.context)));
            self.questions(&row.context, row.questions(bytes), location, || called.clone());
            // A row that is left out counts as one of its article, and its place ends with the numbering.
            let unsound = QuestionLocation { length: 0, ..location };
            if self.places.len() == before {
                self.add(unsound);
            }
            self.places[before..].iter_mut().for_each(|place| place.set_key(key));
        }
        self.opening_bytes = stream.bytes();
        Ok(number_articles(&mut self.places))
    }

    /// Reads a file in SQuAD's form; returns the number of articles.
    fn squad(&mut self, mut stream: JsonStream<'_, impl Read>) -> Result<u32, DataError> {
        if stream.peek()? == Some(b'[') {
            return Err(stream.error(format!("begins with `[`, a list; expected {EXPECTED}")));
        }
        stream.enter(b'{', FILE, EXPECTED)?;
        let mut articles = None;
        while let Some(key) = stream.key()? {
            match key.as_str() {
                "data" => {
                    stream.enter(b'[', "`data`", "a list")?;
                    let mut number = 0;
                    while stream.more()? {
                        self.article(&mut stream, number)?;
                        number += 1;
                    }
                    articles = Some(number);
                }
                _ => drop(stream.skip()?),
            }
        }
        stream.end()?;
        self.opening_bytes = stream.bytes();
        articles.ok_or_else(|| stream.error("missing field `data`"))
    }

    fn article(&mut self, stream: &mut JsonStream<'_, impl Read>, article: u32) -> Result<(), DataError> {
        let at = stream.place();
        let (mut title, mut wrong, mut read) = (String::new(), None, false);
        if stream.peek()? != Some(b'{') {
            stream.value()?;
            wrong = Some("it is no object".to_owned());
        } else {
            stream.enter(b'{', "", "")?;
            while let Some(key) = stream.key()? {
                match key.as_str() {
                    "title" => match serde_json::from_slice(stream.value()?) {
                        Ok(text) => title = text,
                        Err(error) => wrong = Some(format!("`title`: {}", why_of_line(&error))),
                    },
                    "paragraphs" if wrong.is_none() && stream.peek()? == Some(b'[') => {
                        read = true;
                        stream.enter(b'[', "", "")?;
                        let mut number = 0;
                        while stream.more()? {
                            let called = format!("paragraph {number} of the article \"{title}\"");
                            self.paragraph(stream, article, &called)?;
                            number += 1;
                        }
                    }
                    _ => drop(stream.skip()?),
                }
            }
        }
        if let Some(wrong) = wrong.or_else(|| (!read).then(|| "it has no list `paragraphs`".into())) {
            let message = format!("article {article} ({}) cannot be read: {wrong}", at.shown());
            self.invalid.add("unreadable_article", self.path, message);
        }
        Ok(())
    }

    fn paragraph(
        &mut self,
        stream: &mut JsonStream<'_, impl Read>,
        article: u32,
        called: &str,
    ) -> Result<(), DataError> {
        stream.peek()?;
        let place = stream.place();
        let raw = stream.value()?;
        let wrong = match json::read::<Written<'_>>(raw) {
            Ok(paragraph) if paragraph.qas.is_some() => {
                let location = QuestionLocation { offset: place.offset, length: length(raw), question: 0, article };
                let questions = paragraph.questions(raw);
                self.questions(&paragraph.context, questions, location, || format!("{called} ({})", place.shown()));
                return Ok(());
            }
            Ok(_) => "has no `qas`".to_owned(),
            Err(error) => format!("cannot be read: {}", error.message),
        };
        self.invalid.add("unreadable_paragraph", self.path, format!("{called} ({}) {wrong}", place.shown()));
        Ok(())
    }

    /// Adds a place; the list grows by little, as it is most of what opening takes.
    fn add(&mut self, location: QuestionLocation) {
        if self.places.len() == self.places.capacity() {
            self.places.reserve_exact(self.places.len() / 8 + 64);
        }
        self.places.push(location);
    }

    /// Adds the questions of a paragraph at `location` that are sound. One that is not takes no other along.
    fn questions(
        &mut self,
        context: &str,
        questions: Vec<Result<Question, String>>,
        location: QuestionLocation,
        called: impl Fn() -> String,
    ) {
        let single = questions.len() == 1;
        for (number, asked) in questions.into_iter().enumerate() {
            let wrong = match asked {
                Ok(asked) => wrong(context, &asked).map(|(reason, wrong)| match asked.id.is_empty() {
                    true => (reason, wrong),
                    false => (reason, format!("({}) {wrong}", asked.id)),
                }),
                Err(wrong) => Some(("unreadable_question", wrong)),
            };
            match wrong {
                None => self.add(QuestionLocation { question: number as u32, ..location }),
                Some((reason, wrong)) => {
                    let question = if single { String::new() } else { format!(", question {number}") };
                    self.invalid.add_with(reason, self.path, || format!("{}{question}: {wrong}", called()));
                }
            }
        }
    }
}

impl QuestionLocation {
    /// Keeps the hash of its article's name, in place of numbers that are not known yet.
    fn set_key(&mut self, key: u64) {
        (self.question, self.article) = ((key >> 32) as u32, key as u32);
    }

    fn key(&self) -> u64 {
        u64::from(self.question) << 32 | u64::from(self.article)
    }
}

fn hash(name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

/// Numbers the articles of rows, which have the hashes of their names, in the order of the file, and removes what is left out.
/// In place: a map of all names would take more than the index.
fn number_articles(places: &mut Vec<QuestionLocation>) -> u32 {
    places.sort_unstable_by_key(|place| (place.key(), place.offset));
    // The first row of an article in place of its name.
    places.chunk_by_mut(|one, other| one.key() == other.key()).for_each(|article| {
        let first = article[0].offset;
        article.iter_mut().for_each(|place| place.set_key(first));
    });
    places.sort_unstable_by_key(|place| (place.key(), place.offset));
    let mut count = 0;
    for article in places.chunk_by_mut(|one, other| one.key() == other.key()) {
        article.iter_mut().for_each(|place| place.set_key(count));
        count += 1;
    }
    places.retain(|place| place.length > 0);
    places.sort_unstable_by_key(|place| place.offset);
    count as u32
}

/// A paragraph of four gigabytes is not read at all: files have a cap.
fn length(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).unwrap_or(u32::MAX)
}

/// Reason and message why a question is invalid; `None` where it is valid.
fn wrong(context: &str, question: &Question) -> Option<(&'static str, String)> {
    if question.question.trim().is_empty() {
        return Some(("empty_question", "the question is empty".into()));
    }
    if question.answers.is_empty() {
        return Some(("unanswered", "has no answer (SQuAD v2's unanswerable questions are not used)".into()));
    }
    let misplaced = question.answers.iter().find(|answer| answer.text.is_empty() || start(context, answer).is_none());
    misplaced.map(|answer| {
        let Answer { text, answer_start } = answer;
        ("misplaced_answer", format!("the answer \"{text}\" is not at character {answer_start} of the context"))
    })
}

/// Offset in bytes of an answer in its context; `None` if it is not there.
pub fn start(context: &str, answer: &Answer) -> Option<usize> {
    let byte = match context.is_ascii() {
        true => answer.answer_start,
        false => context.char_indices().map(|(byte, _)| byte).nth(answer.answer_start)?,
    };
    context.get(byte..)?.starts_with(&answer.text).then_some(byte)
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;
    use crate::reading::invalid::OnInvalid;

    const TEXT: &str = r#"{"version": "1.1", "data": [{"title": "Żuraw", "paragraphs": [
      {"context": "Ala ma kota. Żuraw też.", "qas": [
        {"id": "a", "question": "Who?", "answers": [{"text": "Ala", "answer_start": 0}]},
        {"id": "b", "question": "Also who?", "answers": [{"text": "też", "answer_start": 19}]}]}]}]}"#;

    fn read(text: &str, policy: OnInvalid) -> (Result<Index, DataError>, InvalidCollector) {
        let mut invalid = InvalidCollector::new(policy);
        let index = index(Cursor::new(text), Path::new("dev.json"), &mut invalid);
        (index.and_then(|index| invalid.result().map(|()| index)), invalid)
    }

    #[test]
    fn a_place_leads_to_its_paragraph_and_answers_are_counted_in_characters() {
        let index = read(TEXT, OnInvalid::Fail).0.unwrap();
        assert_eq!((index.places.len(), index.articles), (2, 1));
        let place = index.places[1];
        let part = &TEXT[place.offset as usize..][..place.length as usize];
        let paragraph = Paragraph::read(part.as_bytes()).unwrap();
        let question = &paragraph.qas[place.question as usize];
        let start = start(&paragraph.context, &question.answers[0]).unwrap();
        assert_eq!(&paragraph.context[start..], "też.");
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place_and_can_be_left_out() {
        let changes = [
            ("\"answer_start\": 19", "\"answer_start\": 18"),
            ("\"answer_start\": 19", "\"answer_start\": 999"),
            ("\"answer_start\": 19", "\"answer_start\": \"x\""),
            ("\"question\": \"Who?\"", "\"frage\": \"Who?\""),
            ("\"question\": \"Who?\"", "\"question\": \" \""),
            (r#"[{"text": "Ala", "answer_start": 0}]"#, "[]"),
            ("\"context\": \"Ala", "\"kontext\": \"Ala"),
        ];
        let shown = |(from, to): (&str, &str)| {
            let broken = TEXT.replace(from, to);
            let (index, invalid) = read(&broken, OnInvalid::Skip);
            assert!(index.unwrap().places.len() < 2 && invalid.found.total() == 1);
            format!("{}\n", read(&broken, OnInvalid::Fail).0.unwrap_err())
        };
        let whole = ["", "{\"data\": [", "[]", "{\"data\": 3}"];
        let whole = whole.map(|text| format!("{}\n", read(text, OnInvalid::Fail).0.unwrap_err()));
        insta::assert_snapshot!(changes.map(shown).concat() + &whole.concat());
    }

    #[test]
    fn a_broken_question_takes_no_other_along_and_ids_and_numbers_have_any_form() {
        let text = r#"{"data": [{"title": "T", "paragraphs": [{"context": "Ann met Bob.", "qas": [
          {"id": 1, "question": "Who?", "answers": [{"text": "Ann", "answer_start": "0"}]},
          {"id": 2, "question": "Never?", "is_impossible": true},
          {"id": 3, "question": null, "answers": []},
          {"id": [], "question": "Whom?", "answers": [{"text": "Bob", "answer_start": 8.0}]},
          {"id": 5.0, "question": "Whom?", "answers": [{"text": "Bob", "answer_start": 8.0}]}]}]}]}"#;
        let (index, invalid) = read(text, OnInvalid::Skip);
        let questions: Vec<u32> = index.unwrap().places.iter().map(|place| place.question).collect();
        assert_eq!(questions, [0, 4]);
        let counts: Vec<(&str, u64)> = invalid.found.counts.iter().map(|(reason, count)| (&**reason, *count)).collect();
        assert_eq!(counts, [("unanswered", 1), ("unreadable_question", 2)]);
        let message = read(text, OnInvalid::Fail).0.unwrap_err().to_string();
        assert!(
            message.contains("line 1, column ") && message.contains("`id`: expected a text or a number"),
            "{message}"
        );
    }

    #[test]
    fn rows_of_datasets_are_questions_of_articles_by_title_or_else_context() {
        let row = |title: &str, context: &str, answers: &str| {
            format!(
                "{{\"id\": \"i\", {title}\"context\": \"{context}\", \"question\": \"Who?\", \"answers\": {answers}}}\n"
            )
        };
        let ann = "{\"text\": [\"Ann\"], \"answer_start\": [0]}";
        let (a, b) = ("\"title\": \"A\", ", "\"title\": \"B\", ");
        let titled = [row(a, "Ann sat.", ann), row(a, "Ann ran.", ann), "\n".into(), row(b, "Ann.", ann)].concat();
        let index = read(&format!("\u{feff}{titled}"), OnInvalid::Fail).0.unwrap();
        let articles: Vec<u32> = index.places.iter().map(|place| place.article).collect();
        assert_eq!((articles, index.articles), (vec![0, 0, 1], 2));
        let place = index.places[1];
        let part = &format!("\u{feff}{titled}")[place.offset as usize..][..place.length as usize];
        let paragraph = Paragraph::read(part.as_bytes()).unwrap();
        assert_eq!((paragraph.context.as_str(), paragraph.qas[0].answers[0].text.as_str()), ("Ann ran.", "Ann"));
        let plain = [row("", "Ann sat.", ann), row("", "Ann ran.", ann), row("", "Ann sat.", ann)].concat();
        let index = read(&plain, OnInvalid::Fail).0.unwrap();
        assert_eq!(index.places.iter().map(|place| place.article).collect::<Vec<_>>(), [0, 1, 0]);
        let wrong = [row("", "Ann sat.", ann), row("", "Bob.", ann), "{\"a\"\n".into(), row("", "Ann.", "3")].concat();
        let (index, invalid) = read(&wrong, OnInvalid::Skip);
        assert_eq!((index.unwrap().places.len(), invalid.found.total()), (1, 3));
        let message = read(&wrong, OnInvalid::Fail).0.unwrap_err().to_string();
        for part in ["line 2: (i) the answer \"Ann\" is not", "line 3: ", "line 4: `answers`: "] {
            assert!(message.contains(part), "{message}");
        }
    }
}
