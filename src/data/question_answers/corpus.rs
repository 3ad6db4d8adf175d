//! From files to questions: which are trained on, which are held out, and how is their text cut into tokens?

use std::path::{Path, PathBuf};

use super::files::QuestionFile;
use super::generate::generate;
use super::settings::{Settings, Source};
use super::squad::{Index, Place};
use crate::data::error::{Broken, DataError};
use crate::data::reference_video::raw::Judge;
use crate::data::reference_video::settings::OnBroken;
use crate::data::tokenizer::{Tokenizer, Words};
use crate::units::counted;

/// Paragraphs that a vocabulary is learnt from; more change it little.
const LEARN_PARAGRAPHS_MAX: usize = 20_000;

/// What questions are for. No article is for both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Split {
    /// Questions to train with.
    Train,
    /// Questions to validate with.
    Validation,
}

impl Split {
    /// In the order in which [`Corpus::look`] counts.
    pub const ALL: [Self; 2] = [Self::Train, Self::Validation];
}

/// The index of a data set: places, never text.
#[derive(Debug)]
pub struct Corpus {
    train: QuestionFile,
    /// `None` when articles of `train` are held out.
    validation: Option<QuestionFile>,
    train_places: Vec<Place>,
    validation_places: Vec<Place>,
    /// What makes tokens of its texts.
    pub tokenizer: Tokenizer,
    /// SHA-256 of the digests of all its files, in hexadecimal.
    pub digest: String,
    /// What was left out.
    pub left_out: Broken,
}

/// What stands in the files, before anything is cut into tokens.
struct Found {
    train: QuestionFile,
    validation: Option<QuestionFile>,
    train_places: Vec<Place>,
    validation_places: Vec<Place>,
    digests: String,
    left_out: Broken,
}

impl Corpus {
    /// Opens the files that the settings name.
    pub fn open(settings: &Settings) -> Result<Self, DataError> {
        let Found { train, validation, train_places, validation_places, digests, left_out } = Found::look(settings)?;
        let tokenizer = tokenizer(settings, &train, &train_places)?;
        let digest = crate::data::digest::digest(digests.as_bytes());
        Ok(Self { train, validation, train_places, validation_places, tokenizer, digest, left_out })
    }

    /// How many questions there are to train on and to validate with, and what was left out; no text is cut into tokens,
    /// but a vocabulary that is named is read.
    pub fn look(settings: &Settings) -> Result<([u64; 2], Broken), DataError> {
        let found = Found::look(settings)?;
        if let (Some(encoder), Some(merges)) = (&settings.encoder, &settings.merges) {
            Tokenizer::read(Path::new(encoder), Path::new(merges))?;
        }
        Ok(([found.train_places.len() as u64, found.validation_places.len() as u64], found.left_out))
    }

    /// Where the questions of a split stand, by their number.
    pub fn places(&self, split: Split) -> &[Place] {
        match split {
            Split::Train => &self.train_places,
            Split::Validation => &self.validation_places,
        }
    }

    /// The file that has the questions of a split.
    pub fn file(&self, split: Split) -> &QuestionFile {
        match (split, &self.validation) {
            (Split::Validation, Some(file)) => file,
            _ => &self.train,
        }
    }

    /// Bytes of the index.
    pub fn index_bytes(&self) -> u64 {
        ((self.train_places.capacity() + self.validation_places.capacity()) * size_of::<Place>()) as u64
    }
}

impl Found {
    fn look(settings: &Settings) -> Result<Self, DataError> {
        let (path, policy) = match settings.source {
            // What xrun wrote itself is never left out in part.
            Source::Generated => (generate(&settings.generated)?, OnBroken::Fail),
            Source::File => (PathBuf::from(settings.path.as_deref().unwrap_or_default()), settings.on_broken),
        };
        let mut judge = Judge::new(policy);
        let opened = QuestionFile::open(&path, &mut judge);
        // All that is wrong with both files is told at once.
        let second = settings.validation_path.as_ref().map(|path| QuestionFile::open(Path::new(path), &mut judge));
        let told = |error: DataError| damaged(error, settings.source, &path);
        let (opened, second) = match (opened, second.transpose()) {
            (Ok(opened), Ok(second)) => (opened, second),
            (Err(fatal), _) | (_, Err(fatal)) => return Err(told(judge.beside(fatal))),
        };
        judge.verdict().map_err(told)?;
        let (train, Index { places, articles }) = opened;
        let mut digests = train.digest.clone();
        let (validation, train_places, validation_places) = match second {
            Some((file, index)) => {
                digests += &file.digest;
                (Some(file), places, index.places)
            }
            None => {
                let held_out = ((f64::from(articles) * settings.validation_share).round() as u32).max(1);
                let first = articles.saturating_sub(held_out);
                let (train, validation) = places.into_iter().partition(|place| place.article < first);
                (None, train, validation)
            }
        };
        for (places, what) in [(&train_places, "to train on"), (&validation_places, "held out for validation")] {
            if places.is_empty() {
                return Err(DataError::file(
                    &path,
                    format!(
                        "{}, and no question there is {what}; a second file can be named with `validation_path`",
                        counted(articles.into(), "article")
                    ),
                ));
            }
        }
        Ok(Self { train, validation, train_places, validation_places, digests, left_out: judge.found })
    }
}

fn damaged(error: DataError, source: Source, path: &Path) -> DataError {
    let error = match error {
        DataError::Several(broken) if source == Source::Generated => broken.first[0].error.clone(),
        other => other,
    };
    match (source, error) {
        // Without the hint: nothing is left out of what xrun wrote.
        (Source::Generated, DataError::File { message: cause, .. }) => {
            let message = format!("the generated file is damaged; delete it, and it is written again ({cause})");
            DataError::file(path, message)
        }
        (_, error) => error,
    }
}

/// GPT-2's own, or one that is learnt from contexts and questions to train on.
fn tokenizer(settings: &Settings, file: &QuestionFile, places: &[Place]) -> Result<Tokenizer, DataError> {
    if let (Some(encoder), Some(merges)) = (&settings.encoder, &settings.merges) {
        return Tokenizer::read(Path::new(encoder), Path::new(merges));
    }
    let first_of_each = places
        .iter()
        .enumerate()
        .filter(|(at, place)| at.checked_sub(1).is_none_or(|before| places[before].offset != place.offset));
    let mut words = Words::default();
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
    Tokenizer::learn(&words, settings.vocabulary_size)
}
