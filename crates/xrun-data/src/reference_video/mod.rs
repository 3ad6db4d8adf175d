//! Videos with a box around each object in each frame, and reference pictures by class.

pub mod check;
pub mod coco;
pub mod coco_files;
pub mod generate;
pub mod open;
pub mod paint;
pub mod settings;
pub mod voc;

use std::path::PathBuf;

use settings::{Settings, Source};

use crate::boxes::library::Library;
use xrun_core::dataset::error::DataError;
use xrun_core::dataset::kind::DatasetKind;
use xrun_core::dataset::known;
use xrun_core::problem::Problems;

/// `[dataset.reference-video]`.
#[derive(Debug)]
pub struct ReferenceVideo;

impl DatasetKind for ReferenceVideo {
    const NAME: &'static str = "reference-video";
    const LIMITS: &'static [&'static str] = &["frame_cache", "decoding"];
    type Settings = Settings;
    type Index = Library;

    fn check(settings: &Settings, problems: &mut Problems) {
        check::check(settings, problems);
    }

    fn paths(settings: &mut Settings) -> Vec<(&'static str, &mut Option<String>)> {
        vec![("path", &mut settings.path)]
    }

    fn pending(settings: &Settings) -> Option<String> {
        if settings.source != Source::Generated {
            return None;
        }
        let pending = generate::pending(&settings.generated)?;
        let (frames, side, folder) = (pending.frames, pending.frame_size, pending.folder.display());
        let references = pending.references;
        Some(format!("{frames} frames of {side} pixels and {references} reference pictures, once, in {folder}"))
    }

    fn verify(settings: &Settings) {
        known::forget(&open::root(settings));
    }

    fn files(settings: &Settings) -> Vec<PathBuf> {
        let path = settings.path.iter().filter(|_| settings.source == Source::Folder);
        path.map(PathBuf::from).collect()
    }

    fn open(settings: &Settings) -> Result<Library, DataError> {
        open::open(settings)
    }
}
