//! `xrun resume RUN --epochs N`: a run that has finished is trained further.

use clap::Args;

use super::terminal::{Failure, Terminal};
use crate::plan::Plan;
use crate::results::format::LoopState;
use crate::run::schedule::{Steps, learning_rate};

/// How far a run is to go that has finished.
#[derive(Clone, Copy, Debug, Args)]
pub struct Further {
    /// Train a finished run further: until so many passes over the data in all.
    #[arg(long, value_name = "N")]
    epochs: Option<u64>,
    /// The same, until so many steps in all: `training.max_steps`.
    #[arg(long, value_name = "N")]
    max_steps: Option<u64>,
}

impl Further {
    /// Whether it is to go further at all.
    pub fn is_asked(self) -> bool {
        self.epochs.is_some() || self.max_steps.is_some()
    }

    /// What that is as overrides of the experiment.
    pub fn overrides(self) -> impl Iterator<Item = String> {
        let epochs = self.epochs.map(|epochs| format!("training.epochs={epochs}"));
        let steps = self.max_steps.map(|steps| format!("training.max_steps={steps}"));
        epochs.into_iter().chain(steps)
    }

    /// Refuses a plan that ends where the run stands, and says what the schedule does at the seam. `planned` are the steps
    /// that the run had.
    ///
    /// # Errors
    /// There are no more steps.
    pub fn check(self, plan: &Plan, state: &LoopState, planned: u64, terminal: Terminal) -> Result<(), Failure> {
        if !self.is_asked() {
            return Ok(());
        }
        let (done, training) = (state.step, &plan.experiment.training);
        if plan.steps < planned {
            let message =
                format!("the run was to have {planned} steps, and this asks for {}: fewer is another run", plan.steps);
            return Err(Failure::Usage(message));
        }
        if plan.steps <= done {
            let keys = match training.max_steps {
                Some(steps) if self.max_steps.is_none() => {
                    format!("`training.max_steps` = {steps} ends it: give --max-steps, too")
                }
                _ => format!("an epoch has {} steps", plan.steps_per_epoch),
            };
            let message = format!("the run has done {done} steps, and this asks for {} in all; {keys}", plan.steps);
            return Err(Failure::Usage(message));
        }
        terminal.say(&format!("the run goes on after step {done}, to step {}", plan.steps));
        let base = plan.experiment.optimizer.learning_rate();
        let rate = |step, count| {
            let steps = Steps { count, phase_ends: &plan.facts.phase_ends };
            learning_rate(&training.schedule, base, step, steps)
        };
        let (before, after) = (rate(done, planned.max(done)), rate(done + 1, plan.steps));
        if before != after {
            terminal.say(&format!(
                "the schedule is stretched over {} steps: the learning rate was {before:.3e} at step {done} and is \
                 {after:.3e} at step {}",
                plan.steps,
                done + 1
            ));
        }
        Ok(())
    }
}
