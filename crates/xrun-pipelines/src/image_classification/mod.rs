//! Image classification.
//!
//! The data is a directory for each class (`[dataset.image-folder]`), or any data set of images with boxes, where the class of an
//! image is that of its largest box.

pub mod batch;
#[cfg(feature = "train")]
pub mod classifier;
pub mod labels;
#[cfg(feature = "train")]
pub mod predict;
pub mod prepare;
#[cfg(feature = "train")]
pub mod resnet;
pub mod settings;

use labels::Labels;
use settings::{Model, Settings};
use xrun_core::bounded::ledger::Ledger;
use xrun_core::dataset::error::DataError;
use xrun_core::dataset::open_dataset::SampleType;
use xrun_core::device::DeviceKind;
use xrun_core::experiment::Experiment;
use xrun_core::experiment::inspect::{InspectedData, Inspection};
use xrun_core::experiment::pipeline::{ModelKind, PipelineKind, PytorchModule};
use xrun_core::problem::{Problem, Problems};
use xrun_core::task::{Metric, Task, TaskError, TaskFacts};
use xrun_data::boxes::library::{BoxSummary, Library};
use xrun_data::reading::decoding;
use xrun_data::transform;

#[cfg(not(feature = "train"))]
use super::without_burn::open;
#[cfg(feature = "train")]
use classifier::open;

/// `[pipeline.image-classification]`.
#[derive(Debug)]
pub struct ImageClassification;

impl PipelineKind for ImageClassification {
    const NAME: &'static str = "image-classification";
    const MODELS: &'static [&'static str] = &[ResNet::NAME];
    const SAMPLE_TYPE: Option<SampleType> = Some(SampleType::of::<Library>());
    const METRICS: &'static [Metric] = prepare::METRICS;
    const BATCH_SIZE: Option<usize> = Some(prepare::BATCH_SIZE);
    type Settings = Settings;
    type Prepared = prepare::Prepared;

    fn pytorch_module(settings: &Settings, experiment: &Experiment) -> Option<PytorchModule> {
        let model: &Model = experiment.model_settings().ok()?;
        let config = serde_json::json!({
            "channels": model.channels,
            "blocks": model.blocks,
            "norm_groups": model.norm_groups,
            "image_size": settings.image_size,
            "mean": transform::PIXEL_MEAN,
            "deviation": transform::PIXEL_DEVIATION,
            "padding": transform::PADDING,
        });
        Some(PytorchModule { source: include_str!("pytorch.py"), config })
    }

    fn inspect(settings: &Settings, experiment: &Experiment, seen: InspectedData) -> Result<Inspection, DataError> {
        decoding::fits(seen.summary::<BoxSummary>()?.largest.as_ref(), &experiment.limits)?;
        // The split depends on every image, which the summary does not have.
        let library: Library = seen.open(experiment)?;
        let labels = Labels::new(&library, settings.validation_fraction, experiment.experiment.seed)?;
        let (_, lowered) = prepare::batch_size(experiment, &labels);
        Ok(lowered.into_iter().collect::<Vec<_>>().into())
    }

    fn prepare(
        settings: &Settings,
        experiment: &Experiment,
        ledger: &Ledger,
    ) -> Result<(TaskFacts, Self::Prepared), TaskError> {
        prepare::prepare(settings, experiment, ledger)
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

/// `[model.resnet]`.
#[derive(Debug)]
pub struct ResNet;

impl ModelKind for ResNet {
    const NAME: &'static str = "resnet";
    type Settings = Model;

    fn check(settings: &Model, problems: &mut Problems) {
        let groups = settings.norm_groups;
        if let Some(width) = settings.channels.iter().find(|width| groups > 0 && !width.is_multiple_of(groups)) {
            let message = format!("{width} channels cannot be divided into {groups} groups of equal size");
            let problem = Problem::new("model.resnet.channels", message).related("model.resnet.norm_groups");
            problems.add(problem.help(format!("for example {}", width.next_multiple_of(groups))));
        }
    }
}
