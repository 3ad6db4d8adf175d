//! Which patterns may a text have to follow, and how are they said in words?
//!
//! The schema states them as regular expressions; here each has words for a message.

use std::sync::LazyLock;

use regex_lite::Regex;

use crate::problem::nearest;

/// One pattern of the schema.
#[derive(Debug)]
pub struct Pattern {
    /// As it stands in the schema.
    pub expression: Regex,
    /// Completes "expected …".
    pub words: &'static str,
    /// What could be written.
    pub example: &'static str,
    /// What somebody may have meant who wrote something else.
    pub meant: fn(&str) -> Option<String>,
}

const NAME: &str = "^[A-Za-z0-9][A-Za-z0-9._-]*$";
const DEVICE: &str = "^(auto|cpu|cuda(:[0-9]+)?|vulkan(:[0-9]+)?)$";

fn expression(text: &str) -> Regex {
    Regex::new(text).expect("the expressions here are right")
}

impl Pattern {
    /// Whether the text as a whole follows the pattern.
    pub fn matches(&self, text: &str) -> bool {
        self.expression.is_match(text)
    }
}

/// All patterns that a text key of an experiment may have.
pub static PATTERNS: LazyLock<[Pattern; 4]> = LazyLock::new(|| {
    [
        Pattern {
            expression: expression(NAME),
            words: "a name of letters, digits, `-`, `_` and `.` that begins with a letter or digit",
            example: "stage2_small",
            meant: |_| None,
        },
        Pattern {
            expression: expression(DEVICE),
            words: "`auto`, `cpu`, `cuda`, `cuda:1` or `vulkan`",
            example: "auto",
            meant: device_meant,
        },
        Pattern {
            expression: expression("^[A-Za-z0-9][A-Za-z0-9._,-]*$"),
            words: "one name, or several with commas between them",
            example: "gpu",
            meant: |_| None,
        },
        Pattern {
            expression: expression("^[^\\x00-\\x08\\x0A-\\x1F\\x7F]+$"),
            words: "one line of text without control characters",
            example: "#SBATCH --constraint=a100",
            meant: |_| None,
        },
    ]
});

/// The pattern with this expression; `None` for one that nobody has put into words.
pub fn find(expression: &str) -> Option<&'static Pattern> {
    PATTERNS.iter().find(|pattern| pattern.expression.as_str() == expression)
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
    Some(format!("{family}{number}")).filter(|meant| find(DEVICE).is_some_and(|device| device.matches(meant)))
}

/// A name for an experiment, from any text: what may not stand in one becomes `-`.
pub fn name_from(text: &str) -> String {
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
        fn any_file_name_gives_a_name_that_may_be_used(text in ".{0,120}") {
            let name = name_from(&text);
            prop_assert!(find(NAME).unwrap().matches(&name) && name.len() <= 80);
        }
    }
}
