//! What does a run carry from step to step? Numbers, open files, and who is told.

use std::time::{Duration, Instant};

use super::RunError;
use super::clock::Clock;
use super::limits::{Bounds, Reached};
use super::norms::Norms;
use super::observer::Observer;
use super::post_mortem;
use super::recorder::Recorder;
use crate::plan::{Buffers, Plan, forecast};
use xrun_core::files::layout;
use xrun_core::files::write;
use xrun_core::panics;
use xrun_core::task::{Better, Task};
use xrun_results::format::{LoopState, MetricsLine, Outcome, OwnerSummary, PostMortem, Summary, VERSION};
use xrun_results::timestamp;
use xrun_watch::stop::{Ending, StopSignal};

/// Everything that the loop reads and writes besides the task.
pub struct Session<'a> {
    /// What will happen.
    pub plan: &'a Plan,
    /// How far it came, as a checkpoint keeps it.
    pub state: LoopState,
    /// What writes the result.
    pub recorder: Recorder,
    /// How long the parts of a step take.
    pub clock: Clock,
    /// The last gradient norms.
    pub norms: Norms,
    /// Who is told.
    pub observer: &'a mut dyn Observer,
    /// Time within training steps of this process.
    pub training: Duration,
    /// The validation metric by which a checkpoint is best.
    pub best_by: Option<(String, Better)>,
    /// The step of the best checkpoint, once the run has gone back to it.
    pub restored: Option<u64>,
    /// The observer knows that memory grows.
    pub growing_told: bool,
    /// The state that was saved last: step, and whether it was validated.
    pub saved: Option<(u64, bool)>,
    /// Limits on memory.
    pub bounds: Bounds,
    /// This process has done a step, so the operations of a step are tuned.
    pub tuned: bool,
    /// The same of a validation.
    pub tuned_validation: bool,
    /// Ends a probe after this many steps.
    pub stop_after: Option<u64>,
    /// Stops the run after this step, to go on later.
    pub until: Option<u64>,
    /// That of the memory limit that ended it.
    pub post_mortem: Option<PostMortem>,
    stop: &'a StopSignal,
    started: Instant,
    /// When the clock of the time limit began: with the program; in a probe, after its first step, which tunes.
    limit_from: Option<Instant>,
    steps_before: u64,
    items_before: u64,
}

impl<'a> Session<'a> {
    /// `state` is where the run stands: all zero for a new one.
    pub fn new(
        plan: &'a Plan,
        state: LoopState,
        recorder: Recorder,
        observer: &'a mut dyn Observer,
        stop: &'a StopSignal,
        program_started: Instant,
    ) -> Self {
        let buffer = Buffers::new(&plan.experiment.limits).gradient_norms;
        let norms = Norms::new(&recorder.ledger, &buffer, &state.gradient_norms);
        Self {
            plan,
            recorder,
            clock: Clock::default(),
            norms,
            observer,
            training: Duration::ZERO,
            best_by: plan.best_by().and_then(|metric| Some((metric.name.to_owned(), metric.better?))),
            restored: None,
            growing_told: false,
            saved: None,
            bounds: Bounds::new(&plan.experiment.limits),
            tuned: false,
            tuned_validation: false,
            stop_after: None,
            until: None,
            post_mortem: None,
            stop,
            started: Instant::now(),
            limit_from: Some(program_started),
            steps_before: state.step,
            items_before: state.items,
            state,
        }
    }

    /// Ends after so many steps: as a probe does, whose time is counted from the end of its first step.
    pub fn stops_after(&mut self, steps: Option<u64>) {
        self.stop_after = steps;
        if self.is_probe() {
            self.limit_from = None;
        }
    }

    /// Whether it is to say what the experiment needs, and no more.
    pub fn is_probe(&self) -> bool {
        self.stop_after.is_some()
    }

    /// Whether what was asked of the device since the last time was done.
    ///
    /// The device's own thread may panic in a call that nobody waits for; all would go on with wrong numbers.
    ///
    /// # Errors
    /// The panic.
    pub fn device_is_well(&mut self) -> Result<(), RunError> {
        panics::survived().map_or(Ok(()), |panic| Err(RunError::Device(panic)))
    }

    /// A step is done.
    pub fn stepped(&mut self) {
        self.limit_from.get_or_insert_with(Instant::now);
    }

    /// When the time limit is reached, and how the run ends then.
    fn time_limit(&self) -> Option<(Instant, Ending)> {
        let limit = self.plan.experiment.training.time_limit?;
        let message = format!("`training.time_limit` = {limit} was reached after step {}", self.state.step);
        Some((self.limit_from? + limit.0, Ending::new(Outcome::TimeLimit, message)))
    }

    /// Why the run should stop before its end, if it should.
    pub fn asked_to_stop(&self) -> Option<Ending> {
        if self.stop.raised() {
            return Some(Ending::new(
                Outcome::Interrupted,
                format!("stopped by a signal after step {}", self.state.step),
            ));
        }
        self.time_limit().filter(|(at, _)| Instant::now() >= *at).map(|(_, ending)| ending)
    }

    /// The device had no memory to give: as a limit that is reached. The pool is not asked; it may be broken.
    pub fn device_is_full(&mut self, asked: Option<u64>, parameters: u64) -> Result<Ending, RunError> {
        let reserved = self.recorder.seen().0.and_then(|line| line.device).map_or(0, |pool| pool.reserved);
        let reached = Reached::refused(asked, self.recorder.gpu_memory(), reserved);
        self.limit_reached(&reached, parameters)
    }

    /// Writes the post-mortem of a memory limit; the ending says the most important of it.
    pub fn limit_reached(&mut self, reached: &Reached, parameters: u64) -> Result<Ending, RunError> {
        self.recorder.sync()?;
        let owners = self.owners();
        let run = &self.recorder.run;
        let Some(line) = self.recorder.seen().0 else {
            return Ok(Ending::new(Outcome::MemoryLimit, reached.sentence()));
        };
        let dead = post_mortem::post_mortem(&self.recorder, self.plan, reached, line, owners, parameters);
        write::replace_json(&run.join(layout::POST_MORTEM), &dead)?;
        let sentence = post_mortem::sentence(&dead, run);
        self.post_mortem = Some(dead);
        Ok(Ending::new(Outcome::MemoryLimit, sentence))
    }

    /// All steps are done that were asked for. What is due after the last of them has been done, too.
    pub fn far_enough(&self) -> Option<Ending> {
        let message = || format!("stopped after step {}, as far as was asked for", self.state.step);
        let last = self.stop_after.into_iter().chain(self.until).min()?;
        (self.state.step >= last).then(|| Ending::new(Outcome::Interrupted, message()))
    }

    /// Writes a line of metrics, and counts it.
    pub fn metrics(&mut self, line: &MetricsLine) -> Result<(), RunError> {
        self.recorder.metrics(line)?;
        self.state.metrics_lines += 1;
        Ok(())
    }

    /// The state as a checkpoint keeps it.
    pub fn checkpoint_state(&self) -> LoopState {
        LoopState {
            version: VERSION,
            gradient_norms: self.norms.values(),
            seconds: self.state.seconds + self.started.elapsed().as_secs_f64(),
            ..self.state.clone()
        }
    }

    /// What goes into `summary.json`.
    pub fn summary(&mut self, task: &dyn Task, ending: &Ending, run: &str) -> Summary {
        let state = self.checkpoint_state();
        let owners = self.owners();
        let demand = self.recorder.demand(&owners);
        let plan_and_actual = self.plan.forecast.as_ref().map(|forecast| {
            let file = self.plan.to_file(task.parameters());
            forecast::beside(forecast, &file, &self.plan.experiment, &demand)
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
            of_data: ending.of_data,
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
            memory: self.recorder.memory_summary(self.training),
            demand,
            plan_and_actual: plan_and_actual.unwrap_or_default(),
            owners,
            phases: self.clock.summary(),
            counters: task.counters().into_iter().map(|(name, count)| (name.to_owned(), count)).collect(),
        }
    }

    fn owners(&self) -> Vec<OwnerSummary> {
        let readings = self.recorder.ledger.read();
        readings
            .into_iter()
            .map(|reading| OwnerSummary {
                name: reading.name.to_owned(),
                policy: reading.policy,
                cap_items: reading.cap.items,
                cap_bytes: reading.cap.bytes,
                peak_items: reading.peak_items,
                peak_bytes: reading.peak_bytes,
            })
            .collect()
    }
}
