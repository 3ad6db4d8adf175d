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
use settings::{ImageClassification, LinearClassifier, ResNet};
use xrun_data::boxes::library::Library;
use xrun_data::reading::decoding;
use xrun_data::transform;
use xrun_training::backbone::{self, Architecture, Layers};
use xrun_training::declaration::*;
use xrun_training::model_checks;

/// Names of the models: `[model.resnet]`, and `[model.linear-classifier]` with a backbone.
const MODELS: [&str; 2] = ["resnet", "linear-classifier"];

impl PipelineKind for ImageClassification {
    fn kind() -> &'static Kind<dyn PipelineKind> {
        const FACTS: PipelineFacts = PipelineFacts {
            models: &MODELS,
            sample_type: Some(SampleType::of::<Library>()),
            metrics: prepare::METRICS,
            batch_size: Some(prepare::BATCH_SIZE),
            rungs: DATA_AND_MICRO_BATCH,
            ..PipelineFacts::NONE
        };
        const { &Kind::<dyn PipelineKind>::new::<Self>("image-classification", FACTS) }
    }

    fn pytorch_module(&self, experiment: &Experiment) -> Option<PytorchModule> {
        let size_and_padding = |mut config: serde_json::Value| {
            config["image_size"] = self.image_size.into();
            config["padding"] = transform::PADDING.into();
            config
        };
        if let Some(backbone) = &experiment.backbone {
            let architecture = Architecture::of(backbone, self.image_size).ok()?;
            let source = match architecture.layers {
                Layers::Convolutions(_) => concat!(include_str!("backbone.py"), include_str!("predict.py")),
                Layers::Transformer(_) => concat!(include_str!("vit.py"), include_str!("predict.py")),
            };
            return Some(PytorchModule { source, config: size_and_padding(serde_json::to_value(architecture).ok()?) });
        }
        let model: &ResNet = experiment.model_settings().ok()?;
        let config = serde_json::json!({
            "channels": model.channels,
            "blocks": model.blocks,
            "norm_groups": model.norm_groups,
            "mean": transform::PIXEL_MEAN,
            "deviation": transform::PIXEL_DEVIATION,
        });
        Some(PytorchModule {
            source: concat!(include_str!("pytorch.py"), include_str!("predict.py")),
            config: size_and_padding(config),
        })
    }

    fn check(&self, experiment: &Experiment, problems: &mut Problems) {
        backbone::check(experiment, "pipeline.image-classification.image_size", self.image_size, problems);
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

fn check_resnet(model: &ResNet, problems: &mut Problems) {
    model_checks::groups("model.resnet", "channels", &model.channels, model.norm_groups, problems);
}

pipeline_crate! {
    ImageClassification, prepare::Prepared,
    ResNet: MODELS[0], None, check_resnet, [];
    LinearClassifier: MODELS[1], Required, |_, _| {}, [];
}
