//! Pictures, each with an instruction and an answer: JSON lines of messages, or a list of questions.

pub mod check;
pub mod generate;
pub mod library;
pub mod open;
pub mod paint;
pub mod picture;
#[cfg(test)]
mod real_tests;
pub mod record;
pub mod settings;
pub mod store;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::error::DataError;
use super::kind::{DatasetKind, Look};
use super::known;
use super::tokenizer::Tokenizer;
use crate::problem::Problems;
use settings::{Settings, Source};

/// `[dataset.image-text]`.
#[derive(Debug)]
pub struct ImageText;

/// What a look at it tells.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Seen {
    /// Examples to train on.
    pub train: u64,
    /// Examples to validate with.
    pub held_out: u64,
    /// Examples of the third split, which only generated sets have.
    pub unseen: u64,
    /// Different pictures.
    pub pictures: u64,
}

impl DatasetKind for ImageText {
    const NAME: &'static str = "image-text";
    /// Its pictures are decoded in `limits.decoding`.
    const LIMITS: &'static [&'static str] = &["decoding"];
    type Settings = Settings;
    type Seen = Seen;

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

    fn pending(settings: &Settings) -> Option<String> {
        if settings.source != Source::Generated {
            return None;
        }
        let pending = generate::pending(&settings.generated)?;
        let (pictures, side, folder) = (pending.pictures, pending.picture_size, pending.folder.display());
        Some(format!("{pictures} pictures of {side} pixels with their answers, once, in {folder}"))
    }

    fn verify(settings: &Settings) {
        open::folders(settings).iter().for_each(|folder| known::forget(folder));
    }

    fn files(settings: &Settings) -> Vec<PathBuf> {
        if settings.source == Source::Generated {
            return Vec::new();
        }
        let named = [&settings.path, &settings.validation_path, &settings.encoder, &settings.merges];
        // The pictures are in the folders.
        named.into_iter().flatten().map(PathBuf::from).chain(open::folders(settings)).collect()
    }

    fn look(settings: &Settings) -> Result<Look<Seen>, DataError> {
        let library = open::open(settings)?;
        if let (Some(encoder), Some(merges)) = (&settings.encoder, &settings.merges) {
            Tokenizer::read(encoder.as_ref(), merges.as_ref())?;
        }
        let seen = library.seen();
        Ok(Look { left_out: library.left_out, seen })
    }
}
