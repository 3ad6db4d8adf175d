//! Questions whose answers are spans of a text, in SQuAD v1.1's format, read on demand.

pub mod check;
pub mod corpus;
pub mod example;
pub mod files;
pub mod generate;
pub mod settings;
pub mod squad;
pub mod store;
pub mod user_questions;

use std::any::Any;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::describe::splits;
use corpus::Corpus;
use settings::{LoaderSettings, QuestionAnswers, Source};
use xrun_core::dataset::description::Description;
use xrun_core::dataset::error::{DataError, InvalidItems};
use xrun_core::dataset::kind::{DatasetFacts, DatasetKind, DatasetSummary, Inspected};
use xrun_core::dataset::open_dataset::{AnyDataset, OpenDataset, SampleType};
use xrun_core::problem::Problems;
use xrun_core::settings::variant::{Kind, Paths};
use xrun_core::units::pluralize;

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

    fn skipped(&self) -> InvalidItems {
        self.skipped.clone()
    }

    fn summary(&self) -> Self::Summary {
        let [train, held_out] = self.places.each_ref().map(|places| places.len() as u64);
        QuestionCounts { train, held_out }
    }

    fn description(&self) -> Description {
        let QuestionCounts { train, held_out } = self.summary();
        let (all, articles) = (pluralize(train + held_out, "question"), pluralize(self.articles.into(), "article"));
        let line = format!("{all} about {articles}: {}", splits(train, held_out));
        Description { lines: vec![line], warnings: Vec::new() }
    }
}

impl DatasetKind for QuestionAnswers {
    fn kind() -> &'static Kind<dyn DatasetKind> {
        const FACTS: DatasetFacts = DatasetFacts { sample_type: SampleType::of::<Corpus>(), limit_keys: &[] };
        const { &Kind::<dyn DatasetKind>::new::<Self>("question-answers", FACTS) }
    }

    fn check(&self, problems: &mut Problems) {
        check::check(self, problems);
    }

    fn paths(&mut self) -> Paths<'_> {
        vec![
            ("path", &mut self.path),
            ("validation_path", &mut self.validation_path),
            ("encoder", &mut self.encoder),
            ("merges", &mut self.merges),
        ]
    }

    fn files(&self) -> Vec<PathBuf> {
        if self.source != Source::File {
            return Vec::new();
        }
        let named = [&self.path, &self.validation_path, &self.encoder, &self.merges];
        named.into_iter().flatten().map(PathBuf::from).collect()
    }

    fn loader_settings(&self) -> Box<dyn Any> {
        Box::new(QuestionAnswers::loader_settings(self))
    }

    fn open(&self) -> Result<Box<dyn AnyDataset>, DataError> {
        Ok(Box::new(Corpus::open(self)?))
    }

    /// Summarises the data with a note about the words that its vocabulary was learnt from.
    fn inspect(&self) -> Result<Inspected, DataError> {
        let corpus = Corpus::open(self)?;
        let notes = corpus.tokenizer.note().map(str::to_owned).into_iter().collect();
        Ok((DatasetSummary { notes, ..corpus.summarise() }, Some(Box::new(corpus))))
    }
}
