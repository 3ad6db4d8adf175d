//! Is a JSON file an object, as it must be? Serde reads a record from a list, too, and its message then says the opposite.

/// Refuses a list; `expected` completes "expected …". Of any other text the parser has the better word.
///
/// # Errors
/// It is a list, and what was expected.
pub fn object_with(text: &[u8], expected: &str) -> Result<(), String> {
    match text.iter().find(|byte| !byte.is_ascii_whitespace()) {
        Some(b'[') => Err(format!("begins with `[`, a list; expected {expected}")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_called_a_list() {
        let said = |text: &str| object_with(text.as_bytes(), "an object").err();
        assert_eq!(said(" \n[{}]").as_deref(), Some("begins with `[`, a list; expected an object"));
        assert_eq!((said(" {"), said(""), said("<xml>")), (None, None, None));
    }
}
