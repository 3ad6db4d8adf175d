//! Patterns of text values with descriptions for messages. The schema states them as regular expressions.

use std::sync::LazyLock;

use regex_lite::Regex;

use crate::problem::nearest;

/// A pattern of the schema.
#[derive(Debug)]
pub struct Pattern {
    /// Regular expression in the schema.
    pub expression: Regex,
    /// Description that completes "expected …".
    pub words: &'static str,
    /// A valid value.
    pub example: &'static str,
    /// Suggests a valid value for an invalid one.
    pub suggest: fn(&str) -> Option<String>,
}

const NAME: &str = "^[A-Za-z0-9][A-Za-z0-9._-]*$";
const DEVICE: &str = "^(auto|cpu|cuda(:[0-9]+)?|vulkan(:[0-9]+)?)$";

fn expression(text: &str) -> Regex {
    Regex::new(text).expect("constant expressions are valid")
}

impl Pattern {
    /// `true` if the whole text matches.
    pub fn matches(&self, text: &str) -> bool {
        self.expression.is_match(text)
    }
}

/// All patterns of the experiment's schema.
pub static PATTERNS: LazyLock<[Pattern; 4]> = LazyLock::new(|| {
    [
        Pattern {
            expression: expression(NAME),
            words: "a name of letters, digits, `-`, `_` and `.` that begins with a letter or digit",
            example: "stage2_small",
            suggest: |_| None,
        },
        Pattern {
            expression: expression(DEVICE),
            words: "`auto`, `cpu`, `cuda`, `cuda:1` or `vulkan`",
            example: "auto",
            suggest: suggest_device,
        },
        Pattern {
            expression: expression("^[A-Za-z0-9][A-Za-z0-9._,-]*$"),
            words: "one name, or several separated by commas",
            example: "gpu",
            suggest: |_| None,
        },
        Pattern {
            expression: expression("^[^\\x00-\\x08\\x0A-\\x1F\\x7F]+$"),
            words: "one line of text without control characters",
            example: "#SBATCH --constraint=a100",
            suggest: |_| None,
        },
    ]
});

/// Pattern with this expression; `None` if it has no description.
pub fn find(expression: &str) -> Option<&'static Pattern> {
    PATTERNS.iter().find(|pattern| pattern.expression.as_str() == expression)
}

/// Suggests a device for names of other tools and misspellings. `gpu` is similar to `cpu` only in its letters.
fn suggest_device(text: &str) -> Option<String> {
    let text = text.to_lowercase();
    let (kind, number) = match text.split_once(':') {
        Some((kind, number)) => (kind, format!(":{number}")),
        None => (text.as_str(), String::new()),
    };
    let kind = match kind {
        "gpu" | "nvidia" => "cuda",
        other => nearest(other, ["auto", "cpu", "cuda", "vulkan"])?,
    };
    Some(format!("{kind}{number}")).filter(|name| find(DEVICE).is_some_and(|device| device.matches(name)))
}

/// Valid name of an experiment from any text: invalid characters become `-`.
pub fn valid_name(text: &str) -> String {
    let mut name: String = text
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') { c } else { '-' })
        .take(80)
        .collect();
    if !name.starts_with(|first: char| first.is_ascii_alphanumeric()) {
        name.insert(0, 'x');
        name.truncate(80);
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn devices_of_other_tools_are_suggested() {
        let suggested = |text: &str| suggest_device(text).unwrap_or_default();
        assert_eq!(
            [suggested("gpu"), suggested("GPU:1"), suggested("cuda0"), suggested("vulcan")],
            ["cuda", "cuda:1", "cuda", "vulkan"]
        );
        assert_eq!([suggested("tpu:x"), suggested("cpu:1"), suggested("mps")], ["", "", ""]);
    }

    proptest! {
        #[test]
        fn any_file_name_gives_a_valid_name(text in ".{0,120}") {
            let name = valid_name(&text);
            prop_assert!(find(NAME).unwrap().matches(&name) && name.len() <= 80);
        }
    }
}
