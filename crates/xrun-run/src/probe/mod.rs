//! Memory probe: a few steps, a short validation and a checkpoint of an experiment in a separate process. Its memory does not
//! count as that of the caller, and running out of memory is a result.

pub mod cache;
pub mod solve;

use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::child;
use crate::exit::exit_code;
use crate::plan::Plan;
use xrun_core::experiment::Experiment;
use xrun_core::experiment::overrides::as_arguments;
use xrun_core::files::scratch::Scratch;
use xrun_core::units::{pluralize, seconds};
use xrun_results::durations::Durations;
use xrun_results::format::{Demand, Outcome, Summary};

/// `training.time_limit` of a probe, which it checks between steps.
const TIME_LIMIT: &str = "2m";
/// Time after which the parent process kills a probe, because a single step may exceed [`TIME_LIMIT`].
const KILL_AFTER: Duration = Duration::from_secs(130);
/// Time for which a command is probed: enough for a trainer to read its data and for most to do some steps.
pub const COMMAND_TIME: Duration = Duration::from_secs(20);
/// Batches of the validation of a probe.
const EPISODES_MAX: usize = 2;
/// Value that disables a memory limit: a probe that stops at a limit would not measure the demand.
const NO_LIMIT: &str = "4 PiB";

/// Measurements of a probe.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Probe {
    /// Memory demand of its process by phase.
    pub demand: Demand,
    /// Number of parameters of the model.
    pub parameters: u64,
    /// Durations of its parts; `None` for a command.
    pub durations: Option<Durations>,
}

/// Reason why a probe failed.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The process cannot be started, or its temporary files cannot be created.
    #[error("cannot start the memory probe: {0}")]
    Start(std::io::Error),
    /// The probe ran out of memory, with its message.
    #[error("the memory probe ran out of memory: {0}")]
    OutOfMemory(String),
    /// The data cannot be used, with the message of the probe.
    #[error("{0}; found by the memory probe, nothing was trained")]
    Data(String),
    /// The probe did not do its steps in time.
    #[error(
        "the memory probe did not finish its {1} within {0}; steps are slow on this device",
        seconds(after.as_secs_f64()), pluralize(*steps, "step")
    )]
    TooSlow {
        /// Time that it had.
        after: Duration,
        /// Steps that it should have done in that time.
        steps: u64,
    },
    /// The probe failed otherwise, with its message.
    #[error("the memory probe failed: {0}")]
    Failed(String),
    /// This process received a signal.
    #[error("stopped during the memory probe; nothing was trained")]
    Stopped,
}

/// Longest time that a probe of the experiment takes, as text.
pub fn time_limit_text(experiment: &Experiment) -> String {
    seconds(if experiment.command().is_some() { COMMAND_TIME } else { KILL_AFTER }.as_secs_f64())
}

/// Probes the experiment of `plan`, which `file` and the overrides declare, for `steps` steps. The probe is killed when `stopped` returns
/// true.
///
/// # Errors
/// The process does not start, or does not finish its steps.
pub fn probe(
    file: &Path,
    overrides: &[String],
    plan: &Plan,
    steps: u64,
    stopped: &dyn Fn() -> bool,
) -> Result<Probe, ProbeError> {
    let results = Scratch::create(&std::env::temp_dir(), "xrun-probe-").map_err(ProbeError::Start)?;
    let mut command = child::command().map_err(ProbeError::Start)?;
    command.arg("run").arg(file).arg("--results").arg(results.path());
    command.args(["--quiet", "--json", "--progress", "none", "--probe", &steps.to_string()]);
    command.args(overrides.iter().cloned().chain(probe_overrides(plan, steps)).flat_map(|text| as_arguments(&text)));
    child::end_with_parent(&mut command, libc::SIGKILL);
    let ended = child::output(command.stdin(Stdio::null()), stopped, KILL_AFTER).map_err(ProbeError::Start)?;
    // The signal that ended it may arrive here a moment later.
    if stopped() {
        return Err(ProbeError::Stopped);
    }
    let output = ended.ok_or(ProbeError::TooSlow { after: KILL_AFTER, steps })?;
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let summary: Option<Summary> = serde_json::from_value(answer["summary"].clone()).ok();
    // A probe that ended early has not measured everything and gives no forecast.
    match summary {
        // An experiment may have fewer steps than a probe would take.
        Some(summary) if summary.outcome.is_orderly() && (summary.steps >= steps || did_all(&summary, &answer)) => {
            let parameters = answer["parameters"].as_u64().unwrap_or_default();
            Ok(Probe { parameters, demand: summary.demand, durations: summary.durations })
        }
        Some(summary) if summary.outcome == Outcome::MemoryLimit => Err(ProbeError::OutOfMemory(summary.message)),
        Some(summary) if summary.is_data_error => Err(ProbeError::Data(summary.message)),
        Some(summary) if summary.outcome == Outcome::TimeLimit => {
            Err(ProbeError::TooSlow { after: Duration::from_secs_f64(summary.seconds), steps })
        }
        _ if ran_out_of_memory(&output) => Err(ProbeError::OutOfMemory(failure_message(&answer, &output))),
        _ => Err(ProbeError::Failed(failure_message(&answer, &output))),
    }
}

/// Returns true if the probe did all there was to do: the number of steps of a command is not known in advance.
fn did_all(summary: &Summary, answer: &serde_json::Value) -> bool {
    summary.outcome == Outcome::Finished || answer["stopped_as_requested"] == true
}

/// Returns true if the process was OOM-killed, reached a memory limit, or had an allocation refused.
fn ran_out_of_memory(output: &Output) -> bool {
    child::signal_of(output.status) == Some(9)
        || output.status.code() == Some(i32::from(exit_code(Outcome::MemoryLimit)))
        || String::from_utf8_lossy(&output.stderr).contains("memory allocation of")
}

/// Overrides that make a probe of the experiment.
fn probe_overrides(plan: &Plan, steps: u64) -> Vec<String> {
    let experiment = &plan.experiment;
    let limits = [("host_memory", experiment.limits.host_memory), ("device_memory", experiment.limits.device_memory)];
    let no_limits = limits.iter().filter(|(_, limit)| limit.is_some());
    let no_limits = no_limits.map(|(key, _)| format!("limits.{key}={NO_LIMIT:?}"));
    if experiment.command().is_some() {
        // All other settings are the command's own.
        return no_limits.chain(["memory.fail_on=\"never\"".into(), "memory.probe=false".into()]).collect();
    }
    let validation = &experiment.validation;
    // What the first validation repeats is captured in the second.
    let (episodes_max, validations) =
        if plan.is_captured() { (plan.facts.captured_batches, 2) } else { (EPISODES_MAX, 1) };
    let mut set = vec![
        format!("training.time_limit=\"{TIME_LIMIT}\""),
        format!("validation.batches={}", validation.batches.min(episodes_max)),
        "checkpoint.every_steps=0".into(),
        "memory.every_steps=1".into(),
        // Includes the driver and the other slow sources, since a probe has few samples.
        "memory.components_every_samples=1".into(),
        "memory.fail_on=\"never\"".into(),
        "memory.probe=false".into(),
    ];
    if validation.every_steps > 0 || validation.every_epochs > 0 {
        // Validates after the last step of the probe.
        set.push(format!("validation.every_steps={}", (steps / validations).max(1)));
        set.push("validation.every_epochs=0".into());
    }
    set.extend(no_limits);
    set
}

/// Message of the answer, or that on stderr, or the exit status.
fn failure_message(answer: &serde_json::Value, output: &Output) -> String {
    if let Some(message) = answer["message"].as_str() {
        return message.to_owned();
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let is_error = |line: &&str| line.starts_with("error") || line.starts_with("memory");
    match stderr.lines().find(is_error) {
        None => format!("its process ended with {} (an OOM kill is signal 9)", output.status),
        Some(line) => line.trim().trim_start_matches("error: ").to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_time_limit_of_a_probe_is_shorter_than_that_of_its_parent() {
        let own: Duration = TIME_LIMIT.parse::<humantime::Duration>().unwrap().into();
        assert!(own < KILL_AFTER);
    }
}
