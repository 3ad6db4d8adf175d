//! Settings of a data set of sound clips.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::reading::invalid::OnInvalid;
use xrun_core::settings;
use xrun_core::units::Bytes;

pub(super) const SECTION: &str = "dataset.sound-clips";

/// Settings that every data set of sounds has: how clips are read and cached.
#[derive(Clone, Debug, PartialEq)]
pub struct LoaderSettings {
    /// Table of the data set in an experiment, such as `dataset.sound-clips`.
    pub section: &'static str,
    /// Length of a clip that a model sees, in seconds.
    pub clip_seconds: f64,
    /// Bytes of log-mel spectra that are kept.
    pub clip_cache: Bytes,
    /// Bytes of outputs of a frozen encoder that are kept on the host.
    pub embedding_cache: Bytes,
    /// Type of the numbers of these outputs.
    pub embedding_dtype: EmbeddingDtype,
    /// File with the target vectors of each class; `None` where they are drawn.
    pub targets: Option<PathBuf>,
    /// `true` where there are classes of [`ClassSplit::Pretraining`].
    pub public_classes: bool,
}

impl Default for LoaderSettings {
    fn default() -> Self {
        SoundClips::default().loader_settings()
    }
}

settings! {
    /// Short sound clips, each of one class: a directory in the layout of ESC-50 (Piczak 2015), or a generated one of the same
    /// layout. Clips are read and turned into log-mel spectra when they are needed.
    pub struct SoundClips {
        /// Source of the data.
        pub source: Source = Source::Generated,
        /// The directory, for `source = "directory"`: `meta/esc50.csv` or `meta.csv`, and the clips in `audio/`. Relative to this
        /// file. `${NAME}` and `${NAME:-default}` stand for environment variables.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub path: Option<String> = None,
        /// The length of a clip that a model sees, in seconds. Zeros are appended to shorter clips, and the end of longer ones
        /// is not used.
        #[schemars(range(min = 0.1, max = 60.0))]
        pub clip_seconds: f64 = 1.0,
        /// The clips of this fold are held out for validation; the other folds are trained on. Clips of one recording are in
        /// one fold.
        pub validation_fold: u32 = 5,
        /// Bytes of log-mel spectra of clips kept for reuse; the least recently used is evicted first. 0 keeps none.
        pub clip_cache: Bytes = Bytes::mebibytes(16),
        /// Bytes of outputs of a frozen encoder kept on the host for reuse; the least recently used is evicted first. 0 keeps
        /// none.
        pub embedding_cache: Bytes = Bytes::mebibytes(8),
        /// Type of the outputs of a frozen encoder that are kept on the host.
        pub embedding_dtype: EmbeddingDtype = EmbeddingDtype::Float32,
        /// A safetensors file with the vectors that a model is to give for each class: `CATEGORY.prompt_embeds` of shape
        /// [tokens, width] and `CATEGORY.pooled_prompt_embeds` of shape [width]. Without it, vectors are drawn.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub target_embeddings: Option<String> = None,
        /// Treatment of clips that cannot be read and of invalid lines of the table.
        pub on_invalid: OnInvalid = OnInvalid::Fail,
        /// Follow symlinks that lead out of the directory of `path`, as long as they lead into `link_root`.
        pub follow_links: bool = false,
        /// The directory that symlinks may lead into, for `follow_links = true`, such as a scratch disk with the clips.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub link_root: Option<String> = None,
        /// Settings of the generated set, for `source = "generated"`.
        pub generated: Generated = Generated::default(),
    }
}

impl SoundClips {
    /// The settings that every data set of sounds has.
    pub fn loader_settings(&self) -> LoaderSettings {
        LoaderSettings {
            section: SECTION,
            clip_seconds: self.clip_seconds,
            clip_cache: self.clip_cache,
            embedding_cache: self.embedding_cache,
            embedding_dtype: self.embedding_dtype,
            targets: self.target_embeddings.as_ref().map(PathBuf::from),
            public_classes: self.source == Source::Generated,
        }
    }
}

/// Source of clips.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// Written once to the cache directory, the same bytes for the same settings.
    Generated,
    /// Read from `path`.
    Directory,
}

/// Type of the outputs of a frozen encoder that are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EmbeddingDtype {
    /// 4 bytes a number.
    Float32,
    /// 2 bytes a number: twice as many clips, rounded to 11 bits.
    Float16,
}

impl EmbeddingDtype {
    /// Bytes of one number.
    pub const fn bytes(self) -> u64 {
        match self {
            Self::Float32 => 4,
            Self::Float16 => 2,
        }
    }
}

settings! {
    /// A generated set: a class is a timbre (flute, reed, bell, pluck, breath) and a modulation (steady, tremolo, vibrato, pulses,
    /// glide). Ten of the 25 classes are to be learnt, ten are public and make an encoder, five are heard in no training.
    /// Clips have 1 second at 16 kHz.
    pub struct Generated {
        /// Classes to be learnt. There are 10; the first 5 have all timbres and all modulations.
        #[schemars(range(min = 2, max = 10))]
        pub classes: usize = 10,
        /// Clips of each of them, of a fifth as many recordings, at least 5.
        #[schemars(range(min = 5, max = 10_000))]
        pub clips_per_class: usize = 50,
        /// Clips of each of the 10 public and the 5 unheard classes.
        #[schemars(range(min = 5, max = 10_000))]
        pub other_clips_per_class: usize = 50,
        /// Seed of the generated set; the experiment's seed does not change it.
        pub seed: u32 = 0,
    }
}
