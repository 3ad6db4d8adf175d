//! Index of images with conversations: positions of the examples in their files, never text or images.

use std::collections::BTreeMap;

use super::record::{Record, of_item, of_line};
use super::settings::{AnswerFormat, LoaderSettings};
use super::{ExampleCounts, TextLength};
use crate::reading::confined::Root;
use crate::reading::decoding::Largest;
use crate::reading::invalid::{Fault, InvalidCollector, OnInvalid};
use crate::reading::record_file::RecordFile;
use crate::tokenizer::{Tokenizer, Vocabulary, Words};
use xrun_core::dataset::error::{DataError, InvalidItems};
use xrun_core::dataset::open_dataset::OpenDataset;
use xrun_core::dataset::split::Split;

/// Examples that a vocabulary is learnt from; more change it little.
const LEARN_EXAMPLES_MAX: usize = 20_000;

/// The reason of what has no place in a sequence.
pub(super) const TOO_LONG: &str = "too_long";
/// Purpose of a split in messages.
pub(super) const TO_TRAIN_ON: &str = "to train on";
pub(super) const HELD_OUT: &str = "held out for validation";

/// Location of an example in its source, in 24 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExampleLocation {
    /// Offset in bytes.
    pub offset: u64,
    /// Bytes of the line or the item.
    pub length: u32,
    /// Number of the line, from 1.
    pub line: u32,
    /// Index of the item in a question list, from 1; 0 in JSON lines.
    pub item: u32,
    /// Number of its image in its file: the same image has the same number.
    pub image: u32,
}

impl ExampleLocation {
    /// Name of the example in messages.
    pub fn called(&self) -> String {
        match self.item {
            0 => format!("line {}", self.line),
            item => format!("question {item} in line {}", self.line),
        }
    }
}

/// Format of the examples of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A line of JSON for each example, with messages.
    Lines,
    /// A list of questions in one JSON file, and how an answer is made of an item.
    List(AnswerFormat),
}

/// An open file of examples.
#[derive(Debug)]
pub struct TextFile {
    /// The file.
    pub file: RecordFile,
    /// Directory of the images.
    pub root: Root,
    /// Format of its examples.
    pub form: Form,
}

impl TextFile {
    /// Reads one example.
    ///
    /// # Errors
    /// It was changed since the index was made.
    pub fn record(&self, place: &ExampleLocation) -> Result<Record, DataError> {
        let changed = |message: String| {
            let message = format!("{}: {message}; it was changed during the run", place.called());
            DataError::file(self.file.path(), message)
        };
        let bytes = self.file.read(place.offset, place.length).map_err(|error| changed(error.to_string()))?;
        self.form.read(&bytes).map_err(|(_, message)| changed(message))
    }
}

impl Form {
    pub(super) fn read(self, bytes: &[u8]) -> Result<Record, Fault> {
        match self {
            Self::Lines => of_line(bytes),
            Self::List(form) => {
                let text = std::str::from_utf8(bytes).map_err(|_| ("not_utf8", "is not UTF-8".to_owned()))?;
                of_item(text, form)
            }
        }
    }
}

/// The index of a data set.
#[derive(Debug)]
pub struct Library {
    /// Files of the examples, one or more.
    pub sources: Vec<TextFile>,
    /// Index into `sources` of each split, in the order of [`Split::ALL`].
    pub source_of: [usize; 3],
    /// Positions of the examples of each split, by their number.
    pub places: [Vec<ExampleLocation>; 3],
    /// Different images of all files together.
    pub images: u64,
    /// The image that takes most memory to decode.
    pub largest: Option<Largest>,
    /// SHA-256 of all texts and images, in hexadecimal.
    pub digest: String,
    /// Items that were left out.
    pub skipped: InvalidItems,
    /// Bytes that opening it took at most, with the index.
    pub opening_bytes: u64,
}

impl OpenDataset for Library {
    const SAMPLE_NOUN: &'static str = "images with conversations";
    type Summary = ExampleCounts;
    type LoaderSettings = LoaderSettings;

    fn skipped(&self) -> InvalidItems {
        self.skipped.clone()
    }

    /// Summary without the lengths of texts, which need a vocabulary.
    fn summary(&self) -> ExampleCounts {
        let [train, held_out, unseen] = Split::ALL.map(|split| self.places(split).len() as u64);
        ExampleCounts { train, held_out, unseen, images: self.images, texts: Vec::new() }
    }
}

impl Library {
    /// Number of examples of all splits.
    pub fn sample_count(&self) -> u64 {
        self.places.iter().map(|places| places.len() as u64).sum()
    }

    /// Positions of the examples of a split, by their number.
    pub fn places(&self, split: Split) -> &[ExampleLocation] {
        &self.places[split as usize]
    }

    /// File of the examples of a split.
    pub fn source(&self, split: Split) -> &TextFile {
        &self.sources[self.source_of[split as usize]]
    }

    /// Identity of an image: equal for two examples that share it.
    pub fn image_key(&self, split: Split, place: &ExampleLocation) -> (u32, u32) {
        (self.source_of[split as usize] as u32, place.image)
    }

    /// An example by its number.
    ///
    /// # Errors
    /// There is none, or the file was changed during the run.
    pub fn record(&self, split: Split, number: u64) -> Result<(ExampleLocation, Record), DataError> {
        let place = usize::try_from(number).ok().and_then(|number| self.places(split).get(number));
        let place = *place.ok_or_else(|| DataError::content(format!("there is no example {number}")))?;
        Ok((place, self.source(split).record(&place)?))
    }

    /// Bytes of the index.
    pub fn index_bytes(&self) -> u64 {
        let places: usize = self.places.iter().map(Vec::capacity).sum();
        let paths: usize = self.sources.iter().map(|source| source.file.path().as_os_str().len()).sum();
        (places * size_of::<ExampleLocation>() + paths) as u64
    }

    /// Lengths of the texts.
    ///
    /// # Errors
    /// An example was changed.
    pub fn text_lengths(&self, tokenizer: &Tokenizer) -> Result<Vec<TextLength>, DataError> {
        let mut lengths: BTreeMap<usize, TextLength> = BTreeMap::new();
        for split in Split::ALL {
            let source = self.source(split);
            for place in self.places(split) {
                let tokens = text_tokens(&source.record(place)?, tokenizer)?;
                let length = lengths.entry(tokens).or_insert_with(|| TextLength {
                    tokens,
                    examples: [0; 3],
                    one: (source.file.path().to_owned(), place.called()),
                });
                length.examples[split as usize] += 1;
            }
        }
        Ok(lengths.into_values().collect())
    }

    /// GPT-2's own, or one that is learnt from the texts of the examples to train on.
    ///
    /// # Errors
    /// Its files do not serve, or an example was changed.
    pub fn tokenizer(&self, vocabulary: &Vocabulary) -> Result<Tokenizer, DataError> {
        vocabulary.tokenizer(|| {
            let mut words = Words::default();
            let count = self.places(Split::Train).len().min(LEARN_EXAMPLES_MAX);
            for number in 0..count as u64 {
                let (_, record) = self.record(Split::Train, number)?;
                // Apart, as they are in an example: no token has bytes of both.
                words.add(&record.prompt(), 1)?;
                words.add(&record.answer, 1)?;
            }
            Ok(words)
        })
    }

    /// Takes out what has more than `fit` tokens of prompt, answer and end of text. Examples are never cut: an answer
    /// without its end, or an image without its last tokens, would be learnt.
    ///
    /// # Errors
    /// Some are too long and must not be left out, or nothing is left of a split.
    pub fn fit(&mut self, tokenizer: &Tokenizer, fit: usize, on_invalid: OnInvalid) -> Result<(), DataError> {
        let skipped = InvalidCollector::collect(on_invalid, |invalid| {
            for split in Split::ALL {
                let (mut kept, source) = (Vec::new(), self.source(split));
                for place in self.places(split) {
                    let tokens = text_tokens(&source.record(place)?, tokenizer)?;
                    if tokens <= fit {
                        kept.push(*place);
                        continue;
                    }
                    invalid
                        .add_with(TOO_LONG, source.file.path(), || TextLength::too_long(tokens, fit, &place.called()));
                }
                if kept.len() < self.places(split).len() {
                    kept.shrink_to_fit();
                    self.places[split as usize] = kept;
                }
            }
            Ok(invalid.found.clone())
        })?;
        self.skipped.append(&skipped);
        self.check_use()
    }

    /// Refuses data that has nothing to train on or to validate with.
    pub(super) fn check_use(&self) -> Result<(), DataError> {
        for (split, what) in [(Split::Train, TO_TRAIN_ON), (Split::Validation, HELD_OUT)] {
            if self.places(split).is_empty() {
                let message = none_left(what, &self.skipped, self.images);
                return Err(DataError::file(self.source(split).file.path(), message));
            }
        }
        Ok(())
    }
}

/// Message about a split without examples.
pub(super) fn none_left(what: &str, skipped: &InvalidItems, images: u64) -> String {
    let skipped = match skipped.total() {
        0 => String::new(),
        count => format!(" ({count} were left out: {})", skipped.by_reason()),
    };
    format!(
        "no example is {what}{skipped}; {images} images are there, and a second file can be named with \
         `validation_path`"
    )
}

/// Number of tokens of prompt, answer and end of text.
fn text_tokens(record: &Record, tokenizer: &Tokenizer) -> Result<usize, DataError> {
    Ok(tokenizer.encode(&record.prompt())?.len() + tokenizer.encode(&record.answer)?.len() + 1)
}
