//! Few-shot reference detection in video frames, as in docs/origins.md.

pub mod assignment;
pub mod batch;
pub mod buffers;
pub mod check;
pub mod coco_files;
pub mod decode;
pub mod episode;
pub mod leaks;
#[cfg(feature = "train")]
pub mod losses;
#[cfg(feature = "train")]
pub mod model;
pub mod overlay;
#[cfg(feature = "train")]
pub mod predict;
pub mod prepare;
pub mod scoring;
pub mod settings;
pub mod sizes;
pub mod step_kind;
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
use xrun_data::boxes::library::{BoxSummary, Library};
use xrun_data::reading::decoding;

#[cfg(not(feature = "train"))]
use super::without_burn::open;
#[cfg(feature = "train")]
use leaks::callback::open;

/// `[pipeline.fewshot-detection]`.
#[derive(Debug)]
pub struct FewshotDetection;

impl PipelineKind for FewshotDetection {
    const NAME: &'static str = "fewshot-detection";
    const MODELS: &'static [&'static str] = &[ReferenceDetector::NAME];
    const SAMPLE_TYPE: Option<SampleType> = Some(SampleType::of::<Library>());
    const METRICS: &'static [Metric] = prepare::METRICS;
    const LEAKS: &'static [&'static Leak] = leaks::LEAKS;
    const LIMIT_KEYS: &'static [&'static str] = &[MICRO_BATCH_SIZE];
    type Settings = Settings;
    type Prepared = prepare::Prepared;

    fn check(settings: &Settings, experiment: &Experiment, problems: &mut Problems) {
        check::check(settings, experiment, problems);
    }

    fn inspect(settings: &Settings, experiment: &Experiment, seen: InspectedData) -> Result<Inspection, DataError> {
        let BoxSummary { drawn, largest, lacking } = seen.summary()?;
        lacking.map_or(Ok(()), Err)?;
        decoding::fits(largest.as_ref(), &experiment.limits)?;
        episode::check_class_counts(drawn.train.count, drawn.held_out.count, settings)?;
        Ok(prepare::lowered_settings(settings, &drawn).into())
    }

    fn prepare(
        settings: &Settings,
        experiment: &Experiment,
        ledger: &Ledger,
    ) -> Result<(TaskFacts, Self::Prepared), TaskError> {
        let (mut facts, mut prepared) = prepare::prepare(settings, experiment.model_settings()?, experiment, ledger)?;
        leaks::inject(&mut facts, &mut prepared, experiment, ledger);
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

/// `[model.reference-detector]`.
#[derive(Debug)]
pub struct ReferenceDetector;

impl ModelKind for ReferenceDetector {
    const NAME: &'static str = "reference-detector";
    type Settings = Model;

    fn check(settings: &Model, problems: &mut Problems) {
        check::check_model(settings, problems);
    }
}
