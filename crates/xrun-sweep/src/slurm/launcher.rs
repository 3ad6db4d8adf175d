//! The runs of a sweep as jobs of a Slurm cluster: submits them, asks the queue for them, and submits again those that were
//! stopped or killed.
//!
//! A list is submitted as a whole, as job arrays; a search submits a job for each run and rung. Nothing else is kept: a
//! launcher that was killed finds its jobs in the queue by their names, which of a search say how far each goes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::super::launcher::{JobOutcome, Launcher, Started, SweepContext};
use super::super::measure::Queued;
use super::super::record::run_directory;
use super::super::resources::forecasts::Forecasts;
use super::super::run_status::RunStatus;
use super::super::schedule::{Event, Options, SweepError};
use super::super::scheduler::Job;
use super::super::trials::RunId;
use super::SlurmError;
use super::jobs::JobNames;
use super::outcome::{ActiveJob, TaskOutcome};
use super::queue::{self, QueuedTask};
use super::script::{self, Array};
use crate::records::search::Search;
use crate::records::sweep::{Process, SweepRecord};
use xrun_core::experiment::launcher::Slurm;
use xrun_core::files::layout;
use xrun_core::files::write;
use xrun_core::units::Bytes;
use xrun_results::read;
use xrun_run::stop::StopSignal;

/// Default of `array_limit` for a search: the more jobs run at once, the fewer results each choice has seen.
pub const SEARCH_JOBS: u32 = 4;

/// Shortest and longest time between two questions to the queue: they become rarer while nothing changes. A search has few jobs,
/// and waits for each.
const POLL_EVERY: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(15));
const POLL_SEARCH_MAX: Duration = Duration::from_secs(5);
/// Shortest time between two reports of the queue's state, of a search.
const QUEUE_REPORT_EVERY: Duration = Duration::from_secs(10);

/// Settings of the submission of a sweep.
pub struct Submission<'a> {
    /// This program, as the nodes find it.
    pub program: PathBuf,
    /// Slurm settings of each run.
    pub settings: Slurm,
    /// Memory of each trial; `None` where the settings have one size for all.
    pub memory: Option<Forecasts<'a>>,
    /// Options common to all launchers.
    pub options: Options,
}

impl Submission<'_> {
    /// Bytes that a run is given, at least `retry_bytes`; `None` where Slurm decides.
    pub fn memory_of(&self, run: RunId, retry_bytes: Option<u64>) -> Option<u64> {
        let of_trial = || self.memory.as_ref().and_then(|forecasts| forecasts.memory.size(run.trial));
        self.settings.memory.or_else(of_trial).map(|bytes| bytes.0).max(retry_bytes)
    }
}

/// Submits the runs of a sweep to Slurm and follows them.
pub struct SlurmLauncher<'a> {
    sweep: &'a Path,
    search: Option<Search>,
    submission: Submission<'a>,
    jobs: JobNames,
    /// Place of each run in the order of the sweep.
    places: BTreeMap<RunId, usize>,
    /// Jobs to submit with the next poll.
    pending: Vec<ActiveJob>,
    active: Vec<ActiveJob>,
    /// The last answer of the queue.
    tasks: Vec<QueuedTask>,
    /// Bytes for the one retry of runs that had too little memory.
    retry_bytes: BTreeMap<RunId, u64>,
    /// Resubmissions of jobs that went back to the scheduler.
    resubmissions: BTreeMap<RunId, u32>,
    /// The job of the newest array of a list, which the next one waits for where `array_limit` is set.
    newest: Option<u64>,
    cancelled: bool,
    /// The queue did not answer, which was reported.
    silent: bool,
    /// The newest job was refused, which was reported.
    refused: bool,
    wait: Duration,
    counts: Option<(usize, usize)>,
    reported: Option<Instant>,
}

impl<'a> SlurmLauncher<'a> {
    /// A launcher for a sweep whose directory the caller holds; its path is absolute.
    ///
    /// # Errors
    /// `slurm.toml` cannot be read.
    pub fn new(sweep: &'a Path, record: &SweepRecord, submission: Submission<'a>) -> Result<Self, SlurmError> {
        Ok(Self {
            sweep,
            search: record.search.clone(),
            submission,
            jobs: JobNames::new(sweep, record)?,
            places: record.runs().zip(0..).collect(),
            pending: Vec::new(),
            active: Vec::new(),
            tasks: Vec::new(),
            retry_bytes: BTreeMap::new(),
            resubmissions: BTreeMap::new(),
            newest: None,
            cancelled: false,
            silent: false,
            refused: false,
            wait: POLL_EVERY.0,
            counts: None,
            reported: None,
        })
    }

    fn job(&mut self, job: Job) -> ActiveJob {
        ActiveJob {
            job,
            // A search runs each trial once, in their order, and adds some.
            place: self.places.get(&job.run).copied().unwrap_or(job.run.trial as usize - 1),
            resubmissions: self.resubmissions.remove(&job.run).unwrap_or_default(),
            retry_bytes: self.retry_bytes.get(&job.run).copied(),
            gone: None,
            seconds_before: seconds(self.sweep, job.run),
        }
    }

    /// Asks the queue until no process works on a run that has no task: on this machine, or one that is ending. Its last step is
    /// not known before it ends.
    fn wait_for_others(&self, context: &mut SweepContext<'_>) -> Result<Vec<QueuedTask>, SlurmError> {
        let mut reported = false;
        loop {
            let tasks = self.jobs.tasks()?;
            let mut others = context.record.runs().zip(0..).filter(|(_, place)| !queue::is_active(&tasks, *place));
            let busy = others.find(|(run, _)| RunStatus::read(&run_directory(self.sweep, *run)) == RunStatus::Running);
            let Some((run, _)) = busy.filter(|_| !context.stop.raised()) else { return Ok(tasks) };
            if !std::mem::replace(&mut reported, true) {
                (context.report)(Event::Waits { run });
            }
            pause(POLL_EVERY.0, context.stop);
        }
    }

    /// Submits what is pending. What Slurm does not take now, it may take when another job has ended: the scheduler has it again.
    fn submit(&mut self, context: &mut SweepContext<'_>) -> Result<Vec<(Job, JobOutcome)>, SlurmError> {
        if let Some(forecasts) = &mut self.submission.memory {
            self.pending.iter().for_each(|job| forecasts.add(context.record, job.job.run.trial));
        }
        let mut outcomes = Vec::new();
        let mut batches = self.batches().into_iter();
        for jobs in batches.by_ref() {
            match self.submit_array(&jobs, context) {
                Ok(()) => {
                    (self.refused, self.wait) = (false, POLL_EVERY.0);
                    self.active.extend(jobs);
                }
                // No node may have what it needs, and others must not wait for it.
                Err(error @ SlurmError::Refused { .. }) if jobs.iter().all(|job| job.retry_bytes.is_some()) => {
                    outcomes.extend(jobs.iter().map(|job| {
                        let bytes = Bytes(job.retry_bytes.unwrap_or_default());
                        let why = format!("the retry with {bytes} of memory was refused: {error}");
                        (job.job, JobOutcome::Ended(self.process(job, Some(why))))
                    }));
                }
                Err(error @ (SlurmError::Refused { .. } | SlurmError::Failed(_))) if !self.active.is_empty() => {
                    if !std::mem::replace(&mut self.refused, true) {
                        (context.report)(Event::Unavailable { error: &error });
                    }
                    let returned: Vec<ActiveJob> = jobs.into_iter().chain(batches.flatten()).collect();
                    for job in returned.into_iter().rev() {
                        self.resubmissions.insert(job.job.run, job.resubmissions);
                        outcomes.push((job.job, JobOutcome::Returned));
                    }
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(outcomes)
    }

    /// The pending jobs in arrays. Those with the most memory come first: they wait longest for a node.
    fn batches(&mut self) -> Vec<Vec<ActiveJob>> {
        let pending = std::mem::take(&mut self.pending);
        if self.search.is_some() {
            return pending.into_iter().map(|job| vec![job]).collect();
        }
        let mut batches: BTreeMap<_, Vec<ActiveJob>> = BTreeMap::new();
        for job in pending {
            let memory = self.submission.memory_of(job.job.run, job.retry_bytes);
            let (first, _) = self.jobs.arrays(None).block(job.place);
            batches.entry((Reverse((memory, job.retry_bytes.is_some())), first)).or_default().push(job);
        }
        batches.into_values().collect()
    }

    /// Submits one array: jobs of equal memory that stop after the same step, in one block of the sweep's order.
    fn submit_array(&mut self, jobs: &[ActiveJob], context: &mut SweepContext<'_>) -> Result<(), SlurmError> {
        let Some(one) = jobs.first() else { return Ok(()) };
        let directory = self.sweep.join(layout::SLURM_OUTPUT);
        write::create_directory(&directory)?;
        let (submission, until) = (&self.submission, one.job.until);
        let memory = submission.memory_of(one.job.run, one.retry_bytes);
        // Slurm limits each array by itself, and the limit is meant for the sweep: one array after another. Of a search it is
        // the number of active jobs.
        let array_limit = submission.settings.array_limit.filter(|_| self.search.is_none());
        let settings = Slurm { memory: memory.map(Bytes), array_limit, ..submission.settings.clone() };
        let fresh = jobs.iter().all(|job| job.resubmissions == 0 && job.retry_bytes.is_none());
        let arrays = self.jobs.arrays(until);
        let (first, _) = arrays.block(one.place);
        let tasks: Vec<usize> = jobs.iter().map(|job| job.place - first).collect();
        let after = self.newest.filter(|_| fresh && array_limit.is_some());
        let array = Array { name: &arrays.name(first), first, tasks: &tasks, after, until };
        // A run that ended itself at its container's limit counts as failed.
        let options = submission.options;
        let flags = (options.retry_failed || one.retry_bytes.is_some(), options.allowed);
        let path = self.sweep.join(layout::SLURM_SCRIPT);
        let script = script::script(&submission.program, self.sweep, &settings, &array, flags)?;
        write::replace(&path, script.as_bytes())?;
        let job = queue::submit(&path)?;
        let differs = submission.memory.is_some() || one.retry_bytes.is_some();
        let runs: Vec<Job> = jobs.iter().map(|job| job.job).collect();
        (context.report)(Event::Submitted { job, jobs: &runs, memory: memory.filter(|_| differs) });
        self.newest = if fresh { Some(job) } else { self.newest };
        Ok(())
    }

    /// Returns what became of the active jobs by the last answer of the queue.
    fn follow(&mut self) -> Vec<(Job, JobOutcome)> {
        let mut active = std::mem::take(&mut self.active);
        let each = active
            .iter_mut()
            .map(|job| job.outcome(self.sweep, self.search.as_ref(), &self.tasks, &self.submission, self.cancelled));
        let found = cancelled_together(each.collect(), &self.tasks);
        let mut outcomes = Vec::new();
        for (mut job, outcome) in active.into_iter().zip(found) {
            let (why, bytes) = match outcome {
                TaskOutcome::Active => {
                    self.active.push(job);
                    continue;
                }
                TaskOutcome::Cancelled => {
                    self.cancelled = true;
                    outcomes.push((job.job, JobOutcome::Cancelled));
                    continue;
                }
                TaskOutcome::Ended(why) => {
                    outcomes.push((job.job, JobOutcome::Ended(self.process(&job, why))));
                    continue;
                }
                TaskOutcome::Resubmit { why, .. } => (why, None),
                TaskOutcome::MoreMemory { why, bytes } => (why, Some(bytes)),
            };
            let process = Process { retry_memory: bytes, ..self.process(&job, Some(why)) };
            outcomes.push((job.job, JobOutcome::Retried(process)));
            match bytes {
                Some(bytes) => {
                    // For the rungs to come, too.
                    self.retry_bytes.insert(job.job.run, bytes);
                    job.retry_bytes = Some(bytes);
                }
                None => job.resubmissions += 1,
            }
            (job.gone, job.seconds_before) = (None, seconds(self.sweep, job.job.run));
            self.pending.push(job);
        }
        outcomes
    }

    fn process(&self, job: &ActiveJob, why: Option<String>) -> Process {
        job.process(self.sweep, self.search.as_ref(), why)
    }

    fn report_queue(&mut self, counts: (usize, usize), report: &mut dyn FnMut(Event<'_>)) {
        let reason = self.tasks.iter().find(|task| task.waits()).map_or("", |task| task.reason.as_str());
        report(Event::Queue { running: counts.0, waiting: counts.1, reason });
        self.reported = Some(Instant::now());
    }
}

impl Launcher for SlurmLauncher<'_> {
    fn slots(&self) -> usize {
        match self.search {
            Some(_) => self.submission.settings.array_limit.unwrap_or(SEARCH_JOBS) as usize,
            None => usize::MAX,
        }
    }

    fn active(&self) -> usize {
        self.pending.len() + self.active.len()
    }

    fn adopt(&mut self, context: &mut SweepContext<'_>) -> Result<Vec<Job>, SweepError> {
        self.tasks = match self.search {
            Some(_) => self.wait_for_others(context)?,
            None => self.jobs.tasks()?,
        };
        let (sweep, record) = (self.sweep, context.record);
        self.retry_bytes = context.histories.retries().collect();
        for job in under_way(record, &self.tasks) {
            let mut job = self.job(job);
            // The seconds of a process that has arrived cannot be separated from those of the processes before it.
            if job.has_stopped(sweep, self.search.as_ref()) {
                job.seconds_before = 0.0;
            }
            self.active.push(job);
        }
        // A search that is new has its first jobs reported one by one.
        self.reported = self.search.as_ref().map(|_| Instant::now());
        let counts = queue::counts(&self.tasks);
        if counts != (0, 0) {
            self.counts = Some(counts);
            self.report_queue(counts, context.report);
        }
        Ok(self.active.iter().map(|job| job.job).collect())
    }

    fn start(&mut self, job: Job, _: &mut SweepContext<'_>) -> Result<Started, SweepError> {
        let job = self.job(job);
        self.pending.push(job);
        Ok(Started::Active)
    }

    fn poll(&mut self, context: &mut SweepContext<'_>) -> Result<Vec<(Job, JobOutcome)>, SweepError> {
        let mut outcomes = self.submit(context)?;
        if self.active.is_empty() {
            return Ok(outcomes);
        }
        pause(self.wait, context.stop);
        self.wait = (self.wait * 3 / 2).min(if self.search.is_some() { POLL_SEARCH_MAX } else { POLL_EVERY.1 });
        match self.jobs.tasks() {
            Ok(tasks) => (self.tasks, self.silent) = (tasks, false),
            Err(error) => {
                if !std::mem::replace(&mut self.silent, true) {
                    (context.report)(Event::Unavailable { error: &error });
                }
                return Ok(outcomes);
            }
        }
        let found = self.follow();
        let counts = queue::counts(&self.tasks);
        let changed = self.counts.replace(counts) != Some(counts);
        let due = self.search.is_none() || self.reported.is_none_or(|last| last.elapsed() > QUEUE_REPORT_EVERY);
        if changed && due && counts != (0, 0) {
            self.report_queue(counts, context.report);
        }
        // A run whose task is gone is read again soon.
        if changed || !found.is_empty() || self.active.iter().any(|job| job.gone.is_some()) {
            self.wait = POLL_EVERY.0;
        }
        outcomes.extend(found);
        Ok(outcomes)
    }

    fn interrupt(&mut self, _: &mut dyn FnMut(Event<'_>)) -> Option<Vec<u64>> {
        // The newest jobs may not have been in the last answer.
        if let Ok(tasks) = self.jobs.tasks() {
            self.tasks = tasks;
        }
        Some(active_jobs(&self.tasks))
    }

    fn queued(&self, record: &SweepRecord) -> BTreeMap<RunId, Queued> {
        queued(record, &self.tasks)
    }
}

/// State of each run that is in the queue, for the table.
pub fn queued(record: &SweepRecord, tasks: &[QueuedTask]) -> BTreeMap<RunId, Queued> {
    let runs: Vec<RunId> = record.runs().collect();
    let active = tasks.iter().filter(|task| task.is_active());
    let known = active.filter_map(|task| {
        let queued = if task.waits() { Queued::Waiting } else { Queued::Running };
        Some((*runs.get(task.place)?, queued))
    });
    known.collect()
}

/// Numbers of the jobs that have tasks which run or wait.
pub fn active_jobs(tasks: &[QueuedTask]) -> Vec<u64> {
    let jobs: BTreeSet<u64> = tasks.iter().filter(|task| task.is_active()).map(|task| task.job).collect();
    jobs.into_iter().collect()
}

/// The runs in the queue, and how far each goes.
pub fn under_way(record: &SweepRecord, tasks: &[QueuedTask]) -> Vec<Job> {
    let runs = record.runs().zip(0..);
    let newest =
        |place| tasks.iter().filter(|task| task.place == place && task.is_active()).max_by_key(|task| task.job);
    runs.filter_map(|(run, place)| newest(place).map(|task| Job { run, until: task.until })).collect()
}

/// Cancelling all remaining jobs at once means the sweep, not a run.
fn cancelled_together(outcomes: Vec<TaskOutcome>, tasks: &[QueuedTask]) -> Vec<TaskOutcome> {
    let cancelled = |outcome: &TaskOutcome| matches!(outcome, TaskOutcome::Resubmit { cancelled: true, .. });
    let all = outcomes.len() > 1 && !tasks.iter().any(QueuedTask::is_active) && outcomes.iter().all(cancelled);
    if all { outcomes.into_iter().map(|_| TaskOutcome::Cancelled).collect() } else { outcomes }
}

/// Seconds that a run took so far, in all its processes.
fn seconds(sweep: &Path, run: RunId) -> f64 {
    read::summary(&run_directory(sweep, run)).ok().flatten().map_or(0.0, |summary| summary.seconds)
}

/// Waits, but not longer than until a signal.
fn pause(time: Duration, stop: &StopSignal) {
    let begun = Instant::now();
    while begun.elapsed() < time && !stop.raised() {
        std::thread::sleep(Duration::from_millis(50).min(time));
    }
}
