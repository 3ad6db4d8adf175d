//! Tests of the classes of bytes, by hand and with random texts.

use proptest::prelude::*;

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
        (r#"{"a": "b c", "n": 3}"#, Some("SSKSSSSVVVESSSKSSSVE")),
        (r#"{"m":null,"t":true }"#, Some("SSKSS0000ESKSSVVVVES")),
        (r#"[1, "", -2.5e+3]"#, Some("SVESSESSVVVVVVVE")),
        (r#" {"é\"":{}} "#, Some("SSSKKKKSSSSSS")),
        ("\"\\u00e9\"", Some("SVVVVVVE")),
        ("12", Some("VV")),
        ("[]", Some("SS")),
        ("", None),
        ("{\"a\"}", None),
        ("[1,]", None),
        ("red", None),
        ("1 2", None),
    ] {
        assert_eq!(letters(text).as_deref(), expected, "{text}");
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
    let fields = scan(text).unwrap().value_spans;
    let found: Vec<&str> = fields.iter().map(|field| &text[field.clone()]).collect();
    assert_eq!(found, ["b c\"", "1,", "{}", "3}"]);
    assert_eq!(scan("12").unwrap().value_spans, [Range { start: 0, end: 3 }]);
}

/// Random JSON text with escapes, multi-byte characters and white space.
pub(crate) fn json() -> impl Strategy<Value = String> {
    const QUOTED: &str = r#""([ -!#-\[\]-~а-я日😀]|\\["\\/bn]|\\u00E9){0,6}""#;
    let number = "-?(0|[1-9][0-9]{0,4})(\\.[0-9]{1,3})?([eE][+-]?[0-9]{1,2})?";
    prop_oneof![QUOTED, number, "true|false|null"].prop_recursive(4, 24, 4, |inner| {
        let member = (QUOTED, "[ \n]{0,2}", inner.clone());
        let member = member.prop_map(|(key, space, value)| format!("{space}{key}:{space}{value}{space}"));
        prop_oneof![
            prop::collection::vec(member, 0..4).prop_map(|members| format!("{{{}}}", members.join(","))),
            prop::collection::vec(inner, 0..4).prop_map(|items| format!("[{}]", items.join(", "))),
        ]
    })
}

proptest! {
    #[test]
    fn fields_do_not_overlap(text in json()) {
        let fields = scan(&text).unwrap().value_spans;
        prop_assert!(fields.windows(2).all(|pair| pair[0].end <= pair[1].start));
        prop_assert!(fields.iter().all(|field| field.start < field.end && field.end <= text.len() + 1));
    }
}
