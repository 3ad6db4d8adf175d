//! Questions whose answers are spans of a text, in SQuAD v1.1's format, read on demand.

pub mod check;
pub mod corpus;
pub mod example;
pub mod files;
pub mod generate;
pub mod settings;
pub mod squad;
pub mod store;
pub mod texts;
pub mod user_questions;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use corpus::{Corpus, LoaderSettings};
use settings::{Settings, Source};
use xrun_core::dataset::error::{DataError, InvalidItems};
use xrun_core::dataset::kind::{DatasetKind, InspectedData};
use xrun_core::dataset::open_dataset::OpenDataset;
use xrun_core::problem::Problems;

/// Data set `[dataset.question-answers]`.
#[derive(Debug)]
pub struct QuestionAnswers;

/// Summary of a corpus for pipelines.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QuestionCounts {
    /// Questions to train on.
    pub train: u64,
    /// Questions to validate with.
    pub held_out: u64,
}

impl OpenDataset for Corpus {
    const SAMPLE_NOUN: &'static str = "texts with answers";
    type Summary = QuestionCounts;
    type LoaderSettings = LoaderSettings;

    fn sample_count(&self) -> u64 {
        self.places.iter().map(|places| places.len() as u64).sum()
    }

    fn digest(&self) -> &str {
        &self.digest
    }

    fn skipped(&self) -> InvalidItems {
        self.skipped.clone()
    }

    fn summary(&self) -> Self::Summary {
        let [train, held_out] = self.places.each_ref().map(|places| places.len() as u64);
        QuestionCounts { train, held_out }
    }
}

impl DatasetKind for QuestionAnswers {
    const NAME: &'static str = "question-answers";
    type Settings = Settings;
    type Opened = Corpus;

    fn check(settings: &Settings, problems: &mut Problems) {
        check::check(settings, problems);
    }

    fn paths(settings: &mut Settings) -> Vec<(&'static str, &mut Option<String>)> {
        vec![
            ("path", &mut settings.path),
            ("validation_path", &mut settings.validation_path),
            ("encoder", &mut settings.encoder),
            ("merges", &mut settings.merges),
        ]
    }

    fn files(settings: &Settings) -> Vec<PathBuf> {
        if settings.source != Source::File {
            return Vec::new();
        }
        let named = [&settings.path, &settings.validation_path, &settings.encoder, &settings.merges];
        named.into_iter().flatten().map(PathBuf::from).collect()
    }

    fn loader_settings(settings: &Settings) -> LoaderSettings {
        settings.loader_settings()
    }

    fn open(settings: &Settings) -> Result<Corpus, DataError> {
        Corpus::open(settings)
    }

    /// Summarises the data without learning a vocabulary.
    fn inspect(settings: &Settings) -> Result<InspectedData<Corpus>, DataError> {
        Ok((Corpus::summary(settings)?, None))
    }
}
