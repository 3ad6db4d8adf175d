//! Which patterns may a text have to follow, and how are they said in words?
//!
//! The schema states them as regular expressions for editors; here each has a function and words for a message. A test
//! holds the two together.

use crate::problem::nearest;

/// One pattern of the schema.
#[derive(Debug)]
pub struct Pattern {
    /// As it stands in the schema.
    pub expression: &'static str,
    pub matches: fn(&str) -> bool,
    /// Completes "expected …".
    pub words: &'static str,
    /// What could be written.
    pub example: &'static str,
    /// What somebody may have meant who wrote something else.
    pub meant: fn(&str) -> Option<String>,
}

/// All patterns that a text key of an experiment may have.
pub const PATTERNS: &[Pattern] = &[
    Pattern {
        expression: "^[A-Za-z0-9][A-Za-z0-9._-]*$",
        matches: is_name,
        words: "a name of letters, digits, `-`, `_` and `.` that begins with a letter or digit",
        example: "stage2_small",
        meant: |_| None,
    },
    Pattern {
        expression: "^(auto|cpu|cuda(:[0-9]+)?|vulkan(:[0-9]+)?)$",
        matches: is_device,
        words: "`auto`, `cpu`, `cuda`, `cuda:1` or `vulkan`",
        example: "auto",
        meant: device_meant,
    },
    Pattern {
        expression: "^[A-Za-z0-9][A-Za-z0-9._,-]*$",
        matches: are_names,
        words: "one name, or several with commas between them",
        example: "gpu",
        meant: |_| None,
    },
    Pattern {
        expression: "^[^\\x00-\\x08\\x0A-\\x1F\\x7F]+$",
        matches: is_line,
        words: "one line of text without control characters",
        example: "#SBATCH --constraint=a100",
        meant: |_| None,
    },
];

/// The pattern with this expression; `None` for one that nobody has put into words.
pub fn find(expression: &str) -> Option<&'static Pattern> {
    PATTERNS.iter().find(|pattern| pattern.expression == expression)
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'))
}

fn are_names(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | ','))
}

fn is_line(text: &str) -> bool {
    !text.is_empty() && !text.contains(|c: char| c.is_ascii_control() && c != '\t')
}

fn is_device(text: &str) -> bool {
    let (family, number) = match text.split_once(':') {
        Some((family, number)) => (family, Some(number)),
        None => (text, None),
    };
    match family {
        "auto" | "cpu" => number.is_none(),
        "cuda" | "vulkan" => number.is_none_or(|n| !n.is_empty() && n.chars().all(|c| c.is_ascii_digit())),
        _ => false,
    }
}

/// Other tools' words, and slips. `gpu` is near to `cpu` by its letters only.
fn device_meant(text: &str) -> Option<String> {
    let text = text.to_lowercase();
    let (family, number) = match text.split_once(':') {
        Some((family, number)) => (family, format!(":{number}")),
        None => (text.as_str(), String::new()),
    };
    let family = match family {
        "gpu" | "nvidia" => "cuda",
        other => nearest(other, ["auto", "cpu", "cuda", "vulkan"])?,
    };
    Some(format!("{family}{number}")).filter(|meant| is_device(meant))
}

/// A name for an experiment, from any text: what may not stand in one becomes `-`.
pub fn name_from(text: &str) -> String {
    let mut name: String = text
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') { c } else { '-' })
        .take(80)
        .collect();
    if !is_name(&name) {
        name.insert(0, 'x');
        name.truncate(80);
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    #[test]
    fn every_pattern_in_the_schema_is_put_into_words() {
        fn look(value: &Value) {
            match value {
                Value::Object(object) => {
                    if let Some(expression) = object.get("pattern").and_then(Value::as_str)
                        && object.get("format").is_none()
                    {
                        assert!(find(expression).is_some(), "{expression} is not in PATTERNS");
                    }
                    object.values().for_each(look);
                }
                Value::Array(list) => list.iter().for_each(look),
                _ => {}
            }
        }
        look(super::super::schema::shared());
    }

    #[test]
    fn a_device_by_another_name_is_understood() {
        let meant = |text: &str| device_meant(text).unwrap_or_default();
        assert_eq!(
            [meant("gpu"), meant("GPU:1"), meant("cuda0"), meant("vulcan")],
            ["cuda", "cuda:1", "cuda", "vulkan"]
        );
        assert_eq!([meant("tpu:x"), meant("cpu:1"), meant("mps")], ["", "", ""]);
    }

    proptest! {
        #[test]
        fn the_functions_agree_with_the_expressions(
            text in "[a-zA-Z0-9._: -]{0,12}|(auto|cpu|cuda|vulkan)(:[0-9a]{0,3})?"
        ) {
            for pattern in PATTERNS {
                let schema = json!({ "pattern": pattern.expression });
                prop_assert_eq!((pattern.matches)(&text), jsonschema::is_valid(&schema, &json!(text)));
            }
        }

        #[test]
        fn any_file_name_gives_a_name_that_may_be_used(text in ".{0,120}") {
            let name = name_from(&text);
            prop_assert!(is_name(&name) && name.len() <= 80);
        }
    }
}
