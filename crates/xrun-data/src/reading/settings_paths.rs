//! Checks of files and directories that settings name.

use std::fs::Metadata;
use std::path::Path;

use xrun_core::problem::{Problem, Problems};

/// Adds what is wrong with a file that is named at `key`.
pub fn file(key: &str, path: &str, problems: &mut Problems) {
    check(key, Path::new(path), ("file", "a file"), "name the file itself", Metadata::is_file, problems);
}

/// Adds what is wrong with a directory that is named at `key`; `help` says what should be named.
pub fn directory_at(key: &str, path: &Path, help: &str, problems: &mut Problems) {
    check(key, path, ("directory", "a directory"), help, Metadata::is_dir, problems);
}

fn check(
    key: &str,
    path: &Path,
    (noun, a_noun): (&str, &str),
    help: &str,
    is_right: fn(&Metadata) -> bool,
    problems: &mut Problems,
) {
    let shown = path.display();
    let problem = |message: String| Problem::new(key, message).as_disk_problem();
    problems.add(match std::fs::metadata(path) {
        Ok(found) if is_right(&found) => return,
        Ok(_) => problem(format!("{shown} is not {a_noun}")).help(help),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => problem(format!("there is no {noun} {shown}"))
            .help("a relative path is relative to the directory of the file that names it"),
        Err(error) => problem(format!("{shown} cannot be read: {error}")),
    });
}

/// Adds what is wrong with the keys `source` and those of files: a source that is read needs `path`, and a generated one has none.
/// `check` adds what is wrong with the file of a key.
pub fn check_source(
    section: &str,
    is_generated: bool,
    paths: &[(&str, &Option<String>)],
    check: impl Fn(&str, &str, &mut Problems),
    problems: &mut Problems,
) {
    let key = |name: &str| format!("{section}.{name}");
    for (name, path) in paths {
        match (is_generated, path) {
            (false, Some(path)) => check(&key(name), path, problems),
            (true, Some(_)) => {
                let problem = Problem::new(key(name), "has no effect: `source` is \"generated\"");
                problems.add(problem.help(format!("set another `source`, or remove `{name}`")).related(key("source")));
            }
            (false, None) if *name == "path" => {
                let problem = Problem::new(key("source"), "needs `path`, which is missing");
                problems.add(problem.help("add `path = \"…\"`, relative to this file"));
            }
            _ => {}
        }
    }
}

/// Adds what is wrong with the keys of GPT-2's vocabulary, which need each other.
pub fn check_vocabulary(section: &str, encoder: &Option<String>, merges: &Option<String>, problems: &mut Problems) {
    for (name, path, other, missing) in
        [("encoder", encoder, "merges", merges.is_none()), ("merges", merges, "encoder", encoder.is_none())]
    {
        let (key, Some(path)) = (format!("{section}.{name}"), path) else { continue };
        if missing {
            let problem = Problem::new(&key, format!("has no effect without `{other}`"));
            problems.add(problem.help("name GPT-2's `encoder.json` and `vocab.bpe`, or neither"));
        }
        file(&key, path, problems);
    }
}

/// Adds what is wrong with the keys about symlinks in the table `section`.
pub fn check_links(section: &str, follow: bool, root: Option<&str>, problems: &mut Problems) {
    let key = |name: &str| format!("{section}.{name}");
    match (follow, root) {
        (true, None) => {
            let problem = Problem::new(key("follow_links"), "is true, but `link_root` is missing");
            problems.add(problem.help("add `link_root = \"…\"`, the directory that symlinks may lead into"));
        }
        (false, Some(_)) => {
            let problem = Problem::new(key("link_root"), "has no effect without `follow_links = true`");
            problems.add(problem.help("add `follow_links = true`, or remove it").related(key("follow_links")));
        }
        (true, Some(path)) => {
            let help = "name the directory that symlinks may lead into";
            directory_at(&key("link_root"), Path::new(path), help, problems);
        }
        (false, None) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::image_text::settings::ImageText;
    use crate::sound_clips::settings::SoundClips;
    use xrun_core::dataset::kind::DatasetKind;

    fn problems_of<S: DatasetKind + serde::de::DeserializeOwned>(settings: &Value) -> Vec<(String, String)> {
        let mut problems = Problems::default();
        serde_json::from_value::<S>(settings.clone()).unwrap().check(&mut problems);
        problems.iter().map(|problem| (problem.key.clone(), problem.message.clone())).collect()
    }

    #[test]
    fn what_contradicts_itself_is_said_at_its_key() {
        let name = "/etc/hostname";
        assert_eq!(problems_of::<ImageText>(&json!({ "source": "messages", "path": name })), []);
        assert_eq!(problems_of::<ImageText>(&json!({})), []);
        assert_eq!(problems_of::<SoundClips>(&json!({})), []);
        let many = json!({ "examples": 100_000, "image_size": 4096 });
        let json_answers = json!({ "source": "messages", "path": name, "answer_format": "json" });
        for (settings, key, part) in [
            (json!({ "source": "messages" }), "image-text.source", "needs `path`, which is missing"),
            (json!({ "source": "messages", "path": "/etc" }), "image-text.path", "/etc is not a file"),
            (json!({ "source": "messages", "path": "/none" }), "image-text.path", "there is no file /none"),
            (json!({ "path": name }), "image-text.path", "no effect: `source` is \"generated\""),
            (json_answers, "image-text.answer_format", "question-list"),
            (json!({ "encoder": name }), "image-text.encoder", "without `merges`"),
            (json!({ "generated": many }), "image-text.generated.examples", "pixels would be generated"),
            (json!({ "source": "directory", "path": name }), "sound-clips.path", "is not a directory"),
            (json!({ "target_embeddings": "/none" }), "sound-clips.target_embeddings", "there is no file"),
            (json!({ "validation_fold": 0 }), "sound-clips.validation_fold", "the folds 1 to 5"),
        ] {
            let found = match key.starts_with("image") {
                true => problems_of::<ImageText>(&settings),
                false => problems_of::<SoundClips>(&settings),
            };
            assert!(found.len() == 1 && found[0].0 == format!("dataset.{key}"), "{key}: {found:?}");
            assert!(found[0].1.contains(part), "{found:?}");
        }
    }
}
