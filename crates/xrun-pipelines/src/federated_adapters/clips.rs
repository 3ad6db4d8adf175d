//! How does a clip get from its file into a batch? As the encoder's tokens where these are kept, and else as its spectrum.
//!
//! The encoder is frozen, so its tokens are kept on the host, detached, up to a cap in bytes. They are made one clip at a time
//! and rounded before the first use: so it does not matter to a bit which of them are kept.

use std::sync::Arc;

use half::f16;

use xrun_core::bounded::HeldBytes;
use xrun_core::bounded::buffer::Buffer;
use xrun_core::bounded::cache::{ByteCache, CacheCounters};
use xrun_core::bounded::ledger::{Cap, Ledger, Policy};
use xrun_core::dataset::error::DataError;
use xrun_data::sound_clips::library::Options;
use xrun_data::sound_clips::settings::EmbeddingDtype;
use xrun_data::sound_clips::store::{ClipStore, LogMel};

/// Clips in the cache of embeddings; the bytes are reached first.
const CLIPS_MAX: u64 = 10_000_000;

/// The encoder's tokens of a clip, `[tokens, width]`, row by row.
#[derive(Clone, Debug, PartialEq)]
pub enum Embedding {
    /// In floats of 32 bits, as the encoder made them.
    Single(Arc<[f32]>),
    /// Rounded to floats of 16 bits.
    Half(Arc<[f16]>),
}

impl HeldBytes for Embedding {
    fn held_bytes(&self) -> u64 {
        match self {
            Self::Single(numbers) => size_of_val(numbers.as_ref()) as u64,
            Self::Half(numbers) => size_of_val(numbers.as_ref()) as u64,
        }
    }
}

impl Embedding {
    /// Rounds the numbers to `dtype`.
    pub fn new(numbers: &[f32], dtype: EmbeddingDtype) -> Self {
        match dtype {
            EmbeddingDtype::Float32 => Self::Single(numbers.into()),
            EmbeddingDtype::Float16 => Self::Half(numbers.iter().copied().map(f16::from_f32).collect()),
        }
    }

    /// Adds the numbers to a row.
    pub fn extend(&self, row: &mut Vec<f32>) {
        match self {
            Self::Single(numbers) => row.extend(numbers.iter()),
            Self::Half(numbers) => row.extend(numbers.iter().map(|number| number.to_f32())),
        }
    }
}

/// A clip as it is in a batch.
#[derive(Clone, Debug, PartialEq)]
pub enum Sound {
    /// What the encoder made of it before.
    Embedding(Embedding),
    /// `[frames, bands]`, for the encoder.
    Spectrum(LogMel),
}

impl HeldBytes for Sound {
    fn held_bytes(&self) -> u64 {
        match self {
            Self::Embedding(embedding) => embedding.held_bytes(),
            Self::Spectrum(spectrum) => spectrum.held_bytes(),
        }
    }
}

/// Clips on the host.
#[derive(Clone, Debug, PartialEq)]
pub struct ClipBatch {
    /// Numbers in the data set.
    pub clips: Vec<u32>,
    /// Of each clip, as the data set numbers them.
    pub classes: Vec<u32>,
    /// What goes into the model of each clip.
    pub sounds: Vec<Sound>,
    /// Which clips these are, for messages.
    pub described: String,
}

/// Characters of [`ClipBatch::described`].
const DESCRIBED_MAX: usize = 120;

impl HeldBytes for ClipBatch {
    fn held_bytes(&self) -> u64 {
        let numbers = (self.clips.capacity() + self.classes.capacity()) * size_of::<u32>();
        let sounds: u64 = self.sounds.iter().map(HeldBytes::held_bytes).sum();
        let list = self.sounds.capacity() * size_of::<Sound>();
        (size_of::<Self>() + numbers + list + self.described.capacity()) as u64 + sounds
    }
}

impl ClipBatch {
    /// Clips in the batch.
    pub fn size(&self) -> usize {
        self.clips.len()
    }

    /// The most that a batch of `size` clips holds, each of at most `clip_bytes`.
    pub fn bytes_max(size: usize, clip_bytes: u64) -> u64 {
        let each = 2 * size_of::<u32>() + size_of::<Sound>();
        (size_of::<Self>() + size * each + DESCRIBED_MAX) as u64 + size as u64 * clip_bytes
    }
}

/// Clips of a data set; used by many threads at once.
#[derive(Debug)]
pub struct Sounds {
    store: ClipStore,
    embeddings: ByteCache<u32, Embedding>,
    dtype: EmbeddingDtype,
}

/// The cache of embeddings: of `clips` clips that have `numbers` numbers each.
pub fn embedding_cache(data: &Options, clips: u64, numbers: u64) -> Buffer {
    let key = format!("{}.embedding_cache", data.section);
    let cap = Cap { items: CLIPS_MAX, bytes: data.embedding_cache.0 };
    let fills = clips * numbers * data.embedding_dtype.bytes();
    Buffer::new("embedding_cache", Policy::Evict, cap).because(format!("`{key}`")).key(key).fills(fills)
}

impl Sounds {
    /// Takes over the store. `cache` holds what the encoder makes, rounded to `dtype`.
    pub fn new(store: ClipStore, cache: &Buffer, dtype: EmbeddingDtype, ledger: &Ledger) -> Self {
        Self { store, embeddings: ByteCache::new(ledger, cache), dtype }
    }

    /// What the clips come from.
    pub fn store(&self) -> &ClipStore {
        &self.store
    }

    /// A batch of these clips.
    ///
    /// # Errors
    /// A clip cannot be read any more.
    pub fn batch(&self, clips: Vec<u32>, described: &str) -> Result<ClipBatch, DataError> {
        let sounds = clips.iter().map(|clip| self.sound(*clip)).collect::<Result<Vec<_>, _>>()?;
        let classes = clips.iter().map(|clip| self.class(*clip)).collect();
        let described = described[..described.floor_char_boundary(DESCRIBED_MAX)].to_owned();
        Ok(ClipBatch { clips, classes, sounds, described })
    }

    fn sound(&self, clip: u32) -> Result<Sound, DataError> {
        match self.embeddings.get(&clip) {
            Some(embedding) => Ok(Sound::Embedding(embedding)),
            None => Ok(Sound::Spectrum(self.store.log_mel(clip)?)),
        }
    }

    fn class(&self, clip: u32) -> u32 {
        self.store.library().clips[clip as usize].class
    }

    /// Rounds what the encoder made of a clip, and keeps it as long as there is room.
    pub fn keep(&self, clip: u32, numbers: &[f32]) -> Embedding {
        let embedding = Embedding::new(numbers, self.dtype);
        self.embeddings.insert(clip, embedding.clone());
        embedding
    }

    /// Rounds what the encoder made of a sound that is no clip of the data, as those of clips are. It is not kept.
    pub fn rounded(&self, numbers: &[f32]) -> Embedding {
        Embedding::new(numbers, self.dtype)
    }

    /// How often the encoder's tokens were kept, and how often they were not there.
    pub fn counters(&self) -> CacheCounters {
        self.embeddings.counters()
    }

    /// Evicts both caches down to a share of their caps; returns the bytes that went.
    pub fn evict_to_share(&self, share: f64) -> u64 {
        let kept = (self.embeddings.cap().bytes as f64 * share) as u64;
        self.embeddings.evict_to(kept) + self.store.evict_to_share(share)
    }
}
