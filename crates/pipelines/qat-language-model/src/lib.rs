//! Quantisation-aware training of a language model with switchable precision and LoRA (docs/origins.md).

#![warn(missing_docs)]

pub mod batch;
pub mod buffers;
pub mod check;
#[cfg(feature = "train")]
pub mod context;
#[cfg(feature = "train")]
pub mod export;
#[cfg(all(test, feature = "train"))]
mod in_memory_tests;
pub mod leaks;
#[cfg(feature = "train")]
pub mod linear;
#[cfg(feature = "train")]
pub mod network;
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
pub mod windowed_answers;

use settings::{Gpt2, QatLanguageModel, RangeSource};
use xrun_data::question_answers::QuestionCounts;
use xrun_data::question_answers::corpus::Corpus;
use xrun_training::declaration::*;

/// Name of the model: `[model.gpt2]`.
const MODEL: &str = "gpt2";

impl PipelineKind for QatLanguageModel {
    fn kind() -> &'static Kind<dyn PipelineKind> {
        const FACTS: PipelineFacts = PipelineFacts {
            models: &[MODEL],
            sample_type: Some(SampleType::of::<Corpus>()),
            metrics: precision::METRICS,
            batch_size: Some(settings::BATCH_SIZE),
            leaks: leaks::LEAKS,
            rungs: &[Rung::Caches, Rung::Prefetch, Rung::Workers, Rung::MicroBatch, Rung::ActivationCheckpointing],
            ..PipelineFacts::NONE
        };
        const { &Kind::<dyn PipelineKind>::new::<Self>("qat-language-model", FACTS) }
    }

    fn check(&self, experiment: &Experiment, problems: &mut Problems) {
        check::check(self, experiment.model_settings().ok(), problems);
        check::check_steps(self, &experiment.training, problems);
        check::check_micro_batches(self, experiment, problems);
        check::check_leaks(&experiment.leaks, self, problems);
        check::check_weights(experiment, problems);
    }

    fn refuses_rung(&self, rung: Rung) -> Option<&'static str> {
        let moves = self.activation_ranges == RangeSource::Moving;
        (rung == Rung::MicroBatch && moves).then_some("each micro-batch moves the ranges (`activation_ranges`)")
    }

    fn steps_of_stages(&self) -> Vec<(&'static str, u64)> {
        vec![("pipeline.qat-language-model.pretraining_steps", self.pretraining_steps)]
    }

    fn pytorch_module(&self, experiment: &Experiment) -> Option<PytorchModule> {
        let model: &Gpt2 = experiment.model_settings().ok()?;
        let config = serde_json::json!({
            "heads": model.shape().heads,
            // That of the widest precision.
            "lora_index": 0,
            "lora_scale": self.lora_alpha / self.lora_rank.max(1) as f64,
        });
        Some(PytorchModule { source: include_str!("pytorch.py"), config })
    }

    fn inspect(&self, experiment: &Experiment, data: InspectedData) -> Result<Inspection, DataError> {
        let QuestionCounts { train, held_out } = data.summary::<Corpus>()?;
        let batches = train.div_ceil(experiment.batch_size() as u64);
        prepare::check_pretraining(self, &experiment.training, batches)?;
        Ok(prepare::lowered_settings(self, experiment, [train, held_out]).into())
    }

    fn prepare(&self, experiment: &Experiment, ledger: &Ledger) -> Result<(TaskFacts, Box<dyn Prepared>), TaskError> {
        let (facts, prepared) = prepare::prepare(self, experiment, ledger)?;
        Ok((facts, Box::new(prepared)))
    }
}

pipeline_crate! {
    QatLanguageModel, prepare::Prepared,
    Gpt2: MODEL, None, check::check_model, [weights];
}
