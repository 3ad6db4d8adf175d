//! Stopwatch of the parts of a run, from which its remaining time follows.

use std::time::{Duration, Instant};

use super::clock::{Clock, Occasional};
use super::observer::{Event, Observer};
use xrun_core::settings::rung::Rung;
use xrun_core::task::Phases;
use xrun_results::durations::{Durations, MeanDuration};

/// Stopwatch of steps, validations and checkpoints.
#[derive(Clone, Debug)]
pub struct Timer {
    durations: Durations,
    /// Beginning of the part that is being measured.
    mark: Instant,
    /// Time of the step so far, from the end of the step before.
    step: Duration,
    /// Beginning of the step.
    step_began: Instant,
    /// Stage of the newest step.
    stage: Option<usize>,
    /// Number of steps that use data for the first time.
    first_use_steps: u64,
    /// True if the only validation so far is that of the untrained model.
    only_untrained: bool,
}

impl Timer {
    /// Timer of a process whose training has so many stages, and so many steps that use data for the first time.
    pub fn new(stages: usize, first_use_steps: u64) -> Self {
        let durations = Durations { steps: vec![MeanDuration::default(); stages], ..Durations::default() };
        let now = Instant::now();
        Self {
            durations,
            mark: now,
            step_began: now,
            step: Duration::ZERO,
            stage: None,
            first_use_steps,
            only_untrained: false,
        }
    }

    /// Begins to measure now.
    pub fn start(&mut self) {
        let now = Instant::now();
        (self.mark, self.step_began, self.step) = (now, now, Duration::ZERO);
    }

    /// Durations so far.
    pub fn durations(&self) -> &Durations {
        &self.durations
    }

    /// Notes how long a step takes with a rung, relative to one without.
    pub fn rung_measured(&mut self, rung: Rung, ratio: f64) {
        self.durations.rungs.insert(rung, ratio);
    }

    /// Time since the last mark, which is set to now.
    fn lap(&mut self) -> Duration {
        let now = Instant::now();
        now - std::mem::replace(&mut self.mark, now)
    }

    /// Leaves out a time that a run does not have, such as that of the samples of a probe.
    pub fn leave_out(&mut self, time: Duration) {
        self.mark += time;
    }

    /// Begins a part that is not of the step: a validation or a checkpoint.
    pub fn begin_part(&mut self) {
        let lap = self.lap();
        self.step += lap;
    }

    /// Ends a validation with the times of its batches. `untrained`: it was the one before the first step.
    pub fn end_validation(&mut self, batches: &BatchTimes, untrained: bool) {
        let first_use = Some(batches.first_use).filter(|_| self.first_use_steps > 0).unwrap_or_default();
        let whole = self.lap().saturating_sub(first_use);
        let until_last = batches.until_last.saturating_sub(first_use);
        if self.durations.validation_first_use.count == 0 && batches.done > 0 {
            self.durations.validation_first_use.add(first_use.as_secs_f64() / batches.done as f64);
        }
        if std::mem::replace(&mut self.only_untrained, untrained) {
            let empty = MeanDuration::default();
            (self.durations.validation, self.durations.validation_batch) = (empty, empty);
            self.durations.validation_rest = empty;
        }
        self.durations.validation.add(whole.as_secs_f64());
        if batches.done > 0 {
            self.durations.validation_batch.add(until_last.as_secs_f64() / batches.done as f64);
            self.durations.validation_rest.add(whole.saturating_sub(until_last).as_secs_f64());
        }
    }

    /// Ends a checkpoint.
    pub fn end_checkpoint(&mut self) {
        let time = self.lap();
        self.durations.checkpoint.add(time.as_secs_f64());
    }

    /// Ends a step of a stage with the parts that not every step has.
    pub fn end_step(&mut self, stage: usize, occasional: Occasional) {
        let Occasional { batches, in_batches, first_use } = occasional;
        let lap = self.lap();
        self.step += lap;
        let began = std::mem::replace(&mut self.step_began, self.mark);
        let first_use = first_use.map(|end| end.saturating_duration_since(began));
        if batches > 0 {
            self.durations.step_batch.add(in_batches.as_secs_f64() / batches as f64);
        }
        // More of them than there should be: the cache is too small.
        let first_use = first_use.filter(|_| self.durations.first_use.count < self.first_use_steps);
        let saved = in_batches + first_use.unwrap_or_default();
        let time = std::mem::take(&mut self.step).saturating_sub(saved).as_secs_f64();
        let begins_stage = self.stage.replace(stage) != Some(stage);
        if self.durations.first_step.is_none() {
            self.durations.first_step = Some(time);
            return;
        }
        if let Some(first_use) = first_use {
            self.durations.first_use.add(first_use.as_secs_f64());
        }
        if !begins_stage && let Some(steps) = self.durations.steps.get_mut(stage) {
            steps.add(time);
        }
    }
}

/// Times of the batches of a validation.
#[derive(Clone, Copy, Debug, Default)]
pub struct BatchTimes {
    /// Number of batches done.
    pub done: u64,
    /// Time from the beginning to the end of the last of them.
    pub until_last: Duration,
    /// Part of that time which a cache will save in later validations.
    pub first_use: Duration,
}

/// Phases of a validation: measures its batches and reports them to the observer.
pub struct ValidationPhases<'a> {
    clock: &'a mut Clock,
    observer: &'a mut dyn Observer,
    step: u64,
    /// Seconds of the run after this validation, if known.
    left_after: Option<f64>,
    began: Instant,
    /// Times so far.
    pub batches: BatchTimes,
}

impl<'a> ValidationPhases<'a> {
    /// Begins a validation after `step` steps.
    pub fn new(clock: &'a mut Clock, observer: &'a mut dyn Observer, step: u64, left_after: Option<f64>) -> Self {
        Self { clock, observer, step, left_after, began: Instant::now(), batches: BatchTimes::default() }
    }
}

impl Phases for ValidationPhases<'_> {
    fn enter(&mut self, name: &'static str) {
        self.clock.enter(name);
    }

    fn batch_validated(&mut self, done: u64, all: u64) {
        self.batches = BatchTimes { done, until_last: self.began.elapsed(), ..self.batches };
        if done == 0 {
            return;
        }
        let of_rest = self.batches.until_last.as_secs_f64() / done as f64 * all.saturating_sub(done) as f64;
        let left = self.left_after.map(|left| left + of_rest);
        self.observer.event(Event::BatchValidated { step: self.step, done, all, left });
    }

    fn first_use(&mut self) {
        self.batches.first_use += self.began.elapsed().saturating_sub(self.batches.until_last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_step_and_the_untrained_validation_do_not_count_later() {
        let mut timer = Timer::new(2, 0);
        timer.begin_part();
        timer.end_validation(&BatchTimes { done: 2, ..BatchTimes::default() }, true);
        assert_eq!((timer.durations.validation.count, timer.durations.validation_batch.count), (1, 1));
        (0..3).for_each(|_| timer.end_step(0, Occasional::default()));
        (0..2).for_each(|_| timer.end_step(1, Occasional { batches: 4, ..Occasional::default() }));
        timer.begin_part();
        timer.end_validation(&BatchTimes::default(), false);
        timer.begin_part();
        timer.end_checkpoint();
        let counts = timer.durations.steps.iter().map(|step| step.count).collect::<Vec<u64>>();
        assert_eq!((counts, timer.durations.step_batch.count, timer.durations.checkpoint.count), (vec![2, 1], 2, 1));
        assert_eq!((timer.durations.validation.count, timer.durations.validation_batch.count), (1, 0));
        assert!(timer.durations.first_step.is_some());
    }

    #[test]
    fn the_first_use_of_data_counts_in_the_first_validation_alone() {
        let cold = BatchTimes { done: 4, until_last: Duration::from_secs(9), first_use: Duration::from_secs(8) };
        // With a cache that is too small, each validation reads all of its data.
        for (first_use_steps, batch, first_use) in [(3, 0.25, 2.0), (0, 2.25, 0.0)] {
            let mut timer = Timer::new(1, first_use_steps);
            timer.end_validation(&cold, true);
            let Durations { validation_batch, validation_first_use, .. } = &timer.durations;
            assert_eq!((validation_batch.mean, validation_first_use.mean), (batch, first_use));
        }
    }
}
