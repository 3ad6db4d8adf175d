//! Which bytes do the files of a data set have? Each is hashed once; later its size, times and inode must be as they were.
//!
//! What was found is kept in the cache folder, one small file a data set. A file that was changed in the last seconds
//! before it was hashed is hashed again the next time: a second change at once would leave its times as they are.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime};

use super::cache;
use super::digest::{digest, digest_of_file};
use super::error::DataError;
use crate::files::{file, seal, write};
use crate::units::{Bytes, seconds};

/// More than this is not kept: some million files.
const FILE_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// More data sets than this are not kept.
const SETS_MAX: usize = 256;
/// The first line: other lines mean something else.
const HEAD: &str = "# xrun digests 1: SHA-256, bytes, modified, changed, inode, name";
/// File systems count time in steps of up to two seconds.
const SETTLED: Duration = Duration::from_secs(2);
/// Message about a file that is made again when it is deleted.
pub const CHANGED: &str = "its bytes are not those that were written (the checksum differs): the disk or a copy damaged \
                           it, or it was edited";
/// The list of a generated set, as `sha256sum` writes and checks it.
pub const SUMS: &str = "SHA256SUMS";

/// Hashing that takes longer is told of.
const SILENT: Duration = Duration::from_secs(2);
/// And again so often.
const AGAIN: Duration = Duration::from_secs(10);

/// Takes a line for people.
type Told = dyn Fn(&str) + Send + Sync;

/// Who is told of hashing that takes long, and of what is made again.
static TOLD: OnceLock<Box<Told>> = OnceLock::new();

/// From now on hashing that takes long, and what is made again because it was damaged, is told, a line at a time, for people.
/// The first who asks is told.
pub fn tell(told: impl Fn(&str) + Send + Sync + 'static) {
    let _ = TOLD.set(Box::new(told));
}

/// What changes when a file is written, replaced or restored. Times are in nanoseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Stamp {
    length: u64,
    modified: i128,
    changed: i128,
    inode: u64,
}

impl Stamp {
    pub(super) fn of(about: &Metadata) -> Self {
        let (changed, inode) = changed_and_inode(about);
        let modified = about.modified().map_or(0, nanoseconds);
        Self { length: about.len(), modified, changed: changed.unwrap_or(modified), inode }
    }

    /// Whether the file had its times for a while.
    pub(super) fn settled(&self, now: i128) -> bool {
        self.modified.max(self.changed) < now - SETTLED.as_nanos() as i128
    }
}

#[cfg(unix)]
fn changed_and_inode(about: &Metadata) -> (Option<i128>, u64) {
    use std::os::unix::fs::MetadataExt;
    (Some(i128::from(about.ctime()) * 1_000_000_000 + i128::from(about.ctime_nsec())), about.ino())
}

#[cfg(not(unix))]
fn changed_and_inode(_: &Metadata) -> (Option<i128>, u64) {
    (None, 0)
}

pub(super) fn nanoseconds(time: SystemTime) -> i128 {
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => since.as_nanos() as i128,
        Err(before) => -(before.duration().as_nanos() as i128),
    }
}

/// The digests of a data set's files.
#[derive(Debug)]
pub struct Known {
    kept_in: PathBuf,
    before: BTreeMap<String, (Stamp, String)>,
    now: BTreeMap<String, (Stamp, String)>,
    /// Digests of a generated set as it was written; `None` for other sets.
    expected: Option<BTreeMap<String, String>>,
    began: i128,
    /// Files that were read to the end, and their bytes.
    pub hashed: u64,
    bytes: u64,
    since: Instant,
    /// How long after the beginning something is said of it.
    next_word: Duration,
}

impl Known {
    /// Of the folder of a data set, which is canonical. Where nothing is known, everything is hashed.
    pub fn open(root: &Path) -> Self {
        let kept_in = place(root);
        let before = read(&kept_in).unwrap_or_default();
        let began = nanoseconds(SystemTime::now());
        Self::of(kept_in, before, began)
    }

    fn of(kept_in: PathBuf, before: BTreeMap<String, (Stamp, String)>, began: i128) -> Self {
        let (now, expected) = (BTreeMap::new(), None);
        let (since, next_word) = (Instant::now(), SILENT);
        Self { kept_in, before, now, expected, began, hashed: 0, bytes: 0, since, next_word }
    }

    /// Checks a generated set: its files must be those that were written, each of them in the list.
    pub fn of_generated(root: &Path) -> Self {
        let sums = file::bytes(&root.join(SUMS), FILE_BYTES_MAX).unwrap_or_default();
        let line = |line: &str| line.split_once("  ").map(|(digest, name)| (name.to_owned(), digest.to_owned()));
        let expected = Some(String::from_utf8_lossy(&sums).lines().filter_map(line).collect());
        Self { expected, ..Self::open(root) }
    }

    /// The digest of a file; `name` is how the data set calls it.
    ///
    /// # Errors
    /// The file does not read, or is not what was generated.
    pub fn digest(&mut self, name: &str, path: &Path) -> Result<String, DataError> {
        if let Some((_, digest)) = self.now.get(name) {
            return Ok(digest.clone());
        }
        let failed = |error: std::io::Error| DataError::file(path, format!("cannot be read: {error}"));
        let stamp = || std::fs::metadata(path).map(|about| Stamp::of(&about)).map_err(failed);
        let found = stamp()?;
        let digest = match self.before.get(name) {
            Some((then, digest)) if *then == found => digest.clone(),
            _ => {
                let digest = digest_of_file(path)?;
                (self.hashed, self.bytes) = (self.hashed + 1, self.bytes + found.length);
                say(self.word(self.since.elapsed()));
                digest
            }
        };
        self.expect(name, &digest, path)?;
        // One that is changed meanwhile is none of which anything is known.
        if stamp()? == found {
            self.now.insert(name.to_owned(), (found, digest.clone()));
        }
        Ok(digest)
    }

    /// What people are told so long after the beginning, if it is time.
    fn word(&mut self, passed: Duration) -> Option<String> {
        if passed < self.next_word {
            return None;
        }
        self.next_word = passed + AGAIN;
        Some(format!("data: hashing all files, once: {}; later starts compare sizes and times", self.so_far(passed)))
    }

    fn so_far(&self, passed: Duration) -> String {
        format!("{} files, {} in {}", self.hashed, Bytes(self.bytes), seconds(passed.as_secs_f64()))
    }

    /// Refuses what is not as it was generated.
    ///
    /// # Errors
    /// It is not.
    pub fn expect(&self, name: &str, digest: &str, path: &Path) -> Result<(), DataError> {
        match &self.expected {
            Some(written) if written.get(name).is_none_or(|written| written != digest) => {
                Err(DataError::file(path, CHANGED))
            }
            _ => Ok(()),
        }
    }

    /// Keeps what was found for the next time. A cache that cannot be written is no reason to stop.
    pub fn keep(self) {
        let passed = self.since.elapsed();
        say((self.next_word > SILENT).then(|| format!("data: hashed {}", self.so_far(passed))));
        if self.now == self.before {
            return;
        }
        let mut text = format!("{HEAD}\n");
        for (name, (stamp, digest)) in &self.now {
            if stamp.settled(self.began) && !name.contains('\n') {
                let Stamp { length, modified, changed, inode } = stamp;
                let _ = writeln!(text, "{digest} {length} {modified} {changed} {inode} {name}");
            }
        }
        let folder = self.kept_in.parent().unwrap_or(Path::new("."));
        if text.len() as u64 + 1024 < FILE_BYTES_MAX && cache::make(folder).is_ok() {
            let _ = write::replace(&self.kept_in, &seal::text(&text));
            cache::forget_oldest(folder, SETS_MAX);
        }
    }
}

fn say(word: Option<String>) {
    if let (Some(word), Some(told)) = (word, TOLD.get()) {
        told(&word);
    }
}

/// Says that what the cache remembered in this file is not as it was written, and what is done about it.
pub fn say_damaged(path: &Path, instead: &str) {
    say(Some(format!("{} is damaged: {instead}", path.display())));
}

/// The files of this data set are hashed again the next time.
pub fn forget(root: &Path) {
    let root = root.canonicalize().unwrap_or_else(|_| root.to_path_buf());
    // Where there is none, nothing is known.
    let _ = std::fs::remove_file(place(&root));
}

fn place(root: &Path) -> PathBuf {
    cache::folder().join("digests").join(format!("{}.txt", &digest(root.as_os_str().as_encoded_bytes())[..32]))
}

fn read(path: &Path) -> Option<BTreeMap<String, (Stamp, String)>> {
    let bytes = file::bytes(path, FILE_BYTES_MAX).ok()?;
    seal::check_text(&bytes).inspect_err(|_| say_damaged(path, "all files of the data are hashed again")).ok()?;
    let text = String::from_utf8(bytes).ok()?;
    let mut lines = text.lines();
    if lines.next() != Some(HEAD) {
        return None;
    }
    lines.filter(|line| !line.starts_with('#')).map(parsed).collect()
}

fn parsed(line: &str) -> Option<(String, (Stamp, String))> {
    let mut parts = line.splitn(6, ' ');
    let digest = parts.next()?.to_owned();
    let stamp = Stamp {
        length: parts.next()?.parse().ok()?,
        modified: parts.next()?.parse().ok()?,
        changed: parts.next()?.parse().ok()?,
        inode: parts.next()?.parse().ok()?,
    };
    Some((parts.next()?.to_owned(), (stamp, digest)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As [`Known::open`], in a cache of its own and after a while.
    fn known(folder: &Path) -> Known {
        let kept_in = folder.join("kept.txt");
        let before = read(&kept_in).unwrap_or_default();
        let began = nanoseconds(SystemTime::now() + 2 * SETTLED);
        Known::of(kept_in, before, began)
    }

    #[test]
    fn a_file_is_hashed_once_and_again_when_it_was_changed_replaced_or_is_fresh() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a b.jpg");
        write::replace(&path, b"one").unwrap();
        let of = |bytes: &[u8]| digest(bytes);
        let look = |fresh: bool| {
            let mut known = known(folder.path());
            if fresh {
                known.began = nanoseconds(SystemTime::now());
            }
            let found = known.digest("a b.jpg", &path).unwrap();
            assert_eq!(known.digest("a b.jpg", &path).unwrap(), found);
            let hashed = known.hashed;
            known.keep();
            (found, hashed)
        };
        assert_eq!(look(true), (of(b"one"), 1));
        assert_eq!(look(false), (of(b"one"), 1), "it was fresh");
        assert_eq!(look(false), (of(b"one"), 0));
        write::replace(&path, b"two").unwrap();
        assert_eq!(look(false), (of(b"two"), 1), "another inode");
        // In its place, with the old time of its content: only the time of the change tells.
        let modified = std::fs::metadata(&path).unwrap().modified().unwrap();
        let mut file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        std::io::Write::write_all(&mut file, b"2wo").unwrap();
        file.set_modified(modified).unwrap();
        assert_eq!(look(false), (of(b"2wo"), 1));
        assert_eq!(look(false), (of(b"2wo"), 0));
        let mut kept = std::fs::read(folder.path().join("kept.txt")).unwrap();
        kept[HEAD.len() + 3] ^= 1;
        write::replace(&folder.path().join("kept.txt"), &kept).unwrap();
        assert_eq!(look(false), (of(b"2wo"), 1), "a damaged list is not believed");
    }

    #[test]
    fn hashing_that_takes_long_is_told_now_and_then() {
        let folder = tempfile::tempdir().unwrap();
        let mut known = known(folder.path());
        (known.hashed, known.bytes) = (1200, 3 << 30);
        assert_eq!(known.word(Duration::from_secs(1)), None);
        let word = known.word(Duration::from_secs(3)).unwrap();
        assert!(word.contains("hashing all files, once: 1200 files, 3.0 GiB in 3.0 s"), "{word}");
        assert_eq!(known.word(Duration::from_secs(12)), None);
        assert!(known.word(Duration::from_secs(13)).is_some());
    }

    #[test]
    fn a_generated_file_that_was_changed_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("0.jpg");
        write::replace(&path, b"one").unwrap();
        write::replace(&folder.path().join(SUMS), format!("{}  0.jpg\n", digest(b"one")).as_bytes()).unwrap();
        assert!(Known::of_generated(folder.path()).digest("0.jpg", &path).is_ok());
        write::replace(&path, b"0ne").unwrap();
        let message = Known::of_generated(folder.path()).digest("0.jpg", &path).unwrap_err().to_string();
        assert!(message.contains("0.jpg") && message.contains("checksum"), "{message}");
    }
}
