//! Decoded images of a data set, in a cache that is bounded by bytes and shared by all workers.

use std::path::{Path, PathBuf};

use super::classes::table_bytes;
use super::library::{Frame, Library, Video};
use crate::reading::decoding::{decode, decoding_buffer, head_bytes, needed};
use crate::reading::orientation::ExifOrientation;
use xrun_core::bounded::DeepSize;
use xrun_core::bounded::buffer::Buffer;
use xrun_core::bounded::cache::ByteCache;
use xrun_core::bounded::ledger::{Cap, Ledger, Policy, Registration};
use xrun_core::bounded::memory_budget::MemoryBudget;
use xrun_core::dataset::error::DataError;
use xrun_core::dataset::sample::{HostImage, ImageSource};
use xrun_core::dataset::split::Split;
use xrun_core::settings::sections;
use xrun_core::units::Bytes;

/// Maximum number of frames in the cache; the cap in bytes is reached first.
const FRAMES_MAX: u64 = 1_000_000;

xrun_core::buffers! {
    /// The buffers of a [`FrameStore`].
    pub struct Buffers {
        /// Decoded images.
        pub cache: Buffer,
        /// Memory that all threads together may use to decode: the workers, and the training thread in a validation.
        pub decoding: Buffer,
        /// Names and boxes of the data set.
        pub index: Buffer,
        /// Tables by which the images of each class are found; `None` where no pipeline needs them.
        pub class_tables: Option<Buffer>,
        ;
        /// Bytes of the index once the data set is open.
        index_bytes: u64,
    }
}

impl Buffers {
    /// Declares them. A validation uses at most `validation_frames`, the same each time.
    pub fn new(library: &Library, limits: &sections::Limits, validation_frames: u64) -> Self {
        let cache = Cap { items: FRAMES_MAX, bytes: limits.frame_cache.0 };
        let index = Cap { items: library.sample_count(), bytes: index_bytes(library).max(library.opening_bytes) };
        Self {
            index_bytes: index_bytes(library),
            class_tables: None,
            cache: Buffer::cache("frame_cache", "limits.frame_cache", cache, decoded_bytes(library, validation_frames)),
            decoding: decoding_buffer(library.largest.as_ref().map(|largest| largest.bytes), "image", limits),
            index: Buffer::new("dataset_index", Policy::Refuse, index)
                .because("names and boxes of the data set, and its annotations while it is opened"),
        }
    }

    /// Adds the index of the classes, of these bytes, and the tables by which it is made.
    pub fn with_class_index(mut self, library: &Library, bytes: u64) -> Self {
        self.index_bytes += bytes;
        self.index.cap.bytes = self.index.cap.bytes.max(self.index_bytes);
        let cap = Cap { items: library.sample_count(), bytes: table_bytes(library) };
        let because = "tables by which the images of each class are found, before the first step";
        self.class_tables = Some(Buffer::new("class_tables", Policy::Refuse, cap).because(because));
        self
    }
}

/// Decodes the images of a data set.
#[derive(Debug)]
pub struct FrameStore {
    root: PathBuf,
    exif_orientation: ExifOrientation,
    decoding: MemoryBudget,
    /// Decoded images by their paths.
    pub cache: ByteCache<PathBuf, HostImage>,
    _index: Registration,
    _class_tables: Option<Registration>,
}

impl FrameStore {
    /// Makes an empty store. The index enters the ledger here, too: it lives as long as the store.
    pub fn new(library: &Library, ledger: &Ledger, buffers: &Buffers) -> Self {
        let index = buffers.index.register_opened(ledger, buffers.index.cap.items, buffers.index_bytes);
        let class_tables = buffers.class_tables.as_ref().map(|buffer| buffer.register_opened(ledger, 0, 0));
        Self {
            root: library.root.clone(),
            exif_orientation: library.exif_orientation,
            decoding: MemoryBudget::new(ledger, &buffers.decoding),
            cache: ByteCache::new(ledger, &buffers.cache),
            _index: index,
            _class_tables: class_tables,
        }
    }
}

impl ImageSource for FrameStore {
    fn image(&self, path: &Path) -> Result<HostImage, DataError> {
        let key = path.to_path_buf();
        if let Some(image) = self.cache.get(&key) {
            return Ok(image);
        }
        let whole = self.root.join(path);
        let room = |needed| {
            self.decoding.take(needed).ok_or_else(|| {
                let most = Bytes(self.decoding.cap().bytes);
                let message = format!("decoding it takes up to {}, and the plan has {most}", Bytes(needed));
                DataError::file(path, format!("{message}; it was another image when the run began"))
            })
        };
        let head = room(head_bytes(&whole, path)?)?;
        let needed = needed(&whole, path)?;
        drop(head);
        let room = room(needed)?;
        let image = decode(&whole, path, self.exif_orientation, needed)?;
        drop(room);
        self.cache.insert(key, image.clone());
        Ok(image)
    }
}

/// Bytes of all images that training and validation use, decoded. Reference images are assumed to be as large as the frames
/// on average.
fn decoded_bytes(library: &Library, validation_frames: u64) -> u64 {
    let trained = |(video, frame): &(&Video, &Frame)| {
        let of_training =
            |class: usize| library.classes[class].split == Some(Split::Train) && library.serves(video, class);
        frame.objects.iter().any(|object| of_training(object.class))
    };
    let frames = || library.videos.iter().flat_map(|video| video.frames.iter().map(move |frame| (video, frame)));
    let count = frames().count() as u64;
    let bytes: u64 = frames().map(|(_, frame)| (frame.width * frame.height * 3) as u64).sum();
    let of_training = frames().filter(trained).count() as u64;
    let references: u64 = library.classes.iter().map(|class| class.references.len() as u64).sum();
    let seen = of_training + validation_frames.min(count - of_training) + references;
    (u128::from(bytes) * u128::from(seen) / u128::from(count.max(1))) as u64
}

/// Bytes of the index.
pub fn index_bytes(library: &Library) -> u64 {
    let path = |path: &Path| path.as_os_str().len();
    let frames: usize = library
        .videos
        .iter()
        .flat_map(|video| &video.frames)
        .map(|frame| {
            size_of_val(frame) + path(&frame.path) + frame.objects.capacity() * size_of::<super::library::Object>()
        })
        .sum();
    let references: usize = library
        .classes
        .iter()
        .map(|class| {
            let own: usize = class.references.iter().map(|reference| path(&reference.path)).sum();
            class.name.deep_size() as usize + own + class.references.capacity() * size_of::<super::library::Reference>()
        })
        .sum();
    let videos: usize = library.videos.iter().map(|video| size_of::<Video>() + video.name.len()).sum();
    (videos + frames + references) as u64
}

#[cfg(test)]
#[path = "frames_tests.rs"]
mod tests;
