//! Which tokens of an answer would be masked by the text of each token alone? An older rule, for comparison.
//!
//! It comes from <https://github.com/leokeba/model-garden> (`selective_loss.py`). A token's text does not say whether it is
//! structure: the comma of "Paris, France" and the value "string" are masked, and so is what ends a value.

/// Words that say what type a value has.
const TYPES: [&str; 7] = ["object", "array", "string", "number", "integer", "boolean", "null"];
/// Words of JSON Schema.
const SCHEMA: [&str; 20] = [
    "definitions",
    "type",
    "properties",
    "items",
    "required",
    "additionalProperties",
    "enum",
    "const",
    "anyOf",
    "oneOf",
    "allOf",
    "not",
    "minimum",
    "maximum",
    "pattern",
    "minItems",
    "maxItems",
    "format",
    "description",
    "default",
];
/// Tokens that may make up a key.
const KEY_TOKENS_MAX: usize = 10;

/// Whether a token is masked by its text alone: only marks and space, a word for a type, or a text with a word of JSON Schema.
pub fn is_masked(token: &str) -> bool {
    let marks = |character: char| "{}[]:,\" \n\t\r".contains(character);
    let bare = token.trim();
    let is_type = || TYPES.contains(&bare.to_lowercase().as_str());
    let words = || bare.split(|character: char| !character.is_alphanumeric() && character != '_');
    token.chars().all(marks) || bare.is_empty() || is_type() || words().any(|word| SCHEMA.contains(&word))
}

/// Masks also all tokens that together read like one of these keys, wherever they stand.
pub fn mask_keys(tokens: &[String], keys: &[&str], masked: &mut [bool]) {
    for begin in 0..tokens.len() {
        for end in begin + 1..=tokens.len().min(begin + KEY_TOKENS_MAX) {
            let text = tokens[begin..end].concat();
            let bare = text.trim();
            let inside = bare.strip_prefix('"').and_then(|bare| bare.strip_suffix('"')).unwrap_or(bare);
            if keys.iter().any(|key| *key == bare || *key == inside) {
                masked[begin..end].fill(true);
            }
        }
    }
}
