//! Memory over time in a page of memray's.
//!
//! `memray flamegraph` and `memray table` write the samples of a recording into their page, as
//! `memory_records = [[milliseconds, resident bytes, heap bytes], …]`. None of its other outputs holds a series.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use super::text::{Head, open};
use super::{Known, Sample, Source, Value, Wrong};
use crate::axis::Axis;

/// The end of messages about files of memray's that hold no series.
pub const WHAT_CAN_BE_JUDGED: &str =
    "of memray, a page that `memray flamegraph` or `memray table` writes can be judged: it holds memory over time";

const MARK: &[u8] = b"memory_records = [";
/// Milliseconds since 1970 are fewer.
const TIME_MAX: i64 = 9_000_000_000_000_000;
/// A number has fewer digits.
const DIGITS_MAX: usize = 24;

pub struct Memray {
    bytes: Box<dyn Iterator<Item = std::io::Result<u8>>>,
    line: u64,
}

impl Memray {
    pub fn open(path: &Path, head: &Head) -> Result<Self, Wrong> {
        let mut reader = BufReader::new(open(path)?.take(head.length));
        let (mut line, mut matched, mut found) = (1, 0, false);
        while !found {
            let buffer = reader.fill_buf()?;
            if buffer.is_empty() {
                return Err(Wrong::whole(format!("is a page without `memory_records`; {WHAT_CAN_BE_JUDGED}")));
            }
            let mut used = 0;
            for byte in buffer {
                used += 1;
                line += u64::from(*byte == b'\n');
                // Its first letter comes again only as its third: `mem`.
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
            reader.consume(used);
        }
        Ok(Self { bytes: Box::new(reader.bytes()), line })
    }

    fn next_byte(&mut self) -> Result<u8, Wrong> {
        match self.bytes.next() {
            Some(byte) => Ok(byte?),
            None => Err(Wrong::at(self.line, "`memory_records` end in their middle")),
        }
    }

    /// The number before the next `,` or `]`, and which of them it was.
    fn number(&mut self) -> Result<(u64, u8), Wrong> {
        let mut digits = String::new();
        loop {
            match self.next_byte()? {
                end @ (b',' | b']') => {
                    let number = digits.trim().parse();
                    return number.map(|number| (number, end)).map_err(|_| self.wrong(&digits));
                }
                byte if digits.len() < DIGITS_MAX => digits.push(char::from(byte)),
                _ => return Err(self.wrong(&digits)),
            }
        }
    }

    fn wrong(&self, found: &str) -> Wrong {
        let found = super::text::quoted(found);
        Wrong::at(self.line, format!("`memory_records`: three whole numbers a record were expected, found {found}"))
    }
}

impl Source for Memray {
    fn next_sample(&mut self, sample: &mut Sample) -> Result<bool, Wrong> {
        loop {
            match self.next_byte()? {
                b'[' => break,
                b']' => return Ok(false),
                b',' | b' ' => {}
                other => return Err(self.wrong(&char::from(other).to_string())),
            }
        }
        let mut numbers = [0u64; 3];
        for (at, number) in numbers.iter_mut().enumerate() {
            let (found, end) = self.number()?;
            if (end == b']') != (at == 2) {
                return Err(self.wrong(&found.to_string()));
            }
            *number = found;
        }
        let [time, resident, heap] = numbers;
        let place = i64::try_from(time).ok().filter(|time| *time < TIME_MAX);
        let place = place.ok_or_else(|| self.wrong(&time.to_string()))?;
        *sample = Sample { line: self.line, place, restart: false, values: std::mem::take(&mut sample.values) };
        sample.values.clear();
        for (series, bytes) in [heap, resident].into_iter().enumerate() {
            sample.values.push(Value { series, number: bytes as f64, unit: None });
        }
        Ok(true)
    }

    fn known(&mut self) -> Vec<Known> {
        vec![Known::new("heap", Some(1.0)), Known::new("resident", Some(1.0))]
    }

    fn axis(&self) -> Axis {
        Axis::Clock
    }

    fn notes(&self) -> Vec<String> {
        vec!["the memory over time in a page of memray".into()]
    }
}
