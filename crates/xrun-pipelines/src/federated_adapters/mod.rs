//! Federated training of adapters from sound to the text conditioning of an image generator (docs/origins.md).

#[cfg(feature = "train")]
pub mod adapters;
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

use settings::{Model, Settings};
use xrun_core::bounded::ledger::Ledger;
use xrun_core::dataset::error::DataError;
use xrun_core::dataset::open_dataset::SampleType;
use xrun_core::device::DeviceKind;
use xrun_core::experiment::Experiment;
use xrun_core::experiment::inspect::{InspectedData, Inspection};
use xrun_core::experiment::leaks::Leak;
use xrun_core::experiment::pipeline::{ModelKind, PipelineKind};
use xrun_core::problem::Problems;
use xrun_core::settings::sections::MICRO_BATCH_SIZE;
use xrun_core::task::{Metric, Task, TaskError, TaskFacts};
use xrun_data::sound_clips::library::Library;

#[cfg(not(feature = "train"))]
use super::without_burn::open;
#[cfg(feature = "train")]
use leaks::callback::open;

/// Pipeline `[pipeline.federated-adapters]`.
#[derive(Debug)]
pub struct FederatedAdapters;

impl PipelineKind for FederatedAdapters {
    const NAME: &'static str = "federated-adapters";
    const MODELS: &'static [&'static str] = &[AudioAdapters::NAME];
    const SAMPLE_TYPE: Option<SampleType> = Some(SampleType::of::<Library>());
    const METRICS: &'static [Metric] = metrics::METRICS;
    const BATCH_SIZE: Option<usize> = Some(settings::BATCH_SIZE);
    const LEAKS: &'static [&'static Leak] = leaks::LEAKS;
    const LIMIT_KEYS: &'static [&'static str] = &[MICRO_BATCH_SIZE];
    type Settings = Settings;
    type Prepared = prepare::Prepared;

    fn check(settings: &Settings, experiment: &Experiment, problems: &mut Problems) {
        check::check(settings, experiment, problems);
    }

    fn inspect(settings: &Settings, experiment: &Experiment, seen: InspectedData) -> Result<Inspection, DataError> {
        prepare::inspect(settings, experiment, seen).map(Inspection::from)
    }

    fn prepare(
        settings: &Settings,
        experiment: &Experiment,
        ledger: &Ledger,
    ) -> Result<(TaskFacts, Self::Prepared), TaskError> {
        let model = experiment.model_settings()?;
        let (mut facts, prepared) = prepare::prepare(settings, model, experiment, ledger)?;
        leaks::plan(&mut facts, &prepared, experiment);
        Ok((facts, prepared))
    }

    fn open(
        prepared: Self::Prepared,
        experiment: &Experiment,
        device: DeviceKind,
        ledger: &Ledger,
        first_step: u64,
    ) -> Result<Box<dyn Task>, TaskError> {
        open(prepared, experiment, device, ledger, first_step)
    }
}

/// Model `[model.audio-adapters]`.
#[derive(Debug)]
pub struct AudioAdapters;

impl ModelKind for AudioAdapters {
    const NAME: &'static str = "audio-adapters";
    type Settings = Model;

    fn check(settings: &Model, problems: &mut Problems) {
        check::check_model(settings, problems);
    }

    fn paths(settings: &mut Model) -> Vec<(&'static str, &mut Option<String>)> {
        vec![("weights", &mut settings.weights)]
    }
}
