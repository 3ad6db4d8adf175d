//! Records in JSON: a line for each, an array of them, or an array inside of an object (`log_history` of a trainer).

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Take};
use std::path::Path;

use serde_json::Value;

use super::TraceError;
use super::grid::COLUMNS_MAX;
use super::rows::{Row, Rows};
use super::text::{FileHead, LINE_BYTES_MAX, open, quoted};

/// Cap on the items of an array that are columns of their own, such as the memory of each GPU.
const ITEMS_MAX: usize = 16;
/// Cap on the length of a text that is a cell.
const CELL_BYTES_MAX: usize = 100;
/// Cap on the depth of objects in a record.
const DEPTH_MAX: usize = 8;
/// Name of the numbers of an array of numbers.
const VALUE: &str = "value";

/// Returns whether a file begins like JSON.
pub fn recognizes(head: &FileHead) -> bool {
    // `[rank0]: …` and `[13/12/22 …]` are lines of a log, and `{'loss': …}` and `{ rss: … }` are of Python and JavaScript.
    let text = head.text.trim_start();
    let after = |opening: char| text.strip_prefix(opening).map(str::trim_start);
    after('{').is_some_and(|rest| rest.starts_with(['"', '}']))
        || after('[').is_some_and(|rest| {
            let (number, _) = rest.split_once(',').unwrap_or_default();
            rest.starts_with(['{', '[', ']']) || (!number.is_empty() && number.trim().parse::<f64>().is_ok())
        })
}

/// Arrays of one length in the fields of an object, which are the columns of a table; `None` where it has none.
fn columns(value: &Value) -> Option<usize> {
    let arrays = || value.as_object().into_iter().flat_map(|object| object.values()).filter_map(Value::as_array);
    let length = arrays().map(Vec::len).max().filter(|length| *length > ITEMS_MAX)?;
    (arrays().filter(|array| array.len() == length).count() > 0).then_some(length)
}

/// Bytes before the array of records inside of an object; `None` where the object is a record itself.
fn inner_array(head: &FileHead) -> Option<u64> {
    let mut records = head.lines();
    let first = records.next()?;
    let is_whole = serde_json::from_str::<Value>(first).is_ok();
    if !first.starts_with('{') || (is_whole && records.next().is_some()) {
        return None;
    }
    let bytes = head.text.as_bytes();
    let next = |from: usize| bytes[from..].iter().position(|byte| !byte.is_ascii_whitespace()).map(|at| from + at);
    let is_array_of_objects = |at: &usize| {
        bytes[*at] == b'[' && next(at + 1).is_some_and(|object| bytes[object] == b'{') && bytes[..*at].contains(&b':')
    };
    (0..bytes.len()).find(is_array_of_objects).map(|at| at as u64 + 1)
}

/// Reader of records in JSON.
pub struct Json {
    reader: BufReader<Take<std::fs::File>>,
    line: u64,
    /// True if the records are items of an array, which ends with a bracket.
    in_array: bool,
    ended: bool,
    record: Vec<u8>,
    names: Vec<String>,
    index: HashMap<String, usize>,
    /// Object whose arrays are columns, with the number of its rows that are read, and its line.
    arrays: Option<(Value, usize, u64)>,
    rows: u64,
    damaged: u64,
    first_damage: Option<(u64, String)>,
}

impl Json {
    pub fn open(path: &Path, head: &FileHead) -> Result<Self, TraceError> {
        let mut reader = BufReader::new(open(path)?.take(head.length));
        let mut line = 1;
        let is_array = head.lines().next().is_some_and(|first| first.starts_with('['));
        let mut skip = inner_array(head);
        if is_array {
            skip = head.text.find('[').map(|at| at as u64 + 1);
        }
        // The text of the head lacks a byte order mark.
        let mut mark = [0; 3];
        let has_mark = reader.fill_buf()?.starts_with(b"\xef\xbb\xbf");
        if has_mark {
            reader.read_exact(&mut mark)?;
        }
        for byte in Read::by_ref(&mut reader).take(skip.unwrap_or_default()).bytes() {
            line += u64::from(byte? == b'\n');
        }
        Ok(Self {
            reader,
            line,
            in_array: skip.is_some(),
            ended: false,
            record: Vec::new(),
            names: Vec::new(),
            index: HashMap::new(),
            arrays: None,
            rows: 0,
            damaged: 0,
            first_damage: None,
        })
    }

    /// Reads the text of the next record into `self.record`; returns its line, or `None` at the end.
    fn next_record(&mut self) -> Result<Option<u64>, TraceError> {
        self.record.clear();
        let (mut depth, mut in_string, mut escaped, mut begin) = (0u32, false, false, self.line);
        loop {
            let buffer = self.reader.fill_buf()?;
            if buffer.is_empty() {
                self.ended = true;
                return Ok((!self.record.is_empty()).then_some(begin));
            }
            let mut used = 0;
            let mut done = false;
            for byte in buffer {
                used += 1;
                self.line += u64::from(*byte == b'\n');
                if self.record.is_empty() {
                    match byte {
                        b']' if self.in_array => {
                            self.ended = true;
                            return Ok(None);
                        }
                        byte if byte.is_ascii_whitespace() || *byte == b',' => continue,
                        _ => begin = self.line,
                    }
                }
                let is_plain = depth == 0 && !in_string;
                if is_plain
                    && !self.record.is_empty()
                    && (matches!(byte, b',' | b'\n') || (*byte == b']' && self.in_array))
                {
                    // A number, or text that is no JSON.
                    self.ended = *byte == b']';
                    done = true;
                    break;
                }
                self.record.push(*byte);
                match byte {
                    _ if escaped => escaped = false,
                    b'\\' if in_string => escaped = true,
                    b'"' => in_string = !in_string,
                    b'{' | b'[' if !in_string => depth += 1,
                    b'}' | b']' if !in_string => {
                        depth = depth.saturating_sub(1);
                        done = depth == 0;
                    }
                    // A record on a line of its own does not go on in the next one.
                    b'\n' if in_string => done = true,
                    _ => {}
                }
                if done {
                    break;
                }
                if self.record.len() as u64 > LINE_BYTES_MAX {
                    return Err(TraceError::at(begin, "the record is longer than 256 KiB, too long for a trace"));
                }
            }
            self.reader.consume(used);
            if done {
                return Ok(Some(begin));
            }
        }
    }

    /// Reads the next row of an object whose arrays are columns.
    fn next_of_arrays(&mut self, row: &mut Row) -> bool {
        let Some((value, at, line)) = self.arrays.take() else { return false };
        let Some(length) = columns(&value).filter(|length| at < *length) else { return false };
        row.clear();
        row.line = line;
        for (key, array) in value.as_object().into_iter().flatten() {
            let items = array.as_array().filter(|items| items.len() == length);
            if let Some(item) = items.and_then(|items| items.get(at)) {
                self.add(row, key, item, 1);
            }
        }
        self.rows += 1;
        self.arrays = Some((value, at + 1, line));
        true
    }

    fn column(&mut self, name: &str) -> Option<usize> {
        if let Some(column) = self.index.get(name) {
            return Some(*column);
        }
        (self.names.len() < COLUMNS_MAX).then(|| {
            self.names.push(name.to_owned());
            self.index.insert(name.to_owned(), self.names.len() - 1);
            self.names.len() - 1
        })
    }

    /// Adds the numbers and short texts of a value as cells; those of objects have names with a point.
    fn add(&mut self, row: &mut Row, name: &str, value: &Value, depth: usize) {
        let inner = |part: &str| if name.is_empty() { part.to_owned() } else { format!("{name}.{part}") };
        let text = match value {
            Value::Object(object) if depth < DEPTH_MAX => {
                return object.iter().for_each(|(key, value)| self.add(row, &inner(key), value, depth + 1));
            }
            Value::Array(items) if depth < DEPTH_MAX => {
                let items = items.iter().enumerate().take(ITEMS_MAX);
                return items.for_each(|(at, item)| {
                    let part = if name.is_empty() { format!("column {}", at + 1) } else { at.to_string() };
                    self.add(row, &inner(&part), item, depth + 1);
                });
            }
            Value::Number(number) => number.to_string(),
            Value::String(text) if text.len() <= CELL_BYTES_MAX => text.clone(),
            _ => return,
        };
        let name = if name.is_empty() { VALUE } else { name };
        if let Some(column) = self.column(name).filter(|column| !row.has(*column)) {
            row.push(column, text.trim());
        }
    }
}

impl Rows for Json {
    fn next_row(&mut self, row: &mut Row) -> Result<bool, TraceError> {
        if self.next_of_arrays(row) {
            return Ok(true);
        }
        while !self.ended {
            let Some(line) = self.next_record()? else { break };
            row.clear();
            row.line = line;
            match serde_json::from_slice::<Value>(&self.record) {
                Ok(value) if columns(&value).is_some() => {
                    self.arrays = Some((value, 0, line));
                    if self.next_of_arrays(row) {
                        return Ok(true);
                    }
                }
                Ok(value) => {
                    self.add(row, "", &value, 0);
                    if !row.is_empty() {
                        self.rows += 1;
                        return Ok(true);
                    }
                }
                // A killed program leaves half a record.
                Err(_) if self.ended && self.rows > 0 => {}
                Err(error) => {
                    self.damaged += 1;
                    let text = String::from_utf8_lossy(&self.record);
                    self.first_damage
                        .get_or_insert_with(|| (line, format!("invalid JSON ({error}): {}", quoted(text.trim()))));
                }
            }
        }
        match &self.first_damage {
            Some((line, message)) if self.damaged * 20 > self.rows => Err(TraceError::at(*line, message.clone())),
            _ => Ok(false),
        }
    }

    fn names(&self) -> &[String] {
        &self.names
    }

    fn notes(&self) -> Vec<String> {
        let damage = self.first_damage.as_ref().map(|(line, message)| {
            let records = if self.damaged == 1 { "record is" } else { "records are" };
            format!("{} {records} left out; the first is line {line}: {message}", self.damaged)
        });
        damage.into_iter().collect()
    }
}
