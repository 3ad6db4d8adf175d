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
