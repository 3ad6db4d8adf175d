//! Cache of SHA-256 digests of a data set's files. A file is hashed again only if its size, times or inode change.
//!
//! The digests of each data set are in one small file of the cache directory. A file that changed within the last seconds
//! before it was hashed is not cached, because a second change could leave its times as they are.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime};

use super::cache;
use super::digest::{digest, digest_of_file};
use super::error::DataError;
use crate::files::{checksum, file, write};
use crate::units::{Bytes, pluralize, seconds};

/// Maximum size of a list of digests: some million files.
const FILE_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// Maximum number of data sets in the cache.
const SETS_MAX: usize = 256;
/// Bytes of a line without its name, about.
const LINE_BYTES: usize = 144;
/// First line of a list: the format version and the columns.
const HEADER: &str = "# xrun digests 1: SHA-256, bytes, modified, changed, inode, name";
/// Coarsest resolution of time stamps in file systems.
const TIME_RESOLUTION: Duration = Duration::from_secs(2);
/// Message about a generated file whose bytes changed.
pub const CHANGED: &str = "its checksum differs from the one it was written with: it was edited, or damaged by the disk \
                           or a copy";
/// File name of a generated data set's list of digests, in the format of `sha256sum`.
pub const SUMS: &str = "SHA256SUMS";

/// Time of hashing before its first progress message.
const FIRST_PROGRESS: Duration = Duration::from_secs(2);
/// Interval between progress messages.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(10);

type Notifier = dyn Fn(&str) + Send + Sync;

/// Receiver of messages about slow hashing and damaged cache files.
static NOTIFIER: OnceLock<Box<Notifier>> = OnceLock::new();

/// Sets the receiver of messages for people, a line each, about slow hashing and damaged cache files. Only the first call
/// of a process counts.
pub fn set_notifier(notifier: impl Fn(&str) + Send + Sync + 'static) {
    let _ = NOTIFIER.set(Box::new(notifier));
}

/// File metadata that changes when a file is written, replaced or restored. Times are in nanoseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    length: u64,
    modified: i128,
    changed: i128,
    inode: u64,
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        let changed = i128::from(metadata.ctime()) * 1_000_000_000 + i128::from(metadata.ctime_nsec());
        let modified = metadata.modified().map_or(0, nanoseconds);
        Self { length: metadata.len(), modified, changed, inode: metadata.ino() }
    }

    /// `true` if the last change is old enough for any later one to change the times.
    fn settled(&self, now: i128) -> bool {
        self.modified.max(self.changed) < now - TIME_RESOLUTION.as_nanos() as i128
    }
}

/// Nanoseconds since 1970; negative before.
fn nanoseconds(time: SystemTime) -> i128 {
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => since.as_nanos() as i128,
        Err(before) => -(before.duration().as_nanos() as i128),
    }
}

/// A file whose digest is known.
#[derive(Debug)]
struct Known {
    stamp: Stamp,
    digest: String,
    /// `true` where the file was asked for and is as it was then.
    current: bool,
    /// `true` where the digest was read from the cache.
    cached: bool,
}

/// Digests of a data set's files.
#[derive(Debug)]
pub struct DigestCache {
    cache_file: PathBuf,
    files: BTreeMap<String, Known>,
    /// Digests of a generated set as it was written; `None` for other sets.
    expected: Option<BTreeMap<String, String>>,
    opened_at: i128,
    /// Number of files hashed so far.
    pub hashed: u64,
    /// Their bytes.
    bytes: u64,
    since: Instant,
    /// Time since the start at which the next progress message is due.
    next_progress: Duration,
}

impl DigestCache {
    /// Loads the cached digests of the data set in `root`, a canonical path.
    pub fn open(root: &Path) -> Self {
        Self::load(cache_file(root), nanoseconds(SystemTime::now()))
    }

    fn load(cache_file: PathBuf, opened_at: i128) -> Self {
        Self {
            files: read(&cache_file).unwrap_or_default(),
            cache_file,
            expected: None,
            opened_at,
            hashed: 0,
            bytes: 0,
            since: Instant::now(),
            next_progress: FIRST_PROGRESS,
        }
    }

    /// As [`open`](Self::open) for a generated data set, whose files must have the digests of its list [`SUMS`].
    pub fn open_generated(root: &Path) -> Self {
        let sums = file::bytes(&root.join(SUMS), FILE_BYTES_MAX).unwrap_or_default();
        let line = |line: &str| line.split_once("  ").map(|(digest, name)| (name.to_owned(), digest.to_owned()));
        let expected = Some(String::from_utf8_lossy(&sums).lines().filter_map(line).collect());
        Self { expected, ..Self::open(root) }
    }

    /// Digest of a file; `name` is its name in the data set.
    ///
    /// # Errors
    /// The file is unreadable, or differs from the one that was generated.
    pub fn digest(&mut self, name: &str, path: &Path) -> Result<String, DataError> {
        let known = self.files.get(name);
        if let Some(known) = known.filter(|known| known.current) {
            return Ok(known.digest.clone());
        }
        let failed = |error: std::io::Error| DataError::file(path, format!("cannot be read: {error}"));
        let stamp = || std::fs::metadata(path).map(|metadata| Stamp::of(&metadata)).map_err(failed);
        let found = stamp()?;
        let known = known.filter(|known| known.stamp == found).map(|known| known.digest.clone());
        let (cached, digest) = match known {
            Some(digest) => (true, digest),
            None => {
                let digest = digest_of_file(path)?;
                (self.hashed, self.bytes) = (self.hashed + 1, self.bytes + found.length);
                notify(self.progress(self.since.elapsed()));
                (false, digest)
            }
        };
        self.expect(name, &digest, path)?;
        // A file that changed while it was hashed is not cached.
        if stamp()? == found {
            let known = Known { stamp: found, digest: digest.clone(), current: true, cached };
            self.files.insert(name.to_owned(), known);
        }
        Ok(digest)
    }

    /// Progress message, if one is due at `elapsed`.
    fn progress(&mut self, elapsed: Duration) -> Option<String> {
        if elapsed < self.next_progress {
            return None;
        }
        self.next_progress = elapsed + PROGRESS_INTERVAL;
        Some(format!("data: hashing all files: {}; later runs hash only changed files", self.amount(elapsed)))
    }

    fn amount(&self, elapsed: Duration) -> String {
        format!("{}, {} in {}", pluralize(self.hashed, "file"), Bytes(self.bytes), seconds(elapsed.as_secs_f64()))
    }

    /// Compares a digest with the list of a generated data set; every digest is right for other data.
    ///
    /// # Errors
    /// The digest differs, or the file is not in the list.
    pub fn expect(&self, name: &str, digest: &str, path: &Path) -> Result<(), DataError> {
        match &self.expected {
            Some(written) if written.get(name).is_none_or(|written| written != digest) => {
                Err(DataError::file(path, CHANGED))
            }
            _ => Ok(()),
        }
    }

    /// Maximum bytes that it takes until it is saved, with the text that [`save`](Self::save) writes.
    pub fn bytes_max(&self) -> u64 {
        // A node of a map has room for 11 entries, and at least 5.
        let entry = |bytes: usize| bytes * 11 / 5;
        let file = |(name, known): (&String, &Known)| {
            entry(size_of::<(String, Known)>()) + known.digest.capacity() + LINE_BYTES + 2 * name.len()
        };
        let expected = |(name, digest): (&String, &String)| {
            entry(size_of::<(String, String)>()) + name.capacity() + digest.capacity()
        };
        let expected = self.expected.iter().flatten().map(expected).sum::<usize>();
        (self.files.iter().map(file).sum::<usize>() + 2 * LINE_BYTES + expected) as u64
    }

    /// Saves the digests for the next run. Errors are ignored: the cache is optional.
    pub fn save(self) {
        let elapsed = self.since.elapsed();
        notify((self.next_progress > FIRST_PROGRESS).then(|| format!("data: hashed {}", self.amount(elapsed))));
        if self.files.values().all(|known| known.current && known.cached) {
            return;
        }
        // The digests go as their lines come: each may be as long as the index of the data.
        let lines = self.files.keys().map(|name| LINE_BYTES + name.len()).sum::<usize>();
        let mut text = String::with_capacity(lines + 2 * LINE_BYTES);
        text += HEADER;
        text.push('\n');
        for (name, Known { stamp, digest, .. }) in self.files.into_iter().filter(|(_, known)| known.current) {
            if stamp.settled(self.opened_at) && !name.contains('\n') {
                let Stamp { length, modified, changed, inode } = stamp;
                let _ = writeln!(text, "{digest} {length} {modified} {changed} {inode} {name}");
            }
        }
        let directory = self.cache_file.parent().unwrap_or(Path::new("."));
        if text.len() as u64 + 1024 < FILE_BYTES_MAX && cache::create(directory).is_ok() {
            let _ = write::replace(&self.cache_file, &checksum::text(text));
            cache::remove_oldest(directory, SETS_MAX);
        }
    }
}

fn notify(message: Option<String>) {
    if let (Some(message), Some(notifier)) = (message, NOTIFIER.get()) {
        notifier(&message);
    }
}

/// Reports a damaged file of the cache, and what is done about it.
pub fn report_damaged(path: &Path, action: &str) {
    notify(Some(format!("{} is damaged: {action}", path.display())));
}

/// Removes the cached digests of the data set in `root`, so that its files are hashed again.
pub fn remove(root: &Path) {
    let root = root.canonicalize().unwrap_or_else(|_| root.to_path_buf());
    // Fails only if there are none.
    let _ = std::fs::remove_file(cache_file(&root));
}

fn cache_file(root: &Path) -> PathBuf {
    cache::directory().join("digests").join(format!("{}.txt", &digest(root.as_os_str().as_encoded_bytes())[..32]))
}

fn read(path: &Path) -> Option<BTreeMap<String, Known>> {
    let bytes = file::bytes(path, FILE_BYTES_MAX).ok()?;
    checksum::check_text(&bytes).inspect_err(|_| report_damaged(path, "hashing all files of the data again")).ok()?;
    let text = String::from_utf8(bytes).ok()?;
    let mut lines = text.lines();
    if lines.next() != Some(HEADER) {
        return None;
    }
    lines.filter(|line| !line.starts_with('#')).map(parse_line).collect()
}

fn parse_line(line: &str) -> Option<(String, Known)> {
    let mut columns = line.splitn(6, ' ');
    let digest = columns.next()?.to_owned();
    let stamp = Stamp {
        length: columns.next()?.parse().ok()?,
        modified: columns.next()?.parse().ok()?,
        changed: columns.next()?.parse().ok()?,
        inode: columns.next()?.parse().ok()?,
    };
    Some((columns.next()?.to_owned(), Known { stamp, digest, current: false, cached: true }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As [`DigestCache::open`], with a cache file in `directory` and a later clock.
    fn known(directory: &Path) -> DigestCache {
        DigestCache::load(directory.join("cached.txt"), nanoseconds(SystemTime::now() + 2 * TIME_RESOLUTION))
    }

    #[test]
    fn a_file_is_hashed_again_only_if_it_changed_or_was_recent() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a b.jpg");
        write::replace(&path, b"one").unwrap();
        let hash = |recent: bool| {
            let mut known = known(directory.path());
            if recent {
                known.opened_at = nanoseconds(SystemTime::now());
            }
            let found = known.digest("a b.jpg", &path).unwrap();
            assert_eq!(known.digest("a b.jpg", &path).unwrap(), found);
            let hashed = known.hashed;
            known.save();
            (found, hashed)
        };
        assert_eq!(hash(true), (digest(b"one"), 1));
        assert_eq!(hash(false), (digest(b"one"), 1), "not cached: it was too recent");
        assert_eq!(hash(false), (digest(b"one"), 0));
        write::replace(&path, b"two").unwrap();
        assert_eq!(hash(false), (digest(b"two"), 1), "another inode");
        // Overwritten in place with the old modification time: only the change time differs.
        let modified = std::fs::metadata(&path).unwrap().modified().unwrap();
        let mut file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        std::io::Write::write_all(&mut file, b"2wo").unwrap();
        file.set_modified(modified).unwrap();
        assert_eq!(hash(false), (digest(b"2wo"), 1));
        assert_eq!(hash(false), (digest(b"2wo"), 0));
        let mut cached = std::fs::read(directory.path().join("cached.txt")).unwrap();
        cached[HEADER.len() + 3] ^= 1;
        write::replace(&directory.path().join("cached.txt"), &cached).unwrap();
        assert_eq!(hash(false), (digest(b"2wo"), 1), "a damaged list is ignored");
    }

    #[test]
    fn slow_hashing_reports_progress() {
        let directory = tempfile::tempdir().unwrap();
        let mut known = known(directory.path());
        (known.hashed, known.bytes) = (1200, 3 << 30);
        assert_eq!(known.progress(Duration::from_secs(1)), None);
        assert!(known.progress(Duration::from_secs(3)).is_some());
        assert_eq!(known.progress(Duration::from_secs(12)), None);
        assert!(known.progress(Duration::from_secs(13)).is_some());
    }
}
