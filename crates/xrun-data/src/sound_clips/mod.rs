//! Short sound clips by class, in the layout of ESC-50, as log-mel spectra.

pub mod check;
pub mod describe;
mod flac;
pub mod generate;
pub mod library;
pub mod log_mel;
pub mod open;
pub mod partition;
#[cfg(test)]
mod real_tests;
pub mod resample;
pub mod settings;
pub mod sound;
pub mod store;
pub mod synthesis;
pub mod table;
pub mod targets;
mod wav;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use library::{Library, LoaderSettings};
use settings::{Settings, Source};

use crate::reading::confined::linked_directories;
use xrun_core::dataset::error::DataError;
use xrun_core::dataset::kind::DatasetKind;
use xrun_core::dataset::{cache, digest_cache};
use xrun_core::problem::Problems;

/// Data set `[dataset.sound-clips]`.
#[derive(Debug)]
pub struct SoundClips;

/// Summary of a data set of sounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClipCounts {
    /// Clips to train on, by class in the order of [`library::Library::classes`]; public and unheard classes are left out.
    pub train: Vec<u64>,
    /// Clips to validate with, by class.
    pub held_out: Vec<u64>,
    /// Clips of zeros alone, which are valid.
    pub silent: u64,
    /// Columns by which clips can be distributed over nodes.
    pub columns: Vec<String>,
}

impl DatasetKind for SoundClips {
    const NAME: &'static str = "sound-clips";
    /// Its clips are decoded in `limits.decode_memory`.
    const LIMIT_KEYS: &'static [&'static str] = &["decode_memory"];
    type Settings = Settings;
    type Opened = Library;

    fn check(settings: &Settings, problems: &mut Problems) {
        check::check(settings, problems);
    }

    fn paths(settings: &mut Settings) -> Vec<(&'static str, &mut Option<String>)> {
        vec![
            ("path", &mut settings.path),
            ("target_embeddings", &mut settings.target_embeddings),
            ("link_root", &mut settings.link_root),
        ]
    }

    fn generation_notice(settings: &Settings) -> Option<String> {
        if settings.source != Source::Generated {
            return None;
        }
        let directory = generate::set(&settings.generated).missing(&cache::directory())?;
        let clips = generate::clips(&settings.generated);
        Some(format!("{clips} sound clips of 1 second, once, in {}", directory.display()))
    }

    fn forget_digests(settings: &Settings) {
        digest_cache::remove(&open::root(settings));
    }

    fn files(settings: &Settings) -> Vec<PathBuf> {
        if settings.source != Source::Directory {
            return Vec::new();
        }
        let named = [&settings.path, &settings.target_embeddings].into_iter().flatten().map(PathBuf::from);
        let linked = settings.path.iter().filter(|_| settings.follow_links);
        named.chain(linked.flat_map(|path| linked_directories(Path::new(path)))).collect()
    }

    fn loader_settings(settings: &Settings) -> LoaderSettings {
        settings.loader_settings()
    }

    fn open(settings: &Settings) -> Result<Library, DataError> {
        open::open(settings)
    }
}
