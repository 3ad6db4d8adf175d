//! Log-mel spectra of the clips of a data set, in a cache that is bounded by bytes and shared by all workers.

use std::path::Path;
use std::sync::Arc;

use super::library::Library;
use super::log_mel::FilterBank;
use super::resample::{RATE, resample};
use super::settings::LoaderSettings;
use super::sound;
use crate::reading::decoding::decoding_buffer;
use xrun_core::bounded::buffer::Buffer;
use xrun_core::bounded::cache::ByteCache;
use xrun_core::bounded::ledger::{Cap, Ledger, Policy, Registration};
use xrun_core::bounded::memory_budget::MemoryBudget;
use xrun_core::dataset::error::DataError;
use xrun_core::files::file;
use xrun_core::settings::sections::Limits;
use xrun_core::units::Bytes;

/// Clips in the cache; the bytes are reached first.
const CLIPS_MAX: u64 = 10_000_000;

/// A log-mel spectrum: `[frames, bands]`, row by row, normalised.
pub type LogMel = Arc<[f32]>;

xrun_core::buffers! {
    /// The buffers of a [`ClipStore`].
    pub struct Buffers {
        /// Log-mel spectra.
        pub cache: Buffer,
        /// Memory that all threads together may use to decode: the workers, and the training thread in a validation.
        pub decoding: Buffer,
        /// Names, classes and folds of the clips.
        pub index: Buffer,
    }
}

impl Buffers {
    /// Declares them for spectra of `bands` bands and `frames` frames. `limits` give the room for decoding and the number of threads.
    fn new(library: &Library, loader: &LoaderSettings, limits: &Limits, bands: usize, frames: usize) -> Self {
        let clips = library.clips.len() as u64;
        let key = format!("{}.clip_cache", loader.section);
        let cap = Cap { items: CLIPS_MAX, bytes: loader.clip_cache.0 };
        let working_set_bytes = clips * (bands * frames * size_of::<f32>()) as u64;
        let index = Cap { items: clips, bytes: library.index_bytes() + library.opening_bytes };
        Self {
            cache: Buffer::cache("clip_cache", key, cap, working_set_bytes),
            decoding: decoding_buffer(Some(library.decoding_bytes), "clip", limits),
            index: Buffer::new("dataset_index", Policy::Refuse, index).because("names, classes and folds of the clips"),
        }
    }
}

/// Log-mel spectra of the clips of a data set by their number; used by many threads at once.
#[derive(Debug)]
pub struct ClipStore {
    /// The index that it reads by.
    pub library: Library,
    /// Number of samples of a clip at 16 kHz.
    pub samples_of_clip: usize,
    frames: usize,
    bank: FilterBank,
    /// Log-mel spectra by the numbers of their clips.
    pub cache: ByteCache<u32, LogMel>,
    decoding: MemoryBudget,
    _index: Registration,
    /// Its buffers in the ledger.
    pub buffers: Buffers,
}

impl ClipStore {
    /// Makes a store of spectra of `bands` mel bands and `frames` frames of 10 ms.
    ///
    /// # Errors
    /// A clip needs more than `limits.decode_memory`.
    pub fn new(
        library: Library,
        loader: &LoaderSettings,
        limits: &Limits,
        [bands, frames]: [usize; 2],
        ledger: &Ledger,
    ) -> Result<Self, DataError> {
        let (needed, most) = (library.decoding_bytes, limits.decode_memory);
        if needed > most.0 {
            let message = format!(
                "has a clip of which decoding takes up to {}, more than `limits.decode_memory` = {most}",
                Bytes(needed)
            );
            return Err(DataError::file(&library.directory, format!("{message}; make it shorter, or raise the limit")));
        }
        let buffers = Buffers::new(&library, loader, limits, bands, frames);
        let index = buffers.index.register_opened(ledger, buffers.index.cap.items, library.index_bytes());
        Ok(Self {
            library,
            samples_of_clip: (loader.clip_seconds * f64::from(RATE)).round() as usize,
            frames,
            bank: FilterBank::new(bands),
            cache: ByteCache::new(ledger, &buffers.cache),
            decoding: MemoryBudget::new(ledger, &buffers.decoding),
            _index: index,
            buffers,
        })
    }

    /// The log-mel spectrum of clip `number` of [`Library::clips`]: `[frames, bands]`. The same whatever is kept.
    ///
    /// # Errors
    /// The clip was changed or taken away since the data set was opened.
    pub fn log_mel(&self, number: u32) -> Result<LogMel, DataError> {
        if let Some(found) = self.cache.get(&number) {
            return Ok(found);
        }
        let samples = self.samples(number)?;
        let made: LogMel = self.bank.log_mel(&samples, self.frames).into();
        self.cache.insert(number, made.clone());
        Ok(made)
    }

    /// The samples of a clip at 16 kHz, `clip_seconds` long, with zeros at the end where it is shorter.
    ///
    /// # Errors
    /// The errors of [`ClipStore::log_mel`].
    pub fn samples(&self, number: u32) -> Result<Vec<f32>, DataError> {
        let clip = self.library.clips.get(number as usize);
        let clip = clip.ok_or_else(|| DataError::content(format!("there is no clip {number}")))?;
        let path = self.library.directory.join(&clip.file);
        let changed = |message: String| DataError::file(&path, format!("{message}; it was changed during the run"));
        self.samples_of(&path).map_err(changed)
    }

    /// The samples of a WAV file, as those of a clip.
    fn samples_of(&self, path: &Path) -> Result<Vec<f32>, String> {
        // A file of no data set may be larger than all of them, and takes all of the room.
        let length = std::fs::metadata(path).map_or(0, |about| about.len());
        let most = self.library.decoding_bytes.max(sound::decoding_bytes(length, 0)).min(self.decoding.cap().bytes);
        let _room = self.decoding.take(most).ok_or("no room to decode")?;
        let bytes = file::bytes(path, length.min(sound::FILE_BYTES_MAX)).map_err(|error| error.to_string())?;
        let sound = sound::read(&bytes, most).map_err(|(_, message)| message)?;
        let mut samples = resample(&sound.samples, sound.rate)?;
        samples.resize(self.samples_of_clip, 0.0);
        Ok(samples)
    }

    /// The log-mel spectrum of a WAV file that is in no data set, as of a clip: of its first `clip_seconds`. It is not kept.
    ///
    /// # Errors
    /// For people, without the name: the file cannot be read, or is no sound.
    pub fn log_mel_of(&self, path: &Path) -> Result<LogMel, String> {
        Ok(self.bank.log_mel(&self.samples_of(path)?, self.frames).into())
    }
}
