//! Options of `xrun resume` that train a finished run further: `--epochs N` and `--max-steps N`.

use clap::Args;

use super::terminal::{Failure, Terminal};
use crate::plan::Plan;
use crate::results::format::LoopState;
use crate::run::learning_rate::{Steps, learning_rate};
use crate::units::pluralize;

/// New length of a finished run.
#[derive(Clone, Copy, Debug, Args)]
pub struct ExtendArguments {
    /// Train a finished run further, up to this total number of epochs.
    #[arg(long, value_name = "N")]
    epochs: Option<u64>,
    /// Train a finished run further, up to this total number of steps (`training.max_steps`).
    #[arg(long, value_name = "N")]
    max_steps: Option<u64>,
}

impl ExtendArguments {
    /// Returns true if either option is given.
    pub fn is_requested(self) -> bool {
        self.epochs.is_some() || self.max_steps.is_some()
    }

    /// Options as overrides of the experiment.
    pub fn overrides(self) -> impl Iterator<Item = String> {
        let epochs = self.epochs.map(|epochs| format!("training.epochs={epochs}"));
        let steps = self.max_steps.map(|steps| format!("training.max_steps={steps}"));
        epochs.into_iter().chain(steps)
    }

    /// Refuses a plan without further steps, and reports how the learning rate changes. `planned` is the number of steps of
    /// the run's plan before.
    ///
    /// # Errors
    /// The plan has no more steps than the run.
    pub fn check(self, plan: &Plan, state: &LoopState, planned: u64, terminal: Terminal) -> Result<(), Failure> {
        if !self.is_requested() {
            return Ok(());
        }
        let (done, training) = (state.step, &plan.experiment.training);
        if plan.steps < planned {
            let message = format!(
                "the run is planned with {planned} steps and cannot be shortened to {}; start a new run",
                plan.steps
            );
            return Err(Failure::Usage(message));
        }
        if plan.steps <= done {
            let keys = match training.max_steps {
                Some(steps) if self.max_steps.is_none() => {
                    format!("the run stops at `training.max_steps` = {steps}; give --max-steps as well")
                }
                _ => format!("an epoch has {}", pluralize(plan.steps_per_epoch, "step")),
            };
            let message = format!("the run has already done {done} of {} steps; {keys}", plan.steps);
            return Err(Failure::Usage(message));
        }
        terminal.info(&format!("training continues after step {done}, up to step {}", plan.steps));
        let base = plan.experiment.optimizer.learning_rate();
        let rate = |step, count| {
            let steps = Steps { count, stage_ends: &plan.facts.stage_ends };
            learning_rate(&training.schedule, base, step, steps)
        };
        let (before, after) = (rate(done, planned.max(done)), rate(done + 1, plan.steps));
        if before != after {
            terminal.info(&format!(
                "the schedule now spans {} steps: the learning rate changes from {before:.3e} at step {done} to {after:.3e} \
                 at step {}",
                plan.steps,
                done + 1
            ));
        }
        Ok(())
    }
}
