//! Errors of looking up a run by name.

use std::fmt;
use std::path::PathBuf;

use xrun_core::invocation;
use xrun_core::units::pluralize;

/// A name that matches no run, or several.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// The directory contains no run.
    #[error("no runs in {}; start one with `{} FILE`, or name another directory with --results DIR", results.display(), invocation::program())]
    Empty {
        /// The results directory.
        results: PathBuf,
    },
    /// No run, or no experiment with runs, has this name.
    #[error("no {what} named \"{text}\"; {} {what}s are:{candidates}", did_you_mean(suggestion))]
    NotFound {
        /// `run` or `experiment`.
        what: &'static str,
        /// The name, escaped for a terminal.
        text: String,
        /// A similar name.
        suggestion: Option<String>,
        /// Those that there are.
        candidates: Candidates,
    },
    /// The name is that of a directory without the files of a run.
    #[error("{path} is not a run: it has neither manifest.json, run.lock nor summary.json")]
    NotARun {
        /// The directory, escaped for a terminal.
        path: String,
    },
    /// The name matches several runs.
    #[error("\"{text}\" matches {} runs; type more of the name:{candidates}", candidates.count)]
    Ambiguous {
        /// The name, escaped for a terminal.
        text: String,
        /// The runs that it matches.
        candidates: Candidates,
    },
    /// `latest~5` of fewer than six runs.
    #[error("no run \"{text}\": there {} only {}", if *count == 1 { "is" } else { "are" }, pluralize(*count as u64, "run"))]
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

fn did_you_mean(suggestion: &Option<String>) -> String {
    suggestion.as_ref().map_or("the known".into(), |near| format!("did you mean \"{near}\"? The known"))
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
