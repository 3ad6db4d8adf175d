//! Images, each with an instruction and an answer: JSON lines of messages, or a list of questions.

pub mod check;
mod describe;
pub mod generate;
pub mod image_file;
pub mod library;
pub mod open;
pub mod paint;
pub mod record;
pub mod settings;
pub mod store;

use std::any::Any;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::reading::confined::linked_directories;
use super::reading::invalid::InvalidCollector;
use super::reading::invalid::OnInvalid;
use library::Library;
use settings::{ImageText, Source};
use xrun_core::dataset::error::{DataError, InvalidItems};
use xrun_core::dataset::kind::{DatasetFacts, DatasetKind, DatasetSummary, Inspected};
use xrun_core::dataset::open_dataset::{AnyDataset, OpenDataset, SampleType};
use xrun_core::dataset::{cache, digest_cache};
use xrun_core::problem::Problems;
use xrun_core::settings::variant::{Kind, Paths};

/// Summary of a data set of images with conversations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExampleCounts {
    /// Examples to train on.
    pub train: u64,
    /// Examples to validate with.
    pub held_out: u64,
    /// Examples of the third split, which only generated sets have.
    pub unseen: u64,
    /// Different images.
    pub images: u64,
    /// Lengths of the texts, the shortest first.
    pub texts: Vec<TextLength>,
}

impl ExampleCounts {
    /// Removes examples with more than `fit` tokens of text, as [`Library::fit`](library::Library::fit) will, and returns them.
    ///
    /// # Errors
    /// Some are too long and must not be left out, or nothing is left of a split.
    pub fn fit(&mut self, fit: usize, on_invalid: OnInvalid) -> Result<InvalidItems, DataError> {
        let mut invalid = InvalidCollector::new(on_invalid);
        // The longest first: its message has the increase that all examples need.
        for text in self.texts.iter().rev().filter(|text| text.tokens > fit) {
            let (path, called) = &text.one;
            let error = || DataError::file(path, TextLength::too_long(text.tokens, fit, called));
            invalid.found.add_many(library::TOO_LONG, text.examples.iter().sum(), error);
            let splits = [&mut self.train, &mut self.held_out, &mut self.unseen];
            splits.into_iter().zip(text.examples).for_each(|(left, out)| *left = left.saturating_sub(out));
        }
        invalid.result()?;
        for (left, what) in [(self.train, library::TO_TRAIN_ON), (self.held_out, library::HELD_OUT)] {
            if left == 0 {
                return Err(DataError::content(library::none_left(what, &invalid.found, self.images)));
            }
        }
        Ok(invalid.found)
    }
}

/// Number of examples whose text has this length.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TextLength {
    /// Tokens of prompt, answer and end of text.
    pub tokens: usize,
    /// To train on, held out, unseen.
    pub examples: [u64; 3],
    /// One of them: its file, and its name there.
    pub one: (PathBuf, String),
}

impl TextLength {
    /// Message about an example of `tokens` tokens where `fit` tokens fit next to the image.
    pub fn too_long(tokens: usize, fit: usize, called: &str) -> String {
        format!(
            "{called}: {tokens} tokens of text exceed the {fit} that fit with the image; raise `sequence_length` by {} \
            (examples are never cut)",
            tokens.saturating_sub(fit)
        )
    }
}

impl DatasetKind for ImageText {
    fn kind() -> &'static Kind<dyn DatasetKind> {
        // Its samples are decoded in `limits.decode_memory`.
        const FACTS: DatasetFacts =
            DatasetFacts { sample_type: SampleType::of::<Library>(), limit_keys: &["decode_memory"] };
        const { &Kind::<dyn DatasetKind>::new::<Self>("image-text", FACTS) }
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
            ("link_root", &mut self.link_root),
        ]
    }

    fn generation_notice(&self) -> Option<String> {
        if self.source != Source::Generated {
            return None;
        }
        let directory = generate::set(&self.generated).missing(&cache::directory())?;
        let (images, side) = (generate::images(&self.generated), self.generated.image_size);
        Some(format!("{images} images of {side} pixels with their answers, once, in {}", directory.display()))
    }

    fn forget_digests(&self) {
        open::directories(self).iter().for_each(|directory| digest_cache::remove(directory));
    }

    fn files(&self) -> Vec<PathBuf> {
        if self.source == Source::Generated {
            return Vec::new();
        }
        let named = [&self.path, &self.validation_path, &self.encoder, &self.merges];
        // The images are in the directories.
        let directories = open::directories(self);
        let linked: Vec<PathBuf> = directories
            .iter()
            .filter(|_| self.follow_links)
            .flat_map(|directory| linked_directories(directory))
            .collect();
        named.into_iter().flatten().map(PathBuf::from).chain(directories).chain(linked).collect()
    }

    fn loader_settings(&self) -> Box<dyn Any> {
        Box::new(ImageText::loader_settings(self))
    }

    fn open(&self) -> Result<Box<dyn AnyDataset>, DataError> {
        Ok(Box::new(open::open(self)?))
    }

    /// Summarises the data with the lengths of its texts.
    fn inspect(&self) -> Result<Inspected, DataError> {
        let library = open::open(self)?;
        let tokenizer = library.tokenizer(&ImageText::loader_settings(self).vocabulary)?;
        let seen = ExampleCounts { texts: library.text_lengths(&tokenizer)?, ..library.summary() };
        let description = describe::describe(&library, &seen);
        let notes = tokenizer.note().map(str::to_owned).into_iter().collect();
        let skipped = library.skipped.clone();
        let summary = DatasetSummary { skipped, notes, description, summary: seen };
        Ok((summary.into_json(), Some(Box::new(library))))
    }
}
