//! Overrides that make an experiment short while everything still happens, for `--steps` and `--smoke`.

use xrun_core::experiment::Experiment;
use xrun_core::experiment::command::named;
use xrun_core::problem::Problem;

/// Number of steps of a smoke run.
pub const SMOKE_STEPS: u64 = 20;
/// Batches of a validation of a smoke run.
const SMOKE_EPISODES: usize = 2;
/// Suffix of the name of a shortened experiment, whose runs must not be taken for the experiment's own.
const NAME_SUFFIX: &str = "-short";
/// Key that sets the number of steps.
pub const MAX_STEPS: &str = "training.max_steps";
/// Longest name that `experiment.name` allows.
const NAME_MAX: usize = 80;

/// Scales the step `at` of `all` steps to a run of `steps` steps. The result is neither the start nor the last step, except
/// that 0 stays 0.
fn scaled_step(at: u64, all: u64, steps: u64) -> u64 {
    if at == 0 {
        return 0;
    }
    let scaled = (at as f64 * steps as f64 / all.max(1) as f64).round() as u64;
    scaled.max(1).min(steps.saturating_sub(1))
}

/// Overrides that make a command do `steps` steps; `None` for any other experiment.
///
/// # Errors
/// The command does not have the number of steps as a placeholder.
pub fn command_overrides(experiment: &Experiment, steps: u64) -> Option<Result<Vec<String>, Problem>> {
    let command = experiment.command()?;
    Some(match named(command).contains(MAX_STEPS) {
        true => Ok(vec![format!("{MAX_STEPS}={steps}")]),
        false => {
            let message = "the command does not use it, so --steps and --smoke cannot shorten it";
            Err(Problem::new(MAX_STEPS, message).help(format!("add `{{{MAX_STEPS}}}` to the command's arguments")))
        }
    })
}

/// Overrides that make an experiment of `all` steps do `steps`, as `section.key=value`; empty if it is not longer.
pub fn overrides(experiment: &Experiment, all: u64, steps: u64) -> Vec<String> {
    if steps >= all {
        return Vec::new();
    }
    let mut set = vec![format!("{MAX_STEPS}={steps}")];
    let warmup = experiment.training.schedule.warmup_steps();
    let schedule = format!("training.schedule.{}.warmup_steps", experiment.training.schedule.kind());
    let mut scale = |key: &str, at: u64| {
        if at > 0 {
            set.push(format!("{key}={}", scaled_step(at, all, steps)));
        }
    };
    scale(&schedule, warmup);
    for (key, at) in experiment.pipeline.steps_of_stages() {
        scale(key, at);
    }
    // A cadence is scaled to at least one step.
    let mut every = |key: &str, at: u64| {
        if at > 0 {
            set.push(format!("{key}={}", scaled_step(at, all, steps).max(1)));
        }
    };
    every("validation.every_steps", experiment.validation.every_steps);
    every("checkpoint.every_steps", experiment.checkpoint.every_steps);
    set
}

/// Override that makes validations short.
pub fn small_validations(experiment: &Experiment) -> String {
    format!("validation.batches={}", experiment.validation.batches.min(SMOKE_EPISODES))
}

/// Override of the name, so that the results are separate.
pub fn name_override(experiment: &Experiment) -> String {
    let name: String = experiment.experiment.name.chars().take(NAME_MAX - NAME_SUFFIX.len()).collect();
    format!("experiment.name=\"{name}{NAME_SUFFIX}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scaled_step_is_neither_the_start_nor_the_last_step() {
        let scaled = [(0, 1000, 20), (900, 1000, 20), (20, 441, 12), (999, 1000, 20), (1, 1000, 20), (5, 10, 1)];
        assert_eq!(scaled.map(|(at, all, steps)| scaled_step(at, all, steps)), [0, 18, 1, 19, 1, 0]);
    }
}
