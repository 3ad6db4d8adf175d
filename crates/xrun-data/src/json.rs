//! Messages about JSON files that are not an object, or not JSON. Serde reads a record from a list, too, and its
//! message then says the opposite; and its words for what is no JSON are those of a parser.

use std::fmt;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::error::Category;
use serde_path_to_error::Segment;

/// Refuses a list; `expected` completes "expected …". Of any other text the parser has the better word.
///
/// # Errors
/// It is a list, and what was expected.
pub fn object_with(text: &[u8], expected: &str) -> Result<(), String> {
    match text.iter().find(|byte| !byte.is_ascii_whitespace()) {
        Some(b'[') => Err(format!("begins with `[`, a list; expected {expected}")),
        _ => Ok(()),
    }
}

/// Characters that are shown of a text before the place where it is wrong, and as many from there on.
const SHOWN: usize = 20;
/// Beginnings of common files that are not JSON.
const COMMON: &str = "JSON has double quotation marks, no comma before a closing bracket, and no NaN";

/// Message that explains why the text of a file does not parse, without the name of the file.
pub fn why(text: &[u8], error: &serde_json::Error) -> String {
    match error.classify() {
        _ if text.trim_ascii().is_empty() => "the file is empty".to_owned(),
        Category::Eof => cut_off(error.line() as u64),
        Category::Syntax => no_json(error.line() as u64, error.column(), &near_error(text, error)),
        Category::Data | Category::Io => error.to_string(),
    }
}

/// Message about a file that ends in a line before its JSON does.
pub fn cut_off(line: u64) -> String {
    format!(
        "the file ends in line {line} before its JSON does: a bracket or a quotation mark is never closed; it may have been cut \
         off"
    )
}

/// Message about a file that is no JSON at a position, with the text [`near`] it.
pub fn no_json(line: u64, column: usize, near: &str) -> String {
    format!("it is no JSON in line {line}, column {column}{near}; {COMMON}")
}

/// Does the same as [`why`] for one line of a file of JSON lines.
pub fn why_of_line(line: &[u8], error: &serde_json::Error) -> String {
    match error.classify() {
        Category::Eof => format!(
            "ends at column {} before its JSON does: a bracket or a quotation mark is never closed; each line is whole by \
             itself, so one that is spread over several must be written as one",
            error.column()
        ),
        Category::Syntax => {
            format!("is no JSON from column {}{} on; {COMMON}", error.column(), near_error(line, error))
        }
        // The error counts lines within this one.
        Category::Data | Category::Io => error.to_string().split(" at line ").next().unwrap_or_default().to_owned(),
    }
}

fn near_error(text: &[u8], error: &serde_json::Error) -> String {
    let line = text.split(|byte| *byte == b'\n').nth(error.line().saturating_sub(1)).unwrap_or_default();
    near(line, error.column().saturating_sub(1))
}

/// Text around an index of a line, as ` (near "…")`.
pub fn near(line: &[u8], index: usize) -> String {
    // Of a character more than is shown, in case it has several bytes.
    let begin = index.saturating_sub(SHOWN * 4).min(line.len());
    let line = line[begin..].split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = String::from_utf8_lossy(&line[..line.len().min(SHOWN * 8)]);
    let at = line.floor_char_boundary(index - begin);
    let from = line[..at].char_indices().rev().nth(SHOWN - 1).map_or(0, |(from, _)| from);
    let to = line[at..].char_indices().nth(SHOWN).map_or(line.len(), |(to, _)| at + to);
    let shown: String = line[from..to].trim().chars().filter(|character| !character.is_control()).collect();
    if shown.is_empty() { String::new() } else { format!(" (near `{shown}`)") }
}

/// Kind of a JSON value, by its first byte.
pub fn kind(value: &str) -> &'static str {
    match value.trim_ascii_start().as_bytes().first() {
        Some(b'{') => "an object",
        Some(b'[') => "a list",
        Some(b'"') => TEXT,
        Some(b't' | b'f') => "true or false",
        Some(b'n') => "null",
        Some(_) => "a number",
        None => "nothing",
    }
}

/// Answer of [`kind`] about a text.
pub const TEXT: &str = "a text";

/// Integer in any of the forms that exports have: `7`, `7.0` and `"7"`.
///
/// # Errors
/// It is something else.
pub fn integer<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    struct AnyForm;
    impl Visitor<'_> for AnyForm {
        type Value = i64;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("a whole number")
        }

        fn visit_i64<E: Error>(self, value: i64) -> Result<i64, E> {
            Ok(value)
        }

        fn visit_u64<E: Error>(self, value: u64) -> Result<i64, E> {
            i64::try_from(value).map_err(E::custom)
        }

        fn visit_f64<E: Error>(self, value: f64) -> Result<i64, E> {
            // Above 2^53 a float is no longer the number that was meant.
            const EXACT: f64 = 9_007_199_254_740_992.0;
            match value.fract() == 0.0 && value.abs() <= EXACT {
                true => Ok(value as i64),
                false => Err(E::custom(format_args!("{value} is no whole number"))),
            }
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<i64, E> {
            text.trim().parse().map_err(|_| E::custom("a text, expected a whole number"))
        }
    }
    deserializer.deserialize_any(AnyForm)
}

/// Does the same as [`integer`] for a value that may be null.
///
/// # Errors
/// It is something else.
pub fn optional_integer<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i64>, D::Error> {
    #[derive(serde::Deserialize)]
    struct Integer(#[serde(deserialize_with = "integer")] i64);
    let value = <Option<Integer> as serde::Deserialize>::deserialize(deserializer)?;
    Ok(value.map(|Integer(value)| value))
}

/// Advice on what to write, by key.
pub type Advice = &'static [(&'static str, &'static str)];

/// Error of a value that cannot be read.
#[derive(Debug)]
pub struct ReadError {
    /// `true` where it is JSON of another form, `false` where it is no JSON.
    pub is_form: bool,
    /// Cause, with the path of the key.
    pub message: String,
}

/// Reads a value, one line of JSON.
///
/// # Errors
/// The path of the key that is wrong, the expected and the found value, and advice on that key.
pub fn read<'de, T: Deserialize<'de>>(text: &'de [u8], advice: Advice) -> Result<T, ReadError> {
    let mut json = serde_json::Deserializer::from_slice(text);
    let (path, error) = match serde_path_to_error::deserialize(&mut json) {
        Ok(value) => match json.end() {
            Ok(()) => return Ok(value),
            Err(error) => (None, error),
        },
        Err(error) => (Some(error.path().clone()), error.into_inner()),
    };
    let is_form = error.is_data();
    let path = path.filter(|path| is_form && path.iter().len() > 0);
    let last = path.as_ref().and_then(|path| path.iter().next_back());
    let advice = advice.iter().find(|(key, _)| matches!(last, Some(Segment::Map { key: found }) if found == key));
    let advice = advice.map_or_else(String::new, |(_, advice)| format!("; {advice}"));
    let path = path.as_ref().map_or_else(String::new, |path| format!("`{path}`: "));
    Err(ReadError { is_form, message: format!("{path}{}{advice}", why_of_line(text, &error)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_integer_is_read_in_all_its_forms_and_nothing_else_is_one() {
        let read = |text: &str| {
            let value: serde_json::Value = serde_json::from_str(text).unwrap();
            (integer(&value).ok(), optional_integer(&value).ok())
        };
        for (text, expected) in [("7", 7), ("7.0", 7), ("\"7\"", 7), ("\" -3 \"", -3), ("-2e1", -20)] {
            assert_eq!(read(text), (Some(expected), Some(Some(expected))), "{text}");
        }
        for text in ["7.5", "\"7.0\"", "\"a\"", "true", "[7]", "1e300", "18446744073709551615"] {
            assert_eq!(read(text), (None, None), "{text}");
        }
        assert_eq!(read("null"), (None, Some(None)));
    }

    #[test]
    fn a_list_is_called_a_list() {
        let message = |text: &str| object_with(text.as_bytes(), "an object").err();
        assert_eq!(message(" \n[{}]").as_deref(), Some("begins with `[`, a list; expected an object"));
        assert_eq!((message(" {"), message(""), message("<xml>")), (None, None, None));
    }

    fn error(text: &str) -> serde_json::Error {
        serde_json::from_str::<serde_json::Value>(text).unwrap_err()
    }

    #[test]
    fn what_is_no_json_is_shown_with_its_place() {
        let message = |text: &str| why(text.as_bytes(), &error(text));
        let python = message("{\"a\": 1,\n \"bé\": [1, NaN]}\n");
        assert!(python.starts_with("it is no JSON in line 2, column ") && python.contains("NaN]}`)"), "{python}");
        assert!(message("{\"a\": 1,}").contains("no comma before a closing bracket"));
        assert!(message("{\"a\":\n [1").starts_with("the file ends in line 2 before its JSON does"));
        assert_eq!((message(""), message(" \n\n")), ("the file is empty".into(), "the file is empty".into()));
        let control = message("{\"a\": \u{1b}[2J}");
        assert!(!control.contains('\u{1b}'), "{control}");
        let line = |text: &str| why_of_line(text.as_bytes(), &error(text));
        assert!(
            line("{'a': 1}").starts_with("is no JSON from column 2 (near `{'a': 1}`) on; "),
            "{}",
            line("{'a': 1}")
        );
        assert!(line("{").contains("column 1") && line("{").contains("must be written as one"), "{}", line("{"));
    }

    #[test]
    fn every_value_has_a_kind() {
        let values = [" {}", "[1]", "\"a\"", "true", "null", "-1"];
        assert_eq!(values.map(kind), ["an object", "a list", TEXT, "true or false", "null", "a number"]);
    }
}
