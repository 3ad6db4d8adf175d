//! What can be wrong with data?

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// Data that cannot be used. The message names the item and says what to do; names are escaped by whoever prints.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum DataError {
    /// A file is missing, unreadable or broken.
    #[error("{path}: {message}{}", behind(.hint))]
    File {
        /// The file, with the line or the item in it where that is known.
        path: String,
        /// What is wrong with it, without its name.
        message: String,
        /// What a setting can do about it, if one can.
        hint: Option<String>,
    },
    /// The data set as a whole does not serve.
    #[error("{0}")]
    Content(String),
    /// A value of the experiment does not suit the data. The key is whole, such as `dataset.coco.train_classes`.
    #[error("`{key}`: {message}")]
    Value {
        /// The whole key.
        key: String,
        /// What is wrong with its value.
        message: String,
    },
    /// Several items are broken.
    #[error("{0}")]
    Several(Broken),
}

/// A hint, to be put behind a message.
fn behind(hint: &Option<String>) -> String {
    hint.as_ref().map_or_else(String::new, |hint| format!("; {hint}"))
}

/// Broken items are named up to this many; the others are counted.
pub const NAMED_MAX: usize = 20;
/// The reason of what no setting leaves out.
pub const FATAL: &str = "cannot_be_left_out";
/// The reason of a class that is to be used and cannot be.
pub const UNUSABLE_CLASS: &str = "unusable_class";
/// The reason of a class that the experiment names and the data do not have.
pub const UNKNOWN_CLASS: &str = "unknown_class";
/// The reason of an id that several items have.
pub const REPEATED_ID: &str = "repeated_id";

/// Whether no setting leaves out what is broken for this reason.
fn is_fatal(reason: &str) -> bool {
    [FATAL, UNUSABLE_CLASS, UNKNOWN_CLASS, REPEATED_ID].contains(&reason)
}

/// Broken items of a data set: all of them counted, the first by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Broken {
    /// How many, by reason: a few fixed words.
    pub counts: BTreeMap<String, u64>,
    /// The first [`NAMED_MAX`].
    pub first: Vec<BrokenItem>,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BrokenItem {
    /// One of a few fixed words, such as `wrong_size`.
    pub reason: String,
    /// Which file and what is wrong, without advice.
    pub error: DataError,
}

impl Broken {
    /// `error` says which file and what is wrong.
    pub fn add(&mut self, reason: &str, error: impl FnOnce() -> DataError) {
        self.add_many(reason, 1, error);
    }

    /// So many for the same reason, of which `error` says it for one.
    pub fn add_many(&mut self, reason: &str, count: u64, error: impl FnOnce() -> DataError) {
        *self.counts.entry(reason.to_owned()).or_default() += count;
        if self.first.len() < NAMED_MAX {
            self.first.push(BrokenItem { reason: reason.to_owned(), error: error() });
        }
    }

    /// Those of another list behind these.
    pub fn append(&mut self, other: &Self) {
        for (reason, count) in &other.counts {
            *self.counts.entry(reason.clone()).or_default() += count;
        }
        let room = NAMED_MAX.saturating_sub(self.first.len());
        self.first.extend(other.first.iter().take(room).cloned());
    }

    /// All broken items, also those that are only counted.
    pub fn total(&self) -> u64 {
        self.counts.values().sum()
    }

    /// `unknown_category 8, wrong_size 1`.
    pub fn by_reason(&self) -> String {
        let counts: Vec<String> = self.counts.iter().map(|(reason, count)| format!("{reason} {count}")).collect();
        counts.join(", ")
    }

    /// What can be done about them, to be put behind the counts: not all can be left out.
    pub fn advice(&self) -> String {
        let (fatal, others): (Vec<&str>, Vec<&str>) =
            self.counts.keys().map(String::as_str).partition(|reason| is_fatal(reason));
        match (fatal.as_slice(), others.as_slice()) {
            (_, []) => String::new(),
            ([], _) => "; correct them, or leave them out with on_broken = \"skip\"".to_owned(),
            _ => format!(
                "; correct them: on_broken = \"skip\" leaves out {}, and never {}",
                others.join(", "),
                fatal.join(", ")
            ),
        }
    }

    /// How many are not named.
    pub fn unnamed(&self) -> u64 {
        self.total() - self.first.len() as u64
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} mistakes in the data: {}{}", self.total(), self.by_reason(), self.advice())?;
        for item in &self.first {
            write!(formatter, "\n  {}", item.error)?;
        }
        match self.unnamed() {
            0 => Ok(()),
            more => write!(formatter, "\n  and {more} more"),
        }
    }
}

/// Names come from data files, where one may be as long as the file.
const TEXT_BYTES_MAX: usize = 2000;

impl DataError {
    /// Path and message are cut to a length that a person reads.
    pub fn file(path: &std::path::Path, message: impl Into<String>) -> Self {
        Self::File { path: cut(path.display().to_string()), message: cut(message.into()), hint: None }
    }

    /// As [`DataError::file`].
    pub fn value(key: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Value { key: key.into(), message: cut(message.into()) }
    }

    /// As [`DataError::file`].
    pub fn content(message: impl Into<String>) -> Self {
        Self::Content(cut(message.into()))
    }
}

/// The beginning and the end say what is wrong and what to do; the middle goes.
fn cut(text: String) -> String {
    if text.len() <= TEXT_BYTES_MAX {
        return text;
    }
    let (first, last) =
        (text.floor_char_boundary(TEXT_BYTES_MAX / 2), text.ceil_char_boundary(text.len() - TEXT_BYTES_MAX / 2));
    format!("{}…{}", &text[..first], &text[last..])
}
