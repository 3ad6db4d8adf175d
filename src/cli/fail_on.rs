//! Option `--fail-on`: verdicts on memory and on training that fail a run.

use clap::ValueEnum;
use clap::builder::PossibleValue;

use super::choice::possible_values;
use crate::settings::sections::{FailOn, TrainingFailOn};

/// Mildest verdict on memory, or on training, that fails a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailingVerdict {
    /// Neither.
    Never,
    /// Verdict on memory.
    Memory(FailOn),
    /// Verdict on training.
    Training(TrainingFailOn),
}

impl ValueEnum for FailingVerdict {
    fn value_variants<'a>() -> &'a [Self] {
        &[
            Self::Never,
            Self::Memory(FailOn::Growing),
            Self::Memory(FailOn::Retained),
            Self::Memory(FailOn::Slowing),
            Self::Memory(FailOn::Suspect),
            Self::Training(TrainingFailOn::Diverged),
            Self::Training(TrainingFailOn::NoProgress),
            Self::Training(TrainingFailOn::NoBetterThanChance),
            Self::Training(TrainingFailOn::Overfitting),
        ]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let (values, name) = match self {
            Self::Never => (possible_values(FailOn::as_str), FailOn::Never.as_str()),
            Self::Memory(on) => (possible_values(FailOn::as_str), on.as_str()),
            Self::Training(on) => (possible_values(TrainingFailOn::as_str), on.as_str()),
        };
        values.into_iter().find(|value| value.get_name() == name)
    }
}

/// Verdicts of all options together; a later option replaces an earlier one on the same subject.
pub fn both(all: &[FailingVerdict]) -> (Option<FailOn>, Option<TrainingFailOn>) {
    let (mut memory, mut training) = (None, None);
    for one in all {
        match one {
            FailingVerdict::Never => (memory, training) = (Some(FailOn::Never), Some(TrainingFailOn::Never)),
            FailingVerdict::Memory(on) => memory = Some(*on),
            FailingVerdict::Training(on) => training = Some(*on),
        }
    }
    (memory, training)
}

/// Overrides of an experiment.
pub fn overrides(all: &[FailingVerdict]) -> impl Iterator<Item = String> + use<> {
    let (memory, training) = both(all);
    let memory = memory.map(|on| format!("--fail-on={}", on.as_str()));
    memory.into_iter().chain(training.map(|on| format!("training.fail_on={:?}", on.as_str())))
}
