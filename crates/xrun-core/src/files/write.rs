//! Crash-safe writing of result files: neither a kill nor a full disk leaves an unreadable directory.
//!
//! A file is either replaced as a whole (temporary file, sync, rename) or extended by whole lines.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use tempfile::TempPath;

use super::checksum::LineSum;
use super::{checksum, file, scratch};
use crate::bounded::buffer::Buffer;
use crate::bounded::ledger::{Cap, Ledger, Policy};
use crate::bounded::list::CappedList;

/// Error of a result file that cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: {source}{}", path.display(), self.advice())]
pub struct WriteError {
    /// The file or directory.
    pub path: PathBuf,
    /// Error of the system.
    pub source: io::Error,
}

/// Change of a file by another program while this process writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileChange {
    /// Nothing has its path.
    #[error("the file was removed, or its disk unmounted, during the run")]
    Removed,
    /// Another file has its path.
    #[error("another program replaced the file during the run")]
    Replaced,
    /// Its length is not what this process wrote.
    #[error("another program changed the file during the run: it has {found} bytes, {own} were written")]
    Resized {
        /// Length in bytes.
        found: u64,
        /// Length by what was written.
        own: u64,
    },
}

/// Checks that a path names the file that was opened as `own`, with the length that this process gave it: writes to a
/// removed or replaced file succeed.
///
/// # Errors
/// The [`FileChange`].
pub fn check_unchanged(path: &Path, own: &Metadata, length: u64) -> io::Result<()> {
    let change = match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => FileChange::Removed,
        Ok(found) if !file::is_same(&found, own) => FileChange::Replaced,
        Ok(found) if found.len() != length => FileChange::Resized { found: found.len(), own: length },
        // Another error may pass.
        _ => return Ok(()),
    };
    let kind = if change == FileChange::Removed { io::ErrorKind::NotFound } else { io::ErrorKind::Other };
    Err(io::Error::new(kind, change))
}

impl WriteError {
    /// Returns true if another program changed the file while this process wrote it.
    pub fn is_change(&self) -> bool {
        self.source.get_ref().is_some_and(|source| source.is::<FileChange>())
    }

    /// Advice as the end of a message; may be empty.
    pub fn advice(&self) -> &'static str {
        match self.source.kind() {
            _ if self.is_change() => {
                "; let no other program write to it, and restore its lines from a copy if there is one"
            }
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                "; free disk space or inodes and run the command again"
            }
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                "; choose a writable directory with --results DIR"
            }
            _ if self.source.raw_os_error() == Some(libc::ENOLCK) => {
                "; the file system has no locks now: start its lock service, mount it with locks (NFS: `local_lock=flock`), or \
                 choose a directory on another one with --results DIR"
            }
            _ => "",
        }
    }

    /// Message for a run that can be resumed.
    pub fn message_for_run(&self) -> String {
        let full = matches!(self.source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
        let advice = if full { "; free disk space or inodes, then resume the run" } else { self.advice() };
        format!("cannot write {}: {}{advice}", self.path.display(), self.source)
    }
}

/// Adds the path to an I/O error.
pub fn with_path<T>(path: &Path, result: io::Result<T>) -> Result<T, WriteError> {
    result.map_err(|source| WriteError { path: path.to_path_buf(), source })
}

/// Creates a directory durably: once this returns, a power failure does not remove it.
///
/// # Errors
/// It exists, or cannot be created.
pub fn create_new_directory(path: &Path) -> Result<(), WriteError> {
    with_path(path, std::fs::create_dir(path).and_then(|()| sync_entry(path)))
}

/// As [`create_new_directory`], if it is missing. A symlink in its place is an error, because a run directory from elsewhere
/// may contain one that points out of it.
///
/// # Errors
/// It is a symlink or a file, or cannot be created.
pub fn create_directory(path: &Path) -> Result<(), WriteError> {
    match create_new_directory(path) {
        Err(error) if error.source.kind() == io::ErrorKind::AlreadyExists => {
            let found = with_path(path, std::fs::symlink_metadata(path))?;
            // Its creator may have been killed before the sync.
            with_path(path, if found.is_dir() { sync_entry(path) } else { Err(not_a_directory()) })
        }
        created => created,
    }
}

/// As [`create_new_directory`], with the parents that are missing. Symlinks are followed: the user chose the path.
///
/// # Errors
/// A part of the path is a file, or cannot be created.
pub fn create_directories(path: &Path) -> Result<(), WriteError> {
    if path.is_dir() {
        return Ok(());
    }
    let parent = directory_of(path);
    if parent != path {
        create_directories(parent)?;
    }
    match create_new_directory(path) {
        Err(error) if error.source.kind() == io::ErrorKind::AlreadyExists => {
            // Another process may have created it meanwhile.
            with_path(path, if path.is_dir() { Ok(()) } else { Err(not_a_directory()) })
        }
        created => created,
    }
}

fn not_a_directory() -> io::Error {
    io::Error::new(io::ErrorKind::NotADirectory, "is a symlink or a file, expected a directory")
}

/// Syncs the directory that has this entry. One that may be written but not read cannot be synced.
pub fn sync_entry(path: &Path) -> io::Result<()> {
    match sync_directory(directory_of(path)) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        synced => synced,
    }
}

/// Replaces a file atomically: it has either the old content or the new.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<(), WriteError> {
    with_path(path, try_replace_with(path, &temporary(), |file| file.write_all(bytes)))
}

/// As [`replace`], for a file that only its owner may read.
pub fn replace_private(path: &Path, bytes: &[u8]) -> Result<(), WriteError> {
    // The mode of temporary files is 0600 by default.
    let mut builder = tempfile::Builder::new();
    with_path(path, try_replace_with(path, builder.prefix(WRITING), |file| file.write_all(bytes)))
}

/// As [`replace`], for a file that is too large to be held in memory.
pub fn replace_with(
    path: &Path,
    content: impl FnOnce(&mut (dyn Write + Send)) -> io::Result<()>,
) -> Result<(), WriteError> {
    let buffered = |file: &mut File| {
        let mut writer = BufWriter::new(file);
        content(&mut writer)?;
        writer.flush()
    };
    with_path(path, try_replace_with(path, &temporary(), buffered))
}

fn try_replace_with(
    path: &Path,
    builder: &tempfile::Builder<'_, '_>,
    content: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<()> {
    let (mut file, temporary) = temporary_for(path, builder)?;
    content(&mut file)?;
    persist(&file, temporary, path)
}

/// Directory of a file; `.` for a bare name, whose parent is empty.
fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Creates a temporary file in the directory of `path`, locked while this process lives. Returns the bare file, as the
/// wrapper's errors repeat the temporary name.
fn temporary_for(path: &Path, builder: &tempfile::Builder<'_, '_>) -> io::Result<(File, TempPath)> {
    loop {
        let file = builder.tempfile_in(directory_of(path)).map_err(|error| without_path(&error))?;
        if scratch::is_kept(file.as_file())? {
            return Ok(file.into_parts());
        }
    }
}

/// Renames a complete temporary file to `path`, durably.
fn persist(file: &File, temporary: TempPath, path: &Path) -> io::Result<()> {
    file.sync_all()?;
    temporary.persist(path).map_err(|error| error.error)?;
    sync_directory(directory_of(path))
}

/// A file that is written in pieces and replaced atomically by [`finish`](Self::finish). Dropping it leaves the old file.
#[derive(Debug)]
pub struct Replacement {
    path: PathBuf,
    file: BufWriter<File>,
    temporary: TempPath,
}

impl Replacement {
    /// Starts a replacement with a write buffer of `buffer` bytes.
    pub fn begin(path: &Path, buffer: usize) -> Result<Self, WriteError> {
        let (file, temporary) = with_path(path, temporary_for(path, &temporary()))?;
        Ok(Self { path: path.to_path_buf(), file: BufWriter::with_capacity(buffer, file), temporary })
    }

    /// Appends bytes, buffered.
    ///
    /// # Errors
    /// Writing fails.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        with_path(&self.path, self.file.write_all(bytes))
    }

    /// Appends a record as JSON without line breaks.
    pub fn write_json(&mut self, record: &impl Serialize) -> Result<(), WriteError> {
        with_path(&self.path, serde_json::to_writer(&mut self.file, record).map_err(io::Error::from))
    }

    /// Syncs the file and renames it into place.
    ///
    /// # Errors
    /// Writing fails; the old file remains.
    pub fn finish(self) -> Result<(), WriteError> {
        let Self { path, file, temporary } = self;
        let file = with_path(&path, file.into_inner().map_err(io::IntoInnerError::into_error))?;
        with_path(&path, persist(&file, temporary, &path))
    }
}

/// Prefix of temporary files; a kill may leave one.
pub const WRITING: &str = ".writing-";

/// Builder of temporary files with the permissions of the user's umask, in place of 0600.
fn temporary() -> tempfile::Builder<'static, 'static> {
    use std::os::unix::fs::PermissionsExt;
    let mut builder = tempfile::Builder::new();
    builder.prefix(WRITING).permissions(std::fs::Permissions::from_mode(0o666));
    builder
}

/// Removes the path of the temporary file from an error of `tempfile`.
fn without_path(error: &io::Error) -> io::Error {
    let text = error.to_string();
    io::Error::new(error.kind(), text.split(" at path ").next().unwrap_or_default())
}

/// Removes temporary files that killed processes left in a directory. Those of living processes are locked.
pub fn remove_unfinished(directory: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(directory)?.flatten() {
        let ours = entry.file_name().to_string_lossy().starts_with(WRITING);
        let open = || file::open_own(&entry.path(), OpenOptions::new().read(true)).ok();
        if ours && open().is_some_and(|rest| rest.try_lock().is_ok()) {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Exchanges two directories on one file system: at each instant both paths exist.
///
/// # Errors
/// One is missing, or neither the system nor the file system (`EINVAL`) can exchange.
pub fn exchange(one: &Path, other: &Path) -> Result<(), WriteError> {
    let exchanged = try_exchange(one, other).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported => io::Error::new(
            io::ErrorKind::Unsupported,
            "its file system cannot exchange it for a new one; move it away and run the command again",
        ),
        _ => error,
    });
    with_path(other, exchanged)
}

#[cfg(target_os = "linux")]
fn try_exchange(one: &Path, other: &Path) -> io::Result<()> {
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;
    let (from, to) = (CString::new(one.as_os_str().as_bytes())?, CString::new(other.as_os_str().as_bytes())?);
    // SAFETY: both are texts that end with NUL and outlive the call.
    let done =
        unsafe { libc::renameat2(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), libc::RENAME_EXCHANGE) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(not(target_os = "linux"))]
fn try_exchange(_: &Path, _: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Refuses to write over files in a directory of the user, where xrun cannot know whether it wrote them.
///
/// # Errors
/// One of the names is taken, be it by a symlink.
pub fn check_absent(directory: &Path, names: &[&str]) -> Result<(), WriteError> {
    let taken = names.iter().map(|name| directory.join(name)).find(|path| path.symlink_metadata().is_ok());
    taken.map_or(Ok(()), |path| {
        with_path(
            &path,
            Err(io::Error::new(io::ErrorKind::AlreadyExists, "it exists; remove it or name another directory")),
        )
    })
}

/// Syncs a directory, so that renames in it survive a power failure.
pub fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Syncs all files of a directory and its subdirectories.
pub fn sync_files(directory: &Path) -> io::Result<()> {
    std::fs::read_dir(directory)?.try_for_each(|entry| {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            sync_files(&entry.path())?;
            return sync_directory(&entry.path());
        }
        file::open(&entry.path())?.sync_all()
    })
}

/// Replaces a file by a record in indented JSON with a checksum.
pub fn replace_json(path: &Path, record: &impl Serialize) -> Result<(), WriteError> {
    let text = with_path(path, serde_json::to_vec_pretty(record).map_err(io::Error::from))?;
    replace(path, &checksum::record(text))
}

/// Writer that appends records to a file, one per line, through a bounded buffer. A full buffer is flushed.
///
/// A write that fails half-way loses the unwritten lines and counts them; the file still ends with a whole line.
#[derive(Debug)]
pub struct LineWriter {
    path: PathBuf,
    file: File,
    opened: Metadata,
    lines: CappedList<String>,
    /// Length of the file in bytes if no other program changes it.
    length: u64,
    /// Lines of the file if no other program changes it.
    sum: LineSum,
    /// Bytes of a partial line at the end that remain to be truncated.
    torn: u64,
    lost: u64,
}

/// Maximum length of a line; records have a bounded number of entries.
const LINE_BYTES_MAX: u64 = 16 * 1024;

/// Declaration of the buffer of a [`LineWriter`] for `count` lines.
pub fn lines(name: &'static str, count: usize) -> Buffer {
    Buffer::new(name, Policy::Refuse, Cap { items: count as u64, bytes: count as u64 * LINE_BYTES_MAX })
}

impl LineWriter {
    /// Opens a file for appending after truncating an incomplete last line, which a kill may leave. [`lines`] declares the
    /// buffer.
    pub fn open(ledger: &Ledger, buffer: &Buffer, path: &Path) -> Result<Self, WriteError> {
        let (file, opened, sum, length) = with_path(path, open_whole(path))?;
        let (path, lines) = (path.to_path_buf(), CappedList::new(ledger, buffer));
        Ok(Self { path, file, opened, lines, length, sum, torn: 0, lost: 0 })
    }

    /// Sum of the lines that were written, those of earlier processes included.
    pub fn sum(&self) -> LineSum {
        self.sum
    }

    /// Continues from the sum that the file would have if no line were damaged or missing, so that readers still notice it.
    pub fn continue_from(&mut self, sum: LineSum) {
        self.sum = sum;
    }

    /// Adds a record with its checksum. Flushes first if the buffer is full.
    pub fn record(&mut self, record: &impl Serialize) -> Result<(), WriteError> {
        let line = with_path(&self.path, serde_json::to_string(record).map_err(io::Error::from))?;
        self.line(checksum::line(line))
    }

    /// Adds a line of text.
    pub fn line(&mut self, line: String) -> Result<(), WriteError> {
        let Err(line) = self.lines.push(line) else { return Ok(()) };
        let flushed = self.flush();
        // Also after a failed flush: the disk may have space later.
        match self.lines.push(line) {
            Ok(()) => flushed,
            Err(line) => flushed.and(self.write(&[line])),
        }
    }

    /// Rewrites all lines so far: `rewrite` returns the record of a line anew, or `None` to keep it.
    ///
    /// # Errors
    /// Reading or writing fails; the old lines remain.
    pub fn rewrite(&mut self, mut rewrite: impl FnMut(&str) -> Option<String> + Send) -> Result<(), WriteError> {
        self.flush()?;
        let path = self.path.clone();
        replace_with(&path, |new| {
            let mut old = BufReader::new(file::open(&path)?).take(u64::MAX);
            let mut line = Vec::new();
            loop {
                line.clear();
                old.set_limit(LINE_BYTES_MAX);
                if old.read_until(b'\n', &mut line)? == 0 {
                    return Ok(());
                }
                match std::str::from_utf8(&line).ok().and_then(|text| rewrite(text.trim_end())) {
                    Some(record) => writeln!(new, "{}", checksum::line(record))?,
                    None => new.write_all(&line)?,
                }
            }
        })?;
        (self.file, self.opened, self.sum, self.length) = with_path(&path, open_whole(&path))?;
        Ok(())
    }

    /// As the function [`keep_first_lines`].
    pub fn keep_first_lines(&mut self, keep: impl FnMut(&str) -> bool) -> Result<(), WriteError> {
        self.flush()?;
        (self.sum, self.length) = keep_first_lines(&self.path, keep)?;
        Ok(())
    }

    /// Number of lines that could not be written.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Writes all buffered lines to the operating system.
    pub fn flush(&mut self) -> Result<(), WriteError> {
        let lines = self.lines.take();
        self.write(&lines)
    }

    /// Writes all buffered lines to the disk.
    ///
    /// # Errors
    /// Writing fails, or another program changed the file.
    pub fn sync(&mut self) -> Result<(), WriteError> {
        self.flush()?;
        with_path(&self.path, self.check_unchanged().and_then(|()| self.file.sync_data()))
    }

    fn check_unchanged(&self) -> io::Result<()> {
        check_unchanged(&self.path, &self.opened, self.length)
    }

    fn write(&mut self, lines: &[String]) -> Result<(), WriteError> {
        if lines.is_empty() {
            return Ok(());
        }
        let mut text = lines.join("\n");
        text.push('\n');
        // One call for all lines, so that a kill cannot fall between two writes of one line.
        let (written, result) = self.append(text.as_bytes());
        self.lost += lines.len() as u64 - written;
        with_path(&self.path, result)
    }

    /// Appends lines. Returns the number written, and the error if not all are.
    fn append(&mut self, text: &[u8]) -> (u64, io::Result<()>) {
        if let Err(error) = self.truncate_torn_line() {
            return (0, Err(error));
        }
        let (count, written) = write_whole(&mut self.file, text);
        let whole = text[..count].iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        self.sum.add(&text[..whole]);
        self.length += whole as u64;
        if whole < count {
            self.torn = (count - whole) as u64;
            // On failure it is retried before the next line.
            let _ = self.truncate_torn_line();
        }
        match written.and_then(|()| self.check_unchanged()) {
            Ok(()) => (count_lines(text), Ok(())),
            // All lines went into a removed file.
            Err(error) if count == text.len() => (0, Err(error)),
            Err(error) => (count_lines(&text[..whole]), Err(error)),
        }
    }

    /// Truncates the partial line of a failed write. The length is that of the file: another program may have changed it.
    fn truncate_torn_line(&mut self) -> io::Result<()> {
        if self.torn > 0 {
            self.file.set_len(self.file.metadata()?.len().saturating_sub(self.torn))?;
            self.torn = 0;
        }
        Ok(())
    }
}

/// Opens a file for appending, created if it is missing, after truncating an incomplete last line, which a kill may leave.
/// Returns it with the sum and the length of its lines.
fn open_whole(path: &Path) -> io::Result<(File, Metadata, LineSum, u64)> {
    let file = file::open_own(path, OpenOptions::new().read(true).create(true).append(true))?;
    let (sum, length) = LineSum::read(&file)?;
    let opened = file.metadata()?;
    if opened.len() > length {
        file.set_len(length)?;
    }
    Ok((file, opened, sum, length))
}

/// As `write_all`, but also returns the number of bytes written.
fn write_whole(file: &mut impl Write, bytes: &[u8]) -> (usize, io::Result<()>) {
    let mut count = 0;
    while count < bytes.len() {
        match file.write(&bytes[count..]) {
            Ok(0) => return (count, Err(io::ErrorKind::WriteZero.into())),
            Ok(more) => count += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (count, Err(error)),
        }
    }
    (count, Ok(()))
}

fn count_lines(text: &[u8]) -> u64 {
    text.iter().filter(|&&byte| byte == b'\n').count() as u64
}

/// Truncates a file before the first line that `keep` rejects, is not UTF-8, or is incomplete. Returns the sum of the lines
/// that are left and their length.
pub fn keep_first_lines(path: &Path, mut keep: impl FnMut(&str) -> bool) -> Result<(LineSum, u64), WriteError> {
    let file = match file::open_own(path, OpenOptions::new().read(true).write(true)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Default::default()),
        Err(error) => return with_path(path, Err(error)),
    };
    let mut reader = BufReader::new(&file);
    let mut line = Vec::new();
    let (mut sum, mut kept) = (LineSum::default(), 0);
    loop {
        line.clear();
        let length = with_path(path, reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line))?;
        let whole = line.last() == Some(&b'\n');
        if !whole || !std::str::from_utf8(&line).is_ok_and(|text| keep(text.trim_end())) {
            break;
        }
        sum.add(&line);
        kept += length as u64;
    }
    with_path(path, file.set_len(kept).and_then(|()| file.sync_all()))?;
    Ok((sum, kept))
}

#[cfg(test)]
#[path = "write_tests.rs"]
mod tests;
