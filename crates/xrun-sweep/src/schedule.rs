//! The event loop of a sweep: starts through a launcher what a scheduler chooses, until nothing is left or the user stops it.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::journal::Journal;
use super::launcher::{JobOutcome, Launcher, Started, SweepContext};
use super::scheduler::{Job, Scheduler};
use super::slurm::SlurmError;
use super::table_files;
use super::trials::RunId;
use crate::records::sweep::{Process, SweepRecord};
use xrun_core::files::write::WriteError;
use xrun_run::stop::StopSignal;

/// An event of a sweep, for its progress.
pub enum Event<'a> {
    /// The sweep starts or continues: runs that are left, and runs that are done.
    Begins {
        /// Runs that are not done, those of active jobs included.
        left: usize,
        /// Runs that are done.
        done: usize,
    },
    /// A process outside of this sweep works on the run; the sweep waits for its end.
    Waits {
        /// The run.
        run: RunId,
    },
    /// A cluster took a job array.
    Submitted {
        /// Its number.
        job: u64,
        /// The runs of its tasks.
        jobs: &'a [Job],
        /// Bytes of memory for each task, where they differ between runs.
        memory: Option<u64>,
    },
    /// The state of a cluster's queue has changed.
    Queue {
        /// Tasks that run.
        running: usize,
        /// Tasks that wait.
        waiting: usize,
        /// Slurm's reason why one of them waits.
        reason: &'a str,
    },
    /// The cluster does not answer or refuses a job for now; it is asked again.
    Unavailable {
        /// Its answer.
        error: &'a SlurmError,
    },
    /// The run's process died, and the run is tried again, with `retry_memory` bytes of memory if it had too few.
    Retried {
        /// The run.
        run: RunId,
        /// The process that died.
        process: &'a Process,
    },
    /// The run reached the step that its job was to stop after, or ended.
    Ended {
        /// The run and that step.
        job: Job,
        /// Its value of each swept key.
        values: &'a [Value],
        /// Its last process.
        process: &'a Process,
        /// Runs that are not done.
        left: usize,
    },
    /// Processes on this machine were asked to stop.
    Stops {
        /// Their number.
        running: usize,
    },
}

/// Options of a sweep's loop and launcher.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Starts no run after the first one that does not finish.
    pub fail_fast: bool,
    /// Continues runs that failed.
    pub retry_failed: bool,
    /// Runs may start the programs that their directories name, whoever created these.
    pub allowed: bool,
}

/// End of a sweep's loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scheduled {
    /// No run is left.
    AllDone,
    /// A signal stopped the sweep and its processes.
    Stopped {
        /// Runs that are not done.
        left: usize,
    },
    /// A run failed, and `fail_fast` is set.
    FailedFast {
        /// Runs that are not done.
        left: usize,
    },
    /// A signal stopped the loop; the jobs of the cluster continue.
    Left {
        /// Numbers of the active jobs.
        jobs: Vec<u64>,
        /// Runs that are not done.
        left: usize,
    },
    /// The user cancelled jobs of the cluster.
    Cancelled {
        /// Runs that are not done.
        left: usize,
    },
}

/// A sweep cannot continue.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// The process of a run cannot be started.
    #[error("cannot start the process of a run: {0}")]
    Start(std::io::Error),
    /// A file cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// Slurm cannot be asked, or refuses a job while no other is active.
    #[error(transparent)]
    Slurm(#[from] SlurmError),
}

/// Shortest time between two tables.
const TABLE_EVERY: Duration = Duration::from_secs(5);
/// At most this fraction of the time is spent on tables, as its inverse.
const TABLE_COST_MAX: u32 = 20;

/// Runs everything that is not done. The caller holds the sweep's directory. A search adds the trials that it chooses to the
/// record.
///
/// # Errors
/// A process cannot be started, a cluster refuses a job, or a file cannot be written.
pub fn schedule(
    sweep: &Path,
    record: &mut SweepRecord,
    journal: &mut Journal,
    options: Options,
    launcher: &mut dyn Launcher,
    stop: &StopSignal,
    report: &mut dyn FnMut(Event<'_>),
) -> Result<Scheduled, SweepError> {
    let adopted = launcher.adopt(&mut SweepContext { record, histories: &journal.histories, stop, report })?;
    let mut scheduler = Scheduler::new(sweep, record, &journal.histories, options.retry_failed);
    adopted.into_iter().for_each(|job| scheduler.adopt(job));
    let left = scheduler.left(record) + launcher.active();
    report(Event::Begins { left, done: record.runs_at_most().saturating_sub(left) });
    let (mut stopping, mut cancelled, mut failed) = (false, false, false);
    // The scheduler had no job, and none has ended since.
    let mut exhausted = false;
    // The last table: its time and its cost.
    let (mut written, mut cost) = (Instant::now(), Duration::ZERO);
    loop {
        if stop.raised() && !stopping {
            stopping = true;
            if let Some(jobs) = launcher.interrupt(report) {
                return Ok(Scheduled::Left { jobs, left: scheduler.left(record) + launcher.active() });
            }
        }
        // A user who cancels a job before it begins means the sweep: no other job takes its place.
        let halted = stopping || cancelled || (failed && options.fail_fast);
        while !halted && !exhausted && launcher.active() < launcher.slots() && !stop.raised() {
            let Some(job) = scheduler.next(record)? else {
                exhausted = true;
                break;
            };
            match launcher.start(job, &mut SweepContext { record, histories: &journal.histories, stop, report })? {
                Started::Active => {}
                Started::Later => {
                    scheduler.put_back(job);
                    break;
                }
                Started::Done => scheduler.on_job_end(job, false),
            }
        }
        if launcher.active() == 0 {
            if halted || exhausted {
                break;
            }
            continue;
        }
        let outcomes = launcher.poll(&mut SweepContext { record, histories: &journal.histories, stop, report })?;
        let mut open = outcomes.iter().filter(|(_, outcome)| !matches!(outcome, JobOutcome::Retried(_))).count();
        for (job, outcome) in outcomes {
            exhausted = false;
            if let JobOutcome::Retried(process) | JobOutcome::Ended(process) = &outcome {
                journal.add(job.run, process)?;
            }
            match outcome {
                JobOutcome::Retried(process) => report(Event::Retried { run: job.run, process: &process }),
                JobOutcome::Returned | JobOutcome::Cancelled => {
                    open -= 1;
                    cancelled |= matches!(outcome, JobOutcome::Cancelled);
                    scheduler.put_back(job);
                }
                JobOutcome::Ended(process) => {
                    open -= 1;
                    failed |= process.exit_code != Some(0);
                    scheduler.on_job_end(job, stopping);
                    let left = scheduler.left(record) + launcher.active() + open;
                    report(Event::Ended { job, values: record.values(job.run.trial), process: &process, left });
                }
            }
        }
        // Convenience while the sweep runs: the caller writes the last table, and reports its errors.
        if written.elapsed() > TABLE_EVERY.max(TABLE_COST_MAX * cost) {
            let begun = Instant::now();
            let _ = table_files::write(sweep, record, &mut journal.histories, &launcher.queued(record));
            (written, cost) = (Instant::now(), begun.elapsed());
        }
    }
    Ok(match scheduler.left(record) {
        left if stopping => Scheduled::Stopped { left },
        left if cancelled => Scheduled::Cancelled { left },
        left if failed && options.fail_fast => Scheduled::FailedFast { left },
        _ => Scheduled::AllDone,
    })
}
