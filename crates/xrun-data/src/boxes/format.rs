//! A format of images with boxes: a folder that somebody made, and who reads its annotations. All else is the same for each.

use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use super::library::Library;
use super::open::{self, Rules, Source, check_classes};
use super::raw::Raw;
use crate::reading::named::folder_at;
use xrun_core::dataset::error::DataError;
use xrun_core::dataset::kind::DatasetKind;
use xrun_core::dataset::known::{self, Known};
use xrun_core::problem::{Problem, Problems};
use xrun_core::settings::chosen::SettingsTable;

/// A format. [`Folder`] of it is a data set.
pub trait Format: Send + Sync + 'static {
    /// Name of the data set's table.
    const NAME: &'static str;
    /// Where the settings stand in an experiment: `dataset.NAME`.
    const SECTION: &'static str;
    /// Advice on the folder to name, for people.
    const ADVICE: &'static str;
    /// Settings, made by [`folder_settings`](crate::folder_settings).
    type Settings: FolderSettings;

    /// Reads the annotations as they are written.
    ///
    /// # Errors
    /// The folder is not of this format.
    fn read(source: Source<'_>) -> Result<Raw, DataError>;
}

/// Settings that every format has.
pub trait FolderSettings: SettingsTable {
    /// The folder.
    fn path(&self) -> Option<&str>;
    /// The folder, to be made absolute.
    fn path_mut(&mut self) -> &mut Option<String>;
    /// All other keys; `section` is where they stand.
    fn rules(&self, section: &'static str) -> Rules<'_>;
}

/// Settings of a format of images with boxes, under a description of its own.
#[macro_export]
macro_rules! folder_settings {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        #[serde(deny_unknown_fields, default)]
        pub struct $name {
            /// The folder. Relative to this file. `${NAME}` and `${NAME:-default}` stand for environment variables.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub path: Option<String>,
            /// What to do with the orientation that a picture states in EXIF, as phones write it. Boxes are of the resulting
            /// picture.
            pub exif_orientation: $crate::reading::orientation::ExifOrientation,
            /// Names of the classes that few-shot detection holds out: never trained on, not even as background.
            #[schemars(length(max = 10_000))]
            pub validation_classes: Vec<String>,
            /// Names of the classes to train on. Default: all that are not held out.
            #[schemars(length(max = 10_000))]
            pub train_classes: Vec<String>,
            /// What to do with broken pictures and annotations. A picture that is complete but cannot be decoded is found
            /// only when it is used; it ends the run in either case.
            pub on_broken: $crate::reading::broken::OnBroken,
        }

        impl Default for $name {
            fn default() -> Self {
                Self {
                    path: None,
                    exif_orientation: $crate::reading::orientation::ExifOrientation::Apply,
                    validation_classes: Vec::new(),
                    train_classes: Vec::new(),
                    on_broken: $crate::reading::broken::OnBroken::Fail,
                }
            }
        }

        impl $crate::boxes::format::FolderSettings for $name {
            fn path(&self) -> Option<&str> {
                self.path.as_deref()
            }

            fn path_mut(&mut self) -> &mut Option<String> {
                &mut self.path
            }

            fn rules(&self, section: &'static str) -> $crate::boxes::open::Rules<'_> {
                $crate::boxes::open::Rules {
                    section,
                    exif_orientation: self.exif_orientation,
                    on_broken: self.on_broken,
                    train_classes: &self.train_classes,
                    validation_classes: &self.validation_classes,
                }
            }
        }
    };
}

/// The data set of a format.
#[derive(Debug)]
pub struct Folder<F>(PhantomData<F>);

impl<F: Format> DatasetKind for Folder<F> {
    const NAME: &'static str = F::NAME;
    const LIMITS: &'static [&'static str] = &["frame_cache", "decoding"];
    type Settings = F::Settings;
    type Index = Library;

    fn check(settings: &Self::Settings, problems: &mut Problems) {
        match settings.path() {
            None => problems
                .add(Problem::new(F::SECTION, "`path` is missing").help("add `path = \"…\"`, relative to this file")),
            Some(path) => folder_at(&format!("{}.path", F::SECTION), Path::new(path), F::ADVICE, problems),
        }
        check_classes(&settings.rules(F::SECTION), problems);
    }

    fn paths(settings: &mut Self::Settings) -> Vec<(&'static str, &mut Option<String>)> {
        vec![("path", settings.path_mut())]
    }

    fn verify(settings: &Self::Settings) {
        known::forget(Path::new(settings.path().unwrap_or_default()));
    }

    fn files(settings: &Self::Settings) -> Vec<PathBuf> {
        settings.path().iter().map(PathBuf::from).collect()
    }

    fn open(settings: &Self::Settings) -> Result<Library, DataError> {
        let root = Path::new(settings.path().unwrap_or_default());
        open::folder(settings.rules(F::SECTION), root, Known::open, F::read)
    }
}
