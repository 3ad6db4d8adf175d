//! Tests of the scanner against serde_json, with random and damaged texts.

use std::collections::BTreeMap;
use std::marker::PhantomData;

use proptest::prelude::*;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::*;

/// One letter per byte: `S`, `K`, `V`, `0` for a null, `E`.
fn letters(text: &str) -> Option<String> {
    let letter = |class: &ByteClass| match class {
        ByteClass::Structure => 'S',
        ByteClass::Key => 'K',
        ByteClass::Value => 'V',
        ByteClass::Null => '0',
        ByteClass::End => 'E',
    };
    scan(text).map(|scan| scan.classes.iter().map(letter).collect())
}

#[test]
fn bytes_are_classified() {
    for (text, expected) in [
        (r#"{"a": "b c", "n": 3}"#, "SSKSSSSVVVESSSKSSSVE"),
        (r#"{"m":null,"t":true }"#, "SSKSS0000ESKSSVVVVES"),
        (r#"[1, "", -2.5e+3]"#, "SVESSESSVVVVVVVE"),
        (r#" {"é\"":{}} "#, "SSSKKKKSSSSSS"),
        ("\"\\u00e9\"", "SVVVVVVE"),
        ("12", "VV"),
        ("[]", "SS"),
    ] {
        assert_eq!(letters(text).as_deref(), Some(expected), "{text}");
    }
}

#[test]
fn invalid_json_is_refused() {
    for text in [
        "",
        " ",
        "{",
        "{\"a\"}",
        "{\"a\":}",
        "{a:1}",
        "[1,]",
        "{\"a\":1,}",
        "01",
        "1.",
        ".5",
        "-",
        "+1",
        "1e",
        "tru",
        "nulll",
        "\"a",
        "\"\\x\"",
        "\"\\u12g4\"",
        "\"\n\"",
        "1 2",
        "{\"a\":1}x",
        "'a'",
        "NaN",
        "[1 2]",
        "red",
        "\u{a0}1",
    ] {
        assert_eq!(scan(text), None, "{text:?}");
        assert!(serde_json::from_str::<serde_json::Value>(text).is_err(), "{text:?}");
    }
}

#[test]
fn the_maximum_nesting_is_that_of_serde_json() {
    for depth in [126, 127, 128, 100_000] {
        let text = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert_eq!(scan(&text).is_some(), serde_json::from_str::<serde_json::Value>(&text).is_ok(), "{depth}");
    }
}

#[test]
fn fields_are_the_leaves_with_their_end() {
    let text = r#"{"a": "b c", "l": [1, {}], "n": 3}"#;
    let fields = scan(text).unwrap().fields;
    let found: Vec<&str> = fields.iter().map(|field| &text[field.clone()]).collect();
    assert_eq!(found, ["b c\"", "1,", "{}", "3}"]);
    let alone: Vec<_> = scan("12").unwrap().fields;
    assert_eq!(alone, [Range { start: 0, end: 3 }]);
}

/// Keys and values of an object as raw text.
struct Members<'a>(Vec<(&'a RawValue, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OfMap<'a>(PhantomData<&'a ()>);
        impl<'de: 'a, 'a> Visitor<'de> for OfMap<'a> {
            type Value = Members<'a>;

            fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'a>, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(OfMap(PhantomData))
    }
}

/// Classes of the bytes by the positions at which serde_json finds keys and values.
fn by_serde(whole: &str) -> Vec<ByteClass> {
    fn mark(classes: &mut [ByteClass], from: usize, length: usize, class: ByteClass) {
        classes[from..from + length].fill(class);
    }
    fn walk(whole: &str, text: &str, classes: &mut Vec<ByteClass>) {
        let at = |part: &str| part.as_ptr() as usize - whole.as_ptr() as usize;
        match text.as_bytes()[0] {
            b'{' => {
                for (key, value) in serde_json::from_str::<Members>(text).unwrap().0 {
                    mark(classes, at(key.get()) + 1, key.get().len() - 2, ByteClass::Key);
                    walk(whole, value.get(), classes);
                }
            }
            b'[' => {
                for value in serde_json::from_str::<Vec<&RawValue>>(text).unwrap() {
                    walk(whole, value.get(), classes);
                }
            }
            b'"' => {
                mark(classes, at(text) + 1, text.len() - 2, ByteClass::Value);
                mark(classes, at(text) + text.len() - 1, 1, ByteClass::End);
            }
            first => {
                let class = if first == b'n' { ByteClass::Null } else { ByteClass::Value };
                mark(classes, at(text), text.len(), class);
                if at(text) + text.len() < whole.len() {
                    mark(classes, at(text) + text.len(), 1, ByteClass::End);
                }
            }
        }
    }
    let mut classes = vec![ByteClass::Structure; whole.len()];
    walk(whole, serde_json::from_str::<&RawValue>(whole).unwrap().get(), &mut classes);
    classes
}

/// Quoted strings with escapes, surrogates and multi-byte characters.
fn quoted() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        "[ -!#-\\[\\]-~]{0,6}",
        "[а-яé→日本]{0,3}",
        Just("\\\"".to_owned()),
        Just("\\\\".to_owned()),
        Just("\\n\\/\\b".to_owned()),
        Just("\\ud83d\\ude00".to_owned()),
        Just("\\u00E9".to_owned()),
        Just("😀".to_owned()),
    ];
    prop::collection::vec(piece, 0..4).prop_map(|pieces| format!("\"{}\"", pieces.concat()))
}

fn space() -> impl Strategy<Value = String> {
    "[ \n\t\r]{0,2}"
}

/// Random JSON text with random white space.
pub(crate) fn json() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        quoted(),
        "-?(0|[1-9][0-9]{0,4})(\\.[0-9]{1,3})?([eE][+-]?[0-9]{1,2})?",
        Just("true".to_owned()),
        Just("false".to_owned()),
        Just("null".to_owned()),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let member = (space(), quoted(), space(), space(), inner.clone(), space());
        let member = member.prop_map(|(a, key, b, c, value, d)| format!("{a}{key}{b}:{c}{value}{d}"));
        let item = (space(), inner, space()).prop_map(|(a, value, b)| format!("{a}{value}{b}"));
        prop_oneof![
            (prop::collection::vec(member, 0..4), space()).prop_map(|(all, end)| match all.is_empty() {
                true => format!("{{{end}}}"),
                false => format!("{{{}}}", all.join(",")),
            }),
            (prop::collection::vec(item, 0..4), space()).prop_map(|(all, end)| match all.is_empty() {
                true => format!("[{end}]"),
                false => format!("[{}]", all.join(",")),
            }),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn classes_equal_those_by_serde_json(before in space(), text in json(), after in space()) {
        let text = format!("{before}{text}{after}");
        prop_assert_eq!(scan(&text).map(|scan| scan.classes), Some(by_serde(&text)), "{}", text);
    }

    #[test]
    fn a_damaged_text_is_accepted_as_by_serde_json(text in json(), at: prop::sample::Index, with in "[ -~]{0,2}") {
        let mut at = at.index(text.len());
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        let damaged = format!("{}{with}{}", &text[..at], text[at..].chars().skip(1).collect::<String>());
        let theirs = serde_json::from_str::<&RawValue>(&damaged).is_ok();
        prop_assert_eq!(scan(&damaged).is_some(), theirs, "{}", damaged);
    }

    #[test]
    fn fields_do_not_overlap(text in json()) {
        let fields = scan(&text).unwrap().fields;
        let leaves: BTreeMap<usize, usize> = fields.iter().map(|field| (field.start, field.end)).collect();
        prop_assert_eq!(leaves.len(), fields.len());
        prop_assert!(fields.windows(2).all(|pair| pair[0].end <= pair[1].start));
        prop_assert!(fields.iter().all(|field| field.end <= text.len() + 1));
    }
}
