//! What does an experiment need, seen by doing a little of it? Some steps, one short validation and a checkpoint, in a
//! process of their own: its memory is not in ours, and if it runs out of memory, that is an answer.

pub mod left;
pub mod remembered;
pub mod solve;

use std::fs::File;
use std::io::{Read, Seek};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use xrun_core::experiment::Experiment;
use xrun_core::experiment::overrides::as_words;
use xrun_core::units::{counted, seconds};
use xrun_results::format::{Demand, DiskDemand, Outcome, Summary};
use xrun_watch::child;
use xrun_watch::child::ParentDeathSignal;

/// The probe has an end even where a step takes minutes. It looks at its clock between two steps.
const TIME_LIMIT: &str = "2m";
/// A probe whose step takes longer than all of them may is ended by the process that started it.
const ENDED_AFTER: Duration = Duration::from_secs(130);
/// A command is looked at no longer: by then a trainer has read its data, and most have done some steps.
pub const OF_COMMAND: Duration = Duration::from_secs(20);
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
    /// What its process needed in the steps that it did.
    pub demand: Demand,
    /// How many numbers the model has.
    pub parameters: u64,
    /// What it left on the disk; `None` of a command.
    pub disk: Option<DiskDemand>,
}

/// A probe gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The process cannot be started, or its folder cannot be made.
    #[error("the probe cannot be started: {0}")]
    Start(std::io::Error),
    /// There is not enough memory for even a few steps. Its own words.
    #[error("a probe ran out of memory: {0}")]
    OutOfMemory(String),
    /// Data that cannot be used. Its own words, which name the item.
    #[error("{0}; met while memory was measured, so nothing was trained")]
    Data(String),
    /// Not even these few steps were done in the time that a probe has.
    #[error(
        "the probe was ended after {}: it had not done its {}; a step takes long on this device",
        seconds(after.as_secs_f64()), counted(*steps, "step")
    )]
    TooSlow {
        /// How long it had.
        after: Duration,
        /// The steps that it should have done in that time.
        steps: u64,
    },
    /// Its own words.
    #[error("the probe failed: {0}")]
    Failed(String),
    /// By a signal to this process.
    #[error("stopped while memory was measured; nothing was trained")]
    Stopped,
}

/// How long a probe may take, for people.
pub fn words_of_limit(experiment: &Experiment) -> String {
    seconds(if experiment.command().is_some() { OF_COMMAND } else { ENDED_AFTER }.as_secs_f64())
}

/// Does `steps` steps of the experiment that `file` and the overrides declare. `stopped` says whether nobody waits for it any
/// more.
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
    let mut command = child::command().map_err(ProbeError::Start)?;
    command.arg("run").arg(file).arg("--results").arg(results.path());
    command.args(["--quiet", "--json", "--progress", "none", "--probe", &steps.to_string()]);
    command.args(overrides.iter().cloned().chain(short(experiment, steps)).flat_map(|text| as_words(&text)));
    child::end_with_parent(&mut command, ParentDeathSignal::Kill);
    let ended = output(command.stdin(Stdio::null()), stopped, ENDED_AFTER)?;
    let output = ended.ok_or(ProbeError::TooSlow { after: ENDED_AFTER, steps })?;
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let summary: Option<Summary> = serde_json::from_value(answer["summary"].clone()).ok();
    // One that ended early has not seen everything, and what it says is no forecast.
    match summary {
        // An experiment may have fewer steps than a probe would take.
        Some(summary) if summary.outcome.is_whole() && (summary.steps >= steps || did_all(&summary, &answer)) => {
            let parameters = answer["parameters"].as_u64().unwrap_or_default();
            Ok(Probe { parameters, demand: summary.demand, disk: left::in_results(results.path()) })
        }
        Some(summary) if summary.outcome == Outcome::MemoryLimit => Err(ProbeError::OutOfMemory(summary.message)),
        Some(summary) if summary.of_data => Err(ProbeError::Data(summary.message)),
        Some(summary) if summary.outcome == Outcome::TimeLimit => {
            Err(ProbeError::TooSlow { after: Duration::from_secs_f64(summary.seconds), steps })
        }
        _ if died_of_memory(&output) => Err(ProbeError::OutOfMemory(why(&answer, &output))),
        _ => Err(ProbeError::Failed(why(&answer, &output))),
    }
}

/// Whether there was no more to do: how many steps a command has, nobody knows before.
fn did_all(summary: &Summary, answer: &serde_json::Value) -> bool {
    summary.outcome == Outcome::Finished || answer["as_far_as_asked"] == true
}

/// Runs the command to its end; `None` where that does not come within `limit`, and the process was killed. What it says
/// goes into files, so that a pipe cannot fill up while nobody reads.
fn output(command: &mut Command, stopped: &dyn Fn() -> bool, limit: Duration) -> Result<Option<Output>, ProbeError> {
    let files = || Ok((tempfile::tempfile()?, tempfile::tempfile()?));
    let (answer, said) = files().map_err(ProbeError::Start)?;
    let ours = |file: &File| file.try_clone().map_err(ProbeError::Start);
    command.stdout(ours(&answer)?).stderr(ours(&said)?);
    let mut child = command.spawn().map_err(ProbeError::Start)?;
    let since = Instant::now();
    let status = loop {
        let nobody_waits = stopped();
        if nobody_waits || since.elapsed() >= limit {
            // It may have ended by itself: the signal went to it, too.
            let _ = child.kill();
            let _ = child.wait();
            return if nobody_waits { Err(ProbeError::Stopped) } else { Ok(None) };
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
    Ok(Some(Output { status, stdout, stderr }))
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
    let limits = [("host_memory", experiment.limits.host_memory), ("device_memory", experiment.limits.device_memory)];
    let no_limits = limits.iter().filter(|(_, limit)| limit.is_some());
    let no_limits = no_limits.map(|(key, _)| format!("limits.{key}={NO_LIMIT:?}"));
    if experiment.command().is_some() {
        // What else a probe leaves out is for the command to say.
        return no_limits.chain(["memory.fail_on=\"never\"".into(), "memory.probe=false".into()]).collect();
    }
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
    set.extend(no_limits);
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

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    /// `script` in a shell, which may take so long.
    fn within(script: &str, limit: Duration) -> Result<Option<Output>, ProbeError> {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        output(&mut command, &|| false, limit)
    }

    #[test]
    fn a_probe_that_is_within_one_long_step_is_ended_from_outside() {
        let begun = Instant::now();
        // `exec`: the shell itself is what is killed.
        let ended = within("exec sleep 60", Duration::from_millis(200)).unwrap();
        assert!(ended.is_none() && begun.elapsed() < Duration::from_secs(20), "{ended:?}");
        let whole = within("echo done", Duration::from_secs(60)).unwrap().unwrap();
        assert_eq!((whole.status.code(), whole.stdout.as_slice()), (Some(0), b"done\n".as_slice()));
        let said = ProbeError::TooSlow { after: ENDED_AFTER, steps: 3 }.to_string();
        assert!(said.contains("ended after 2 min 10 s") && said.contains("its 3 steps"), "{said}");
    }

    #[test]
    fn the_probe_looks_at_its_own_clock_first() {
        let own: std::time::Duration = TIME_LIMIT.parse::<humantime::Duration>().unwrap().into();
        assert!(own < ENDED_AFTER);
    }
}
