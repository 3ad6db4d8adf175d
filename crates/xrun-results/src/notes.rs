//! What people write down of a run: notes and tags. Beside its records, which they never change.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `notes.json`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Notes {
    /// The version of this record's format.
    pub version: u32,
    /// Oldest first.
    pub notes: Vec<Note>,
    /// Sorted.
    pub tags: Vec<String>,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Note {
    /// RFC 3339, UTC.
    pub time: String,
    /// What was written, as it was typed.
    pub text: String,
}

/// More notes are refused.
pub const NOTES_MAX: usize = 1000;
/// As are longer ones.
pub const CHARACTERS_MAX: usize = 4000;
/// And more tags.
pub const TAGS_MAX: usize = 64;

/// Why a tag is refused; `None` for one that is in order: it is typed on command lines.
pub fn wrong_tag(tag: &str) -> Option<&'static str> {
    let allowed = |character: char| character.is_alphanumeric() || "-_.:".contains(character);
    match tag {
        "" => Some("is empty"),
        long if long.chars().count() > 60 => Some("has more than 60 characters"),
        odd if !odd.chars().all(allowed) => Some("has other characters than letters, digits, `-`, `_`, `.` and `:`"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_a_word() {
        assert_eq!(["paper", "v1.2", "größer", "a:b"].map(wrong_tag), [None; 4]);
        assert!(["", "two words", "a\u{1b}b", "x,y"].iter().all(|tag| wrong_tag(tag).is_some()));
        assert!(wrong_tag(&"x".repeat(61)).is_some());
    }
}
