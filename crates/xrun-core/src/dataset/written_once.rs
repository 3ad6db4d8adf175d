//! How does what xrun makes come into the cache? As a whole, once, whoever wants it first, with the digests of its bytes.
//!
//! A folder has the list [`SUMS`](super::known::SUMS) of its files; a file has the same list of itself beside it. Who reads
//! one compares: bytes that are not those that were written are refused by name, as numbers would change without a word.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use super::cache;
use super::digest::digest_of_file;
use super::error::DataError;
use super::known::CHANGED;
use crate::files::{file as regular, write};

/// Threads that generate at once.
const THREADS_MAX: usize = 8;
/// More than this is no list of one file.
const LIST_BYTES_MAX: u64 = 4096;

/// The folder `name` of the cache, written now by `make` if it is not there yet. `last` is the file of it that is written
/// last: its presence says that the folder is whole. One process writes a folder, others that want it wait.
///
/// # Errors
/// It cannot be written or read, or what is there is not whole.
pub fn folder(
    cache: &Path,
    name: &str,
    last: &str,
    make: impl FnOnce(&Path) -> io::Result<()>,
) -> Result<PathBuf, DataError> {
    let place = cache.join(name);
    let is_there = || is_there(&place, &place.join(last));
    cache::make(cache).map_err(|error| not_made(&place, &error))?;
    if is_there()? {
        return Ok(place);
    }
    let prefix = prefix(name);
    let _lock = lock(cache, name, &prefix);
    if is_there()? {
        return Ok(place); // by another process, meanwhile
    }
    if place.exists() {
        let message = format!(
            "the generated data set is damaged: it has no {last}; delete this folder, and it is generated again"
        );
        return Err(DataError::file(&place, message));
    }
    let failed = |error: io::Error| not_made(&place, &error);
    let temporary = temporary(&prefix).tempdir_in(cache).map_err(failed)?;
    make(temporary.path()).map_err(failed)?;
    match std::fs::rename(temporary.path(), &place) {
        Ok(()) => {
            let _ = temporary.keep(); // moved: nothing is left to remove
            Ok(place)
        }
        // Another process was faster, where the file system has no locks; what it wrote has the same bytes.
        Err(_) if is_there()? => Ok(place),
        Err(error) => Err(failed(error)),
    }
}

/// The digest that the file `place` of the cache was written with. If it is not there yet, `make` writes it now, at the path that
/// it is given. One process writes a file, others that want it wait. Whoever reads it holds the bytes against the digest with
/// [`expect`].
///
/// # Errors
/// It cannot be written or read, or nothing says what it was written as.
pub fn file<E: From<DataError>>(place: &Path, make: impl FnOnce(&Path) -> Result<(), E>) -> Result<String, E> {
    let (folder, name) = (place.parent().unwrap_or(Path::new(".")), name_of(place));
    let failed = |error: io::Error| not_made(place, &error);
    cache::make(folder).map_err(failed)?;
    if let Some(digest) = noted(place)? {
        return Ok(digest);
    }
    let prefix = prefix(&name);
    let _lock = lock(folder, &name, &prefix);
    if let Some(digest) = noted(place)? {
        return Ok(digest); // by another process, meanwhile
    }
    let temporary = temporary(&prefix).tempdir_in(folder).map_err(failed)?;
    let made = temporary.path().join(&name);
    make(&made)?;
    let digest = digest_of_file(&made)?;
    // First the list: a file without one would not be believed.
    let list = format!("{digest}  {name}\n");
    write::replace(&sums_of(place), list.as_bytes()).map_err(|error| failed(error.source))?;
    std::fs::rename(&made, place).map_err(failed)?;
    Ok(digest)
}

/// The digest of a file of the cache, which has the bytes that it was written with; `None` where it is not there.
///
/// # Errors
/// It has not, or cannot be read.
pub fn digest(place: &Path) -> Result<Option<String>, DataError> {
    let Some(written) = noted(place)? else { return Ok(None) };
    expect(place, &written, &digest_of_file(place)?)?;
    Ok(Some(written))
}

/// Refuses a file of the cache whose bytes have another digest than the one that they were written with.
///
/// # Errors
/// They have.
pub fn expect(place: &Path, written: &str, found: &str) -> Result<(), DataError> {
    match written == found {
        true => Ok(()),
        false => Err(damaged(place, DataError::file(place, CHANGED))),
    }
}

/// Reads the digest that a file was written with; `None` where it is not there.
fn noted(place: &Path) -> Result<Option<String>, DataError> {
    if !is_there(place, place)? {
        return Ok(None);
    }
    let sums = sums_of(place);
    let unknown = |why: String| damaged(place, DataError::file(&sums, why));
    let text = regular::bytes(&sums, LIST_BYTES_MAX).map_err(|error| unknown(format!("cannot be read: {error}")))?;
    let text = String::from_utf8_lossy(&text).into_owned();
    let digest = text.strip_suffix('\n').and_then(|line| line.split_once("  ")).filter(|(_, of)| *of == name_of(place));
    digest.map(|(digest, _)| Some(digest.to_owned())).ok_or_else(|| unknown(CHANGED.into()))
}

/// Beside a file, as `sha256sum -c` reads it.
fn sums_of(place: &Path) -> PathBuf {
    place.with_file_name(format!("{}.{}", name_of(place), cache::SUM))
}

fn name_of(place: &Path) -> String {
    place.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

/// Whether `file` is there and can be read, which belongs to `place`.
fn is_there(place: &Path, file: &Path) -> Result<bool, DataError> {
    match regular::open(file) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(not_ours(place)),
        Err(_) => Ok(false),
    }
}

/// Whether this still has to be made. What may not be looked at is there, and said to be when it is opened.
pub fn is_missing(file: &Path) -> bool {
    matches!(file.try_exists(), Ok(false))
}

/// Error of a file or folder of the cache that cannot be written.
pub fn not_made(place: &Path, error: &io::Error) -> DataError {
    DataError::file(place, format!("cannot be generated: {error}{}", cache::advice(error)))
}

/// Error of a file that another user made and did not share.
fn not_ours(place: &Path) -> DataError {
    let message = "permission denied: another user made it, and lets nobody else read it; ask for `chmod -R go+rX` of it, or \
                   name another folder with the environment variable XRUN_CACHE";
    DataError::file(place, message)
}

/// Error of a file or folder of the cache that is not as it was written, and is never left out in part. Without a hint:
/// no setting helps.
pub fn damaged(place: &Path, error: DataError) -> DataError {
    let first = match error {
        DataError::Several(broken) => broken.first.into_iter().next().map(|item| item.error),
        other => Some(other),
    };
    match first {
        Some(DataError::File { path, .. }) if is_closed(Path::new(&path)) => not_ours(place),
        Some(DataError::File { path, message: cause, hint: _ }) => {
            let advice = match place.is_dir() {
                true => "the generated data set is damaged; delete this folder, and it is generated again",
                false => "this file of the cache is damaged; delete it, and it is made again",
            };
            let of = if Path::new(&path) == place { String::new() } else { format!("{path}: ") };
            DataError::file(place, format!("{advice} ({of}{cause})"))
        }
        other => DataError::content(other.map_or_else(String::new, |error| error.to_string())),
    }
}

/// Whether a file is there that this user may not read.
fn is_closed(path: &Path) -> bool {
    regular::open(path).is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

/// Makes something of each item, by parts, a thread each, in their order. Who makes it does not matter: where the system gives no
/// more threads, this one makes the rest.
///
/// # Errors
/// The first that an item gives.
pub fn side_by_side<T: Sync, R: Send>(items: &[T], one: impl Fn(&T) -> io::Result<R> + Sync) -> io::Result<Vec<R>> {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(THREADS_MAX);
    let all = |part: &[T]| part.iter().map(&one).collect::<io::Result<Vec<R>>>();
    let made: Vec<io::Result<Vec<R>>> = std::thread::scope(|scope| {
        let begin = |part| {
            let thread = std::thread::Builder::new().name("xrun generating".into());
            (part, thread.spawn_scoped(scope, move || all(part)).ok())
        };
        let parts: Vec<_> = items.chunks(items.len().div_ceil(threads).max(1)).map(begin).collect();
        let panicked = |_| Err(io::Error::other("a thread that generates data panicked"));
        let end = |(part, thread): (_, Option<std::thread::ScopedJoinHandle<'_, _>>)| match thread {
            Some(thread) => thread.join().unwrap_or_else(panicked),
            None => all(part),
        };
        parts.into_iter().map(end).collect()
    });
    let made: io::Result<Vec<Vec<R>>> = made.into_iter().collect();
    made.map(|parts| parts.into_iter().flatten().collect())
}

/// Waits until no other process generates this set, and then removes what killed ones left. `None` where the file
/// system has no locks: then two may do the same work, and nothing is removed.
fn lock(cache: &Path, name: &str, prefix: &str) -> Option<File> {
    let path = cache.join(cache::lock_of(name));
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(path).ok()?;
    file.lock().ok()?;
    for entry in std::fs::read_dir(cache).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(prefix) {
            let _ = std::fs::remove_dir_all(entry.path()); // what cannot be removed harms nobody
        }
    }
    Some(file)
}

fn prefix(name: &str) -> String {
    format!(".generating-{name}-")
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::digest::digest as digest_of;

    #[test]
    fn every_flipped_bit_of_a_file_or_of_its_digest_is_told_with_what_to_do() {
        let cache = tempfile::tempdir().unwrap();
        let place = cache.path().join("texts-1.json");
        let make = |path: &Path| write::replace(path, b"[1]").map_err(|error| not_made(path, &error.source));
        assert_eq!(digest(&place).unwrap(), None);
        assert_eq!(file(&place, make).unwrap(), digest_of(b"[1]"));
        let kept = || file::<DataError>(&place, |_| panic!("it is there"));
        assert_eq!(kept().unwrap(), digest_of(b"[1]"));
        assert_eq!(digest(&place).unwrap(), Some(digest_of(b"[1]")));
        let names = || std::fs::read_dir(cache.path()).unwrap().count();
        assert_eq!(names(), 3, "the file, its digest, the lock");
        for path in [&place, &sums_of(&place)] {
            let whole = std::fs::read(path).unwrap();
            for bit in 0..whole.len() * 8 {
                let mut bytes = whole.clone();
                bytes[bit / 8] ^= 1 << (bit % 8);
                write::replace(path, &bytes).unwrap();
                let said = digest(&place).unwrap_err().to_string();
                assert!(said.contains("texts-1.json") && said.contains("delete it, and it is made again"), "{said}");
            }
            std::fs::remove_file(path).unwrap();
            match path == &place {
                true => assert_eq!(digest(&place).unwrap(), None),
                false => assert!(kept().is_err() && digest(&place).is_err(), "nothing says what it was"),
            }
            write::replace(path, &whole).unwrap();
            assert!(digest(&place).unwrap().is_some());
        }
        // As the message says.
        std::fs::remove_file(&place).unwrap();
        assert_eq!(file(&place, make).unwrap(), digest_of(b"[1]"));
    }

    #[test]
    fn a_file_that_was_not_made_to_its_end_is_not_there() {
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
        cache::forget_oldest(cache.path(), 2);
        let mut left: Vec<String> = std::fs::read_dir(cache.path())
            .unwrap()
            .map(|one| one.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        assert_eq!(left, [".a.lock", ".c.lock", ".d.lock", "c", "c.sha256", "d", "d.sha256"]);
    }

    #[test]
    fn what_is_made_side_by_side_is_in_order_and_its_first_error_is_told() {
        let numbers: Vec<u32> = (0..100).collect();
        assert_eq!(side_by_side(&numbers, |number| Ok(number * 2)).unwrap(), (0..200).step_by(2).collect::<Vec<u32>>());
        let failed = side_by_side(&numbers, |number| match number {
            30.. => Err(io::Error::other(format!("{number}"))),
            _ => Ok(()),
        });
        assert!(failed.unwrap_err().to_string().parse::<u32>().unwrap() >= 30);
        assert!(side_by_side(&[] as &[u32], |_| Ok(0)).unwrap().is_empty());
    }
}
