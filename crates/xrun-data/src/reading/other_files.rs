//! Files beside those of a data set that it does not use, so that nobody believes they were read.

use std::collections::BTreeMap;
use std::fs::DirEntry;
use std::path::{Component, Path, PathBuf};

use super::confined::{Root, entries, has_ending, is_hidden};
use xrun_core::units::pluralize;

/// Endings of annotations and of tables, which nobody misses.
const NOT_SAMPLES: [&str; 9] = ["txt", "xml", "json", "jsonl", "csv", "tsv", "yaml", "yml", "names"];
/// Hidden file of macOS.
const MACOS: &str = ".DS_Store";

/// Notes about the directories of the files that are `used`: how many others have one of these endings, and how many are of another kind.
/// With `nested`, directories count as well. What is outside of the root is not counted.
pub fn notes(
    root: &Root,
    used: impl Iterator<Item = impl AsRef<Path>>,
    endings: &[&str],
    noun: &str,
    nested: bool,
) -> Vec<String> {
    let is_sample = |path: &Path| has_ending(path, endings) && !is_hidden(path);
    // Used files of each directory: samples by their names, and others, which are known by their contents.
    let mut directories: BTreeMap<PathBuf, [usize; 2]> = BTreeMap::new();
    for file in used {
        let file = file.as_ref();
        let parts = file.parent().into_iter().flat_map(Path::components).filter(|part| *part != Component::CurDir);
        directories.entry(parts.collect()).or_default()[usize::from(!is_sample(file))] += 1;
    }
    let (mut unused, mut foreign) = (0, 0);
    for (directory, [samples, others]) in directories {
        let (mut found, mut strange) = (0_usize, 0_usize);
        for entry in entries(root, &directory.to_string_lossy()).ok().into_iter().flatten().flatten() {
            let path = entry.path();
            match is_directory(&entry) {
                true => strange += usize::from(nested),
                false if is_sample(&path) => found += 1,
                false => strange += usize::from(!has_ending(&path, &NOT_SAMPLES) && entry.file_name() != MACOS),
            }
        }
        unused += found.saturating_sub(samples);
        foreign += strange.saturating_sub(others);
    }
    let counted = |count: usize, noun: &str, why: &str| {
        (count > 0).then(|| format!("{} ignored: {why}", pluralize(count as u64, &format!("other {noun}"))))
    };
    let notes = [
        counted(unused, noun, "in the same directories, and not used"),
        counted(foreign, "file", "another kind by their endings, or hidden"),
    ];
    notes.into_iter().flatten().collect()
}

fn is_directory(entry: &DirEntry) -> bool {
    // Only a link needs another look.
    entry.file_type().is_ok_and(|kind| kind.is_dir() || (kind.is_symlink() && entry.path().is_dir()))
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
        assert_eq!(notes(&root, ["a/1.wav", "./a/2.WAV"].into_iter(), &["wav"], "sound", false).len(), 1);
        let named_by_annotations = ["a/1.wav", "a/2.WAV", "a/3.mp3", "a/.4.wav", "../b/1.wav"];
        assert_eq!(notes(&root, named_by_annotations.into_iter(), &["wav"], "sound", false), [""; 0]);
    }
}
