//! Fine-tuning of a vision-language model that answers in JSON, with a loss that can mask the structure of JSON.

pub mod batch;
pub mod buffers;
pub mod captions;
pub mod check;
pub mod json_bytes;
pub mod leaks;
pub mod metrics;
#[cfg(feature = "train")]
pub mod network;
#[cfg(feature = "train")]
pub mod predict;
pub mod prepare;
#[cfg(test)]
mod real_tests;
pub mod selective;
pub mod settings;
pub mod sizes;
pub mod token_text;
#[cfg(feature = "train")]
pub mod training;
#[cfg(feature = "train")]
pub mod validation;
#[cfg(feature = "train")]
pub mod weights;

use selective::Schedule;
use settings::{Model, Settings};
use xrun_core::bounded::ledger::Ledger;
use xrun_core::dataset::error::{DataError, InvalidItems};
use xrun_core::dataset::open_dataset::SampleType;
use xrun_core::device::DeviceKind;
use xrun_core::experiment::Experiment;
use xrun_core::experiment::inspect::{InspectedData, Inspection};
use xrun_core::experiment::leaks::Leak;
use xrun_core::experiment::pipeline::{ModelKind, PipelineKind};
use xrun_core::problem::Problems;
use xrun_core::settings::sections::MICRO_BATCH_SIZE;
use xrun_core::task::{Metric, Task, TaskError, TaskFacts};
use xrun_data::image_text::ExampleCounts;
use xrun_data::image_text::library::Library;

#[cfg(not(feature = "train"))]
use super::without_burn::open;
#[cfg(feature = "train")]
use leaks::callback::open;

/// Pipeline `[pipeline.vision-language]`.
#[derive(Debug)]
pub struct VisionLanguage;

impl PipelineKind for VisionLanguage {
    const NAME: &'static str = "vision-language";
    const MODELS: &'static [&'static str] = &[VisionLanguageModel::NAME];
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

    fn steps_of_stages(settings: &Settings) -> Vec<(&'static str, u64)> {
        // Turns of `alternating` are short, and are not stages.
        let after = (settings.selective.schedule == Schedule::After).then_some(settings.selective.after_step);
        after.map(|step| ("pipeline.vision-language.selective.after_step", step)).into_iter().collect()
    }

    fn inspect(settings: &Settings, experiment: &Experiment, seen: InspectedData) -> Result<Inspection, DataError> {
        let mut seen: ExampleCounts = seen.summary()?;
        let mut skipped = InvalidItems::default();
        let options = experiment.loader_settings::<Library>();
        if let (Ok(model), Some(options)) = (experiment.model_settings::<Model>(), options) {
            skipped = seen.fit(settings.text_tokens_max(&model.shape(), options.image_size), options.on_invalid)?;
        }
        Ok(Inspection { skipped, lowered: prepare::lowered_settings(experiment, &seen), ..Inspection::default() })
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

/// Model `[model.vision-language]`.
#[derive(Debug)]
pub struct VisionLanguageModel;

impl ModelKind for VisionLanguageModel {
    const NAME: &'static str = "vision-language";
    type Settings = Model;

    fn check(settings: &Model, problems: &mut Problems) {
        check::check_model(settings, problems);
    }

    fn paths(settings: &mut Model) -> Vec<(&'static str, &mut Option<String>)> {
        vec![("vision_weights", &mut settings.vision_weights), ("language_weights", &mut settings.language_weights)]
    }
}
