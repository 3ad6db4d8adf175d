//! Comparison of JSON answers with the true objects, field by field, in bounded memory.
//!
//! A field is a leaf of the true object, named by its JSON pointer (RFC 6901): a string, a number, `true`, `false`, `null`, or
//! an empty object or array. It is correct if the answer has a leaf of the same type and value at the same pointer: numbers by value,
//! strings byte for byte. A field that is missing, nested differently, or in an answer that is not one JSON object, is wrong.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Number;

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

/// Counts of one field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FieldCounts {
    /// Number of true objects with this field.
    pub truths: u64,
    /// Number of answers with the same type and value.
    pub right: u64,
    /// Number of answers without this field.
    pub missing: u64,
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
    named: Vec<(String, FieldCounts)>,
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
    let exact_object = matches!((&found, &expected), (Some(found), Some(expected)) if found == expected);
    let right = |pointer: &String, leaf: &Leaf| found.as_ref().is_some_and(|found| found.get(pointer) == Some(leaf));
    let fields = expected.iter().flatten().map(|(pointer, leaf)| (pointer.clone(), right(pointer, leaf)));
    AnswerComparison {
        fields: fields.collect(),
        valid_json: found.is_some(),
        exact_object,
        exact_match: answer == truth,
    }
}

impl FieldScores {
    /// Maximum size in bytes.
    pub const BYTES_MAX: usize = size_of::<Self>() + FIELDS_MAX * (size_of::<(String, FieldCounts)>() + NAME_BYTES_MAX);

    /// Adds an answer, compares it with the truth and returns the comparison.
    pub fn add(&mut self, answer: &str, truth: &str) -> AnswerComparison {
        let comparison = compare_answer(answer, truth);
        let found = leaves(answer.trim());
        self.valid_json.add(comparison.valid_json);
        self.exact_object.add(comparison.exact_object);
        self.exact_match.add(comparison.exact_match);
        for (pointer, right) in &comparison.fields {
            self.fields.add(*right);
            if let Some(counts) = self.counts(pointer) {
                counts.truths += 1;
                counts.right += u64::from(*right);
                let missing = found.as_ref().is_none_or(|found| !found.contains_key(pointer));
                counts.missing += u64::from(missing);
            }
        }
        comparison
    }

    fn counts(&mut self, pointer: &str) -> Option<&mut FieldCounts> {
        let index = match self.named.iter().position(|(name, _)| name == pointer) {
            Some(index) => index,
            None if self.named.len() < FIELDS_MAX && pointer.len() <= NAME_BYTES_MAX => {
                self.named.push((pointer.to_owned(), FieldCounts::default()));
                self.named.len() - 1
            }
            None => return None,
        };
        Some(&mut self.named[index].1)
    }

    /// Counts of the first [`FIELDS_MAX`] fields by their pointers, such as `/shape`, in the order of their first occurrence.
    pub fn named(&self) -> impl Iterator<Item = (&str, &FieldCounts)> {
        self.named.iter().map(|(name, counts)| (name.as_str(), counts))
    }
}

impl FieldCounts {
    /// Percentage of correct answers; `None` without any.
    pub fn percent(&self) -> Option<f64> {
        Tally { right: self.right, of: self.truths }.percent()
    }
}

/// JSON value without children.
#[derive(Clone, Debug)]
enum Leaf {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    EmptyObject,
    EmptyList,
}

impl PartialEq for Leaf {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) | (Self::EmptyObject, Self::EmptyObject) | (Self::EmptyList, Self::EmptyList) => {
                true
            }
            (Self::Bool(one), Self::Bool(other)) => one == other,
            (Self::Number(one), Self::Number(other)) => same(one, other),
            (Self::Text(one), Self::Text(other)) => one == other,
            _ => false,
        }
    }
}

/// Compares integers exactly, other numbers as 64-bit floats: 2 equals 2.0.
fn same(one: &Number, other: &Number) -> bool {
    let integer = |number: &Number| number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from));
    match (integer(one), integer(other)) {
        (Some(one), Some(other)) => one == other,
        _ => one.as_f64() == other.as_f64(),
    }
}

/// Leaves of a JSON text by their pointers; `None` if it is not one object or has a repeated key.
fn leaves(text: &str) -> Option<BTreeMap<String, Leaf>> {
    let Tree::Object(members) = serde_json::from_str(text).ok()? else { return None };
    let mut leaves = BTreeMap::new();
    // The object itself is no field, even if empty.
    for (key, value) in members {
        flatten(value, format!("/{}", escaped(&key)), &mut leaves);
    }
    Some(leaves)
}

fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

fn flatten(tree: Tree, pointer: String, leaves: &mut BTreeMap<String, Leaf>) {
    let leaf = match tree {
        Tree::Leaf(leaf) => leaf,
        Tree::Object(members) if members.is_empty() => Leaf::EmptyObject,
        Tree::List(items) if items.is_empty() => Leaf::EmptyList,
        Tree::Object(members) => {
            return members
                .into_iter()
                .for_each(|(key, value)| flatten(value, format!("{pointer}/{}", escaped(&key)), leaves));
        }
        Tree::List(items) => {
            return items
                .into_iter()
                .enumerate()
                .for_each(|(at, item)| flatten(item, format!("{pointer}/{at}"), leaves));
        }
    };
    leaves.insert(pointer, leaf);
}

/// JSON value whose objects have no repeated keys.
enum Tree {
    Leaf(Leaf),
    List(Vec<Tree>),
    Object(BTreeMap<String, Tree>),
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnyValue;
        impl<'de> Visitor<'de> for AnyValue {
            type Value = Tree;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a JSON value")
            }

            fn visit_unit<E: Error>(self) -> Result<Tree, E> {
                Ok(Tree::Leaf(Leaf::Null))
            }

            fn visit_bool<E: Error>(self, value: bool) -> Result<Tree, E> {
                Ok(Tree::Leaf(Leaf::Bool(value)))
            }

            fn visit_i64<E: Error>(self, value: i64) -> Result<Tree, E> {
                Ok(Tree::Leaf(Leaf::Number(value.into())))
            }

            fn visit_u64<E: Error>(self, value: u64) -> Result<Tree, E> {
                Ok(Tree::Leaf(Leaf::Number(value.into())))
            }

            fn visit_f64<E: Error>(self, value: f64) -> Result<Tree, E> {
                let number = Number::from_f64(value).ok_or_else(|| E::custom("not a finite number"))?;
                Ok(Tree::Leaf(Leaf::Number(number)))
            }

            fn visit_str<E: Error>(self, value: &str) -> Result<Tree, E> {
                Ok(Tree::Leaf(Leaf::Text(value.to_owned())))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Tree, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = list.next_element()? {
                    items.push(item);
                }
                Ok(Tree::List(items))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Tree, A::Error> {
                let mut members = BTreeMap::new();
                while let Some((key, value)) = map.next_entry::<String, Tree>()? {
                    if members.insert(key, value).is_some() {
                        return Err(A::Error::custom("repeated key"));
                    }
                }
                Ok(Tree::Object(members))
            }
        }
        deserializer.deserialize_any(AnyValue)
    }
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
        let named: Vec<(&str, FieldCounts)> = all.named().map(|(name, counts)| (name, *counts)).collect();
        let counts = |right, missing| FieldCounts { truths: 4, right, missing };
        assert_eq!(named, [("/mark", counts(2, 2)), ("/shape", counts(3, 1)), ("/size", counts(2, 1))]);
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
    }

    #[test]
    fn an_empty_object_is_exact_and_has_no_field() {
        let comparison = compare_answer("{ }", "{}");
        assert!(comparison.exact_object && comparison.valid_json && comparison.fields.is_empty());
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
