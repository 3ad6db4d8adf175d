//! The main flow of a search on Slurm: a job for each run that the search sends on, and the next one by what came out.
//!
//! As [`super::watch`], whose rules say what becomes of a run whose job is gone; here a [`Course`] says which run is next. Nothing
//! else is kept: a watcher that was killed finds its jobs in the queue by their names, which say how far each was sent.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use super::super::conduct::TABLE_EVERY;
use super::super::course::{Course, Job};
use super::super::launch::last_words;
use super::super::needs::tried_again;
use super::super::points::RunId;
use super::super::record::run_folder;
use super::super::search::course::course;
use super::super::search::known::arrived;
use super::super::standing::{self, Standing};
use super::super::table;
use super::SlurmError;
use super::jobs::Jobs;
use super::queue::{self, Task};
use super::script::{self, Array};
use super::watch::{
    ASK_EVERY, Event, Fate, Followed, Submission, Watched, active_jobs, as_meant, before_xrun, counts, died, fate,
    is_active, not_tried_again, process, queued, record_process, said_by_run, tidy,
};
use crate::records::search::Search;
use crate::records::sweep::{Process, Record};
use xrun_core::bounded::ledger::Ledger;
use xrun_core::experiment::launcher::Slurm;
use xrun_core::files::layout;
use xrun_core::files::write;
use xrun_core::files::write::LineWriter;
use xrun_core::units::Bytes;
use xrun_results::read;
use xrun_watch::stop::StopSignal;

/// So many jobs of a search are in the queue where `array_limit` does not say: with more, each is chosen by fewer results.
pub const JOBS: u32 = 4;

/// Run directories are looked at this often while the queue is not asked.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How many jobs run and wait is told so often at most.
const COUNTS_EVERY: Duration = Duration::from_secs(10);

/// A search that goes on.
struct Flow<'a> {
    sweep: &'a Path,
    search: &'a Search,
    submission: Submission<'a>,
    jobs: Jobs,
    course: Box<dyn Course + 'a>,
    going: Vec<Going>,
    /// With how many bytes runs were submitted once more that had too little memory; a run of the search at most.
    tried_again: BTreeMap<RunId, u64>,
    /// How often each run was submitted again, for whatever other reason.
    again: BTreeMap<RunId, u32>,
    /// Jobs that somebody took back.
    cancelled: usize,
    journal: LineWriter,
    /// The newest job was not taken.
    refused: bool,
}

/// What became of a job that was to be submitted.
enum Sent {
    OnItsWay(Going),
    /// Not taken now: the course has it again.
    Later,
    /// It will never be taken.
    Over,
}

/// A run that a job is on its way with.
struct Going {
    job: Job,
    followed: Followed,
    /// Seconds that the run had taken before.
    before: f64,
    /// Its folder was seen to be where it was sent.
    seen: bool,
    /// It is on no way: it died for want of memory while nobody watched, and this is known of it.
    unseen: Option<String>,
}

/// Submits what the search chooses, follows it, and chooses by what came out, until nothing is left to choose. The caller holds
/// the sweep's folder, whose path is absolute. Points that are chosen are added to the record.
///
/// # Errors
/// Slurm's commands are missing, or refuse a job while no other is on its way; a file cannot be written.
pub fn watch(
    sweep: &Path,
    record: &mut Record,
    search: &Search,
    submission: Submission<'_>,
    stop: &StopSignal,
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<Watched, SlurmError> {
    let jobs = Jobs::new(sweep, record, search)?;
    let mut tasks = undisturbed(sweep, record, &jobs, stop, tell)?;
    let mut flow = Flow::new(sweep, record, search, submission, jobs, &tasks)?;
    if !flow.going.is_empty() {
        counted(&tasks, tell);
    }
    let (mut wait, mut silent) = (ASK_EVERY.0, false);
    let (mut seen, mut told) = (None, Instant::now());
    let (mut written, mut cost) = (Instant::now(), Duration::ZERO);
    loop {
        if stop.raised() {
            // The newest jobs may not have been in the last answer.
            let tasks = flow.jobs.tasks().unwrap_or(tasks);
            return Ok(Watched::Left { jobs: active_jobs(&tasks), left: flow.left(record) });
        }
        if flow.send_next(record, stop, tell)? {
            wait = ASK_EVERY.0;
        }
        if flow.going.is_empty() {
            break;
        }
        pause(wait, stop, || flow.going.iter_mut().any(|one| one.newly_there(sweep, search)));
        wait = (wait * 3 / 2).min(ASK_EVERY.1);
        match flow.jobs.tasks() {
            Ok(now) => (tasks, silent) = (now, false),
            Err(error) => {
                if !std::mem::replace(&mut silent, true) {
                    tell(Event::Silent { error: &error });
                }
                continue;
            }
        }
        let mut changed = flow.follow(record, &tasks, tell)?;
        let counts = counts(&tasks);
        if seen.replace(counts) != Some(counts) {
            changed = true;
            if told.elapsed() > COUNTS_EVERY && counts != (0, 0) {
                counted(&tasks, tell);
                told = Instant::now();
            }
        }
        // A run that is gone is looked at again soon.
        if changed || flow.going.iter().any(|one| one.followed.gone.is_some()) {
            wait = ASK_EVERY.0;
        }
        if written.elapsed() > TABLE_EVERY.max(20 * cost) {
            let begun = Instant::now();
            // A convenience while it goes on; the last one is written by the caller, who says what is wrong with it.
            let _ = table::write(sweep, record, &queued(record, &tasks));
            (written, cost) = (Instant::now(), begun.elapsed());
        }
    }
    Ok(match flow.cancelled {
        0 => Watched::AllDone,
        _ => Watched::Cancelled { left: flow.left(record) },
    })
}

/// Says how many jobs run and wait.
fn counted(tasks: &[Task], tell: &mut dyn FnMut(Event<'_>)) {
    let (running, waiting) = counts(tasks);
    let reason = tasks.iter().find(|task| task.waits()).map_or("", |task| task.reason.as_str());
    tell(Event::Queue { running, waiting, reason });
}

/// Asks the queue when no process works on a run that Slurm does not know of: one on this machine, or one that is just ending.
/// How far that was sent is not known before it ends.
fn undisturbed(
    sweep: &Path,
    record: &Record,
    jobs: &Jobs,
    stop: &StopSignal,
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<Vec<Task>, SlurmError> {
    let mut told = false;
    loop {
        let tasks = jobs.tasks()?;
        let mut others = record.runs().zip(0..).filter(|(_, place)| !is_active(&tasks, *place));
        let busy = others.find(|(run, _)| standing::of(&run_folder(sweep, *run)) == Standing::Running);
        let Some((run, _)) = busy.filter(|_| !stop.raised()) else { return Ok(tasks) };
        if !std::mem::replace(&mut told, true) {
            tell(Event::Waits { run });
        }
        pause(LOOK_EVERY, stop, || false);
    }
}

impl<'a> Flow<'a> {
    /// As far as the search is. Jobs that an earlier watcher submitted are taken over.
    fn new(
        sweep: &'a Path,
        record: &Record,
        search: &'a Search,
        submission: Submission<'a>,
        jobs: Jobs,
        tasks: &[Task],
    ) -> Result<Self, SlurmError> {
        let buffer = write::lines("sweep_processes", 1);
        let journal = LineWriter::open(&Ledger::default(), &buffer, &sweep.join(layout::PROCESSES))?;
        let mut course = course(sweep, record, search, submission.retry_failed);
        let retries = tried_again(sweep, record);
        let tried_again: BTreeMap<RunId, u64> = retries.iter().map(|(run, retry)| (*run, retry.bytes)).collect();
        let mut going = Vec::new();
        for (run, why) in submission.unseen(sweep, record, tasks, &retries) {
            let folder = run_folder(sweep, run);
            let Ok(until) = read::manifest(&folder).map(|manifest| manifest.until) else { continue };
            if arrived(&folder, search, until) {
                continue;
            }
            let job = Job { run, until };
            course.adopt(job);
            let one = Going::new(job, seconds(sweep, job), tried_again.get(&run).copied(), 0);
            going.push(Going { unseen: Some(why), ..one });
        }
        for job in under_way(record, tasks) {
            course.adopt(job);
            // What its process took that came there already is not told from what those before took.
            let there = arrived(&run_folder(sweep, job.run), search, job.until);
            let before = if there { 0.0 } else { seconds(sweep, job) };
            going.push(Going::new(job, before, tried_again.get(&job.run).copied(), 0));
        }
        Ok(Self {
            sweep,
            search,
            submission,
            jobs,
            course,
            going,
            tried_again,
            again: BTreeMap::new(),
            cancelled: 0,
            journal,
            refused: false,
        })
    }

    /// Runs that have not begun, are to go on, or are on their way.
    fn left(&self, record: &Record) -> usize {
        self.course.left(record) + self.going.len()
    }

    /// Submits as many runs as may be on their way; whether there was one.
    fn send_next(
        &mut self,
        record: &mut Record,
        stop: &StopSignal,
        tell: &mut dyn FnMut(Event<'_>),
    ) -> Result<bool, SlurmError> {
        let limit = self.submission.settings.array_limit.unwrap_or(JOBS) as usize;
        let before = self.going.len();
        // Who takes a job back before it begins takes back the search: another one in its place is not what was meant.
        while self.cancelled == 0 && self.going.len() < limit && !stop.raised() {
            let Some(job) = self.course.next(record)? else { break };
            let again_with = self.tried_again.get(&job.run).copied();
            let again = self.again.get(&job.run).copied().unwrap_or_default();
            let one = Going::new(job, seconds(self.sweep, job), again_with, again);
            match self.send(one, record, tell)? {
                Sent::OnItsWay(one) => self.going.push(one),
                Sent::Over => {}
                Sent::Later => break,
            }
        }
        Ok(self.going.len() > before)
    }

    /// Submits a run. What Slurm does not take now, it may take when another job has ended; then the course has it again.
    fn send(&mut self, one: Going, record: &Record, tell: &mut dyn FnMut(Event<'_>)) -> Result<Sent, SlurmError> {
        match submit(self.sweep, self.submission, &self.jobs, &one) {
            Ok(job) => {
                self.refused = false;
                tell(Event::Sent { job, run: one.job.run, until: one.job.until });
                Ok(Sent::OnItsWay(one))
            }
            // No node may have what it needs, and others must not wait for it.
            Err(error @ SlurmError::Refused { .. }) if one.followed.again_with.is_some() => {
                let why = not_tried_again(one.followed.again_with, &error);
                self.end(&one, Some(why), record, self.going.len(), tell)?;
                Ok(Sent::Over)
            }
            Err(error @ (SlurmError::Refused { .. } | SlurmError::Failed { .. })) if !self.going.is_empty() => {
                self.course.put_back(one.job);
                self.again.insert(one.job.run, one.followed.again);
                if !std::mem::replace(&mut self.refused, true) {
                    tell(Event::Silent { error: &error });
                }
                Ok(Sent::Later)
            }
            Err(error) => Err(error),
        }
    }

    /// Looks at what is on its way; whether something became of one of them.
    fn follow(&mut self, record: &Record, tasks: &[Task], tell: &mut dyn FnMut(Event<'_>)) -> Result<bool, SlurmError> {
        let (submission, cancelled) = (self.submission, self.cancelled > 0);
        let (sweep, search) = (self.sweep, self.search);
        let each = self.going.iter_mut();
        let fates = each.map(|one| one.fate(sweep, search, tasks, submission, cancelled)).collect();
        let fates = as_meant(fates, tasks);
        let mut on_their_way = fates.iter().filter(|fate| !matches!(fate, Fate::Cancelled)).count();
        let (mut changed, mut again) = (false, Vec::new());
        for (one, fate) in std::mem::take(&mut self.going).into_iter().zip(fates) {
            changed |= !matches!(fate, Fate::NotYet);
            match fate {
                Fate::NotYet => self.going.push(one),
                Fate::Cancelled => {
                    self.cancelled += 1;
                    self.course.put_back(one.job);
                }
                Fate::Again { why, .. } => again.push((one, why, None)),
                Fate::More { why, bytes } => again.push((one, why, Some(bytes))),
                Fate::Ended(why) => {
                    on_their_way -= 1;
                    self.end(&one, why, record, on_their_way, tell)?;
                }
            }
        }
        for (mut one, why, again_with) in again {
            tell(Event::Again { run: one.job.run, why: &why, memory: again_with });
            let process = one.process(sweep, search, Some(why));
            record_process(&mut self.journal, &Process { again_with, ..process })?;
            if let Some(bytes) = again_with {
                // For the rungs to come, too.
                self.tried_again.insert(one.job.run, bytes);
                one.followed.again_with = Some(bytes);
            } else {
                one.followed.again += 1;
            }
            (one.followed.gone, one.seen) = (None, false);
            if let Sent::OnItsWay(one) = self.send(one, record, tell)? {
                self.going.push(one);
            }
        }
        Ok(changed)
    }
}

impl Flow<'_> {
    /// A run came to where it was sent, or to an end of its own; so many others are on their way.
    fn end(
        &mut self,
        one: &Going,
        why: Option<String>,
        record: &Record,
        on_their_way: usize,
        tell: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), SlurmError> {
        let process = one.process(self.sweep, self.search, why);
        record_process(&mut self.journal, &process)?;
        self.course.ended(one.job, false);
        let Job { run, until } = one.job;
        let left = self.course.left(record) + on_their_way;
        tell(Event::Ended { run, until, values: record.values(run.point), process: &process, left });
        Ok(())
    }
}

impl Going {
    fn new(job: Job, before: f64, again_with: Option<u64>, again: u32) -> Self {
        // A search runs each point once, in their order.
        let place = job.run.point as usize - 1;
        let followed = Followed { place, run: job.run, again, again_with, gone: None };
        Self { job, followed, before, seen: false, unseen: None }
    }

    /// Its folder says that it came to where it was sent, and did not when it was last looked at.
    fn newly_there(&mut self, sweep: &Path, search: &Search) -> bool {
        let folder = run_folder(sweep, self.job.run);
        let there = matches!(standing::of(&folder), Standing::Done(_)) || arrived(&folder, search, self.job.until);
        there && !std::mem::replace(&mut self.seen, true)
    }

    fn fate(
        &mut self,
        sweep: &Path,
        search: &Search,
        tasks: &[Task],
        submission: Submission<'_>,
        cancelled: bool,
    ) -> Fate {
        if let Some(why) = self.unseen.take() {
            return died(sweep, &self.followed, submission, why);
        }
        let (run, place) = (self.job.run, self.followed.place);
        let folder = run_folder(sweep, run);
        let last = tasks.iter().filter(|task| task.place == place).max_by_key(|task| task.job);
        if !is_active(tasks, place) && arrived(&folder, search, self.job.until) {
            tidy(sweep, last);
            return Fate::Ended(None);
        }
        // The newest process of a run that waited at a rung is of the job before, until this one has begun.
        let begun = || read::manifest(&folder).is_ok_and(|manifest| manifest.until == self.job.until);
        let fate = fate(sweep, &mut self.followed, tasks, submission, cancelled);
        match (fate, last) {
            (Fate::Again { cancelled: true, .. }, _) if !begun() => Fate::Cancelled,
            (Fate::Again { why, .. }, Some(task)) if ["FAILED", "COMPLETED"].contains(&&*task.state) && !begun() => {
                match last_words(&said_by_run(sweep, run)) {
                    Some(words) => Fate::Ended(Some(words)),
                    None => before_xrun(sweep, task, why),
                }
            }
            (fate, _) => fate,
        }
    }

    fn process(&self, sweep: &Path, search: &Search, why: Option<String>) -> Process {
        let folder = run_folder(sweep, self.job.run);
        let mut found = process(sweep, &self.followed, why);
        if arrived(&folder, search, self.job.until) {
            (found.exit_code, found.seconds) = (Some(0), seconds(sweep, self.job));
        }
        found.seconds = (found.seconds - self.before).max(0.0);
        found.resumed = read::manifest(&folder).is_ok_and(|manifest| !manifest.resumed.is_empty());
        found
    }
}

/// Runs of a search that jobs in the queue are on their way with.
pub fn under_way(record: &Record, tasks: &[Task]) -> Vec<Job> {
    let runs = record.runs().zip(0..);
    let newest =
        |place| tasks.iter().filter(|task| task.place == place && task.is_active()).max_by_key(|task| task.job);
    runs.filter_map(|(run, place)| newest(place).map(|task| Job { run, until: task.until })).collect()
}

/// Seconds that a run took so far, in all its processes.
fn seconds(sweep: &Path, job: Job) -> f64 {
    read::summary(&run_folder(sweep, job.run)).ok().flatten().map_or(0.0, |summary| summary.seconds)
}

fn submit(sweep: &Path, submission: Submission<'_>, jobs: &Jobs, one: &Going) -> Result<u64, SlurmError> {
    let said = sweep.join(layout::SLURM_SAID);
    write::at(&said, std::fs::create_dir_all(&said))?;
    let Submission { program, settings, .. } = submission;
    let memory = submission.memory_of(&one.followed).map(Bytes);
    // The limit is of all jobs together, and each is an array by itself.
    let settings = Slurm { array_limit: None, memory, ..settings.clone() };
    // A run that ended itself at its container's limit counts as failed.
    let retry_failed = submission.retry_failed || one.followed.again_with.is_some();
    let (first, task, name) = jobs.job(one.job.until, one.followed.place);
    let array = Array { name: &name, first, tasks: &[task], after: None, until: one.job.until };
    let path = sweep.join(layout::SLURM_SCRIPT);
    write::replace(
        &path,
        script::script(program, sweep, &settings, &array, (retry_failed, submission.allowed))?.as_bytes(),
    )?;
    queue::submit(&path)
}

/// Waits, but not longer than until a signal, or until there is something to look at.
fn pause(time: Duration, stop: &StopSignal, mut due: impl FnMut() -> bool) {
    let (begun, mut looked) = (Instant::now(), Instant::now());
    while begun.elapsed() < time && !stop.raised() {
        std::thread::sleep(Duration::from_millis(50).min(time));
        if looked.elapsed() >= LOOK_EVERY {
            if due() {
                return;
            }
            looked = Instant::now();
        }
    }
}
