//! Which bytes of an answer are structure, which are keys, and which are values? A scanner of JSON (RFC 8259).

use std::ops::Range;

/// As deep as serde_json reads.
const DEPTH_MAX: usize = 127;

/// What a byte of a JSON text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Braces, brackets, colons, commas, space outside of strings, the quotes of keys, the opening quote of a value.
    Structure,
    /// Inside a key.
    Key,
    /// Inside a string that is a value, or of a number, `true` or `false`.
    Value,
    /// Of `null`.
    Null,
    /// What ends a value: the closing quote of a string, or the first byte after a number, `true`, `false` or `null`.
    End,
}

/// A JSON text, byte by byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scan {
    /// A class a byte.
    pub classes: Vec<Class>,
    /// The fields, in the order of the text: the bytes of each that are value, with the byte that ends it. The range ends one
    /// byte behind the text where the end of the text ends the value. Of an empty object or list its two brackets.
    pub fields: Vec<Range<usize>>,
}

/// The classes of all bytes; `None` of what is not JSON, or nested in more than 127 levels.
pub fn scan(text: &str) -> Option<Scan> {
    let bytes = text.as_bytes();
    let mut scanner = Scanner { bytes, at: 0, classes: vec![Class::Structure; bytes.len()], fields: Vec::new() };
    scanner.value(DEPTH_MAX)?;
    scanner.space();
    (scanner.at == bytes.len()).then_some(Scan { classes: scanner.classes, fields: scanner.fields })
}

struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
    classes: Vec<Class>,
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

    /// Goes past this byte, if it is the next.
    fn take(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    /// With the space before it; `depth` levels may follow.
    fn value(&mut self, depth: usize) -> Option<()> {
        self.space();
        let begin = self.at;
        match self.peek()? {
            b'{' => self.list(b'}', depth.checked_sub(1)?, |scanner| {
                scanner.space();
                scanner.string(Class::Key)?;
                scanner.space();
                scanner.take(b':')
            }),
            b'[' => self.list(b']', depth.checked_sub(1)?, |_| Some(())),
            b'"' => {
                self.string(Class::Value)?;
                self.classes[self.at - 1] = Class::End;
                self.fields.push(begin + 1..self.at);
                Some(())
            }
            b'n' => self.word("null", Class::Null),
            b't' => self.word("true", Class::Value),
            b'f' => self.word("false", Class::Value),
            _ => {
                self.number()?;
                self.ended(begin, Class::Value)
            }
        }
    }

    /// An object or a list: what stands before each value is read by `before`.
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

    /// A string with its quotes, whose inside is of this class.
    fn string(&mut self, class: Class) -> Option<()> {
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

    fn word(&mut self, word: &str, class: Class) -> Option<()> {
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

    /// A value without quotes: the next byte ends it.
    fn ended(&mut self, begin: usize, class: Class) -> Option<()> {
        self.classes[begin..self.at].fill(class);
        if let Some(next) = self.classes.get_mut(self.at) {
            *next = Class::End;
        }
        self.fields.push(begin..self.at + 1);
        Some(())
    }
}

#[cfg(test)]
#[path = "json_bytes_tests.rs"]
pub(super) mod tests;
