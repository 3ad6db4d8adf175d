//! Image classification.
//!
//! The data is a directory for each class (`[dataset.image-folder]`), or any data set of images with boxes, where the class of an
//! image is that of its largest box.

#![warn(missing_docs)]

pub mod batch;
pub mod labels;
#[cfg(feature = "train")]
pub mod network;
#[cfg(feature = "train")]
pub mod predict;
pub mod prepare;
pub mod settings;
#[cfg(feature = "train")]
pub mod training;

use labels::Labels;
use settings::{ImageClassification, ResNet};
use xrun_data::boxes::library::Library;
use xrun_data::reading::decoding;
use xrun_data::transform;
use xrun_training::declaration::*;
use xrun_training::model_checks;

/// Name of the model: `[model.resnet]`.
const MODEL: &str = "resnet";

impl PipelineKind for ImageClassification {
    fn kind() -> &'static Kind<dyn PipelineKind> {
        const FACTS: PipelineFacts = PipelineFacts {
            models: &[MODEL],
            sample_type: Some(SampleType::of::<Library>()),
            metrics: prepare::METRICS,
            batch_size: Some(prepare::BATCH_SIZE),
            ..PipelineFacts::NONE
        };
        const { &Kind::<dyn PipelineKind>::new::<Self>("image-classification", FACTS) }
    }

    fn pytorch_module(&self, experiment: &Experiment) -> Option<PytorchModule> {
        let model: &ResNet = experiment.model_settings().ok()?;
        let config = serde_json::json!({
            "channels": model.channels,
            "blocks": model.blocks,
            "norm_groups": model.norm_groups,
            "image_size": self.image_size,
            "mean": transform::PIXEL_MEAN,
            "deviation": transform::PIXEL_DEVIATION,
            "padding": transform::PADDING,
        });
        Some(PytorchModule { source: include_str!("pytorch.py"), config })
    }

    fn inspect(&self, experiment: &Experiment, data: InspectedData) -> Result<Inspection, DataError> {
        decoding::fits(data.summary::<Library>()?.largest.as_ref(), &experiment.limits)?;
        // The split depends on every image, which the summary does not have.
        let library: Library = data.open(experiment)?;
        let labels = Labels::new(&library, self.validation_fraction, experiment.experiment.seed)?;
        let (_, lowered) = prepare::batch_size(experiment, &labels);
        Ok(lowered.into_iter().collect::<Vec<_>>().into())
    }

    fn prepare(&self, experiment: &Experiment, ledger: &Ledger) -> Result<(TaskFacts, Box<dyn Prepared>), TaskError> {
        let (facts, prepared) = prepare::prepare(self, experiment, ledger)?;
        Ok((facts, Box::new(prepared)))
    }
}

pipeline_crate!(ImageClassification, ResNet, prepare::Prepared);

impl ModelKind for ResNet {
    fn kind() -> &'static Kind<dyn ModelKind> {
        const { &Kind::<dyn ModelKind>::new::<Self>(MODEL, ()) }
    }

    fn check(&self, problems: &mut Problems) {
        model_checks::groups("model.resnet", "channels", &self.channels, self.norm_groups, problems);
    }
}
