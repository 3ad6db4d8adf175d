//! Errors of data sets, and the count of invalid items.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::units::pluralize;

/// Data that cannot be used. The message names the item and the cure. Names are unescaped; printing escapes them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum DataError {
    /// A file is missing, unreadable or invalid.
    #[error("{path}: {message}{}", suffix(.hint))]
    File {
        /// The file, with the line or item where known.
        path: String,
        /// Cause, without the path.
        message: String,
        /// A setting that cures it, if there is one.
        hint: Option<String>,
    },
    /// The data set as a whole is unsuitable.
    #[error("{0}")]
    Content(String),
    /// A value of the experiment does not fit the data. The key is whole, such as `dataset.coco.train_classes`.
    #[error("`{key}`: {message}")]
    Value {
        /// Full dotted key, such as `dataset.coco.train_classes`.
        key: String,
        /// Cause, without the key.
        message: String,
        /// Entry of the value that is wrong, where it is a list of texts.
        entry: Option<String>,
    },
    /// Several items are invalid.
    #[error("{0}")]
    Several(InvalidItems),
}

/// A hint as the end of a message.
fn suffix(hint: &Option<String>) -> String {
    hint.as_ref().map_or_else(String::new, |hint| format!("; {hint}"))
}

/// Maximum number of invalid items that are named; the others are only counted.
pub const NAMED_MAX: usize = 20;
/// Reason of an error that no setting can leave out.
pub const FATAL: &str = "cannot_be_left_out";
/// Reason of a class that the experiment uses and that is unsuitable.
pub const UNUSABLE_CLASS: &str = "unusable_class";
/// Reason of a class that the experiment names and the data lacks.
pub const UNKNOWN_CLASS: &str = "unknown_class";
/// Reason of an id that several items share.
pub const REPEATED_ID: &str = "repeated_id";

/// `true` for reasons that `on_invalid = "skip"` does not cover.
fn is_fatal(reason: &str) -> bool {
    [FATAL, UNUSABLE_CLASS, UNKNOWN_CLASS, REPEATED_ID].contains(&reason)
}

/// Invalid items of a data set: all are counted by reason, the first are named.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InvalidItems {
    /// Number of items by reason, one of a few fixed words.
    pub counts: BTreeMap<String, u64>,
    /// First items, at most [`NAMED_MAX`].
    pub first: Vec<InvalidItem>,
}

/// An invalid item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InvalidItem {
    /// Reason, one of a few fixed words such as `wrong_size`.
    pub reason: String,
    /// File and cause, without advice.
    pub error: DataError,
}

impl InvalidItems {
    /// Adds an item; `error` is called only if it is to be named.
    pub fn add(&mut self, reason: &str, error: impl FnOnce() -> DataError) {
        self.add_many(reason, 1, error);
    }

    /// Adds `count` items of the same reason, one of which `error` names.
    pub fn add_many(&mut self, reason: &str, count: u64, error: impl FnOnce() -> DataError) {
        *self.counts.entry(reason.to_owned()).or_default() += count;
        if self.first.len() < NAMED_MAX {
            self.first.push(InvalidItem { reason: reason.to_owned(), error: error() });
        }
    }

    /// Appends the items of another list.
    pub fn append(&mut self, other: &Self) {
        for (reason, count) in &other.counts {
            *self.counts.entry(reason.clone()).or_default() += count;
        }
        let free = NAMED_MAX.saturating_sub(self.first.len());
        self.first.extend(other.first.iter().take(free).cloned());
    }

    /// Number of invalid items, including those that are only counted.
    pub fn total(&self) -> u64 {
        self.counts.values().sum()
    }

    /// Counts as text: `unknown_category 8, wrong_size 1`.
    pub fn by_reason(&self) -> String {
        let counts: Vec<String> = self.counts.iter().map(|(reason, count)| format!("{reason} {count}")).collect();
        counts.join(", ")
    }

    /// Advice as the end of a message; empty if no setting helps.
    pub fn advice(&self) -> String {
        let (fatal, others): (Vec<&str>, Vec<&str>) =
            self.counts.keys().map(String::as_str).partition(|reason| is_fatal(reason));
        match (fatal.as_slice(), others.as_slice()) {
            (_, []) => String::new(),
            ([], _) => "; correct them, or leave them out with on_invalid = \"skip\"".to_owned(),
            _ => format!(
                "; correct them: on_invalid = \"skip\" leaves out {}, but never {}",
                others.join(", "),
                fatal.join(", ")
            ),
        }
    }

    /// Number of items that are not named.
    pub fn unnamed(&self) -> u64 {
        self.total() - self.first.len() as u64
    }
}

impl fmt::Display for InvalidItems {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{} in the data: {}{}",
            pluralize(self.total(), "invalid item"),
            self.by_reason(),
            self.advice()
        )?;
        for item in &self.first {
            write!(formatter, "\n  {}", item.error)?;
        }
        match self.unnamed() {
            0 => Ok(()),
            more => write!(formatter, "\n  and {more} more"),
        }
    }
}

/// Limit of messages: they contain names from data files, which may be as long as the file.
const TEXT_BYTES_MAX: usize = 2000;

impl DataError {
    /// Error of a file. Path and message are shortened to a readable length.
    pub fn file(path: &std::path::Path, message: impl Into<String>) -> Self {
        Self::File { path: cut(path.display().to_string()), message: cut(message.into()), hint: None }
    }

    /// Error of a value of the experiment. The message is shortened.
    pub fn value(key: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Value { key: key.into(), message: cut(message.into()), entry: None }
    }

    /// Error of one entry of a list of texts. The message is shortened.
    pub fn entry(key: impl Into<String>, entry: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Value { key: key.into(), message: cut(message.into()), entry: Some(entry.into()) }
    }

    /// Error of the data set as a whole. The message is shortened.
    pub fn content(message: impl Into<String>) -> Self {
        Self::Content(cut(message.into()))
    }
}

/// Shortens a long text in the middle: its beginning and end state the cause and the cure.
fn cut(text: String) -> String {
    if text.len() <= TEXT_BYTES_MAX {
        return text;
    }
    let (first, last) =
        (text.floor_char_boundary(TEXT_BYTES_MAX / 2), text.ceil_char_boundary(text.len() - TEXT_BYTES_MAX / 2));
    format!("{}…{}", &text[..first], &text[last..])
}
