//! Lines of a log: numbers behind their names, `step 10: rss 672 MB`, `mem=1.5GiB`, `VmRSS:  123 kB`.
//!
//! A row is what lies between two numbers of one name, on one line or several.

use std::collections::{HashMap, VecDeque};
use std::path::Path;

use super::TraceError;
use super::grid::COLUMNS_MAX;
use super::numbers::{Numbers, cell_unit};
use super::rows::{Row, Rows};
use super::text::{FileHead, Lines, quoted};
use super::times::TimeParser;

/// Cap on the words of a name.
const WORDS_MAX: usize = 6;
/// Cap on the numbers of a line.
const FIELDS_MAX: usize = 256;
/// Words that end with the number of a process or device: `rank0`, `cuda:1`.
const NUMBERED: &[&str] = &["rank", "gpu", "cuda", "worker", "device"];
/// Name of a number that has none, but a unit of memory.
const MEMORY: &str = "memory";
/// Name of the numbers of a file that has only numbers.
const VALUE: &str = "value";
/// Name of a count within a total, `[10/200]`, that has none.
const ITERATION: &str = "iter";

/// Number of a line with its name.
#[derive(Clone, Debug, PartialEq)]
struct Field {
    name: String,
    /// The number, and its unit if it has one.
    cell: String,
}

/// Time at the beginning of a line, and the rest of the line.
fn timestamp(line: &str) -> (Option<String>, &str) {
    let mut end = 0;
    let mut before: Option<&str> = None;
    for word in line.split_whitespace().take(3) {
        let at = line[end..].find(word).map_or(end, |at| end + at);
        end = at + word.len();
        let plain = word.trim_matches(|letter: char| "[]()<>|,;".contains(letter));
        let time = plain.split(']').next().unwrap_or_default().trim_end_matches(':');
        let is_named = before.is_some_and(|before| before.ends_with([':', '=']));
        if !is_named && TimeParser::of("").is_clock(&time.replace(',', ".")) {
            let date = before.map(|before| format!("{before} {time}")).filter(|both| TimeParser::of("").is_date(both));
            // `[11:13:00][module]` continues within the word.
            let rest = line[at..].find(time).map_or(end, |found| at + found + time.len());
            return (Some(date.unwrap_or_else(|| time.replace(',', "."))), &line[rest..]);
        }
        before = Some(plain);
    }
    (None, line)
}

/// Numbers of a line with their names.
fn fields(line: &str) -> Vec<Field> {
    let bytes = line.as_bytes();
    let (mut found, mut at, mut text_from) = (Vec::<Field>::new(), 0, 0);
    let mut last_name = String::new();
    while at < bytes.len() && found.len() < FIELDS_MAX {
        if !bytes[at].is_ascii_digit() {
            at += 1;
            continue;
        }
        if at > 0 && !starts_number(&bytes[..at]) {
            // The rest of `A100` or of a version.
            let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_');
            at += bytes[at..].iter().position(|byte| !is_part(byte)).unwrap_or(bytes.len() - at);
            continue;
        }
        let Number { end, cell, kind } = number(line, at);
        let sign = at.checked_sub(1).map(|before| bytes[before]);
        let name = name(&line[text_from..at]);
        let numbered = numbered(&line[text_from..at]);
        let next = std::mem::replace(&mut at, end);
        text_from = end;
        let field = |name: &str, cell: &str| Field { name: name.to_owned(), cell: cell.to_owned() };
        match (kind, numbered, name) {
            (NumberKind::Other, ..) => {}
            (_, Some(name), _) => found.push(field(name, &cell)),
            // `+5 MB` is a change, and a percentage without a name may be one of anything.
            _ if sign == Some(b'+') => {}
            (NumberKind::Size, None, None) if sign == Some(b'-') || cell.ends_with('%') => {}
            (_, None, Some(name)) => {
                let sign = if sign == Some(b'-') { "-" } else { "" };
                found.push(field(&name, &format!("{sign}{cell}")));
                last_name = name;
            }
            (NumberKind::Size, None, None) => found.push(field(MEMORY, &cell)),
            (NumberKind::Count, None, None) if last_name != ITERATION => found.push(field(ITERATION, &cell)),
            _ => debug_assert!(next < end),
        }
    }
    found
}

/// Returns whether a digit that follows these bytes begins a number, and is no part of a word, a date or a version.
fn starts_number(before: &[u8]) -> bool {
    match before {
        [.., letter, b':'] if letter.is_ascii_digit() => false,
        [.., last] if last.is_ascii_alphabetic() => ends_with_numbered(before),
        [.., b'_' | b'.' | b'#' | b'/' | b'\\' | b'%'] => false,
        [.., word, b'-' | b'+'] => !word.is_ascii_alphanumeric(),
        _ => true,
    }
}

fn ends_with_numbered(before: &[u8]) -> bool {
    let word_from = before.iter().rposition(|byte| !byte.is_ascii_alphabetic()).map_or(0, |at| at + 1);
    NUMBERED.iter().any(|word| before[word_from..].eq_ignore_ascii_case(word.as_bytes()))
}

/// Number of a process or device, `rank0` or `cuda:1`, that the text before a number ends with.
fn numbered(before: &str) -> Option<&'static str> {
    let text = before.trim_end_matches([' ', ':', '=', '[', '#']);
    let word_from = text.rfind(|letter: char| !letter.is_ascii_alphabetic()).map_or(0, |at| at + 1);
    let word = text.get(word_from..)?;
    let name = NUMBERED.iter().find(|name| word.eq_ignore_ascii_case(name))?;
    // `GPU: 5000 MiB` and `gpu = 5` are amounts.
    let is_amount = before.ends_with(' ') && before.trim_end().ends_with([':', '=']);
    (!is_amount).then_some(if *name == "cuda" { "gpu" } else { name })
}

/// Meaning of a number of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NumberKind {
    Plain,
    /// It has a unit of memory or is a percentage.
    Size,
    /// Part of a whole number: `10/200`.
    Count,
    /// Time, version, or a number with another unit.
    Other,
}

struct Number {
    /// End of the number and its unit.
    end: usize,
    cell: String,
    kind: NumberKind,
}

/// Number that begins at a digit.
fn number(line: &str, begin: usize) -> Number {
    let bytes = line.as_bytes();
    let is_digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let mut end = begin;
    let (mut points, mut colons) = (0, 0);
    while end < bytes.len() {
        match bytes[end] {
            b'0'..=b'9' => {}
            b'.' if is_digit(end + 1) => points += 1,
            b':' if is_digit(end + 1) => colons += 1,
            // Thousands: three digits, and no more.
            b',' if (1..=3).all(|at| is_digit(end + at)) && !is_digit(end + 4) => {}
            b'-' | b'/' if is_date(&line[begin..]) => colons += 1,
            b'e' | b'E'
                if is_digit(end + 1) || (matches!(bytes.get(end + 1), Some(b'-' | b'+')) && is_digit(end + 2)) =>
            {
                end += 1;
            }
            _ => break,
        }
        end += 1;
    }
    let digits = &line[begin..end];
    let other = |end| Number { end, cell: String::new(), kind: NumberKind::Other };
    if points > 1 || colons > 0 {
        return other(end);
    }
    // The limit of `20.5/80.0 GiB` is no amount of its own.
    let (mut kind, mut unit_at) = (NumberKind::Plain, end);
    let after = line[end..].trim_start();
    if let Some(total) = after.strip_prefix('/').map(str::trim_start) {
        let length = total.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(total.len());
        if length > 0 {
            kind = NumberKind::Count;
            unit_at = line.len() - total.len() + length;
        }
    }
    let unit = line[unit_at..].strip_prefix(' ').unwrap_or(&line[unit_at..]);
    let length = unit.find(|letter: char| !letter.is_ascii_alphabetic() && letter != '%').unwrap_or(unit.len());
    let (word, after) = unit.split_at(length);
    let is_attached = unit.len() == line[unit_at..].len();
    let is_size = (word == "%" || cell_unit(word, false).is_some())
        && !after.starts_with(['/', '_'])
        // A single letter behind a space is a word.
        && (is_attached || word.len() > 1 || word == "%");
    match is_size {
        true => {
            let end = line.len() - after.len();
            // `1.2GiB / 31.1GiB`
            let limit = after.trim_start().strip_prefix('/').map(str::trim_start);
            let skipped = limit.filter(|limit| limit.starts_with(|letter: char| letter.is_ascii_digit()));
            let skipped = skipped.map(|limit| {
                let length =
                    limit.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '.').unwrap_or(limit.len());
                line.len() - limit.len() + length
            });
            Number { end: skipped.unwrap_or(end), cell: format!("{digits} {word}"), kind: NumberKind::Size }
        }
        // `3it`, `10ms`
        false if is_attached && length > 0 && kind == NumberKind::Plain => other(unit_at + length),
        false => Number { end: unit_at, cell: digits.to_owned(), kind },
    }
}

/// Returns whether a text begins with a date: `2025-03-04`, `13/12/22`, `2025/03/04`.
fn is_date(text: &str) -> bool {
    let word = text.split(|letter: char| letter.is_whitespace() || "],T".contains(letter)).next().unwrap_or_default();
    ['-', '/'].iter().any(|separator| {
        let mut parts = word.split(*separator);
        let is_part = |part: Option<&str>| {
            part.is_some_and(|part| (1..=4).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit()))
        };
        is_part(parts.next()) && is_part(parts.next()) && is_part(parts.next()) && parts.next().is_none()
    })
}

/// Name of a number: the last words before it.
fn name(before: &str) -> Option<String> {
    let text = before.trim_end_matches(|letter: char| letter.is_whitespace() || ":=\"'`({[<>~≈|@+-".contains(letter));
    // A unit in brackets is part of the name: `Maximum resident set size (kbytes)`.
    let bracket = match text.chars().last() {
        Some(')') => text.rfind('('),
        Some(']') => text.rfind('['),
        _ => None,
    };
    let body = &text[..bracket.unwrap_or(text.len())];
    let from = body.rfind([',', ';', '|', '(', ')', '[', ']', '{', '}', '\t', '>', '"', '`']).map_or(0, |at| at + 1);
    let body_from = body[from..].rfind(": ").map_or(from, |at| from + at + 2);
    let body_from = body[body_from..].rfind("  ").map_or(body_from, |at| body_from + at + 2);
    let body_from = body[body_from..].rfind(" - ").map_or(body_from, |at| body_from + at + 3);
    let name =
        text.get(body_from..)?.trim_matches(|letter: char| letter.is_whitespace() || "\"'`.:-*".contains(letter));
    let words: Vec<&str> = name.split_whitespace().collect();
    let name = words[words.len().saturating_sub(WORDS_MAX)..].join(" ");
    // `train.py:12` is a line of code.
    let is_code =
        before.ends_with(':') && [".py", ".c", ".cc", ".cpp", ".rs", ".h"].iter().any(|end| name.ends_with(end));
    (!is_code && name.chars().any(char::is_alphabetic)).then_some(name)
}

/// Source of the numbers of a line, which several lines with the same names may differ in: `worker: rss 5 MB`,
/// `train.py:12: size=5 KiB`, `[0] NVIDIA A100 | …`.
fn source(line: &str) -> Option<Field> {
    let field = |name: &str, cell: &str| Some(Field { name: name.to_owned(), cell: cell.to_owned() });
    if let Some((index, rest)) = line.strip_prefix('[').and_then(|rest| rest.split_once("] ")) {
        let is_gpu = GPU_MAKERS.iter().any(|maker| rest.trim_start().starts_with(maker));
        return if is_gpu && index.parse::<u32>().is_ok() { field(GPU, index) } else { None };
    }
    let (before, after) = line.split_once(": ")?;
    let is_name = before.len() <= SOURCE_BYTES_MAX
        && before.starts_with(char::is_alphabetic)
        && before.chars().all(|letter| letter.is_alphabetic() || " _-.".contains(letter));
    let is_code =
        before.rsplit_once(':').is_some_and(|(_, number)| number.parse::<u32>().is_ok()) && !before.contains(' ');
    let is_followed = after.trim_start().starts_with(char::is_alphabetic);
    (is_followed && (is_name || is_code) && !LEVELS.contains(&before)).then(|| field(SOURCE, before))?
}

/// Name of the number of a GPU.
const GPU: &str = "gpu";
/// Name of the source of a line.
const SOURCE: &str = "source";
/// Cap on the length of a source.
const SOURCE_BYTES_MAX: usize = 60;
/// Levels of a log, which are no sources.
const LEVELS: &[&str] = &["DEBUG", "INFO", "WARNING", "WARN", "ERROR", "CRITICAL", "NOTE", "I", "W", "E"];
/// First words of the names of GPUs, as gpustat prints them.
const GPU_MAKERS: &[&str] = &["NVIDIA", "Tesla", "GeForce", "Quadro", "TITAN", "RTX", "AMD"];

/// Reader of a log.
pub struct Log {
    lines: Lines,
    names: Vec<String>,
    index: HashMap<String, usize>,
    /// Numbers of lines that are read and not yet in a row.
    pending: VecDeque<(u64, usize, String)>,
    /// Time of the newest line, and whether times are dates.
    time: String,
    is_date: Option<bool>,
    has_times: bool,
}

impl Log {
    pub fn open(path: &Path, head: &FileHead) -> Result<Self, TraceError> {
        let lines = Lines::open(path, head)?;
        let has_times = head.lines().any(|line| timestamp(line).0.is_some());
        let names = if has_times { vec!["time".to_owned()] } else { Vec::new() };
        let mut log = Self {
            lines,
            index: names.iter().cloned().zip(0..).collect(),
            names,
            pending: VecDeque::new(),
            time: String::new(),
            is_date: None,
            has_times,
        };
        if !head.lines().any(|line| !log.fields(line).is_empty()) {
            let first = head.lines().next().unwrap_or_default();
            let message = "expected a table with a header, or lines of `name: value`, found";
            return Err(TraceError::at(1, format!("{message} {}", quoted(first))));
        }
        Ok(log)
    }

    fn fields(&mut self, line: &str) -> Vec<Field> {
        if Numbers::default().number(line).is_some_and(|number| number >= 0.0) {
            return vec![Field { name: VALUE.into(), cell: line.into() }];
        }
        let (time, rest) = timestamp(line);
        if let Some(time) = time {
            let is_date = TimeParser::of("").is_date(&time);
            // Times of another kind are part of the text.
            if *self.is_date.get_or_insert(is_date) == is_date {
                self.time = time;
            }
        }
        let found = fields(rest);
        let source = source(rest.trim_start()).filter(|_| !found.is_empty());
        source.into_iter().chain(found).collect()
    }

    /// Index of the column of a name; `None` beyond the cap.
    fn column(&mut self, name: String) -> Option<usize> {
        if let Some(column) = self.index.get(&name) {
            return Some(*column);
        }
        (self.names.len() < COLUMNS_MAX).then(|| {
            self.names.push(name.clone());
            self.index.insert(name, self.names.len() - 1);
            self.names.len() - 1
        })
    }
}

impl Rows for Log {
    fn next_row(&mut self, row: &mut Row) -> Result<bool, TraceError> {
        row.clear();
        loop {
            while let Some((line, column, cell)) = self.pending.pop_front() {
                if row.has(column) {
                    self.pending.push_front((line, column, cell));
                    return Ok(true);
                }
                if row.is_empty() {
                    row.line = line;
                    if self.has_times {
                        row.push(0, &self.time);
                    }
                }
                row.push(column, &cell);
            }
            let Some(line) = self.lines.next_line()?.map(str::to_owned) else { return Ok(!row.is_empty()) };
            let number = self.lines.number;
            for Field { name, cell } in self.fields(&line) {
                if let Some(column) = self.column(name) {
                    self.pending.push_back((number, column, cell));
                }
            }
        }
    }

    fn names(&self) -> &[String] {
        &self.names
    }

    fn is_log(&self) -> bool {
        self.names != [VALUE]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> String {
        let (time, rest) = timestamp(line);
        let fields = fields(rest).into_iter().map(|Field { name, cell }| format!("{name}={cell}"));
        time.map(|time| format!("@{time}")).into_iter().chain(fields).collect::<Vec<String>>().join("; ")
    }

    #[test]
    fn numbers_are_read_with_their_names_and_units() {
        for (line, expected) in [
            ("usage:  330400 KB", "usage=330400 KB"),
            ("iteration 3: rss 672 MB (+18668 KB; +17066 KB/it.)", "iteration=3; rss=672 MB"),
            (
                "[13/12/22 11:13:00][a.b][INFO] -   Epoch 57: Train_rf 4.856e-01   Memory 10.0%",
                "@11:13:00; Epoch=57; Train_rf=4.856e-01; Memory=10.0 %",
            ),
            (
                "2025-03-04 10:00:01,250 INFO trainer: step=4 loss=2.31 rss=1234567 bytes",
                "@2025-03-04 10:00:01,250; step=4; loss=2.31; rss=1234567 bytes",
            ),
            ("{'loss': 2.31, 'mem_gb': 30.1, 'step': 4}", "loss=2.31; mem_gb=30.1; step=4"),
            ("[rank1]: step 5 mem 123 MB", "rank=1; step=5; mem=123 MB"),
            ("GPU 0: 1234MiB, GPU 1: 99MiB", "gpu=0; memory=1234 MiB; gpu=1; memory=99 MiB"),
            ("step 5 | VRAM: 20.5/80.0 GiB", "step=5; VRAM=20.5 GiB"),
            ("MEM: 1.2GiB / 31.1GiB, 3it/s, 10ms", "MEM=1.2 GiB"),
            ("Epoch: [0]  [  10/2000]  eta: 0:10:00  max mem: 7000", "Epoch=0; iter=10; max mem=7000"),
            ("VmRSS:\t  1234 kB", "VmRSS=1234 kB"),
            ("\tMaximum resident set size (kbytes): 1234", "Maximum resident set size (kbytes)=1234"),
            ("memory in use = 1,100,000 bytes", "memory in use=1,100,000 bytes"),
            ("      3 memory_usage: 997.01", "memory_usage=997.01"),
            ("2.4.0-dev2020 on A100 at 10.0.0.1", ""),
        ] {
            assert_eq!(read(line), expected, "{line}");
        }
    }
}
