//! Exact match and F1 of answers by SQuAD's rules (Rajpurkar et al. 2016).
//!
//! Both texts are normalised: lower case, no punctuation, no articles, single spaces. The score of a question is the best over its
//! accepted answers; the result is the mean over questions as a percentage. The state is two sums.

/// Running mean of exact match and F1 over questions.
#[derive(Clone, Copy, Debug, Default)]
pub struct SquadScore {
    exact: f64,
    f1: f64,
    questions: u64,
}

impl SquadScore {
    /// Adds the answer to a question, given the accepted answers.
    pub fn add(&mut self, answer: &str, accepted: &[String]) {
        let answer = normalised(answer);
        let accepted: Vec<String> = accepted.iter().map(|text| normalised(text)).collect();
        self.questions += 1;
        if accepted.contains(&answer) {
            self.exact += 1.0;
        }
        self.f1 += accepted.iter().map(|accepted| f1(&answer, accepted)).fold(0.0, f64::max);
    }

    /// Exact match and F1 as percentages; `None` without questions.
    pub fn mean(&self) -> Option<(f64, f64)> {
        let factor = 100.0 / self.questions as f64;
        (self.questions > 0).then_some((self.exact * factor, self.f1 * factor))
    }
}

/// Text in lower case without ASCII punctuation, articles and repeated spaces; in this order, as in the official script.
fn normalised(text: &str) -> String {
    let lower = text.to_lowercase();
    let bare: String = lower.chars().filter(|character| !character.is_ascii_punctuation()).collect();
    // An article is a whole word; a word ends where no letter, digit or underscore follows.
    let mut rest = String::with_capacity(bare.len());
    let mut word = String::new();
    for character in bare.chars().chain([' ']) {
        if character.is_alphanumeric() || character == '_' {
            word.push(character);
            continue;
        }
        if !["a", "an", "the"].contains(&word.as_str()) {
            rest += &word;
        }
        word.clear();
        rest.push(character);
    }
    rest.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Harmonic mean of the precision and recall of words, counting repeated words.
fn f1(answer: &str, accepted: &str) -> f64 {
    let answer: Vec<&str> = answer.split_whitespace().collect();
    let mut unmatched: Vec<&str> = accepted.split_whitespace().collect();
    let accepted_count = unmatched.len();
    let mut common = 0;
    for word in &answer {
        if let Some(index) = unmatched.iter().position(|other| other == word) {
            unmatched.swap_remove(index);
            common += 1;
        }
    }
    match common {
        0 => 0.0,
        _ => 2.0 * f64::from(common) / (answer.len() + accepted_count) as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected values: the official evaluate-v1.1 rules, run by `tests/reference/squad_answers.py`.
    #[test]
    fn scores_match_the_official_squad_rules() {
        let text = include_str!("../../../../tests/reference/squad_answers.json");
        let cases: serde_json::Value = serde_json::from_str(text).unwrap();
        let mut all = SquadScore::default();
        assert_eq!(all.mean(), None);
        for case in cases["cases"].as_array().unwrap() {
            let accepted: Vec<String> = serde_json::from_value(case["accepted"].clone()).unwrap();
            let answer = case["said"].as_str().unwrap();
            let mut one = SquadScore::default();
            one.add(answer, &accepted);
            all.add(answer, &accepted);
            let (exact, f1) = one.mean().unwrap();
            assert_eq!(exact, case["exact_match"].as_f64().unwrap(), "{case}");
            assert!((f1 - case["f1"].as_f64().unwrap()).abs() < 1e-9, "{f1}: {case}");
        }
        let (exact, f1) = all.mean().unwrap();
        assert!((exact - cases["exact_match"].as_f64().unwrap()).abs() < 1e-9);
        assert!((f1 - cases["f1"].as_f64().unwrap()).abs() < 1e-9);
    }
}
