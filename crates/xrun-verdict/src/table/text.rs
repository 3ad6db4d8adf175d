//! Lines of a file, however long they are and whoever still writes to it.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Take};
use std::path::Path;

use super::Wrong;

/// The longest line of a trace; a quotation mark that is never closed makes a longer one.
pub const LINE_BYTES_MAX: u64 = 256 * 1024;
/// The number of bytes that are looked at to find out what a file is.
const HEAD_BYTES: u64 = 64 * 1024;
/// The number of lines of a head from which on the last line of the file can be spared when it has no end.
const LINES_TO_SPARE: usize = 10;

/// The beginning of a file, and how much of it is whole lines.
#[derive(Clone, Debug)]
pub struct Head {
    pub text: String,
    /// Bytes up to the end of the last whole line: a tool that was killed left half of one behind, and one that still
    /// runs will have written more when the file is read for the second time.
    pub length: u64,
}

impl Head {
    /// Reads it; binary files are told apart by it.
    pub fn read(path: &Path) -> Result<Self, Wrong> {
        let mut file = open(path)?;
        let mut bytes = Vec::new();
        Read::by_ref(&mut file).take(HEAD_BYTES).read_to_end(&mut bytes)?;
        if let Some(what) = no_text(&bytes) {
            return Err(Wrong::whole(what));
        }
        let mut length = file.metadata()?.len();
        if bytes.iter().filter(|byte| **byte == b'\n').count() >= LINES_TO_SPARE {
            let tail_at = length.saturating_sub(LINE_BYTES_MAX);
            file.seek(SeekFrom::Start(tail_at))?;
            let mut tail = Vec::new();
            file.take(length - tail_at).read_to_end(&mut tail)?;
            if let Some(last) = tail.iter().rposition(|byte| *byte == b'\n') {
                length = tail_at + last as u64 + 1;
            }
        }
        let text = String::from_utf8_lossy(&bytes);
        Ok(Self { text: text.strip_prefix('\u{feff}').unwrap_or(&text).to_owned(), length })
    }

    /// Its lines that are not blank, without white space around them.
    pub fn lines(&self) -> impl Iterator<Item = &str> {
        self.text.lines().map(str::trim).filter(|line| !line.is_empty())
    }
}

/// The reason why the beginning of a file is not that of a text.
fn no_text(bytes: &[u8]) -> Option<String> {
    let is = |magic: &[u8]| bytes.starts_with(magic);
    if is(b"memray") || is(&[0x04, 0x22, 0x4d, 0x18]) {
        let page = "`memray flamegraph` writes a page from it that can be judged";
        return Some(format!("is a recording of memray, or else compressed with LZ4; {page}"));
    }
    if is(&[0xff, 0xfe]) || is(&[0xfe, 0xff]) {
        return Some("is UTF-16, as PowerShell's `>` writes it; save it as UTF-8".into());
    }
    if is(&[0x1f, 0x8b]) || is(b"PK\x03\x04") || is(&[0x28, 0xb5, 0x2f, 0xfd]) {
        return Some("is compressed; unpack it first".into());
    }
    bytes.contains(&0).then(|| "is no text".into())
}

/// Opens a file that can be read twice: a pipe or a device would wait, or never end.
pub fn open(path: &Path) -> Result<File, Wrong> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(Wrong::whole("is no regular file; write what it gives to one first"));
    }
    Ok(waitless(OpenOptions::new().read(true)).open(path)?)
}

/// Opens a pipe that has taken the file's place since it was looked at without waiting for a writer.
#[cfg(unix)]
fn waitless(options: &mut OpenOptions) -> &mut OpenOptions {
    use std::os::unix::fs::OpenOptionsExt;
    options.custom_flags(libc::O_NONBLOCK)
}

#[cfg(not(unix))]
fn waitless(options: &mut OpenOptions) -> &mut OpenOptions {
    options
}

/// Reads the lines of a file one at a time.
pub struct Lines {
    reader: BufReader<Take<File>>,
    bytes: Vec<u8>,
    text: String,
    /// The number of the newest line, from 1.
    pub number: u64,
}

impl Lines {
    pub fn open(path: &Path, head: &Head) -> Result<Self, Wrong> {
        let reader = BufReader::new(open(path)?.take(head.length));
        Ok(Self { reader, bytes: Vec::new(), text: String::new(), number: 0 })
    }

    /// The next line that is not blank, without white space around it; `None` at the end.
    pub fn next_line(&mut self) -> Result<Option<&str>, Wrong> {
        loop {
            self.bytes.clear();
            if Read::by_ref(&mut self.reader).take(LINE_BYTES_MAX).read_until(b'\n', &mut self.bytes)? == 0 {
                return Ok(None);
            }
            self.number += 1;
            if self.bytes.len() as u64 == LINE_BYTES_MAX && self.bytes.last() != Some(&b'\n') {
                return Err(self.wrong("is too long for a line of a trace"));
            }
            let text = String::from_utf8_lossy(&self.bytes);
            let trimmed = text.trim_start_matches('\u{feff}').trim();
            if !trimmed.is_empty() {
                self.text.clear();
                self.text.push_str(trimmed);
                return Ok(Some(&self.text));
            }
        }
    }

    /// Something wrong with the newest line.
    pub fn wrong(&self, message: impl Into<String>) -> Wrong {
        Wrong::at(self.number, message)
    }
}

/// A cell or a line as it stands in a message: not more of it than a person reads.
pub fn quoted(text: &str) -> String {
    const SHOWN: usize = 60;
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("\"{}…\"", &text[..end]),
        None => format!("\"{text}\""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        std::io::Write::write_all(&mut file, bytes).unwrap();
        file
    }

    fn lines(bytes: &[u8]) -> Vec<String> {
        let file = file(bytes);
        let head = Head::read(file.path()).unwrap();
        let mut lines = Lines::open(file.path(), &head).unwrap();
        let mut read = Vec::new();
        while let Some(line) = lines.next_line().unwrap() {
            read.push(line.to_owned());
        }
        read
    }

    #[test]
    fn a_last_line_without_an_end_is_spared_where_there_are_many() {
        assert_eq!(lines(b"\xef\xbb\xbfa\r\n\n  b  \nc"), ["a", "b", "c"]);
        let many = "row\n".repeat(12);
        assert_eq!(lines(format!("{many}ro").as_bytes()).len(), 12);
        assert_eq!(lines(format!("{many}row\n").as_bytes()).len(), 13);
    }

    #[test]
    fn what_is_no_text_is_said_by_its_kind() {
        for (bytes, part) in [
            (&b"memray\0\x0c"[..], "memray flamegraph"),
            (&b"\x04\x22\x4d\x18\x40"[..], "memray flamegraph"),
            (&b"\xff\xfes\0t\0"[..], "UTF-16"),
            (&b"\x1f\x8b\x08"[..], "compressed"),
            (&b"a\0b"[..], "no text"),
        ] {
            let said = Head::read(file(bytes).path()).unwrap_err().to_string();
            assert!(said.contains(part), "{said}");
        }
        let said = Head::read(Path::new("/dev/null")).unwrap_err().to_string();
        assert!(said.contains("no regular file"), "{said}");
    }

    #[test]
    fn a_line_without_end_is_an_error_and_not_memory() {
        let long = file(&[b'x'; 600 * 1024]);
        let head = Head::read(long.path()).unwrap();
        let said = Lines::open(long.path(), &head).unwrap().next_line().unwrap_err().to_string();
        assert!(said.starts_with("line 1: is too long"), "{said}");
    }
}
