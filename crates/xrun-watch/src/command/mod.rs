//! Running, sampling, limiting and recording of a command.
//!
//! `session` is the main flow: it starts the command, samples its processes, stops it at a limit and records its end.

pub mod attach;
mod exit;
mod groups;
mod growth;
mod limits;
mod metrics;
mod output;
mod printed_phases;
mod pty;
mod record;
mod reports;
mod sampler;
pub mod session;
pub mod start;
mod step_counter;
mod step_formats;
mod step_source;
mod step_suggestion;
mod steps;
mod stop;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use xrun_core::bounded::buffer::Buffer;
use xrun_core::settings::sections::{FailOn, TrainingFailOn};
use xrun_core::settings::signal::Signal;
use xrun_core::settings::step_pattern::StepPattern;
use xrun_core::task::metric::Direction;
use xrun_results::format::{Manifest, PlanFile};
use xrun_run::directory::RunDirectory;

/// Command to run, with its limits and options.
#[derive(Clone, Debug, Default)]
pub struct WatchRequest {
    /// Program and arguments.
    pub command: Vec<OsString>,
    /// Name of the directory below the results.
    pub name: String,
    /// Directory of all results.
    pub results: PathBuf,
    /// Interval of samples.
    pub interval: Duration,
    /// Limit on the memory footprint of all processes, in bytes.
    pub host_memory: Option<u64>,
    /// Limit on memory of all GPUs together, in bytes.
    pub device_memory: Option<u64>,
    /// Limit in bytes that the kernel enforces, in a separate cgroup.
    pub hard_limit: Option<u64>,
    /// Fraction of a limit at which the command is stopped.
    pub limit_fraction: f64,
    /// First signal that requests a stop.
    pub signal: Signal,
    /// Time from that signal to SIGTERM.
    pub grace: Duration,
    /// Time after which the command is stopped.
    pub time_limit: Option<Duration>,
    /// Mildest verdict on memory that fails the run.
    pub fail_on: FailOn,
    /// Mildest verdict on training that fails the run.
    pub training_fail_on: TrainingFailOn,
    /// Source of its steps.
    pub steps: Option<StepSource>,
    /// Variables that are added to its environment.
    pub environment: BTreeMap<String, String>,
    /// Working directory; the current one when absent.
    pub working_directory: Option<PathBuf>,
    /// File that it saves to.
    pub checkpoint: Option<PathBuf>,
    /// Names of its numbers that measure the result.
    pub metrics: BTreeMap<String, Direction>,
    /// Condition at which it is ended early.
    pub early_end: Option<EarlyEnd>,
    /// True if its standard output goes to standard error, because ours is used otherwise.
    pub stdout_to_stderr: bool,
    /// True if the exit code is that of the command, and not that of the outcome.
    pub own_exit_code: bool,
    /// Names of the limits in messages.
    pub names: LimitNames,
    /// True if it can be resumed after a stop.
    pub can_resume: bool,
    /// Secrets of the experiment, which are masked in the command line.
    pub secrets: Vec<String>,
    /// True if uncommitted changes of the checkout are recorded.
    pub patch: bool,
    /// True if the growth of a Python program is explained.
    pub explain: bool,
}

impl WatchRequest {
    /// Returns whether the command line names a Python interpreter or script.
    pub fn runs_python(&self) -> bool {
        self.command.iter().map(Path::new).any(|word| {
            let name = word.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("python") || name.ends_with(".py")
        })
    }
}

/// Condition at which a command is ended early, as in a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EarlyEnd {
    /// Number of steps.
    pub steps: u64,
    /// Time after which it is ended, whatever its step.
    pub after: Option<Duration>,
}

/// Names of the options or keys that set limits, for messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitNames {
    /// Name of [`WatchRequest::host_memory`].
    pub host_memory: &'static str,
    /// Name of [`WatchRequest::device_memory`].
    pub device_memory: &'static str,
    /// Name of [`WatchRequest::hard_limit`].
    pub hard_limit: &'static str,
    /// Name of [`WatchRequest::steps`].
    pub steps: &'static str,
    /// Instruction to explain the growth of a Python program.
    pub explain: &'static str,
}

impl LimitNames {
    /// Options of the command line.
    pub const OPTIONS: Self = Self {
        host_memory: "--host-memory",
        device_memory: "--device-memory",
        hard_limit: "--hard-limit",
        steps: "--steps",
        explain: "xrun watch --explain -- …",
    };
    /// Keys of an experiment.
    pub const KEYS: Self = Self {
        host_memory: "limits.host_memory",
        device_memory: "limits.device_memory",
        hard_limit: "hard_limit",
        steps: "steps",
        explain: "set `explain = true` in `[pipeline.command]`",
    };
}

/// Source of the steps of a command.
#[derive(Clone, Debug)]
pub enum StepSource {
    /// Lines of its output that match a pattern.
    Output(StepPattern),
    /// Progress bars and lines of trainers in its output.
    Recognised,
    /// File of JSON lines that it appends to.
    File(PathBuf),
}

/// Run of an experiment whose directory is prepared.
#[derive(Debug)]
pub struct PreparedRun {
    /// Directory of the run.
    pub directory: RunDirectory,
    /// Number of processes that wrote into the directory before.
    pub segment: u32,
    /// Seconds that those processes ran.
    pub seconds: f64,
    /// Contents of `manifest.json`.
    pub manifest: Manifest,
    /// Contents of `plan.json`.
    pub plan: PlanFile,
}

/// Buffers of this process while a command runs.
pub fn buffers(request: &WatchRequest) -> Vec<Buffer> {
    let reads = matches!(request.steps, Some(StepSource::Output(_) | StepSource::Recognised));
    let always = [steps::buffer(), sampler::buffer(), reports::buffer()];
    let answers = request.explain.then(crate::explain::buffer);
    reads.then(output::buffer).into_iter().chain(answers).chain(always).chain(record::buffers()).collect()
}

/// Error of a command that cannot be run, or whose results cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// The command line or the experiment is wrong.
    #[error("{0}")]
    Input(String),
    /// A result cannot be written.
    #[error(transparent)]
    Write(#[from] xrun_core::files::write::WriteError),
    /// The system does not allow something.
    #[error("{0}")]
    System(String),
}
