//! Quantisation-aware training of a language model with switchable precision and LoRA (docs/origins.md).

pub mod batch;
pub mod buffers;
pub mod check;
#[cfg(feature = "train")]
pub mod context;
#[cfg(feature = "train")]
pub mod export;
#[cfg(feature = "train")]
pub mod gpt2;
#[cfg(all(test, feature = "train"))]
mod in_memory_tests;
pub mod leaks;
#[cfg(feature = "train")]
pub mod linear;
pub mod precision;
#[cfg(feature = "train")]
pub mod predict;
pub mod prepare;
#[cfg(feature = "train")]
pub mod ranges;
pub mod ranges_file;
#[cfg(feature = "train")]
pub mod recompute;
pub mod settings;
pub mod sizes;
#[cfg(feature = "train")]
pub mod training;
#[cfg(feature = "train")]
pub mod validation;
#[cfg(feature = "train")]
pub mod weights;
#[cfg(feature = "train")]
pub mod windowed_answers;

use settings::{Model, Settings};
use xrun_core::bounded::ledger::Ledger;
use xrun_core::dataset::error::DataError;
use xrun_core::dataset::open_dataset::SampleType;
use xrun_core::device::DeviceKind;
use xrun_core::experiment::Experiment;
use xrun_core::experiment::inspect::{InspectedData, Inspection};
use xrun_core::experiment::leaks::Leak;
use xrun_core::experiment::pipeline::{ModelKind, PipelineKind, PytorchModule};
use xrun_core::problem::Problems;
use xrun_core::task::{Metric, Task, TaskError, TaskFacts};
use xrun_data::question_answers::QuestionCounts;
use xrun_data::question_answers::corpus::Corpus;

#[cfg(not(feature = "train"))]
use super::without_burn::open;
#[cfg(feature = "train")]
use leaks::callback::open;

/// Pipeline `[pipeline.qat-language-model]`.
#[derive(Debug)]
pub struct QatLanguageModel;

impl PipelineKind for QatLanguageModel {
    const NAME: &'static str = "qat-language-model";
    const MODELS: &'static [&'static str] = &[Gpt2::NAME];
    const SAMPLE_TYPE: Option<SampleType> = Some(SampleType::of::<Corpus>());
    const METRICS: &'static [Metric] = precision::METRICS;
    const BATCH_SIZE: Option<usize> = Some(settings::BATCH_SIZE);
    const LEAKS: &'static [&'static Leak] = leaks::LEAKS;
    type Settings = Settings;
    type Prepared = prepare::Prepared;

    fn check(settings: &Settings, experiment: &Experiment, problems: &mut Problems) {
        check::check(settings, experiment.model_settings().ok(), problems);
        check::check_steps(settings, &experiment.training, problems);
        check::check_micro_batches(settings, experiment, problems);
        check::check_leaks(&experiment.leaks, settings, problems);
        check::check_weights(experiment, problems);
    }

    fn steps_of_stages(settings: &Settings) -> Vec<(&'static str, u64)> {
        vec![("pipeline.qat-language-model.pretraining_steps", settings.pretraining_steps)]
    }

    fn pytorch_module(settings: &Settings, experiment: &Experiment) -> Option<PytorchModule> {
        let model: &Model = experiment.model_settings().ok()?;
        let config = serde_json::json!({
            "heads": model.shape().heads,
            // That of the widest precision.
            "lora_index": 0,
            "lora_scale": settings.lora_alpha / settings.lora_rank.max(1) as f64,
        });
        Some(PytorchModule { source: include_str!("pytorch.py"), config })
    }

    fn inspect(settings: &Settings, experiment: &Experiment, seen: InspectedData) -> Result<Inspection, DataError> {
        let QuestionCounts { train, held_out } = seen.summary()?;
        let batches = train.div_ceil(settings::batch_size(&experiment.training) as u64);
        prepare::check_pretraining(settings, &experiment.training, batches)?;
        Ok(prepare::lowered_settings(settings, experiment, [train, held_out]).into())
    }

    fn prepare(
        settings: &Settings,
        experiment: &Experiment,
        ledger: &Ledger,
    ) -> Result<(TaskFacts, Self::Prepared), TaskError> {
        let model = experiment.model_settings()?;
        let (mut facts, prepared) = prepare::prepare(settings, model, experiment, ledger)?;
        leaks::plan(&mut facts, settings, experiment);
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

/// Model `[model.gpt2]`.
#[derive(Debug)]
pub struct Gpt2;

impl ModelKind for Gpt2 {
    const NAME: &'static str = "gpt2";
    type Settings = Model;

    fn check(settings: &Model, problems: &mut Problems) {
        check::check_model(settings, problems);
    }

    fn paths(settings: &mut Model) -> Vec<(&'static str, &mut Option<String>)> {
        vec![("weights", &mut settings.weights)]
    }
}
