//! State of a run between steps: numbers, open files, the observer.

use std::time::{Duration, Instant};

use super::RunError;
use super::allocation_window::AllocationWindow;
use super::clock::Clock;
use super::gradient_norms::GradientNorms;
use super::ladder::Ladder;
use super::launch::{Extent, Launch};
use super::limits::{LimitReached, MemoryLimits};
use super::observer::Observer;
use super::post_mortem;
use super::recorder::Recorder;
use super::timer::Timer;
use crate::directory::RunDirectory;
use crate::memory::sources;
use crate::plan::{Buffers, Plan, duration, forecast};
use crate::stop::{Ending, StopSignal};
use xrun_core::files::layout;
use xrun_core::files::write;
use xrun_core::heap;
use xrun_core::panics;
use xrun_core::task::{Direction, Task};
use xrun_results::format::{
    HostMemory, LoopState, MemoryLine, MetricsLine, Outcome, OwnerSummary, PostMortem, Summary, VERSION,
};
use xrun_results::judge::training_end;
use xrun_results::timestamp;

/// State that the training loop reads and writes besides the task.
pub struct Session<'a> {
    /// Plan of the run.
    pub plan: &'a Plan,
    /// Progress, as a checkpoint stores it.
    pub state: LoopState,
    /// Writer of the run's records.
    pub recorder: Recorder,
    /// Directory of the run.
    pub directory: &'a RunDirectory,
    /// Time spent in each phase of the loop.
    pub clock: Clock,
    /// Stopwatch of steps, validations and checkpoints.
    pub timer: Timer,
    /// Window of the last gradient norms.
    pub norms: GradientNorms,
    /// Receiver of events.
    pub observer: &'a mut dyn Observer,
    /// Time that this process has spent in training steps.
    pub training: Duration,
    /// Validation metric that selects the best checkpoint.
    pub best_by: Option<(String, Direction)>,
    /// Step of the best checkpoint, once the run has been restored to it.
    pub restored: Option<u64>,
    /// True after the observer was notified that memory grows.
    pub growth_reported: bool,
    /// Sampling of allocations after growth was suspected.
    pub allocations: AllocationWindow,
    /// True after the observer was notified that training diverges.
    pub divergence_reported: bool,
    /// State that was saved last: step, and whether it was validated.
    pub saved: Option<(u64, bool)>,
    /// Memory limits.
    pub limits: MemoryLimits,
    /// Rungs to descend when one of them comes near.
    pub ladder: Ladder,
    /// Extent of the training.
    pub extent: Extent,
    /// Post-mortem of the memory limit that ended the run.
    pub post_mortem: Option<PostMortem>,
    stop: &'a StopSignal,
    started: Instant,
    /// Start of the time limit: that of the program; in a probe the end of the first step, which compiles kernels.
    limit_from: Option<Instant>,
    steps_before: u64,
    items_before: u64,
}

impl<'a> Session<'a> {
    /// Creates the session of a run. The time limit of a probe counts from the end of its first step.
    pub fn new(launch: &Launch<'a>, recorder: Recorder, observer: &'a mut dyn Observer, stop: &'a StopSignal) -> Self {
        let (plan, state) = (launch.plan, launch.state.clone());
        let buffer = Buffers::new(&plan.experiment.limits).gradient_norms;
        let norms = GradientNorms::new(&recorder.ledger, &buffer, &state.gradient_norms);
        Self {
            plan,
            recorder,
            directory: launch.directory,
            clock: Clock::default(),
            timer: Timer::new(plan.facts.stage_ends.len() + 1, plan.facts.first_use_steps),
            norms,
            observer,
            training: Duration::ZERO,
            best_by: plan.best_by().and_then(|metric| Some((metric.name.to_owned(), metric.direction?))),
            restored: None,
            growth_reported: false,
            allocations: AllocationWindow::default(),
            divergence_reported: false,
            saved: None,
            limits: MemoryLimits::new(&plan.experiment.limits),
            ladder: Ladder::new(plan, launch.extent),
            extent: launch.extent,
            post_mortem: None,
            stop,
            started: Instant::now(),
            limit_from: (!matches!(launch.extent, Extent::Probe(_))).then_some(launch.started),
            steps_before: state.step,
            items_before: state.items,
            state,
        }
    }

    /// Returns true if the run only measures what the experiment needs.
    pub fn is_probe(&self) -> bool {
        matches!(self.extent, Extent::Probe(_))
    }

    /// Fails if the device's own thread has panicked since the last check.
    ///
    /// Calls to the device are asynchronous: without the check, training would continue with wrong numbers.
    ///
    /// # Errors
    /// The panic.
    pub fn check_device(&mut self) -> Result<(), RunError> {
        panics::end_step().map_or(Ok(()), |panic| Err(RunError::Device(panic)))
    }

    /// Remaining seconds of the run; `validated`: without the validation that is due now. `None` while unknown.
    pub fn left(&self, validated: bool) -> Option<f64> {
        let work = duration::work_after(self.plan, self.state.step, validated);
        let probe = self.plan.forecast.as_ref().and_then(|forecast| forecast.probe_durations.as_ref());
        duration::forecast(&work, self.timer.durations(), probe).map(|forecast| forecast.seconds)
    }

    /// Notes the end of a step.
    pub fn step_finished(&mut self) {
        self.limit_from.get_or_insert_with(Instant::now);
    }

    /// Returns whether a run with a ladder is to take a sample after a step that has none, because memory is short.
    pub fn is_short(&mut self) -> bool {
        if !self.ladder.is_on() {
            return false;
        }
        let heap = heap::read();
        let host = HostMemory { heap: heap.bytes, heap_peak: heap.peak, rss: sources::rss(), ..HostMemory::default() };
        let line = MemoryLine { host, ..MemoryLine::default() };
        self.limits.refresh(&line, true);
        let demand = &self.recorder.demand;
        self.limits.reached(&line, &demand.so_far, demand.working + demand.growth).is_some()
    }

    /// Time at which the time limit is reached, and the ending it causes.
    fn time_limit(&self) -> Option<(Instant, Ending)> {
        let limit = self.plan.experiment.training.time_limit?;
        let message = format!("`training.time_limit` = {limit} was reached after step {}", self.state.step);
        Some((self.limit_from? + limit.0, Ending::new(Outcome::TimeLimit, message)))
    }

    /// Ending requested by a signal or by the time limit, if any.
    pub fn stop_request(&self) -> Option<Ending> {
        if self.stop.raised() {
            return Some(Ending::new(
                Outcome::Interrupted,
                format!("stopped by a signal after step {}", self.state.step),
            ));
        }
        self.time_limit().filter(|(at, _)| Instant::now() >= *at).map(|(_, ending)| ending)
    }

    /// Handles an allocation that the device refused as a limit that is reached. The pool is not queried: its state may be
    /// invalid.
    pub fn device_out_of_memory(&mut self, requested: Option<u64>, parameters: u64) -> Result<Ending, RunError> {
        let reserved = self.recorder.newest.as_ref().and_then(|line| line.device).map_or(0, |pool| pool.reserved);
        let reached = LimitReached::refused(requested, self.recorder.tracer.gpu_memory(), reserved);
        self.limit_reached(&reached, parameters)
    }

    /// Writes the post-mortem of a memory limit; the ending has a summary of it.
    pub fn limit_reached(&mut self, reached: &LimitReached, parameters: u64) -> Result<Ending, RunError> {
        self.recorder.sync()?;
        let owners = self.owners();
        let run = &self.recorder.run;
        let Some(line) = &self.recorder.newest else {
            return Ok(Ending::new(Outcome::MemoryLimit, reached.message()));
        };
        let record = post_mortem::build(&self.recorder, self.plan, reached, line, owners, parameters);
        write::replace_json(&run.join(layout::POST_MORTEM), &record)?;
        let message = post_mortem::message(&record, run);
        self.post_mortem = Some(record);
        Ok(Ending::new(Outcome::MemoryLimit, message))
    }

    /// Ending of a run that has done the requested number of steps, including everything due after the last one.
    pub fn requested_steps_done(&self) -> Option<Ending> {
        let message = || format!("stopped after step {}, as requested", self.state.step);
        let last = self.extent.last_step()?;
        (self.state.step >= last).then(|| Ending::new(Outcome::Interrupted, message()))
    }

    /// Writes a line of metrics, unless another process has taken the directory over.
    pub fn metrics(&mut self, line: &MetricsLine) -> Result<(), RunError> {
        self.directory.check_held()?;
        Ok(self.recorder.metrics(line)?)
    }

    /// State as a checkpoint stores it.
    pub fn checkpoint_state(&self) -> LoopState {
        LoopState {
            version: VERSION,
            gradient_norms: self.norms.values(),
            lines: Some(self.recorder.lines()),
            seconds: self.state.seconds + self.started.elapsed().as_secs_f64(),
            ..self.state.clone()
        }
    }

    /// Builds the record `summary.json`.
    pub fn summary(&mut self, task: &dyn Task, ending: &Ending, run: &str) -> Summary {
        let state = self.checkpoint_state();
        let owners = self.owners();
        let demand = self.recorder.demand.demand(&owners);
        let plan_and_actual = self.plan.forecast.as_ref().map(|forecast| {
            let file = self.plan.to_file(task.parameters());
            forecast::compare(forecast, &file, &self.plan.experiment, &demand)
        });
        let per_second = |count: u64| {
            let seconds = self.training.as_secs_f64();
            (seconds > 0.0 && count > 0).then(|| count as f64 / seconds)
        };
        Summary {
            version: VERSION,
            experiment: self.plan.experiment.experiment.name.clone(),
            run: run.to_owned(),
            outcome: ending.outcome,
            is_data_error: ending.is_data_error,
            message: ending.message.clone(),
            exit_code: ending.exit_code(),
            finished: timestamp::now(),
            seconds: state.seconds,
            steps: state.step,
            steps_planned: self.plan.steps,
            epochs: state.step as f64 / self.plan.steps_per_epoch as f64,
            steps_per_second: per_second(state.step - self.steps_before),
            items_per_second: per_second(state.items - self.items_before),
            loss_first: state.loss_first,
            loss_last: state.loss_last,
            losses: state.losses,
            metrics_first: state.metrics_first,
            metrics_last: state.metrics_last,
            intervals_last: state.intervals_last,
            best: state.best,
            restored: self.restored,
            training: self.recorder.training_verdict(Some(training_end(ending.outcome))),
            memory: self.recorder.tracer.summary(self.training),
            demand,
            plan_and_actual: plan_and_actual.unwrap_or_default(),
            owners,
            rungs: state.rungs,
            durations: Some(self.timer.durations().clone()),
            phases: self.clock.summary(),
            lines: state.lines,
            counters: task.counters().into_iter().map(|(name, count)| (name.to_owned(), count)).collect(),
        }
    }

    fn owners(&self) -> Vec<OwnerSummary> {
        self.recorder.ledger.read().into_iter().map(OwnerSummary::from).collect()
    }
}
