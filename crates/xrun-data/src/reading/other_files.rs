//! Files beside those of a data set that it does not use, so that nobody believes they were read.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::confined::{Root, files};
use xrun_core::units::pluralize;

/// Endings of annotations and of tables, and the hidden file of macOS, which nobody misses.
const NOT_SAMPLES: [&str; 10] = ["txt", "xml", "json", "jsonl", "csv", "tsv", "yaml", "yml", "names", "ds_store"];

/// Notes about the directories of the files that are `used`: how many others have one of these endings, and how many are of another kind.
/// With `nested`, directories count as well.
pub fn notes(
    root: &Root,
    used: impl Iterator<Item = impl AsRef<Path>>,
    endings: &[&str],
    noun: &str,
    nested: bool,
) -> Vec<String> {
    let mut directories: BTreeMap<PathBuf, usize> = BTreeMap::new();
    for file in used {
        let directory = file.as_ref().parent().unwrap_or(Path::new(""));
        match directories.get_mut(directory) {
            Some(count) => *count += 1,
            None => drop(directories.insert(directory.to_owned(), 1)),
        }
    }
    let (mut unused, mut foreign) = (0, 0);
    for (directory, used) in directories {
        unused +=
            files(root, &directory.to_string_lossy(), endings).map_or(0, |there| there.len().saturating_sub(used));
        let entries = std::fs::read_dir(root.join(&directory)).into_iter().flatten().flatten();
        let is_foreign = |entry: &std::fs::DirEntry| {
            let name = entry.file_name().to_string_lossy().to_ascii_lowercase();
            let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending);
            let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let is_used = endings.contains(&ending) && !name.starts_with('.');
            if is_directory { nested } else { !is_used && !NOT_SAMPLES.contains(&ending) }
        };
        foreign += entries.filter(is_foreign).count();
    }
    let counted = |count: usize, noun: &str, why: &str| {
        (count > 0).then(|| format!("{} ignored: {why}", pluralize(count as u64, &format!("other {noun}"))))
    };
    [
        counted(unused, noun, "in the same directories, and not in the annotations"),
        counted(foreign, "file", "another kind by their endings, or hidden"),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use xrun_core::files::write;

    #[test]
    fn what_is_not_used_is_counted_by_its_kind() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(directory.path().join("a/nested")).unwrap();
        for name in ["a/1.wav", "a/2.WAV", "a/3.mp3", "a/.4.wav", "a/1.txt", "a/.DS_Store", "5.flac"] {
            write::replace(&directory.path().join(name), b"").unwrap();
        }
        let root = Root::open(directory.path(), false, None).unwrap();
        let found = |nested| notes(&root, ["a/1.wav"].into_iter(), &["wav"], "sound", nested);
        let begins =
            |notes: &[String], texts: [&str; 2]| notes.iter().zip(texts).all(|(note, text)| note.starts_with(text));
        assert!(begins(&found(false), ["1 other sound ignored", "2 other files ignored"]), "{:?}", found(false));
        assert!(begins(&found(true), ["1 other sound ignored", "3 other files ignored"]), "{:?}", found(true));
        assert_eq!(notes(&root, ["a/1.wav", "a/2.WAV"].into_iter(), &["wav"], "sound", false).len(), 1);
    }
}
