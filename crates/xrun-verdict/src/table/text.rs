//! Lines of a text file, with a cap on their length; another process may still write to the file.

use std::borrow::Cow;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Take};
use std::path::Path;

use super::options::TableError;

/// Cap on the length of a line; longer lines come from a quotation mark that is never closed.
pub const LINE_BYTES_MAX: u64 = 256 * 1024;
/// Number of bytes from which the format of a file is recognised.
const HEAD_BYTES: u64 = 64 * 1024;
/// Number of lines from which on an unfinished last line is dropped.
const LINES_MIN_FOR_DROP: usize = 10;

/// Beginning of a text file, and the length of its complete lines.
#[derive(Clone, Debug)]
pub struct FileHead {
    pub text: String,
    /// Bytes up to the end of the last complete line: a killed tool leaves half a line, and a running one will have
    /// written more when the file is read for the second time.
    pub complete_length: u64,
}

impl FileHead {
    /// Reads the beginning of a file.
    ///
    /// # Errors
    /// The file cannot be read, or is no text.
    pub fn read(path: &Path) -> Result<Self, TableError> {
        let mut file = open(path)?;
        let mut bytes = Vec::new();
        Read::by_ref(&mut file).take(HEAD_BYTES).read_to_end(&mut bytes)?;
        if let Some(message) = binary_message(&bytes) {
            return Err(TableError::Content(message.into()));
        }
        let mut complete_length = file.metadata()?.len();
        if bytes.iter().filter(|byte| **byte == b'\n').count() >= LINES_MIN_FOR_DROP {
            let tail_at = complete_length.saturating_sub(LINE_BYTES_MAX);
            file.seek(SeekFrom::Start(tail_at))?;
            let mut tail = Vec::new();
            file.take(complete_length - tail_at).read_to_end(&mut tail)?;
            if let Some(last) = tail.iter().rposition(|byte| *byte == b'\n') {
                complete_length = tail_at + last as u64 + 1;
            }
        }
        let text = String::from_utf8_lossy(&bytes);
        let text = without_escapes(text.strip_prefix('\u{feff}').unwrap_or(&text)).into_owned();
        Ok(Self { text, complete_length })
    }

    /// Non-blank lines, trimmed.
    pub fn lines(&self) -> impl Iterator<Item = &str> {
        self.text.lines().map(str::trim).filter(|line| !line.is_empty())
    }
}

/// Message on a file that is no text, by its first bytes; `None` for text.
fn binary_message(bytes: &[u8]) -> Option<&'static str> {
    let is = |magic: &[u8]| bytes.starts_with(magic);
    if is(b"memray") || is(&[0x04, 0x22, 0x4d, 0x18]) {
        return Some(
            "the file is a recording of memray (or LZ4-compressed); convert it with `memray flamegraph` and judge that page",
        );
    }
    if is(&[0xff, 0xfe]) || is(&[0xfe, 0xff]) {
        return Some("the file is UTF-16, as written by PowerShell's `>`; save it as UTF-8");
    }
    if is(&[0x1f, 0x8b]) || is(b"PK\x03\x04") || is(&[0x28, 0xb5, 0x2f, 0xfd]) {
        return Some("the file is compressed; unpack it first");
    }
    bytes.contains(&0).then_some("the file is binary, not text")
}

/// Opens a regular file; a pipe or a device cannot be read twice.
pub fn open(path: &Path) -> Result<File, TableError> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(TableError::Content("not a regular file; write its contents to a file first".into()));
    }
    Ok(File::open(path)?)
}

/// Reader of the lines of a file.
pub struct Lines {
    reader: BufReader<Take<File>>,
    bytes: Vec<u8>,
    text: String,
    /// Number of the newest line, from 1.
    pub number: u64,
}

impl Lines {
    pub fn open(path: &Path, head: &FileHead) -> Result<Self, TableError> {
        let reader = BufReader::new(open(path)?.take(head.complete_length));
        Ok(Self { reader, bytes: Vec::new(), text: String::new(), number: 0 })
    }

    /// Next non-blank line, trimmed; `None` at the end.
    pub fn next_line(&mut self) -> Result<Option<&str>, TableError> {
        loop {
            self.bytes.clear();
            if Read::by_ref(&mut self.reader).take(LINE_BYTES_MAX).read_until(b'\n', &mut self.bytes)? == 0 {
                return Ok(None);
            }
            self.number += 1;
            if self.bytes.len() as u64 == LINE_BYTES_MAX && self.bytes.last() != Some(&b'\n') {
                return Err(TableError::at(self.number, "longer than 256 KiB, too long for a trace"));
            }
            let text = String::from_utf8_lossy(&self.bytes);
            let plain = without_escapes(text.trim_start_matches('\u{feff}'));
            let trimmed = plain.trim();
            if !trimmed.is_empty() {
                self.text.clear();
                self.text.push_str(trimmed);
                return Ok(Some(&self.text));
            }
        }
    }
}

/// Text without the escape sequences of a terminal, such as colours.
pub fn without_escapes(text: &str) -> Cow<'_, str> {
    if !text.contains('\u{1b}') {
        return text.into();
    }
    let (mut plain, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((before, after)) = rest.split_once('\u{1b}') {
        plain.push_str(before);
        let sequence = after.strip_prefix('[').map(|body| body.find(|letter: char| letter.is_ascii_alphabetic()));
        rest = match sequence {
            Some(Some(end)) => &after[end + 2..],
            _ => after,
        };
    }
    plain.push_str(rest);
    plain.into()
}

/// Returns the time from a title line of watch(1); other lines unchanged.
pub fn strip_watch_title(line: &str) -> &str {
    let title = line.strip_prefix("Every ").and_then(|rest| rest.rsplit("  ").next());
    title.and_then(|title| title.split_once(": ")).map_or(line, |(_, time)| time)
}

/// Cell or line in quotation marks, at most 60 characters of it.
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
        let head = FileHead::read(file.path()).unwrap();
        let mut lines = Lines::open(file.path(), &head).unwrap();
        let mut read = Vec::new();
        while let Some(line) = lines.next_line().unwrap() {
            read.push(line.to_owned());
        }
        read
    }

    #[test]
    fn an_unfinished_last_line_is_dropped_where_there_are_many_lines() {
        assert_eq!(lines(b"\xef\xbb\xbfa\r\n\n  b  \nc"), ["a", "b", "c"]);
        let many = "row\n".repeat(12);
        assert_eq!(lines(format!("{many}ro").as_bytes()).len(), 12);
        assert_eq!(lines(format!("{many}row\n").as_bytes()).len(), 13);
    }

    #[test]
    fn binary_files_are_rejected_by_their_first_bytes() {
        let files =
            [&b"memray\0\x0c"[..], b"\x04\x22\x4d\x18\x40", b"\xff\xfes\0t\0", b"\x1f\x8b\x08", b"a\0b"].map(file);
        let paths = files.iter().map(|file| file.path()).chain([Path::new("/dev/null")]);
        let messages: Vec<String> = paths.map(|path| FileHead::read(path).unwrap_err().to_string()).collect();
        insta::assert_snapshot!(messages.join("\n"));
    }

    #[test]
    fn a_line_above_the_cap_is_an_error() {
        let long = file(&[b'x'; 600 * 1024]);
        let head = FileHead::read(long.path()).unwrap();
        let error = Lines::open(long.path(), &head).unwrap().next_line().unwrap_err();
        assert!(error.to_string().starts_with("line 1: "));
    }
}
