//! Suggestion of a pattern for output in which no step is recognised: the number that rises from line to line.

use super::step_formats::without_numbers;

/// Cap on the forms of lines that are compared, and on the numbers of each.
const FORMS_MAX: usize = 8;
const NUMBERS_MAX: usize = 16;
/// Rises in a row by which a number may be that of a step.
const RISES_MIN: u32 = 3;

/// Numbers of the newest line of each form.
#[derive(Clone, Debug, Default)]
pub struct RisingNumbers {
    forms: Vec<(String, Vec<Number>)>,
    /// Pattern for the first number that rises.
    pub pattern: Option<String>,
}

/// Text before a whole number in a line, the number, and how often it has risen.
type Number = (String, u32, u32);

impl RisingNumbers {
    /// Compares a line with the one before of its form.
    pub fn add(&mut self, line: &str) {
        let (form, numbers) = (without_numbers(line), numbers(line));
        if self.pattern.is_some() || numbers.is_empty() {
            return;
        }
        let Some((_, known)) = self.forms.iter_mut().find(|(known, _)| *known == form) else {
            if self.forms.len() < FORMS_MAX {
                self.forms.push((form, numbers));
            }
            return;
        };
        for ((_, value, rises), (_, now, _)) in known.iter_mut().zip(numbers) {
            *rises = if now > *value { *rises + 1 } else { 0 };
            *value = now;
        }
        let rising = known.iter().find(|(.., rises)| *rises >= RISES_MIN);
        self.pattern = rising.map(|(before, ..)| format!("{}(?<step>\\d+)", regex_lite::escape(before)));
    }
}

/// Numbers of a line that are no part of a date, a time, a fraction or a percentage.
fn numbers(line: &str) -> Vec<Number> {
    let mut last = "";
    let is_digit = |letter: char| letter.is_ascii_digit();
    let words = line.split_ascii_whitespace().filter_map(|word| {
        let before = std::mem::replace(&mut last, word);
        let start = word.find(is_digit)?;
        let end = word[start..].find(|letter| !is_digit(letter)).map_or(word.len(), |length| start + length);
        let (head, rest) = (&word[..start], &word[end..]);
        let is_whole = rest.starts_with('/') || !rest.contains(|letter| is_digit(letter) || letter == '%');
        let before = if head.is_empty() && !before.contains(is_digit) { format!("{before} ") } else { head.to_owned() };
        Some((before, word[start..end].parse().ok().filter(|_| is_whole)?, 0))
    });
    words.take(NUMBERS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pattern_finds_the_number_that_rises_and_no_time_of_day() {
        for (line, pattern) in [
            ("2025-03-11 09:00:0{n},115 INFO worker 3 processed [{n}0/90]", r"\[(?<step>\d+)"),
            ("{n}0% batch {n} of 9, 0.{n} s", r"batch (?<step>\d+)"),
        ] {
            let mut rising = RisingNumbers::default();
            (1..9).for_each(|number: u32| rising.add(&line.replace("{n}", &number.to_string())));
            assert_eq!(rising.pattern.unwrap_or_default(), pattern, "{line}");
        }
    }
}
