//! Patterns of text values with descriptions for messages. The schema states them as regular expressions.

use std::sync::LazyLock;

use regex_lite::Regex;

/// A pattern of the schema.
#[derive(Debug)]
pub struct Pattern {
    /// Regular expression in the schema.
    pub expression: Regex,
    /// Description that completes "expected …".
    pub words: &'static str,
    /// A valid value.
    pub example: &'static str,
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
pub static PATTERNS: LazyLock<[Pattern; 5]> = LazyLock::new(|| {
    [
        Pattern {
            expression: expression(NAME),
            words: "a name of letters, digits, `-`, `_` and `.` that begins with a letter or digit",
            example: "stage2_small",
        },
        Pattern {
            expression: expression(DEVICE),
            words: "`auto`, `cpu`, `cuda`, `cuda:1` or `vulkan`",
            example: "auto",
        },
        Pattern {
            expression: expression("^[A-Za-z0-9][A-Za-z0-9._,-]*$"),
            words: "one name, or several separated by commas",
            example: "gpu",
        },
        Pattern {
            expression: expression("^([A-Za-z0-9][A-Za-z0-9._-]*:)?[0-9]{1,2}$"),
            words: "a type of GPU and a number",
            example: "a100:1",
        },
        Pattern {
            expression: expression("^[^\\x00-\\x08\\x0A-\\x1F\\x7F]+$"),
            words: "one line of text without control characters",
            example: "#SBATCH --constraint=a100",
        },
    ]
});

/// Pattern with this expression; `None` if it has no description.
pub fn find(expression: &str) -> Option<&'static Pattern> {
    PATTERNS.iter().find(|pattern| pattern.expression.as_str() == expression)
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

    proptest! {
        #[test]
        fn any_file_name_gives_a_valid_name(text in ".{0,120}") {
            let name = valid_name(&text);
            prop_assert!(find(NAME).unwrap().matches(&name) && name.len() <= 80);
        }
    }
}
