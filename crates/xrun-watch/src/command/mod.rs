//! How is somebody else's command run, sampled, limited and recorded?
//!
//! `session` is the flow: it starts the command, looks at its processes, stops it at a limit and writes down how it ended.

pub mod attach;
pub mod ending;
pub mod events;
pub mod groups;
mod limits;
pub mod numbers;
pub mod output;
pub mod recognise;
pub mod record;
pub mod sampler;
pub mod session;
pub mod start;
pub mod steps;
pub mod stop;
pub mod terminal;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::directory::RunDirectory;
use xrun_core::bounded::buffer::Buffer;
use xrun_core::settings::sections::FailOn;
use xrun_core::settings::signal::Signal;
use xrun_core::settings::step_pattern::StepPattern;
use xrun_core::task::metric::Better;

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
    /// Bytes on all GPUs together.
    pub device_memory: Option<u64>,
    /// Bytes that the kernel lets it have, in a cgroup of its own.
    pub hard_limit: Option<u64>,
    /// The share of a limit at which it is stopped.
    pub at: f64,
    /// What is sent first.
    pub signal: Signal,
    /// How long it then may go on.
    pub grace: Duration,
    pub time_limit: Option<Duration>,
    pub fail_on: FailOn,
    pub steps: Option<StepsFrom>,
    /// Variables of its environment, besides ours.
    pub environment: BTreeMap<String, String>,
    /// The folder that it is run in; the current one without it.
    pub folder: Option<PathBuf>,
    /// What it saves to.
    pub checkpoint: Option<PathBuf>,
    /// Numbers of its steps that measure the result.
    pub metrics: BTreeMap<String, Better>,
    /// It has done enough then.
    pub enough: Option<Enough>,
    /// Standard output is for something else: the command's goes to standard error.
    pub output_aside: bool,
    /// The exit code is the command's own, and not the one that stands for the outcome.
    pub own_exit_code: bool,
    /// What the limits are called.
    pub names: Names,
    /// Whether it says how it goes on after a stop.
    pub resumes: bool,
    /// Secrets of the experiment, which may stand anywhere among the words.
    pub secrets: Vec<String>,
    /// Whether what was changed in the checkout is recorded.
    pub patch: bool,
}

/// When a command is ended that was to show something only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enough {
    pub steps: u64,
    /// At the latest, whether or not it has steps.
    pub after: Option<Duration>,
}

/// What people write to set a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Names {
    pub host_memory: &'static str,
    pub device_memory: &'static str,
    pub hard_limit: &'static str,
    pub steps: &'static str,
}

impl Names {
    /// On the command line.
    pub const OPTIONS: Self = Self {
        host_memory: "--host-memory",
        device_memory: "--device-memory",
        hard_limit: "--hard-limit",
        steps: "--steps",
    };
    /// In an experiment.
    pub const KEYS: Self = Self {
        host_memory: "limits.host_memory",
        device_memory: "limits.device_memory",
        hard_limit: "hard_limit",
        steps: "steps",
    };
}

/// Where steps come from.
#[derive(Clone, Debug)]
pub enum StepsFrom {
    /// Lines of its output.
    Output(StepPattern),
    /// Progress bars in its output. That there are none is worth a word where somebody asked for them.
    Recognised { asked: bool },
    /// A file of JSON lines that it appends to.
    File(PathBuf),
    /// A folder of event files, which it writes for TensorBoard.
    Events(PathBuf),
}

/// The run of an experiment, whose directory is there and describes it.
#[derive(Debug)]
pub struct Begun {
    pub directory: RunDirectory,
    /// Counts the processes that wrote into the directory before this one.
    pub segment: u32,
    /// Seconds that these worked on it.
    pub seconds: f64,
}

/// Every buffer of this process while a command runs.
pub fn buffers(request: &Request) -> Vec<Buffer> {
    let read = match request.steps {
        Some(StepsFrom::Output(_) | StepsFrom::Recognised { .. }) => Some(output::buffer()),
        Some(StepsFrom::Events(_)) => Some(events::buffer()),
        Some(StepsFrom::File(_)) | None => None,
    };
    let always = [steps::buffer(), sampler::buffer()];
    read.into_iter().chain(always).chain(record::buffers()).collect()
}

/// A command could not be run, or its results could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// The command line is wrong.
    #[error("{0}")]
    Asked(String),
    #[error(transparent)]
    Write(#[from] xrun_core::files::write::WriteError),
    #[error("{0}")]
    System(String),
}
