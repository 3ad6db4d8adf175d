//! Are the files that other programs read what was written? Their digests stand in `SHA256SUMS` beside them.
//!
//! Such a file has a form of its own, in which there is no room for a check: a list of COCO's detections, a table, a page.
//! `sha256sum -c SHA256SUMS` checks them, and so does each command that reads a run.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io::{self, Read};
use std::path::Path;

use sha2::{Digest, Sha256};

use super::{file, seal, write};

/// The list in a folder, as `sha256sum` writes and checks it.
pub const SUMS: &str = "SHA256SUMS";
/// More files than a folder of a result has.
const FILE_BYTES_MAX: u64 = 64 * 1024;

/// These files are about to be replaced. A kill before they are [`noted`] leaves files of which nothing is known, and none
/// that seem damaged.
pub fn forget(folder: &Path, names: &[&str]) {
    let _turn = file::turn(folder);
    let mut sums = read(folder).unwrap_or_default();
    let before = sums.len();
    sums.retain(|name, _| !names.contains(&name.as_str()));
    if sums.len() < before && keep(folder, &sums).is_err() {
        // A disk that is full: rather nothing than what is wrong.
        let _ = std::fs::remove_file(folder.join(SUMS));
    }
}

/// Whether a digest of this file is kept.
pub fn has(folder: &Path, name: &str) -> bool {
    read(folder).is_some_and(|sums| sums.contains_key(name))
}

/// These files, if they are there, are now what they should be. A list that cannot be written is no reason to stop.
pub fn noted(folder: &Path, names: &[&str]) {
    let _turn = file::turn(folder);
    let mut sums = read(folder).unwrap_or_default();
    for name in names {
        if let Ok(digest) = digest(&folder.join(name)) {
            sums.insert((*name).to_owned(), digest);
        }
    }
    let _ = keep(folder, &sums);
}

/// What of a folder is not what was written, for people; each names a file. A file that is gone is no damage: results are
/// passed on without some of them.
pub fn damaged(folder: &Path) -> Vec<String> {
    let Some(sums) = read(folder) else {
        return vec![format!("{}: {}", folder.join(SUMS).display(), seal::DAMAGED)];
    };
    let path = |name: &String| folder.join(name);
    sums.iter()
        .filter(|(name, written)| digest(&path(name)).is_ok_and(|found| found != **written))
        .map(|(name, _)| format!("{}: {}", path(name).display(), seal::DAMAGED))
        .collect()
}

/// Digests by name; none where there is no list, and `None` of one that is damaged.
fn read(folder: &Path) -> Option<BTreeMap<String, String>> {
    let bytes = match file::bytes(&folder.join(SUMS), FILE_BYTES_MAX) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Some(BTreeMap::new()),
        bytes => bytes.ok()?,
    };
    seal::check_text(&bytes).ok()?;
    let lines = std::str::from_utf8(&bytes).ok()?.lines().filter(|line| !line.starts_with('#'));
    // A name with a folder in it would lead out of this one.
    let sum = |(digest, name): (&str, &str)| (!name.contains('/')).then(|| (name.to_owned(), digest.to_owned()));
    lines.map(|line| line.split_once("  ").and_then(sum)).collect()
}

fn keep(folder: &Path, sums: &BTreeMap<String, String>) -> Result<(), write::WriteError> {
    let mut text = String::new();
    for (name, digest) in sums {
        let _ = writeln!(text, "{digest}  {name}");
    }
    write::replace(&folder.join(SUMS), &seal::text(&text))
}

/// SHA-256 of a file, a block at a time.
fn digest(path: &Path) -> io::Result<String> {
    let (mut file, mut hasher, mut block) = (file::open(path)?, Sha256::new(), vec![0; 64 * 1024]);
    loop {
        match file.read(&mut block)? {
            0 => return Ok(hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()),
            count => hasher.update(&block[..count]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_file_is_named_and_one_that_is_gone_or_being_replaced_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let named = || damaged(folder.path());
        assert!(named().is_empty(), "nothing is known");
        write::replace(&at("detections.json"), b"[]").unwrap();
        write::replace(&at("memory.csv"), b"1").unwrap();
        noted(folder.path(), &["detections.json", "memory.csv", "none.csv"]);
        assert!(named().is_empty());
        write::replace(&at("detections.json"), b"[1").unwrap();
        assert!(named()[0].contains("detections.json") && named().len() == 1, "{:?}", named());
        forget(folder.path(), &["detections.json"]);
        assert!(named().is_empty(), "a kill here leaves a new file without its digest");
        noted(folder.path(), &["detections.json"]);
        std::fs::remove_file(at("memory.csv")).unwrap();
        assert!(named().is_empty());
        let mut sums = std::fs::read(at(SUMS)).unwrap();
        sums[3] ^= 1;
        write::replace(&at(SUMS), &sums).unwrap();
        assert!(named()[0].contains(SUMS), "{:?}", named());
        noted(folder.path(), &["detections.json"]);
        assert!(named().is_empty());
    }

    #[test]
    fn another_program_checks_them() {
        let folder = tempfile::tempdir().unwrap();
        write::replace(&folder.path().join("a b.csv"), b"1").unwrap();
        noted(folder.path(), &["a b.csv"]);
        let check = || std::process::Command::new("sha256sum").args(["-c", SUMS]).current_dir(folder.path()).output();
        if let Ok(said) = check() {
            assert!(said.status.success() && said.stdout == b"a b.csv: OK\n", "{said:?}");
        }
    }
}
