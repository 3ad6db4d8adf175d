//! Proof that xrun wrote a directory, without which none is removed or replaced.

use std::io;
use std::path::Path;

use crate::format::Manifest;
use crate::read;
use xrun_core::files::layout;
use xrun_core::printable;

/// Reason why a directory is not proven to be xrun's.
#[derive(Debug, thiserror::Error)]
pub enum ProofError {
    /// It cannot be read.
    #[error(transparent)]
    Unreadable(#[from] io::Error),
    /// It is a symlink, or its files are not those of a run: a message.
    #[error("{0}")]
    Foreign(String),
}

/// Reads the manifest of a directory that has it and `files` as regular files.
///
/// # Errors
/// It is a symlink, a file is missing, or the manifest is not one of xrun's or is damaged.
pub fn manifest_of(directory: &Path, files: &[&str]) -> Result<Manifest, ProofError> {
    // Its target may prove something else, and a symlink in the place of a file would prove another directory.
    let is_file = |name: &&str| std::fs::symlink_metadata(directory.join(name)).is_ok_and(|found| found.is_file());
    let not_a_run = |why: String| ProofError::Foreign(format!("not a run: {why}"));
    if std::fs::symlink_metadata(directory)?.is_symlink() {
        return Err(ProofError::Foreign("it is a symlink, which is not followed; name its target".into()));
    }
    if let Some(missing) = files.iter().chain(&[layout::MANIFEST]).find(|name| !is_file(name)) {
        return Err(not_a_run(format!("{missing} is missing")));
    }
    read::manifest(directory).map_err(|error| not_a_run(error.to_string()))
}

/// Checks that a directory has only regular files, and directories, of these names.
///
/// # Errors
/// It has another entry, which the message names, or cannot be read.
pub fn has_only(directory: &Path, files: &[&str], directories: &[&str]) -> Result<(), String> {
    for entry in std::fs::read_dir(directory).map_err(|error| error.to_string())? {
        let entry = entry.map_err(|error| error.to_string())?;
        let name = entry.file_name();
        let names = match entry.file_type() {
            Ok(kind) if kind.is_file() => files,
            Ok(kind) if kind.is_dir() => directories,
            _ => &[],
        };
        if !names.iter().any(|known| name == **known) {
            return Err(format!("{} is not a file that xrun wrote", printable::line(&name.to_string_lossy(), 100)));
        }
    }
    Ok(())
}
