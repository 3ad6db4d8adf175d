//! Scanner of JSON (RFC 8259) that classifies each byte as structure, key or value.

use std::ops::Range;

/// Maximum nesting, that of serde_json.
const DEPTH_MAX: usize = 127;

/// Class of a byte of a JSON text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ByteClass {
    /// Braces, brackets, colons, commas, space outside of strings, quotes of keys, opening quote of a string value.
    Structure,
    /// Inside of a key.
    Key,
    /// Inside of a string value, or part of a number, `true` or `false`.
    Value,
    /// Part of `null`.
    Null,
    /// End of a value: closing quote of a string, or the first byte after a number, `true`, `false` or `null`.
    End,
}

/// Classified bytes and fields of a JSON text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scan {
    /// Class of each byte.
    pub classes: Vec<ByteClass>,
    /// Bytes of each field in the order of the text: its value with the byte that ends it, which may be one behind the text; the
    /// two brackets of an empty object or list.
    pub fields: Vec<Range<usize>>,
}

/// Classifies the bytes of `text`; `None` if it is not JSON or is nested in more than 127 levels.
pub fn scan(text: &str) -> Option<Scan> {
    let bytes = text.as_bytes();
    let mut scanner = Scanner { bytes, at: 0, classes: vec![ByteClass::Structure; bytes.len()], fields: Vec::new() };
    scanner.value(DEPTH_MAX)?;
    scanner.space();
    (scanner.at == bytes.len()).then_some(Scan { classes: scanner.classes, fields: scanner.fields })
}

struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
    classes: Vec<ByteClass>,
    fields: Vec<Range<usize>>,
}

impl Scanner<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// Consumes `byte` if it is the next one.
    fn take(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    /// Consumes a value and the space before it, nested in at most `depth` levels.
    fn value(&mut self, depth: usize) -> Option<()> {
        self.space();
        let begin = self.at;
        match self.peek()? {
            b'{' => self.list(b'}', depth.checked_sub(1)?, |scanner| {
                scanner.space();
                scanner.string(ByteClass::Key)?;
                scanner.space();
                scanner.take(b':')
            }),
            b'[' => self.list(b']', depth.checked_sub(1)?, |_| Some(())),
            b'"' => {
                self.string(ByteClass::Value)?;
                self.classes[self.at - 1] = ByteClass::End;
                self.fields.push(begin + 1..self.at);
                Some(())
            }
            b'n' => self.word("null", ByteClass::Null),
            b't' => self.word("true", ByteClass::Value),
            b'f' => self.word("false", ByteClass::Value),
            _ => {
                self.number()?;
                self.ended(begin, ByteClass::Value)
            }
        }
    }

    /// Consumes an object or a list; `before` consumes what precedes each value.
    fn list(&mut self, end: u8, depth: usize, before: impl Fn(&mut Self) -> Option<()>) -> Option<()> {
        let begin = self.at;
        self.at += 1;
        self.space();
        if self.take(end).is_some() {
            self.fields.push(begin..self.at);
            return Some(());
        }
        loop {
            before(self)?;
            self.value(depth)?;
            self.space();
            if self.take(end).is_some() {
                return Some(());
            }
            self.take(b',')?;
        }
    }

    /// Consumes a string with its quotes and sets the class of its inside.
    fn string(&mut self, class: ByteClass) -> Option<()> {
        self.take(b'"')?;
        let begin = self.at;
        loop {
            match self.peek()? {
                b'"' => break,
                b'\\' => {
                    self.at += 1;
                    match self.peek()? {
                        b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => self.at += 1,
                        b'u' => {
                            let digits = self.bytes.get(self.at + 1..self.at + 5)?;
                            self.at += digits.iter().all(u8::is_ascii_hexdigit).then_some(5)?;
                        }
                        _ => return None,
                    }
                }
                0..0x20 => return None,
                _ => self.at += 1,
            }
        }
        self.classes[begin..self.at].fill(class);
        self.at += 1;
        Some(())
    }

    fn word(&mut self, word: &str, class: ByteClass) -> Option<()> {
        let begin = self.at;
        self.at += self.bytes[begin..].starts_with(word.as_bytes()).then_some(word.len())?;
        self.ended(begin, class)
    }

    fn digits(&mut self) -> Option<()> {
        let begin = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        (self.at > begin).then_some(())
    }

    fn number(&mut self) -> Option<()> {
        let _ = self.take(b'-');
        if self.take(b'0').is_none() {
            self.digits()?;
        }
        if self.take(b'.').is_some() {
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        Some(())
    }

    /// Sets the classes of a value without quotes, which the next byte ends.
    fn ended(&mut self, begin: usize, class: ByteClass) -> Option<()> {
        self.classes[begin..self.at].fill(class);
        if let Some(next) = self.classes.get_mut(self.at) {
            *next = ByteClass::End;
        }
        self.fields.push(begin..self.at + 1);
        Some(())
    }
}

#[cfg(test)]
#[path = "json_bytes_tests.rs"]
pub(super) mod tests;
