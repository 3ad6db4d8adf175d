//! Checks of the settings of sound clips.

use std::path::Path;

use super::settings::{SoundClips, Source};
use super::synthesis::FOLDS;
use crate::reading::settings_paths::{check_links, check_source, directory_at, file};
use xrun_core::problem::{Problem, Problems};

pub(super) const SECTION: &str = "dataset.sound-clips";

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

#[cfg(test)]
mod tests {
    use super::*;
    use xrun_core::units::Bytes;

    fn problems_of(settings: &SoundClips) -> Vec<(String, String)> {
        let mut problems = Problems::default();
        check(settings, &mut problems);
        problems.iter().map(|problem| (problem.key.clone(), problem.message.clone())).collect()
    }

    #[test]
    fn the_defaults_are_right_and_what_contradicts_itself_is_said_at_its_key() {
        assert_eq!(problems_of(&SoundClips::default()), []);
        assert_eq!(problems_of(&SoundClips { clip_cache: Bytes(0), validation_fold: 1, ..SoundClips::default() }), []);
        let directory = SoundClips { source: Source::Directory, ..SoundClips::default() };
        let named = |path: &str| Some(path.to_owned());
        for (settings, key, part) in [
            (directory.clone(), "source", "needs `path`, which is missing"),
            (
                SoundClips { path: named("/tmp"), ..SoundClips::default() },
                "path",
                "no effect: `source` is \"generated\"",
            ),
            (SoundClips { path: named("/none/such"), ..directory.clone() }, "path", "there is no directory /none/such"),
            (SoundClips { path: named("/etc/hostname"), ..directory.clone() }, "path", "is not a directory"),
            (
                SoundClips { target_embeddings: named("/none/such"), ..SoundClips::default() },
                "target_embeddings",
                "there is no file",
            ),
            (SoundClips { validation_fold: 0, ..SoundClips::default() }, "validation_fold", "the folds 1 to 5"),
        ] {
            let found = problems_of(&settings);
            assert_eq!(found.len(), 1, "{found:?}");
            assert_eq!(found[0].0, format!("{SECTION}.{key}"));
            assert!(found[0].1.contains(part), "{found:?}");
        }
    }
}
