//! Who decodes pictures, and how many of them are kept? A cache bounded by bytes, shared by all workers.

use std::fs::File;
use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};

use image::{DynamicImage, ImageDecoder, ImageError, ImageReader, Limits};

use super::library::{Frame, Largest, Library, Split, Video};
use super::orientation;
use super::settings::ExifOrientation;
use super::whole::FILE_BYTES_MAX;
use xrun_core::bounded::HeldBytes;
use xrun_core::bounded::buffer::Buffer;
use xrun_core::bounded::cache::{ByteCache, CacheCounters};
use xrun_core::bounded::ledger::{Cap, Holding, Ledger, Policy};
use xrun_core::bounded::room::Room;
use xrun_core::dataset::error::DataError;
use xrun_core::dataset::sample::{Picture, PictureSource};
use xrun_core::settings::sections;
use xrun_core::units::Bytes;

/// Frames in the cache; the bytes are reached first.
const FRAMES_MAX: u64 = 1_000_000;
/// A decoded picture, and what a decoder needs besides.
const DECODE_BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// A pixel while it is decoded: four channels of 16 bits, and the three of 8 bits that they become; or the coefficients
/// of a progressive JPEG beside its pixels. Turning the three of 8 bits afterwards takes less.
const PIXEL_BYTES: u64 = 12;
/// Tables and buffers of a decoder, whatever the size of the picture.
const DECODER_BYTES: u64 = 256 * 1024;

/// What decoding a picture takes at most; `length` is that of its file.
pub fn decoding_bytes(width: u64, height: u64, length: u64) -> u64 {
    // A file that was replaced since may claim any size.
    width.saturating_mul(height).saturating_mul(PIXEL_BYTES).saturating_add(length + DECODER_BYTES)
}

/// The buffers of a [`FrameStore`].
#[derive(Clone, Debug)]
pub struct Buffers {
    /// Decoded pictures.
    pub cache: Buffer,
    /// What all threads together may take to decode: the workers, and the training thread in a validation.
    pub decoding: Buffer,
    /// Names and boxes of the data set.
    pub index: Buffer,
}

impl Buffers {
    /// A validation looks at `validation_frames` at most, the same each time.
    pub fn new(library: &Library, limits: &sections::Limits, validation_frames: u64) -> Self {
        let cache = Cap { items: FRAMES_MAX, bytes: limits.frame_cache.0 };
        let threads = limits.workers as u64 + 1;
        let all = library.largest.as_ref().map_or(u64::MAX, |largest| largest.bytes.saturating_mul(threads));
        let decoding = Cap { items: threads, bytes: limits.decoding.0.min(all) };
        let index = Cap { items: index_items(library), bytes: index_bytes(library) };
        Self {
            cache: Buffer::new("frame_cache", Policy::Evict, cache)
                .key("limits.frame_cache")
                .because("`limits.frame_cache`")
                .fills(decoded_bytes(library, validation_frames)),
            decoding: Buffer::new("decoding", Policy::Block, decoding)
                .key("limits.decoding")
                .because("`limits.decoding`, or the largest picture once for each thread"),
            index: Buffer::new("dataset_index", Policy::Refuse, index).because("names and boxes of the data set"),
        }
    }

    /// All of them.
    pub fn all(&self) -> [&Buffer; 3] {
        [&self.cache, &self.decoding, &self.index]
    }
}

/// Refuses a picture that could never be decoded.
///
/// # Errors
/// The largest one needs more than `limits.decoding`.
pub fn fits(largest: Option<&Largest>, limits: &sections::Limits) -> Result<(), DataError> {
    match largest {
        Some(Largest { path, width, height, bytes }) if *bytes > limits.decoding.0 => Err(DataError::file(
            path,
            format!(
                "is {width} x {height} pixels, and decoding it takes up to {}, more than `limits.decoding` = {}; make \
                 the picture smaller, or raise the limit",
                Bytes(*bytes),
                limits.decoding
            ),
        )),
        _ => Ok(()),
    }
}

/// Decodes the pictures of a data set.
#[derive(Debug)]
pub struct FrameStore {
    root: PathBuf,
    exif_orientation: ExifOrientation,
    decoding: Room,
    cache: ByteCache<PathBuf, Picture>,
    _index: Holding,
}

impl FrameStore {
    /// The index is counted here, too: it lives as long as its pictures are asked for.
    pub fn new(library: &Library, ledger: &Ledger, buffers: &Buffers) -> Self {
        let index = buffers.index.register(ledger);
        index.set(buffers.index.cap.items, buffers.index.cap.bytes);
        Self {
            root: library.root.clone(),
            exif_orientation: library.exif_orientation,
            decoding: Room::new(ledger, &buffers.decoding),
            cache: ByteCache::new(ledger, &buffers.cache),
            _index: index,
        }
    }

    /// How often a picture was kept, and how often it was decoded.
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
        let whole = self.root.join(path);
        let needed = needed(&whole, path)?;
        let room = self.decoding.take(needed).ok_or_else(|| {
            let most = Bytes(self.decoding.cap().bytes);
            let message = format!("decoding it takes up to {}, and the plan has {most}", Bytes(needed));
            DataError::file(path, format!("{message}; it was another picture when the run began"))
        })?;
        let picture = decode(&whole, path, self.exif_orientation)?;
        drop(room);
        self.cache.insert(key, picture.clone());
        Ok(picture)
    }
}

/// What decoding a file takes, by its head. Of one that does not read there is nothing to decode.
fn needed(path: &Path, name: &Path) -> Result<u64, DataError> {
    let length = std::fs::metadata(path).map(|about| about.len());
    let length = length.map_err(|error| DataError::file(name, format!("cannot be read: {error}")))?;
    let head = ImageReader::open(path).and_then(ImageReader::with_guessed_format).ok();
    let (width, height) = head.and_then(|head| head.into_dimensions().ok()).unwrap_or_default();
    Ok(decoding_bytes(width.into(), height.into(), length.min(FILE_BYTES_MAX)))
}

/// A JPEG or PNG file as 8-bit RGB, turned as `rule` says; `name` is for messages.
///
/// # Errors
/// The file does not read, or is no picture that can be decoded.
pub fn decode(path: &Path, name: &Path, rule: ExifOrientation) -> Result<Picture, DataError> {
    let bytes = read(path).map_err(|error| DataError::file(name, format!("cannot be read: {error}")))?;
    decode_bytes(&bytes, rule)
        .map_err(|error| DataError::file(name, format!("{error}; repair it or take it out of the annotations")))
}

/// As [`decode`], of the bytes of the file.
///
/// # Errors
/// For people: it is no picture that can be decoded.
pub fn decode_bytes(bytes: &[u8], rule: ExifOrientation) -> Result<Picture, String> {
    let broken = |error: String| format!("the picture cannot be decoded: {error}");
    let mut reader =
        ImageReader::new(Cursor::new(bytes)).with_guessed_format().map_err(|error| broken(error.to_string()))?;
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

/// All pictures that training and validation look at, decoded. Reference pictures are taken to be as large as the frames
/// are on average.
fn decoded_bytes(library: &Library, validation_frames: u64) -> u64 {
    let trained = |(video, frame): &(&Video, &Frame)| {
        let of_training = |class: usize| library.classes[class].split == Split::Train && library.serves(video, class);
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
