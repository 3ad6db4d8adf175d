//! The main flow of a sweep: start what is missing, go on with what was begun, until all is done or somebody stops it.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;
use signal_hook::consts::SIGKILL;

use super::course::{Course, Job, List};
use super::launch::{Ended, Launcher, Start};
use super::needs;
use super::needs::again::{self, Again};
use super::points::RunId;
use super::record::run_folder;
use super::search;
use super::standing::{self, Standing};
use super::table;
use crate::records::sweep::{Process, Record};
use xrun_core::bounded::ledger::Ledger;
use xrun_core::files::layout;
use xrun_core::files::write;
use xrun_core::files::write::{LineWriter, WriteError};
use xrun_results::format::VERSION;
use xrun_results::read;
use xrun_results::timestamp::now;
use xrun_watch::killed;
use xrun_watch::killed::Killer;
use xrun_watch::stop::StopSignal;

/// What happens, for whoever watches.
pub enum Event<'a> {
    /// How many runs are to do, and how many are done already.
    Begins { left: usize, done: usize },
    /// An earlier process still works on this run.
    Waits { run: RunId },
    Ended {
        run: RunId,
        /// Of each swept key.
        values: &'a [Value],
        process: &'a Process,
        /// The step that it was to stop after, so as to go on when it is chosen.
        until: Option<u64>,
        left: usize,
    },
    /// A run that had too little memory beside others is tried once more, by itself.
    Again {
        run: RunId,
        process: &'a Process,
        /// What the run is thought to need.
        bytes: u64,
    },
    /// Those that run were asked to stop.
    Stops { running: usize },
}

/// How a sweep is conducted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Conduct {
    /// After the first run that does not finish, start no other.
    pub fail_fast: bool,
    /// Go on with runs that ended in a failure, too.
    pub retry_failed: bool,
    /// Runs may start the programs that their folders name, whoever created these.
    pub allowed: bool,
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conducted {
    AllDone,
    /// By a signal; `left` runs are not done.
    Stopped {
        left: usize,
    },
    /// By the first failure, as was asked for.
    FailedFast {
        left: usize,
    },
}

/// A sweep cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    #[error("cannot start the process of a run: {0}")]
    Start(std::io::Error),
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// The table is written again after this time, and rarely enough that it costs at most a twentieth.
pub const TABLE_EVERY: Duration = Duration::from_secs(5);

/// Runs what is not done. The caller holds the sweep's folder. A search adds the points that it chooses to the record.
///
/// # Errors
/// A process cannot be started, or something cannot be written.
pub fn conduct(
    sweep: &Path,
    record: &mut Record,
    how: Conduct,
    launcher: &mut dyn Launcher,
    stop: &StopSignal,
    watch: &mut dyn FnMut(Event<'_>),
) -> Result<Conducted, SweepError> {
    let buffer = write::lines("sweep_processes", 1);
    let mut journal = LineWriter::open(&Ledger::default(), &buffer, &sweep.join(layout::PROCESSES))?;
    let mut course: Box<dyn Course> = match record.search.clone() {
        Some(search) => {
            // A process that was started just before may not have written yet how far it goes.
            for run in record.runs() {
                wait_for_others(sweep, run, stop, watch);
            }
            search::course::course(sweep, record, &search, how.retry_failed)
        }
        None => Box::new(List::new(sweep, record, how.retry_failed)),
    };
    let (left, all) = (course.left(record), record.runs_at_most());
    watch(Event::Begins { left, done: all.saturating_sub(left) });
    let (mut stopping, mut failed) = (false, false);
    // There was nothing to start, and nothing has ended since.
    let mut nothing = false;
    let (mut written, mut cost) = (Instant::now(), Duration::ZERO);
    loop {
        if stop.raised() && !stopping {
            stopping = true;
            watch(Event::Stops { running: launcher.running() });
            launcher.interrupt();
        }
        if StopSignal::takes_save() {
            launcher.save();
        }
        let halted = stopping || (failed && how.fail_fast);
        while !halted && !nothing && launcher.running() < launcher.jobs() && !stop.raised() {
            let Some(job) = course.next(record)? else {
                nothing = true;
                break;
            };
            if !launcher.fits(job.run) {
                // It is the next one when another has ended.
                course.put_back(job);
                break;
            }
            let retry_failed = how.retry_failed || launcher.is_tried_again(job.run);
            if let Some(start) = start(sweep, record, job, Conduct { retry_failed, ..how }, stop, watch)? {
                launcher.start(start).map_err(SweepError::Start)?;
            } else if stop.raised() {
                course.put_back(job);
            } else {
                course.ended(job, false);
            }
        }
        if launcher.running() == 0 {
            if halted || nothing {
                break;
            }
            continue;
        }
        for ended in launcher.ended() {
            nothing = false;
            let mut process = process(sweep, &ended);
            let again = if stopping { None } else { tried_again(sweep, &ended, &mut process, launcher) };
            failed |= process.exit_code != Some(0) && again.is_none();
            process.again_with = again;
            journal.record(&process)?;
            journal.flush()?;
            if let Some(bytes) = again {
                watch(Event::Again { run: ended.start.job.run, process: &process, bytes });
                course.put_back(ended.start.job);
                continue;
            }
            course.ended(ended.start.job, stopping);
            let left = course.left(record) + launcher.running();
            let Job { run, until } = ended.start.job;
            watch(Event::Ended { run, values: record.values(run.point), process: &process, until, left });
        }
        if written.elapsed() > TABLE_EVERY.max(20 * cost) {
            let begun = Instant::now();
            // A convenience while it goes on; the last one is written by the caller, who says what is wrong with it.
            let _ = table::write(sweep, record, &BTreeMap::new());
            (written, cost) = (Instant::now(), begun.elapsed());
        }
    }
    Ok(match course.left(record) {
        left if stopping => Conducted::Stopped { left },
        left if failed && how.fail_fast => Conducted::FailedFast { left },
        _ => Conducted::AllDone,
    })
}

/// How a run is to be started; `None` when an earlier process has finished it, or a signal came.
fn start(
    sweep: &Path,
    record: &Record,
    job: Job,
    how: Conduct,
    stop: &StopSignal,
    watch: &mut dyn FnMut(Event<'_>),
) -> Result<Option<Start>, SweepError> {
    let folder = run_folder(sweep, job.run);
    match wait_for_others(sweep, job.run, stop, watch) {
        // A signal came.
        Standing::Running => Ok(None),
        Standing::Missing => {
            standing::clear(&folder)?;
            Ok(Some(Start::new(sweep, record, job)))
        }
        // By a process of before, since we looked.
        Standing::Done(outcome) if !(how.retry_failed && outcome.resumable()) => Ok(None),
        Standing::Begun | Standing::Done(_) => Ok(Some(Start::resume(sweep, job, how.allowed))),
    }
}

/// Waits until no process works on a run, or a signal comes; answers how far the run is.
fn wait_for_others(sweep: &Path, run: RunId, stop: &StopSignal, watch: &mut dyn FnMut(Event<'_>)) -> Standing {
    let folder = run_folder(sweep, run);
    let mut told = false;
    loop {
        let standing = standing::of(&folder);
        if standing != Standing::Running || stop.raised() {
            return standing;
        }
        if !std::mem::replace(&mut told, true) {
            watch(Event::Waits { run });
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A run that died for want of memory beside others: it is tried once more by itself, and thought to need so many bytes.
/// `None` where it did not die so, was by itself, or was growing, which is then its message.
fn tried_again(sweep: &Path, ended: &Ended, process: &mut Process, launcher: &mut dyn Launcher) -> Option<u64> {
    let run = ended.start.job.run;
    let folder = run_folder(sweep, run);
    let by_kernel = || ended.signal == Some(SIGKILL) && matches!(killed::killer(&folder), Killer::Memory { .. });
    let by_limit = || match standing::of(&folder) {
        Standing::Done(outcome) => again::met_the_containers_limit(&folder, outcome),
        _ => false,
    };
    if !(by_kernel() || by_limit()) || !launcher.try_alone(run) {
        return None;
    }
    let had = read::summary(&folder).ok().flatten().and_then(|summary| summary.memory.resident_peak);
    // One that was killed early has no summary, and may have been killed before a sample: it was thought to need its forecast.
    let forecast = needs::kept(sweep).ok().flatten().and_then(|memory| Some(memory.need(run.point)?.host.0));
    match again::after(&folder, had.max(forecast).unwrap_or_default()) {
        Again::With(bytes) => Some(bytes),
        Again::Grew(what) => {
            // Of a limit it has said what is growing itself, and at length.
            let died = process.message.take().filter(|_| ended.signal.is_some());
            let died = died.unwrap_or_else(|| "it came to its container's limit".into());
            process.message = Some(format!("{died}; it is not tried again, since it was growing: {what}"));
            None
        }
    }
}

fn process(sweep: &Path, ended: &Ended) -> Process {
    // What it said last was said while all was well.
    let killer = (ended.signal == Some(SIGKILL)).then(|| killed::killer(&run_folder(sweep, ended.start.job.run)));
    let killed = killer.filter(|killer| *killer != Killer::Unknown).map(|killer| killer.words());
    Process {
        version: VERSION,
        run: ended.start.job.run.to_string(),
        ended: now(),
        seconds: ended.seconds,
        resumed: ended.start.resumes,
        exit_code: ended.exit_code,
        signal: ended.signal,
        message: killed.or_else(|| ended.message.clone()),
        again_with: None,
    }
}
