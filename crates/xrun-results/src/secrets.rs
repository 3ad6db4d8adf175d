//! Masking of secrets in recorded texts: command lines, logs, patches. Each becomes `***`.
//!
//! Two kinds of names mark their value as a secret. Some words do so anywhere in a name, also without separators:
//! `password`, `passwd`, `passphrase`, `secret`, `credential`, `apikey`, `accesskey`, `privatekey`. Others are
//! ambiguous: `auth` counts as a whole word, `token` as the last word or its end (`--hf-token`, `--hftoken`) unless
//! the word before makes it harmless (`--pad-token`), and `key` only after a word for what it opens (`WANDB_KEY`). A
//! last word `env`, `name`, `type`, `method`, `file` or `path` marks none. Words are separated by `-`, `_`, `.` and
//! by a capital after a lower-case letter. So `--tokenizer`, `--max-tokens`, `--key` and `--author` are kept;
//! numbers, `true` and `false` are masked only after names of the first kind. In free text, such as a patch, names are
//! those of options and of a shell's variables; literals of source code are kept.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex_lite::{Captures, Regex};
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

fn is_number_or_constant(value: &str) -> bool {
    let is_constant = ["true", "false", "none", "null", "auto"].iter().any(|plain| value.eq_ignore_ascii_case(plain));
    is_constant || value.parse::<f64>().is_ok()
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
    if is_secret(name, value) { MASK.into() } else { mask_text(value).into() }
}

/// Returns `true` if the value of a name is a secret.
fn is_secret(name: &str, value: &str) -> bool {
    match name_confidence(name) {
        _ if value.is_empty() || is_placeholder(value) => false,
        Some(Confidence::Certain) => true,
        Some(Confidence::Possible) => !is_number_or_constant(value),
        // The format of a hexadecimal key, such as the 40 digits of W&B's.
        None => {
            let is_hexadecimal = value.len() >= 32 && value.bytes().all(|byte| byte.is_ascii_hexdigit());
            is_hexadecimal && name.to_ascii_lowercase().ends_with("key")
        }
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
    let is_word_letter = |letter: char| letter.is_alphanumeric() || letter == '_';
    replace_where(text, secret, MASK, |before, after| {
        !before.ends_with(is_word_letter) && !after.starts_with(is_word_letter)
    })
}

/// Replaces `part` where the text before it and the text after it are accepted.
pub fn replace_where(text: &str, part: &str, by: &str, accepts: impl Fn(&str, &str) -> bool) -> String {
    let (mut replaced, mut copied) = (String::with_capacity(text.len()), 0);
    for (at, _) in text.match_indices(part) {
        let end = at + part.len();
        if accepts(&text[..at], &text[end..]) {
            replaced.extend([&text[copied..at], by]);
            copied = end;
        }
    }
    replaced + &text[copied..]
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
const TOKEN_PREFIXES: &str =
    "hf_ npm_ r8_ pypi- ghp_ gho_ ghu_ ghs_ ghr_ github_pat_ glpat- AKIA ASIA sk- xox AIza eyJ";
const KEY_BLOCK: &str = r"(?s)(-----BEGIN [A-Z ]*PRIVATE KEY-----).*?(-----END|$)";
const ADDRESS: &str = r#"\b([A-Za-z][A-Za-z0-9+.-]*://)([^\s/'"<>]*:[^\s/'"<>]*|[^\s/'"<>:@]{16,})@"#;
/// An option with its value, or an assignment of a shell. Assignments of source code have spaces around their sign.
const NAMED: &str = r#"(^|[+\s"'`?&;(])(-{1,2}[A-Za-z][\w.-]*[= ]|[A-Za-z_][\w.-]*=)("[^"\n]*"|'[^'\n]*'|[^\s"'&;,]+)"#;
const LOGIN: &str = r#"(\bwandb[ \t]+login[ \t]+(?:--?[^\s"']+[ \t]+)*)[^\s"'&;|-][^\s"'&;|]*"#;

/// Never fewer than all: a test compiles the patterns.
static PATTERNS: LazyLock<Vec<Regex>> = LazyLock::new(|| {
    let all = [KEY_BLOCK, ADDRESS, TOKEN_PATTERN, LOGIN, NAMED];
    all.iter().filter_map(|pattern| Regex::new(pattern).ok()).collect()
});

/// Masks tokens of known formats, private keys, passwords in URLs, and values of options and variables of a shell in any text.
/// Values in source code are kept.
pub fn mask_text(text: &str) -> String {
    let [key_block, address, token, login, named] = PATTERNS.as_slice() else { return MASK.into() };
    let mut text = Cow::Borrowed(text);
    // Searching for a substring is far faster than matching a pattern.
    for (parts, pattern, by) in [
        ("KEY-----", key_block, "${1}***${2}"),
        ("://", address, "${1}***@"),
        (TOKEN_PREFIXES, token, MASK),
        ("wandb", login, "${1}***"),
    ] {
        if parts.split(' ').any(|part| text.contains(part)) {
            text = pattern.replace_all(&text, by).into_owned().into();
        }
    }
    let masked = named.replace_all(&text, |found: &Captures<'_>| {
        let name = found[2].trim_matches(['-', '=', ' ']);
        match is_secret(name, found[3].trim_matches(['"', '\''])) {
            true => format!("{}{}{MASK}", &found[1], &found[2]),
            false => found[0].to_owned(),
        }
    });
    masked.into_owned()
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
