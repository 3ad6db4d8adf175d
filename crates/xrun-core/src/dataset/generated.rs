//! Creation of generated files and directories in the cache: atomically, once for all processes, with digests.
//!
//! A directory contains the list [`SUMS`](super::digest_cache::SUMS) of its files; a file has a list of its own next to it.
//! Readers compare, and reject a file with other bytes: results would change silently.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::cache;
use super::digest::{digest as digest_of_bytes, digest_of_file};
use super::digest_cache::CHANGED;
use super::error::DataError;
use crate::files::{file as regular, write};

/// Maximum number of threads that generate data.
const THREADS_MAX: usize = 8;
/// Maximum size of the list of one file.
const LIST_BYTES_MAX: u64 = 4096;

/// A generated directory of the cache. Other settings have another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GeneratedSet {
    name: String,
    /// Its file that is written last.
    last: &'static str,
}

impl GeneratedSet {
    /// The set of these settings. A change of what is written needs another `version`: old directories stay valid for old code.
    pub fn new(prefix: &str, version: u32, settings: &impl Serialize, last: &'static str) -> Self {
        let identity = format!("{version} {}", serde_json::to_string(settings).unwrap_or_default());
        Self { name: format!("{prefix}-{}", &digest_of_bytes(identity.as_bytes())[..16]), last }
    }

    /// Its directory below a cache directory, existing or not.
    pub fn directory(&self, cache: &Path) -> PathBuf {
        cache.join(&self.name)
    }

    /// Its directory, where it is still to be generated.
    pub fn missing(&self, cache: &Path) -> Option<PathBuf> {
        Some(self.directory(cache)).filter(|directory| is_missing(&directory.join(self.last)))
    }

    /// Its directory, which `make` writes if it is missing. The presence of its last file marks it as complete. Other processes
    /// wait for the one that writes.
    ///
    /// # Errors
    /// It cannot be written or read, or an existing directory is incomplete.
    pub fn generate(&self, cache: &Path, make: impl FnOnce(&Path) -> io::Result<()>) -> Result<PathBuf, DataError> {
        let place = self.directory(cache);
        let is_there = || is_there(&place, &place.join(self.last));
        cache::create(cache).map_err(|error| not_made(&place, &error))?;
        if is_there()? {
            return Ok(place);
        }
        let prefix = prefix(&self.name);
        let _lock = lock(cache, &self.name, &prefix);
        if is_there()? {
            return Ok(place); // another process created it
        }
        if place.exists() {
            let message = format!(
                "the generated data set is incomplete: {} is missing; delete this directory to generate it again",
                self.last
            );
            return Err(DataError::file(&place, message));
        }
        let failed = |error: io::Error| not_made(&place, &error);
        let temporary = temporary(&prefix).tempdir_in(cache).map_err(failed)?;
        make(temporary.path()).map_err(failed)?;
        match std::fs::rename(temporary.path(), &place) {
            Ok(()) => {
                let _ = temporary.keep(); // renamed: nothing to remove
                Ok(place)
            }
            // On a file system without locks another process was faster; it wrote the same bytes.
            Err(_) if is_there()? => Ok(place),
            Err(error) => Err(failed(error)),
        }
    }
}

/// Writes a new file of a directory that is being generated.
///
/// # Errors
/// It is there, or cannot be written.
pub fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // The whole directory is renamed when it is complete, so a half-written file is never seen.
    OpenOptions::new().create_new(true).write(true).open(path)?.write_all(bytes)
}

/// Digest that the cached file `place` was written with; `make` writes it to the path given if it is missing. Other
/// processes wait for the one that writes. Readers verify the bytes with [`expect`].
///
/// # Errors
/// It cannot be written or read, or its digest is missing.
pub fn file<E: From<DataError>>(place: &Path, make: impl FnOnce(&Path) -> Result<(), E>) -> Result<String, E> {
    let (directory, name) = (place.parent().unwrap_or(Path::new(".")), name_of(place));
    let failed = |error: io::Error| not_made(place, &error);
    cache::create(directory).map_err(failed)?;
    if let Some(digest) = recorded_digest(place)? {
        return Ok(digest);
    }
    let prefix = prefix(&name);
    let _lock = lock(directory, &name, &prefix);
    if let Some(digest) = recorded_digest(place)? {
        return Ok(digest); // another process created it
    }
    let temporary = temporary(&prefix).tempdir_in(directory).map_err(failed)?;
    let created = temporary.path().join(&name);
    make(&created)?;
    let digest = digest_of_file(&created)?;
    // The list first, because a file without one is rejected.
    let list = format!("{digest}  {name}\n");
    write::replace(&sums_of(place), list.as_bytes()).map_err(|error| failed(error.source))?;
    std::fs::rename(&created, place).map_err(failed)?;
    Ok(digest)
}

/// Digest of a cached file after verifying its bytes; `None` if it is missing.
///
/// # Errors
/// The file is unreadable, or its bytes differ from those written.
pub fn digest(place: &Path) -> Result<Option<String>, DataError> {
    let Some(written) = recorded_digest(place)? else { return Ok(None) };
    expect(place, &written, &digest_of_file(place)?)?;
    Ok(Some(written))
}

/// Compares the digest of a cached file with the one that it was written with.
///
/// # Errors
/// They differ.
pub fn expect(place: &Path, written: &str, found: &str) -> Result<(), DataError> {
    match written == found {
        true => Ok(()),
        false => Err(damaged(place, DataError::file(place, CHANGED))),
    }
}

/// Reads the digest that a file was written with; `None` if the file is missing.
fn recorded_digest(place: &Path) -> Result<Option<String>, DataError> {
    if !is_there(place, place)? {
        return Ok(None);
    }
    let sums = sums_of(place);
    let invalid = |cause: String| damaged(place, DataError::file(&sums, cause));
    let text = regular::bytes(&sums, LIST_BYTES_MAX).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => invalid(format!("cannot be read: {error}")),
        _ => unreadable(place, &sums, &error),
    })?;
    let text = String::from_utf8_lossy(&text).into_owned();
    let digest = text.strip_suffix('\n').and_then(|line| line.split_once("  ")).filter(|(_, of)| *of == name_of(place));
    digest.map(|(digest, _)| Some(digest.to_owned())).ok_or_else(|| invalid(CHANGED.into()))
}

/// Path of the list next to a file, in the format of `sha256sum -c`.
fn sums_of(place: &Path) -> PathBuf {
    place.with_file_name(format!("{}.{}", name_of(place), cache::SUM))
}

fn name_of(place: &Path) -> String {
    place.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

/// `true` if `file`, a part of `place`, exists and is readable.
fn is_there(place: &Path, file: &Path) -> Result<bool, DataError> {
    match regular::open(file) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(unreadable(place, file, &error)),
    }
}

/// Error of a part of the cache that cannot be read now, and may be intact.
fn unreadable(place: &Path, part: &Path, error: &io::Error) -> DataError {
    match error.kind() {
        io::ErrorKind::PermissionDenied => not_ours(place),
        _ => DataError::file(part, format!("cannot be read: {error}")),
    }
}

/// `true` if the file does not exist. A file without permission counts as existing; opening it reports that.
pub fn is_missing(file: &Path) -> bool {
    matches!(file.try_exists(), Ok(false))
}

/// Error of a file or directory of the cache that cannot be written.
pub fn not_made(place: &Path, error: &io::Error) -> DataError {
    DataError::file(place, format!("cannot be generated: {error}{}", cache::advice(error)))
}

/// Error of a file that another user created and did not share.
fn not_ours(place: &Path) -> DataError {
    let message = "permission denied: another user created it and it is private; ask for `chmod -R go+rX`, or set \
                   XRUN_CACHE to another directory";
    DataError::file(place, message)
}

/// Error of a file or directory of the cache whose bytes differ from those written. Without a hint, because no setting
/// helps.
pub fn damaged(place: &Path, error: DataError) -> DataError {
    let first = match error {
        DataError::Several(broken) => broken.first.into_iter().next().map(|item| item.error),
        other => Some(other),
    };
    match first {
        Some(DataError::File { path, .. }) if is_unreadable(Path::new(&path)) => not_ours(place),
        Some(DataError::File { path, message: cause, hint: _ }) => {
            let advice = match place.is_dir() {
                true => "the generated data set is damaged; delete this directory to generate it again",
                false => "this file of the cache is damaged; delete it to generate it again",
            };
            let part = if Path::new(&path) == place { String::new() } else { format!("{path}: ") };
            DataError::file(place, format!("{advice} ({part}{cause})"))
        }
        other => DataError::content(other.map_or_else(String::new, |error| error.to_string())),
    }
}

/// `true` if the file exists and this user lacks the permission to read it.
fn is_unreadable(path: &Path) -> bool {
    regular::open(path).is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

/// Maps items in parallel, a contiguous chunk per thread, and returns the results in order. Where the system refuses a
/// thread, the calling one does its work.
///
/// # Errors
/// The first error in the order of the items.
pub fn parallel_map<T: Sync, R: Send>(items: &[T], one: impl Fn(&T) -> io::Result<R> + Sync) -> io::Result<Vec<R>> {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(THREADS_MAX);
    let map_chunk = |chunk: &[T]| chunk.iter().map(&one).collect::<io::Result<Vec<R>>>();
    let results: Vec<io::Result<Vec<R>>> = std::thread::scope(|scope| {
        let spawn = |chunk| {
            let thread = std::thread::Builder::new().name("xrun generating".into());
            (chunk, thread.spawn_scoped(scope, move || map_chunk(chunk)).ok())
        };
        let chunks: Vec<_> = items.chunks(items.len().div_ceil(threads).max(1)).map(spawn).collect();
        let panicked = |_| Err(io::Error::other("a thread that generates data panicked"));
        let join = |(chunk, thread): (_, Option<std::thread::ScopedJoinHandle<'_, _>>)| match thread {
            Some(thread) => thread.join().unwrap_or_else(panicked),
            None => map_chunk(chunk),
        };
        chunks.into_iter().map(join).collect()
    });
    let results: io::Result<Vec<Vec<R>>> = results.into_iter().collect();
    results.map(|chunks| chunks.into_iter().flatten().collect())
}

/// Waits until no other process generates `name`, then removes temporary directories of killed processes. `None` on file
/// systems without locks, where two processes may do the same work and nothing is removed.
fn lock(cache: &Path, name: &str, prefix: &str) -> Option<File> {
    let path = cache.join(cache::lock_of(name));
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(path).ok()?;
    file.lock().ok()?;
    for entry in std::fs::read_dir(cache).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(prefix) {
            let _ = std::fs::remove_dir_all(entry.path()); // leftovers are harmless
        }
    }
    Some(file)
}

fn prefix(name: &str) -> String {
    format!(".generating-{name}-")
}

/// Builder of temporary directories with the permissions of the user's umask, so that a cache can be shared.
fn temporary(prefix: &str) -> tempfile::Builder<'_, 'static> {
    use std::os::unix::fs::PermissionsExt;
    let mut builder = tempfile::Builder::new();
    builder.prefix(prefix).permissions(std::fs::Permissions::from_mode(0o777));
    builder
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupted_file_does_not_appear_and_old_files_are_removed() {
        let cache = tempfile::tempdir().unwrap();
        let place = cache.path().join("a");
        let failed = file(&place, |path| {
            write::replace(path, b"half").unwrap();
            Err(DataError::content("the disk is full"))
        });
        assert!(failed.is_err() && !place.exists() && !sums_of(&place).exists());
        for (age, name) in [(30, "b"), (20, "c"), (10, "d")] {
            let place = cache.path().join(name);
            file(&place, |path| write::replace(path, b"x").map_err(|error| not_made(path, &error.source))).unwrap();
            let then = std::time::SystemTime::now() - std::time::Duration::from_secs(age);
            OpenOptions::new().append(true).open(&place).unwrap().set_modified(then).unwrap();
        }
        cache::remove_oldest(cache.path(), 2);
        let mut left: Vec<String> = std::fs::read_dir(cache.path())
            .unwrap()
            .map(|one| one.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        assert_eq!(left, [".a.lock", ".c.lock", ".d.lock", "c", "c.sha256", "d", "d.sha256"]);
    }

    #[test]
    fn a_parallel_map_keeps_the_order_and_returns_an_error() {
        let numbers: Vec<u32> = (0..100).collect();
        assert_eq!(parallel_map(&numbers, |number| Ok(number * 2)).unwrap(), (0..200).step_by(2).collect::<Vec<u32>>());
        let failed = parallel_map(&numbers, |number| match number {
            30.. => Err(io::Error::other(format!("{number}"))),
            _ => Ok(()),
        });
        assert!(failed.unwrap_err().to_string().parse::<u32>().unwrap() >= 30);
        assert!(parallel_map(&[] as &[u32], |_| Ok(0)).unwrap().is_empty());
    }
}
