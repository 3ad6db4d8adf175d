//! Batches of clips: cached embeddings, and spectrograms of clips without one.
//!
//! The frozen encoder's embeddings are cached on the host up to a cap in bytes. Each is computed for one clip at a time and
//! rounded before its first use, which makes results independent of the cache to the bit.

use std::sync::Arc;

use half::f16;

use xrun_core::bounded::DeepSize;
use xrun_core::bounded::buffer::Buffer;
use xrun_core::bounded::cache::{ByteCache, CacheCounters};
use xrun_core::bounded::ledger::{Cap, Ledger};
use xrun_core::dataset::error::DataError;
use xrun_data::sound_clips::settings::EmbeddingDtype;
use xrun_data::sound_clips::settings::LoaderSettings;
use xrun_data::sound_clips::store::{ClipStore, LogMel};

/// Maximum number of cached embeddings, beyond the reach of the cap in bytes.
const CLIPS_MAX: u64 = 10_000_000;

/// Embedding of a clip, the encoder's tokens `[tokens, width]`, row-major.
#[derive(Clone, Debug, PartialEq)]
pub enum Embedding {
    /// 32-bit floats.
    Single(Arc<[f32]>),
    /// 16-bit floats.
    Half(Arc<[f16]>),
}

impl DeepSize for Embedding {
    fn deep_size(&self) -> u64 {
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

    /// Appends the numbers to `row`.
    pub fn extend(&self, row: &mut Vec<f32>) {
        match self {
            Self::Single(numbers) => row.extend(numbers.iter()),
            Self::Half(numbers) => row.extend(numbers.iter().map(|number| number.to_f32())),
        }
    }
}

/// Features of a clip in a batch.
#[derive(Clone, Debug, PartialEq)]
pub enum ClipFeatures {
    /// Cached embedding.
    Embedding(Embedding),
    /// Spectrogram `[frames, bands]` for the encoder.
    Spectrum(LogMel),
}

impl DeepSize for ClipFeatures {
    fn deep_size(&self) -> u64 {
        match self {
            Self::Embedding(embedding) => embedding.deep_size(),
            Self::Spectrum(spectrum) => spectrum.deep_size(),
        }
    }
}

/// Batch of clips on the host.
#[derive(Clone, Debug, PartialEq)]
pub struct ClipBatch {
    /// Numbers of the clips in the data set.
    pub clips: Vec<u32>,
    /// Class of each clip.
    pub classes: Vec<u32>,
    /// Features of each clip.
    pub features: Vec<ClipFeatures>,
    /// Round, node and number of the batch, for messages.
    pub description: String,
}

/// Maximum length of [`ClipBatch::description`] in bytes.
const DESCRIPTION_BYTES_MAX: usize = 120;

impl DeepSize for ClipBatch {
    fn deep_size(&self) -> u64 {
        let numbers = (self.clips.capacity() + self.classes.capacity()) * size_of::<u32>();
        let features: u64 = self.features.iter().map(DeepSize::deep_size).sum();
        let list = self.features.capacity() * size_of::<ClipFeatures>();
        (size_of::<Self>() + numbers + list + self.description.capacity()) as u64 + features
    }
}

impl ClipBatch {
    /// Number of clips.
    pub fn size(&self) -> usize {
        self.clips.len()
    }

    /// Returns whether embeddings of the batch were not in the cache when it was made.
    pub fn is_first_use(&self) -> bool {
        self.features.iter().any(|features| matches!(features, ClipFeatures::Spectrum(_)))
    }

    /// Maximum of [`ClipBatch::deep_size`] for `size` clips with features of at most `clip_bytes`.
    pub fn bytes_max(size: usize, clip_bytes: u64) -> u64 {
        let each = 2 * size_of::<u32>() + size_of::<ClipFeatures>();
        (size_of::<Self>() + size * each + DESCRIPTION_BYTES_MAX) as u64 + size as u64 * clip_bytes
    }
}

/// Source of batches of clips, with a cache of embeddings; shared by worker threads.
#[derive(Debug)]
pub struct ClipLoader {
    /// Store of the clips.
    pub store: ClipStore,
    embeddings: ByteCache<u32, Embedding>,
    dtype: EmbeddingDtype,
}

/// Declares the cache of the embeddings of `clips` clips with `numbers` elements each.
pub fn embedding_cache(data: &LoaderSettings, clips: u64, numbers: u64) -> Buffer {
    let key = format!("{}.embedding_cache", data.section);
    let cap = Cap { items: CLIPS_MAX, bytes: data.embedding_cache.0 };
    let working_set_bytes = clips * numbers * data.embedding_dtype.bytes();
    Buffer::cache("embedding_cache", key, cap, working_set_bytes)
}

impl ClipLoader {
    /// Loader of the clips of a store. `cache` declares the cache of embeddings, which are rounded to `dtype`.
    pub fn new(store: ClipStore, cache: &Buffer, dtype: EmbeddingDtype, ledger: &Ledger) -> Self {
        Self { store, embeddings: ByteCache::new(ledger, cache), dtype }
    }

    /// Loads a batch of clips.
    ///
    /// # Errors
    /// A clip can no longer be read.
    pub fn batch(&self, clips: Vec<u32>, description: &str) -> Result<ClipBatch, DataError> {
        let features = clips.iter().map(|clip| self.features(*clip)).collect::<Result<Vec<_>, _>>()?;
        let classes = clips.iter().map(|clip| self.class(*clip)).collect();
        let description = description[..description.floor_char_boundary(DESCRIPTION_BYTES_MAX)].to_owned();
        Ok(ClipBatch { clips, classes, features, description })
    }

    fn features(&self, clip: u32) -> Result<ClipFeatures, DataError> {
        match self.embeddings.get(&clip) {
            Some(embedding) => Ok(ClipFeatures::Embedding(embedding)),
            None => Ok(ClipFeatures::Spectrum(self.store.log_mel(clip)?)),
        }
    }

    fn class(&self, clip: u32) -> u32 {
        self.store.library.clips[clip as usize].class
    }

    /// Rounds the embedding of a clip and caches it.
    pub fn cache(&self, clip: u32, numbers: &[f32]) -> Embedding {
        let embedding = Embedding::new(numbers, self.dtype);
        self.embeddings.insert(clip, embedding.clone());
        embedding
    }

    /// Rounds the embedding of a sound outside of the data without caching it.
    pub fn rounded(&self, numbers: &[f32]) -> Embedding {
        Embedding::new(numbers, self.dtype)
    }

    /// Hits, misses and evictions of the cache of embeddings.
    pub fn counters(&self) -> CacheCounters {
        self.embeddings.counters()
    }

    /// Evicts the caches of embeddings and clips down to a fraction of their caps; returns the evicted bytes.
    pub fn evict_to_fraction(&self, fraction: f64) -> u64 {
        self.embeddings.evict_to_fraction(fraction) + self.store.cache.evict_to_fraction(fraction)
    }
}
