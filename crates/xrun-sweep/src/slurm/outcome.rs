//! Outcome of a job whose task is no longer in the queue: its run ended, or it is resubmitted, with more memory where it had too
//! little.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::super::launcher::{last_line, stderr_of};
use super::super::record::run_directory;
use super::super::resources::retry::{self, RetryDecision};
use super::super::run_status::RunStatus;
use super::super::scheduler::Job;
use super::super::search::progress::arrived;
use super::launcher::Submission;
use super::queue::{self, QueuedTask};
use crate::records::search::Search;
use crate::records::sweep::Process;
use xrun_core::files::layout;
use xrun_core::units::{Bytes, pluralize};
use xrun_results::format::VERSION;
use xrun_results::read;
use xrun_results::timestamp::now;
use xrun_run::killed;
use xrun_run::killed::Killer;

/// Time until a file system shows on one machine what another one wrote.
const SETTLED: Duration = Duration::from_secs(2);
/// Slurm's state of a task that a user cancelled.
const CANCELLED: &str = "CANCELLED";
/// Slurm's state of a task that was killed for its memory.
const OUT_OF_MEMORY: &str = "OUT_OF_MEMORY";
/// Slurm's state of a task whose process ended with an error, or was killed.
const FAILED: &str = "FAILED";

/// A job that was submitted and has not ended.
pub struct ActiveJob {
    /// The run, and the step that it stops after.
    pub job: Job,
    /// Place of the run in the order of the sweep.
    pub place: usize,
    /// Submissions after the first.
    pub resubmissions: u32,
    /// Bytes of memory of its one retry after it had too little.
    pub retry_bytes: Option<u64>,
    /// Time since which its task is not in the queue.
    pub gone: Option<Instant>,
    /// Seconds that the run had taken when the job was submitted.
    pub seconds_before: f64,
}

/// Outcome of a job by the queue and the directory of its run.
pub enum TaskOutcome {
    /// It has not ended, or its outcome is not visible yet.
    Active,
    /// It ended, with a message of Slurm or of its node.
    Ended(Option<String>),
    /// It is submitted again.
    Resubmit {
        /// The reason.
        why: String,
        /// Slurm says that it was cancelled.
        cancelled: bool,
    },
    /// It is submitted again, once, with more memory.
    MoreMemory {
        /// The reason.
        why: String,
        /// Bytes of memory.
        bytes: u64,
    },
    /// The user cancelled it, and with it the sweep.
    Cancelled,
}

impl ActiveJob {
    /// Returns whether the run is at the step that the job stops after, or done, by its directory.
    pub fn has_stopped(&self, sweep: &Path, search: Option<&Search>) -> bool {
        matches!(RunStatus::read(&run_directory(sweep, self.job.run)), RunStatus::Done(_))
            || self.has_arrived(sweep, search)
    }

    /// Returns whether the run waits at the rung that the job was to stop at.
    fn has_arrived(&self, sweep: &Path, search: Option<&Search>) -> bool {
        search.is_some_and(|search| arrived(&run_directory(sweep, self.job.run), search, self.job.until))
    }

    /// Decides what becomes of the job. `cancelled`: the user cancelled another one before.
    pub fn outcome(
        &mut self,
        sweep: &Path,
        search: Option<&Search>,
        tasks: &[QueuedTask],
        submission: &Submission<'_>,
        cancelled: bool,
    ) -> TaskOutcome {
        let last = tasks.iter().filter(|task| task.place == self.place).max_by_key(|task| task.job);
        if !queue::is_active(tasks, self.place) && self.has_arrived(sweep, search) {
            tidy(sweep, last);
            return TaskOutcome::Ended(None);
        }
        // The newest process of a run that waited at a rung is of the job before, until this one has begun.
        let directory = run_directory(sweep, self.job.run);
        let until = self.job.until;
        let begun = || search.is_none() || read::manifest(&directory).is_ok_and(|manifest| manifest.until == until);
        match (self.by_task(sweep, tasks, submission, cancelled), last) {
            (TaskOutcome::Resubmit { cancelled: true, .. }, _) if !begun() => TaskOutcome::Cancelled,
            (TaskOutcome::Resubmit { why, .. }, Some(task)) if has_exited(task) && !begun() => {
                self.before_xrun(sweep, task, why)
            }
            (outcome, _) => outcome,
        }
    }

    fn by_task(
        &mut self,
        sweep: &Path,
        tasks: &[QueuedTask],
        submission: &Submission<'_>,
        cancelled: bool,
    ) -> TaskOutcome {
        if queue::is_active(tasks, self.place) {
            self.gone = None;
            return TaskOutcome::Active;
        }
        let directory = run_directory(sweep, self.job.run);
        let status = RunStatus::read(&directory);
        let gone = *self.gone.get_or_insert_with(Instant::now);
        let last = tasks.iter().filter(|task| task.place == self.place).max_by_key(|task| task.job);
        if let RunStatus::Done(outcome) = status {
            let met = retry::met_container_limit(&directory, outcome);
            // The summary of the process before may be visible for a while after the one that continued.
            if met && gone.elapsed() < SETTLED {
                return TaskOutcome::Active;
            }
            tidy(sweep, last);
            return match met {
                true => self.died_of_memory(sweep, submission, "the run reached its container's memory limit".into()),
                false => TaskOutcome::Ended(None),
            };
        }
        if status == RunStatus::Running || gone.elapsed() < SETTLED {
            return TaskOutcome::Active;
        }
        let state = last.map_or("gone from its queue", |task| task.state.as_str());
        let why = format!("Slurm says {state}");
        // Slurm may not know why its job failed, and the cgroup of a process of this machine may. A Slurm that watches memory
        // itself (OverMemoryKill) says FAILED.
        let by_kernel = || matches!(killed::killer(&directory), Killer::Oom { own: true, .. });
        let given = submission.memory_of(self.job.run, self.retry_bytes);
        let by_slurm = || state == FAILED && given.is_some_and(|given| retry::held_more(&directory, given));
        if state == OUT_OF_MEMORY || (status == RunStatus::Unfinished && (by_kernel() || by_slurm())) {
            return self.died_of_memory(sweep, submission, why);
        }
        match (status, state, last) {
            (RunStatus::NotStarted, CANCELLED, _) => TaskOutcome::Cancelled,
            (_, CANCELLED, _) if cancelled => TaskOutcome::Cancelled,
            (RunStatus::NotStarted, _, Some(task)) if has_exited(task) => self.before_xrun(sweep, task, why),
            (RunStatus::NotStarted, ..) if let Some(line) = last_line(&stderr_of(sweep, self.job.run)) => {
                TaskOutcome::Ended(Some(line))
            }
            _ => {
                let requeue = submission.settings.requeue;
                match self.resubmissions < requeue {
                    true => TaskOutcome::Resubmit { why, cancelled: state == CANCELLED },
                    false => TaskOutcome::Ended(Some(format!(
                        "{why}; it was resubmitted {} (`requeue`)",
                        pluralize(requeue.into(), "time")
                    ))),
                }
            }
        }
    }

    /// Decides after a run ran out of memory: once more with what its trace says, unless it was growing.
    fn died_of_memory(&self, sweep: &Path, submission: &Submission<'_>, why: String) -> TaskOutcome {
        let directory = run_directory(sweep, self.job.run);
        let file = if submission.settings.memory.is_some() { layout::SLURM } else { layout::SWEEP_MEMORY };
        // One that ended itself counts as failed.
        let failed = matches!(RunStatus::read(&directory), RunStatus::Done(_));
        let how = if failed { " with --retry-failed" } else { "" };
        let advice = format!("set more `memory` in {}, then resume the sweep{how}", sweep.join(file).display());
        match (submission.memory_of(self.job.run, self.retry_bytes), self.retry_bytes) {
            (Some(bytes), Some(_)) => {
                TaskOutcome::Ended(Some(format!("{why}: the retry with {} was not enough; {advice}", Bytes(bytes))))
            }
            (None, _) => TaskOutcome::Ended(Some(format!("{why}: the run needs more than Slurm gave it; {advice}"))),
            (Some(given), None) => match retry::decide(&directory, given) {
                RetryDecision::Retry(bytes) => {
                    TaskOutcome::MoreMemory { why: format!("{why}, with {} for the run", Bytes(given)), bytes }
                }
                RetryDecision::Growing(what) => TaskOutcome::Ended(Some(format!(
                    "{why}, with {} for the run; not retried, because memory was growing: {what}",
                    Bytes(given)
                ))),
            },
        }
    }

    /// Decides where the job left nothing in the run's directory: its output says what is wrong, if its node sees the directory.
    fn before_xrun(&self, sweep: &Path, task: &QueuedTask, why: String) -> TaskOutcome {
        if let Some(line) = last_line(&stderr_of(sweep, self.job.run)) {
            return TaskOutcome::Ended(Some(line));
        }
        let path = output_of(sweep, task);
        if !path.is_file() {
            let message = format!(
                "{why}, and its node wrote nothing to {}: is this on a file system that all nodes share?",
                sweep.display()
            );
            return TaskOutcome::Ended(Some(message));
        }
        match last_line(&path) {
            Some(line) => TaskOutcome::Ended(Some(format!("the job failed before the run began: {line}"))),
            None => TaskOutcome::Resubmit { why, cancelled: false },
        }
    }

    /// The record of the job's process.
    pub fn process(&self, sweep: &Path, search: Option<&Search>, why: Option<String>) -> Process {
        let directory = run_directory(sweep, self.job.run);
        let arrived = self.has_arrived(sweep, search);
        let done = matches!(RunStatus::read(&directory), RunStatus::Done(_));
        let summary = read::summary(&directory).ok().flatten().filter(|_| done || arrived);
        let good = arrived || summary.as_ref().is_some_and(|summary| summary.exit_code == 0);
        let seconds = summary.as_ref().map_or(0.0, |summary| summary.seconds);
        Process {
            version: VERSION,
            run: self.job.run.to_string(),
            ended: now(),
            seconds: (seconds - self.seconds_before).max(0.0),
            resumed: read::manifest(&directory).is_ok_and(|manifest| !manifest.resumed.is_empty()),
            exit_code: match arrived {
                true => Some(0),
                false => summary.as_ref().map(|summary| i32::from(summary.exit_code)),
            },
            signal: None,
            message: why.or_else(|| summary.filter(|_| !good).map(|summary| summary.message)),
            retry_memory: None,
        }
    }
}

fn has_exited(task: &QueuedTask) -> bool {
    [FAILED, "COMPLETED"].contains(&task.state.as_str())
}

fn output_of(sweep: &Path, task: &QueuedTask) -> PathBuf {
    sweep.join(layout::SLURM_OUTPUT).join(format!("{}_{}.txt", task.job, task.task))
}

/// Removes the output of a job that wrote nothing.
fn tidy(sweep: &Path, task: Option<&QueuedTask>) {
    if let Some(task) = task {
        let _ = last_line(&output_of(sweep, task));
    }
}
