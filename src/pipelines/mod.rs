//! Which pipelines and models exist?
//!
//! To add one: a folder with `settings.rs`, and a line in each list below. `docs/add-a-pipeline.md` goes through it.

pub mod dummy;
pub mod fewshot_detection;
pub mod look;
#[cfg(feature = "train")]
mod open;
#[cfg(not(feature = "train"))]
#[path = "open_without_burn.rs"]
mod open;

pub mod qat_language_model;

pub use open::open;

use crate::data::Dataset;
use crate::experiment::Experiment;
use crate::experiment::kinds::kinds;
use crate::memory::ledger::Ledger;
use crate::problem::{Problem, Problems};
use crate::task::{Metric, TaskError, TaskFacts};

kinds! {
    /// The task: what a step and a validation do.
    pub enum Pipeline {
        "fewshot-detection" => FewshotDetection(fewshot_detection::settings::Settings),
        "qat-language-model" => QatLanguageModel(qat_language_model::settings::Settings),
        "dummy" => Dummy(dummy::settings::Settings),
    }
}

kinds! {
    /// The network that a pipeline trains.
    pub enum Model {
        "reference-detector" => ReferenceDetector(fewshot_detection::settings::Model),
        "gpt2" => Gpt2(qat_language_model::settings::Model),
    }
}

/// The kinds of model and of data set that a kind of pipeline needs; the first of each is the one to start with.
/// A pipeline with an empty list needs none.
#[derive(Clone, Copy, Debug)]
pub struct Needs {
    pub models: &'static [&'static str],
    pub datasets: &'static [&'static str],
}

/// What a kind of pipeline needs beside itself.
pub fn needs(kind: &str) -> Needs {
    match kind {
        "fewshot-detection" => Needs { models: &["reference-detector"], datasets: &["reference-video"] },
        "qat-language-model" => Needs { models: &["gpt2"], datasets: &["question-answers"] },
        _ => Needs { models: &[], datasets: &[] },
    }
}

/// Validation metrics of a pipeline; the first chooses the best checkpoint.
pub fn metrics(pipeline: &Pipeline) -> Vec<Metric> {
    match pipeline {
        Pipeline::FewshotDetection(_) => fewshot_detection::prepare::METRICS.to_vec(),
        Pipeline::QatLanguageModel(_) => qat_language_model::precision::METRICS.to_vec(),
        Pipeline::Dummy(_) => dummy::task::METRICS.to_vec(),
    }
}

/// Keys that say after how many steps a phase ends, with their values.
pub fn steps_of_phases(pipeline: &Pipeline) -> Vec<(&'static str, u64)> {
    match pipeline {
        Pipeline::QatLanguageModel(settings) => {
            vec![("pipeline.qat-language-model.pretraining_steps", settings.pretraining_steps)]
        }
        Pipeline::FewshotDetection(_) | Pipeline::Dummy(_) => Vec::new(),
    }
}

/// Adds what contradicts itself in the pipeline, in the model, or between them and the data.
pub fn check(experiment: &Experiment, problems: &mut Problems) {
    let kind = experiment.pipeline.kind();
    let needs = needs(kind);
    let model = experiment.model.as_ref().map(Model::kind);
    let dataset = experiment.dataset.as_ref().map(crate::data::Dataset::kind);
    for (section, found, known) in [("model", model, needs.models), ("dataset", dataset, needs.datasets)] {
        let tables: Vec<String> = known.iter().map(|kind| format!("[{section}.{kind}]")).collect();
        let tables = tables.join(" or ");
        match found {
            None if !known.is_empty() => {
                let problem = Problem::new(section, format!("`{kind}` needs a {section}, and there is none"));
                problems.add(problem.help(format!("add {tables}")).related("pipeline"));
            }
            Some(found) if known.is_empty() => {
                let problem = Problem::new(format!("{section}.{found}"), format!("`{kind}` uses no {section}"));
                problems.add(problem.help("take the table out").related("pipeline"));
            }
            Some(found) if !known.contains(&found) => {
                let problem = Problem::new(format!("{section}.{found}"), format!("`{kind}` cannot use this {section}"));
                problems.add(problem.help(format!("write {tables}")).related("pipeline"));
            }
            _ => {}
        }
    }
    match &experiment.pipeline {
        Pipeline::FewshotDetection(settings) => {
            fewshot_detection::check::check(settings, experiment.dataset.as_ref(), problems);
        }
        Pipeline::QatLanguageModel(settings) => {
            let model = match &experiment.model {
                Some(Model::Gpt2(model)) => Some(model),
                _ => None,
            };
            qat_language_model::check::check(settings, model, problems);
            qat_language_model::check::check_steps(settings, &experiment.training, problems);
            qat_language_model::check::check_leaks(&experiment.leaks, settings, problems);
        }
        Pipeline::Dummy(_) => {
            if let Some(leak) = experiment.leaks.on().first() {
                let problem = Problem::new(format!("leaks.{}", leak.key()), "`dummy` has no such leak");
                problems.add(problem.help("write `leak_per_step` in `[pipeline.dummy]`").related("pipeline"));
            }
        }
    }
    match &experiment.model {
        Some(Model::ReferenceDetector(model)) => fewshot_detection::check::check_model(model, problems),
        Some(Model::Gpt2(model)) => qat_language_model::check::check_model(model, problems),
        None => {}
    }
}

/// Files that the model's settings name, with their keys.
pub fn paths(model: &mut Model) -> Vec<(&'static str, &mut String)> {
    match model {
        Model::ReferenceDetector(_) => Vec::new(),
        Model::Gpt2(model) => model.weights.iter_mut().map(|path| ("model.gpt2.weights", path)).collect(),
    }
}

/// What a task was prepared with before the plan: opened data that the task takes over.
#[derive(Debug)]
pub enum Prepared {
    FewshotDetection(Box<fewshot_detection::prepare::Prepared>),
    QatLanguageModel(Box<qat_language_model::prepare::Prepared>),
    Dummy(dummy::settings::Settings),
}

/// Looks at the data, without Burn and without a device; what it says goes into the plan.
pub fn prepare(experiment: &Experiment, ledger: &Ledger) -> Result<(TaskFacts, Prepared), TaskError> {
    match &experiment.pipeline {
        Pipeline::FewshotDetection(settings) => {
            // `xrun check` asks for both; this is for whoever builds an experiment in code.
            let (Some(Model::ReferenceDetector(model)), Some(Dataset::ReferenceVideo(dataset))) =
                (&experiment.model, &experiment.dataset)
            else {
                return Err(TaskError::Data("fewshot-detection needs a model and a dataset".into()));
            };
            let (facts, prepared) = fewshot_detection::prepare::prepare(settings, model, dataset, experiment, ledger)?;
            Ok((facts, Prepared::FewshotDetection(Box::new(prepared))))
        }
        Pipeline::QatLanguageModel(settings) => {
            let (Some(Model::Gpt2(model)), Some(Dataset::QuestionAnswers(dataset))) =
                (&experiment.model, &experiment.dataset)
            else {
                return Err(TaskError::Data("qat-language-model needs a model and a dataset".into()));
            };
            let (facts, prepared) = qat_language_model::prepare::prepare(settings, model, dataset, experiment, ledger)?;
            Ok((facts, Prepared::QatLanguageModel(Box::new(prepared))))
        }
        Pipeline::Dummy(settings) => Ok((dummy::task::facts(settings), Prepared::Dummy(settings.clone()))),
    }
}
