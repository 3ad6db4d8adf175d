//! Errors of looking up a run by name.

use std::fmt;
use std::path::PathBuf;

use xrun_core::invocation;

/// A name that matches no run, or several.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// The directory contains no run.
    #[error("there is no run in {}; start one with `{} FILE`, or name another folder with --results DIR", results.display(), invocation::program())]
    Empty {
        /// The results directory.
        results: PathBuf,
    },
    /// No run has this name.
    #[error("no run is called \"{text}\"{}; there are{candidates}", suggestion.as_ref().map_or(String::new(), |near| format!("; did you mean \"{near}\"?")))]
    NotFound {
        /// The name, escaped for a terminal.
        text: String,
        /// A similar name.
        suggestion: Option<String>,
        /// The runs that there are.
        candidates: Candidates,
    },
    /// The name matches several runs.
    #[error("\"{text}\" may be any of {} runs; write more of the name{candidates}", candidates.count)]
    Ambiguous {
        /// The name, escaped for a terminal.
        text: String,
        /// The runs that it matches.
        candidates: Candidates,
    },
    /// No experiment with runs has this name.
    #[error("no experiment is called \"{text}\"{}; there are runs of{candidates}", suggestion.as_ref().map_or(String::new(), |near| format!("; did you mean \"{near}\"?")))]
    NoExperiment {
        /// The name, escaped for a terminal.
        text: String,
        /// A similar name.
        suggestion: Option<String>,
        /// Experiments that have runs.
        candidates: Candidates,
    },
    /// `latest~5` of fewer than six runs.
    #[error("\"{text}\" goes too far back: there are {count} runs")]
    TooFarBack {
        /// The name, escaped for a terminal.
        text: String,
        /// Number of runs.
        count: usize,
    },
}

/// Runs that could be meant, newest first.
#[derive(Debug, PartialEq, Eq)]
pub struct Candidates {
    /// At most eight names, as `experiment/run` or, for an unknown experiment, names of experiments.
    pub names: Vec<String>,
    /// Number of all candidates.
    pub count: usize,
}

/// Maximum number of names in a message.
pub(super) const CANDIDATES_MAX: usize = 8;

impl fmt::Display for Candidates {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for name in &self.names {
            write!(formatter, "\n  {name}")?;
        }
        let more = self.count - self.names.len();
        if more > 0 {
            write!(formatter, "\n  and {more} more; `{} ls` lists them", invocation::program())
        } else {
            Ok(())
        }
    }
}
