//! Runs as processes on this machine.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGKILL, SIGTSTP};

use super::launcher::{JobOutcome, Launcher, Start, Started, SweepContext, last_line};
use super::record::run_directory;
use super::resources::co_schedule::{Budget, CoSchedule, Requirement};
use super::resources::forecasts::Forecasts;
use super::resources::retry::{self, RetryDecision};
use super::run_status::RunStatus;
use super::schedule::{Event, Options, SweepError};
use super::scheduler::Job;
use super::trials::RunId;
use crate::records::sweep::Process;
use xrun_results::format::VERSION;
use xrun_results::read;
use xrun_results::timestamp::now;
use xrun_run::child;
use xrun_run::killed;
use xrun_run::killed::Killer;
use xrun_run::stop;

/// Starts a process for each run: a fixed number at once, or as many as fit by their forecasts.
pub struct Local<'a> {
    sweep: &'a Path,
    program: PathBuf,
    options: Options,
    slots: usize,
    co_schedule: Option<(CoSchedule, Forecasts<'a>)>,
    running: Vec<Running>,
    stopping: bool,
    /// Set by Ctrl-Z.
    suspension: Arc<AtomicBool>,
}

struct Running {
    start: Start,
    child: Child,
    begun: Instant,
}

impl<'a> Local<'a> {
    /// A launcher with this number of processes at once.
    ///
    /// # Errors
    /// The path of this program is not known.
    pub fn new(sweep: &'a Path, options: Options, slots: usize) -> io::Result<Self> {
        let program = child::program_path()?;
        let suspension = Arc::default();
        if !stop::is_ignored(SIGTSTP) {
            signal_hook::flag::register(SIGTSTP, Arc::clone(&suspension))?;
        }
        let (co_schedule, running) = (None, Vec::new());
        Ok(Self { sweep, program, options, slots, co_schedule, running, stopping: false, suspension })
    }

    /// A launcher with as many processes at once as fit.
    ///
    /// # Errors
    /// The path of this program is not known.
    pub fn co_scheduled(
        sweep: &'a Path,
        options: Options,
        budget: Budget,
        forecasts: Forecasts<'a>,
    ) -> io::Result<Self> {
        let co_schedule = Some((CoSchedule::new(budget), forecasts));
        Ok(Self { co_schedule, ..Self::new(sweep, options, budget.processors)? })
    }

    /// Stops the runs and this process after Ctrl-Z, until the latter is continued.
    fn suspend_if_requested(&self) {
        if self.suspension.swap(false, Relaxed) {
            self.running.iter().for_each(|running| send(&running.child, SIGTSTP));
            stop::suspend();
            self.running.iter().for_each(|running| send(&running.child, libc::SIGCONT));
        }
    }

    /// Waits until no process works on a run, or a signal comes. Returns the run's state.
    fn wait_for_others(&self, run: RunId, context: &mut SweepContext<'_>) -> RunStatus {
        let directory = run_directory(self.sweep, run);
        let mut reported = false;
        loop {
            self.suspend_if_requested();
            let status = RunStatus::read(&directory);
            if status != RunStatus::Running || context.stop.raised() {
                return status;
            }
            if !std::mem::replace(&mut reported, true) {
                (context.report)(Event::Waits { run });
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The processes that have ended. After a wait there may be none.
    fn reap(&mut self) -> Vec<(Running, io::Result<ExitStatus>)> {
        self.suspend_if_requested();
        let mut ended = Vec::new();
        let mut at = 0;
        while at < self.running.len() {
            match self.running[at].child.try_wait().transpose() {
                None => at += 1,
                Some(status) => ended.push((self.running.remove(at), status)),
            }
        }
        if ended.is_empty() && !self.running.is_empty() {
            std::thread::sleep(Duration::from_millis(5));
        }
        ended
    }

    /// Decides whether a run that died is retried alone. Returns the bytes that it is estimated to need; `None` where it did not
    /// die of memory, was alone already, or was growing, which is added to its message.
    fn retry(&mut self, run: RunId, process: &mut Process) -> Option<u64> {
        let directory = run_directory(self.sweep, run);
        let by_kernel = || process.signal == Some(SIGKILL) && matches!(killed::killer(&directory), Killer::Oom { .. });
        let by_limit = || match RunStatus::read(&directory) {
            RunStatus::Done(outcome) => retry::met_container_limit(&directory, outcome),
            _ => false,
        };
        let (co_schedule, forecasts) = self.co_schedule.as_mut()?;
        if self.stopping || !(by_kernel() || by_limit()) || !co_schedule.retry_alone(run) {
            return None;
        }
        let peak = read::summary(&directory).ok().flatten().and_then(|summary| summary.memory.rss_peak);
        // One that was killed early has no summary, and perhaps no sample: its forecast is known.
        let forecast = Requirement::new(&forecasts.memory, run.trial).host;
        match retry::decide(&directory, peak.unwrap_or_default().max(forecast)) {
            RetryDecision::Retry(bytes) => Some(bytes),
            RetryDecision::Growing(what) => {
                // The message of a run at its limit names what grows, at length.
                let died = process.message.take().filter(|_| process.signal.is_some());
                let died = died.unwrap_or_else(|| "the run reached its container's memory limit".into());
                process.message = Some(format!("{died}; not retried, because memory was growing: {what}"));
                None
            }
        }
    }

    fn process(&self, ended: &Running, status: io::Result<ExitStatus>) -> Process {
        let run = ended.start.job.run;
        let (exit_code, signal, message) = match status {
            Ok(status) => (status.code(), child::signal_of(status), last_line(&ended.start.stderr)),
            Err(error) => (None, None, Some(error.to_string())),
        };
        // The last line of a process that was killed is from before.
        let killer = (signal == Some(SIGKILL)).then(|| killed::killer(&run_directory(self.sweep, run)));
        let killed = killer.filter(|killer| *killer != Killer::Unknown).map(|killer| killer.message());
        Process {
            version: VERSION,
            run: run.to_string(),
            ended: now(),
            seconds: ended.begun.elapsed().as_secs_f64(),
            resumed: ended.start.resumes,
            exit_code,
            signal,
            message: killed.or(message),
            retry_memory: None,
        }
    }
}

impl Launcher for Local<'_> {
    fn slots(&self) -> usize {
        self.slots
    }

    fn active(&self) -> usize {
        self.running.len()
    }

    fn adopt(&mut self, context: &mut SweepContext<'_>) -> Result<Vec<Job>, SweepError> {
        if let Some((co_schedule, _)) = &mut self.co_schedule {
            co_schedule.expect_retries(context.histories.retries_to_come());
        }
        if context.record.search.is_some() {
            // A process that was started just before may not have written yet how far it goes.
            for run in context.record.runs() {
                self.wait_for_others(run, context);
            }
        }
        Ok(Vec::new())
    }

    fn start(&mut self, job: Job, context: &mut SweepContext<'_>) -> Result<Started, SweepError> {
        if let Some((co_schedule, forecasts)) = &mut self.co_schedule {
            // A new trial is probed beside the active runs, and its probe needs what the largest known one needs.
            if !co_schedule.fits(job.run, Requirement::new(&forecasts.memory, job.run.trial)) {
                return Ok(Started::Later);
            }
            forecasts.add(context.record, job.run.trial);
            if !co_schedule.fits(job.run, Requirement::new(&forecasts.memory, job.run.trial)) {
                return Ok(Started::Later);
            }
        }
        let retried = self.co_schedule.as_ref().is_some_and(|(co_schedule, _)| co_schedule.is_alone(job.run));
        let status = self.wait_for_others(job.run, context);
        if status == RunStatus::Running {
            // A signal came.
            return Ok(Started::Later);
        }
        let retry_failed = self.options.retry_failed || retried;
        let start = Start::next(self.sweep, context.record, job, status, retry_failed, self.options.allowed)?;
        let Some(start) = start else { return Ok(Started::Done) };
        let mut command = start.command(&self.program).map_err(SweepError::Start)?;
        bind(&mut command);
        let child = command.spawn().map_err(SweepError::Start)?;
        self.running.push(Running { start, child, begun: Instant::now() });
        if let Some((co_schedule, forecasts)) = &mut self.co_schedule {
            co_schedule.started(job.run, Requirement::new(&forecasts.memory, job.run.trial));
        }
        Ok(Started::Active)
    }

    fn poll(&mut self, _: &mut SweepContext<'_>) -> Result<Vec<(Job, JobOutcome)>, SweepError> {
        let mut outcomes = Vec::new();
        let ended = self.reap();
        if let Some((co_schedule, _)) = &mut self.co_schedule {
            ended.iter().for_each(|(ended, _)| co_schedule.ended(ended.start.job.run));
        }
        for (ended, status) in ended {
            let job = ended.start.job;
            let mut process = self.process(&ended, status);
            process.retry_memory = self.retry(job.run, &mut process);
            if process.retry_memory.is_some() {
                outcomes.extend([(job, JobOutcome::Retried(process)), (job, JobOutcome::Returned)]);
            } else {
                outcomes.push((job, JobOutcome::Ended(process)));
            }
        }
        Ok(outcomes)
    }

    fn interrupt(&mut self, report: &mut dyn FnMut(Event<'_>)) -> Option<Vec<u64>> {
        self.stopping = true;
        report(Event::Stops { running: self.running.len() });
        self.running.iter().for_each(|running| send(&running.child, libc::SIGINT));
        None
    }
}

fn send(child: &Child, signal: i32) {
    // SAFETY: a signal to a child that is not yet waited for.
    unsafe { libc::kill(child.id() as i32, signal) };
}

/// Ctrl-C reaches the sweep only, which signals each run once; and when the sweep is killed, its runs stop with a checkpoint.
fn bind(command: &mut Command) {
    std::os::unix::process::CommandExt::process_group(command, 0);
    child::end_with_parent(command, libc::SIGTERM);
}
