//! Slurm's commands: `sbatch`, `squeue`, and what they answer.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use super::SlurmError;
use crate::results::printable;

/// A message of Slurm's is cut after this.
const SAID_CHARACTERS_MAX: usize = 400;

/// A task of a job array, as the queue has it; also for some minutes after its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    pub job: u64,
    /// The place of its run in the order of the sweep.
    pub place: usize,
    /// `PENDING`, `RUNNING`, `CANCELLED`, …
    pub state: String,
    /// Why it waits, in Slurm's word.
    pub reason: String,
}

impl Task {
    /// It runs, or will.
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

    pub fn waits(&self) -> bool {
        matches!(self.state.as_str(), "PENDING" | "REQUEUED" | "REQUEUE_FED" | "REQUEUE_HOLD" | "SPECIAL_EXIT")
    }
}

/// Slurm's commands are here.
pub fn available() -> Result<(), SlurmError> {
    for command in ["sbatch", "squeue"] {
        run(command, Command::new(command).arg("--version"))?;
    }
    Ok(())
}

/// Submits a script; answers the number of the job.
pub fn submit(script: &Path) -> Result<u64, SlurmError> {
    let output = run("sbatch", Command::new("sbatch").arg("--parsable").arg(script))?;
    if !output.status.success() {
        return Err(SlurmError::Refused { said: said(&output) });
    }
    // On a federation the cluster's name stands behind a semicolon.
    let text = String::from_utf8_lossy(&output.stdout);
    let number = text.lines().last().unwrap_or_default().split(';').next().unwrap_or_default().trim();
    number.parse().map_err(|_| {
        let said = format!("expected the number of the job, found \"{}\"", printable::line(&text, 80));
        SlurmError::Failed { command: "sbatch", said }
    })
}

/// The tasks of the jobs with this name.
pub fn tasks(name: &str) -> Result<Vec<Task>, SlurmError> {
    let mut command = Command::new("squeue");
    command.args(["--noheader", "--array", "--states=all", "--format=%F|%K|%T|%r"]).arg(format!("--name={name}"));
    let output = run("squeue", &mut command)?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).lines().filter_map(task).collect()),
        false => Err(SlurmError::Failed { command: "squeue", said: said(&output) }),
    }
}

/// Of `12|3|PENDING|Priority`; `None` for a line that is not of a task.
fn task(line: &str) -> Option<Task> {
    let mut parts = line.trim().splitn(4, '|');
    Some(Task {
        job: parts.next()?.parse().ok()?,
        place: parts.next()?.parse().ok()?,
        state: printable::line(parts.next()?, 40),
        reason: printable::line(parts.next().unwrap_or_default(), 120),
    })
}

fn run(name: &'static str, command: &mut Command) -> Result<Output, SlurmError> {
    command.stdin(Stdio::null()).output().map_err(|source| SlurmError::Command { command: name, source })
}

/// What a command said, in a line.
fn said(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    match lines.is_empty() {
        true => format!("it ended with {} and said nothing", output.status),
        false => printable::line(&lines.join("; "), SAID_CHARACTERS_MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines_of_the_queue_are_read() {
        let read = task("12|3|PENDING|Priority\n").unwrap();
        assert_eq!((read.job, read.place, read.state.as_str(), read.reason.as_str()), (12, 3, "PENDING", "Priority"));
        assert!(read.is_active() && read.waits());
        assert!(!task("12|3|OUT_OF_MEMORY|None").unwrap().is_active());
        assert!(task("12|3|COMPLETING|None").unwrap().is_active());
        assert_eq!(task("12|0-3%2|PENDING|Priority"), None);
        assert_eq!(task("12|N/A|RUNNING|None"), None);
    }

    proptest! {
        #[test]
        fn no_line_makes_it_panic(line in ".{0,60}|[0-9|A-Z]{0,30}") {
            let _ = task(&line);
        }
    }
}
