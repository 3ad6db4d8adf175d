//! Pipeline `dummy`, which computes nothing and tests the runner.

pub mod settings;
pub mod task;

use crate::bounded::ledger::Ledger;
use crate::device::DeviceKind;
use crate::experiment::Experiment;
use crate::experiment::pipeline::PipelineKind;
use crate::settings::sections::LIMITS_OF_KINDS;
use crate::task::{Metric, Task, TaskError, TaskFacts};
use settings::Settings;

/// `[pipeline.dummy]`.
#[derive(Debug)]
pub struct Dummy;

impl PipelineKind for Dummy {
    const NAME: &'static str = "dummy";
    // All limits, so that tests can set them.
    const LIMIT_KEYS: &'static [&'static str] = &LIMITS_OF_KINDS;
    const METRICS: &'static [Metric] = task::METRICS;
    type Settings = Settings;
    type Prepared = Settings;

    fn prepare(settings: &Settings, _: &Experiment, _: &Ledger) -> Result<(TaskFacts, Settings), TaskError> {
        Ok((task::facts(settings), settings.clone()))
    }

    fn open(
        settings: Settings,
        experiment: &Experiment,
        _: DeviceKind,
        ledger: &Ledger,
        _: u64,
    ) -> Result<Box<dyn Task>, TaskError> {
        Ok(Box::new(task::Dummy::new(settings, experiment.experiment.seed, ledger)))
    }
}
