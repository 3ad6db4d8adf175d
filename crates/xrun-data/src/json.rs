//! Messages about JSON that is not an object, or not JSON. Serde reads a record from a list, too, and its message then says
//! the opposite.

use std::fmt;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer};

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

/// Message that explains why one line of a file of JSON lines does not parse.
pub fn why_of_line(error: &serde_json::Error) -> String {
    // The error counts lines within this one.
    let text = error.to_string();
    let cause = text.split(" at line ").next().unwrap_or_default();
    if error.is_data() { cause.to_owned() } else { format!("is no JSON from column {} on: {cause}", error.column()) }
}

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
/// The path of the key that is wrong, and the expected and the found value.
pub fn read<'de, T: Deserialize<'de>>(text: &'de [u8]) -> Result<T, ReadError> {
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
    let path = path.map_or_else(String::new, |path| format!("`{path}`: "));
    Err(ReadError { is_form, message: format!("{path}{}", why_of_line(&error)) })
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
}
