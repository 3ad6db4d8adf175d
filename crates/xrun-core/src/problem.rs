//! Diagnostics of an experiment file: message, location and hint.
//!
//! A [`Problem`] names a key, the value expected and found, the layer it came from (a file, an environment variable, a
//! command-line override) and the span in that layer's text. [`Problems`] collects them, so that the user sees all at once.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::printable::escape;

/// Maximum number of problems that are collected; a hostile file could cause millions.
pub const PROBLEMS_MAX: usize = 100;

/// Text of a layer, in which a problem is located.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Name for messages: `experiments/stage2.toml`, `environment variable XRUN__LIMITS__WORKERS`, `command line`.
    pub name: String,
    /// The whole text.
    pub text: String,
    /// Set where the text is a command-line option that is short for a key, such as `--device gpu`.
    pub option: Option<OptionKey>,
}

/// Command-line option that is short for a key of the experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionKey {
    /// The option, such as `--device`.
    pub option: &'static str,
    /// The dotted key, such as `experiment.device`.
    pub key: &'static str,
}

impl Source {
    /// A text that is not a short option.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self { name: name.into(), text: text.into(), option: None }
    }
}

/// Location of a problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// Text that it is in.
    pub source: Arc<Source>,
    /// Byte range of the key or value.
    pub span: Range<usize>,
}

impl Location {
    /// Line and column from 1; the column counts characters.
    pub fn line_and_column(&self) -> (usize, usize) {
        let before = &self.source.text[..self.source.text.floor_char_boundary(self.span.start)];
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
    }
}

/// An error in the user's input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Dotted key, such as `limits.workers`; empty for the whole file.
    pub key: String,
    /// Expected and found value, as a fragment in lower case.
    pub message: String,
    /// Cure.
    pub help: Option<Box<str>>,
    /// Location; `None` where the text has nothing to point at, such as a missing key.
    pub location: Option<Location>,
    /// Other keys involved, where keys contradict each other.
    pub related: Vec<Related>,
    /// `true` if the value is valid but the file system does not match, such as a missing file.
    pub is_disk_problem: bool,
}

/// Another key involved in a problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Related {
    /// Dotted key.
    pub key: String,
    /// Location where it was set; `None` for a default.
    pub location: Option<Location>,
}

impl Problem {
    /// A problem without a location and help.
    pub fn new(key: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            message: message.into(),
            help: None,
            location: None,
            related: Vec::new(),
            is_disk_problem: false,
        }
    }

    /// Adds a cure.
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into().into_boxed_str());
        self
    }

    /// Marks the problem as one of the file system.
    pub fn as_disk_problem(mut self) -> Self {
        self.is_disk_problem = true;
        self
    }

    /// Adds another key involved. Its location is filled in later.
    pub fn related(mut self, key: impl Into<String>) -> Self {
        self.related.push(Related { key: key.into(), location: None });
        self
    }

    /// Sets the location.
    pub fn at(mut self, location: Option<Location>) -> Self {
        self.location = location;
        self
    }

    /// Name that the user typed: the key, or the option that is short for it.
    pub fn typed(&self) -> &str {
        let option = self.location.as_ref().and_then(|location| location.source.option);
        option.filter(|option| option.key == self.key).map_or(&self.key, |option| option.option)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(location) = &self.location {
            let (line, column) = location.line_and_column();
            write!(formatter, "{}:{line}:{column}: ", escape(&location.source.name))?;
        }
        if !self.key.is_empty() {
            write!(formatter, "`{}`: ", escape(self.typed()))?;
        }
        formatter.write_str(&escape(&self.message))?;
        match &self.help {
            Some(help) => write!(formatter, " ({})", escape(help)),
            None => Ok(()),
        }
    }
}

/// Collection of problems, bounded by [`PROBLEMS_MAX`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems {
    list: Vec<Problem>,
    /// Number of problems beyond the maximum.
    pub left_out: usize,
}

impl From<Problem> for Problems {
    fn from(problem: Problem) -> Self {
        let mut problems = Self::default();
        problems.add(problem);
        problems
    }
}

impl Problems {
    /// Adds a problem unless it is a duplicate. Beyond [`PROBLEMS_MAX`] it is only counted.
    pub fn add(&mut self, problem: Problem) {
        if self.list.contains(&problem) {
            return;
        }
        if self.list.len() < PROBLEMS_MAX {
            self.list.push(problem);
        } else {
            self.left_out += 1;
        }
    }

    /// `true` if there are no problems.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns `true` and counts one more problem if the collection is full, which saves the caller building it.
    pub fn count_if_full(&mut self) -> bool {
        let full = self.list.len() >= PROBLEMS_MAX;
        self.left_out += usize::from(full);
        full
    }

    /// Collected problems in the order of insertion.
    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.list.iter()
    }

    /// Collected problems, mutable, to fill in locations.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Problem> {
        self.list.iter_mut()
    }

    /// Adds the problems of another collection.
    pub fn extend(&mut self, other: Self) {
        self.left_out += other.left_out;
        for problem in other.list {
            self.add(problem);
        }
    }

    /// `Ok` if there are no problems.
    pub fn into_result(self) -> Result<(), Self> {
        if self.is_empty() { Ok(()) } else { Err(self) }
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for problem in &self.list {
            writeln!(formatter, "{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// Candidate most similar to `word`, for "did you mean"; `None` if no one is similar enough.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let normalised = |text: &str| text.to_lowercase().replace('-', "_");
    let word = normalised(word);
    candidates
        .into_iter()
        .map(|candidate| {
            let normal = normalised(candidate);
            // `rn` and `run` have only one letter at the same place.
            let one_edit = if strsim::osa_distance(&word, &normal) == 1 { 0.8 } else { 0.0 };
            (strsim::jaro_winkler(&word, &normal).max(one_edit), candidate)
        })
        .filter(|(similarity, _)| *similarity >= 0.8) // `worker` and `workers`, but not `seed` and `speed_up`
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}
