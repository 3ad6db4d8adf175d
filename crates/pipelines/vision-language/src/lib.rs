//! Fine-tuning of a vision-language model that answers in JSON, with a loss that can mask the structure of JSON.

#![warn(missing_docs)]

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
#[path = "../../../../tests/real_data.rs"]
mod real_data;
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

use selective::MaskSchedule;
use settings::{VisionLanguage, VisionLanguageModel};
use xrun_data::image_text::library::Library;
use xrun_training::backbone::Pretrained;
use xrun_training::declaration::*;

/// Name of the model: `[model.vision-language]`.
const MODEL: &str = "vision-language";

impl PipelineKind for VisionLanguage {
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
        const { &Kind::<dyn PipelineKind>::new::<Self>("vision-language", FACTS) }
    }

    fn check(&self, experiment: &Experiment, problems: &mut Problems) {
        check::check(self, experiment, problems);
    }

    fn steps_of_stages(&self) -> Vec<(&'static str, u64)> {
        // Turns of `alternating` are short, and are not stages.
        let after = (self.selective.schedule == MaskSchedule::After).then_some(self.selective.after_step);
        after.map(|step| ("pipeline.vision-language.selective.after_step", step)).into_iter().collect()
    }

    fn inspect(&self, experiment: &Experiment, data: InspectedData) -> Result<Inspection, DataError> {
        let mut seen = data.summary::<Library>()?;
        let mut skipped = InvalidItems::default();
        let options = experiment.loader_settings::<Library>();
        if let (Ok(model), Some(options)) = (experiment.model_settings::<VisionLanguageModel>(), options) {
            // A backbone that cannot be read is a problem of its own.
            let backbone = Pretrained::of(experiment, options.image_size).unwrap_or_default();
            let shape = model.shape_on(backbone.as_ref());
            skipped = seen.fit(self.text_tokens_max(&shape, options.image_size), options.on_invalid)?;
        }
        Ok(Inspection { skipped, lowered: prepare::lowered_settings(experiment, &seen), ..Inspection::default() })
    }

    fn prepare(&self, experiment: &Experiment, ledger: &Ledger) -> Result<(TaskFacts, Box<dyn Prepared>), TaskError> {
        let (facts, prepared) = prepare::prepare(self, experiment, ledger)?;
        Ok((facts, Box::new(prepared)))
    }
}

pipeline_crate! {
    VisionLanguage, prepare::Prepared,
    VisionLanguageModel: MODEL, Optional, check::check_model, [vision_weights, language_weights];
}
