//! Pipeline `dummy`, which computes nothing and tests the runner.

pub mod settings;
pub mod task;

use crate::bounded::ledger::Ledger;
use crate::experiment::Experiment;
use crate::experiment::pipeline::{Opening, PipelineFacts, PipelineKind, Prepared};
use crate::settings::rung::Rung;
use crate::settings::sections::LIMITS_OF_KINDS;
use crate::settings::variant::Kind;
use crate::task::{Task, TaskError, TaskFacts};
use settings::Dummy;

impl PipelineKind for Dummy {
    fn kind() -> &'static Kind<dyn PipelineKind> {
        // All limits, so that tests can set them.
        const FACTS: PipelineFacts = PipelineFacts {
            limit_keys: &LIMITS_OF_KINDS,
            metrics: task::METRICS,
            rungs: &[Rung::Caches, Rung::MicroBatch],
            ..PipelineFacts::NONE
        };
        const { &Kind::<dyn PipelineKind>::new::<Self>("dummy", FACTS) }
    }

    fn prepare(&self, experiment: &Experiment, _: &Ledger) -> Result<(TaskFacts, Box<dyn Prepared>), TaskError> {
        Ok((task::facts(self, &experiment.limits), Box::new(self.clone())))
    }
}

impl Prepared for Dummy {
    fn open(self: Box<Self>, opening: Opening<'_>) -> Result<Box<dyn Task>, TaskError> {
        let Opening { experiment, ledger, .. } = opening;
        Ok(Box::new(task::DummyTask::new(*self, experiment.experiment.seed, &experiment.limits, ledger)))
    }
}
