//! Lines of a log: numbers behind their names, `step 10: rss 672 MB`, `mem=1.5GiB`, `VmRSS:  123 kB`; and the lines of tools that
//! are none of this, each made into such names and numbers.
//!
//! A row is what lies between two numbers of one name, on one line or several.

use std::borrow::Cow;
use std::path::Path;

use super::groups::is_label;
use super::names::{Role, role};
use super::numbers::{Numbers, Tail, tail};
use super::options::TableError;
use super::rows::{Facts, Row, Rows};
use super::text::{FileHead, Lines, quoted, strip_watch_title};
use super::times::{is_clock, is_date};
use crate::findings::UnitSource;

/// Cap on the words of a name.
const WORDS_MAX: usize = 6;
/// Beginning of a line in which its time may stand.
const TIMESTAMP_BYTES_MAX: usize = 60;
/// Cap on the numbers of a line.
const FIELDS_MAX: usize = 256;
/// Words that end with the number of a process or device: `rank0`, `cuda:1`.
const NUMBERED: &[&str] = &["rank", "gpu", "cuda", "worker", "device"];
/// Name of a number that has none, but a unit of memory.
const MEMORY: &str = "memory";
/// Name of the numbers of a file that has only numbers.
const VALUE: &str = "value";
/// Name of the times of lines.
const TIME: &str = "time";
/// Words before a number that counts something: `epoch 3: 500 MB`.
const INDEXES: &[&str] = &["epoch", "step", "iteration", "iter", "batch", "round", "episode"];
/// Name of a count within a total, `[10/200]`, that has none.
const ITERATION: &str = "iter";

/// Number of a line with its name.
#[derive(Clone, Debug, PartialEq)]
struct Field<'a> {
    name: Cow<'a, str>,
    /// The number, and its unit if it has one.
    cell: Cow<'a, str>,
}

impl<'a> Field<'a> {
    fn new(name: impl Into<Cow<'a, str>>, cell: impl Into<Cow<'a, str>>) -> Self {
        Self { name: name.into(), cell: cell.into() }
    }
}

/// Time at the beginning of a line, and the rest of the line.
fn timestamp(line: &str) -> (Option<String>, &str) {
    let begins_clock = |bytes: &[u8]| bytes[0].is_ascii_digit() && bytes[1] == b':' && bytes[2].is_ascii_digit();
    if !line.as_bytes()[..line.len().min(TIMESTAMP_BYTES_MAX)].windows(3).any(begins_clock) {
        return (None, line);
    }
    if is_date(line) {
        return (Some(line.to_owned()), "");
    }
    let mut end = 0;
    let mut before: Option<&str> = None;
    for word in line.split_whitespace().take(3) {
        let at = line[end..].find(word).map_or(end, |at| end + at);
        end = at + word.len();
        let plain = word.trim_matches(|letter: char| "[]()<>|,;".contains(letter));
        let time = plain.split(']').next().unwrap_or_default().trim_end_matches(':');
        let is_named = before.is_some_and(|before| before.ends_with([':', '=']));
        if !is_named && is_clock(&time.replace(',', ".")) {
            let date = before.map(|before| format!("{before} {time}")).filter(|both| is_date(both));
            // `[11:13:00][module]` continues within the word.
            let rest = line[at..].find(time).map_or(end, |found| at + found + time.len());
            return (Some(date.unwrap_or_else(|| time.replace(',', "."))), &line[rest..]);
        }
        before = Some(plain);
    }
    (None, line)
}

/// Adds the numbers of a line with their names.
fn fields<'a>(line: &'a str, found: &mut Vec<Field<'a>>) {
    let bytes = line.as_bytes();
    let (mut at, mut text_from, mut has_count) = (0, 0, false);
    // Words before the number of a step: `Memory after epoch 3: 500 MB`.
    let mut carried: Option<Cow<'a, str>> = None;
    while at < bytes.len() && found.len() < FIELDS_MAX {
        if !bytes[at].is_ascii_digit() {
            at += 1;
            continue;
        }
        if at > 0 && !starts_number(&line[..at]) {
            // The rest of `A100` or of a version.
            let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_');
            at += bytes[at..].iter().position(|byte| !is_part(byte)).unwrap_or(bytes.len() - at);
            continue;
        }
        let Number { end, cell, kind } = number(line, at);
        let sign = at.checked_sub(1).map(|before| bytes[before]);
        let before = &line[text_from..at];
        (at, text_from) = (end, end);
        if kind == NumberKind::Other {
            continue;
        }
        match (numbered(before), name(before)) {
            (Some(name), _) => found.push(Field::new(name, cell)),
            // `+5 MB` is a change.
            _ if sign == Some(b'+') => {}
            // `Memory at iter 7 (MB): 53`
            _ if kind == NumberKind::Plain && carried.is_some() && before.starts_with(" (") => {
                let unit = before.trim_matches(|letter: char| " (:)=".contains(letter));
                found.push(Field { name: format!("{} ({unit})", carried.take().unwrap_or_default()).into(), cell });
            }
            // The limit of an amount: `5 GB of 16 GB`.
            (None, Some(name)) if name == "of" || name == "out of" => {}
            (None, Some(name))
                if kind == NumberKind::Plain
                    && index(&name).is_some_and(|(rest, _)| {
                        bytes.get(at) == Some(&b':') || (line[at..].starts_with(" (") && role(rest) == Role::Memory)
                    }) =>
            {
                let (rest, index) = index(&name).unwrap_or_default();
                carried = Some(rest).filter(|rest| !rest.is_empty()).map(|rest| rest.to_owned().into());
                found.push(Field::new(index.to_owned(), cell));
            }
            (None, Some(name)) => {
                let cell = if sign == Some(b'-') { format!("-{cell}").into() } else { cell };
                found.push(Field { name, cell });
            }
            // A percentage without a name may be one of anything.
            _ if kind == NumberKind::Size && sign != Some(b'-') && !cell.ends_with('%') => {
                found.push(Field { name: carried.take().unwrap_or(MEMORY.into()), cell });
            }
            _ if kind == NumberKind::Count && !std::mem::replace(&mut has_count, true) => {
                found.push(Field::new(ITERATION, cell));
            }
            _ => {}
        }
    }
}

/// Labels and number of a line of Prometheus: `memory_bytes{pod="train-0"} 5e9`.
fn labelled<'a>(line: &'a str, found: &mut Vec<Field<'a>>) -> Option<()> {
    let (name, rest) = line.split_once('{').filter(|(name, _)| !name.is_empty() && !name.contains(' '))?;
    let (labels, value) = rest.split_once("} ")?;
    let value = value.split(' ').next().filter(|value| value.parse::<f64>().is_ok())?;
    let labels = labels.split("\",").filter_map(|label| label.trim_end_matches('"').split_once("=\""));
    found.extend(labels.map(|(label, value)| Field::new(label, value)));
    found.push(Field::new(name, value));
    Some(())
}

/// Words before and the last word of a name that ends with that of an index: `Memory after`, `epoch`.
fn index(name: &str) -> Option<(&str, &str)> {
    let (rest, last) = name.rsplit_once(' ').unwrap_or(("", name));
    INDEXES.iter().any(|index| last.eq_ignore_ascii_case(index)).then_some((rest, last))
}

/// Returns whether a digit that follows these bytes begins a number, and is no part of a word, a date or a version.
fn starts_number(before: &str) -> bool {
    match before.as_bytes() {
        [.., letter, b':'] if letter.is_ascii_digit() => false,
        [.., last] if last.is_ascii_alphabetic() => numbered_word(before).is_some(),
        [.., b'_' | b'.' | b'#' | b'/' | b'\\' | b'%'] => false,
        [.., word, b'-' | b'+'] => !word.is_ascii_alphanumeric(),
        _ => true,
    }
}

/// Word of [`NUMBERED`] that a text ends with.
fn numbered_word(text: &str) -> Option<&'static str> {
    let word_from = text.bytes().rposition(|byte| !byte.is_ascii_alphabetic()).map_or(0, |at| at + 1);
    let word = text.get(word_from..)?;
    NUMBERED.iter().copied().find(|name| word.eq_ignore_ascii_case(name))
}

/// Number of a process or device, `rank0` or `cuda:1`, that the text before a number ends with.
fn numbered(before: &str) -> Option<&'static str> {
    let name = numbered_word(before.trim_end_matches([' ', ':', '=', '[', '#']))?;
    // `GPU: 5000 MiB` and `gpu = 5` are amounts.
    let is_amount = before.ends_with(' ') && before.trim_end().ends_with([':', '=']);
    (!is_amount).then_some(if name == "cuda" { "gpu" } else { name })
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

struct Number<'a> {
    /// End of the number and its unit.
    end: usize,
    cell: Cow<'a, str>,
    kind: NumberKind,
}

/// Number that begins at a digit.
fn number(line: &str, begin: usize) -> Number<'_> {
    let text = &line[begin..];
    let digits = digits(text);
    let is_of_time = text[digits.len()..].starts_with(':') && starts_with_digit(&text[digits.len() + 1..]);
    if is_of_time || digits.matches('.').count() > 1 || begins_with_date(text) {
        let length = text.find(|letter: char| !letter.is_ascii_digit() && !".:-/".contains(letter));
        let end = begin + length.unwrap_or(text.len());
        return Number { end, cell: "".into(), kind: NumberKind::Other };
    }
    let Tail { unit, is_attached, has_limit, rest } = tail(&text[digits.len()..]);
    // A single letter behind a space is a word, and `MB/s` is a rate.
    let is_size = !unit.is_empty() && !rest.starts_with('/') && (is_attached || unit.len() > 1 || unit == "%");
    let end = line[..line.len() - rest.len()].trim_end().len();
    if is_size || has_limit {
        let kind = if is_size { NumberKind::Size } else { NumberKind::Count };
        let cell = match (has_limit, unit) {
            (true, "") => digits.into(),
            (true, _) => format!("{digits} {unit}").into(),
            (false, _) => line[begin..end].into(),
        };
        return Number { end, cell, kind };
    }
    // `3it`, `10ms`
    let end = begin + digits.len();
    let word = line[end..].find(|letter: char| !letter.is_ascii_alphabetic() && letter != '%');
    match end + word.unwrap_or(line.len() - end) {
        after if after > end => Number { end: after, cell: "".into(), kind: NumberKind::Other },
        _ => Number { end, cell: digits.into(), kind: NumberKind::Plain },
    }
}

/// Digits of a number in a text, with its decimals, its exponent, and commas between thousands.
fn digits(text: &str) -> &str {
    let digits = |from: usize| text.bytes().skip(from).take_while(u8::is_ascii_digit).count();
    let mut end = 0;
    loop {
        let next = match &text.as_bytes()[end..] {
            [b'0'..=b'9', ..] => 1,
            [b'.', b'0'..=b'9', ..] => 1,
            [b',', ..] if digits(end + 1) == 3 => 1,
            [b'e' | b'E', b'0'..=b'9', ..] => 1,
            [b'e' | b'E', b'-' | b'+', b'0'..=b'9', ..] => 2,
            _ => return &text[..end],
        };
        end += next;
    }
}

/// Returns whether a text begins with a date: `2025-03-04`, `13/12/22`, `2025/03/04`.
fn begins_with_date(text: &str) -> bool {
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
fn name(before: &str) -> Option<Cow<'_, str>> {
    let text = before.trim_end_matches(|letter: char| letter.is_whitespace() || ":=\"'`({[<>~≈|@+-".contains(letter));
    // A unit in brackets is part of the name: `Maximum resident set size (kbytes)`.
    let bracket = match text.chars().last() {
        Some(')') => text.rfind('('),
        Some(']') => text.rfind('['),
        _ => None,
    };
    let body = &text[..bracket.unwrap_or(text.len())];
    let bytes = body.as_bytes();
    let is_break = |at: &usize| match bytes[*at] {
        b',' | b';' | b'|' | b'(' | b')' | b'[' | b']' | b'{' | b'}' | b'\t' | b'>' | b'"' | b'`' => true,
        // `INFO trainer: step`, `name - loss`, and columns of spaces.
        b' ' => *at > 0 && matches!(bytes[*at - 1], b':' | b' ' | b'-'),
        _ => false,
    };
    let body_from = (0..bytes.len()).rev().find(is_break).map_or(0, |at| at + 1);
    let name =
        text.get(body_from..)?.trim_matches(|letter: char| letter.is_whitespace() || "\"'`.:-*".contains(letter));
    let is_spaced = |pair: &[u8]| pair[0].is_ascii_whitespace() && (pair[0] != b' ' || pair[1].is_ascii_whitespace());
    let words = name.split_whitespace().count();
    let name: Cow<'_, str> = match words > WORDS_MAX || name.as_bytes().windows(2).any(is_spaced) {
        true => name.split_whitespace().skip(words.saturating_sub(WORDS_MAX)).collect::<Vec<&str>>().join(" ").into(),
        false => name.into(),
    };
    // `train.py:12` is a line of code.
    let is_code =
        before.ends_with(':') && [".py", ".c", ".cc", ".cpp", ".rs", ".h"].iter().any(|end| name.ends_with(end));
    (!is_code && name.chars().any(char::is_alphabetic)).then_some(name)
}

/// Source of the numbers of a line, which several lines with the same names may differ in: `worker: rss 5 MB`,
/// `train.py:12: size=5 KiB`, `[0] NVIDIA A100 | …`.
fn source(line: &str) -> Option<Field<'_>> {
    let field = |name: &'static str, cell| Some(Field::new(name, cell));
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

/// Form of the lines: that of a log, or of a tool whose numbers have no names beside them.
#[derive(Clone, Debug, PartialEq)]
enum Form {
    Log,
    /// `mprof run`: `MEM <MiB> <seconds>`, `CHLD <pid> <MiB> <seconds>`, and `CMDLINE …` before each run.
    Mprof,
    /// `free` with its header, and the unit of its numbers by the memory of the machine; older versions have a line for memory
    /// without caches.
    Free {
        unit: f64,
        has_caches: bool,
    },
    /// Boxes of `nvidia-smi`.
    NvidiaSmi,
    /// `nvidia-smi -q`, with the section of the newest line.
    NvidiaSmiQuery(String),
}

impl Form {
    fn of(head: &FileHead) -> Self {
        let is_memory = |line: &&str| {
            line.starts_with("Mem:")
                && line.split_whitespace().skip(1).filter(|cell| starts_with_digit(cell)).count() > 2
        };
        let first = head.lines().next().unwrap_or_default();
        let mut words = first.split(' ');
        let is_mprof = matches!(words.next(), Some("CMDLINE" | "MEM" | "CHLD"))
            && (first.starts_with("CMDLINE") || words.all(|word| word.parse::<f64>().is_ok()));
        match head.lines().take(5).find(is_memory) {
            _ if is_mprof => Self::Mprof,
            Some(line) => Self::Free {
                unit: free_unit(
                    &line.split_whitespace().skip(1).filter_map(|cell| cell.parse().ok()).collect::<Vec<f64>>(),
                ),
                has_caches: head.lines().any(|line| line.starts_with("-/+")),
            },
            None if head.lines().any(|line| line.contains("NVSMI LOG")) => Self::NvidiaSmiQuery(String::new()),
            None if head.lines().any(|line| line.starts_with('|') && line.contains("NVIDIA-SMI")) => Self::NvidiaSmi,
            None => Self::Log,
        }
    }

    /// Adds the numbers of a line; the GPU they are of goes into `gpu`, and a time into `time`.
    fn fields(&mut self, line: &str, gpu: &mut String, time: &mut String, found: &mut Vec<Field<'_>>) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match (self, &words[..]) {
            // mprof writes -1 where a process could not be read.
            (Self::Mprof, ["MEM" | "CHLD", .., size, seconds])
                if starts_with_digit(size) && starts_with_digit(seconds) =>
            {
                (*seconds).clone_into(time);
                let name = if words.len() > 3 { format!("child {}", words[1]) } else { MEMORY.into() };
                found.push(Field::new(name, format!("{size} MiB")));
            }
            (Self::Free { has_caches, .. }, ["Mem:", _, used, _, shared, ..]) => {
                found.extend((!*has_caches).then(|| Field::new("used", (*used).to_owned())));
                found.push(Field::new("shared", (*shared).to_owned()));
            }
            (Self::Free { .. }, ["Swap:", _, used, ..]) => found.push(Field::new("swap used", (*used).to_owned())),
            (Self::Free { .. }, ["-/+", _, used, ..]) => found.push(Field::new("used", (*used).to_owned())),
            (Self::NvidiaSmi, ["|", index, ..]) if index.parse::<u32>().is_ok() => (*index).clone_into(gpu),
            (Self::NvidiaSmi, _) => {
                let used = line.split('|').find_map(|cell| cell.split_once("MiB /")).map(|(used, _)| used.trim());
                let used = used.map(|used| Field::new("memory.used [MiB]", used.to_owned()));
                found.extend(used.into_iter().flat_map(|used| [Field::new(GPU, gpu.clone()), used]));
            }
            (Self::NvidiaSmiQuery(section), _) => {
                match line.split_once(" : ").map(|(key, value)| (key.trim(), value.trim())) {
                    Some(("Timestamp", value)) => value.clone_into(time),
                    Some((key, value)) if section.contains("Memory") && value.ends_with("iB") => {
                        found.push(Field::new(GPU, gpu.clone()));
                        found.push(Field::new(format!("{section} {key}"), value.to_owned()));
                    }
                    Some(_) => {}
                    None if line.starts_with("GPU ") && line.contains(':') => line[4..].clone_into(gpu),
                    None => line.clone_into(section),
                }
            }
            _ => {}
        }
    }
}

fn starts_with_digit(text: &str) -> bool {
    text.starts_with(|letter: char| letter.is_ascii_digit())
}

/// Bytes of the unit of the numbers of `free`, the first of which is the memory of the machine. In bytes and KiB they are
/// multiples of a page, 4 KiB.
fn free_unit(numbers: &[f64]) -> f64 {
    let pages_of = |page: f64| numbers.iter().all(|number| number % page == 0.0);
    match numbers.first().copied().unwrap_or_default() {
        134_217_728.0.. if pages_of(4096.0) => 1.0,
        // 8 TiB, were it in MiB.
        8_388_608.0.. => 1024.0,
        131_072.0.. if pages_of(4.0) => 1024.0,
        128.0.. => 1024.0 * 1024.0,
        _ => 1024.0 * 1024.0 * 1024.0,
    }
}

/// Reader of a log.
pub struct Log {
    lines: Lines,
    form: Form,
    facts: Facts,
    /// Numbers of the newest line that are not yet in a row, the next one last.
    pending: Vec<(usize, String)>,
    /// Labels of the row that were repeated in it, for the row that may begin.
    held: Vec<(usize, String)>,
    restart: bool,
    gpu: String,
    /// Time of the newest line, and whether times are dates.
    time: String,
    is_date: Option<bool>,
    has_times: bool,
    bare: bool,
}

impl Log {
    /// Opens a log; one of bare numbers only where `bare` is true.
    pub fn open(path: &Path, head: &FileHead, bare: bool) -> Result<Self, TableError> {
        let begin = |has_times| -> Result<Self, TableError> {
            let mut log = Self {
                lines: Lines::open(path, head)?,
                form: Form::of(head),
                facts: Facts::default(),
                pending: Vec::new(),
                held: Vec::new(),
                restart: false,
                gpu: String::new(),
                time: String::new(),
                is_date: None,
                has_times,
                bare,
            };
            if has_times {
                log.facts.column(if log.form == Form::Mprof { "time_s" } else { TIME });
            }
            log.facts.form = match log.form {
                Form::Log => "log",
                Form::Mprof => "trace of mprof, in MiB",
                Form::Free { .. } => "output of `free`",
                Form::NvidiaSmi | Form::NvidiaSmiQuery(_) => "output of nvidia-smi",
            };
            if let Form::Free { unit, .. } = log.form {
                log.facts.unit = Some((unit, UnitSource::Assumed));
            }
            Ok(log)
        };
        let mut first = begin(true)?;
        if head.lines().filter(|line| first.read_fields(line)).count() == 0 {
            let line = quoted(head.lines().next().unwrap_or_default());
            let message = "expected a table with a header, or lines of `name: value`, found";
            return Err(TableError::at(1, format!("{message} {line}")));
        }
        begin(!first.time.is_empty())
    }

    /// Returns whether the form is one of a tool.
    pub fn is_of_tool(head: &FileHead) -> bool {
        Form::of(head) != Form::Log
    }

    /// Reads the numbers of a line into `self.pending`; returns whether there are any.
    fn read_fields(&mut self, line: &str) -> bool {
        let mut found = Vec::new();
        if self.form == Form::Log && Numbers::default().number(line).is_some_and(|number| number >= 0.0) {
            if !self.bare {
                return false;
            }
            found.push(Field::new(VALUE, line));
        } else {
            let (time, rest) = timestamp(strip_watch_title(line));
            // Times of another kind are part of the text.
            if let Some(time) = time.filter(|time| *self.is_date.get_or_insert(is_date(time)) == is_date(time)) {
                self.time = time;
            }
            if self.form == Form::Log {
                if labelled(line, &mut found).is_none() {
                    fields(rest, &mut found);
                }
                let source = source(rest.trim_start()).filter(|_| !found.is_empty());
                found.splice(0..0, source);
            } else {
                self.restart |= line.starts_with("CMDLINE");
                self.form.fields(line, &mut self.gpu, &mut self.time, &mut found);
            }
        }
        for Field { name, cell } in found.into_iter().rev() {
            self.facts.is_log |= self.form == Form::Log && name != VALUE;
            self.pending.extend(self.facts.column(&name).map(|column| (column, cell.into_owned())));
        }
        !self.pending.is_empty()
    }
}

impl Rows for Log {
    fn next_row(&mut self, row: &mut Row) -> Result<bool, TableError> {
        *row = Row::default();
        loop {
            while let Some((column, text)) = self.pending.pop() {
                if row.has(column) {
                    // `[Rank 0 | Local Rank 0]`, and each line of `GPU[0]`, have the label of their row again.
                    if row.get(column) == text && is_label(&self.facts.names[column]) {
                        self.held.push((column, text));
                        continue;
                    }
                    self.pending.push((column, text));
                    self.pending.extend(self.held.drain(..).rev());
                    return Ok(true);
                }
                if row.cells.is_empty() {
                    (row.line, row.restart) = (self.lines.number, std::mem::take(&mut self.restart));
                    row.cells.extend(self.has_times.then(|| (0, self.time.clone())));
                }
                self.held.clear();
                row.cells.push((column, text));
            }
            let Some(line) = self.lines.next_line()?.map(str::to_owned) else { return Ok(!row.cells.is_empty()) };
            self.read_fields(&line);
        }
    }

    fn facts(&self) -> &Facts {
        &self.facts
    }
}
