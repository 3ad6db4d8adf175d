//! What does an experiment need, seen by doing a little of it? Some steps, one short validation and a checkpoint, in a
//! process of their own: its memory is not in ours, and if it runs out of memory, that is an answer.

pub mod remembered;
pub mod solve;

use std::fs::File;
use std::io::{Read, Seek};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::child::{self, Farewell};
use crate::experiment::Experiment;
use crate::experiment::overrides::as_words;
use crate::results::format::{Demand, Outcome, Summary};

/// The probe has an end even where a step takes minutes.
const TIME_LIMIT: &str = "2m";
/// Episodes of its validation.
const EPISODES_MAX: usize = 2;
/// Above any limit: a probe that stops at a limit would not say what is needed.
const NO_LIMIT: &str = "4 PiB";

/// How often it is looked whether the probe has ended, or is to.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// More of what it says is not read.
const SAID_BYTES_MAX: u64 = 16 << 20;

/// What a probe measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Probe {
    pub demand: Demand,
    pub parameters: u64,
}

/// A probe gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    #[error("the probe cannot be started: {0}")]
    Start(std::io::Error),
    /// There is not enough memory for even a few steps. Its own words.
    #[error("a probe ran out of memory: {0}")]
    OutOfMemory(String),
    /// Its own words.
    #[error("the probe failed: {0}")]
    Failed(String),
    /// By a signal to this process.
    #[error("stopped while memory was measured; nothing was trained")]
    Stopped,
}

/// Does `steps` steps of the experiment that `file` and the overrides declare, unless `stopped` says that nobody waits for
/// them any more.
///
/// # Errors
/// The process does not start, or does not come to an end of its own.
pub fn probe(
    file: &Path,
    overrides: &[String],
    experiment: &Experiment,
    steps: u64,
    stopped: &dyn Fn() -> bool,
) -> Result<Probe, ProbeError> {
    let results = tempfile::tempdir().map_err(ProbeError::Start)?;
    let program = std::env::current_exe().map_err(ProbeError::Start)?;
    let mut command = Command::new(program);
    command.arg("run").arg(file).arg("--results").arg(results.path());
    command.args(["--quiet", "--json", "--progress", "none", "--probe", &steps.to_string()]);
    command.args(overrides.iter().cloned().chain(short(experiment, steps)).flat_map(|text| as_words(&text)));
    child::ends_with_us(&mut command, Farewell::Kill);
    let output = output(command.stdin(Stdio::null()), stopped)?;
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let summary: Option<Summary> = serde_json::from_value(answer["summary"].clone()).ok();
    // One that ended early has not seen everything, and what it says is no forecast.
    match summary {
        Some(summary) if summary.steps >= steps && summary.outcome.is_whole() => {
            Ok(Probe { parameters: answer["parameters"].as_u64().unwrap_or_default(), demand: summary.demand })
        }
        Some(summary) if summary.outcome == Outcome::MemoryLimit => Err(ProbeError::OutOfMemory(summary.message)),
        _ if died_of_memory(&output) => Err(ProbeError::OutOfMemory(why(&answer, &output))),
        _ => Err(ProbeError::Failed(why(&answer, &output))),
    }
}

/// Runs the command to its end. What it says goes into files, so that a pipe cannot fill up while nobody reads.
fn output(command: &mut Command, stopped: &dyn Fn() -> bool) -> Result<Output, ProbeError> {
    let files = || Ok((tempfile::tempfile()?, tempfile::tempfile()?));
    let (answer, said) = files().map_err(ProbeError::Start)?;
    let ours = |file: &File| file.try_clone().map_err(ProbeError::Start);
    command.stdout(ours(&answer)?).stderr(ours(&said)?);
    let mut child = command.spawn().map_err(ProbeError::Start)?;
    let status = loop {
        if stopped() {
            // It may have ended by itself: the signal went to it, too.
            let _ = child.kill();
            let _ = child.wait();
            return Err(ProbeError::Stopped);
        }
        if let Some(status) = child.try_wait().map_err(ProbeError::Start)? {
            break status;
        }
        std::thread::sleep(LOOK_EVERY);
    };
    // The signal that ended it may come here a moment later.
    if stopped() {
        return Err(ProbeError::Stopped);
    }
    let read = |mut file: File| -> std::io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        file.rewind()?;
        file.take(SAID_BYTES_MAX).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let (stdout, stderr) = read(answer).and_then(|answer| Ok((answer, read(said)?))).map_err(ProbeError::Start)?;
    Ok(Output { status, stdout, stderr })
}

/// What a run answers with that met a memory limit, or whose device had no memory to give: the table in the README.
const EXIT_OUT_OF_MEMORY: i32 = 5;

/// Killed by the kernel, or by an allocation that was refused, on the host or on the device.
fn died_of_memory(output: &Output) -> bool {
    child::signal_of(output.status) == Some(9)
        || output.status.code() == Some(EXIT_OUT_OF_MEMORY)
        || String::from_utf8_lossy(&output.stderr).contains("memory allocation of")
}

/// What makes a probe of the experiment.
fn short(experiment: &Experiment, steps: u64) -> Vec<String> {
    let validation = &experiment.validation;
    let mut set = vec![
        format!("training.time_limit=\"{TIME_LIMIT}\""),
        format!("validation.episodes={}", validation.episodes.min(EPISODES_MAX)),
        "checkpoint.every_steps=0".into(),
        "memory.every_steps=1".into(),
        // The driver's word is a slower source; a probe has few samples.
        "memory.parts_every_samples=1".into(),
        "memory.fail_on=\"never\"".into(),
        "memory.probe=false".into(),
    ];
    if validation.every_steps > 0 || validation.every_epochs > 0 {
        // The last step of the probe validates.
        set.push(format!("validation.every_steps={steps}"));
        set.push("validation.every_epochs=0".into());
    }
    let limits = [("host_memory", experiment.limits.host_memory), ("device_memory", experiment.limits.device_memory)];
    set.extend(limits.iter().filter(|(_, limit)| limit.is_some()).map(|(key, _)| format!("limits.{key}={NO_LIMIT:?}")));
    set
}

/// The answer's message, or what was said on standard error, or the signal.
fn why(answer: &serde_json::Value, output: &Output) -> String {
    if let Some(message) = answer["message"].as_str() {
        return message.to_owned();
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said =
        said.lines().find(|line| line.starts_with("error") || line.starts_with("memory")).unwrap_or_default().trim();
    match said.is_empty() {
        true => format!("it ended with {}; a process that runs out of memory is killed with signal 9", output.status),
        false => said.trim_start_matches("error: ").to_owned(),
    }
}
