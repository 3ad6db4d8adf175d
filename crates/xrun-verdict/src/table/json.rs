//! Records in JSON: a line for each, one after the other, an array of them, or an array inside of an object (`log_history` of a
//! trainer); and the samples in an HTML page of memray.

use std::io::Read;
use std::path::Path;

use serde_json::Value;

use super::options::TableError;
use super::rows::{Facts, Row, Rows};
use super::text::{FileHead, Lines, open, quoted};
use crate::findings::UnitSource;

/// Cap on the items of an array that are columns of their own, such as the memory of each GPU.
const ITEMS_MAX: usize = 16;
/// Cap on the length of a text that is a cell.
const CELL_BYTES_MAX: usize = 100;
/// Cap on the depth of objects in a record.
const DEPTH_MAX: usize = 8;
/// Cap on a file whose records are not lines, and is read whole.
const WHOLE_BYTES_MAX: u64 = 64 << 20;
/// Name of the numbers of an array of numbers.
const VALUE: &str = "value";

/// Hint in messages about files of memray without memory over time.
pub const MEMRAY_EXPECTED: &str = "use a page of `memray flamegraph` or `memray table`, which has memory over time";
const MEMRAY_MARK: &str = "memory_records = [";
/// Names of the numbers of its samples.
const MEMRAY_COLUMNS: &[&str] = &["time_ms", "rss", "heap"];

/// Returns whether a file begins like JSON, or like a page of memray.
pub fn recognizes(head: &FileHead) -> bool {
    // `[rank0]: …` and `[13/12/22 …]` are lines of a log, and `{'loss': …}` and `{ rss: … }` are of Python and JavaScript.
    let text = head.text.trim_start();
    if text.starts_with('<') {
        return true;
    }
    let after = |opening: char| text.strip_prefix(opening).map(str::trim_start);
    after('{').is_some_and(|rest| rest.starts_with(['"', '}']))
        || after('[').is_some_and(|rest| {
            let (number, _) = rest.split_once(',').unwrap_or_default();
            rest.starts_with(['{', '[', ']']) || (!number.is_empty() && number.trim().parse::<f64>().is_ok())
        })
}

/// Records of a value: those of an array, of arrays that are columns, or of the longest array of objects inside of the `only`
/// object of a file.
fn records(value: Value, only: bool) -> Vec<Value> {
    let longest = |value: &Value| {
        let arrays = value.as_object().into_iter().flatten().filter_map(|(key, one)| Some((key, one.as_array()?)));
        arrays.max_by_key(|(_, items)| items.len()).map(|(key, items)| (key.clone(), items.len(), items[..].to_vec()))
    };
    match value {
        Value::Array(items) => items,
        value => match longest(&value) {
            Some((_, 1.., items)) if items[0].is_object() && only => items,
            Some((_, length, _)) if length > ITEMS_MAX => {
                let of_length = |one: &&Value| one.as_array().is_some_and(|items| items.len() == length);
                let row = |at: usize| {
                    let fields = value.as_object().into_iter().flatten().filter(|(_, one)| of_length(one));
                    fields.map(|(key, items)| (key.clone(), items[at].clone())).collect::<serde_json::Map<_, _>>()
                };
                (0..length).map(|at| Value::Object(row(at))).collect()
            }
            _ => vec![value],
        },
    }
}

/// Reader of records in JSON.
pub struct Json {
    /// Lines, where each is a record.
    lines: Option<Lines>,
    /// Records that are read, with their line, the next one last.
    waiting: Vec<(u64, Value)>,
    is_memray: bool,
    facts: Facts,
}

impl Json {
    pub fn open(path: &Path, head: &FileHead) -> Result<Self, TableError> {
        let is_memray = head.text.trim_start().starts_with('<');
        let is_whole = |line: &str| serde_json::from_str::<Value>(line).is_ok();
        let form = if is_memray { "memory over time in a page of memray" } else { "JSON" };
        let facts = Facts { form, unit: is_memray.then_some((1.0, UnitSource::Tool)), ..Facts::default() };
        let mut json = Self { lines: None, waiting: Vec::new(), is_memray, facts };
        let mut first = head.lines();
        if !is_memray && first.next().is_some_and(is_whole) && first.next().is_some() {
            json.lines = Some(Lines::open(path, head)?);
            return Ok(json);
        }
        if head.complete_length > WHOLE_BYTES_MAX {
            return Err(TableError::Content(
                "JSON of more than 64 MiB must have a record on each line; use `jq -c '.[]'`".into(),
            ));
        }
        let mut text = Vec::new();
        // Its last line may have no end.
        open(path)?.take(WHOLE_BYTES_MAX).read_to_end(&mut text)?;
        let text = String::from_utf8_lossy(&text);
        let mut begin = text.find(['{', '[']).unwrap_or(0);
        if is_memray {
            let mark = text.find(MEMRAY_MARK).map(|at| at + MEMRAY_MARK.len() - 1);
            let missing = || TableError::Content(format!("the page has no `memory_records`; {MEMRAY_EXPECTED}"));
            begin = mark.ok_or_else(missing)?;
        }
        let line_at = |at: usize| 1 + text[..at].matches('\n').count() as u64;
        let mut line_of = (begin, line_at(begin));
        let mut found = Vec::new();
        let mut values = serde_json::Deserializer::from_str(&text[begin..]).into_iter::<Value>();
        loop {
            let from = begin + values.byte_offset();
            line_of = (from, line_of.1 + text[line_of.0..from].matches('\n').count() as u64);
            match values.next() {
                Some(Ok(value)) => found.push((line_of.1, value)),
                None => break,
                // A killed program leaves half a record.
                Some(Err(error)) if error.is_eof() && !found.is_empty() => break,
                Some(Err(error)) => {
                    let at = line_of.1 + error.line().saturating_sub(1) as u64;
                    let rest = quoted(text[from..].trim().lines().next().unwrap_or_default());
                    return Err(TableError::at(at, format!("invalid JSON ({error}): {rest}")));
                }
            }
            if is_memray {
                break;
            }
        }
        let only = found.len() == 1;
        let all =
            found.into_iter().flat_map(|(line, value)| records(value, only).into_iter().map(move |one| (line, one)));
        json.waiting = all.collect();
        json.waiting.reverse();
        Ok(json)
    }

    /// Adds the numbers and short texts of a value as cells; those of objects have names with a point.
    fn add(&mut self, row: &mut Row, name: &str, value: &Value, depth: usize) {
        let inner = |part: &str| if name.is_empty() { part.to_owned() } else { format!("{name}.{part}") };
        let text = match value {
            Value::Object(object) if depth < DEPTH_MAX => {
                return object.iter().for_each(|(key, value)| self.add(row, &inner(key), value, depth + 1));
            }
            Value::Array(items) if depth < DEPTH_MAX => {
                for (at, item) in items.iter().enumerate().take(ITEMS_MAX) {
                    let part = match MEMRAY_COLUMNS.get(at).filter(|_| self.is_memray) {
                        Some(name) => (*name).to_owned(),
                        None if name.is_empty() => format!("column {}", at + 1),
                        None => at.to_string(),
                    };
                    self.add(row, &inner(&part), item, depth + 1);
                }
                return;
            }
            Value::Number(number) => number.to_string(),
            Value::String(text) if text.len() <= CELL_BYTES_MAX => text.trim().to_owned(),
            _ => return,
        };
        let column = self.facts.column(if name.is_empty() { VALUE } else { name });
        if let Some(column) = column.filter(|column| !row.has(*column)) {
            row.cells.push((column, text));
        }
    }
}

impl Rows for Json {
    fn next_row(&mut self, row: &mut Row) -> Result<bool, TableError> {
        loop {
            while let Some((line, value)) = self.waiting.pop() {
                *row = Row { line, ..Row::default() };
                self.add(row, "", &value, 0);
                if !row.cells.is_empty() {
                    self.facts.misfits.rows += 1;
                    return Ok(true);
                }
            }
            let Some(lines) = &mut self.lines else { return Ok(false) };
            let Some(line) = lines.next_line()?.map(str::to_owned) else {
                self.facts.misfits.check()?;
                return Ok(false);
            };
            let line = line.trim_end_matches(',');
            match serde_json::from_str::<Value>(line) {
                Ok(value) => {
                    let number = lines.number;
                    self.waiting.extend(records(value, false).into_iter().rev().map(|one| (number, one)));
                }
                Err(error) => {
                    self.facts.misfits.add(lines.number, || format!("invalid JSON ({error}): {}", quoted(line)));
                }
            }
        }
    }

    fn facts(&self) -> &Facts {
        &self.facts
    }
}
