//! How is somebody else's command run, sampled, limited and recorded?
//!
//! `session` is the flow: it starts the command, looks at its processes, stops it at a limit and writes down how it ended.

pub mod attach;
pub mod ending;
pub mod groups;
pub mod output;
pub mod recognise;
pub mod record;
pub mod sampler;
pub mod session;
pub mod steps;
pub mod stop;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::settings::sections::FailOn;
use steps::Pattern;
use stop::Signal;

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Request {
    /// The command: its program and its words.
    pub words: Vec<OsString>,
    /// Of the folder below the results.
    pub name: String,
    pub results: PathBuf,
    /// Between two looks at its processes.
    pub every: Duration,
    /// Bytes.
    pub host_memory: Option<u64>,
    /// The share of a limit at which it is stopped.
    pub at: f64,
    /// What is sent first.
    pub signal: Signal,
    /// How long it then may go on.
    pub grace: Duration,
    pub time_limit: Option<Duration>,
    pub fail_on: FailOn,
    pub steps: Option<StepsFrom>,
}

/// Where steps come from.
#[derive(Clone, Debug)]
pub enum StepsFrom {
    /// Lines of its output.
    Output(Pattern),
    /// Progress bars in its output.
    Recognised,
    /// A file of JSON lines that it appends to.
    File(PathBuf),
}

/// A command could not be run, or its results could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// The command line is wrong.
    #[error("{0}")]
    Asked(String),
    #[error(transparent)]
    Write(#[from] crate::results::write::WriteError),
    #[error("{0}")]
    System(String),
}
