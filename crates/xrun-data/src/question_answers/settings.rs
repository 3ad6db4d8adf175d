//! Settings of a data set of questions and answers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::reading::invalid::OnInvalid;
use crate::tokenizer::Vocabulary;
use xrun_core::settings;
use xrun_core::units::Bytes;

pub(super) const SECTION: &str = "dataset.question-answers";

/// Settings that every data set of questions and answers has: how examples are made of them and cached.
#[derive(Clone, Debug, PartialEq)]
pub struct LoaderSettings {
    /// Table of the data set in an experiment, such as `dataset.question-answers`.
    pub section: &'static str,
    /// Vocabulary of the texts.
    pub vocabulary: Vocabulary,
    /// `true` where all examples are tokenised before the first step.
    pub preprocess_all: bool,
    /// Bytes of tokenised examples that are kept.
    pub example_cache: Bytes,
    /// Tokens between the beginnings of two windows of a held-out question's context.
    pub window_stride: usize,
    /// Maximum number of windows of a held-out question.
    pub validation_windows: usize,
}

impl Default for LoaderSettings {
    fn default() -> Self {
        QuestionAnswers::default().loader_settings()
    }
}

settings! {
    /// Questions whose answers are parts of a paragraph: a JSON file in the format of SQuAD v1.1 (Rajpurkar et al. 2016),
    /// or a generated one of the same format. Memory holds an index of the file; examples are read and tokenised when they
    /// are needed.
    pub struct QuestionAnswers {
        /// Source of the data. `generated` needs nothing.
        pub source: Source = Source::Generated,
        /// The file, for `source = "file"`, such as `dev-v1.1.json`. Relative to this file. `${NAME}` and
        /// `${NAME:-default}` stand for environment variables.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub path: Option<String> = None,
        /// A second file to validate with. Default: articles of `path` are held out.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub validation_path: Option<String> = None,
        /// The share of the articles that are held out for validation, the last ones of the file.
        #[schemars(range(min = 0.001, max = 0.9))]
        pub validation_fraction: f64 = 0.1,
        /// Treatment of answers that are not where the file says.
        pub on_invalid: OnInvalid = OnInvalid::Fail,
        /// GPT-2's `encoder.json`. Needs `merges`. Default: a byte-level vocabulary is learnt from the training articles.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub encoder: Option<String> = None,
        /// GPT-2's `vocab.bpe`. Needs `encoder`.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub merges: Option<String> = None,
        /// Tokens of the vocabulary that is learnt where `encoder` names none: 256 bytes, the end of text, and merges.
        #[schemars(range(min = 257, max = 65536))]
        pub vocabulary_size: usize = 512,
        /// Tokenise all examples before the first step and keep them, as scripts that preprocess a whole data set do. The
        /// examples are the same; the plan shows their size.
        pub preprocess_all: bool = false,
        /// Bytes of tokenised examples kept for reuse; the least recently used is evicted first. 0 keeps none.
        pub example_cache: Bytes = Bytes::mebibytes(1),
        /// Tokens between the beginnings of two windows of a held-out question's context that does not fit into a sequence;
        /// at most half a window. SQuAD's own baselines call it `doc_stride`.
        #[schemars(range(min = 1, max = 65536))]
        pub window_stride: usize = 128,
        /// The maximum number of windows of a context that a validation uses: those that share most words with the
        /// question. The model answers in each; the answer with the highest likelihood counts.
        #[schemars(range(min = 1, max = 4096))]
        pub validation_windows: usize = 16,
        /// Settings of the generated set, for `source = "generated"`.
        pub generated: Generated = Generated::default(),
    }
}

impl QuestionAnswers {
    /// The settings that every data set of questions and answers has.
    pub fn loader_settings(&self) -> LoaderSettings {
        LoaderSettings {
            section: SECTION,
            vocabulary: Vocabulary::new(self.encoder.as_ref(), self.merges.as_ref(), self.vocabulary_size),
            preprocess_all: self.preprocess_all,
            example_cache: self.example_cache,
            window_stride: self.window_stride,
            validation_windows: self.validation_windows,
        }
    }
}

/// Source of questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// Written once to the cache directory, the same bytes for the same settings.
    Generated,
    /// Read from `path`.
    File,
}

settings! {
    /// A generated set: articles about made-up towns, whose sentences say who has which trade and likes what.
    pub struct Generated {
        /// Articles.
        #[schemars(range(min = 2, max = 100_000))]
        pub articles: usize = 40,
        /// Paragraphs of each article.
        #[schemars(range(min = 1, max = 1000))]
        pub paragraphs_per_article: usize = 10,
        /// Sentences of each paragraph, each about another person.
        #[schemars(range(min = 1, max = 8))]
        pub sentences_per_paragraph: usize = 2,
        /// Seed of the generated set; the experiment's seed does not change it.
        pub seed: u32 = 0,
    }
}
