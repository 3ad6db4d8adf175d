//! User notes and tags of a run, stored next to its records, which stay unchanged.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `notes.json`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Notes {
    /// The version of this record's format.
    pub version: u32,
    /// Notes, oldest first.
    pub notes: Vec<Note>,
    /// Tags, sorted.
    pub tags: Vec<String>,
}

/// A note.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Note {
    /// Time: RFC 3339, UTC.
    pub time: String,
    /// Text as it was typed.
    pub text: String,
}

/// Maximum number of notes.
pub const NOTES_MAX: usize = 1000;
/// Maximum number of characters of a note.
pub const CHARACTERS_MAX: usize = 4000;
/// Maximum number of tags.
pub const TAGS_MAX: usize = 64;

/// Reason why a tag is invalid (it must be usable on command lines); `None` for a valid one.
pub fn tag_error(tag: &str) -> Option<&'static str> {
    let allowed = |character: char| character.is_alphanumeric() || "-_.:".contains(character);
    match tag {
        "" => Some("is empty"),
        long if long.chars().count() > 60 => Some("has more than 60 characters"),
        odd if !odd.chars().all(allowed) => Some("may contain only letters, digits, `-`, `_`, `.` and `:`"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_a_word() {
        assert_eq!(["paper", "v1.2", "größer", "a:b"].map(tag_error), [None; 4]);
        assert!(["", "two words", "a\u{1b}b", "x,y"].iter().all(|tag| tag_error(tag).is_some()));
        assert!(tag_error(&"x".repeat(61)).is_some());
    }
}
