//! The main flow of a sweep on Slurm: submit what is missing, follow it, submit again what was killed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::super::conduct::TABLE_EVERY;
use super::super::course::to_do;
use super::super::launch::last_words;
use super::super::measure::Queued;
use super::super::needs::again::{self, Again};
use super::super::needs::{Forecasts, Retry, tried_again};
use super::super::points::RunId;
use super::super::record::run_folder;
use super::super::standing::{self, Standing};
use super::super::table;
use super::arrays::Arrays;
use super::queue::{self, Task};
use super::script::{self, Array};
use super::{SlurmError, arrays_of, unwatched};
use crate::records::sweep::{Process, Record};
use xrun_core::bounded::ledger::Ledger;
use xrun_core::experiment::launcher::Slurm;
use xrun_core::files::layout;
use xrun_core::files::write;
use xrun_core::files::write::LineWriter;
use xrun_core::units::Bytes;
use xrun_results::format::VERSION;
use xrun_results::read;
use xrun_results::timestamp::now;
use xrun_watch::killed;
use xrun_watch::killed::Killer;
use xrun_watch::stop::StopSignal;

/// What happens, for whoever watches.
pub enum Event<'a> {
    Submitted {
        job: u64,
        runs: usize,
        /// Bytes that each run is given, where that is not the same for all.
        memory: Option<u64>,
    },
    /// How many tasks run and wait, and why they wait.
    Queue { running: usize, waiting: usize, reason: &'a str },
    /// Slurm does not answer; it will be asked again.
    Silent { error: &'a SlurmError },
    /// A run that was stopped or killed is submitted again.
    Again {
        run: RunId,
        why: &'a str,
        /// With so many bytes, since it had too few.
        memory: Option<u64>,
    },
    Ended {
        run: RunId,
        /// The step that it was to stop after, of a search.
        until: Option<u64>,
        /// Of each swept key.
        values: &'a [Value],
        process: &'a Process,
        left: usize,
    },
    /// A job of a search was submitted.
    Sent { job: u64, run: RunId, until: Option<u64> },
    /// A process that Slurm knows nothing of works on this run of a search.
    Waits { run: RunId },
}

/// How watching ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Watched {
    AllDone,
    /// By a signal to this process: the jobs go on.
    Left {
        jobs: Vec<u64>,
        left: usize,
    },
    /// Somebody cancelled jobs.
    Cancelled {
        left: usize,
    },
}

/// How a sweep is handed to Slurm.
#[derive(Clone, Copy)]
pub struct Submission<'a> {
    /// As the nodes will find it.
    pub program: &'a Path,
    pub settings: &'a Slurm,
    /// What each point is given; `None` where the settings say what all get.
    pub memory: Option<&'a dyn Forecasts>,
    /// Go on with runs that ended in a failure, too.
    pub retry_failed: bool,
    /// Jobs may start the programs that the folders name, whoever created these.
    pub allowed: bool,
}

/// A file system takes a while to show on one machine what another one wrote.
const SETTLED: Duration = Duration::from_secs(2);
/// Slurm is asked this often at first, and more and more rarely while nothing changes.
pub const ASK_EVERY: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(15));
/// The state, as Slurm calls it, of a task that somebody took back.
const CANCELLED: &str = "CANCELLED";
/// And of one that was ended for its memory.
pub const OUT_OF_MEMORY: &str = "OUT_OF_MEMORY";
/// And of one whose process ended with an error, or was killed.
pub const FAILED: &str = "FAILED";

/// A run that is not done.
pub struct Followed {
    pub place: usize,
    pub run: RunId,
    /// Submissions after the first.
    pub again: u32,
    /// It died for want of memory, and is tried once more with so many bytes.
    pub again_with: Option<u64>,
    /// Since when its task is not in the queue.
    pub gone: Option<Instant>,
}

/// What is to become of a run whose task is gone.
pub enum Fate {
    Ended(Option<String>),
    Again {
        why: String,
        /// Slurm says that it was cancelled.
        cancelled: bool,
    },
    /// Once more, with so many bytes.
    More {
        why: String,
        bytes: u64,
    },
    Cancelled,
    NotYet,
}

impl Submission<'_> {
    /// Bytes that a run is given; `None` where that is left to Slurm.
    pub fn memory_of(&self, one: &Followed) -> Option<u64> {
        let of_point = || self.memory.and_then(|memory| memory.asked(one.run.point));
        self.settings.memory.or_else(of_point).map(|bytes| bytes.0).max(one.again_with)
    }

    /// Runs that died for want of memory and of which nobody has told it, and what is known of that.
    pub fn unseen(
        &self,
        sweep: &Path,
        record: &Record,
        tasks: &[Task],
        retries: &BTreeMap<RunId, Retry>,
    ) -> BTreeMap<RunId, String> {
        unwatched::died(sweep, record, tasks, retries, &|run| {
            let again_with = retries.get(&run).map(|retry| retry.bytes);
            self.memory_of(&Followed { place: 0, run, again: 0, again_with, gone: None })
        })
    }
}

/// Submits what is missing and not in the queue, and follows it to its end. The caller holds the sweep's folder, whose
/// path is absolute.
///
/// # Errors
/// Slurm's commands are missing or refuse the jobs; a file cannot be written.
pub fn watch(
    sweep: &Path,
    record: &Record,
    submission: Submission<'_>,
    stop: &StopSignal,
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<Watched, SlurmError> {
    let buffer = write::lines("sweep_processes", 1);
    let mut journal = LineWriter::open(&Ledger::default(), &buffer, &sweep.join(layout::PROCESSES))?;
    let arrays = arrays_of(sweep, record.order.len())?;
    let places: BTreeMap<RunId, usize> = record.runs().zip(0..).collect();
    let tried_again = tried_again(sweep, record);
    let followed = |run: RunId| {
        let again_with = tried_again.get(&run).map(|retry| retry.bytes);
        Followed { place: places[&run], run, again: 0, again_with, gone: None }
    };
    let mut tasks = queue::tasks(&arrays)?;
    let mut unseen = submission.unseen(sweep, record, &tasks, &tried_again);
    let mut runs = to_do(sweep, record, submission.retry_failed);
    // Those that ended themselves at their container's limit.
    let others: Vec<RunId> = unseen.keys().filter(|run| !runs.contains(run)).copied().collect();
    runs.extend(others);
    let mut left: Vec<Followed> = runs.into_iter().map(followed).collect();
    let missing = left.iter().filter(|one| !is_active(&tasks, one.place) && !unseen.contains_key(&one.run));
    let mut refused = submit(sweep, submission, &arrays, missing, tell)?;
    let (mut wait, mut seen, mut silent, mut cancelled) = (ASK_EVERY.0, None, false, 0);
    let (mut written, mut cost) = (Instant::now(), Duration::ZERO);
    while !left.is_empty() {
        if stop.raised() {
            // The newest jobs may not have been in the last answer.
            let tasks = queue::tasks(&arrays).unwrap_or(tasks);
            return Ok(Watched::Left { jobs: active_jobs(&tasks), left: left.len() });
        }
        match queue::tasks(&arrays) {
            Ok(now) => (tasks, silent) = (now, false),
            Err(error) => {
                if !std::mem::replace(&mut silent, true) {
                    tell(Event::Silent { error: &error });
                }
                wait = (wait * 3 / 2).min(ASK_EVERY.1);
                pause(wait, stop);
                continue;
            }
        }
        let each = |one: &mut Followed| match refused.remove(&one.place) {
            Some(why) => Fate::Ended(Some(why)),
            None => match unseen.remove(&one.run) {
                Some(why) => died(sweep, one, submission, why),
                None => fate(sweep, one, &tasks, submission, cancelled > 0),
            },
        };
        let fates: Vec<Fate> = left.iter_mut().map(each).collect();
        let fates = as_meant(fates, &tasks);
        let (mut again, mut kept) = (Vec::new(), Vec::with_capacity(left.len()));
        let mut changed = false;
        let mut still = fates.iter().filter(|fate| !matches!(fate, Fate::Cancelled)).count();
        for (mut one, fate) in left.into_iter().zip(fates) {
            changed |= !matches!(fate, Fate::NotYet);
            match fate {
                Fate::NotYet => kept.push(one),
                Fate::Cancelled => cancelled += 1,
                Fate::Again { why, .. } => {
                    tell(Event::Again { run: one.run, why: &why, memory: None });
                    record_process(&mut journal, &process(sweep, &one, Some(why)))?;
                    again.push(one.place);
                    (one.again, one.gone) = (one.again + 1, None);
                    kept.push(one);
                }
                Fate::More { why, bytes } => {
                    tell(Event::Again { run: one.run, why: &why, memory: Some(bytes) });
                    let process = process(sweep, &one, Some(why));
                    record_process(&mut journal, &Process { again_with: Some(bytes), ..process })?;
                    again.push(one.place);
                    (one.again_with, one.gone) = (Some(bytes), None);
                    kept.push(one);
                }
                Fate::Ended(why) => {
                    still -= 1;
                    let process = process(sweep, &one, why);
                    record_process(&mut journal, &process)?;
                    let values = record.values(one.run.point);
                    tell(Event::Ended { run: one.run, until: None, values, process: &process, left: still });
                }
            }
        }
        left = kept;
        refused = submit(sweep, submission, &arrays, left.iter().filter(|one| again.contains(&one.place)), tell)?;
        let counts = counts(&tasks);
        if seen != Some(counts) && counts != (0, 0) {
            let reason = tasks.iter().find(|task| task.waits()).map_or("", |task| task.reason.as_str());
            tell(Event::Queue { running: counts.0, waiting: counts.1, reason });
            changed = true;
        }
        seen = Some(counts);
        if written.elapsed() > TABLE_EVERY.max(20 * cost) {
            let begun = Instant::now();
            // A convenience while it goes on; the last one is written by the caller, who says what is wrong with it.
            let _ = table::write(sweep, record, &queued(record, &tasks));
            (written, cost) = (Instant::now(), begun.elapsed());
        }
        // A run that is gone is looked at again soon.
        let soon = changed || left.iter().any(|one| one.gone.is_some());
        wait = if soon { ASK_EVERY.0 } else { (wait * 3 / 2).min(ASK_EVERY.1) };
        if !left.is_empty() {
            pause(wait, stop);
        }
    }
    Ok(if cancelled > 0 { Watched::Cancelled { left: cancelled } } else { Watched::AllDone })
}

/// What the queue knows of runs that are not done, for the table.
pub fn queued(record: &Record, tasks: &[Task]) -> BTreeMap<RunId, Queued> {
    let runs: Vec<RunId> = record.runs().collect();
    let active = tasks.iter().filter(|task| task.is_active());
    let known = active.filter_map(|task| {
        let queued = if task.waits() { Queued::Waiting } else { Queued::Running };
        Some((*runs.get(task.place)?, queued))
    });
    known.collect()
}

/// The jobs that have tasks which run or wait.
pub fn active_jobs(tasks: &[Task]) -> Vec<u64> {
    let jobs: BTreeSet<u64> = tasks.iter().filter(|task| task.is_active()).map(|task| task.job).collect();
    jobs.into_iter().collect()
}

/// Tasks that run, and that wait.
pub fn counts(tasks: &[Task]) -> (usize, usize) {
    let active = || tasks.iter().filter(|task| task.is_active());
    let waiting = active().filter(|task| task.waits()).count();
    (active().count() - waiting, waiting)
}

pub fn is_active(tasks: &[Task], place: usize) -> bool {
    tasks.iter().any(|task| task.place == place && task.is_active())
}

/// Submits runs. Answers which of those that are tried once more Slurm refused, by their places, and why: no node may have what
/// they need, and others must not wait for them.
fn submit<'a>(
    sweep: &Path,
    submission: Submission<'_>,
    arrays: &Arrays,
    runs: impl Iterator<Item = &'a Followed>,
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<BTreeMap<usize, String>, SlurmError> {
    // Arrays of one name may ask for different memory: a task's number says which run it is all the same.
    let mut by_memory: BTreeMap<(Option<u64>, bool), Vec<usize>> = BTreeMap::new();
    for one in runs {
        by_memory.entry((submission.memory_of(one), one.again_with.is_some())).or_default().push(one.place);
    }
    let mut refused = BTreeMap::new();
    if by_memory.is_empty() {
        return Ok(refused);
    }
    let said = sweep.join(layout::SLURM_SAID);
    write::at(&said, std::fs::create_dir_all(&said))?;
    let mut before = None;
    // Those that need most wait longest for a node.
    for ((memory, again), places) in by_memory.iter().rev() {
        let settings = Slurm { memory: memory.map(Bytes), ..submission.settings.clone() };
        // A run that ended itself at its container's limit counts as failed.
        let how = (submission.retry_failed || *again, submission.allowed);
        for (first, tasks) in arrays.blocks(places) {
            // The limit is Slurm's for each array by itself, and meant for the sweep: one array after another.
            let after = before.filter(|_| settings.array_limit.is_some());
            let array = Array { name: &arrays.name(first), first, tasks: &tasks, after, until: None };
            let path = sweep.join(layout::SLURM_SCRIPT);
            write::replace(&path, script::script(submission.program, sweep, &settings, &array, how)?.as_bytes())?;
            let job = match queue::submit(&path) {
                Err(error @ SlurmError::Refused { .. }) if *again => {
                    let why = not_tried_again(*memory, &error);
                    refused.extend(tasks.iter().map(|task| (first + task, why.clone())));
                    continue;
                }
                job => job?,
            };
            let differs = submission.memory.is_some() || *again;
            tell(Event::Submitted { job, runs: tasks.len(), memory: memory.filter(|_| differs) });
            before = Some(job);
        }
    }
    Ok(refused)
}

/// What is said of a run that Slurm does not take with the memory that it needs.
pub fn not_tried_again(memory: Option<u64>, error: &SlurmError) -> String {
    format!("it was to be tried once more with {}: {error}", Bytes(memory.unwrap_or_default()))
}

pub fn fate(sweep: &Path, one: &mut Followed, tasks: &[Task], submission: Submission<'_>, cancelled: bool) -> Fate {
    let requeue = submission.settings.requeue;
    if is_active(tasks, one.place) {
        one.gone = None;
        return Fate::NotYet;
    }
    let folder = run_folder(sweep, one.run);
    let standing = standing::of(&folder);
    let gone = *one.gone.get_or_insert_with(Instant::now);
    let last = tasks.iter().filter(|task| task.place == one.place).max_by_key(|task| task.job);
    if let Standing::Done(outcome) = standing {
        let met = again::met_the_containers_limit(&folder, outcome);
        // What a run of before left may be seen for a while after the one that went on.
        if met && gone.elapsed() < SETTLED {
            return Fate::NotYet;
        }
        tidy(sweep, last);
        return match met {
            true => died(sweep, one, submission, "it came to its container's limit".into()),
            false => Fate::Ended(None),
        };
    }
    if standing == Standing::Running || gone.elapsed() < SETTLED {
        return Fate::NotYet;
    }
    let state = last.map_or("gone from its queue", |task| task.state.as_str());
    let why = format!("Slurm says {state}");
    // Slurm may not know why its job failed, and the group of a process of this machine may. One that watches memory itself
    // (OverMemoryKill) says FAILED.
    let by_kernel = || matches!(killed::killer(&folder), Killer::Memory { own: true, .. });
    let by_slurm = || state == FAILED && submission.memory_of(one).is_some_and(|had| again::held_more(&folder, had));
    if state == OUT_OF_MEMORY || (standing == Standing::Begun && (by_kernel() || by_slurm())) {
        return died(sweep, one, submission, why);
    }
    match (standing, state) {
        (Standing::Missing, CANCELLED) => Fate::Cancelled,
        (_, CANCELLED) if cancelled => Fate::Cancelled,
        (Standing::Missing, _) => match (last_words(&said_by_run(sweep, one.run)), last) {
            (Some(words), _) => Fate::Ended(Some(words)),
            (None, Some(task)) if state == FAILED || state == "COMPLETED" => before_xrun(sweep, task, why),
            (None, _) => again(one, requeue, state, why),
        },
        _ => again(one, requeue, state, why),
    }
}

/// A run had too little memory. Once more with what its trace says; never if it was growing.
pub fn died(sweep: &Path, one: &Followed, submission: Submission<'_>, why: String) -> Fate {
    let file = if submission.settings.memory.is_some() { layout::SLURM } else { layout::SWEEP_MEMORY };
    // One that ended itself counts as failed.
    let failed = matches!(standing::of(&run_folder(sweep, one.run)), Standing::Done(_));
    let how = if failed { " with --retry-failed" } else { "" };
    let advice = format!("set more `memory` in {}, then resume the sweep{how}", sweep.join(file).display());
    match (submission.memory_of(one), one.again_with) {
        (Some(bytes), Some(_)) => Fate::Ended(Some(format!(
            "{why}: the run needs more than the {} that it was tried once more with; {advice}",
            Bytes(bytes)
        ))),
        (None, _) => Fate::Ended(Some(format!("{why}: the run needs more than Slurm gave it; {advice}"))),
        (Some(had), None) => match again::after(&run_folder(sweep, one.run), had) {
            Again::With(bytes) => Fate::More { why: format!("{why}, with {} for the run", Bytes(had)), bytes },
            Again::Grew(what) => Fate::Ended(Some(format!(
                "{why}, with {} for the run; it is not tried again, since it was growing: {what}",
                Bytes(had)
            ))),
        },
    }
}

fn again(one: &Followed, requeue: u32, state: &str, why: String) -> Fate {
    match one.again < requeue {
        true => Fate::Again { why, cancelled: state == CANCELLED },
        false => Fate::Ended(Some(format!("{why}; it was submitted again {} times (`requeue`)", one.again))),
    }
}

pub fn said_by_run(sweep: &Path, run: RunId) -> std::path::PathBuf {
    run_folder(sweep, run).with_extension("txt")
}

fn said_by_job(sweep: &Path, task: &Task) -> std::path::PathBuf {
    sweep.join(layout::SLURM_SAID).join(format!("{}_{}.txt", task.job, task.task))
}

/// Nothing in the run's folder: what is wrong was said by the job, if its node sees the folder at all.
pub fn before_xrun(sweep: &Path, task: &Task, why: String) -> Fate {
    let path = said_by_job(sweep, task);
    if !path.is_file() {
        let message = format!(
            "{why}, and its node left nothing in {}: is that on a file system that all nodes share?",
            sweep.display()
        );
        return Fate::Ended(Some(message));
    }
    match last_words(&path) {
        Some(words) => Fate::Ended(Some(format!("the job did not get as far as the run: {words}"))),
        None => Fate::Again { why, cancelled: false },
    }
}

/// Takes away what a job said when it said nothing.
pub fn tidy(sweep: &Path, task: Option<&Task>) {
    if let Some(task) = task {
        let _ = last_words(&said_by_job(sweep, task));
    }
}

/// When all that is left was cancelled at once, somebody meant the sweep and not a run.
pub fn as_meant(fates: Vec<Fate>, tasks: &[Task]) -> Vec<Fate> {
    let cancelled = |fate: &Fate| matches!(fate, Fate::Again { cancelled: true, .. });
    let whole = fates.len() > 1 && !tasks.iter().any(Task::is_active) && fates.iter().all(cancelled);
    if whole { fates.into_iter().map(|_| Fate::Cancelled).collect() } else { fates }
}

pub fn process(sweep: &Path, one: &Followed, why: Option<String>) -> Process {
    let folder = run_folder(sweep, one.run);
    let summary = match standing::of(&folder) {
        Standing::Done(_) => read::summary(&folder).ok().flatten(),
        _ => None,
    };
    let good = summary.as_ref().is_some_and(|summary| summary.exit_code == 0);
    Process {
        version: VERSION,
        run: one.run.to_string(),
        ended: now(),
        seconds: summary.as_ref().map_or(0.0, |summary| summary.seconds),
        resumed: one.again > 0 || one.again_with.is_some(),
        exit_code: summary.as_ref().map(|summary| i32::from(summary.exit_code)),
        signal: None,
        message: why.or_else(|| summary.filter(|_| !good).map(|summary| summary.message)),
        again_with: None,
    }
}

pub fn record_process(journal: &mut LineWriter, process: &Process) -> Result<(), SlurmError> {
    journal.record(process)?;
    Ok(journal.flush()?)
}

/// Waits, but not longer than until a signal.
fn pause(time: Duration, stop: &StopSignal) {
    let begun = Instant::now();
    while begun.elapsed() < time && !stop.raised() {
        std::thread::sleep(Duration::from_millis(50).min(time));
    }
}
