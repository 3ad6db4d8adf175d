//! Is an answer right? Exact match and F1 by SQuAD's rules (Rajpurkar et al. 2016).
//!
//! Both sides in lower case, without punctuation and articles, spaces made single; the best over the accepted answers;
//! the mean over questions, in per cent. Two sums are kept, however many questions there are.

/// A running mean over questions.
#[derive(Clone, Copy, Debug, Default)]
pub struct Answers {
    exact: f64,
    overlap: f64,
    questions: u64,
}

impl Answers {
    /// One question: what was said, and what is accepted.
    pub fn add(&mut self, said: &str, accepted: &[String]) {
        let said = normalised(said);
        let accepted: Vec<String> = accepted.iter().map(|text| normalised(text)).collect();
        self.questions += 1;
        if accepted.contains(&said) {
            self.exact += 1.0;
        }
        self.overlap += accepted.iter().map(|accepted| f1(&said, accepted)).fold(0.0, f64::max);
    }

    /// Exact match and F1 in per cent; `None` without questions.
    pub fn mean(&self) -> Option<(f64, f64)> {
        let share = 100.0 / self.questions as f64;
        (self.questions > 0).then_some((self.exact * share, self.overlap * share))
    }
}

/// Lower case, no ASCII punctuation, no articles, single spaces; in this order, as the official script has it.
fn normalised(text: &str) -> String {
    let lower = text.to_lowercase();
    let bare: String = lower.chars().filter(|character| !character.is_ascii_punctuation()).collect();
    // An article is a whole word; a word ends where no letter, digit or underscore follows.
    let mut kept = String::with_capacity(bare.len());
    let mut word = String::new();
    for character in bare.chars().chain([' ']) {
        if character.is_alphanumeric() || character == '_' {
            word.push(character);
            continue;
        }
        if !["a", "an", "the"].contains(&word.as_str()) {
            kept += &word;
        }
        word.clear();
        kept.push(character);
    }
    kept.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The harmonic mean of precision and recall of words, each word as often as it occurs.
fn f1(said: &str, accepted: &str) -> f64 {
    let said: Vec<&str> = said.split_whitespace().collect();
    let mut left: Vec<&str> = accepted.split_whitespace().collect();
    let wanted = left.len();
    let mut common = 0;
    for word in &said {
        if let Some(at) = left.iter().position(|other| other == word) {
            left.swap_remove(at);
            common += 1;
        }
    }
    match common {
        0 => 0.0,
        _ => 2.0 * f64::from(common) / (said.len() + wanted) as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected values: the official evaluate-v1.1 rules, run by `tests/reference/squad_answers.py`.
    #[test]
    fn answers_are_judged_as_squad_does() {
        let text = include_str!("../../../../tests/reference/squad_answers.json");
        let cases: serde_json::Value = serde_json::from_str(text).unwrap();
        let mut all = Answers::default();
        for case in cases["cases"].as_array().unwrap() {
            let accepted: Vec<String> = serde_json::from_value(case["accepted"].clone()).unwrap();
            let said = case["said"].as_str().unwrap();
            let mut one = Answers::default();
            one.add(said, &accepted);
            all.add(said, &accepted);
            let (exact, overlap) = one.mean().unwrap();
            assert_eq!(exact, case["exact_match"].as_f64().unwrap(), "{case}");
            assert!((overlap - case["f1"].as_f64().unwrap()).abs() < 1e-9, "{overlap}: {case}");
        }
        let (exact, overlap) = all.mean().unwrap();
        assert!((exact - cases["exact_match"].as_f64().unwrap()).abs() < 1e-9);
        assert!((overlap - cases["f1"].as_f64().unwrap()).abs() < 1e-9);
    }

    #[test]
    fn no_question_has_no_mean() {
        assert_eq!(Answers::default().mean(), None);
    }
}
