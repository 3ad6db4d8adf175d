//! How does text that others wrote (names of classes, files, folders) become harmless on a terminal and in a shell?
//!
//! Escape sequences could repaint or reprogram a terminal, and direction marks could swap the order of what is read.

/// One line of at most `characters_max` characters. Control characters, line breaks and direction marks become `\u{…}`
/// escapes; what is cut off is marked by `…`.
pub fn line(text: &str, characters_max: usize) -> String {
    let mut shown = String::new();
    let mut characters = 0;
    for character in text.chars() {
        let escaped = dangerous(character).then(|| character.escape_unicode().to_string());
        let length = escaped.as_ref().map_or(1, String::len);
        if characters + length > characters_max {
            // Room for the mark.
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

/// Several lines: line breaks and tabs stay, the rest is as in [`line`].
pub fn lines(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' | '\t' => shown.push(character),
            _ if dangerous(character) => shown.extend(character.escape_unicode()),
            _ => shown.push(character),
        }
    }
    shown
}

/// Whether a character controls a terminal, or the order of what is read, or cannot be seen.
pub fn dangerous(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{061c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// A word as a shell takes it literally.
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
    fn commands_can_be_pasted_into_a_shell_whatever_the_names() {
        assert_eq!(shell_word("experiments/stage2.toml"), "experiments/stage2.toml");
        assert_eq!(shell_word("a b; rm -rf $HOME"), "'a b; rm -rf $HOME'");
        assert_eq!(shell_word("it's"), "'it'\\''s'");
        assert_eq!(shell_word(""), "''");
    }

    #[test]
    fn escape_sequences_and_direction_marks_lose_their_power() {
        assert_eq!(line("a\u{1b}[2Jb", 80), "a\\u{1b}[2Jb");
        assert_eq!(line("two\nlines", 80), "two\\u{a}lines");
        assert_eq!(line("exe\u{202e}gpj", 80), "exe\\u{202e}gpj");
        assert_eq!(line("Größe 猫", 80), "Größe 猫");
        assert_eq!(lines("a\n\u{9b}2J"), "a\n\\u{9b}2J");
    }

    proptest! {
        #[test]
        fn no_line_is_longer_than_asked_for_or_holds_a_control_character(text in any::<String>(), most in 1usize..40) {
            let shown = line(&text, most);
            prop_assert!(shown.chars().count() <= most);
            prop_assert!(!shown.chars().any(dangerous));
        }
    }
}
