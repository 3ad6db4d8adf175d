//! Digests of result files in foreign formats, in `SHA256SUMS` of their directory.
//!
//! COCO detections, CSV tables and HTML pages have no field for a checksum. `sha256sum -c SHA256SUMS` verifies them, and so
//! does each command that reads a run.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io;
use std::path::Path;

use super::{checksum, file, write};
use crate::dataset::digest::digest_of_reader;

/// File name of the list, in the format of `sha256sum`.
pub const SUMS: &str = "SHA256SUMS";
/// Maximum size of the list.
const FILE_BYTES_MAX: u64 = 64 * 1024;

/// Removes the digests of files that are about to be replaced. A kill before they are [`record`] then leaves files without a
/// digest instead of files that seem damaged.
pub fn remove(directory: &Path, names: &[&str]) {
    let _turn = file::lock_directory(directory);
    let mut sums = read(directory).unwrap_or_default();
    let before = sums.len();
    sums.retain(|name, _| !names.contains(&name.as_str()));
    if sums.len() < before && save(directory, &sums).is_err() {
        // The disk is full: no list is better than a wrong one.
        let _ = std::fs::remove_file(directory.join(SUMS));
    }
}

/// `true` if the list has a digest of this file.
pub fn has(directory: &Path, name: &str) -> bool {
    read(directory).is_some_and(|sums| sums.contains_key(name))
}

/// Records the digests of finished files. Missing files and write errors are ignored.
pub fn record(directory: &Path, names: &[&str]) {
    let _turn = file::lock_directory(directory);
    let mut sums = read(directory).unwrap_or_default();
    for name in names {
        if let Ok(digest) = digest(&directory.join(name)) {
            sums.insert((*name).to_owned(), digest);
        }
    }
    let _ = save(directory, &sums);
}

/// Human-readable messages about files whose digest does not match. A missing file is no damage, because results are shared
/// without some of them.
pub fn damaged(directory: &Path) -> Vec<String> {
    let Some(sums) = read(directory) else {
        return vec![format!("{}: {}", directory.join(SUMS).display(), checksum::DAMAGED)];
    };
    let path = |name: &String| directory.join(name);
    sums.iter()
        .filter(|(name, written)| digest(&path(name)).is_ok_and(|found| found != **written))
        .map(|(name, _)| format!("{}: {}", path(name).display(), checksum::DAMAGED))
        .collect()
}

/// Digests by name; empty if there is no list, `None` if the list is damaged.
fn read(directory: &Path) -> Option<BTreeMap<String, String>> {
    let bytes = match file::bytes(&directory.join(SUMS), FILE_BYTES_MAX) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Some(BTreeMap::new()),
        bytes => bytes.ok()?,
    };
    checksum::check_text(&bytes).ok()?;
    let lines = std::str::from_utf8(&bytes).ok()?.lines().filter(|line| !line.starts_with('#'));
    // A path could point out of the directory.
    let sum = |(digest, name): (&str, &str)| (!name.contains('/')).then(|| (name.to_owned(), digest.to_owned()));
    lines.map(|line| line.split_once("  ").and_then(sum)).collect()
}

fn save(directory: &Path, sums: &BTreeMap<String, String>) -> Result<(), write::WriteError> {
    let mut text = String::new();
    for (name, digest) in sums {
        let _ = writeln!(text, "{digest}  {name}");
    }
    write::replace(&directory.join(SUMS), &checksum::text(&text))
}

fn digest(path: &Path) -> io::Result<String> {
    digest_of_reader(file::open(path)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changed_files_and_a_damaged_list_are_reported() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let named = || damaged(directory.path());
        let message = |name: &str| format!("{}: {}", at(name).display(), checksum::DAMAGED);
        assert!(named().is_empty(), "there is no list");
        write::replace(&at("detections.json"), b"[]").unwrap();
        write::replace(&at("memory.csv"), b"1").unwrap();
        record(directory.path(), &["detections.json", "memory.csv", "none.csv"]);
        assert!(named().is_empty());
        write::replace(&at("detections.json"), b"[1").unwrap();
        assert_eq!(named(), [message("detections.json")]);
        remove(directory.path(), &["detections.json"]);
        assert!(named().is_empty(), "a kill here leaves a new file without a digest");
        record(directory.path(), &["detections.json"]);
        std::fs::remove_file(at("memory.csv")).unwrap();
        assert!(named().is_empty());
        let mut sums = std::fs::read(at(SUMS)).unwrap();
        sums[3] ^= 1;
        write::replace(&at(SUMS), &sums).unwrap();
        assert_eq!(named(), [message(SUMS)]);
        record(directory.path(), &["detections.json"]);
        assert!(named().is_empty());
    }

    #[test]
    fn sha256sum_accepts_the_list() {
        let directory = tempfile::tempdir().unwrap();
        write::replace(&directory.path().join("a b.csv"), b"1").unwrap();
        record(directory.path(), &["a b.csv"]);
        let check =
            || std::process::Command::new("sha256sum").args(["-c", SUMS]).current_dir(directory.path()).output();
        if let Ok(output) = check() {
            assert!(output.status.success() && output.stdout == b"a b.csv: OK\n", "{output:?}");
        }
    }
}
