//! Escaping of untrusted text (names of classes, files, directories) for terminals and shells.
//!
//! Escape sequences could repaint or reprogram a terminal, and bidirectional marks could reorder what is read.

use std::borrow::Cow;

/// Text as one line of at most `characters_max` characters. Control characters, line breaks and bidirectional marks become
/// `\u{…}` escapes; `…` marks what was cut off.
pub fn line(text: &str, characters_max: usize) -> String {
    let mut shown = String::new();
    let mut characters = 0;
    for character in text.chars() {
        let escaped = dangerous(character).then(|| character.escape_unicode().to_string());
        let length = escaped.as_ref().map_or(1, String::len);
        if characters + length > characters_max {
            // Makes room for the mark.
            while characters + 1 > characters_max && shown.pop().is_some() {
                characters -= 1;
            }
            shown.push('…');
            break;
        }
        characters += length;
        match escaped {
            Some(escaped) => shown.push_str(&escaped),
            None => shown.push(character),
        }
    }
    shown
}

/// Text of any length with every dangerous character escaped, line breaks included.
pub fn escape(text: &str) -> Cow<'_, str> {
    escape_where(text, dangerous)
}

/// Text with the same escapes, except that line breaks and tabs stay.
pub fn lines(text: &str) -> String {
    escape_where(text, |character| dangerous(character) && !matches!(character, '\n' | '\t')).into_owned()
}

fn escape_where(text: &str, is_escaped: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match is_escaped(character) {
            true => shown.extend(character.escape_unicode()),
            false => shown.push(character),
        }
    }
    Cow::Owned(shown)
}

/// `true` for control characters, bidirectional marks and invisible characters.
pub fn dangerous(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{061c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// Text quoted as one word of a POSIX shell; unchanged where no quotes are needed.
pub fn shell_word(word: &str) -> String {
    let plain = |character: char| character.is_ascii_alphanumeric() || "-_./=:,+%@~".contains(character);
    if !word.is_empty() && !word.starts_with('~') && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_with_special_characters_are_quoted_for_the_shell() {
        assert_eq!(shell_word("experiments/stage2.toml"), "experiments/stage2.toml");
        assert_eq!(shell_word("a b; rm -rf $HOME"), "'a b; rm -rf $HOME'");
        assert_eq!(shell_word("it's"), "'it'\\''s'");
        assert_eq!(shell_word(""), "''");
    }

    #[test]
    fn escape_sequences_and_bidirectional_marks_are_escaped() {
        assert_eq!(line("a\u{1b}[2Jb", 80), "a\\u{1b}[2Jb");
        assert_eq!(line("two\nlines", 80), "two\\u{a}lines");
        assert_eq!(line("exe\u{202e}gpj", 80), "exe\\u{202e}gpj");
        assert_eq!(line("Größe 猫", 80), "Größe 猫");
        assert_eq!(escape("plain è"), "plain è");
        assert_eq!(escape("\u{1b}[2J\u{202e}\n"), "\\u{1b}[2J\\u{202e}\\u{a}");
        assert_eq!(lines("a\n\u{9b}2J"), "a\n\\u{9b}2J");
    }

    proptest! {
        #[test]
        fn a_line_keeps_its_maximum_and_has_no_control_character(text in any::<String>(), characters_max in 1usize..40) {
            let shown = line(&text, characters_max);
            prop_assert!(shown.chars().count() <= characters_max);
            prop_assert!(!shown.chars().any(dangerous));
        }
    }
}
