//! Masking of tokens by the text of each token alone: an older rule, for comparison.
//!
//! Source: <https://github.com/leokeba/model-garden> (`selective_loss.py`). The text of a token does not show whether it is
//! structure: the rule also masks the comma of "Paris, France", the value "string" and the ends of values.

/// Words that name the type of a value.
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
/// Maximum number of tokens of a key.
const KEY_TOKENS_MAX: usize = 10;

/// Returns whether a token is masked: it has only punctuation and space, names a type, or contains a word of JSON Schema.
pub fn is_masked(token: &str) -> bool {
    let marks = |character: char| "{}[]:,\" \n\t\r".contains(character);
    let bare = token.trim();
    let is_type = || TYPES.contains(&bare.to_lowercase().as_str());
    let words = || bare.split(|character: char| !character.is_alphanumeric() && character != '_');
    token.chars().all(marks) || bare.is_empty() || is_type() || words().any(|word| SCHEMA.contains(&word))
}

/// Masks all sequences of tokens that read like one of `keys`, wherever they occur.
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
