//! Examples of images with conversations, with a cache of scaled images that is bounded by bytes and shared by all workers.

use std::io::{BufReader, Cursor};

use super::image_file;
use super::library::{ExampleLocation, Library};
use super::open::{LINE_COPIES, located};
use super::record::{Image, Record};
use super::settings::LoaderSettings;
use crate::reading::decoding::{decoding_buffer, decoding_bytes};
use crate::reading::image_head::Head;
use crate::reading::invalid::Fault;
use crate::tokenizer::Tokenizer;
use xrun_core::bounded::DeepSize;
use xrun_core::bounded::buffer::Buffer;
use xrun_core::bounded::cache::ByteCache;
use xrun_core::bounded::ledger::{Cap, Ledger, Policy, Registration};
use xrun_core::bounded::memory_budget::MemoryBudget;
use xrun_core::dataset::error::DataError;
use xrun_core::dataset::sample::HostImage;
use xrun_core::dataset::split::Split;
use xrun_core::files::file;
use xrun_core::printable;
use xrun_core::settings::sections::Limits;
use xrun_core::units::Bytes;

/// Maximum number of images in the cache; the cap in bytes is reached first.
const IMAGES_MAX: u64 = 10_000_000;

/// The text of an example as a model sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    /// Tokens of `question: … \nanswer: `.
    pub prompt: Vec<u32>,
    /// Tokens of the answer, without the end of text. Their bytes are those of `answer_text`, in order.
    pub answer: Vec<u32>,
    /// Text of the answer in the file.
    pub answer_text: String,
    /// Messages of system and user.
    pub question: String,
}

impl DeepSize for Text {
    fn deep_size(&self) -> u64 {
        let tokens = (self.prompt.capacity() + self.answer.capacity()) * size_of::<u32>();
        (size_of::<Self>() + tokens + self.answer_text.capacity() + self.question.capacity()) as u64
    }
}

/// An example as a model sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Example {
    /// A square of `image_size` pixels.
    pub image: HostImage,
    /// Its question and answer as tokens.
    pub text: Text,
}

impl DeepSize for Example {
    fn deep_size(&self) -> u64 {
        self.image.deep_size() + self.text.deep_size()
    }
}

xrun_core::buffers! {
    /// The buffers of an [`ImageTextStore`].
    pub struct Buffers {
        /// Scaled images.
        pub cache: Buffer,
        /// Memory that all threads together may use to decode: the workers, and the training thread in a validation.
        pub decoding: Buffer,
        /// Position of each example in its file.
        pub index: Buffer,
        /// Tables from which the vocabulary was learnt; `None` for one of files.
        pub learning: Option<Buffer>,
    }
}

impl Buffers {
    /// Declares them for a library of this size. `limits` give the room for decoding and the number of threads.
    pub fn new(library: &Library, loader: &LoaderSettings, limits: &Limits) -> Self {
        let key = format!("{}.image_cache", loader.section);
        let cache = Cap { items: IMAGES_MAX, bytes: loader.image_cache.0 };
        let one = HostImage::bytes(loader.image_size, loader.image_size);
        let index = Cap { items: library.sample_count(), bytes: library.index_bytes().max(library.opening_bytes) };
        Self {
            cache: Buffer::cache("image_cache", key, cache, library.images * one),
            decoding: decoding_buffer(library.largest.as_ref().map(|largest| largest.bytes), "image", limits),
            learning: None,
            index: Buffer::new("dataset_index", Policy::Refuse, index)
                .because("position of each example in its file, and what finds repeated images while it is opened"),
        }
    }
}

/// Examples of a data set by their split and number; used by many threads at once.
#[derive(Debug)]
pub struct ImageTextStore {
    /// The index that it reads by.
    pub library: Library,
    /// Tokenizer of its texts.
    pub tokenizer: Tokenizer,
    side: usize,
    /// Scaled images by [`ImageTextStore::image_key`].
    pub cache: ByteCache<(u32, u32), HostImage>,
    decoding: MemoryBudget,
    _index: Registration,
    _learning: Option<Registration>,
    /// Its buffers in the ledger.
    pub buffers: Buffers,
}

impl ImageTextStore {
    /// Makes a store of a library whose examples fit into a sequence ([`Library::fit`]).
    pub fn new(
        library: Library,
        tokenizer: Tokenizer,
        loader: &LoaderSettings,
        limits: &Limits,
        ledger: &Ledger,
    ) -> Self {
        let (learning, _learning) = tokenizer.register_learning(ledger).unzip();
        let buffers = Buffers { learning, ..Buffers::new(&library, loader, limits) };
        let index = buffers.index.register_opened(ledger, buffers.index.cap.items, library.index_bytes());
        Self {
            library,
            tokenizer,
            side: loader.image_size,
            cache: ByteCache::new(ledger, &buffers.cache),
            decoding: MemoryBudget::new(ledger, &buffers.decoding),
            _index: index,
            _learning,
            buffers,
        }
    }

    /// Examples of a split.
    pub fn count(&self, split: Split) -> u64 {
        self.library.places(split).len() as u64
    }

    /// Example `number` of a split. The same whatever is kept.
    ///
    /// # Errors
    /// There is none, or its file or image was changed since the data set was opened, or is damaged where only decoding
    /// shows it.
    pub fn example(&self, split: Split, number: u64) -> Result<Example, DataError> {
        let (place, record) = self.library.record(split, number)?;
        let image = self.scaled(split, &place, &record)?;
        Ok(Example { image, text: self.tokenised(split, &place, record)? })
    }

    /// The text of an example, without its image.
    ///
    /// # Errors
    /// The errors of [`ImageTextStore::example`].
    pub fn text(&self, split: Split, number: u64) -> Result<Text, DataError> {
        let (place, record) = self.library.record(split, number)?;
        self.tokenised(split, &place, record)
    }

    /// The image of an example as it is in its file, turned, in all its pixels. It is never kept here.
    ///
    /// # Errors
    /// The errors of [`ImageTextStore::example`].
    pub fn original(&self, split: Split, number: u64) -> Result<HostImage, DataError> {
        let (place, record) = self.library.record(split, number)?;
        self.decoded(split, &place, &record)
    }

    /// Pixels of the image of an example as it is in its file. It is not decoded.
    ///
    /// # Errors
    /// The errors of [`ImageTextStore::example`].
    pub fn original_pixels(&self, split: Split, number: u64) -> Result<u64, DataError> {
        let (place, record) = self.library.record(split, number)?;
        let root = &self.library.source(split).root;
        let head = match &record.image {
            Image::Inline(url) => image_file::inline(url).and_then(|bytes| image_file::head(Cursor::new(bytes))),
            Image::File(name) => located(root, name).and_then(|name| {
                let opened = file::open(&root.join(name)).map(BufReader::new);
                opened.map_err(|error| unreadable(&error)).and_then(image_file::head)
            }),
        };
        let Head { width, height, .. } = head.map_err(|wrong| self.failure(split, &place, &record, wrong))?;
        Ok(u64::from(width) * u64::from(height))
    }

    /// The number of the image of an example in its file, and of the file.
    pub fn image_key(&self, split: Split, number: u64) -> Option<(u32, u32)> {
        let place = self.library.places(split).get(usize::try_from(number).ok()?)?;
        Some(self.library.image_key(split, place))
    }

    fn tokenised(&self, split: Split, place: &ExampleLocation, record: Record) -> Result<Text, DataError> {
        let prompt = self.tokenizer.encode(&record.prompt())?;
        let answer = self.tokenizer.encode(&record.answer)?;
        let bytes: usize = answer.iter().map(|token| self.tokenizer.bytes(*token)).sum();
        if bytes != record.answer.len() {
            let message = format!(
                "{}: the tokens of the answer have {bytes} bytes, and the answer has {}; its loss would be taken of \
                 the wrong tokens: name a byte-level vocabulary with `encoder` and `merges`",
                place.called(),
                record.answer.len()
            );
            return Err(DataError::file(self.library.source(split).file.path(), message));
        }
        Ok(Text { prompt, answer, answer_text: record.answer, question: record.question })
    }

    fn scaled(&self, split: Split, place: &ExampleLocation, record: &Record) -> Result<HostImage, DataError> {
        let key = self.library.image_key(split, place);
        if let Some(image) = self.cache.get(&key) {
            return Ok(image);
        }
        // The original ends here.
        let image = image_file::scaled(&self.decoded(split, place, record)?, self.side);
        self.cache.insert(key, image.clone());
        Ok(image)
    }

    fn decoded(&self, split: Split, place: &ExampleLocation, record: &Record) -> Result<HostImage, DataError> {
        let root = &self.library.source(split).root;
        let failure = |wrong: Fault| self.failure(split, place, record, wrong);
        let file = match &record.image {
            Image::Inline(_) => None,
            Image::File(name) => Some(root.join(located(root, name).map_err(failure)?)),
        };
        let length = match (&file, &record.image) {
            (Some(path), _) => std::fs::metadata(path).map_err(|error| failure(unreadable(&error)))?.len(),
            (None, Image::Inline(text) | Image::File(text)) => text.len() as u64,
        };
        let read = || match (&file, &record.image) {
            (Some(path), _) => file::bytes(path, image_file::BOUNDS.file_bytes).map_err(|error| unreadable(&error)),
            (None, Image::Inline(text) | Image::File(text)) => image_file::inline(text),
        };
        let room = |pixels: [u32; 2]| {
            let [width, height] = pixels.map(u64::from);
            let needed = decoding_bytes(width, height, length) + LINE_COPIES * u64::from(place.length);
            self.decoding.take(needed).ok_or_else(|| {
                let most = Bytes(self.decoding.cap().bytes);
                let message = format!("decoding the image takes up to {}, and the plan has {most}", Bytes(needed));
                failure(("too_large_image", format!("{message}; it was another image when the run began")))
            })
        };
        let small = room([0, 0])?;
        let Head { width, height, .. } =
            read().and_then(|bytes| image_file::head(Cursor::new(bytes))).map_err(failure)?;
        drop(small);
        let _room = room([width, height])?;
        let most = decoding_bytes(width.into(), height.into(), length);
        read().and_then(|bytes| image_file::decode(&bytes, most)).map_err(failure)
    }

    fn failure(&self, split: Split, place: &ExampleLocation, record: &Record, (_, message): Fault) -> DataError {
        let name = match &record.image {
            Image::File(name) => format!("{}: ", printable::line(name, 100)),
            Image::Inline(_) => String::new(),
        };
        DataError::file(self.library.source(split).file.path(), format!("{}: {name}{message}", place.called()))
    }
}

fn unreadable(error: &std::io::Error) -> Fault {
    ("missing_image", format!("cannot be read: {error}"))
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
