//! A command from its start to its end: run, looked at, limited, written down. The main flow of `xrun watch`.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH};
use signal_hook::iterator::Signals;

use super::ending::{self, Exit, Last};
use super::events::Events;
use super::limits::{Limits, held_in};
use super::record::{self, Ended, Reached, Record};
use super::sampler::{Sampler, Whose, not_measured};
use super::start::{self, Output};
use super::stop::Stopper;
use super::terminal::Mirror;
use super::{Begun, Request, StepsFrom, WatchError};
use crate::directory::RunDirectory;
use crate::memory::own_cgroup::{Cgroups, OwnCgroup};
use crate::memory::processes::Status;
use crate::stop::{exit_code, hang_up};
use xrun_core::bounded::ledger::Ledger;
use xrun_core::files::write::WriteError;
use xrun_core::units::{Span, counted};
use xrun_results::format::{MemoryLine, MemorySummary, MetricsLine, Outcome, PlanFile, Point, Summary};
use xrun_results::judge::{Command as Judged, fails};
use xrun_results::verdict::Verdict;
use xrun_results::watched::Watched as AsRecorded;

/// How often is looked whether it has ended.
const TICK_MAX: Duration = Duration::from_millis(50);
/// A pattern that has matched nothing by now is worth a word.
const PATTERN_PATIENCE: Duration = Duration::from_secs(60);
/// The rest of the output is waited for, where processes that were left behind hold it open.
const OUTPUT_PATIENCE: Duration = Duration::from_secs(2);
/// What came of a command.
#[derive(Debug)]
pub struct Watched {
    /// Held until this is dropped.
    pub directory: RunDirectory,
    pub summary: Summary,
    /// That of the experiment that it is the command of.
    pub plan: Option<PlanFile>,
    pub verdict: Verdict,
    /// It was ended when it had shown what was asked for.
    pub far_enough: bool,
    /// Some of what was measured could not be written.
    pub lost: bool,
}

/// Runs a command to its end. `say` is told what people should know meanwhile.
///
/// # Errors
/// The command cannot be started, or its results cannot be written; a command that runs is not stopped for that.
pub fn run(request: &Request, say: &dyn Fn(&str)) -> Result<Watched, WatchError> {
    let program = start::find(request)?;
    let ledger = Ledger::default();
    let own = own_cgroup(request)?;
    let watched = record::watched(request, not_measured(own.is_some()));
    let record = Record::begin(request, &watched, &ledger)?;
    follow(request, &program, record, own, 0, &watched, &ledger, say)
}

/// The same in the directory of an experiment's run.
///
/// # Errors
/// As [`run`].
pub fn run_in(begun: Begun, request: &Request, say: &dyn Fn(&str)) -> Result<Watched, WatchError> {
    let program = start::find(request)?;
    let ledger = Ledger::default();
    let own = own_cgroup(request)?;
    let watched = record::watched(request, not_measured(own.is_some()));
    let segment = begun.segment;
    let record = Record::within(begun, request, &watched, &ledger)?;
    follow(request, &program, record, own, segment, &watched, &ledger, say)
}

/// A cgroup of its own, where the system allows one. It must, where the kernel is to limit the command.
fn own_cgroup(request: &Request) -> Result<Option<OwnCgroup>, WatchError> {
    let Some(limit) = request.hard_limit else { return Ok(OwnCgroup::new(None).ok()) };
    OwnCgroup::new(Some(limit)).map(Some).map_err(|why| {
        WatchError::Asked(format!(
            "{}: no cgroup can be made for the command: {why}; `systemd-run --user --scope -p Delegate=yes` may allow it, and \
             {} limits it without one",
            request.names.hard_limit, request.names.host_memory
        ))
    })
}

#[expect(clippy::too_many_arguments, reason = "what both ways to begin have made")]
fn follow(
    request: &Request,
    program: &Path,
    record: Record,
    own: Option<OwnCgroup>,
    segment: u32,
    watched: &AsRecorded,
    ledger: &Ledger,
    say: &dyn Fn(&str),
) -> Result<Watched, WatchError> {
    let system = |error: std::io::Error| WatchError::System(format!("signals cannot be heard: {error}"));
    let heard = [SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH].into_iter().chain(hang_up());
    let mut signals = Signals::new(heard).map_err(system)?;
    ending::adopt_orphans();
    let cgroups = Cgroups::of_command(own.as_ref(), request.hard_limit.is_some());
    let kills_before = cgroups.oom_kills();
    let (main, output) = match start::start(request, program, own.as_ref(), ledger) {
        Ok(started) => started,
        Err(error) => return not_started(record, &Judged::new(watched), &error.to_string(), ledger),
    };
    let mut session = Session {
        request,
        say,
        record,
        sampler: Sampler::new(Whose::Ours { main }, request.every, cgroups.clone(), ledger),
        judged: Judged::new(watched),
        segment,
        stopper: Stopper::new(main, request.signal, request.grace),
        output,
        reached: None,
        first_step: None,
        last_step: None,
        last: Last { kills_before, host_memory: request.host_memory, cgroups, line: None },
        looked_at_sample: 0,
        limits: Limits::new(),
        patient: true,
        unwritten: false,
    };
    let directory = session.record.directory.path.display().to_string();
    session.tell(&format!("watching process {main}; results: {directory}"));
    let logged = session.record.log(&format!("the command is: {}", start::shown(request)));
    session.note(logged);
    let exit = session.follow(main, &mut signals);
    session.end(&exit, ledger)
}

/// Between two ticks of the clock of files, at most.
const FILE_TICK: Duration = Duration::from_millis(20);

/// What a shell answers of a file that is no program.
const EXIT_CANNOT_START: u8 = 126;

fn not_started(record: Record, judged: &Judged, message: &str, ledger: &Ledger) -> Result<Watched, WatchError> {
    let ended = Ended {
        outcome: Outcome::Failed,
        exit_code: EXIT_CANNOT_START,
        message: message.to_owned(),
        steps: 0,
        seconds: 0.0,
        steps_per_second: None,
        memory: MemorySummary::default(),
        counters: BTreeMap::new(),
    };
    let verdict = judged.verdict();
    let (directory, summary, plan) = record.end(&ended, &verdict, ledger)?;
    Ok(Watched { directory, summary, plan, verdict, far_enough: false, lost: false })
}

/// `1 process`, `2 processes`.
fn processes(count: u64) -> String {
    format!("{count} process{}", if count == 1 { "" } else { "es" })
}

struct Session<'a> {
    request: &'a Request,
    say: &'a dyn Fn(&str),
    record: Record,
    sampler: Sampler,
    judged: Judged,
    stopper: Stopper,
    output: Output,
    /// Counts the processes that wrote into the directory before this one.
    segment: u32,
    reached: Option<Reached>,
    /// The first step and the newest, and when they were.
    first_step: Option<(u64, Duration)>,
    last_step: Option<(u64, Duration)>,
    last: Last,
    /// What a look found when the newest sample was taken.
    looked_at_sample: u64,
    limits: Limits,
    /// Whether the pattern may still match for the first time.
    patient: bool,
    /// The last write failed, and a message said so. The command goes on: it is not to blame.
    unwritten: bool,
}

impl Session<'_> {
    /// Until its first process has ended.
    fn follow(&mut self, main: u32, signals: &mut Signals) -> Exit {
        let tick = self.request.every.min(TICK_MAX);
        let mut looked: Option<Instant> = None;
        loop {
            let ended = ending::reap(main);
            for signal in signals.pending() {
                if signal == SIGWINCH {
                    self.output.mirrors.iter().for_each(Mirror::follow);
                    continue;
                }
                let members = self.members();
                if let Some(said) = self.stopper.pass_on(signal, || members) {
                    self.tell(said);
                }
            }
            self.read_steps();
            if let Some(exit) = ended {
                return exit;
            }
            if let Some(message) = self.enough() {
                let members = self.members();
                self.stopper.end(Outcome::Interrupted, message, members);
            }
            if looked.is_none_or(|looked| looked.elapsed() >= self.request.every) {
                looked = Some(Instant::now());
                self.look();
            }
            let members = || self.sampler.members().iter().map(|member| member.id).collect();
            if let Some(said) = self.stopper.advance(members) {
                self.tell(said);
            }
            std::thread::sleep(tick);
        }
    }

    fn members(&self) -> Vec<u32> {
        self.sampler.members().iter().map(|member| member.id).collect()
    }

    fn tell(&mut self, text: &str) {
        (self.say)(text);
        let logged = self.record.log(text);
        self.note(logged);
    }

    fn note(&mut self, written: Result<(), WriteError>) {
        if let Err(WriteError { path, source }) = written
            && !std::mem::replace(&mut self.unwritten, true)
        {
            let path = path.display();
            (self.say)(&format!(
                "cannot write {path}: {source}; the command goes on, and what is measured meanwhile is lost"
            ));
        }
    }

    fn read_steps(&mut self) {
        if let Some(tail) = &mut self.output.tail {
            tail.read(&self.output.steps);
        }
        if let Some(events) = &mut self.output.events {
            events.read(&self.output.steps);
        }
        let lines: Vec<MetricsLine> = self.output.numbers.try_iter().collect();
        for line in lines {
            let written = self.record.step(&line);
            self.note(written);
        }
        let (newest, now) = (self.output.steps.newest(), self.sampler.elapsed());
        if newest > self.last_step.map_or(0, |(step, _)| step) {
            self.first_step.get_or_insert((newest, now));
            self.last_step = Some((newest, now));
        }
        if self.patient && (newest > 0 || now >= PATTERN_PATIENCE) {
            self.patient = false;
            if newest == 0
                && let Some(said) = self.no_steps()
            {
                self.tell(&said);
            }
        }
    }

    /// Whether it has shown what was asked for: it is ended then.
    fn enough(&self) -> Option<String> {
        let enough = self.request.enough.filter(|_| self.stopper.is_running() && self.last.line.is_some())?;
        let steps = self.output.steps.newest();
        let late = enough.after.is_some_and(|after| self.sampler.elapsed() >= after);
        // What the last of the steps holds is looked at first.
        let seen = self.last.line.as_ref().is_some_and(|line| line.step >= enough.steps);
        (seen || late).then(|| format!("stopped after step {steps}, as far as was asked for"))
    }

    /// That no step was found where steps were asked for.
    fn no_steps(&self) -> Option<String> {
        let (lines, matched) = self.output.steps.lines();
        let lines = counted(lines, "line");
        match (&self.request.steps, matched) {
            (None | Some(StepsFrom::Recognised { asked: false }), _) | (Some(_), 1..) => None,
            (Some(StepsFrom::Output(_)), 0) => Some(format!(
                "the pattern of {} has matched none of {lines} of output: memory is judged by the clock",
                self.request.names.steps
            )),
            (Some(StepsFrom::Recognised { .. }), 0) => Some(format!(
                "no progress was recognised in {lines} of output: memory is judged by the clock; a pattern in `{}` finds others",
                self.request.names.steps
            )),
            (Some(StepsFrom::Events(path)), 0) => {
                let path = xrun_core::printable::line(&path.display().to_string(), 200);
                Some(format!("no scalar was found in event files below {path}: memory is judged by the clock"))
            }
            (Some(StepsFrom::File(path)), 0) => {
                let path = xrun_core::printable::line(&path.display().to_string(), 200);
                Some(format!("no step was found in {lines} of {path}: memory is judged by the clock"))
            }
        }
    }

    fn look(&mut self) {
        if self.stopper.is_running()
            && let Some(limit) = self.request.time_limit.filter(|limit| self.sampler.elapsed() >= *limit)
        {
            self.stop(Outcome::TimeLimit, format!("the time limit of {} was reached", Span(limit)));
        }
        let look = self.sampler.look();
        if !self.sampler.is_due(self.is_near_limit(look.held_at_most)) {
            return;
        }
        self.looked_at_sample = look.held_at_most;
        let point = if self.last.line.is_none() { Point::Start } else { Point::Step };
        let Some(line) = self.sampler.sample(self.output.steps.newest(), point) else { return };
        let line = MemoryLine { segment: self.segment, ..line };
        self.judged.add(&line);
        match self.record.sample(&line) {
            Ok(true) if std::mem::take(&mut self.unwritten) => self.tell("what is measured is written again"),
            written => self.note(written.map(drop)),
        }
        if self.stopper.is_running()
            && let Some(reached) = self.limits.reached(self.request, &line, &self.judged)
        {
            self.stop(Outcome::MemoryLimit, reached.message.clone());
            self.reached = Some(reached);
        }
        self.last.line = Some(line);
    }

    fn stop(&mut self, outcome: Outcome, message: String) {
        let said = self.stopper.stop(outcome, message);
        self.tell(&said);
    }

    /// Whether a limit may have been reached since the newest sample, by what processes have got since then.
    fn is_near_limit(&self, looked: u64) -> bool {
        let Some(line) = &self.last.line else { return false };
        let reaches = |held: u64, limit: u64| held as f64 >= self.request.at * limit as f64;
        let held = (line.host.heap + looked).saturating_sub(self.looked_at_sample);
        let limited = line.container.is_some_and(|container| container.limit.is_some());
        let now = || self.last.cgroups.container.as_ref()?.memory();
        let container = || now().and_then(|now| Some((held_in(line, &now), now.limit?)));
        self.request.host_memory.is_some_and(|limit| reaches(held, limit))
            || (limited && container().is_some_and(|(held, limit)| reaches(held, limit)))
    }

    fn end(mut self, exit: &Exit, ledger: &Ledger) -> Result<Watched, WatchError> {
        // Those that have ended and were not asked after are gone.
        let left: Vec<u32> = self.members().into_iter().filter(|&member| Status::read(member).is_some()).collect();
        self.stopper.end_rest(left.clone());
        let left_behind = left.len() as u64;
        let begun = Instant::now();
        while self.output.copying.iter().any(|copying| !copying.is_finished()) && begun.elapsed() < OUTPUT_PATIENCE {
            self.read_steps();
            std::thread::sleep(Duration::from_millis(2));
        }
        if let Some(events) = &mut self.output.events {
            events.end(&self.output.steps);
        }
        self.read_steps();
        // What the kept room is for. From here on all is written that can be, whatever failed before.
        self.record.directory.free_reserve();
        let verdict = self.judged.verdict();
        let seconds = self.sampler.elapsed();
        let now_us = u64::try_from(seconds.as_micros()).unwrap_or(u64::MAX);
        let killed = self.stopper.killed();
        let how = ending::sentence(exit, killed, &self.last, now_us);
        let (outcome, code, message) = match self.stopper.because() {
            Some((outcome, message)) => (*outcome, exit_code(*outcome), format!("{message}; {how}")),
            None if self.stopper.interrupted() => {
                (Outcome::Interrupted, exit.code, format!("stopped by a signal, which was passed on; {how}"))
            }
            None if exit.code != 0 => (Outcome::Failed, exit.code, how),
            None if fails(self.request.fail_on, verdict.verdict) => {
                let message = format!("{how}; {}", verdict.message);
                (Outcome::MemoryGrew, exit_code(Outcome::MemoryGrew), message)
            }
            None => (Outcome::Finished, 0, how),
        };
        let exit_code = if self.request.own_exit_code { code } else { exit_code(outcome) };
        let mut notes = Vec::new();
        notes.extend(self.saved(outcome));
        if left_behind > 0 && self.stopper.because().is_none() && !killed {
            notes.push(format!("it left {} behind, no longer watched", processes(left_behind)));
        }
        notes.extend(self.no_steps());
        notes.extend(self.output.steps.recognised());
        let damaged = self.output.events.as_ref().map_or(0, Events::damaged);
        if damaged > 0 {
            notes.push(format!("the rest of {} could not be read", counted(damaged as u64, "event file")));
        }
        let lost = self.lost();
        let any_lost = lost.is_some();
        notes.extend(lost);
        let message = std::iter::once(message).chain(notes).collect::<Vec<String>>().join("; ");
        if let Some(reached) = self.reached.take() {
            let written = self.record.post_mortem(&reached, &verdict);
            self.note(written);
        }
        let memory = self.sampler.summary();
        let left_out = self.output.steps.left_out();
        let counters: BTreeMap<String, u64> =
            (left_out > 0).then(|| ("steps_left_out".to_owned(), left_out)).into_iter().collect();
        let ended = Ended {
            outcome,
            exit_code,
            message,
            steps: self.last_step.map_or(0, |(step, _)| step),
            seconds: seconds.as_secs_f64(),
            steps_per_second: self.speed(),
            memory,
            counters,
        };
        let far_enough = outcome == Outcome::Interrupted && !self.stopper.interrupted();
        let (directory, summary, plan) = self.record.end(&ended, &verdict, ledger)?;
        Ok(Watched { directory, summary, plan, verdict, far_enough, lost: any_lost })
    }

    /// How much of what was measured could not be written, once all that waits is written.
    fn lost(&mut self) -> Option<String> {
        let written = self.record.flush();
        self.note(written);
        let (samples, steps) = self.record.lost();
        let counts = [(samples, "sample"), (steps, "step")].into_iter().filter(|(count, _)| *count > 0);
        let counts: Vec<String> = counts.map(|(count, name)| counted(count, name)).collect();
        let all_is_judged = "the verdict counts them all the same";
        let were = if samples + steps == 1 { "was" } else { "were" };
        (!counts.is_empty())
            .then(|| format!("{} {were} lost: the disk took no more; {all_is_judged}", counts.join(" and ")))
    }

    /// Whether it saved before it ended, where it is known where it would.
    fn saved(&self, outcome: Outcome) -> Option<String> {
        let checkpoint = self.request.checkpoint.as_ref().filter(|_| outcome != Outcome::Finished)?;
        let name = xrun_core::printable::line(&checkpoint.display().to_string(), 300);
        let Ok(written) = checkpoint.metadata().and_then(|found| found.modified()) else {
            return Some(format!("{name} was not written"));
        };
        // The clock of files ticks some hundred times a second: what was written just now has an earlier time.
        let after = |since: std::time::SystemTime| written + FILE_TICK >= since;
        Some(match self.stopper.asked_at() {
            Some(since) if after(since) => format!("{name} was written after the signal"),
            Some(_) => format!("{name} was written before the signal, and not after it"),
            None => format!("{name} was written before"),
        })
    }

    /// Steps a second, between the first and the last.
    fn speed(&self) -> Option<f64> {
        let ((first, began), (last, ended)) = self.first_step.zip(self.last_step)?;
        let seconds = ended.saturating_sub(began).as_secs_f64();
        (last > first && seconds > 0.0).then(|| (last - first) as f64 / seconds)
    }
}
