//! Secrets in what is recorded for reading: command lines, logs, patches. Each becomes `***`.
//!
//! A name says that its value is a secret in two ways. Some words say so wherever they stand in it, also glued to others:
//! `password`, `passwd`, `passphrase`, `secret`, `credential`, `apikey`, `accesskey`, `privatekey`. `key`, `token` and `auth`
//! mean many things. They say so as the last word or the end of it (`--hf-token`, `--hftoken`, `WANDB_KEY`), unless the word
//! before says what else it is (`--pad-token`, `--sort-key`); `auth` as any word. Words end at `-`, `_`, `.` and where a
//! capital follows a small letter. So `--tokenizer`, `--max-tokens`, `--key-frames` and `--author` stay; and a number, `true`
//! or `false` stays behind any name but those of the first kind.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex_lite::{Captures, Regex};
use serde_json::Value;

/// In the place of a secret.
pub const MASK: &str = "***";

/// Parts of names, whatever stands around them.
const ANYWHERE: &[&str] =
    &["password", "passwd", "passphrase", "secret", "credential", "apikey", "accesskey", "privatekey"];
/// Ends of names.
const AT_END: &[&str] = &["key", "token", "pat"];
/// Words of names.
const AS_WORD: &[&str] = &["auth", "oauth", "authorization", "bearer"];
/// Before `key` and `token`: such a thing is no secret.
const HARMLESS: &[&str] = &[
    "audio",
    "bos",
    "caption",
    "class",
    "cls",
    "column",
    "decoder",
    "dict",
    "end",
    "eos",
    "first",
    "foreign",
    "group",
    "image",
    "img",
    "index",
    "input",
    "json",
    "label",
    "last",
    "mask",
    "max",
    "metric",
    "min",
    "monitor",
    "next",
    "num",
    "output",
    "pad",
    "partition",
    "per",
    "primary",
    "prompt",
    "public",
    "sample",
    "sep",
    "sort",
    "special",
    "start",
    "stop",
    "target",
    "text",
    "unk",
    "val",
    "video",
];
/// Words that only end like `key`.
const OTHER_WORDS: &[&str] = &["monkey", "turkey", "donkey", "hockey", "jockey", "whiskey", "hotkey"];

/// How sure it is that a value is a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Sure {
    Perhaps,
    Surely,
}

fn parts(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut small = false;
    for letter in name.chars() {
        if !letter.is_alphanumeric() || (letter.is_uppercase() && small) {
            words.push(String::new());
        }
        if letter.is_alphanumeric() {
            words.last_mut().into_iter().for_each(|word| word.extend(letter.to_lowercase()));
        }
        small = letter.is_lowercase();
    }
    words.retain(|word| !word.is_empty());
    words
}

/// What a name says of its value.
fn named(name: &str) -> Option<Sure> {
    let words = parts(name);
    let glued = words.concat();
    if ANYWHERE.iter().any(|part| glued.contains(part)) {
        return Some(Sure::Surely);
    }
    if words.iter().any(|word| AS_WORD.contains(&word.as_str())) {
        return Some(Sure::Perhaps);
    }
    let (last, before) = words.split_last()?;
    // `pat` ends many words, so only as a word of its own.
    let ends = AT_END.iter().find(|end| last == *end || (end.len() >= 3 && **end != "pat" && last.ends_with(**end)))?;
    let qualifier = match last.strip_suffix(*ends) {
        Some("") => before.last().map(String::as_str),
        glued => glued,
    };
    let harmless = qualifier.is_some_and(|word| HARMLESS.contains(&word)) || OTHER_WORDS.contains(&last.as_str());
    (!harmless).then_some(Sure::Perhaps)
}

fn is_plain(value: &str) -> bool {
    value.parse::<f64>().is_ok() || ["true", "false", "none", "null", "auto"].contains(&value.to_lowercase().as_str())
}

/// A value that stands behind a name, as behind an option, in the environment or in a table.
pub fn value<'a>(name: &str, value: &'a str) -> Cow<'a, str> {
    // A variable and a placeholder name where the secret is, and are none.
    let named_only = value.starts_with('$') || (value.starts_with('{') && value.ends_with('}'));
    match named(name) {
        _ if value.is_empty() || named_only => value.into(),
        Some(Sure::Surely) => MASK.into(),
        Some(Sure::Perhaps) if !is_plain(value) => MASK.into(),
        _ => text(value).into(),
    }
}

/// A command line, a word each.
pub fn words(words: &[String]) -> Vec<String> {
    let mut masked = Vec::with_capacity(words.len());
    // The name of an option whose value may be the next word.
    let mut option: Option<&str> = None;
    for word in words {
        let follows = option.take();
        let (dashes, rest) = word.split_at(word.len() - word.trim_start_matches('-').len());
        masked.push(match (follows, rest.split_once('=')) {
            (Some(name), _) if dashes.is_empty() => value(name, word).into_owned(),
            (_, Some((name, rest))) if is_name(name) => format!("{dashes}{name}={}", value(name, rest)),
            _ => text(word),
        });
        // `wandb login KEY`.
        let is_option = !dashes.is_empty() && is_name(rest) || rest == "login";
        option = is_option.then_some(if rest == "login" { "login-key" } else { rest });
    }
    masked
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|letter| letter.is_alphanumeric() || "-_.".contains(letter))
}

/// Masks the values of a table, and of those in it, by their keys, and wherever else they stand in it; a list of texts is
/// taken for a command line.
pub fn table(of: &mut Value) {
    let mut found = Vec::new();
    masked_value("", of, &mut found);
    found.retain(|secret| secret.len() >= ELSEWHERE_BYTES_MIN);
    if !found.is_empty() {
        without(of, &found);
    }
}

/// Shorter secrets stand by chance in other texts.
const ELSEWHERE_BYTES_MIN: usize = 4;

fn without(given: &mut Value, secrets: &[String]) {
    match given {
        Value::String(text) => secrets.iter().for_each(|secret| *text = text.replace(secret, MASK)),
        Value::Array(all) => all.iter_mut().for_each(|one| without(one, secrets)),
        Value::Object(keys) => keys.values_mut().for_each(|inner| without(inner, secrets)),
        _ => {}
    }
}

fn masked_value(name: &str, given: &mut Value, found: &mut Vec<String>) {
    match given {
        Value::String(text) => {
            let masked = value(name, text).into_owned();
            if masked == MASK {
                found.push(text.clone());
            }
            *text = masked;
        }
        Value::Array(all) => {
            let texts: Option<Vec<String>> = all.iter().map(|one| one.as_str().map(str::to_owned)).collect();
            match texts {
                Some(texts) => *all = words(&texts).into_iter().map(Value::String).collect(),
                None => all.iter_mut().for_each(|one| masked_value(name, one, found)),
            }
        }
        Value::Object(keys) => keys.iter_mut().for_each(|(key, inner)| masked_value(key, inner, found)),
        Value::Number(_) if named(name) == Some(Sure::Surely) => *given = MASK.into(),
        _ => {}
    }
}

/// The text of an experiment; as it was written, where it has no secrets or is no TOML.
pub fn experiment(text: &str) -> Cow<'_, str> {
    let Ok(written) = toml::from_str::<Value>(text) else { return text.into() };
    let mut masked = written.clone();
    table(&mut masked);
    match masked == written {
        true => text.into(),
        false => toml::to_string(&masked).map_or(MASK.into(), Cow::Owned),
    }
}

/// Shapes of tokens that are known: Hugging Face, GitHub, GitLab, AWS, OpenAI and Anthropic, Slack, Google, JSON web tokens.
const SHAPES: &str = r"\b(hf_[A-Za-z0-9]{20,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,}|(AKIA|ASIA)[0-9A-Z]{16}|sk-[A-Za-z0-9_-]{20,}|xox[a-z]-[A-Za-z0-9-]{8,}|AIza[A-Za-z0-9_-]{35}|eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+)";
const KEY_BLOCK: &str = r"(?s)(-----BEGIN [A-Z ]*PRIVATE KEY-----).*?(-----END|$)";
const ADDRESS: &str = r#"\b([A-Za-z][A-Za-z0-9+.-]*://)([^\s/'"<>]*:[^\s/'"<>]*|[^\s/'"<>:@]{16,})@"#;
/// A name, a sign between, and a text in quotes, the words of a header, or a word.
const ASSIGNED: &str = r#"([A-Za-z_][A-Za-z0-9_.-]*)(["']?[ \t]*[:=][ \t]*)("[^"\n]*"|'[^'\n]*'|(?:Bearer|Basic|Token|bearer|basic|token) [^\s"']+|[^\s"'&;,]+)"#;
const OPTION: &str = r#"(--?)([A-Za-z][A-Za-z0-9_.-]*)([ \t]+)("[^"\n]*"|'[^'\n]*'|[^\s"'-][^\s"']*)"#;

struct Patterns {
    shapes: Regex,
    key_block: Regex,
    address: Regex,
    assigned: Regex,
    option: Regex,
}

/// `None` never: a test compiles them.
static PATTERNS: LazyLock<Option<Patterns>> = LazyLock::new(|| {
    Some(Patterns {
        shapes: Regex::new(SHAPES).ok()?,
        key_block: Regex::new(KEY_BLOCK).ok()?,
        address: Regex::new(ADDRESS).ok()?,
        assigned: Regex::new(ASSIGNED).ok()?,
        option: Regex::new(OPTION).ok()?,
    })
});

/// Whether a value in prose or source code is a literal and no expression. Of an unsure name it has to look like a secret.
fn is_literal(sure: Sure, value: &str) -> bool {
    let inside = value.trim_matches(['"', '\'']);
    let quoted = inside.len() < value.len();
    let expression = !quoted && inside.contains(['(', '[', '{', '$', '.', '<', '*']);
    let header = inside.contains(' ');
    let long = inside.len() >= 8 && inside.chars().any(|letter| letter.is_ascii_digit());
    !inside.is_empty() && !expression && !inside.starts_with(['$', '{']) && (sure == Sure::Surely || header || long)
}

/// Any text, source code and shell commands among them.
pub fn text(text: &str) -> String {
    let Some(patterns) = PATTERNS.as_ref() else { return MASK.into() };
    let text = patterns.key_block.replace_all(text, "${1}***${2}");
    let text = patterns.address.replace_all(&text, "${1}***@");
    let text = patterns.shapes.replace_all(&text, MASK);
    let quoted = |value: &str| match value.chars().next() {
        Some(quote @ ('"' | '\'')) => format!("{quote}{MASK}{quote}"),
        _ => MASK.to_owned(),
    };
    let text = patterns.assigned.replace_all(&text, |found: &Captures<'_>| {
        let (name, between, given) = (&found[1], &found[2], &found[3]);
        match named(name) {
            Some(sure) if is_literal(sure, given) && !is_plain(given) => format!("{name}{between}{}", quoted(given)),
            _ => found[0].to_owned(),
        }
    });
    let text = patterns.option.replace_all(&text, |found: &Captures<'_>| {
        let (dashes, name, between, given) = (&found[1], &found[2], &found[3], &found[4]);
        match named(name) {
            Some(_) if !is_plain(given) && !given.starts_with('$') => {
                format!("{dashes}{name}{between}{}", quoted(given))
            }
            _ => found[0].to_owned(),
        }
    });
    text.into_owned()
}

/// Whether a file is likely to hold secrets, by its name: `.env*`, `*.env`, `*.pem`, `*.key`, `*secret*` and their like.
pub fn is_file(path: &str) -> bool {
    let lower = path.to_lowercase();
    let name = lower.rsplit('/').next().unwrap_or_default();
    let begins =
        [".env", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", ".netrc", ".npmrc", ".pypirc", ".htpasswd", ".pgpass"];
    let ends = [".env", ".pem", ".key", ".p12", ".pfx", ".jks", ".keystore", ".kdbx"];
    begins.iter().any(|begin| name.starts_with(begin))
        || ends.iter().any(|end| name.ends_with(end))
        // Also of a folder.
        || ["secret", "credential", "password"].iter().any(|part| lower.contains(part))
        || lower.split('/').any(|part| [".ssh", ".aws", ".gnupg"].contains(&part))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(line: &str) -> String {
        words(&line.split(' ').map(str::to_owned).collect::<Vec<_>>()).join(" ")
    }

    #[test]
    fn values_of_secret_names_are_masked_on_a_command_line() {
        for (given, masked) in [
            ("a --api-key X9", "a --api-key ***"),
            ("a --api-key=X9 b", "a --api-key=*** b"),
            ("a --wandb_api_key abc", "a --wandb_api_key ***"),
            ("a --hftoken abc", "a --hftoken ***"),
            ("a --hf-token abc --lr 3", "a --hf-token *** --lr 3"),
            ("a --password 1234", "a --password ***"),
            ("a --dbPasswd=1234", "a --dbPasswd=***"),
            ("a --auth user", "a --auth ***"),
            ("env WANDB_API_KEY=abc a", "env WANDB_API_KEY=*** a"),
            (
                "env AWS_SECRET_ACCESS_KEY=a/b+c AWS_ACCESS_KEY_ID=q",
                "env AWS_SECRET_ACCESS_KEY=*** AWS_ACCESS_KEY_ID=***",
            ),
            ("wandb login 0123456789abcdef", "wandb login ***"),
            ("-s pipeline.command.values.api_key=abc", "-s pipeline.command.values.api_key=***"),
            ("a https://user:pa@ss@host/x", "a https://***@host/x"),
            ("a x?token=abc12345&n=3", "a x?token=***&n=3"),
        ] {
            assert_eq!(line(given), masked);
        }
        let shell = words(&["sh".into(), "-c".into(), "API_KEY='x y' python a.py --token abc --n 3".into()]);
        assert_eq!(shell[2], "API_KEY='***' python a.py --token *** --n 3");
        let header = words(&["curl".into(), "-H".into(), "Authorization: Bearer abc".into()]);
        assert_eq!(header[2], "Authorization: ***");
    }

    #[test]
    fn what_only_sounds_like_a_secret_stays() {
        for given in [
            "a --tokenizer gpt2",
            "a --tokenizer=gpt2",
            "a --key-frames 3",
            "a --max-tokens 512",
            "a --max-token 512",
            "a --author me",
            "a --authors me",
            "a --pad-token <pad>",
            "a --eos_token </s>",
            "a --image-key jpg",
            "a --sort-key=name",
            "a --keep 3",
            "a --monkey jim",
            "a --token-count 5",
            "a --token",
            "a --token --verbose",
            "a --api-key $KEY",
            "a -s training.epochs=3",
            "a https://host/x@y",
            "a git@github.com:a/b.git",
            "a ssh://git@host/a",
            "a commit 0123456789012345678901234567890123456789",
            "a key=lambda",
        ] {
            let expected = if given == "a key=lambda" { "a key=***" } else { given };
            assert_eq!(line(given), expected);
        }
    }

    #[test]
    fn known_shapes_and_literals_are_masked_in_any_text_and_expressions_stay() {
        let letters = "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8";
        for token in [
            format!("hf_{letters}"),
            format!("ghp_{letters}"),
            format!("github_pat_{letters}"),
            "AKIAIOSFODNN7EXAMPLE".into(),
            format!("sk-proj-{letters}"),
            "xoxb-123456789012-abcdef".into(),
        ] {
            assert_eq!(text(&format!("+x = f(\"{token}\")")), "+x = f(\"***\")");
        }
        for (given, masked) in [
            ("+password = \"abc\"", "+password = \"***\""),
            ("+  \"api_key\": \"abc\",", "+  \"api_key\": \"***\","),
            ("+TOKEN=abcdefg1", "+TOKEN=***"),
            ("-----BEGIN RSA PRIVATE KEY-----\n+abc\n-----END RSA", "-----BEGIN RSA PRIVATE KEY-----***-----END RSA"),
        ] {
            assert_eq!(text(given), masked);
        }
        for code in [
            "+tokens = tokenizer(text, key=len)",
            "+sorted(x, key=lambda a: a.b)",
            "+password = os.environ[\"PASSWORD\"]",
            "+api_key = args.api_key",
            "+for key in d: token = d[key]",
            "+max_token=512",
        ] {
            assert_eq!(text(code), code);
        }
    }

    #[test]
    fn an_experiment_without_secrets_stays_as_it_was_written() {
        let plain = "# a\n[pipeline.command]\nprogram = [\"a\", \"{values.api_key}\"]\n[training]\nseed = 3\n";
        assert_eq!(experiment(plain), plain);
        let secret = "[pipeline.command]\nprogram = [\"a\", \"--token\", \"t\"]\n[pipeline.command.values]\napi_key = \"k\"\nlr = 0.1\n";
        let masked = experiment(secret);
        assert!(
            masked.contains("api_key = \"***\"") && masked.contains("lr = 0.1") && !masked.contains("\"t\""),
            "{masked}"
        );
    }

    #[test]
    fn files_that_hold_secrets_are_known_by_their_names() {
        for path in [
            ".env",
            "a/.env.local",
            "prod.env",
            "a/server.PEM",
            "x.key",
            "my_secrets.yaml",
            "secrets/a.txt",
            ".ssh/config",
            "id_rsa",
        ] {
            assert!(is_file(path), "{path}");
        }
        for path in ["src/main.rs", "keys.py", "environment.yml", "tokenizer.json", "a/model.keys"] {
            assert!(!is_file(path), "{path}");
        }
    }
}
