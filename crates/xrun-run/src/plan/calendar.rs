//! Calendar of a plan: the steps after which to validate, save, clean up and sample. Pure functions.

use super::Plan;

/// Actions that are due after a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Due {
    /// A validation.
    pub validate: bool,
    /// A checkpoint.
    pub save: bool,
    /// A cleanup.
    pub clean: bool,
    /// A memory sample.
    pub sample: bool,
    /// The step is the last one of an epoch.
    pub epoch_ends: bool,
}

/// Actions due after step `step` (from 1) of the plan.
pub fn due(plan: &Plan, step: u64) -> Due {
    let every = |cadence: u64| cadence > 0 && step.is_multiple_of(cadence);
    let experiment = &plan.experiment;
    let last = step == plan.steps;
    let epoch_ends = step.is_multiple_of(plan.steps_per_epoch) || last;
    let validation = &experiment.validation;
    let by_epoch =
        epoch_ends && validation.every_epochs > 0 && plan.epoch_of(step).is_multiple_of(validation.every_epochs);
    let validates = validation.every_steps > 0 || validation.every_epochs > 0;
    Due {
        validate: every(validation.every_steps) || by_epoch || (last && validates),
        save: every(experiment.checkpoint.every_steps) || last,
        clean: every(experiment.cleanup.every_steps) || (epoch_ends && experiment.cleanup.after_epoch),
        sample: every(experiment.memory.every_steps),
        epoch_ends,
    }
}

/// Number of validations of the plan, including that of the untrained model.
pub fn validations(plan: &Plan) -> u64 {
    let validation = &plan.experiment.validation;
    let at_last = u64::from(plan.steps > 0 && (validation.every_steps > 0 || validation.every_epochs > 0));
    let before_last = multiples_until(plan, plan.steps.saturating_sub(1));
    before_last.saturating_add(u64::from(validation.at_start) + at_last)
}

/// Number of validations that are done after `step` steps; `validated`: also the one that is due after that step.
pub fn validations_until(plan: &Plan, step: u64, validated: bool) -> u64 {
    if step >= plan.steps && validated {
        return validations(plan);
    }
    let validation = &plan.experiment.validation;
    let at_start = u64::from(validation.at_start && (step > 0 || validated));
    let before = if validated { step } else { step.saturating_sub(1) };
    at_start + multiples_until(plan, before.min(plan.steps.saturating_sub(1)))
}

/// Number of checkpoints that are made until step `step`, without those of the best validations.
pub fn checkpoints_until(plan: &Plan, step: u64) -> u64 {
    match step >= plan.steps {
        true => checkpoints(plan),
        false => step.checked_div(plan.experiment.checkpoint.every_steps).unwrap_or_default(),
    }
}

/// Number of steps until `last` after which a cadence of validations is due.
fn multiples_until(plan: &Plan, last: u64) -> u64 {
    let validation = &plan.experiment.validation;
    let by_steps = u128::from(validation.every_steps);
    let by_epochs = u128::from(validation.every_epochs) * u128::from(plan.steps_per_epoch);
    // Computed in closed form: a plan may have billions of steps.
    let multiples = |cadence: u128| u128::from(last).checked_div(cadence).unwrap_or_default();
    let both = multiples(least_common_multiple(by_steps, by_epochs));
    u64::try_from(multiples(by_steps) + multiples(by_epochs) - both).unwrap_or(u64::MAX)
}

/// Number of checkpoints that the plan makes, without those of the best validations.
pub fn checkpoints(plan: &Plan) -> u64 {
    let before_last = plan.steps.saturating_sub(1);
    before_last.checked_div(plan.experiment.checkpoint.every_steps).unwrap_or_default() + 1
}

/// Least common multiple; 0 if either is 0.
fn least_common_multiple(a: u128, b: u128) -> u128 {
    let (mut divisor, mut rest) = (a, b);
    while rest > 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    a.checked_div(divisor).unwrap_or_default().saturating_mul(b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::plan_of;

    fn steps_where(plan: &Plan, which: impl Fn(Due) -> bool) -> Vec<u64> {
        (1..=plan.steps).filter(|&step| which(due(plan, step))).collect()
    }

    #[test]
    fn cadences_are_kept_and_everything_is_due_after_the_last_step() {
        let plan = plan_of(
            "[pipeline.dummy]\nsteps_per_epoch = 5\n[training]\nepochs = 3\nmax_steps = 12\n\
             [validation]\nevery_epochs = 2\n[checkpoint]\nevery_steps = 4\n[cleanup]\nevery_steps = 3\nafter_epoch = false\n",
        );
        assert_eq!(plan.steps, 12);
        assert_eq!(steps_where(&plan, |due| due.validate), [10, 12]);
        assert_eq!(validations(&plan), 3, "including the untrained model");
        let until = [(0, false), (0, true), (9, true), (10, false), (10, true), (11, true), (12, false), (12, true)];
        let done = until.map(|(step, validated)| validations_until(&plan, step, validated));
        assert_eq!(done, [0, 1, 1, 1, 2, 2, 2, 3]);
        assert_eq!([3, 4, 11, 12].map(|step| checkpoints_until(&plan, step)), [0, 1, 2, 3]);
        assert_eq!(checkpoints(&plan), 3);
        assert_eq!(steps_where(&plan, |due| due.save), [4, 8, 12]);
        assert_eq!(steps_where(&plan, |due| due.clean), [3, 6, 9, 12]);
        assert_eq!(steps_where(&plan, |due| due.epoch_ends), [5, 10, 12]);
    }

    #[test]
    fn a_cadence_of_zero_is_never_due() {
        let plan = plan_of(
            "[pipeline.dummy]\nsteps_per_epoch = 4\n[validation]\nevery_epochs = 0\n[cleanup]\nevery_steps = 0\n\
             after_epoch = false\n[memory]\nevery_steps = 0\n",
        );
        assert_eq!(steps_where(&plan, |due| due.validate || due.clean || due.sample), [0u64; 0]);
    }
}
