//! How is a file of a run written, so that no kill and no full disk leaves a directory that does not read?
//!
//! Two ways only: replace a whole file (temporary file, sync, rename), or append whole lines behind a valid prefix.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use tempfile::TempPath;

use super::{file, seal};
use crate::bounded::buffer::Buffer;
use crate::bounded::ledger::{Cap, Ledger, Policy};
use crate::bounded::list::CappedList;

/// A file of the results could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: {source}{}", path.display(), self.advice())]
pub struct WriteError {
    /// The file or folder.
    pub path: PathBuf,
    /// What the system answered.
    pub source: io::Error,
}

impl WriteError {
    /// What there is to do about it, to be put behind a message; may be empty.
    pub fn advice(&self) -> &'static str {
        match self.source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "; free some space and run the command again",
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                "; choose a folder that can be written to with --results DIR"
            }
            _ => "",
        }
    }

    /// The message where a run that can be resumed met it.
    pub fn of_run(&self) -> String {
        let full = matches!(self.source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
        let advice = if full { "; free some space, then resume the run" } else { self.advice() };
        format!("cannot write {}: {}{advice}", self.path.display(), self.source)
    }
}

/// Adds the path to an input or output error.
pub fn at<T>(path: &Path, result: io::Result<T>) -> Result<T, WriteError> {
    result.map_err(|source| WriteError { path: path.to_path_buf(), source })
}

/// Makes a folder below one of ours, where it is not there. A link would lead out of it: somebody else may have made the folder.
///
/// # Errors
/// It is a link or a file, or cannot be made.
pub fn own_folder(path: &Path) -> Result<(), WriteError> {
    let made = match std::fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => match std::fs::symlink_metadata(path) {
            Ok(found) if !found.is_dir() => {
                Err(io::Error::other("is a link or a file, where a folder is to be: what is written stays here"))
            }
            found => found.map(drop),
        },
        made => made,
    };
    at(path, made)
}

/// Replaces a file as a whole: either the old bytes are there afterwards, or the new ones.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<(), WriteError> {
    at(path, try_replace(path, bytes))
}

/// As [`replace`], of a file that only its owner may read.
pub fn replace_private(path: &Path, bytes: &[u8]) -> Result<(), WriteError> {
    // The mode of temporary files of the crate is 0600.
    let written = || {
        let made = tempfile::Builder::new().prefix(WRITING).tempfile_in(folder_of(path));
        let (mut file, temporary) = made.map_err(|error| nameless(&error))?.into_parts();
        file.write_all(bytes)?;
        take_place(&file, temporary, path)
    };
    at(path, written())
}

fn try_replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    try_replace_with(path, |file| file.write_all(bytes))
}

/// As [`replace`], of a file that is too large to be held in memory.
pub fn replace_with(
    path: &Path,
    content: impl FnOnce(&mut (dyn Write + Send)) -> io::Result<()>,
) -> Result<(), WriteError> {
    let buffered = |file: &mut File| {
        let mut writer = BufWriter::new(file);
        content(&mut writer)?;
        writer.flush()
    };
    at(path, try_replace_with(path, buffered))
}

fn try_replace_with(path: &Path, content: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let (mut file, temporary) = beside(path)?;
    content(&mut file)?;
    take_place(&file, temporary, path)
}

/// The folder that a file is in; a bare name has a parent, which is empty.
fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A temporary file beside another. The file itself: the wrapper's errors repeat the temporary name.
fn beside(path: &Path) -> io::Result<(File, TempPath)> {
    let file = temporary().tempfile_in(folder_of(path)).map_err(|error| nameless(&error))?;
    Ok(file.into_parts())
}

/// The temporary file, which is whole, becomes the other.
fn take_place(file: &File, temporary: TempPath, path: &Path) -> io::Result<()> {
    file.sync_all()?;
    temporary.persist(path).map_err(|error| error.error)?;
    sync_folder(folder_of(path))
}

/// A file that is written piece by piece, and replaced as a whole when it is finished. Dropped before, it leaves the old
/// one.
#[derive(Debug)]
pub struct Replacement {
    path: PathBuf,
    file: BufWriter<File>,
    temporary: TempPath,
}

impl Replacement {
    /// `buffer` is what waits to be written at most, in bytes.
    pub fn begin(path: &Path, buffer: usize) -> Result<Self, WriteError> {
        let (file, temporary) = at(path, beside(path))?;
        Ok(Self { path: path.to_path_buf(), file: BufWriter::with_capacity(buffer, file), temporary })
    }

    /// Adds bytes, which may wait in memory.
    ///
    /// # Errors
    /// The disk is full, or fails.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        at(&self.path, self.file.write_all(bytes))
    }

    /// Writes a record without line breaks.
    pub fn write_json(&mut self, record: &impl Serialize) -> Result<(), WriteError> {
        at(&self.path, serde_json::to_writer(&mut self.file, record).map_err(io::Error::from))
    }

    /// Puts the file in its place, after everything is on the disk.
    ///
    /// # Errors
    /// The disk is full, or fails; what was there before stays.
    pub fn finish(self) -> Result<(), WriteError> {
        let Self { path, file, temporary } = self;
        let file = at(&path, file.into_inner().map_err(io::IntoInnerError::into_error))?;
        at(&path, take_place(&file, temporary, &path))
    }
}

/// What temporary files of ours begin with; a kill may leave one.
pub const WRITING: &str = ".writing-";

/// A temporary file is private to its owner; results are read by those whom the user's umask lets read.
#[cfg(unix)]
fn temporary() -> tempfile::Builder<'static, 'static> {
    use std::os::unix::fs::PermissionsExt;
    let mut builder = tempfile::Builder::new();
    builder.prefix(WRITING).permissions(std::fs::Permissions::from_mode(0o666));
    builder
}

#[cfg(not(unix))]
fn temporary() -> tempfile::Builder<'static, 'static> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(WRITING);
    builder
}

/// The error without the name of the temporary file, which nobody chose.
fn nameless(error: &io::Error) -> io::Error {
    let text = error.to_string();
    io::Error::new(error.kind(), text.split(" at path ").next().unwrap_or_default())
}

/// Takes away what a kill in the middle of [`replace`] left in a folder. The caller is the only one that writes there.
pub fn remove_unfinished(folder: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)?.flatten() {
        let ours = entry.file_name().to_string_lossy().starts_with(WRITING);
        if ours && entry.file_type().is_ok_and(|kind| kind.is_file()) {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Makes a rename in this folder last through a power cut.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Brings the files of a folder and of those in it to the disk, whoever wrote them.
pub fn sync_files(folder: &Path) -> io::Result<()> {
    std::fs::read_dir(folder)?.try_for_each(|entry| {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            sync_files(&entry.path())?;
            return sync_folder(&entry.path());
        }
        file::open(&entry.path())?.sync_all()
    })
}

/// Replaces a file by a record as indented JSON, with its check.
pub fn replace_json(path: &Path, record: &impl Serialize) -> Result<(), WriteError> {
    let text = at(path, serde_json::to_vec_pretty(record).map_err(io::Error::from))?;
    replace(path, &seal::record(text))
}

/// Appends records to a file, a line each, through a bounded buffer. Policy at the cap: the lines are written out.
///
/// A write that fails half-way loses the lines that it did not write, and counts them: the file ends with a whole line.
#[derive(Debug)]
pub struct LineWriter {
    path: PathBuf,
    file: File,
    lines: CappedList<String>,
    /// The length up to which all lines are whole, where the part of a line behind it could not be cut off yet.
    torn: Option<u64>,
    lost: u64,
}

/// Longer lines than this do not occur: records have a bounded number of entries.
const LINE_BYTES_MAX: u64 = 16 * 1024;

/// The buffer of a [`LineWriter`], of so many lines.
pub fn lines(name: &'static str, count: usize) -> Buffer {
    Buffer::new(name, Policy::Refuse, Cap { items: count as u64, bytes: count as u64 * LINE_BYTES_MAX })
}

impl LineWriter {
    /// Opens for appending; an incomplete last line, which a kill may leave, is cut off first. [`lines`] makes the buffer.
    pub fn open(ledger: &Ledger, buffer: &Buffer, path: &Path) -> Result<Self, WriteError> {
        at(path, cut_incomplete_line(path))?;
        let file = at(path, file::open_own(path, OpenOptions::new().create(true).append(true)))?;
        Ok(Self { path: path.to_path_buf(), file, lines: CappedList::new(ledger, buffer), torn: None, lost: 0 })
    }

    /// Adds a record with its check; when the buffer is full, everything in it is written first.
    pub fn record(&mut self, record: &impl Serialize) -> Result<(), WriteError> {
        let line = at(&self.path, serde_json::to_string(record).map_err(io::Error::from))?;
        self.line(seal::line(line))
    }

    /// Adds a line of text.
    pub fn line(&mut self, line: String) -> Result<(), WriteError> {
        let Err(line) = self.lines.push(line) else { return Ok(()) };
        let flushed = self.flush();
        // Also where those before it are lost: there may be room for it later.
        match self.lines.push(line) {
            Ok(()) => flushed,
            Err(line) => flushed.and(self.write(&[line])),
        }
    }

    /// Lines that could not be written.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Hands everything to the operating system.
    pub fn flush(&mut self) -> Result<(), WriteError> {
        let lines = self.lines.take();
        self.write(&lines)
    }

    /// Hands everything to the disk.
    ///
    /// # Errors
    /// Also when the file is no longer where it was: what is written to it then is lost.
    pub fn sync(&mut self) -> Result<(), WriteError> {
        self.flush()?;
        at(&self.path, self.still_there().and_then(|()| self.file.sync_data()))
    }

    /// A file whose folder was removed, or whose disk was taken away, takes what is written to it without a word.
    fn still_there(&self) -> io::Result<()> {
        match std::fs::metadata(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(io::Error::new(
                error.kind(),
                "the file or its folder was removed, or its disk taken away, while the run wrote into it",
            )),
            _ => Ok(()),
        }
    }

    fn write(&mut self, lines: &[String]) -> Result<(), WriteError> {
        if lines.is_empty() {
            return Ok(());
        }
        let mut text = lines.join("\n");
        text.push('\n');
        // One call for all: a kill cannot cut between two writes of one line.
        let (whole, written) = self.append(text.as_bytes());
        self.lost += lines.len() as u64 - whole;
        at(&self.path, written)
    }

    /// Appends lines; gives how many of them are in the file, and why not all.
    fn append(&mut self, text: &[u8]) -> (u64, io::Result<()>) {
        // Another one may have cut the file meanwhile: its length is asked for each time.
        let length = match self.mend().and_then(|()| self.file.metadata()) {
            Ok(found) => found.len(),
            Err(error) => return (0, Err(error)),
        };
        let (count, written) = write_whole(&mut self.file, text);
        let whole = text[..count].iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        if whole < count {
            self.torn = Some(length + whole as u64);
            // Where it fails, it is tried again before the next line.
            let _ = self.mend();
        }
        match written.and_then(|()| self.still_there()) {
            Ok(()) => (lines_in(text), Ok(())),
            // All of it went into a file that nobody finds.
            Err(error) if count == text.len() => (0, Err(error)),
            Err(error) => (lines_in(&text[..whole]), Err(error)),
        }
    }

    /// Cuts off the part of a line that a failed write left.
    fn mend(&mut self) -> io::Result<()> {
        let Some(whole) = self.torn else { return Ok(()) };
        self.file.set_len(whole)?;
        self.torn = None;
        Ok(())
    }
}

/// As `write_all`; gives how many bytes were written, too.
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

fn lines_in(text: &[u8]) -> u64 {
    text.iter().filter(|&&byte| byte == b'\n').count() as u64
}

/// Shortens a file to its last complete line.
fn cut_incomplete_line(path: &Path) -> io::Result<()> {
    use std::io::{Read, Seek, SeekFrom};
    let mut file = match file::open_own(path, OpenOptions::new().read(true).write(true)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let mut end = file.metadata()?.len();
    let mut block = [0u8; 4096];
    while end > 0 {
        let start = end.saturating_sub(block.len() as u64);
        let block = &mut block[..(end - start) as usize];
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(block)?;
        if let Some(at) = block.iter().rposition(|&byte| byte == b'\n') {
            return file.set_len(start + at as u64 + 1);
        }
        end = start;
    }
    file.set_len(0)
}

/// Cuts a file off before the first line for which `keep` is false, that is not text, or that is not whole.
pub fn keep_first_lines(path: &Path, mut keep: impl FnMut(&str) -> bool) -> Result<(), WriteError> {
    let file = match file::open_own(path, OpenOptions::new().read(true).write(true)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return at(path, Err(error)),
    };
    let mut reader = BufReader::new(&file);
    let mut line = Vec::new();
    let mut kept = 0;
    loop {
        line.clear();
        let length = at(path, reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line))?;
        let whole = line.last() == Some(&b'\n');
        if !whole || !std::str::from_utf8(&line).is_ok_and(|text| keep(text.trim_end())) {
            break;
        }
        kept += length as u64;
    }
    at(path, file.set_len(kept).and_then(|()| file.sync_all()))
}

#[cfg(test)]
#[path = "write_tests.rs"]
mod tests;
