//! Classes of the bytes of a JSON text: structure, key or value.

use std::ops::Range;

use serde_json::value::RawValue;

use xrun_training::metrics::json_text::{DEPTH_MAX, Part, part};

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

/// Classified bytes and leaf values of a JSON text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassifiedJson {
    /// Class of each byte.
    pub classes: Vec<ByteClass>,
    /// Byte range of each leaf value with its end byte (for a number at the end of the text, one past it), in the order of the
    /// text. An empty container counts as a leaf.
    pub value_spans: Vec<Range<usize>>,
}

/// Classifies the bytes of `text`; `None` if it is not JSON or is nested in more than 127 levels.
pub fn scan(text: &str) -> Option<ClassifiedJson> {
    let whole: &RawValue = serde_json::from_str(text).ok()?;
    let mut scan = ClassifiedJson { classes: vec![ByteClass::Structure; text.len()], value_spans: Vec::new() };
    scan.classify_value(text, whole.get(), DEPTH_MAX)?;
    Some(scan)
}

/// Bytes of a part of a text.
fn range(text: &str, part: &str) -> Range<usize> {
    let start = part.as_ptr() as usize - text.as_ptr() as usize;
    start..start + part.len()
}

impl ClassifiedJson {
    /// Classifies a value, a part of `text`. `depth`: number of levels that may still be opened.
    fn classify_value(&mut self, text: &str, value: &str, depth: usize) -> Option<()> {
        let Range { start, end } = range(text, value);
        match part(value)? {
            Part::Object(members) => {
                let depth = depth.checked_sub(1)?;
                if members.is_empty() {
                    self.value_spans.push(start..end);
                }
                for (key, value) in members {
                    let Range { start, end } = range(text, key.get());
                    self.classes[start + 1..end - 1].fill(ByteClass::Key);
                    self.classify_value(text, value.get(), depth)?;
                }
            }
            Part::List(items) => {
                let depth = depth.checked_sub(1)?;
                if items.is_empty() {
                    self.value_spans.push(start..end);
                }
                items.iter().try_for_each(|item| self.classify_value(text, item.get(), depth))?;
            }
            Part::Leaf if value.starts_with('"') => {
                self.classes[start + 1..end - 1].fill(ByteClass::Value);
                self.classes[end - 1] = ByteClass::End;
                self.value_spans.push(start + 1..end);
            }
            Part::Leaf => {
                self.classes[start..end].fill(if value == "null" { ByteClass::Null } else { ByteClass::Value });
                if let Some(next) = self.classes.get_mut(end) {
                    *next = ByteClass::End;
                }
                self.value_spans.push(start..end + 1);
            }
        }
        Some(())
    }
}

#[cfg(test)]
#[path = "json_bytes_tests.rs"]
pub(super) mod tests;
