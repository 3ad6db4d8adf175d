//! Memory over time in an HTML page of memray.
//!
//! `memray flamegraph` and `memray table` write the samples of a recording into their page, as
//! `memory_records = [[milliseconds, resident bytes, heap bytes], …]`. Its other outputs have no series over time.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use super::text::{FileHead, open};
use super::{Sample, SeriesInfo, Trace, TraceError, Value};
use crate::axis::Axis;
use crate::findings::UnitSource;

/// Hint in messages about files of memray without memory over time.
pub const EXPECTED: &str = "use a page of `memray flamegraph` or `memray table`, which has memory over time";

const MARK: &[u8] = b"memory_records = [";
/// Upper bound of milliseconds since 1970.
const TIME_MAX: i64 = 9_000_000_000_000_000;
/// Cap on the digits of a number.
const DIGITS_MAX: usize = 24;

/// Reader of a page of memray.
pub struct Memray {
    bytes: Box<dyn Iterator<Item = std::io::Result<u8>>>,
    line: u64,
}

impl Memray {
    pub fn open(path: &Path, head: &FileHead) -> Result<Self, TraceError> {
        let mut reader = BufReader::new(open(path)?.take(head.length));
        let (mut line, mut matched, mut found) = (1, 0, false);
        while !found {
            let buffer = reader.fill_buf()?;
            if buffer.is_empty() {
                return Err(TraceError::content(format!("the page has no `memory_records`; {EXPECTED}")));
            }
            let mut consumed = 0;
            for byte in buffer {
                consumed += 1;
                line += u64::from(*byte == b'\n');
                // On a mismatch after `mem`, its last letter may begin a new match.
                matched = match () {
                    () if *byte == MARK[matched] => matched + 1,
                    () if matched == 3 && *byte == MARK[1] => 2,
                    () => usize::from(*byte == MARK[0]),
                };
                if matched == MARK.len() {
                    found = true;
                    break;
                }
            }
            reader.consume(consumed);
        }
        Ok(Self { bytes: Box::new(reader.bytes()), line })
    }

    fn next_byte(&mut self) -> Result<u8, TraceError> {
        match self.bytes.next() {
            Some(byte) => Ok(byte?),
            None => Err(TraceError::at(self.line, "`memory_records` is truncated")),
        }
    }

    /// Reads a number and the `,` or `]` after it.
    fn number(&mut self) -> Result<(u64, u8), TraceError> {
        let mut digits = String::new();
        loop {
            match self.next_byte()? {
                end @ (b',' | b']') => {
                    let number = digits.trim().parse();
                    return number.map(|number| (number, end)).map_err(|_| self.error(&digits));
                }
                byte if digits.len() < DIGITS_MAX => digits.push(char::from(byte)),
                _ => return Err(self.error(&digits)),
            }
        }
    }

    fn error(&self, found: &str) -> TraceError {
        let found = super::text::quoted(found);
        TraceError::at(self.line, format!("expected three whole numbers in each of `memory_records`, found {found}"))
    }
}

impl Trace for Memray {
    fn next_sample(&mut self, sample: &mut Sample) -> Result<bool, TraceError> {
        loop {
            match self.next_byte()? {
                b'[' => break,
                b']' => return Ok(false),
                b',' | b' ' => {}
                other => return Err(self.error(&char::from(other).to_string())),
            }
        }
        let mut numbers = [0u64; 3];
        for (at, number) in numbers.iter_mut().enumerate() {
            let (found, end) = self.number()?;
            if (end == b']') != (at == 2) {
                return Err(self.error(&found.to_string()));
            }
            *number = found;
        }
        let [time, rss, heap] = numbers;
        let position = i64::try_from(time).ok().filter(|time| *time < TIME_MAX);
        let position = position.ok_or_else(|| self.error(&time.to_string()))?;
        *sample =
            Sample { line: self.line, position, restart: false, group: 0, values: std::mem::take(&mut sample.values) };
        sample.values.clear();
        for (series, bytes) in [heap, rss].into_iter().enumerate() {
            sample.values.push(Value { series, number: bytes as f64, unit: None, percent: false });
        }
        Ok(true)
    }

    fn series(&mut self) -> Vec<SeriesInfo> {
        ["heap", "rss"].map(|name| SeriesInfo::new(name, (1.0, UnitSource::Tool))).into()
    }

    fn axis(&self) -> Axis {
        Axis::Clock
    }

    fn notes(&self) -> Vec<String> {
        vec!["memory over time in a page of memray".into()]
    }
}
