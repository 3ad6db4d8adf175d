//! Synthetic videos with a box around each object in each frame, and reference images by class.

pub mod generate;
pub mod paint;
pub mod settings;

use std::any::Any;
use std::path::{Path, PathBuf};

use settings::SyntheticVideo;

use crate::boxes::format::Format;
use crate::boxes::library::Library;
use crate::boxes::open::{self, DirectoryOptions};
use crate::boxes::summary::LoaderSettings;
use crate::coco::Coco;
use crate::reading::invalid::OnInvalid;
use crate::reading::orientation::ExifOrientation;
use xrun_core::dataset::digest_cache::{self, DigestCache};
use xrun_core::dataset::error::DataError;
use xrun_core::dataset::kind::{DatasetFacts, DatasetKind};
use xrun_core::dataset::open_dataset::{AnyDataset, SampleType};
use xrun_core::dataset::{cache, generated};
use xrun_core::problem::{Problem, Problems};
use xrun_core::settings::variant::Kind;

/// Section of the settings in an experiment.
const SECTION: &str = "dataset.synthetic-video";
/// Maximum number of frames, to protect the disk.
const FRAMES_MAX: u128 = 10_000_000;

impl DatasetKind for SyntheticVideo {
    fn kind() -> &'static Kind<dyn DatasetKind> {
        const FACTS: DatasetFacts =
            DatasetFacts { sample_type: SampleType::of::<Library>(), limit_keys: &["frame_cache", "decode_memory"] };
        const { &Kind::<dyn DatasetKind>::new::<Self>("synthetic-video", FACTS) }
    }

    fn check(&self, problems: &mut Problems) {
        let classes = self.train_classes as u128 + self.validation_classes as u128;
        let frames = classes * self.videos_per_class as u128 * self.frames_per_video as u128;
        if frames > FRAMES_MAX {
            let message = format!("{frames} frames would be generated, more than {FRAMES_MAX}");
            let problem = Problem::new(format!("{SECTION}.videos_per_class"), message);
            let problem = problem.related(format!("{SECTION}.frames_per_video"));
            problems.add(problem.help("fewer classes, videos or frames"));
        }
    }

    fn generation_notice(&self) -> Option<String> {
        let directory = generate::set(self).missing(&cache::directory())?;
        let ([frames, references], side) = (generate::counts(self), self.frame_size);
        let directory = directory.display();
        Some(format!("{frames} frames of {side} pixels and {references} reference images, once, in {directory}"))
    }

    fn loader_settings(&self) -> Box<dyn Any> {
        Box::new(LoaderSettings { train_class_count: Some(self.train_classes) })
    }

    fn forget_digests(&self) {
        digest_cache::remove(&generate::set(self).directory(&cache::directory()));
    }

    fn open(&self) -> Result<Box<dyn AnyDataset>, DataError> {
        Ok(Box::new(open_in(self, &cache::directory())?))
    }
}

/// Opens the set in a cache directory and generates it first where it is missing. No item of it is ever left out: results
/// would not compare.
fn open_in(settings: &SyntheticVideo, cache: &Path) -> Result<Library, DataError> {
    let root: PathBuf = generate::generate_in(settings, cache)?;
    let options = DirectoryOptions {
        section: SECTION,
        exif_orientation: ExifOrientation::Apply,
        on_invalid: OnInvalid::Fail,
        train_classes: &[],
        validation_classes: &[],
        path: None,
        follow_links: false,
        link_root: None,
    };
    let read = |input: open::ReaderInput<'_>| Coco::default().read(input);
    open::dataset(options, &root, DigestCache::open_generated, read).map_err(|error| generated::damaged(&root, error))
}
