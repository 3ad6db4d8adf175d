//! The expression that finds steps in the output of a command.

use regex_lite::Regex;

/// Longer patterns are not believed.
const CHARACTERS_MAX: usize = 1000;
/// The group that holds the number of the step.
pub const STEP: &str = "step";
const EXAMPLE: &str = "for example 'step[ =](?<step>\\d+).*loss[ =](?<loss>[\\d.eE+-]+)'";

/// An expression that finds a step in a line. Its time is linear in the line: it never goes back.
#[derive(Clone, Debug)]
pub struct StepPattern {
    expression: Regex,
}

impl StepPattern {
    /// # Errors
    /// It is no regular expression, or has no group named `step`.
    pub fn new(text: &str) -> Result<Self, String> {
        if text.chars().count() > CHARACTERS_MAX {
            return Err(format!("the pattern has more than {CHARACTERS_MAX} characters; {EXAMPLE}"));
        }
        let expression = Regex::new(text).map_err(|error| format!("is no regular expression: {error}; {EXAMPLE}"))?;
        if !expression.capture_names().flatten().any(|name| name == STEP) {
            return Err(format!(
                "the pattern has no group `(?<step>…)`, which holds the number of the step; {EXAMPLE}"
            ));
        }
        Ok(Self { expression })
    }

    /// As it was written.
    pub fn text(&self) -> &str {
        self.expression.as_str()
    }

    /// What it matches with.
    pub fn expression(&self) -> &Regex {
        &self.expression
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_pattern_says_what_is_missing() {
        assert!(StepPattern::new("step (").unwrap_err().contains("is no regular expression"));
        assert!(StepPattern::new(r"step (\d+)").unwrap_err().contains("(?<step>"));
        assert!(StepPattern::new(&"a".repeat(1001)).unwrap_err().contains("1000 characters"));
    }
}
