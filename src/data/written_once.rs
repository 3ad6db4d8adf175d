//! How does a generated folder come into the cache? As a whole, once, whoever wants it first.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use super::cache;
use super::error::DataError;

/// The folder `name` of the cache, written now by `write` if it is not there yet. `last` is the file of it that is written
/// last: its presence says that the folder is whole. One process writes a folder, others that want it wait.
///
/// # Errors
/// It cannot be written, or what is there is not whole.
pub fn folder(
    cache: &Path,
    name: &str,
    last: &str,
    write: impl FnOnce(&Path) -> io::Result<()>,
) -> Result<PathBuf, DataError> {
    let place = cache.join(name);
    let is_there = || place.join(last).is_file();
    let failed = |error: io::Error| {
        DataError::file(&place, format!("cannot generate the data set: {error}{}", cache::advice(&error)))
    };
    cache::make(cache).map_err(failed)?;
    if is_there() {
        return Ok(place);
    }
    let prefix = format!(".generating-{name}-");
    let _lock = lock(&cache.join(format!(".{name}.lock")), cache, &prefix);
    if is_there() {
        return Ok(place); // by another process, meanwhile
    }
    if place.exists() {
        return Err(DataError::file(
            &place,
            format!(
                "the generated data set is damaged: it has no {last}; delete this folder, and it is generated again"
            ),
        ));
    }
    let temporary = temporary(&prefix).tempdir_in(cache).map_err(failed)?;
    write(temporary.path()).map_err(failed)?;
    match std::fs::rename(temporary.path(), &place) {
        Ok(()) => {
            let _ = temporary.keep(); // moved: nothing is left to remove
            Ok(place)
        }
        // Another process was faster, where the file system has no locks; what it wrote has the same bytes.
        Err(_) if is_there() => Ok(place),
        Err(error) => Err(failed(error)),
    }
}

/// What is said of a generated folder that is not as it was written, and is never left out in part. Without a hint: no
/// setting helps.
pub fn damaged(folder: &Path, error: DataError) -> DataError {
    let first = match error {
        DataError::Several(broken) => broken.first.into_iter().next().map(|item| item.error),
        other => Some(other),
    };
    match first {
        Some(DataError::File { path, message: cause, hint: _ }) => {
            let advice = "the generated data set is damaged; delete this folder, and it is generated again";
            DataError::file(folder, format!("{advice} ({path}: {cause})"))
        }
        other => DataError::content(other.map_or_else(String::new, |error| error.to_string())),
    }
}

/// Waits until no other process generates this set, and then removes what killed ones left. `None` where the file
/// system has no locks: then two may do the same work, and nothing is removed.
fn lock(path: &Path, cache: &Path, prefix: &str) -> Option<File> {
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(path).ok()?;
    file.lock().ok()?;
    for entry in std::fs::read_dir(cache).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(prefix) {
            let _ = std::fs::remove_dir_all(entry.path()); // what cannot be removed harms nobody
        }
    }
    Some(file)
}

/// A temporary folder is private to its owner; a cache may be shared by those whom the user's umask lets in.
#[cfg(unix)]
fn temporary(prefix: &str) -> tempfile::Builder<'_, 'static> {
    use std::os::unix::fs::PermissionsExt;
    let mut builder = tempfile::Builder::new();
    builder.prefix(prefix).permissions(std::fs::Permissions::from_mode(0o777));
    builder
}

#[cfg(not(unix))]
fn temporary(prefix: &str) -> tempfile::Builder<'_, 'static> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(prefix);
    builder
}
