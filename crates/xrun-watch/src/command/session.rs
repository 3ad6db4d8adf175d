//! Main flow of `xrun watch`: a command is started, sampled, limited and recorded.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGALRM, SIGCONT, SIGINT, SIGPROF, SIGQUIT, SIGTSTP, SIGTTIN, SIGTTOU, SIGUSR2, SIGVTALRM};
use signal_hook::iterator::Signals;

use super::exit::{self, Exit, LastMemory, State};
use super::growth::{CauseSearch, GrowthWatch};
use super::limits::{self, CommandLimitReached, unreclaimable};
use super::pty::{Foreground, SizeMirror};
use super::record::{self, CommandRecord};
use super::reports::Reports;
use super::sampler::{ProcessTree, Sampler, not_measured};
use super::start::{self, OutputReaders};
use super::step_source::SourceNote;
use super::steps::StepEvent;
use super::stop::Stopper;
use super::{PreparedRun, StepSource, WatchError, WatchRequest};
use crate::explain::Explainer;
use xrun_core::bounded::ledger::Ledger;
use xrun_core::files::write::WriteError;
use xrun_core::units::{Span, pluralize};
use xrun_results::format::{MemoryLine, Outcome, SamplePoint};
use xrun_results::judge::{CommandJudge, memory_fails, training_fails};
use xrun_results::read;
use xrun_results::verdict::{TrainingVerdict, VerdictWord};
use xrun_results::view::EndRecords;
use xrun_results::watched::WatchSettings;
use xrun_run::directory::RunDirectory;
use xrun_run::exit::exit_code;
use xrun_run::memory::own_cgroup::{Cgroups, OwnCgroup};
use xrun_run::memory::processes::Status;
use xrun_run::stop::{self, STOP_SIGNALS, repeated_signals};

/// Cap on the time between two checks whether the command has ended.
const TICK_MAX: Duration = Duration::from_millis(50);
/// Time after which a message says where the steps are from, or that none was found.
const STEP_SOURCE_REPORTED_AFTER: Duration = Duration::from_secs(10);
/// Time that the rest of the output may take, where orphans of the command keep it open.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(2);
/// Cap on the time between two ticks of the clock of files.
const FILE_TICK: Duration = Duration::from_millis(20);
/// Exit code of a shell for a file that is no program.
const EXIT_CANNOT_START: u8 = 126;

/// Signals that are handled besides those that stop a run: for SIGUSR2 to SIGCONT see [`Stopper`] and [`Session::suspend`]; the
/// others would end xrun, and leave the command unwatched.
const HANDLED: [i32; 7] = [SIGUSR2, SIGTSTP, SIGCONT, SIGALRM, SIGVTALRM, SIGPROF, libc::SIGPWR];
/// Message on a command that is stopped because it uses the terminal.
const WAITS_FOR_TERMINAL: &str = "the command is stopped until it gets the terminal, which xrun does not have in the \
    background: bring xrun to the foreground (`fg`), or start it so that the command asks for nothing";

/// Result of a command.
#[derive(Debug)]
pub struct WatchOutcome {
    /// Directory of the run, locked until this is dropped.
    pub directory: RunDirectory,
    /// Records that were written.
    pub records: EndRecords,
    /// True if it was ended early because [`WatchRequest::early_end`] was fulfilled.
    pub ended_early: bool,
    /// True if some samples or steps could not be written.
    pub lost: bool,
    /// True if the output ended within a line, such as a progress bar.
    pub within_line: bool,
}

/// Runs a command to its end, in a new directory. `info` receives messages for people.
///
/// # Errors
/// The command cannot be started, or its results cannot be written; the latter does not stop a running command.
pub fn run(request: &WatchRequest, info: &dyn Fn(&str)) -> Result<WatchOutcome, WatchError> {
    let launch = Launch::prepare(request, info)?;
    let record = CommandRecord::create(request, &launch.watched, &launch.ledger)?;
    launch.run(record, 0)
}

/// Runs a command to its end, in the directory of an experiment's run.
///
/// # Errors
/// As [`run`].
pub fn run_in(begun: PreparedRun, request: &WatchRequest, info: &dyn Fn(&str)) -> Result<WatchOutcome, WatchError> {
    let launch = Launch::prepare(request, info)?;
    let segment = begun.segment;
    let record = CommandRecord::open_run(begun, request, &launch.watched, &launch.ledger)?;
    launch.run(record, segment)
}

/// Creates a cgroup for the command, where the system allows one.
///
/// # Errors
/// The system allows none, and the command has a hard limit.
fn own_cgroup(request: &WatchRequest) -> Result<Option<OwnCgroup>, WatchError> {
    let Some(limit) = request.hard_limit else { return Ok(OwnCgroup::new(None).ok()) };
    OwnCgroup::new(Some(limit)).map(Some).map_err(|why| {
        let (hard_limit, host_memory) = (request.names.hard_limit, request.names.host_memory);
        WatchError::Input(format!(
            "{hard_limit}: cannot create a cgroup for the command: {why}; try `systemd-run --user --scope -p Delegate=yes`, or \
             use {host_memory}, which needs no cgroup"
        ))
    })
}

/// Command that is ready to start.
struct Launch<'a> {
    request: &'a WatchRequest,
    info: &'a dyn Fn(&str),
    program: PathBuf,
    ledger: Ledger,
    own_cgroup: Option<OwnCgroup>,
    explainer: Option<Explainer>,
    watched: WatchSettings,
}

impl<'a> Launch<'a> {
    fn prepare(request: &'a WatchRequest, info: &'a dyn Fn(&str)) -> Result<Self, WatchError> {
        let program = start::find(request)?;
        let own_cgroup = own_cgroup(request)?;
        let watched = record::watched(request, not_measured(own_cgroup.is_some()));
        let explainer = if request.explain { Some(Explainer::create()?) } else { None };
        Ok(Self { request, info, program, ledger: Ledger::default(), own_cgroup, explainer, watched })
    }

    /// Starts the command and runs it to its end. `segment` is the index of this process within the run.
    fn run(self, record: CommandRecord, segment: u32) -> Result<WatchOutcome, WatchError> {
        let Self { request, info, explainer, ref program, ref ledger, ref own_cgroup, ref watched } = self;
        let system = |error: std::io::Error| WatchError::System(format!("cannot handle signals: {error}"));
        let handled = HANDLED.into_iter().filter(|number| !stop::is_ignored(*number));
        let handled = STOP_SIGNALS.into_iter().chain(repeated_signals()).chain(handled);
        let mut signals = Signals::new(handled).map_err(system)?;
        exit::adopt_orphans();
        let own = own_cgroup.as_ref();
        let cgroups = Cgroups::of_command(own, request.hard_limit.is_some());
        let kills_before = cgroups.oom_kills();
        let (main, output) = match start::start(request, program, own, explainer.as_ref(), ledger) {
            Ok(started) => started,
            Err(error) => return not_started(record, &CommandJudge::new(watched), &error.to_string(), ledger),
        };
        let mut judged = CommandJudge::new(watched);
        if segment > 0 {
            replay(&record.directory.path, segment, &mut judged);
        }
        let mut session = Session {
            request,
            info,
            record,
            sampler: Sampler::new(ProcessTree::Started { main }, request.interval, cgroups.clone(), ledger),
            judged,
            segment,
            stopper: Stopper::new(main, request.signal, request.grace),
            foreground: Foreground::new(main),
            waits_for_terminal: false,
            output,
            limit_reached: None,
            first_step: None,
            last_step: None,
            last: LastMemory { kills_before, host_memory: request.host_memory, cgroups, line: None },
            scan_at_sample: 0,
            trend_checked: Instant::now(),
            reported_step_source: None,
            growth: GrowthWatch::default(),
            search: explainer.map(|explainer| CauseSearch::new(explainer, main)),
            write_failed: false,
            file_change: None,
        };
        let directory = session.record.directory.path.display().to_string();
        session.info(&format!("watching process {main}; results: {directory}"));
        session.log(&format!("command: {}", start::command_line(request)));
        let exit = session.run_until_exit(main, &mut signals);
        session.end(&exit, ledger)
    }
}

/// Records a command that could not be started.
fn not_started(
    record: CommandRecord,
    judged: &CommandJudge,
    message: &str,
    ledger: &Ledger,
) -> Result<WatchOutcome, WatchError> {
    let summary = record.summary(Outcome::Failed, EXIT_CANNOT_START, message.to_owned());
    let (directory, records) = record.end(summary, judged.verdict(), ledger)?;
    Ok(WatchOutcome { directory, records, ended_early: false, lost: false, within_line: false })
}

/// Judges the samples of earlier processes.
fn replay(run: &Path, segment: u32, judged: &mut CommandJudge) {
    let lines = read::memory(run).into_iter().flatten().flatten();
    lines.filter(|line| line.segment < segment).for_each(|line| judged.add(&line));
}

/// `1 process`, `2 processes`.
fn processes(count: u64) -> String {
    format!("{count} process{}", if count == 1 { "" } else { "es" })
}

struct Session<'a> {
    request: &'a WatchRequest,
    info: &'a dyn Fn(&str),
    record: CommandRecord,
    sampler: Sampler,
    judged: CommandJudge,
    stopper: Stopper,
    foreground: Foreground,
    /// True if it was reported that the command waits for the terminal.
    waits_for_terminal: bool,
    output: OutputReaders,
    /// Number of processes that wrote into the directory before.
    segment: u32,
    /// Limit that stopped the command.
    limit_reached: Option<CommandLimitReached>,
    /// First step, and its time.
    first_step: Option<(u64, Duration)>,
    /// Newest step, and its time.
    last_step: Option<(u64, Duration)>,
    last: LastMemory,
    /// Footprint by the scan before the newest sample.
    scan_at_sample: u64,
    /// Time of the last check whether the trend reaches a limit.
    trend_checked: Instant,
    /// Name of the source of steps that was reported last, `None` for none; absent before the first report.
    reported_step_source: Option<Option<String>>,
    growth: GrowthWatch,
    /// Search for the cause of growth; `None` unless it was requested.
    search: Option<CauseSearch>,
    /// True if the last write failed, which was reported. The command continues.
    write_failed: bool,
    /// Message on the first file that another program changed: the results are incomplete.
    file_change: Option<String>,
}

impl Session<'_> {
    /// Runs the loop until the main process has ended.
    fn run_until_exit(&mut self, main: u32, signals: &mut Signals) -> Exit {
        let tick = self.request.interval.min(TICK_MAX);
        let mut checked: Option<Instant> = None;
        let mut state = State::Running;
        loop {
            state = exit::reap(main, state);
            for signal in signals.pending() {
                match signal {
                    SIGTSTP => self.suspend(),
                    SIGCONT => self.stopper.resume(),
                    _ => {
                        let sampler = &self.sampler;
                        if let Some(message) = self.stopper.forward(signal, || sampler.member_ids()) {
                            self.info(&message);
                        }
                    }
                }
            }
            self.output.mirrors.iter().for_each(SizeMirror::resize);
            self.read_steps();
            match state {
                State::Running => {}
                State::Stopped(signal) => self.follow_stop(signal),
                State::Exited(exit) => {
                    if self.foreground.take_back() && matches!(exit.signal, Some(SIGINT | SIGQUIT)) {
                        self.stopper.note_interrupt();
                    }
                    return exit;
                }
            }
            if let Some(message) = self.early_end() {
                let members = self.sampler.member_ids();
                self.stopper.end(Outcome::Interrupted, message, members);
            }
            if checked.is_none_or(|checked| checked.elapsed() >= self.sampler.interval()) {
                checked = Some(Instant::now());
                self.check_memory();
            }
            self.search_cause();
            let sampler = &self.sampler;
            if let Some(message) = self.stopper.advance(|| sampler.member_ids()) {
                self.info(message);
            }
            std::thread::sleep(tick);
        }
    }

    /// Stops the command and this process until the latter is continued, as Ctrl-Z does with a job of a shell.
    fn suspend(&mut self) {
        self.stopper.suspend();
        let was_lent = self.foreground.take_back();
        stop::suspend();
        if was_lent {
            self.foreground.lend();
        }
        self.stopper.resume();
    }

    /// Reacts to a command that was stopped by `signal`: it gets the terminal if it uses that, as from a shell.
    fn follow_stop(&mut self, signal: i32) {
        match (signal, self.foreground.is_lent()) {
            (SIGTTIN | SIGTTOU, false) if self.foreground.lend() => {
                self.stopper.resume();
                self.log("the command uses the terminal, whose Ctrl-C and Ctrl-Z now go to it directly");
            }
            (SIGTTIN | SIGTTOU, false) if !self.waits_for_terminal => {
                self.waits_for_terminal = true;
                self.info(WAITS_FOR_TERMINAL);
            }
            // By Ctrl-Z.
            (SIGTSTP | libc::SIGSTOP, true) => self.suspend(),
            _ => {}
        }
    }

    /// Shows and logs a message, on a line of its own where the command has drawn a bar.
    fn info(&mut self, text: &str) {
        match self.output.is_within_line() {
            true => (self.info)(&format!("\n{text}")),
            false => (self.info)(text),
        }
        self.log(text);
    }

    fn log(&mut self, text: &str) {
        let logged = self.record.log(text);
        self.check_written(logged);
    }

    /// Reports the first of consecutive write errors.
    fn check_written(&mut self, written: Result<(), WriteError>) {
        let Err(error) = written else { return };
        let (path, source) = (error.path.display(), &error.source);
        if error.is_change() {
            self.file_change.get_or_insert_with(|| error.to_string());
        }
        if !std::mem::replace(&mut self.write_failed, true) {
            (self.info)(&format!(
                "cannot write {path}: {source}; the command continues, but its samples and steps are lost"
            ));
        }
    }

    fn read_steps(&mut self) {
        if let Some(file) = &mut self.output.file {
            file.read(&self.output.steps);
        }
        if let Some(reports) = &mut self.output.reports {
            reports.read(&self.output.steps);
        }
        for event in self.output.steps.take_events(&self.output.step_events) {
            let written = match event {
                StepEvent::Metrics(line) => self.record.step(&line),
                StepEvent::LossNotFinite(step) => {
                    self.record.loss_not_finite(step);
                    Ok(())
                }
                StepEvent::Anew => {
                    (self.first_step, self.last_step) = (None, None);
                    self.judged.restart_steps();
                    self.record.restart_steps(self.segment)
                }
            };
            self.check_written(written);
        }
        let (newest, now) = (self.output.steps.newest(), self.sampler.elapsed());
        if newest > self.last_step.map_or(0, |(step, _)| step) {
            self.first_step.get_or_insert((newest, now));
            self.last_step = Some((newest, now));
        }
        if now >= STEP_SOURCE_REPORTED_AFTER {
            self.report_step_source();
        }
    }

    /// Says where the steps are from, or that none was found, once and when that changes.
    fn report_step_source(&mut self) {
        let note = self.output.steps.source_note();
        let name = note.as_ref().map(|note| note.name.clone());
        if self.reported_step_source.as_ref().is_some_and(|reported| name.is_none() || *reported == name) {
            return;
        }
        let Some(message) = note.as_ref().map(|note| format!("steps from {note}")).or_else(|| self.no_steps()) else {
            return;
        };
        self.info(&message);
        self.reported_step_source = Some(name);
        self.note_step_source(note.as_ref());
    }

    fn note_step_source(&mut self, note: Option<&SourceNote>) {
        if let Some(note) = note {
            let written = self.record.note_step_source(&note.to_string());
            self.check_written(written);
        }
    }

    /// Message of an early end, once the condition of [`WatchRequest::early_end`] is fulfilled.
    fn early_end(&self) -> Option<String> {
        let enough = self.request.early_end.filter(|_| self.stopper.is_running() && self.last.line.is_some())?;
        let steps = self.output.steps.newest();
        let late = enough.after.is_some_and(|after| self.sampler.elapsed() >= after);
        // The last step must have been sampled.
        let sampled = self.last.line.as_ref().is_some_and(|line| line.step >= enough.steps);
        (sampled || late).then(|| format!("stopped after step {steps}, as requested"))
    }

    /// Message that no step was found; `None` where one was, or the user requested none.
    fn no_steps(&self) -> Option<String> {
        let (lines, matched) = self.output.steps.lines();
        if lines == 0 && matches!(self.request.steps, Some(StepSource::Recognised)) {
            return None;
        }
        let (lines, key) = (pluralize(lines, "line"), self.request.names.steps);
        let problem = match (&self.request.steps, matched) {
            (None, _) | (Some(_), 1..) => return None,
            (Some(StepSource::Output(_)), 0) => format!("the pattern of {key} matched none of {lines} of output"),
            (Some(StepSource::Recognised), 0) => {
                let pattern = self.output.steps.suggestion().unwrap_or_else(|| r"step (?<step>\d+)".to_owned());
                format!(
                    "no step was found in {lines} of output; if it prints steps, describe them with `{key} '{pattern}'`, or \
                     report them: `import xrun; xrun.step(step, loss=loss)`"
                )
            }
            (Some(StepSource::File(path)), 0) => {
                let shown = xrun_core::printable::line(&path.display().to_string(), 200);
                format!("no step was found in {lines} of {shown}")
            }
        };
        Some(format!("{problem}; memory is judged by time instead of steps"))
    }

    /// Checks the limits, and takes a sample when it is due.
    fn check_memory(&mut self) {
        if self.stopper.is_running()
            && let Some(limit) = self.request.time_limit.filter(|limit| self.sampler.elapsed() >= *limit)
        {
            self.stop(Outcome::TimeLimit, format!("the time limit of {} was reached", Span(limit)));
        }
        let scan = self.sampler.scan();
        if !self.sampler.is_due(self.is_near_limit(scan.footprint_max)) {
            return;
        }
        self.scan_at_sample = scan.footprint_max;
        let agent = self.search.as_ref().and_then(|search| search.agent(&self.sampler.member_ids()));
        let point = match &self.search {
            _ if self.last.line.is_none() => SamplePoint::Start,
            Some(_) if agent.is_none() => SamplePoint::Explained,
            _ => SamplePoint::Step,
        };
        let Some(line) = self.sampler.sample(self.output.steps.newest(), point) else { return };
        let mut line = MemoryLine { segment: self.segment, ..line };
        if let Some(reports) = &mut self.output.reports {
            reports.add_to(&mut line);
        }
        if let Some((agent, processes)) = agent.zip(line.processes.as_mut()) {
            processes.agent = agent;
        }
        self.judged.add(&line);
        self.watch_growth();
        match self.record.sample(&line) {
            Ok(true) if std::mem::take(&mut self.write_failed) => self.info("samples and steps are written again"),
            written => self.check_written(written.map(drop)),
        }
        if self.stopper.is_running()
            && let Some(reached) = limits::reached(self.request, &line, &self.judged, &mut self.trend_checked)
        {
            self.stop(Outcome::MemoryLimit, reached.message.clone());
            self.limit_reached = Some(reached);
        }
        self.last.line = Some(line);
    }

    /// Reports growth, and looks for its cause once it is suspected.
    fn watch_growth(&mut self) {
        let needed = self.search.as_ref().is_some_and(CauseSearch::is_needed);
        let Some(verdict) = self.growth.look(&self.judged, needed) else { return };
        if let Some(message) = self.growth.report(&verdict) {
            self.info(&message);
        }
        if !needed {
            return;
        }
        let members = self.sampler.member_ids();
        if self.search.as_mut().is_some_and(|search| search.ask(&verdict, &members)) {
            self.log(&format!("asked for the cause of {}: {}", verdict.verdict.words(), verdict.message));
        }
    }

    /// Exchanges messages with the Python processes, and reports the cause once growth was reported.
    fn search_cause(&mut self) {
        let newest_step = self.output.steps.newest();
        let Some(search) = &mut self.search else { return };
        let found = search.poll(newest_step).map(|found| found.message.clone());
        if found.is_some() {
            self.growth.look_soon();
        }
        let report = search.report(self.growth.has_reported());
        if let Some(message) = found {
            self.log(&format!("explanation: {message}"));
        }
        if let Some(message) = report {
            self.info(&message);
        }
    }

    fn stop(&mut self, outcome: Outcome, message: String) {
        let message = self.stopper.stop(outcome, message);
        self.info(&message);
    }

    /// Returns whether a limit may have been reached since the newest sample, by the growth of the scanned footprint.
    fn is_near_limit(&self, footprint_max: u64) -> bool {
        let Some(line) = &self.last.line else { return false };
        let reaches = |held: u64, limit: u64| held as f64 >= self.request.limit_fraction * limit as f64;
        let held = (line.host.heap + footprint_max).saturating_sub(self.scan_at_sample);
        let limited = line.container.is_some_and(|container| container.limit.is_some());
        let now = || self.last.cgroups.container.as_ref()?.memory();
        let container = || now().and_then(|now| Some((unreclaimable(line, &now), now.limit?)));
        self.request.host_memory.is_some_and(|limit| reaches(held, limit))
            || (limited && container().is_some_and(|(held, limit)| reaches(held, limit)))
    }

    fn end(mut self, exit: &Exit, ledger: &Ledger) -> Result<WatchOutcome, WatchError> {
        // Zombies do not count.
        let left: Vec<u32> =
            self.sampler.member_ids().into_iter().filter(|&member| Status::read(member).is_some()).collect();
        self.stopper.kill_remaining(left.clone());
        let orphans = left.len() as u64;
        let begun = Instant::now();
        while self.output.copies.iter().any(|copy| !copy.is_finished()) && begun.elapsed() < OUTPUT_TIMEOUT {
            self.read_steps();
            std::thread::sleep(Duration::from_millis(2));
        }
        self.read_steps();
        // From here on everything that can be written is written, whatever failed before.
        self.record.directory.free_reserve();
        let synced = self.record.sync();
        self.check_written(synced);
        let mut verdict = self.judged.verdict();
        let grown = verdict.footprint().map_or(0.0, |one| one.findings.growth);
        let phase = self.output.reports.as_ref().and_then(|reports| reports.growing_phase(grown));
        let phase = phase.or_else(|| self.output.steps.growing_phase(grown));
        if let Some(phase) = phase.filter(|_| verdict.verdict >= VerdictWord::Growing) {
            verdict.message = format!("{}; {phase}", verdict.message);
        }
        let seconds = self.sampler.elapsed();
        let now_us = u64::try_from(seconds.as_micros()).unwrap_or(u64::MAX);
        let killed = self.stopper.killed();
        let how = exit::exit_message(exit, killed, &self.last, now_us);
        let (outcome, code, message) = match &self.stopper.reason {
            Some((outcome, message)) => (*outcome, exit_code(*outcome), format!("{message}; {how}")),
            None if self.stopper.interrupted() => {
                (Outcome::Interrupted, exit.code, format!("stopped by a signal; {how}"))
            }
            None if exit.code != 0 => (Outcome::Failed, exit.code, how),
            None if memory_fails(self.request.fail_on, verdict.verdict) => {
                let message = format!("{how}; {}", verdict.message);
                (Outcome::MemoryGrew, exit_code(Outcome::MemoryGrew), message)
            }
            None if self.file_change.is_some() => {
                let change = self.file_change.take().unwrap_or_default();
                (Outcome::Failed, exit_code(Outcome::Failed), format!("{how}; {change}"))
            }
            None => match self.failed_training() {
                Some(training) => {
                    let message = format!("{how}; {}: {}", training.verdict.words(), training.message);
                    (Outcome::DidNotLearn, exit_code(Outcome::DidNotLearn), message)
                }
                None => (Outcome::Finished, 0, how),
            },
        };
        let exit_code = if self.request.own_exit_code { code } else { exit_code(outcome) };
        let mut notes = Vec::new();
        notes.extend(self.saved(outcome));
        if orphans > 0 && self.stopper.reason.is_none() && !killed {
            notes.push(format!("{} still running, no longer watched", processes(orphans)));
        }
        notes.extend(self.no_steps());
        let note = self.output.steps.source_note();
        self.note_step_source(note.as_ref());
        // Said above a message that ends with the verdict.
        notes.extend(note.filter(|_| outcome != Outcome::MemoryGrew).map(|note| format!("steps from {note}")));
        let lost = self.lost();
        let any_lost = lost.is_some();
        notes.extend(lost);
        let message = std::iter::once(message).chain(notes).collect::<Vec<String>>().join("; ");
        if let Some(reached) = self.limit_reached.take() {
            let written = self.record.post_mortem(&reached, &verdict);
            self.check_written(written);
        }
        if let Some(explanation) = self.search.take().and_then(|search| search.end(&verdict)) {
            let written = self.record.explanation(explanation);
            self.check_written(written);
        }
        let dropped = self.output.steps.dropped();
        let mut summary = self.record.summary(outcome, exit_code, message);
        summary.steps = self.last_step.map_or(0, |(step, _)| step);
        summary.seconds += seconds.as_secs_f64();
        summary.steps_per_second = self.speed();
        summary.memory = self.sampler.summary();
        summary.phases = self.output.reports.as_ref().map(Reports::phases).unwrap_or_default();
        summary.counters = (dropped > 0).then(|| ("steps_left_out".to_owned(), dropped)).into_iter().collect();
        let ended_early = outcome == Outcome::Interrupted && !self.stopper.interrupted();
        let within_line = self.output.is_within_line();
        let (directory, records) = self.record.end(summary, verdict, ledger)?;
        Ok(WatchOutcome { directory, records, ended_early, lost: any_lost, within_line })
    }

    /// Verdict on training, if it is one that fails the run.
    fn failed_training(&self) -> Option<TrainingVerdict> {
        let on = self.request.training_fail_on;
        self.record.training().filter(|training| training_fails(on, training.verdict))
    }

    /// Message on the samples and steps that could not be written, after a last attempt.
    fn lost(&mut self) -> Option<String> {
        let written = self.record.flush();
        self.check_written(written);
        let (samples, steps) = self.record.lost();
        let counts = [(samples, "sample"), (steps, "step")].into_iter().filter(|(count, _)| *count > 0);
        let counts: Vec<String> = counts.map(|(count, name)| pluralize(count, name)).collect();
        (!counts.is_empty()).then(|| format!("{} lost: not written, but included in the verdict", counts.join(" and ")))
    }

    /// Note on whether the command saved before it ended; `None` where its checkpoint is unknown, or it finished.
    fn saved(&self, outcome: Outcome) -> Option<String> {
        let checkpoint = self.request.checkpoint.as_ref().filter(|_| outcome != Outcome::Finished)?;
        let name = xrun_core::printable::line(&checkpoint.display().to_string(), 300);
        let Ok(written) = checkpoint.metadata().and_then(|found| found.modified()) else {
            return Some(format!("{name} was not written"));
        };
        // The clock of files is coarse: a file that was written just now has an earlier time.
        let after = |since: std::time::SystemTime| written + FILE_TICK >= since;
        Some(match self.stopper.signalled_at {
            Some(since) if after(since) => format!("{name} was written after the signal"),
            Some(_) => format!("{name} was written before the signal, and not after it"),
            None => format!("{name} was written before"),
        })
    }

    /// Steps per second, between the first and the last.
    fn speed(&self) -> Option<f64> {
        let ((first, began), (last, ended)) = self.first_step.zip(self.last_step)?;
        let seconds = ended.saturating_sub(began).as_secs_f64();
        (last > first && seconds > 0.0).then(|| (last - first) as f64 / seconds)
    }
}
