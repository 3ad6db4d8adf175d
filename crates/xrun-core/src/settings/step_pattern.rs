//! Regular expression that detects steps in the output of a command.

use regex_lite::Regex;

/// Maximum length of a pattern.
const CHARACTERS_MAX: usize = 1000;
/// Name of the group with the step number.
pub const STEP: &str = "step";
const EXAMPLE: &str = "for example 'step[ =](?<step>\\d+).*loss[ =](?<loss>[\\d.eE+-]+)'";

/// Regular expression that finds the step in a line, in time linear in its length.
#[derive(Clone, Debug)]
pub struct StepPattern {
    expression: Regex,
}

impl StepPattern {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// It is not a regular expression, is too long, or has no group named `step`.
    pub fn new(text: &str) -> Result<Self, String> {
        if text.chars().count() > CHARACTERS_MAX {
            return Err(format!("the pattern has more than {CHARACTERS_MAX} characters; {EXAMPLE}"));
        }
        let expression =
            Regex::new(text).map_err(|error| format!("is not a regular expression: {error}; {EXAMPLE}"))?;
        if !expression.capture_names().flatten().any(|name| name == STEP) {
            return Err(format!("the pattern has no group `(?<step>…)` for the step number; {EXAMPLE}"));
        }
        Ok(Self { expression })
    }

    /// Text of the pattern.
    pub fn text(&self) -> &str {
        self.expression.as_str()
    }

    /// Compiled expression.
    pub fn expression(&self) -> &Regex {
        &self.expression
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_short_patterns_with_a_step_group_are_accepted() {
        assert_eq!(StepPattern::new(r"step (?<step>\d+)").unwrap().text(), r"step (?<step>\d+)");
        for wrong in ["step (", r"step (\d+)", &format!("(?<step>a{})", "a".repeat(1000))] {
            assert!(StepPattern::new(wrong).is_err(), "{wrong}");
        }
    }
}
