//! Slurm's commands: `sbatch`, `squeue`, `scontrol`.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use super::SlurmError;
use super::arrays::Arrays;
use xrun_core::printable;

/// Longest message of Slurm, in characters.
const MESSAGE_CHARACTERS_MAX: usize = 400;

/// A task of a job array in the queue, where it stays for some minutes after its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuedTask {
    /// Number of the job array.
    pub job: u64,
    /// Its number in the array.
    pub task: usize,
    /// The place of its run in the order of the sweep.
    pub place: usize,
    /// `PENDING`, `RUNNING`, `CANCELLED`, …
    pub state: String,
    /// Slurm's reason why it waits.
    pub reason: String,
    /// Step after which a task of a search stops; `None` is the end of its run.
    pub until: Option<u64>,
}

impl QueuedTask {
    /// Returns whether it runs or waits.
    pub fn is_active(&self) -> bool {
        const ENDED: [&str; 10] = [
            "BOOT_FAIL",
            "CANCELLED",
            "COMPLETED",
            "DEADLINE",
            "FAILED",
            "NODE_FAIL",
            "OUT_OF_MEMORY",
            "PREEMPTED",
            "REVOKED",
            "TIMEOUT",
        ];
        !ENDED.contains(&self.state.as_str())
    }

    /// Returns whether it waits for a node.
    pub fn waits(&self) -> bool {
        matches!(self.state.as_str(), "PENDING" | "REQUEUED" | "REQUEUE_FED" | "REQUEUE_HOLD" | "SPECIAL_EXIT")
    }
}

/// Checks that Slurm's commands can be started.
///
/// # Errors
/// One of them cannot.
pub fn available() -> Result<(), SlurmError> {
    for command in ["sbatch", "squeue"] {
        run(command, Command::new(command).arg("--version"))?;
    }
    Ok(())
}

/// Submits a script. Returns the number of the job.
///
/// # Errors
/// Slurm refuses it.
pub fn submit(script: &Path) -> Result<u64, SlurmError> {
    let output = run("sbatch", Command::new("sbatch").arg("--parsable").arg(script))?;
    if !output.status.success() {
        return Err(SlurmError::Refused { message: error_message(&output) });
    }
    // On a federation, the name of the cluster follows after a semicolon.
    let text = String::from_utf8_lossy(&output.stdout);
    let number = text.lines().last().unwrap_or_default().split(';').next().unwrap_or_default().trim();
    number.parse().map_err(|_| {
        let found = printable::line(&text, 80);
        SlurmError::Failed(format!("`sbatch` failed: expected the number of the job, found \"{found}\""))
    })
}

/// Largest number of tasks in an array of this cluster; `None` when it is not known.
pub fn array_size_max() -> Option<u32> {
    let output = run("scontrol", Command::new("scontrol").args(["show", "config"])).ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix("MaxArraySize"))?;
    line.trim_start().strip_prefix('=')?.trim().parse().ok()
}

/// Lines of the queue for the jobs with these names, a list with commas.
///
/// # Errors
/// Slurm does not answer.
pub fn lines(names: &str) -> Result<String, SlurmError> {
    let mut command = Command::new("squeue");
    command.args(["--noheader", "--array", "--states=all", "--format=%F|%K|%T|%j|%r"]);
    let output = run("squeue", command.arg(format!("--name={names}")))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(SlurmError::Failed(format!("`squeue` failed: {}", error_message(&output)))),
    }
}

/// Parses `12|3|PENDING|name|Priority`; `None` for a line of another job.
pub fn task(line: &str, arrays: &Arrays, until: Option<u64>) -> Option<QueuedTask> {
    let mut parts = line.trim().splitn(5, '|');
    let (job, task) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let state = printable::line(parts.next()?, 40);
    let place = arrays.place(parts.next()?, task)?;
    let reason = printable::line(parts.next().unwrap_or_default(), 120);
    Some(QueuedTask { job, task, place, state, reason, until })
}

/// Returns whether the run at this place of the order has a task that runs or waits.
pub fn is_active(tasks: &[QueuedTask], place: usize) -> bool {
    tasks.iter().any(|task| task.place == place && task.is_active())
}

/// Numbers of tasks that run, and that wait.
pub fn counts(tasks: &[QueuedTask]) -> (usize, usize) {
    let active = || tasks.iter().filter(|task| task.is_active());
    let waiting = active().filter(|task| task.waits()).count();
    (active().count() - waiting, waiting)
}

fn run(name: &'static str, command: &mut Command) -> Result<Output, SlurmError> {
    command.stdin(Stdio::null()).output().map_err(|error| {
        SlurmError::Failed(format!(
            "`{name}` cannot be started: {error}; submit from a machine of the cluster that has Slurm's commands, or run the \
             sweep on this machine, without `--launcher slurm`"
        ))
    })
}

/// The standard error of a command, in one line.
fn error_message(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    match lines.is_empty() {
        true => format!("{} without a message", output.status),
        false => printable::line(&lines.join("; "), MESSAGE_CHARACTERS_MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines_of_the_queue_are_read() {
        let arrays = Arrays::new(Path::new("s"), 30, Some(10));
        let task = |line: &str| super::task(line, &arrays, None);
        let read = task("12|3|PENDING|xrun_s_from_20|Priority\n").unwrap();
        assert_eq!((read.job, read.task, read.place), (12, 3, 23));
        assert_eq!((read.state.as_str(), read.reason.as_str()), ("PENDING", "Priority"));
        assert!(read.is_active() && read.waits());
        assert!(!task("12|3|OUT_OF_MEMORY|xrun_s|None").unwrap().is_active());
        assert!(task("12|3|COMPLETING|xrun_s|None").unwrap().is_active());
        assert_eq!(task("12|0-3%2|PENDING|xrun_s|Priority"), None);
        assert_eq!(task("12|N/A|RUNNING|xrun_s|None"), None);
        assert_eq!(task("12|3|RUNNING|another|None"), None);
    }

    proptest! {
        #[test]
        fn no_line_makes_it_panic(line in ".{0,60}|[0-9|A-Z]{0,30}") {
            let _ = task(&line, &Arrays::new(Path::new("s"), 30, Some(10)), None);
        }
    }
}
