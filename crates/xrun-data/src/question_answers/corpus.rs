//! Index of questions and answers: which are trained on, which are held out, and their tokenizer.

use std::path::{Path, PathBuf};

use super::files::{Paragraphs, open_questions};
use super::generate::generate_in;
use super::settings::{QuestionAnswers, Source};
use super::squad::{Index, QuestionLocation};
use crate::reading::invalid::InvalidCollector;
use crate::reading::invalid::OnInvalid;
use crate::tokenizer::{Tokenizer, Words};
use xrun_core::dataset::error::{DataError, InvalidItems};
use xrun_core::dataset::split::Split;
use xrun_core::dataset::{cache, generated};
use xrun_core::units::pluralize;

/// Paragraphs that a vocabulary is learnt from; more change it little.
const LEARN_PARAGRAPHS_MAX: usize = 20_000;

/// The index of a data set: positions of questions, never text.
#[derive(Debug)]
pub struct Corpus {
    /// Source of the questions to train on.
    pub train: Box<dyn Paragraphs>,
    /// Source of the questions to validate with; `None` where `train` has them, too.
    pub validation: Option<Box<dyn Paragraphs>>,
    /// Positions of the questions to train on and of those to validate with, by their number.
    pub places: [Vec<QuestionLocation>; 2],
    /// Tokenizer of the texts.
    pub tokenizer: Tokenizer,
    /// SHA-256 of the digests of all its files, in hexadecimal.
    pub digest: String,
    /// Items that were left out.
    pub skipped: InvalidItems,
    /// Articles of all files.
    pub articles: u32,
    /// Bytes that opening it took at most, with the index.
    pub opening_bytes: u64,
}

impl Corpus {
    /// Opens the files that the settings name.
    ///
    /// # Errors
    /// All that would end a run before its first step.
    pub fn open(settings: &QuestionAnswers) -> Result<Self, DataError> {
        let (path, written, policy) = match settings.source {
            // Generated data is valid or damaged as a whole.
            Source::Generated => {
                let (path, written) = generate_in(&settings.generated, &cache::directory())?;
                (path, Some(written), OnInvalid::Fail)
            }
            Source::File => (PathBuf::from(settings.path.as_deref().unwrap_or_default()), None, settings.on_invalid),
        };
        // Problems of both files are reported together.
        let opened = InvalidCollector::collect(policy, |invalid| {
            let opened = open_questions(&path, invalid);
            let second = settings.validation_path.as_ref().map(|path| open_questions(Path::new(path), invalid));
            Ok((opened?, second.transpose()?, invalid.found.clone()))
        });
        let (opened, second, skipped) = opened.map_err(|error| match settings.source {
            Source::Generated => generated::damaged(&path, error),
            Source::File => error,
        })?;
        let (train, Index { mut places, mut articles, digest, mut opening_bytes }) = opened;
        if let Some(written) = &written {
            generated::expect(&path, written, &digest)?;
        }
        let mut digests = digest;
        let (validation, train_places, validation_places) = match second {
            Some((file, index)) => {
                digests += &index.digest;
                opening_bytes = opening_bytes.max(index.opening_bytes);
                articles += index.articles;
                (Some(file), places, index.places)
            }
            None => {
                let held_out = ((f64::from(articles) * settings.validation_fraction).round() as u32).max(1);
                let first = articles.saturating_sub(held_out);
                let mut validation: Vec<_> = places.extract_if(.., |place| place.article >= first).collect();
                validation.shrink_to_fit();
                places.shrink_to_fit();
                (None, places, validation)
            }
        };
        for (places, what) in [(&train_places, "to train on"), (&validation_places, "held out for validation")] {
            if places.is_empty() {
                return Err(DataError::file(
                    &path,
                    format!(
                        "{}, and no question there is {what}; a second file can be named with `validation_path`",
                        pluralize(articles.into(), "article")
                    ),
                ));
            }
        }
        let tokenizer = settings.loader_settings().vocabulary.tokenizer(|| words_to_learn(&train, &train_places))?;
        let places = (train_places.capacity() + validation_places.capacity()) * size_of::<QuestionLocation>();
        Ok(Self {
            train: Box::new(train),
            validation: validation.map(|file| Box::new(file) as Box<dyn Paragraphs>),
            places: [train_places, validation_places],
            tokenizer,
            digest: xrun_core::dataset::digest::digest(digests.as_bytes()),
            skipped,
            articles,
            opening_bytes: opening_bytes + (places + places / 4) as u64,
        })
    }

    /// Positions of the questions of a split, by their number.
    pub fn places(&self, split: Split) -> &[QuestionLocation] {
        self.places.get(split as usize).map_or(&[], Vec::as_slice)
    }

    /// Source of the questions of a split.
    pub fn source(&self, split: Split) -> &dyn Paragraphs {
        match (split, &self.validation) {
            (Split::Validation, Some(source)) => source.as_ref(),
            _ => self.train.as_ref(),
        }
    }

    /// Bytes of the index.
    pub fn index_bytes(&self) -> u64 {
        (self.places.iter().map(Vec::capacity).sum::<usize>() * size_of::<QuestionLocation>()) as u64
    }
}

/// Words that a vocabulary is learnt from.
fn words_to_learn(file: &dyn Paragraphs, places: &[QuestionLocation]) -> Result<Words, DataError> {
    let mut words = Words::default();
    let first_of_each = places
        .iter()
        .enumerate()
        .filter(|(at, place)| at.checked_sub(1).is_none_or(|before| places[before].offset != place.offset));
    for (_, place) in first_of_each.take(LEARN_PARAGRAPHS_MAX) {
        let paragraph = file.paragraph(place)?;
        // As if each question stood before a context of its own, which it does in an example.
        let questions = paragraph.qas.len() as u64;
        words.add(&format!("Context: {}\nAnswer:", paragraph.context), questions)?;
        words.add("\n", questions.saturating_sub(1))?;
        for asked in &paragraph.qas {
            words.add(&format!("Question: {}\n", asked.question), 1)?;
        }
    }
    Ok(words)
}
