//! Images, each with an instruction and an answer: JSON lines of messages, or a list of questions.

pub mod check;
mod describe;
pub mod generate;
pub mod image_file;
pub mod library;
pub mod open;
pub mod paint;
#[cfg(test)]
mod real_tests;
pub mod record;
pub mod settings;
pub mod store;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::reading::confined::linked_directories;
use super::reading::invalid::InvalidCollector;
use super::reading::invalid::OnInvalid;
use library::{Library, LoaderSettings};
use settings::{Settings, Source};
use xrun_core::dataset::error::{DataError, InvalidItems};
use xrun_core::dataset::kind::{DatasetKind, DatasetSummary, InspectedData};
use xrun_core::dataset::open_dataset::OpenDataset;
use xrun_core::dataset::{cache, digest_cache};
use xrun_core::problem::Problems;

/// Data set `[dataset.image-text]`.
#[derive(Debug)]
pub struct ImageText;

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
    const NAME: &'static str = "image-text";
    /// Its images are decoded in `limits.decode_memory`.
    const LIMIT_KEYS: &'static [&'static str] = &["decode_memory"];
    type Settings = Settings;
    type Opened = Library;

    fn check(settings: &Settings, problems: &mut Problems) {
        check::check(settings, problems);
    }

    fn paths(settings: &mut Settings) -> Vec<(&'static str, &mut Option<String>)> {
        vec![
            ("path", &mut settings.path),
            ("validation_path", &mut settings.validation_path),
            ("encoder", &mut settings.encoder),
            ("merges", &mut settings.merges),
            ("link_root", &mut settings.link_root),
        ]
    }

    fn generation_notice(settings: &Settings) -> Option<String> {
        if settings.source != Source::Generated {
            return None;
        }
        let directory = generate::set(&settings.generated).missing(&cache::directory())?;
        let (images, side) = (generate::images(&settings.generated), settings.generated.image_size);
        Some(format!("{images} images of {side} pixels with their answers, once, in {}", directory.display()))
    }

    fn forget_digests(settings: &Settings) {
        open::directories(settings).iter().for_each(|directory| digest_cache::remove(directory));
    }

    fn files(settings: &Settings) -> Vec<PathBuf> {
        if settings.source == Source::Generated {
            return Vec::new();
        }
        let named = [&settings.path, &settings.validation_path, &settings.encoder, &settings.merges];
        // The images are in the directories.
        let directories = open::directories(settings);
        let linked: Vec<PathBuf> = directories
            .iter()
            .filter(|_| settings.follow_links)
            .flat_map(|directory| linked_directories(directory))
            .collect();
        named.into_iter().flatten().map(PathBuf::from).chain(directories).chain(linked).collect()
    }

    fn loader_settings(settings: &Settings) -> LoaderSettings {
        settings.loader_settings()
    }

    fn open(settings: &Settings) -> Result<Library, DataError> {
        open::open(settings)
    }

    /// Summarises the data with the lengths of its texts.
    fn inspect(settings: &Settings) -> Result<InspectedData<Library>, DataError> {
        let library = open::open(settings)?;
        let tokenizer = library.tokenizer(&settings.loader_settings().vocabulary)?;
        let seen = ExampleCounts { texts: library.text_lengths(&tokenizer)?, ..library.summary() };
        let description = describe::describe(&library, &seen);
        let notes = tokenizer.note().map(str::to_owned).into_iter().collect();
        let skipped = library.skipped.clone();
        Ok((DatasetSummary { skipped, notes, description, summary: seen }, Some(library)))
    }
}
