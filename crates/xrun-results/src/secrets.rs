//! Masking of secrets in recorded texts: command lines, logs, patches. Each becomes `***`.
//!
//! Two kinds of names mark their value as a secret. Some words do so anywhere in a name, also without separators:
//! `password`, `passwd`, `passphrase`, `secret`, `credential`, `apikey`, `accesskey`, `privatekey`. Others are
//! ambiguous: `auth` counts as a whole word, `token` as the last word or its end (`--hf-token`, `--hftoken`) unless
//! the word before makes it harmless (`--pad-token`), and `key` only after a word for what it opens (`WANDB_KEY`). A
//! last word `env`, `name`, `type`, `method`, `file` or `path` marks none. Words are separated by `-`, `_`, `.` and
//! by a capital after a lower-case letter. So `--tokenizer`, `--max-tokens`, `--key` and `--author` are kept;
//! numbers, `true` and `false` are masked only after names of the first kind. In free text, an expression counts as
//! code only if it has spaces around its operator.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex_lite::Regex;
use serde_json::Value;

/// Replacement for a secret.
pub const MASK: &str = "***";

/// Parts of names that mark a secret anywhere.
const SECRET_PARTS: &[&str] =
    &["password", "passwd", "passphrase", "secret", "credential", "apikey", "accesskey", "privatekey"];
/// Last words of names that mark a secret.
const SECRET_LAST_WORDS: &[&str] = &["pat", "pass", "pwd", "creds", "jwt", "cookie", "cookies", "token", "tokens"];
/// Words of names that mark a secret.
const SECRET_WORDS: &[&str] = &["auth", "oauth", "authorization", "bearer"];
/// Last words of names that describe a secret (its location or kind) without being one.
const DESCRIPTIVE_LAST_WORDS: &[&str] = &["env", "name", "type", "method", "mode", "file", "path"];
/// Words that make a following `token` harmless.
const HARMLESS_TOKEN_WORDS: &str = "added audio begin blank boi bos caption class cls concept decoder end eod eoi eos eot first forced \
    image img initializer input instance label last loss mask max metric middle min modifier new next num output pad padding per \
    placeholder prefix prompt public response sample second sentinel sep separator single special split start stop suffix \
    target text think trigger unk unknown val video";
/// Words that make a following `key` a secret.
const KEY_WORDS: &str = "access account admin anthropic api app auth aws azure client cohere comet crypt decryption deploy \
    encryption gcp gemini github gitlab google groq hf hmac huggingface kaggle license master mistral mlflow neptune ngc \
    openai private root secret security service signature signing ssh storage subscription wandb";

fn is_among(list: &str, word: &str) -> bool {
    list.split(' ').any(|one| one == word)
}

/// Confidence that a value is a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Confidence {
    Possible,
    Certain,
}

fn name_words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut after_lowercase = false;
    for letter in name.chars() {
        if !letter.is_alphanumeric() || (letter.is_uppercase() && after_lowercase) {
            words.push(String::new());
        }
        if letter.is_alphanumeric() {
            words.last_mut().into_iter().for_each(|word| word.extend(letter.to_lowercase()));
        }
        after_lowercase = letter.is_lowercase();
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Confidence that the value of a name is a secret; `None` if it is not.
fn name_confidence(name: &str) -> Option<Confidence> {
    let words = name_words(name);
    let (last, before) = words.split_last()?;
    if DESCRIPTIVE_LAST_WORDS.contains(&last.as_str()) {
        return None;
    }
    let concatenated = words.concat().replace("secretar", "");
    if SECRET_PARTS.iter().any(|part| concatenated.contains(part)) {
        return Some(Confidence::Certain);
    }
    let before = before.last().map_or("", String::as_str);
    let qualifier =
        |rest: &'static str| last.strip_suffix(rest).map(|start| if start.is_empty() { before } else { start });
    let key = qualifier("key").or_else(|| qualifier("keys")).is_some_and(|word| is_among(KEY_WORDS, word));
    let token = match qualifier("token").or_else(|| qualifier("tokens")) {
        Some(word) => !is_among(HARMLESS_TOKEN_WORDS, word),
        None => SECRET_LAST_WORDS.contains(&last.as_str()) && !is_among(HARMLESS_TOKEN_WORDS, before),
    };
    let word = words.iter().any(|word| SECRET_WORDS.contains(&word.as_str()));
    (key || token || word).then_some(Confidence::Possible)
}

fn is_key(name: &str) -> bool {
    name.to_ascii_lowercase().ends_with("key")
}

/// Returns `true` for a text in the format of a hexadecimal key, such as the 40 digits of W&B's.
fn is_hexadecimal(value: &str) -> bool {
    value.len() >= 32 && value.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn is_number_or_constant(value: &str) -> bool {
    is_number(value) || is_constant(value)
}

fn is_number(value: &str) -> bool {
    value.parse::<f64>().is_ok()
}

fn is_constant(value: &str) -> bool {
    ["true", "false", "none", "null", "auto"].iter().any(|plain| value.eq_ignore_ascii_case(plain))
}

/// Returns `true` for a text that only names the location of a secret: `$NAME`, `${NAME}`, `{name}`.
fn is_placeholder(value: &str) -> bool {
    let braced = value.strip_prefix('$').unwrap_or(value);
    let name = braced.strip_prefix('{').and_then(|name| name.strip_suffix('}'));
    let name = name.or_else(|| value.strip_prefix('$')).unwrap_or_default();
    !name.is_empty() && name.chars().all(|letter| letter.is_alphanumeric() || "_.".contains(letter))
}

/// Masks the value of an option, an environment variable or a table's key.
pub fn mask_value<'a>(name: &str, value: &'a str) -> Cow<'a, str> {
    match name_confidence(name) {
        _ if value.is_empty() || is_placeholder(value) => value.into(),
        Some(Confidence::Certain) => MASK.into(),
        Some(Confidence::Possible) if !is_number_or_constant(value) => MASK.into(),
        None if is_key(name) && is_hexadecimal(value) => MASK.into(),
        _ => mask_text(value).into(),
    }
}

/// Masks a command line, one argument per entry.
pub fn mask_arguments(words: &[String]) -> Vec<String> {
    let mut masked = Vec::with_capacity(words.len());
    // Option whose value may be the next argument.
    let mut option: Option<&str> = None;
    let mut login = false;
    for word in words {
        let pending_option = option.take();
        let (dashes, rest) = word.split_at(word.len() - word.trim_start_matches('-').len());
        masked.push(match (pending_option, rest.split_once('=')) {
            (Some(name), _) if dashes.is_empty() => mask_value(name, word).into_owned(),
            (_, Some((name, rest))) if is_name(name) => format!("{dashes}{name}={}", mask_value(name, rest)),
            _ => mask_text(word),
        });
        // `wandb login KEY`, also with options between.
        login |= rest == "login";
        let is_option = !dashes.is_empty() && is_name(rest);
        option = if is_option { Some(rest) } else { login.then_some("login-token") };
        if login && is_option && name_confidence(rest).is_none() {
            option = Some("login-token");
        }
        login &= is_option || rest == "login";
    }
    masked
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|letter| letter.is_alphanumeric() || "-_.".contains(letter))
}

/// Masks the values of a table by their keys, also in nested tables, and then their other occurrences in the table. A
/// list of strings is treated as a command line.
pub fn mask_table(table: &mut Value) {
    let mut found = Vec::new();
    mask_in_place("", table, &mut found);
    if !found.is_empty() {
        mask_occurrences(table, &found);
    }
}

/// Minimum length of a secret that is masked elsewhere; shorter ones occur by chance.
const KNOWN_SECRET_BYTES_MIN: usize = 6;

/// Masks a known secret in a text where it is a whole word.
pub fn mask_known(text: &str, secret: &str) -> String {
    if secret.len() < KNOWN_SECRET_BYTES_MIN || is_number_or_constant(secret) {
        return text.to_owned();
    }
    let is_word_letter = |letter: Option<char>| letter.is_some_and(|letter| letter.is_alphanumeric() || letter == '_');
    let (mut masked, mut copied) = (String::with_capacity(text.len()), 0);
    for (at, _) in text.match_indices(secret) {
        let end = at + secret.len();
        if !is_word_letter(text[..at].chars().next_back()) && !is_word_letter(text[end..].chars().next()) {
            masked.extend([&text[copied..at], MASK]);
            copied = end;
        }
    }
    masked + &text[copied..]
}

fn mask_occurrences(given: &mut Value, secrets: &[String]) {
    match given {
        Value::String(text) => secrets.iter().for_each(|secret| *text = mask_known(text, secret)),
        Value::Array(all) => all.iter_mut().for_each(|one| mask_occurrences(one, secrets)),
        Value::Object(keys) => keys.values_mut().for_each(|inner| mask_occurrences(inner, secrets)),
        _ => {}
    }
}

fn mask_in_place(name: &str, given: &mut Value, found: &mut Vec<String>) {
    match given {
        Value::String(text) => {
            let masked = mask_value(name, text).into_owned();
            if masked == MASK {
                found.push(text.clone());
            }
            *text = masked;
        }
        Value::Array(all) => {
            let texts: Option<Vec<String>> = all.iter().map(|one| one.as_str().map(str::to_owned)).collect();
            match texts {
                Some(texts) => *all = mask_arguments(&texts).into_iter().map(Value::String).collect(),
                None => all.iter_mut().for_each(|one| mask_in_place(name, one, found)),
            }
        }
        Value::Object(keys) => keys.iter_mut().for_each(|(key, inner)| mask_in_place(key, inner, found)),
        Value::Number(_) if name_confidence(name) == Some(Confidence::Certain) => *given = MASK.into(),
        _ => {}
    }
}

/// Masks the text of an experiment. A text without secrets, or that is not TOML, is returned unchanged.
pub fn mask_experiment(text: &str) -> Cow<'_, str> {
    let Ok(written) = toml::from_str::<Value>(text) else { return text.into() };
    let mut masked = written.clone();
    mask_table(&mut masked);
    match masked == written {
        true => text.into(),
        false => toml::to_string(&masked).map_or(MASK.into(), Cow::Owned),
    }
}

/// Token formats: Hugging Face, npm, Replicate, PyPI, GitHub, GitLab, AWS, OpenAI and Anthropic, Slack, Google, JSON
/// web tokens.
const TOKEN_PATTERN: &str = r"\b(hf_[A-Za-z0-9]{20,}|npm_[A-Za-z0-9]{20,}|r8_[A-Za-z0-9]{20,}|pypi-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,}|(AKIA|ASIA)[0-9A-Z]{16}|sk-[A-Za-z0-9_-]{20,}|xox[a-z]-[A-Za-z0-9-]{8,}|AIza[A-Za-z0-9_-]{35}|eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+)";
/// Prefixes, one of which each token has.
const TOKEN_PREFIXES: &[&str] = &[
    "hf_",
    "npm_",
    "r8_",
    "pypi-",
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "AKIA",
    "ASIA",
    "sk-",
    "xox",
    "AIza",
    "eyJ",
];
const KEY_BLOCK: &str = r"(?s)(-----BEGIN [A-Z ]*PRIVATE KEY-----).*?(-----END|$)";
const ADDRESS: &str = r#"\b([A-Za-z][A-Za-z0-9+.-]*://)([^\s/'"<>]*:[^\s/'"<>]*|[^\s/'"<>:@]{16,})@"#;
const LOGIN: &str = r#"(\bwandb[ \t]+login[ \t]+(?:--?[^\s"']+[ \t]+)*)[^\s"'&;|-][^\s"'&;|]*"#;

struct Patterns {
    token: Regex,
    key_block: Regex,
    address: Regex,
    login: Regex,
}

/// Never `None`: a test compiles the patterns.
static PATTERNS: LazyLock<Option<Patterns>> = LazyLock::new(|| {
    Some(Patterns {
        token: Regex::new(TOKEN_PATTERN).ok()?,
        key_block: Regex::new(KEY_BLOCK).ok()?,
        address: Regex::new(ADDRESS).ok()?,
        login: Regex::new(LOGIN).ok()?,
    })
});

/// Masks secrets in any text, including source code and shell commands.
pub fn mask_text(text: &str) -> String {
    let Some(patterns) = PATTERNS.as_ref() else { return MASK.into() };
    let mut text = Cow::Borrowed(text);
    // Searching for a substring is far faster than matching a pattern.
    for (parts, pattern, by) in [
        (&["PRIVATE KEY-----"][..], &patterns.key_block, "${1}***${2}"),
        (&["://"], &patterns.address, "${1}***@"),
        (TOKEN_PREFIXES, &patterns.token, MASK),
        (&["wandb"], &patterns.login, "${1}***"),
    ] {
        if parts.iter().any(|part| text.contains(part)) {
            text = pattern.replace_all(&text, by).into_owned().into();
        }
    }
    let (mut masked, mut copied, mut at) = (String::with_capacity(text.len()), 0, 0);
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    while let Some(start) = text.as_bytes()[at..].iter().position(|&byte| letter(byte)).map(|skipped| at + skipped) {
        let rest = &text.as_bytes()[start..];
        let end = start + rest.iter().position(|&byte| !letter(byte)).unwrap_or(rest.len());
        at = end;
        if let Some((from, to)) = secret_after(&text, start, end) {
            masked.extend([&text[copied..from], MASK]);
            (copied, at) = (to, to);
        }
    }
    masked + &text[copied..]
}

/// Maximum length of a name or an expression.
const WORD_BYTES_MAX: usize = 4096;
const SCHEMES: &[&str] = &["bearer", "basic", "token", "digest"];
const TYPES: &[&str] = &["str", "bytes", "string", "String", "&str", "Any", "Optional[str]", "str | None"];

/// Range of the secret that follows a name at `start..end`.
fn secret_after(text: &str, start: usize, end: usize) -> Option<(usize, usize)> {
    let name = &text[start..end];
    let is_removed_line = start == 0 || text[..start].ends_with('\n');
    let option = name.starts_with("--") || (name.starts_with('-') && !is_removed_line);
    let after = text[end..].trim_start_matches('\\');
    let after = after.strip_prefix(['"', '\'']).unwrap_or(after);
    let quoted_name = after.len() < text.len() - end;
    let after = after.strip_prefix(']').unwrap_or(after);
    let sign = after.trim_start_matches([' ', '\t']);
    let gap = sign.len() < after.len();
    let signs = [":=", "==", "=>", "=", ":"];
    let found = signs.iter().find(|one| sign.starts_with(**one)).copied();
    let after_sign = match found {
        Some(found) => &sign[found.len()..],
        None if quoted_name && sign.starts_with(',') => &sign[1..],
        None if option && gap => sign,
        None => return None,
    };
    let known = name_confidence(name);
    // After a bare `key` only a value in the format of a key counts, such as that of W&B.
    let sure = known.or_else(|| is_key(name).then_some(Confidence::Possible))?;
    let mut given = after_sign.trim_start_matches([' ', '\t']);
    let has_spaces = gap && given.len() < after_sign.len();
    let is_literal =
        |text: &str| text.trim_start_matches(['f', 'r', 'b', 'u', 'F', 'R', 'B', 'U']).starts_with(['"', '\'']);
    if found == Some(":") {
        let typed = TYPES.iter().filter_map(|of| given.strip_prefix(of)?.trim_start_matches(' ').strip_prefix('='));
        given = typed.map(|value| value.trim_start_matches(' ')).find(|value| is_literal(value)).unwrap_or(given);
    }
    if found.is_none() && quoted_name && !is_literal(given) {
        let line: String = given.chars().take(160).take_while(|letter| *letter != '\n').collect();
        given = given[line.find("default=")? + "default=".len()..].trim_start_matches(' ');
        is_literal(given).then_some(())?;
    }
    if is_literal(given) {
        given = given.trim_start_matches(|letter: char| letter.is_ascii_alphabetic());
    }
    let slashes = given.len() - given.trim_start_matches('\\').len();
    let quote = given[slashes..].chars().next().filter(|quote| ['"', '\''].contains(quote));
    let (from, value) = match quote {
        Some(quote) => {
            let triple = quote.to_string().repeat(3);
            let mark = if given.starts_with(&triple) { triple } else { given[..=slashes].to_owned() };
            let inside = &given[mark.len()..];
            let mut escaped = false;
            let end = inside.char_indices().find(|&(at, letter)| {
                let ends = (!escaped && inside[at..].starts_with(&mark)) || (mark.len() < 3 && letter == '\n');
                escaped = letter == '\\' && !escaped;
                ends
            });
            (text.len() - inside.len(), &inside[..end.map_or(inside.len(), |(at, _)| at)])
        }
        None => (text.len() - given.len(), unquoted_value(name, given)),
    };
    let is_upper_case = found.is_some() && !name.chars().any(char::is_lowercase);
    let is_expression = quote.is_none() && has_spaces && value.contains(['(', '[', '{', '$', '.', '<', '*']);
    let is_long = value.len() >= 8 && (value.contains(|letter: char| letter.is_ascii_digit()) || value.contains(' '));
    let typed =
        quote.is_none() && found == Some(":") && TYPES.iter().any(|of| value.trim_end_matches([')', ':']) == *of);
    let is_long = is_long || (quote.is_some() && value.len() >= 16) || value.len() > WORD_BYTES_MAX;
    let is_harmless =
        value.is_empty() || value == MASK || is_placeholder(value) || is_constant(value) || typed || is_expression;
    let number = is_number(value) && (sure == Confidence::Possible || has_spaces);
    let is_masked = match known {
        None => is_hexadecimal(value),
        Some(_) => sure == Confidence::Certain || is_upper_case || option || is_long,
    };
    let negative = found.is_none() && value.starts_with('-');
    (is_masked && !is_harmless && !number && !negative).then_some((from, from + value.len()))
}

/// Unquoted value at the beginning of a text: a word, with its scheme, or the rest of the line for a header.
fn unquoted_value<'a>(name: &str, given: &'a str) -> &'a str {
    let lower = name.to_ascii_lowercase();
    let header = lower.ends_with("authorization") || lower == "cookie";
    let begins = |scheme: &&&str| {
        let word = given.get(..=scheme.len()).and_then(|word| word.strip_suffix(' '));
        word.is_some_and(|word| word.eq_ignore_ascii_case(scheme))
    };
    let from = SCHEMES.iter().find(begins).map_or(0, |scheme| scheme.len() + 1);
    let ends = |letter: char| match header {
        true => "\"'\n".contains(letter),
        false => letter.is_whitespace() || "\"'&;,".contains(letter),
    };
    let end = given[from..].find(ends).map_or(given.len(), |end| from + end);
    given[..end].trim_end_matches(['\\', '}', ']', ')', '\r'])
}

/// Returns `true` if a file is likely to hold secrets by its name: `.env*`, `*.env`, `*.pem`, `*.key`, `*secret*` and
/// similar.
pub fn is_secret_file(path: &str) -> bool {
    let lower = path.to_lowercase();
    let name = lower.rsplit('/').next().unwrap_or_default();
    let begins =
        [".env", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", ".netrc", ".npmrc", ".pypirc", ".htpasswd", ".pgpass"];
    let ends = [".env", ".pem", ".key", ".p12", ".pfx", ".jks", ".keystore", ".kdbx"];
    begins.iter().any(|begin| name.starts_with(begin))
        || ends.iter().any(|end| name.ends_with(end))
        // Also matches directories.
        || ["secret", "credential", "password"].iter().any(|part| lower.contains(part))
        || lower.split('/').any(|part| [".ssh", ".aws", ".gnupg"].contains(&part))
}

#[cfg(test)]
mod tests;
