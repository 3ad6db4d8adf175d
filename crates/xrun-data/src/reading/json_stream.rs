//! Reader of JSON that is longer than what may be held: objects and lists are entered, and one value of them is in memory at a
//! time.

use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use serde_json::value::RawValue;

use xrun_core::dataset::error::DataError;
use xrun_core::units::Bytes;

/// Bytes that are read at once.
const CHUNK: usize = 64 * 1024;
/// Maximum length of a value, or a line.
pub const VALUE_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Name of the value that a file is.
pub const FILE: &str = "the file";

/// Place in a file.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Bytes before it.
    pub offset: u64,
    /// Its line, from 1.
    pub line: u64,
    /// Offset of its line.
    begin: u64,
}

impl Place {
    /// Text such as `line 7, column 3`, as editors count.
    pub fn shown(&self) -> String {
        format!("line {}, column {}", self.line, self.offset - self.begin + 1)
    }
}

/// A JSON text that is read from its beginning to its end.
pub struct JsonStream<'a, R> {
    file: R,
    path: &'a Path,
    /// Completes "is not …".
    form: &'static str,
    /// Receives all bytes in their order.
    seen: &'a mut dyn FnMut(&[u8]),
    buffer: Vec<u8>,
    /// Index of the next byte in the buffer.
    at: usize,
    place: Place,
    ended: bool,
    /// `true` where nothing of the list or the object was read.
    entered: bool,
}

impl<'a, R: Read> JsonStream<'a, R> {
    /// Reads from the first byte of a file; `path` and `form` are for messages, and `seen` is called with all of its bytes.
    pub fn new(file: R, path: &'a Path, form: &'static str, seen: &'a mut dyn FnMut(&[u8])) -> Result<Self, DataError> {
        let (buffer, place) = (Vec::new(), Place { offset: 0, line: 1, begin: 0 });
        let mut stream = Self { file, path, form, seen, buffer, at: 0, place, ended: false, entered: false };
        stream.fill()?;
        // Some editors put a byte order mark before the text. Offsets count from the file's first byte.
        if stream.buffer.starts_with(b"\xef\xbb\xbf") {
            (stream.at, stream.place.offset, stream.place.begin) = (3, 3, 3);
        }
        Ok(stream)
    }

    /// Place of the next byte.
    pub fn place(&self) -> Place {
        self.place
    }

    /// Bytes of the file that are held.
    pub fn bytes(&self) -> u64 {
        self.buffer.capacity() as u64
    }

    /// Error about the text.
    pub fn error(&self, message: impl std::fmt::Display) -> DataError {
        DataError::file(self.path, format!("is not {}: {message}", self.form))
    }

    /// First byte of the next value, or what is between two; `None` at the end.
    pub fn peek(&mut self) -> Result<Option<u8>, DataError> {
        loop {
            let blank = self.buffer[self.at..].iter().take_while(|byte| byte.is_ascii_whitespace()).count();
            self.advance(blank);
            match self.buffer.get(self.at) {
                Some(byte) => return Ok(Some(*byte)),
                None if self.ended => return Ok(None),
                None => self.fill()?,
            }
        }
    }

    /// Enters an object (`{`) or a list (`[`); `name` and `expected` are for the message where there is something else.
    pub fn enter(&mut self, open: u8, name: &str, expected: &str) -> Result<(), DataError> {
        match self.peek()? {
            Some(found) if found == open => {
                self.advance(1);
                self.entered = true;
                Ok(())
            }
            None if name == FILE => Err(self.error("the file is empty")),
            None => Err(self.cut_off()),
            Some(_) => {
                let at = self.place.shown();
                self.value()?;
                Err(self.error(format!("{name} is not {expected}, in {at}")))
            }
        }
    }

    /// Whether the list has another item. The end of the list is passed.
    pub fn more(&mut self) -> Result<bool, DataError> {
        self.has_next(b']')
    }

    /// The next key of the object. The end of the object is passed.
    pub fn key(&mut self) -> Result<Option<String>, DataError> {
        if !self.has_next(b'}')? {
            return Ok(None);
        }
        if self.peek()? != Some(b'"') {
            return Err(self.no_json(self.at));
        }
        let key = serde_json::from_slice(self.value()?).unwrap_or_default();
        match self.peek()? {
            Some(b':') => self.advance(1),
            _ => return Err(self.no_json(self.at)),
        }
        Ok(Some(key))
    }

    fn has_next(&mut self, close: u8) -> Result<bool, DataError> {
        let first = std::mem::take(&mut self.entered);
        match self.peek()? {
            Some(found) if found == close => self.advance(1),
            Some(_) if first => return Ok(true),
            Some(b',') => {
                self.advance(1);
                return Ok(true);
            }
            Some(_) => return Err(self.no_json(self.at)),
            None => return Err(self.cut_off()),
        }
        Ok(false)
    }

    /// The text of the next value, which is JSON.
    pub fn value(&mut self) -> Result<&[u8], DataError> {
        self.peek()?;
        let length = loop {
            let text = &self.buffer[self.at..];
            let mut values = serde_json::Deserializer::from_slice(text).into_iter::<&RawValue>();
            match values.next() {
                // A number may go on.
                Some(Ok(_)) if self.ended || values.byte_offset() < text.len() => break values.byte_offset(),
                Some(Err(error)) if !error.is_eof() => {
                    let lines = text.split_inclusive(|byte| *byte == b'\n');
                    let before: usize = lines.take(error.line().saturating_sub(1)).map(<[u8]>::len).sum();
                    let index = before + error.column().saturating_sub(1);
                    // A number that ends in its point goes on.
                    if self.ended || index + 2 < text.len() {
                        return Err(self.no_json(self.at + index));
                    }
                    self.fill()?;
                }
                _ if self.ended => return Err(self.cut_off()),
                _ => self.fill()?,
            }
        };
        self.advance(length);
        Ok(&self.buffer[self.at - length..self.at])
    }

    /// Passes the next value; of a list or an object each part by itself. Returns the number of items of a list.
    pub fn skip(&mut self) -> Result<usize, DataError> {
        let mut count = 0;
        match self.peek()? {
            Some(b'[') => {
                self.enter(b'[', "", "")?;
                while self.more()? {
                    self.value()?;
                    count += 1;
                }
            }
            Some(b'{') => {
                self.enter(b'{', "", "")?;
                while self.key()?.is_some() {
                    self.value()?;
                }
            }
            _ => drop(self.value()?),
        }
        Ok(count)
    }

    /// The next line, with its end; empty after the last, and `None` for one that is too long, which is passed over.
    pub fn line(&mut self) -> Result<Option<&[u8]>, DataError> {
        let mut is_too_long = false;
        let length = loop {
            let text = &self.buffer[self.at..];
            match text.iter().position(|byte| *byte == b'\n') {
                Some(end) => break end + 1,
                None if self.ended => break text.len(),
                None if text.len() > VALUE_BYTES_MAX => {
                    is_too_long = true;
                    self.advance(self.buffer.len() - self.at);
                }
                None => {}
            }
            self.fill()?;
        };
        self.advance(length);
        let line = &self.buffer[self.at - length..self.at];
        Ok(Some(line).filter(|_| !is_too_long && length <= VALUE_BYTES_MAX))
    }

    /// Checks that nothing follows.
    pub fn end(&mut self) -> Result<(), DataError> {
        match self.peek()? {
            Some(_) => Err(self.no_json(self.at)),
            None => Ok(()),
        }
    }

    fn advance(&mut self, bytes: usize) {
        let passed = &self.buffer[self.at..self.at + bytes];
        if let Some(last) = passed.iter().rposition(|byte| *byte == b'\n') {
            self.place.line += passed.iter().filter(|byte| **byte == b'\n').count() as u64;
            self.place.begin = self.place.offset + last as u64 + 1;
        }
        self.place.offset += bytes as u64;
        self.at += bytes;
    }

    fn fill(&mut self) -> Result<(), DataError> {
        self.buffer.drain(..self.at);
        self.at = 0;
        let held = self.buffer.len();
        if held > VALUE_BYTES_MAX {
            let most = Bytes(VALUE_BYTES_MAX as u64);
            return Err(self.error(format!("what begins in {} has more than {most}", self.place.shown())));
        }
        let more = CHUNK.max(held);
        self.buffer.reserve_exact(more);
        let read = (&mut self.file).take(more as u64).read_to_end(&mut self.buffer);
        let read = read.map_err(|error| DataError::file(self.path, format!("cannot be read: {error}")))?;
        self.ended = read < more;
        (self.seen)(&self.buffer[held..]);
        Ok(())
    }

    fn cut_off(&self) -> DataError {
        let rest = &self.buffer[self.at..];
        let line = self.place.line + rest.trim_ascii_end().iter().filter(|byte| **byte == b'\n').count() as u64;
        self.error(format!(
            "the file ends in line {line} before its JSON does: a bracket or a quotation mark is never closed; it may have been \
             cut off"
        ))
    }

    /// Error about the byte at an index of the buffer.
    fn no_json(&self, index: usize) -> DataError {
        let index = index.min(self.buffer.len());
        let between = &self.buffer[self.at.min(index)..index];
        let line = self.place.line + between.iter().filter(|byte| **byte == b'\n').count() as u64;
        let column = match between.iter().rposition(|byte| *byte == b'\n') {
            Some(end) => between.len() - end,
            None => (self.place.offset - self.place.begin) as usize + between.len() + 1,
        };
        self.error(format!("it is no JSON in line {line}, column {column}"))
    }
}

impl<R: Read + Seek> JsonStream<'_, R> {
    /// Goes to a place that was passed, of a list, and enters it.
    pub fn enter_at(&mut self, place: Place) -> Result<(), DataError> {
        let sought: io::Result<u64> = self.file.seek(SeekFrom::Start(place.offset));
        sought.map_err(|error| DataError::file(self.path, format!("cannot be read: {error}")))?;
        self.buffer.clear();
        (self.at, self.place, self.ended) = (0, place, false);
        self.enter(b'[', "the list", "a list")
    }
}
