//! Few-shot reference detection in video frames, as in docs/origins.md.

#![warn(missing_docs)]

pub mod assignment;
pub mod batch;
pub mod buffers;
pub mod check;
pub mod coco_files;
pub mod decode;
pub mod episode;
pub mod leaks;
#[cfg(feature = "train")]
pub mod loss;
#[cfg(feature = "train")]
pub mod network;
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

use settings::{FewshotDetection, ReferenceDetector};
use xrun_data::boxes::library::Library;
use xrun_data::boxes::summary::BoxSummary;
use xrun_data::reading::decoding;
use xrun_training::declaration::*;

/// Name of the model: `[model.reference-detector]`.
const MODEL: &str = "reference-detector";

impl PipelineKind for FewshotDetection {
    fn kind() -> &'static Kind<dyn PipelineKind> {
        const FACTS: PipelineFacts = PipelineFacts {
            models: &[MODEL],
            sample_type: Some(SampleType::of::<Library>()),
            metrics: prepare::METRICS,
            leaks: leaks::LEAKS,
            limit_keys: &[MICRO_BATCH_SIZE],
            rungs: DATA_AND_MICRO_BATCH,
            ..PipelineFacts::NONE
        };
        const { &Kind::<dyn PipelineKind>::new::<Self>("fewshot-detection", FACTS) }
    }

    fn check(&self, experiment: &Experiment, problems: &mut Problems) {
        check::check(self, experiment, problems);
    }

    fn inspect(&self, experiment: &Experiment, data: InspectedData) -> Result<Inspection, DataError> {
        let BoxSummary { drawn, largest, lacking } = data.summary::<Library>()?;
        lacking.map_or(Ok(()), Err)?;
        decoding::fits(largest.as_ref(), &experiment.limits)?;
        if drawn.held_out.count > 0 {
            episode::check_class_counts(drawn.train.count, Some(drawn.held_out.count), self)?;
            return Ok(prepare::lowered_settings(self, &drawn).into());
        }
        // The split into images to train on and to validate on depends on every image, which the summary does not have.
        let (episodes, drawn) = prepare::draw_from(data.open(experiment)?, self, experiment)?;
        let notes = prepare::fixed_classes_note(&episodes, experiment).into_iter().collect();
        Ok(Inspection { notes, lowered: prepare::lowered_settings(self, &drawn), ..Inspection::default() })
    }

    fn prepare(&self, experiment: &Experiment, ledger: &Ledger) -> Result<(TaskFacts, Box<dyn Prepared>), TaskError> {
        let (facts, prepared) = prepare::prepare(self, experiment, ledger)?;
        Ok((facts, Box::new(prepared)))
    }
}

pipeline_crate! {
    FewshotDetection, prepare::Prepared,
    ReferenceDetector: MODEL, Optional, check::check_model, [];
}
