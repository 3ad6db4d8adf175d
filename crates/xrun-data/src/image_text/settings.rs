//! Settings of a data set of images with conversations.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::reading::invalid::OnInvalid;
use crate::tokenizer::Vocabulary;
use xrun_core::settings;
use xrun_core::units::Bytes;

pub(super) const SECTION: &str = "dataset.image-text";

/// Settings that every data set of images with conversations has: how examples are made and images cached.
#[derive(Clone, Debug, PartialEq)]
pub struct LoaderSettings {
    /// Table of the data set in an experiment, such as `dataset.image-text`.
    pub section: &'static str,
    /// Side of an image that a model sees, in pixels.
    pub image_size: usize,
    /// Bytes of scaled images that are kept.
    pub image_cache: Bytes,
    /// The policy for examples that cannot be used.
    pub on_invalid: OnInvalid,
    /// Vocabulary of the texts.
    pub vocabulary: Vocabulary,
}

impl Default for LoaderSettings {
    fn default() -> Self {
        ImageText::default().loader_settings()
    }
}

settings! {
    /// Images, each with an instruction and the answer that is to be given: JSON lines of messages, a list of questions in
    /// the layout of easy-VQA, or a generated set. Memory holds an index of the files; texts are read and images decoded
    /// when they are needed.
    pub struct ImageText {
        /// Source of the data. `generated` needs nothing.
        pub source: Source = Source::Generated,
        /// The file, for `source = "messages"` or `"question-list"`; its images are in its directory or below. Relative to this
        /// file. `${NAME}` and `${NAME:-default}` stand for environment variables.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub path: Option<String> = None,
        /// A second file to validate with. Without it, images of `path` are held out.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub validation_path: Option<String> = None,
        /// The share of the images that are held out for validation, the last ones of the file. All examples of an image
        /// are on one side.
        #[schemars(range(min = 0.001, max = 0.9))]
        pub validation_fraction: f64 = 0.1,
        /// Format of the answers of a question list.
        pub answer_format: AnswerFormat = AnswerFormat::Plain,
        /// Treatment of examples that cannot be used; the manifest counts them by reason.
        pub on_invalid: OnInvalid = OnInvalid::Fail,
        /// Follow symlinks that lead out of the directory of `path`, as long as they lead into `link_root`.
        pub follow_links: bool = false,
        /// The directory that symlinks may lead into, for `follow_links = true`, such as a scratch disk with the images.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub link_root: Option<String> = None,
        /// The side of an image that a model sees, in pixels. Images are scaled to a square of it, whatever their
        /// proportions.
        #[schemars(range(min = 8, max = 1024))]
        pub image_size: usize = 48,
        /// Bytes of scaled images kept for reuse; the least recently used is evicted first. 0 keeps none.
        pub image_cache: Bytes = Bytes::mebibytes(8),
        /// GPT-2's `encoder.json`. Needs `merges`. Without both, a byte-level vocabulary is learnt from the training
        /// examples.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub encoder: Option<String> = None,
        /// GPT-2's `vocab.bpe`. Needs `encoder`.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub merges: Option<String> = None,
        /// Tokens of the vocabulary that is learnt where `encoder` names none: 256 bytes, the end of text, and merges.
        #[schemars(range(min = 257, max = 65536))]
        pub vocabulary_size: usize = 512,
        /// Settings of the generated set, for `source = "generated"`.
        pub generated: Generated = Generated::default(),
    }
}

impl ImageText {
    /// The settings that every data set of images with conversations has.
    pub fn loader_settings(&self) -> LoaderSettings {
        LoaderSettings {
            section: SECTION,
            image_size: self.image_size,
            image_cache: self.image_cache,
            on_invalid: self.on_invalid,
            vocabulary: Vocabulary::new(self.encoder.as_ref(), self.merges.as_ref(), self.vocabulary_size),
        }
    }
}

/// Source of images and texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// Written once to the cache directory, the same bytes for the same settings.
    Generated,
    /// JSON lines or one list: `{"messages": […]}` or LLaVA's `{"conversations": […]}` with one image, whose last message is
    /// the answer, or `{"text": …, "image": …, "response": …}`. An image is a file or a base64 data URL.
    Messages,
    /// easy-VQA's `questions.json`, a list of `[question, answer, image]`, with `images/IMAGE.png` beside it.
    QuestionList,
}

/// Format of the answers of a question list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AnswerFormat {
    /// The text of the file: `red`.
    Plain,
    /// An object: `{"answer": "red"}`.
    Json,
}

settings! {
    /// A generated set: a shape on a noisy ground, and an answer in JSON with its shape, colour, place, size and mark. Of the
    /// 24 pairs of shape and colour 6 are never trained on and make a third split, `unseen`.
    pub struct Generated {
        /// Examples to train on.
        #[schemars(range(min = 8, max = 1_000_000))]
        pub examples: usize = 4000,
        /// Examples to validate with: other images of trained pairs.
        #[schemars(range(min = 8, max = 100_000))]
        pub held_out_examples: usize = 400,
        /// Examples of pairs of shape and colour that are never trained on.
        #[schemars(range(min = 8, max = 100_000))]
        pub unseen_examples: usize = 200,
        /// The side of an image, in pixels.
        #[schemars(range(min = 32, max = 4096))]
        pub image_size: usize = 64,
        /// Seed of the generated set; the experiment's seed does not change it.
        pub seed: u32 = 0,
    }
}
