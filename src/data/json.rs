//! Is a JSON file an object, as it must be? Serde reads a record from a list, too, and its message then says the opposite.

/// Refuses a text that begins as anything but an object; `expected` completes "expected …". Of an empty text the parser
/// has a better word.
///
/// # Errors
/// What it begins with, and what was expected.
pub fn object_with(text: &[u8], expected: &str) -> Result<(), String> {
    let first = text.iter().find(|byte| !byte.is_ascii_whitespace());
    let found = match first {
        None | Some(b'{') => return Ok(()),
        Some(b'[') => "begins with `[`, a list".to_owned(),
        Some(byte) if byte.is_ascii_graphic() => format!("begins with `{}`", char::from(*byte)),
        Some(_) => "does not begin as JSON does".to_owned(),
    };
    Err(format!("{found}; expected {expected}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_called_a_list() {
        let said = |text: &str| object_with(text.as_bytes(), "an object").err();
        assert_eq!(said(" \n[{}]").as_deref(), Some("begins with `[`, a list; expected an object"));
        assert_eq!(said("<xml>").as_deref(), Some("begins with `<`; expected an object"));
        assert_eq!(said("\u{1}").as_deref(), Some("does not begin as JSON does; expected an object"));
        assert_eq!((said(" {"), said("")), (None, None));
    }
}
