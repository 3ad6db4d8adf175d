//! Validations of a run of any length, in bounded memory.

/// Maximum number of validations that are kept; beyond it every second one is dropped.
const VALIDATIONS_MAX: usize = 256;

/// Values of one validation that a verdict needs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Validation {
    /// Number of steps done before it.
    pub step: u64,
    /// Metric that selects the best checkpoint.
    pub metric: Option<f64>,
    /// Half width of its 95 % interval.
    pub half_width: Option<f64>,
    /// Number of examples that it was measured on.
    pub examples: Option<u64>,
    /// Baseline of that metric.
    pub baseline: Option<f64>,
    /// Half width of the 95 % interval of the baseline.
    pub baseline_half_width: Option<f64>,
    /// Loss on held-out data.
    pub held_out: Option<f64>,
}

/// Validations in ascending order of steps.
#[derive(Clone, Debug)]
pub struct Validations {
    /// Validation before the first step; in a fork that is not step 1, and the model is not untrained.
    pub untrained: Option<Validation>,
    /// Kept validations after a step; the newest is the last.
    pub kept: Vec<Validation>,
    /// Number of validations after a step.
    pub count: u64,
    every: u64,
}

impl Default for Validations {
    fn default() -> Self {
        // All at once: growth of its own would be in the heap that a run is judged by.
        Self { untrained: None, kept: Vec::with_capacity(VALIDATIONS_MAX), count: 0, every: 1 }
    }
}

impl Validations {
    /// Takes the only validation, if it was just before the first step, for that before the training: a fork begins trained.
    pub fn begin(&mut self, first_step: u64) {
        if self.kept.first().is_some_and(|first| self.count == 1 && first.step + 1 == first_step) {
            (self.untrained, self.count) = (self.kept.pop(), 0);
        }
    }

    /// Adds a validation.
    pub fn add(&mut self, validation: Validation) {
        if validation.step == 0 {
            self.untrained = Some(validation);
            return;
        }
        // The newest one is always kept, for as long as it is the newest.
        if self.count > 0 && !(self.count - 1).is_multiple_of(self.every) {
            self.kept.pop();
        }
        if self.kept.len() == VALIDATIONS_MAX {
            let mut keep = false;
            self.kept.retain(|_| {
                keep = !keep;
                keep
            });
            self.every *= 2;
        }
        self.kept.push(validation);
        self.count += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn validations_are_evenly_spaced_and_end_with_the_newest() {
        let mut all = Validations::default();
        for step in 0..5_000 {
            all.add(Validation { step, ..Validation::default() });
            assert!(all.kept.len() <= VALIDATIONS_MAX);
            assert_eq!(all.kept.last().map_or(0, |last| last.step), step);
        }
        let steps: Vec<u64> = all.kept.iter().map(|one| one.step).collect();
        let spacing = steps[1] - steps[0];
        assert!(steps.len() > VALIDATIONS_MAX / 3, "{}", steps.len());
        assert!(steps[..steps.len() - 1].windows(2).all(|pair| pair[1] - pair[0] == spacing), "{steps:?}");
    }

    #[test]
    fn a_validation_just_before_the_first_step_is_of_the_untrained_model() {
        for (validated, first_step, is_first) in [(20, 21, true), (20, 22, false), (0, 1, true)] {
            let mut all = Validations::default();
            all.add(Validation { step: validated, ..Validation::default() });
            all.begin(first_step);
            assert_eq!((all.untrained.is_some(), all.count == 0), (is_first, is_first));
        }
    }
}
