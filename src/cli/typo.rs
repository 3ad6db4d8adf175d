//! Corrections of the command line: `key=value` arguments without `-s`, misspelt subcommands, and options that are keys.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory};

use super::CommandLine;
use crate::experiment::{key_lookup, schema, shape};
use crate::problem::nearest;

/// Inserts `-s` before arguments such as `limits.workers=2`.
pub fn insert_set_options(typed: Vec<OsString>) -> Vec<OsString> {
    let command = CommandLine::command();
    let named = typed.get(1).and_then(|word| word.to_str()).and_then(|word| command.find_subcommand(word));
    let of = named.unwrap_or(&command);
    if of.get_arguments().all(|argument| argument.get_id() != "set") {
        return typed;
    }
    let mut all = Vec::with_capacity(typed.len());
    let (mut is_value, mut only_words) = (true, false);
    for word in typed {
        let text = word.to_str().unwrap_or_default();
        if !is_value && !only_words && is_override(text) {
            all.push("-s".into());
        }
        only_words |= text == "--";
        is_value = !is_value && takes_value(of, text);
        all.push(word);
    }
    all
}

/// Returns true if a word is `key=value` and not an existing file.
fn is_override(word: &str) -> bool {
    let Some((key, _)) = word.split_once('=') else { return false };
    let plain = |character: char| character.is_ascii_alphanumeric() || "_-.\"".contains(character);
    key.starts_with(|first: char| first.is_ascii_alphabetic()) && key.chars().all(plain) && !Path::new(word).exists()
}

/// Returns true if a word is an option whose value is the next word.
fn takes_value(command: &Command, word: &str) -> bool {
    let is = |argument: &&clap::Arg| match word.strip_prefix("--") {
        Some(long) => argument.get_long() == Some(long),
        None => {
            word.strip_prefix('-').is_some_and(|short| argument.get_short().map(String::from).as_deref() == Some(short))
        }
    };
    command.get_arguments().find(is).is_some_and(|argument| argument.get_action().takes_values())
}

/// Subcommand of which the first argument is a misspelling. `None` for options, existing files, and words with a `.` or `/`,
/// which are names of files. Before the name of an experiment file, `run` is the nearest of two similar subcommands.
pub fn intended_subcommand(first: &OsStr, second: Option<&OsStr>) -> Option<String> {
    let word =
        first.to_str().filter(|word| !word.is_empty() && !word.starts_with('-') && !word.contains(['.', '/']))?;
    let command = CommandLine::command();
    let names: Vec<&str> = command.get_subcommands().map(Command::get_name).chain(["help"]).collect();
    if names.contains(&word) || Path::new(word).exists() {
        return None;
    }
    let before_file = second.is_some_and(|second| Path::new(second).extension().is_some_and(|end| end == "toml"));
    match before_file {
        // `rn` resembles `rm` as much as `run`, but no run is called `FILE.toml`.
        true => nearest(word, ["run"]).or_else(|| nearest(word, names)),
        false => nearest(word, names),
    }
    .map(str::to_owned)
}

/// Message for an unknown option that is a key, such as `--epochs 3` instead of `-s training.epochs=3`.
pub fn suggest_key(error: &clap::Error, typed: &[OsString]) -> Option<String> {
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else { return None };
    let name = option.strip_prefix("--")?.split('=').next()?;
    let is_full_key = name.contains('.') && shape::schema_at(schema::shared(), name).is_some();
    let keys = if is_full_key { vec![name.to_owned()] } else { key_lookup::dotted_keys(name) };
    if keys.is_empty() {
        return None;
    }
    let option = format!("--{name}");
    let at = typed.iter().position(|word| word.to_string_lossy().split('=').next() == Some(option.as_str()))?;
    let written = typed[at].to_string_lossy().split_once('=').map(|(_, value)| value.to_owned());
    let next = typed.get(at + 1).map(|word| word.to_string_lossy().into_owned()).filter(|word| !word.starts_with('-'));
    let value = written.or(next).unwrap_or_else(|| "VALUE".into());
    let suggestions: Vec<String> = keys.iter().take(6).map(|key| format!("`-s {key}={value}`")).collect();
    Some(format!("unknown option `{option}`; set a value of the experiment with {}", suggestions.join(" or ")))
}
