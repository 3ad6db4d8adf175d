//! Comparison of JSON answers with the true objects, field by field, in bounded memory.
//!
//! A field is a leaf of the true object, named by its JSON pointer (RFC 6901): a string, a number, `true`, `false`, `null`, or
//! an empty object or array. It is correct if the answer has a leaf of the same type and value at the same pointer: numbers by value,
//! strings byte for byte. A field that is missing, nested differently, or in an answer that is not one JSON object, is wrong.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::value::RawValue;
use serde_json::{Number, Value};

use super::json_text::{DEPTH_MAX, Part, part};

/// Maximum number of fields with separate counts: the first that occur. All fields are in the overall count.
pub const FIELDS_MAX: usize = 16;
/// Maximum length of the name of a field with separate counts.
const NAME_BYTES_MAX: usize = 200;

/// Number of correct items out of a total.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Number of correct items.
    pub right: u64,
    /// Number of all items.
    pub of: u64,
}

impl Tally {
    /// Counts one item.
    pub fn add(&mut self, right: bool) {
        self.right += u64::from(right);
        self.of += 1;
    }

    /// Percentage of correct items; `None` without items.
    pub fn percent(&self) -> Option<f64> {
        (self.of > 0).then(|| 100.0 * self.right as f64 / self.of as f64)
    }
}

/// Counts over answers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FieldScores {
    /// Fields of the true objects, and those that are correct.
    pub fields: Tally,
    /// Answers, and those that are one JSON object without repeated keys.
    pub valid_json: Tally,
    /// Answers, and those whose fields equal those of the true object.
    pub exact_object: Tally,
    /// Answers, and those whose trimmed text equals that of the truth.
    pub exact_match: Tally,
    named: Vec<(String, Tally)>,
}

/// Comparison of one answer with the truth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerComparison {
    /// Pointers of the fields of the truth, and whether each is correct; empty if the truth is not a JSON object.
    pub fields: Vec<(String, bool)>,
    /// The answer is one JSON object without repeated keys.
    pub valid_json: bool,
    /// The fields of the answer equal those of the truth.
    pub exact_object: bool,
    /// The trimmed text of the answer equals that of the truth.
    pub exact_match: bool,
}

/// Compares an answer with the truth.
pub fn compare_answer(answer: &str, truth: &str) -> AnswerComparison {
    let (answer, truth) = (answer.trim(), truth.trim());
    let [found, expected] = [answer, truth].map(leaves);
    let right = |(pointer, leaf): (&String, &Value)| {
        let found = found.as_ref().and_then(|found| found.get(pointer));
        (pointer.clone(), found.is_some_and(|found| same(found, leaf)))
    };
    let fields: Vec<(String, bool)> = expected.iter().flatten().map(right).collect();
    let as_many = found.as_ref().zip(expected.as_ref()).is_some_and(|(found, expected)| found.len() == expected.len());
    AnswerComparison {
        valid_json: found.is_some(),
        exact_object: as_many && fields.iter().all(|(_, right)| *right),
        exact_match: answer == truth,
        fields,
    }
}

impl FieldScores {
    /// Maximum size in bytes.
    pub const BYTES_MAX: usize = size_of::<Self>() + FIELDS_MAX * (size_of::<(String, Tally)>() + NAME_BYTES_MAX);

    /// Adds an answer, compares it with the truth and returns the comparison.
    pub fn add(&mut self, answer: &str, truth: &str) -> AnswerComparison {
        let comparison = compare_answer(answer, truth);
        self.valid_json.add(comparison.valid_json);
        self.exact_object.add(comparison.exact_object);
        self.exact_match.add(comparison.exact_match);
        for (pointer, right) in &comparison.fields {
            self.fields.add(*right);
            if let Some((_, tally)) = self.named.iter_mut().find(|(name, _)| name == pointer) {
                tally.add(*right);
            } else if self.named.len() < FIELDS_MAX && pointer.len() <= NAME_BYTES_MAX {
                self.named.push((pointer.clone(), Tally { right: u64::from(*right), of: 1 }));
            }
        }
        comparison
    }

    /// Counts of the first [`FIELDS_MAX`] fields by their pointers, such as `/shape`, in the order of their first occurrence.
    pub fn named(&self) -> impl Iterator<Item = (&str, &Tally)> {
        self.named.iter().map(|(name, counts)| (name.as_str(), counts))
    }
}

/// Compares leaves: integers exactly, other numbers as 64-bit floats, so that 2 equals 2.0.
fn same(one: &Value, other: &Value) -> bool {
    let integer = |number: &Number| number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from));
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => match (integer(one), integer(other)) {
            (Some(one), Some(other)) => one == other,
            _ => one.as_f64() == other.as_f64(),
        },
        _ => one == other,
    }
}

/// Leaves of a JSON text by their pointers; `None` if it is not one object or has a repeated key.
fn leaves(text: &str) -> Option<BTreeMap<String, Value>> {
    let mut leaves = BTreeMap::new();
    text.starts_with('{').then(|| flatten(text, String::new(), DEPTH_MAX, &mut leaves))??;
    // The object itself is no field, even if empty.
    leaves.remove("");
    Some(leaves)
}

fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

/// Adds the leaves of a value that is nested in at most `depth` levels; `None` if it is invalid or has a repeated key.
fn flatten(value: &str, pointer: String, depth: usize, leaves: &mut BTreeMap<String, Value>) -> Option<()> {
    let children: Vec<(String, &RawValue)> = match part(value)? {
        Part::Object(members) => {
            let mut keys = BTreeSet::new();
            let child = |(key, value): (&RawValue, _)| {
                let key: String = serde_json::from_str(key.get()).ok()?;
                let name = escaped(&key);
                keys.insert(key).then_some((name, value))
            };
            members.into_iter().map(child).collect::<Option<_>>()?
        }
        Part::List(items) => items.into_iter().enumerate().map(|(at, item)| (at.to_string(), item)).collect(),
        Part::Leaf => Vec::new(),
    };
    if children.is_empty() {
        leaves.insert(pointer, serde_json::from_str(value).ok()?);
        return Some(());
    }
    let depth = depth.checked_sub(1)?;
    children.iter().try_for_each(|(name, child)| flatten(child.get(), format!("{pointer}/{name}"), depth, leaves))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRUTH: &str = r#"{"shape":"circle","size":2,"mark":null}"#;

    /// Counted by hand.
    #[test]
    fn counts_match_a_hand_computed_case() {
        let mut all = FieldScores::default();
        let right = |comparison: &AnswerComparison| comparison.fields.iter().filter(|(_, right)| *right).count();
        for (answer, expected, valid, exact) in [
            (r#"{"shape":"circle","size":2.0,"mark":null}"#, 3, true, true),
            (r#"{"shape":"circle","size":"2"}"#, 1, true, false),
            (r#"{"shape": "circle","#, 0, false, false),
            (r#"{"shape":"circle","size":2,"mark":null,"more":1}"#, 3, true, false),
        ] {
            let comparison = all.add(answer, TRUTH);
            let found = (right(&comparison), comparison.valid_json, comparison.exact_object);
            assert_eq!(found, (expected, valid, exact), "{answer}");
        }
        assert_eq!(all.fields, Tally { right: 7, of: 12 });
        assert!((all.fields.percent().unwrap() - 58.33).abs() < 0.01);
        assert_eq!((all.valid_json.percent(), all.exact_object.percent()), (Some(75.0), Some(25.0)));
        assert_eq!(all.exact_match.percent(), Some(0.0));
        let named: Vec<(&str, u64, u64)> = all.named().map(|(name, tally)| (name, tally.right, tally.of)).collect();
        assert_eq!(named, [("/mark", 2, 4), ("/shape", 3, 4), ("/size", 2, 4)]);
    }

    #[test]
    fn a_field_is_correct_by_type_and_value_at_its_pointer() {
        let right = |answer: &str, truth: &str| compare_answer(answer, truth).fields.iter().all(|(_, right)| *right);
        for (answer, truth, expected) in [
            (r#"{"a":1e0}"#, r#"{"a":1}"#, true),
            (r#"{"a":0.5}"#, r#"{"a":5e-1}"#, true),
            // These integers are equal as 64-bit floats.
            (r#"{"a":9007199254740993}"#, r#"{"a":9007199254740992}"#, false),
            (r#"{"a":18446744073709551615}"#, r#"{"a":18446744073709551615}"#, true),
            (r#"{"a":"\u00e9"}"#, r#"{"a":"é"}"#, true),
            (r#"{"a":"e\u0301"}"#, r#"{"a":"é"}"#, false),
            (r#"{"a":true}"#, r#"{"a":1}"#, false),
            (r#"{"a":0}"#, r#"{"a":null}"#, false),
            (r#"{"a":{"b":1}}"#, r#"{"a":1}"#, false),
            (r#"{"a":[1,2]}"#, r#"{"a":[1,2]}"#, true),
            (r#"{"a":[2,1]}"#, r#"{"a":[1,2]}"#, false),
            (r#"{"a":{}}"#, r#"{"a":[]}"#, false),
            (r#"[{"a":1}]"#, r#"{"a":1}"#, false),
            (r#"{"a":1,"a":1}"#, r#"{"a":1}"#, false),
            (r#"{"a":1} x"#, r#"{"a":1}"#, false),
            (" {\"a\":1}\n", r#"{"a":1}"#, true),
        ] {
            assert_eq!(right(answer, truth), expected, "{answer} {truth}");
        }
        // The key `a/b` is escaped: it is another field than `b` in `a`.
        assert!(!right(r#"{"a/b":1}"#, r#"{"a":{"b":1}}"#));
    }

    #[test]
    fn a_text_answer_has_no_fields_and_may_match_exactly() {
        let mut all = FieldScores::default();
        all.add(" yes\n", "yes");
        all.add("no", "yes");
        assert_eq!((all.exact_match.percent(), all.fields.percent()), (Some(50.0), None));
        assert_eq!(all.valid_json.percent(), Some(0.0));
        let empty = compare_answer("{ }", "{}");
        assert!(empty.exact_object && empty.valid_json && empty.fields.is_empty());
    }

    #[test]
    fn only_the_first_fields_have_separate_counts() {
        let truth: Vec<String> = (0..40).map(|field| format!("\"f{field:02}\":1")).collect();
        let truth = format!("{{{}}}", truth.join(","));
        let mut all = FieldScores::default();
        (0..3).for_each(|_| drop(all.add(&truth, &truth)));
        all.add("{}", &format!("{{\"{}\":1}}", "x".repeat(1000)));
        assert_eq!((all.named().count(), all.fields), (FIELDS_MAX, Tally { right: 120, of: 121 }));
        assert!(all.named().all(|(_, counts)| counts.percent() == Some(100.0)));
    }
}
