//! Synthetic videos with a box around each object in each frame, and reference images by class.

pub mod generate;
pub mod paint;
pub mod settings;

use std::path::{Path, PathBuf};

use settings::Settings;

use crate::boxes::format::Format;
use crate::boxes::library::{Library, LoaderSettings};
use crate::boxes::open::{self, Rules};
use crate::coco::{self, Coco};
use crate::reading::invalid::OnInvalid;
use crate::reading::orientation::ExifOrientation;
use xrun_core::dataset::digest_cache::{self, DigestCache};
use xrun_core::dataset::error::DataError;
use xrun_core::dataset::kind::DatasetKind;
use xrun_core::dataset::{cache, generated};
use xrun_core::problem::{Problem, Problems};

/// `[dataset.synthetic-video]`.
#[derive(Debug)]
pub struct SyntheticVideo;

/// Section of the settings in an experiment.
const SECTION: &str = "dataset.synthetic-video";
/// Maximum number of frames, to protect the disk.
const FRAMES_MAX: u128 = 10_000_000;

impl DatasetKind for SyntheticVideo {
    const NAME: &'static str = "synthetic-video";
    const LIMIT_KEYS: &'static [&'static str] = &["frame_cache", "decode_memory"];
    type Settings = Settings;
    type Opened = Library;

    fn check(settings: &Settings, problems: &mut Problems) {
        let classes = settings.train_classes as u128 + settings.validation_classes as u128;
        let frames = classes * settings.videos_per_class as u128 * settings.frames_per_video as u128;
        if frames > FRAMES_MAX {
            let message = format!("{frames} frames would be generated, more than {FRAMES_MAX}");
            let problem = Problem::new(format!("{SECTION}.videos_per_class"), message);
            let problem = problem.related(format!("{SECTION}.frames_per_video"));
            problems.add(problem.help("fewer classes, videos or frames"));
        }
    }

    fn generation_notice(settings: &Settings) -> Option<String> {
        let directory = generate::set(settings).missing(&cache::directory())?;
        let ([frames, references], side) = (generate::counts(settings), settings.frame_size);
        let directory = directory.display();
        Some(format!("{frames} frames of {side} pixels and {references} reference images, once, in {directory}"))
    }

    fn loader_settings(settings: &Settings) -> LoaderSettings {
        LoaderSettings { train_classes: Some(settings.train_classes) }
    }

    fn forget_digests(settings: &Settings) {
        digest_cache::remove(&generate::set(settings).directory(&cache::directory()));
    }

    fn open(settings: &Settings) -> Result<Library, DataError> {
        open_in(settings, &cache::directory())
    }
}

/// Opens the set in a cache directory and generates it first where it is missing. No item of it is ever left out: results
/// would not compare.
fn open_in(settings: &Settings, cache: &Path) -> Result<Library, DataError> {
    let root: PathBuf = generate::generate_in(settings, cache)?;
    let rules = Rules {
        section: SECTION,
        exif_orientation: ExifOrientation::Apply,
        on_invalid: OnInvalid::Fail,
        train_classes: &[],
        validation_classes: &[],
        link_root: None,
    };
    let read = |source: open::Source<'_>| Coco::read(&coco::Settings::default(), source);
    open::dataset(rules, &root, DigestCache::open_generated, read).map_err(|error| generated::damaged(&root, error))
}
