//! Values of a run's resolved experiment.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use super::read::ReadError;
use super::secrets;
use xrun_core::experiment::resolved::flat;
use xrun_core::files::write;
use xrun_core::files::write::WriteError;
use xrun_core::files::{checksum, file, layout};
use xrun_core::units::Bytes;

/// Maximum size of an experiment file.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Values of `resolved.toml` by dotted key, such as `optimizer.adamw.learning_rate`, with secrets masked. A kind
/// without keys is an empty table.
pub fn values(run: &Path) -> Result<BTreeMap<String, Value>, ReadError> {
    let text = read_text(run)?;
    match toml::from_str(&text) {
        Ok(mut value) => {
            secrets::mask_table(&mut value);
            Ok(flat(&value))
        }
        Err(error) => Err(ReadError::content(&run.join(layout::RESOLVED), error.message())),
    }
}

/// Text of `resolved.toml` with secrets masked; empty if it cannot be read.
pub fn masked_text(run: &Path) -> String {
    secrets::mask_experiment(&read_text(run).unwrap_or_default()).into_owned()
}

/// Writes the text of an experiment, with its secrets, which a resume needs. A file with secrets is readable by its
/// owner only.
///
/// # Errors
/// The file cannot be written.
pub fn write(path: &Path, text: &[u8]) -> Result<(), WriteError> {
    let secret = std::str::from_utf8(text).is_ok_and(|text| secrets::mask_experiment(text) != text);
    if secret { write::replace_private(path, text) } else { write::replace(path, text) }
}

/// Text of `resolved.toml`, with secrets, after checking its checksum.
///
/// # Errors
/// The file is missing, is not a regular file, or is damaged.
pub fn read_text(run: &Path) -> Result<String, ReadError> {
    read_sealed(&run.join(layout::RESOLVED))
}

/// Text of a TOML file that xrun wrote, after checking its checksum.
///
/// # Errors
/// The file is missing, is not a regular file, or is damaged.
pub fn read_sealed(path: &Path) -> Result<String, ReadError> {
    let bytes =
        file::bytes(path, FILE_BYTES_MAX).map_err(|source| ReadError::File { path: path.to_path_buf(), source })?;
    checksum::check_text(&bytes).map_err(|_| ReadError::content(path, checksum::DAMAGED))?;
    String::from_utf8(bytes).map_err(|_| ReadError::content(path, "not UTF-8"))
}

/// Formats a value on one line.
pub fn format_value(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Object(keys) if keys.is_empty() => "chosen".into(),
        other => other.to_string(),
    }
}

/// Formats a value as [`format_value`], with at most four significant digits of a number with decimals: `0.003125`,
/// `3.1e-5`.
pub fn format_rounded(value: &Value) -> String {
    let Some(number) = value.as_f64().filter(|_| value.is_f64()) else { return format_value(value) };
    let text = format!("{number:.3e}");
    match text.split_once('e') {
        Some((digits, power)) if power.parse().is_ok_and(|power: i32| power < -3) => {
            format!("{}e{power}", digits.trim_end_matches('0').trim_end_matches('.'))
        }
        _ => format_value(&text.parse::<f64>().map_or(value.clone(), Value::from)),
    }
}

/// Shortest ends of dotted keys that differ from each other: `learning_rate` for `optimizer.adamw.learning_rate`.
pub fn short_keys<'a>(keys: &[&'a str]) -> Vec<&'a str> {
    let end = |key: &'a str, parts: usize| {
        let at = key.rmatch_indices('.').nth(parts - 1).map_or(0, |(at, _)| at + 1);
        &key[at..]
    };
    let unique = |key: &'a str| {
        // Names that several sections have, with different meanings.
        let least = if ["batch_size", "every_steps"].contains(&end(key, 1)) { 2 } else { 1 };
        let parts = (least..=key.split('.').count()).find(|&parts| {
            let short = end(key, parts);
            keys.iter().filter(|other| end(other, parts) == short).count() == 1
        });
        parts.map_or(key, |parts| end(key, parts))
    };
    keys.iter().map(|key| unique(key)).collect()
}

/// Returns `true` if the text that was typed denotes this value: `2e-3` is 0.002, `50331648` is `"48 MiB"`, and
/// quotes are optional.
pub fn matches(value: &Value, typed: &str) -> bool {
    let typed = typed.trim();
    let parsed = toml::from_str::<Value>(&format!("v = {typed}")).ok().and_then(|table| table.get("v").cloned());
    let plain = match &parsed {
        Some(Value::String(text)) => text.as_str(),
        _ => typed,
    };
    let number = |value: &Value| value.as_f64();
    let size = |value: &Value| match value {
        Value::String(text) => text.parse().ok(),
        other => other.as_u64().map(Bytes),
    };
    parsed.as_ref() == Some(value)
        || value.as_str() == Some(plain)
        || number(value).is_some_and(|found| parsed.as_ref().and_then(number) == Some(found))
        || size(value).is_some_and(|found| plain.parse() == Ok(found))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn tables_become_dotted_keys() {
        let table =
            json!({ "training": { "epochs": 4, "schedule": { "constant": {} } }, "cleanup": { "actions": ["heap"] } });
        let flat = flat(&table);
        let keys: Vec<&str> = flat.keys().map(String::as_str).collect();
        assert_eq!(keys, ["cleanup.actions", "training.epochs", "training.schedule.constant"]);
        assert_eq!(flat["cleanup.actions"], json!(["heap"]));
    }

    #[test]
    fn numbers_are_rounded_to_four_digits_and_integers_are_not() {
        let shown =
            [json!(0.003_124_519_277), json!(3.124_519e-5), json!(0.005), json!(123_456), json!("a"), json!(1.0)];
        assert_eq!(shown.map(|value| format_rounded(&value)), ["0.003125", "3.125e-5", "0.005", "123456", "a", "1.0"]);
    }

    #[test]
    fn keys_are_shortened_to_what_distinguishes_them() {
        let keys = ["optimizer.adamw.learning_rate", "limits.batch_size", "training.batch_size", "seed"];
        assert_eq!(short_keys(&keys), ["learning_rate", "limits.batch_size", "training.batch_size", "seed"]);
        assert_eq!(short_keys(&["a.b", "a.b"]), ["a.b", "a.b"]);
    }

    #[test]
    fn a_value_is_recognised_however_it_is_typed() {
        for (value, typed) in [
            (json!(0.002), "2e-3"),
            (json!(4), "4"),
            (json!(1.0), "1"),
            (json!("48 MiB"), "50331648"),
            (json!("48 MiB"), "48 MiB"),
            (json!("48 MiB"), "\"48MiB\""),
            (json!(1000), "1000 B"),
            (json!("batch-hard"), "batch-hard"),
            (json!(true), "true"),
            (json!(["heap"]), "[\"heap\"]"),
        ] {
            assert!(matches(&value, typed), "{value} was not recognised in {typed}");
        }
        for (value, typed) in [(json!(4), "5"), (json!("48 MiB"), "49 MiB"), (json!(true), "1"), (json!("4"), "")] {
            assert!(!matches(&value, typed), "{value} was taken for {typed}");
        }
    }
}
