//! Who decodes pictures, and how many of them are kept? A cache bounded by bytes, shared by all workers.

use std::fs::File;
use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};

use image::{DynamicImage, ImageDecoder, ImageError, ImageReader, Limits};

use super::library::{Frame, Library, Split, Video};
use super::orientation;
use super::settings::ExifOrientation;
use super::whole::FILE_BYTES_MAX;
use crate::bounded::HeldBytes;
use crate::bounded::cache::{ByteCache, CacheCounters};
use crate::data::error::DataError;
use crate::data::sample::{Picture, PictureSource};
use crate::experiment::sections;
use crate::memory::ledger::{Cap, Holding, Ledger, Policy};
use crate::results::format::PlannedOwner;

const FRAME_CACHE: &str = "frame_cache";
const INDEX: &str = "dataset_index";
/// Frames in the cache; the bytes are reached first.
const FRAMES_MAX: u64 = 1_000_000;
/// A decoded picture, and what a decoder needs besides.
const DECODE_BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// Decodes the pictures of a data set.
#[derive(Debug)]
pub struct FrameStore {
    root: PathBuf,
    exif_orientation: ExifOrientation,
    cache: ByteCache<PathBuf, Picture>,
    _index: Holding,
}

impl FrameStore {
    /// The index is counted here, too: it lives as long as its pictures are asked for.
    pub fn new(library: &Library, ledger: &Ledger, cache: u64) -> Self {
        let bytes = index_bytes(library);
        let items = index_items(library);
        let index = ledger.register(INDEX, Cap { items, bytes }, Policy::Refuse);
        index.set(items, bytes);
        let cap = Cap { items: FRAMES_MAX, bytes: cache };
        Self {
            root: library.root.clone(),
            exif_orientation: library.exif_orientation,
            cache: ByteCache::new(ledger, FRAME_CACHE, cap),
            _index: index,
        }
    }

    pub fn counters(&self) -> CacheCounters {
        self.cache.counters()
    }

    /// Evicts down to a share of the cap; returns the bytes that went.
    pub fn evict_to_share(&self, share: f64) -> u64 {
        self.cache.evict_to((self.cache.cap().bytes as f64 * share) as u64)
    }
}

impl PictureSource for FrameStore {
    fn picture(&self, path: &Path) -> Result<Picture, DataError> {
        let key = path.to_path_buf();
        if let Some(picture) = self.cache.get(&key) {
            return Ok(picture);
        }
        let picture = decode(&self.root.join(path), path, self.exif_orientation)?;
        self.cache.insert(key, picture.clone());
        Ok(picture)
    }
}

/// A JPEG or PNG file as 8-bit RGB, turned as `rule` says; `name` is for messages.
///
/// # Errors
/// The file does not read, or is no picture that can be decoded.
pub fn decode(path: &Path, name: &Path, rule: ExifOrientation) -> Result<Picture, DataError> {
    let bytes = read(path).map_err(|error| DataError::file(name, format!("cannot be read: {error}")))?;
    let broken = |error: String| {
        DataError::file(
            name,
            format!("the picture cannot be decoded: {error}; repair it or take it out of the annotations"),
        )
    };
    let mut reader =
        ImageReader::new(Cursor::new(&bytes)).with_guessed_format().map_err(|error| broken(error.to_string()))?;
    let mut limits = Limits::default();
    limits.max_alloc = Some(DECODE_BYTES_MAX);
    reader.limits(limits.clone());
    let decoded = |reader: ImageReader<_>| {
        let mut decoder = reader.into_decoder()?;
        // The picture itself counts as well, as in `ImageReader::decode`.
        limits.reserve(decoder.total_bytes())?;
        decoder.set_limits(limits)?;
        let orientation = orientation::of(&mut decoder, rule)?;
        Ok(orientation::applied(DynamicImage::from_decoder(decoder)?.into_rgb8(), orientation))
    };
    let decoded = decoded(reader).map_err(|error: ImageError| broken(error.to_string()))?;
    Ok(Picture { width: decoded.width() as usize, height: decoded.height() as usize, rgb: decoded.into_raw().into() })
}

/// A file that grew beyond what may be read since the data set was opened is cut off.
fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let length = file.metadata()?.len().min(FILE_BYTES_MAX);
    let mut bytes = Vec::with_capacity(length as usize + 1);
    file.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The owners that [`FrameStore::new`] registers. A validation looks at `validation_frames` at most, the same each time.
pub fn planned_owners(library: &Library, limits: &sections::Limits, validation_frames: u64) -> Vec<PlannedOwner> {
    let owner = |name: &str, policy, items, bytes, because: &str| {
        PlannedOwner::on_host(name, policy, Cap { items, bytes }, because)
    };
    let cache = owner(FRAME_CACHE, Policy::Evict, FRAMES_MAX, limits.frame_cache.0, "`limits.frame_cache`");
    vec![
        PlannedOwner { fills: Some(decoded_bytes(library, validation_frames)), ..cache },
        owner(INDEX, Policy::Refuse, index_items(library), index_bytes(library), "names and boxes of the data set"),
    ]
}

/// All pictures that training and validation look at, decoded. Reference pictures are taken to be as large as the frames
/// are on average.
fn decoded_bytes(library: &Library, validation_frames: u64) -> u64 {
    let trained =
        |frame: &&Frame| frame.objects.iter().any(|object| library.classes[object.class].split == Split::Train);
    let frames = || library.videos.iter().flat_map(|video| &video.frames);
    let count = frames().count() as u64;
    let bytes: u64 = frames().map(|frame| (frame.width * frame.height * 3) as u64).sum();
    let of_training = frames().filter(trained).count() as u64;
    let references: u64 = library.classes.iter().map(|class| class.references.len() as u64).sum();
    let seen = of_training + validation_frames.min(count - of_training) + references;
    (u128::from(bytes) * u128::from(seen) / u128::from(count.max(1))) as u64
}

fn index_items(library: &Library) -> u64 {
    library.videos.iter().map(|video| video.frames.len() as u64).sum()
}

fn index_bytes(library: &Library) -> u64 {
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
            class.name.held_bytes() as usize
                + own
                + class.references.capacity() * size_of::<super::library::Reference>()
        })
        .sum();
    let videos: usize = library.videos.iter().map(|video| size_of::<Video>() + video.name.len()).sum();
    (videos + frames + references) as u64
}

#[cfg(test)]
#[path = "frames_tests.rs"]
mod tests;
