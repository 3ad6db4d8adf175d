//! Checks of the settings of sound clips.

use std::path::Path;

use super::settings::{SECTION, SoundClips, Source};
use super::synthesis::FOLDS;
use crate::reading::settings_paths::{check_links, check_source, directory_at, file};
use xrun_core::problem::{Problem, Problems};

/// Adds what is wrong; places are filled in by the caller.
pub fn check(settings: &SoundClips, problems: &mut Problems) {
    let key = |name: &str| format!("{SECTION}.{name}");
    let generated = settings.source == Source::Generated;
    let directory = |key: &str, path: &str, problems: &mut Problems| {
        directory_at(key, Path::new(path), "name the directory that holds the table and `audio/`", problems);
    };
    check_source(SECTION, generated, &[("path", &settings.path)], directory, problems);
    check_links(SECTION, settings.follow_links, settings.link_root.as_deref(), problems);
    if let Some(path) = &settings.target_embeddings {
        file(&key("target_embeddings"), path, problems);
    }
    if generated && !(1..=FOLDS).contains(&settings.validation_fold) {
        let message = format!("is {}, and generated clips are in the folds 1 to {FOLDS}", settings.validation_fold);
        let problem = Problem::new(key("validation_fold"), message);
        problems.add(problem.help(format!("name a fold from 1 to {FOLDS}")).related(key("source")));
    }
}
