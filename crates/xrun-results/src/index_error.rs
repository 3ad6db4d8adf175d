//! What is said when a few letters mean no run, or more than one?

use std::fmt;
use std::path::PathBuf;

use xrun_core::invocation;

/// No run, or more than one, is meant.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// The folder has no run at all.
    #[error("there is no run in {}; start one with `{} FILE`, or name another folder with --results DIR", results.display(), invocation::program())]
    Empty {
        /// The folder of results.
        results: PathBuf,
    },
    /// Nothing is called so.
    #[error("no run is called \"{text}\"{}; there are{candidates}", suggestion.as_ref().map_or(String::new(), |near| format!("; did you mean \"{near}\"?")))]
    NotFound {
        /// What was asked for, cleaned for a terminal.
        text: String,
        /// A name that is near, where there is one.
        suggestion: Option<String>,
        /// What could be meant.
        candidates: Candidates,
    },
    /// The text fits several runs.
    #[error("\"{text}\" may be any of {} runs; write more of the name{candidates}", candidates.count)]
    Ambiguous {
        /// What was asked for, cleaned for a terminal.
        text: String,
        /// The runs that it fits.
        candidates: Candidates,
    },
    /// There are runs, and none of an experiment of this name.
    #[error("no experiment is called \"{text}\"{}; there are runs of{candidates}", suggestion.as_ref().map_or(String::new(), |near| format!("; did you mean \"{near}\"?")))]
    NoExperiment {
        /// What was asked for, cleaned for a terminal.
        text: String,
        /// A name that is near, where there is one.
        suggestion: Option<String>,
        /// Experiments that have runs.
        candidates: Candidates,
    },
    /// `latest~5` of fewer than six runs.
    #[error("\"{text}\" goes too far back: there are {count} runs")]
    TooFarBack {
        /// What was asked for, cleaned for a terminal.
        text: String,
        /// The runs that there are.
        count: usize,
    },
}

/// Some of the runs that could be meant, newest first.
#[derive(Debug, PartialEq, Eq)]
pub struct Candidates {
    /// At most eight of them, as `experiment/run`; where no experiment is meant, names of experiments.
    pub names: Vec<String>,
    /// Of all that could be meant.
    pub count: usize,
}

/// More names than this do not help in a message.
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
