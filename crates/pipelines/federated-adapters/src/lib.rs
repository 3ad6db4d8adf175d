//! Federated training of adapters from sound to the text conditioning of an image generator (docs/origins.md).

#![warn(missing_docs)]

pub mod buffers;
pub mod check;
pub mod clips;
#[cfg(feature = "train")]
pub mod encoder;
#[cfg(feature = "train")]
pub mod federation;
#[cfg(feature = "train")]
pub mod frozen_encoder;
pub mod leaks;
#[cfg(feature = "train")]
pub mod loss;
pub mod metrics;
#[cfg(feature = "train")]
pub mod network;
#[cfg(feature = "train")]
pub mod predict;
pub mod prepare;
#[cfg(feature = "train")]
pub mod pretraining;
pub mod retrieval;
pub mod rounds;
pub mod server;
pub mod settings;
pub mod sizes;
#[cfg(feature = "train")]
pub mod target_tensors;
pub mod trained_encoder;
#[cfg(feature = "train")]
pub mod training;
#[cfg(feature = "train")]
pub mod validation;

use settings::{AudioAdapters, FederatedAdapters};
use xrun_data::sound_clips::library::Library;
use xrun_training::declaration::*;

/// Name of the model: `[model.audio-adapters]`.
const MODEL: &str = "audio-adapters";

impl PipelineKind for FederatedAdapters {
    fn kind() -> &'static Kind<dyn PipelineKind> {
        const FACTS: PipelineFacts = PipelineFacts {
            models: &[MODEL],
            sample_type: Some(SampleType::of::<Library>()),
            metrics: metrics::METRICS,
            batch_size: Some(settings::BATCH_SIZE),
            leaks: leaks::LEAKS,
            limit_keys: &[MICRO_BATCH_SIZE],
            rungs: DATA_AND_MICRO_BATCH,
        };
        const { &Kind::<dyn PipelineKind>::new::<Self>("federated-adapters", FACTS) }
    }

    fn check(&self, experiment: &Experiment, problems: &mut Problems) {
        check::check(self, experiment, problems);
    }

    fn inspect(&self, experiment: &Experiment, data: InspectedData) -> Result<Inspection, DataError> {
        prepare::inspect(self, experiment, data).map(Inspection::from)
    }

    fn prepare(&self, experiment: &Experiment, ledger: &Ledger) -> Result<(TaskFacts, Box<dyn Prepared>), TaskError> {
        let (facts, prepared) = prepare::prepare(self, experiment, ledger)?;
        Ok((facts, Box::new(prepared)))
    }
}

pipeline_crate! {
    FederatedAdapters, prepare::Prepared,
    AudioAdapters: MODEL, None, check::check_model, [weights];
}
