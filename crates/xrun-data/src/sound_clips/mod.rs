//! Short sound clips by class, in the layout of ESC-50, as log-mel spectra.

pub mod check;
pub mod describe;
pub mod generate;
pub mod library;
pub mod log_mel;
pub mod open;
pub mod partition;
pub mod resample;
pub mod settings;
pub mod sound;
pub mod store;
pub mod synthesis;
pub mod table;
pub mod targets;

use std::any::Any;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use library::Library;
use settings::{SoundClips, Source};

use crate::reading::confined::linked_directories;
use xrun_core::dataset::error::DataError;
use xrun_core::dataset::kind::{DatasetFacts, DatasetKind};
use xrun_core::dataset::open_dataset::{AnyDataset, SampleType};
use xrun_core::dataset::{cache, digest_cache};
use xrun_core::problem::Problems;
use xrun_core::settings::variant::{Kind, Paths};

/// Summary of a data set of sounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClipCounts {
    /// Clips to train on, by class in the order of [`library::Library::classes`]; public and unseen classes are left out.
    pub train: Vec<u64>,
    /// Clips to validate with, by class.
    pub held_out: Vec<u64>,
    /// Clips of zeros alone, which are valid.
    pub silent: u64,
    /// Columns by which clips can be distributed over nodes.
    pub columns: Vec<String>,
}

impl DatasetKind for SoundClips {
    fn kind() -> &'static Kind<dyn DatasetKind> {
        // Its samples are decoded in `limits.decode_memory`.
        const FACTS: DatasetFacts =
            DatasetFacts { sample_type: SampleType::of::<Library>(), limit_keys: &["decode_memory"] };
        const { &Kind::<dyn DatasetKind>::new::<Self>("sound-clips", FACTS) }
    }

    fn check(&self, problems: &mut Problems) {
        check::check(self, problems);
    }

    fn paths(&mut self) -> Paths<'_> {
        vec![
            ("path", &mut self.path),
            ("target_embeddings", &mut self.target_embeddings),
            ("link_root", &mut self.link_root),
        ]
    }

    fn generation_notice(&self) -> Option<String> {
        if self.source != Source::Generated {
            return None;
        }
        let directory = generate::set(&self.generated).missing(&cache::directory())?;
        let clips = generate::clips(&self.generated);
        Some(format!("{clips} sound clips of 1 second, once, in {}", directory.display()))
    }

    fn forget_digests(&self) {
        digest_cache::remove(&open::root(self));
    }

    fn files(&self) -> Vec<PathBuf> {
        if self.source != Source::Directory {
            return Vec::new();
        }
        let named = [&self.path, &self.target_embeddings].into_iter().flatten().map(PathBuf::from);
        let linked = self.path.iter().filter(|_| self.follow_links);
        named.chain(linked.flat_map(|path| linked_directories(Path::new(path)))).collect()
    }

    fn loader_settings(&self) -> Box<dyn Any> {
        Box::new(SoundClips::loader_settings(self))
    }

    fn open(&self) -> Result<Box<dyn AnyDataset>, DataError> {
        Ok(Box::new(open::open(self)?))
    }
}
