//! How does an experiment become a short one in which everything still happens? For `--steps` and `--smoke`.

use xrun_core::experiment::Experiment;
use xrun_core::experiment::command::named;
use xrun_core::problem::Problem;

/// Steps of a smoke run.
pub const SMOKE_STEPS: u64 = 20;
/// Episodes of one of its validations.
const SMOKE_EPISODES: usize = 2;
/// What the name of a shortened experiment ends with: its runs must not pass for the experiment's own.
const NAME_END: &str = "-short";
/// The key that says how many steps there are.
pub const MAX_STEPS: &str = "training.max_steps";
/// As `experiment.name` allows.
const NAME_MAX: usize = 80;

/// Of something that happens at step `at` of `all`, the step of as large a share of `steps`; neither the first moment nor
/// the last, so that there is something before it and after it. 0 stays 0.
pub fn share(at: u64, all: u64, steps: u64) -> u64 {
    if at == 0 {
        return 0;
    }
    let scaled = (at as f64 * steps as f64 / all.max(1) as f64).round() as u64;
    scaled.max(1).min(steps.saturating_sub(1))
}

/// The same of a command, which has to be told how many steps to do; `None` of any other experiment.
///
/// # Errors
/// It is not told.
pub fn of_command(experiment: &Experiment, steps: u64) -> Option<Result<Vec<String>, Problem>> {
    let command = experiment.command()?;
    Some(match named(command).contains(MAX_STEPS) {
        true => Ok(vec![format!("{MAX_STEPS}={steps}")]),
        false => {
            let message = "the command does not know of it, so --steps and --smoke cannot shorten it";
            Err(Problem::new(MAX_STEPS, message).help(format!("pass it on in its words, as `{{{MAX_STEPS}}}`")))
        }
    })
}

/// What makes `steps` steps of an experiment that has `all`, as `section.key=value`; nothing where it is as short already.
pub fn shortened(experiment: &Experiment, all: u64, steps: u64) -> Vec<String> {
    if steps >= all {
        return Vec::new();
    }
    let mut set = vec![format!("{MAX_STEPS}={steps}")];
    let warmup = experiment.training.schedule.warmup_steps();
    let schedule = format!("training.schedule.{}.warmup_steps", experiment.training.schedule.kind());
    let mut scale = |key: &str, at: u64| {
        if at > 0 {
            set.push(format!("{key}={}", share(at, all, steps)));
        }
    };
    scale(&schedule, warmup);
    for (key, at) in experiment.pipeline.steps_of_phases() {
        scale(key, at);
    }
    // Every so many steps: at least once.
    let mut every = |key: &str, at: u64| {
        if at > 0 {
            set.push(format!("{key}={}", share(at, all, steps).max(1)));
        }
    };
    every("validation.every_steps", experiment.validation.every_steps);
    every("checkpoint.every_steps", experiment.checkpoint.every_steps);
    set
}

/// What makes its validations small.
pub fn small_validations(experiment: &Experiment) -> String {
    format!("validation.episodes={}", experiment.validation.episodes.min(SMOKE_EPISODES))
}

/// The name of its results.
pub fn name(experiment: &Experiment) -> String {
    let name: String = experiment.experiment.name.chars().take(NAME_MAX - NAME_END.len()).collect();
    format!("experiment.name=\"{name}{NAME_END}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_leave_something_before_and_after() {
        assert_eq!([share(0, 1000, 20), share(900, 1000, 20), share(20, 441, 12)], [0, 18, 1]);
        assert_eq!([share(999, 1000, 20), share(1, 1000, 20), share(5, 10, 1)], [19, 1, 0]);
    }
}
