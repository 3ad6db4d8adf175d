//! A format of images with boxes: the settings of a directory that the user names, and the reader of its annotations.

use std::path::{Path, PathBuf};

use super::library::Library;
use super::open::{self, DirectoryOptions, ReaderInput, check_classes};
use super::raw::Raw;
use crate::reading::confined::linked_directories;
use crate::reading::settings_paths::{check_links, directory_at};
use xrun_core::dataset::digest_cache::DigestCache;
use xrun_core::dataset::error::DataError;
use xrun_core::dataset::kind::{DatasetFacts, DatasetKind};
use xrun_core::dataset::open_dataset::SampleType;
use xrun_core::problem::{Problem, Problems};
use xrun_core::settings::variant::{Kind, SettingsTable};

/// A format of images with boxes: the settings of a directory that the user names, made a data set by
/// [`directory_settings`](crate::directory_settings).
pub trait Format: DatasetKind + DirectorySettings {
    /// Name of the data set's table.
    const NAME: &'static str;
    /// Table of the settings in an experiment: `dataset.NAME`.
    const SECTION: &'static str;
    /// Advice on the directory to name, for people.
    const ADVICE: &'static str;

    /// Adds what is wrong with the keys that this format alone has.
    fn check_keys(&self, _problems: &mut Problems) {}

    /// Reads the annotations as they are written.
    ///
    /// # Errors
    /// The directory is not of this format.
    fn read(&self, input: ReaderInput<'_>) -> Result<Raw, DataError>;
}

/// Keys that every format has.
pub trait DirectorySettings: SettingsTable {
    /// Their values; `section` is their table.
    fn options(&self, section: &'static str) -> DirectoryOptions<'_>;
}

/// Settings of a format of images with boxes: the keys that every format has, and those of its own with their defaults.
#[macro_export]
macro_rules! directory_settings {
    ($(#[$meta:meta])* $name:ident { $($(#[$of:meta])* $key:ident: $type:ty = $default:expr,)* }) => {
        xrun_core::settings! {
            $(#[$meta])*
            pub struct $name {
                /// The directory. Relative to this file. `${NAME}` and `${NAME:-default}` stand for environment variables.
                #[serde(skip_serializing_if = "Option::is_none")]
                pub path: Option<String> = None,
                $($(#[$of])* pub $key: $type = $default,)*
                /// Treatment of the orientation that an image states in EXIF, as phones write it. Boxes and sizes in the
                /// annotations are those of the resulting image.
                pub exif_orientation: $crate::reading::orientation::ExifOrientation =
                    $crate::reading::orientation::ExifOrientation::Apply,
                /// Names of the classes that few-shot detection holds out for validation: never trained on, not even as
                /// background. Images that show them are not used in training, as long as a training class has two others. Without any,
                /// the detector is an ordinary one.
                #[schemars(length(max = 10_000))]
                pub validation_classes: Vec<String> = Vec::new(),
                /// Names of the classes to train on. Default: all that are not held out.
                #[schemars(length(max = 10_000))]
                pub train_classes: Vec<String> = Vec::new(),
                /// Treatment of broken images, annotations that cannot be read, boxes outside the image, boxes that an image
                /// has twice and unknown classes. An image that is complete but cannot be decoded is found only when it is used;
                /// it ends the run in either case.
                pub on_invalid: $crate::reading::invalid::OnInvalid = $crate::reading::invalid::OnInvalid::Fail,
                /// Follow symlinks that lead out of `path`, as long as they lead into `link_root`.
                pub follow_links: bool = false,
                /// The directory that symlinks may lead into, for `follow_links = true`, such as a scratch disk with the images.
                #[serde(skip_serializing_if = "Option::is_none")]
                pub link_root: Option<String> = None,
            }
        }

        impl $crate::boxes::format::DirectorySettings for $name {
            fn options(&self, section: &'static str) -> $crate::boxes::open::DirectoryOptions<'_> {
                $crate::boxes::open::DirectoryOptions {
                    section,
                    exif_orientation: self.exif_orientation,
                    on_invalid: self.on_invalid,
                    train_classes: &self.train_classes,
                    validation_classes: &self.validation_classes,
                    path: self.path.as_deref(),
                    follow_links: self.follow_links,
                    link_root: self.link_root.as_deref(),
                }
            }
        }

        impl xrun_core::dataset::kind::DatasetKind for $name {
            fn kind() -> &'static xrun_core::settings::variant::Kind<dyn xrun_core::dataset::kind::DatasetKind> {
                const { &$crate::boxes::format::kind::<Self>() }
            }

            fn check(&self, problems: &mut xrun_core::problem::Problems) {
                $crate::boxes::format::check(self, problems);
            }

            fn paths(&mut self) -> xrun_core::settings::variant::Paths<'_> {
                vec![("path", &mut self.path), ("link_root", &mut self.link_root)]
            }

            fn forget_digests(&self) {
                xrun_core::dataset::digest_cache::remove(std::path::Path::new(self.path.as_deref().unwrap_or_default()));
            }

            fn files(&self) -> Vec<std::path::PathBuf> {
                $crate::boxes::format::files(self)
            }

            fn open(
                &self,
            ) -> Result<Box<dyn xrun_core::dataset::open_dataset::AnyDataset>, xrun_core::dataset::error::DataError> {
                Ok(Box::new($crate::boxes::format::open(self)?))
            }
        }
    };
}

/// Kind of a format.
pub const fn kind<F: Format>() -> Kind<dyn DatasetKind> {
    let limit_keys = &["frame_cache", "decode_memory"];
    Kind::<dyn DatasetKind>::new::<F>(F::NAME, DatasetFacts { sample_type: SampleType::of::<Library>(), limit_keys })
}

/// Adds what is wrong with the settings.
pub fn check<F: Format>(settings: &F, problems: &mut Problems) {
    let options = settings.options(F::SECTION);
    match options.path {
        None => {
            problems
                .add(Problem::new(F::SECTION, "`path` is missing").help("add `path = \"…\"`, relative to this file"));
        }
        Some(path) => directory_at(&format!("{}.path", F::SECTION), Path::new(path), F::ADVICE, problems),
    }
    check_links(F::SECTION, options.follow_links, options.link_root, problems);
    check_classes(&options, problems);
    settings.check_keys(problems);
}

/// Directories that an inspection reads.
pub fn files<F: Format>(settings: &F) -> Vec<PathBuf> {
    let options = settings.options(F::SECTION);
    let path: Option<PathBuf> = options.path.map(PathBuf::from);
    let linked = path.iter().filter(|_| options.follow_links).flat_map(|path| linked_directories(path)).collect();
    path.into_iter().chain::<Vec<PathBuf>>(linked).collect()
}

/// Opens the directory.
///
/// # Errors
/// The directory is not of this format, or an item of it is invalid.
pub fn open<F: Format>(settings: &F) -> Result<Library, DataError> {
    let options = settings.options(F::SECTION);
    open::dataset(options, Path::new(options.path.unwrap_or_default()), DigestCache::open, |input| settings.read(input))
}
