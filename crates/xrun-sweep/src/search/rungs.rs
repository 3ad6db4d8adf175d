//! The rungs of method `asha`: steps after which runs stop until they are promoted.
//!
//! A rung is at a validation of the run: another validation would change its metrics.

use xrun_core::experiment::sweep::Sweep;
use xrun_core::problem::Problem;
use xrun_run::plan::Plan;
use xrun_run::plan::calendar::due;

const MIN_STEPS: &str = "sweep.asha.min_steps";

/// The rungs of a trial, which are those of the trials before it, if there are any.
///
/// # Errors
/// As [`rungs`] and [`check_rungs`].
pub fn rungs_of(sweep: &Sweep, plan: &Plan, before: &[u64]) -> Result<Vec<u64>, Problem> {
    if before.is_empty() {
        return rungs(sweep, plan);
    }
    check_rungs(before, plan)?;
    Ok(before.to_vec())
}

/// The rungs of a plan, ascending; the last is the end of the run.
///
/// # Errors
/// There is no validation before the end, or no trial would reach the end.
pub fn rungs(sweep: &Sweep, plan: &Plan) -> Result<Vec<u64>, Problem> {
    let (first, factor) = (sweep.asha.min_steps.unwrap_or(1), sweep.asha.reduction_factor);
    let mut rungs = Vec::new();
    let mut step = first;
    while let Some(rung) = validated_from(plan, step).filter(|rung| *rung < plan.steps) {
        // Two rungs may fall on one step.
        if rungs.last() != Some(&rung) {
            rungs.push(rung);
        }
        let Some(next) = step.checked_mul(factor) else { break };
        step = next;
    }
    if rungs.is_empty() {
        let message =
            format!("a run has {} steps, and there is no validation from step {first} to before its end", plan.steps);
        let help = "write fewer `min_steps`, or validate more often: `every_steps` in `[validation]`";
        return Err(Problem::new(MIN_STEPS, message).help(help).related("validation.every_steps"));
    }
    let needed = factor.saturating_pow(rungs.len() as u32);
    rungs.push(plan.steps);
    if sweep.trials.is_some_and(|trials| trials < needed) {
        let words: Vec<String> = rungs.iter().map(u64::to_string).collect();
        let message = format!(
            "one trial in {factor} is promoted from each rung ({} steps): none of {} trials would reach the end",
            words.join(", "),
            sweep.trials.unwrap_or_default()
        );
        let help = format!("write `trials = {needed}` or more, a smaller `reduction_factor`, or more `min_steps`");
        return Err(Problem::new("sweep.trials", message).help(help).related(MIN_STEPS));
    }
    Ok(rungs)
}

/// Checks that a trial has the same rungs as the first one.
///
/// # Errors
/// It has another number of steps, or is not validated at a rung.
pub fn check_rungs(rungs: &[u64], plan: &Plan) -> Result<(), Problem> {
    let last = rungs.last().copied().unwrap_or_default();
    if plan.steps != last {
        let message = format!("has {} steps, and the first trial has {last}: rungs are steps", plan.steps);
        return Err(
            Problem::new("sweep.method", message).help("give all trials the same number: `max_steps` in `[training]`")
        );
    }
    match rungs.iter().find(|rung| !due(plan, **rung).validate) {
        None => Ok(()),
        Some(rung) => {
            let message = format!("is not validated after step {rung}, a rung of the first trial");
            let help = "write `every_steps` in `[validation]`, and the same for all trials";
            Err(Problem::new("sweep.method", message).help(help).related("validation.every_steps"))
        }
    }
}

/// The first step from this one on after which the run is validated.
fn validated_from(plan: &Plan, step: u64) -> Option<u64> {
    let validation = &plan.experiment.validation;
    let by_epochs = validation.every_epochs.saturating_mul(plan.steps_per_epoch);
    // In closed form: a plan may have billions of steps.
    let next = |cadence: u64| step.div_ceil(cadence.max(1)).checked_mul(cadence).filter(|next| *next > 0);
    [validation.every_steps, by_epochs].into_iter().filter_map(next).min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use xrun_core::bounded::ledger::Ledger;
    use xrun_core::experiment::Experiment;

    /// The plan of a dummy experiment.
    fn plan_of(text: &str) -> Plan {
        let experiment: Experiment = toml::from_str(text).unwrap();
        let (facts, _) = experiment.prepare(&Ledger::default()).unwrap();
        xrun_run::plan::resolve(experiment, facts)
    }

    use xrun_core::experiment::sweep::{Asha, SweepMethod};

    fn rungs_with(validation: &str, min_steps: u64, reduction_factor: u64, samples: u64) -> Result<Vec<u64>, String> {
        let plan = plan_of(&format!(
            "[pipeline.dummy]\nsteps_per_epoch = 40\n[training]\nepochs = 4\n[validation]\n{validation}\n"
        ));
        let asha = Asha { min_steps: Some(min_steps), reduction_factor };
        let sweep = Sweep { method: SweepMethod::Asha, trials: Some(samples), asha, ..Sweep::default() };
        let rungs = rungs(&sweep, &plan).map_err(|problem| format!("{} {:?}", problem.message, problem.help))?;
        check_rungs(&rungs, &plan).map_err(|problem| problem.message)?;
        Ok(rungs)
    }

    #[test]
    fn rungs_are_where_the_run_is_validated() {
        assert_eq!(rungs_with("every_steps = 10\nevery_epochs = 0", 10, 4, 16).unwrap(), [10, 40, 160]);
        assert_eq!(rungs_with("every_steps = 25\nevery_epochs = 0", 10, 2, 99).unwrap(), [25, 50, 100, 160]);
        assert_eq!(rungs_with("every_epochs = 1", 5, 3, 9).unwrap(), [40, 80, 160]);
    }

    #[test]
    fn plans_without_rungs_are_refused() {
        let late = rungs_with("every_epochs = 1", 150, 4, 16).unwrap_err();
        assert!(late.contains("a run has 160 steps, and there is no validation from step 150"), "{late}");
        let few = rungs_with("every_steps = 10\nevery_epochs = 0", 10, 4, 15).unwrap_err();
        assert!(few.contains("none of 15 trials would reach the end") && few.contains("trials = 16"), "{few}");
    }
}
