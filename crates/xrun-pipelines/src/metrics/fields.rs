//! Are the fields of an answer in JSON right? Counts that do not grow with the number of answers.
//!
//! A field is a leaf of the true object, named by its JSON pointer (RFC 6901): a text, a number, `true`, `false`, `null`, or
//! an empty object or list. It is right when the answer has a leaf of the same type and value at the same place: numbers by
//! value, texts byte for byte. What is missing, nested otherwise, or in an answer that is not one JSON object, is wrong.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Number;

/// Fields that have counts of their own: the first ones that occur. All are in the whole.
pub const FIELDS_MAX: usize = 16;
/// A field with a longer name has no counts of its own.
const NAME_BYTES_MAX: usize = 200;

/// How often something was so, of how many times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// How often it was so.
    pub right: u64,
    /// Of how many times.
    pub of: u64,
}

impl Share {
    /// Counts one more time.
    pub fn add(&mut self, right: bool) {
        self.right += u64::from(right);
        self.of += 1;
    }

    /// In per cent; `None` of nothing.
    pub fn percent(&self) -> Option<f64> {
        (self.of > 0).then(|| 100.0 * self.right as f64 / self.of as f64)
    }
}

/// The counts of one field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OfField {
    /// Answers whose truth has it.
    pub truths: u64,
    /// Answers that have it with the same type and value.
    pub right: u64,
    /// Of the wrong ones, those that have nothing in its place.
    pub missing: u64,
}

/// Counts over answers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fields {
    /// Of all fields of the truths, those that are right.
    pub fields: Share,
    /// Answers that are one JSON object without a key that occurs twice.
    pub valid_json: Share,
    /// Answers with the same fields as the truth, all of them right.
    pub exact_object: Share,
    /// Answers with the text of the truth, without space around it.
    pub exact_match: Share,
    named: Vec<(String, OfField)>,
}

/// What became of one answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judged {
    /// The fields of the truth by their pointers, and whether each is right; none of a truth that is not a JSON object.
    pub fields: Vec<(String, bool)>,
    /// The answer is one JSON object without a key that occurs twice.
    pub valid_json: bool,
    /// The answer has the same fields as the truth, all of them right.
    pub exact_object: bool,
    /// The answer is the text of the truth, without space around it.
    pub exact_match: bool,
}

/// Compares an answer with the truth.
pub fn judge(said: &str, truth: &str) -> Judged {
    let (said, truth) = (said.trim(), truth.trim());
    let [answer, expected] = [said, truth].map(leaves);
    let exact_object = matches!((&answer, &expected), (Some(answer), Some(expected)) if answer == expected);
    let right = |pointer: &String, leaf: &Leaf| answer.as_ref().is_some_and(|answer| answer.get(pointer) == Some(leaf));
    let fields = expected.iter().flatten().map(|(pointer, leaf)| (pointer.clone(), right(pointer, leaf)));
    Judged { fields: fields.collect(), valid_json: answer.is_some(), exact_object, exact_match: said == truth }
}

impl Fields {
    /// The most that one holds, in bytes.
    pub const BYTES_MAX: usize = size_of::<Self>() + FIELDS_MAX * (size_of::<(String, OfField)>() + NAME_BYTES_MAX);

    /// One answer: what was said, and the truth. Returns what became of it.
    pub fn add(&mut self, said: &str, truth: &str) -> Judged {
        let judged = judge(said, truth);
        let answer = leaves(said.trim());
        self.valid_json.add(judged.valid_json);
        self.exact_object.add(judged.exact_object);
        self.exact_match.add(judged.exact_match);
        for (pointer, right) in &judged.fields {
            self.fields.add(*right);
            if let Some(counts) = self.counts(pointer) {
                counts.truths += 1;
                counts.right += u64::from(*right);
                let missing = answer.as_ref().is_none_or(|answer| !answer.contains_key(pointer));
                counts.missing += u64::from(missing);
            }
        }
        judged
    }

    fn counts(&mut self, pointer: &str) -> Option<&mut OfField> {
        let at = self.named.iter().position(|(name, _)| name == pointer);
        let at = match at {
            Some(at) => at,
            None if self.named.len() < FIELDS_MAX && pointer.len() <= NAME_BYTES_MAX => {
                self.named.push((pointer.to_owned(), OfField::default()));
                self.named.len() - 1
            }
            None => return None,
        };
        Some(&mut self.named[at].1)
    }

    /// The first [`FIELDS_MAX`] fields by their pointers, such as `/shape`, in the order in which they occurred.
    pub fn named(&self) -> impl Iterator<Item = (&str, &OfField)> {
        self.named.iter().map(|(name, counts)| (name.as_str(), counts))
    }
}

impl OfField {
    /// Right ones in per cent.
    pub fn percent(&self) -> Option<f64> {
        Share { right: self.right, of: self.truths }.percent()
    }
}

/// A value that has no others in it.
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

/// Whole numbers exactly, others as 64-bit floats: 2 is 2.0.
fn same(one: &Number, other: &Number) -> bool {
    let whole = |number: &Number| number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from));
    match (whole(one), whole(other)) {
        (Some(one), Some(other)) => one == other,
        _ => one.as_f64() == other.as_f64(),
    }
}

/// The leaves of a text by their pointers; `None` where it is not one object, or a key occurs twice.
fn leaves(text: &str) -> Option<BTreeMap<String, Leaf>> {
    let Tree::Object(members) = serde_json::from_str(text).ok()? else { return None };
    let mut leaves = BTreeMap::new();
    // The object itself is no field, even if it is empty.
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

/// A JSON value without a key that occurs twice in an object.
enum Tree {
    Leaf(Leaf),
    List(Vec<Tree>),
    Object(BTreeMap<String, Tree>),
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OfAny;
        impl<'de> Visitor<'de> for OfAny {
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
                let number = Number::from_f64(value).ok_or_else(|| E::custom("a number that is none"))?;
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
                        return Err(A::Error::custom("a key occurs twice"));
                    }
                }
                Ok(Tree::Object(members))
            }
        }
        deserializer.deserialize_any(OfAny)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRUTH: &str = r#"{"shape":"circle","size":2,"mark":null}"#;

    /// The case of the design, counted by hand.
    #[test]
    fn the_hand_case_gives_what_was_counted_by_hand() {
        let mut all = Fields::default();
        let right = |judged: &Judged| judged.fields.iter().filter(|(_, right)| *right).count();
        for (said, expected, valid, exact) in [
            (r#"{"shape":"circle","size":2.0,"mark":null}"#, 3, true, true),
            (r#"{"shape":"circle","size":"2"}"#, 1, true, false),
            (r#"{"shape": "circle","#, 0, false, false),
            (r#"{"shape":"circle","size":2,"mark":null,"more":1}"#, 3, true, false),
        ] {
            let judged = all.add(said, TRUTH);
            assert_eq!((right(&judged), judged.valid_json, judged.exact_object), (expected, valid, exact), "{said}");
        }
        assert_eq!(all.fields, Share { right: 7, of: 12 });
        assert!((all.fields.percent().unwrap() - 58.33).abs() < 0.01);
        assert_eq!((all.valid_json.percent(), all.exact_object.percent()), (Some(75.0), Some(25.0)));
        assert_eq!(all.exact_match.percent(), Some(0.0));
        let named: Vec<(&str, OfField)> = all.named().map(|(name, counts)| (name, *counts)).collect();
        let of = |right, missing| OfField { truths: 4, right, missing };
        assert_eq!(named, [("/mark", of(2, 2)), ("/shape", of(3, 1)), ("/size", of(2, 1))]);
    }

    #[test]
    fn a_field_is_right_by_type_and_value_at_its_place() {
        let right = |said: &str, truth: &str| judge(said, truth).fields.iter().all(|(_, right)| *right);
        for (said, truth, expected) in [
            (r#"{"a":1e0}"#, r#"{"a":1}"#, true),
            (r#"{"a":0.5}"#, r#"{"a":5e-1}"#, true),
            // One more than a 64-bit float tells apart.
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
            assert_eq!(right(said, truth), expected, "{said} {truth}");
        }
        // A place is a place, not a text: `a/b` is another field than `b` in `a`.
        assert!(!right(r#"{"a/b":1}"#, r#"{"a":{"b":1}}"#));
    }

    #[test]
    fn a_plain_answer_has_no_fields_and_may_match() {
        let mut all = Fields::default();
        all.add(" yes\n", "yes");
        all.add("no", "yes");
        assert_eq!((all.exact_match.percent(), all.fields.percent()), (Some(50.0), None));
        assert_eq!(all.valid_json.percent(), Some(0.0));
    }

    #[test]
    fn an_empty_object_is_exact_and_has_no_field() {
        let judged = judge("{ }", "{}");
        assert!(judged.exact_object && judged.valid_json && judged.fields.is_empty());
    }

    #[test]
    fn no_more_than_the_first_fields_are_counted_apart() {
        let truth: Vec<String> = (0..40).map(|field| format!("\"f{field:02}\":1")).collect();
        let truth = format!("{{{}}}", truth.join(","));
        let mut all = Fields::default();
        (0..3).for_each(|_| drop(all.add(&truth, &truth)));
        all.add("{}", &format!("{{\"{}\":1}}", "x".repeat(1000)));
        assert_eq!((all.named().count(), all.fields), (FIELDS_MAX, Share { right: 120, of: 121 }));
        assert!(all.named().all(|(_, counts)| counts.percent() == Some(100.0)));
    }
}
