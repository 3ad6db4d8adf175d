//! What was meant by what was typed? Subcommands with typing errors, habits from other tools, options that are keys.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory};

use super::CommandLine;
use crate::experiment::{habits, schema, shape};
use crate::invocation;
use crate::printable;
use crate::problem::nearest;

/// Subcommands of other tools, and what does the same here. In place of `PROGRAM` stands its name, and in place of `FILE` one
/// that was typed.
const ELSEWHERE: &[(&str, &str)] = &[
    ("train", "`PROGRAM FILE` runs an experiment"),
    ("fit", "`PROGRAM FILE` runs an experiment"),
    ("start", "`PROGRAM FILE` runs an experiment"),
    ("launch", "`PROGRAM FILE` runs an experiment"),
    ("tune", "`PROGRAM sweep FILE` tries several values"),
    ("evaluate", "a run validates its model itself; `PROGRAM eval RUN` validates a checkpoint once more"),
    ("test", "a run validates its model itself; `PROGRAM eval RUN` validates a checkpoint once more"),
    (
        "validate",
        "a run validates its model itself; `PROGRAM check FILE` looks at a file, `PROGRAM eval RUN` at a checkpoint",
    ),
    ("doctor", "`PROGRAM devices` says what this machine has and what is missing"),
    ("ps", "`PROGRAM ls` lists runs, those that go on among them"),
    ("infer", "`PROGRAM predict RUN FILES` answers about files with a checkpoint"),
    ("list", "`PROGRAM ls` lists runs"),
    ("init", "`PROGRAM new PIPELINE` prints a file to start from"),
    ("create", "`PROGRAM new PIPELINE` prints a file to start from"),
    ("continue", "`PROGRAM resume RUN` goes on with a run"),
    ("status", "`PROGRAM ls` lists runs, those that go on among them"),
    ("dashboard", "each run leaves a report.html; `PROGRAM compare RUN RUN --html` makes one of several"),
];

/// Puts `-s` before words such as `limits.workers=2`, as Hydra takes them.
pub fn with_overrides(typed: Vec<OsString>) -> Vec<OsString> {
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

/// Whether a word is `key=value`, and no file.
fn is_override(word: &str) -> bool {
    let Some((key, _)) = word.split_once('=') else { return false };
    let plain = |character: char| character.is_ascii_alphanumeric() || "_-.\"".contains(character);
    key.starts_with(|first: char| first.is_ascii_alphabetic()) && key.chars().all(plain) && !Path::new(word).exists()
}

/// Whether the next word belongs to this one.
fn takes_value(command: &Command, word: &str) -> bool {
    let is = |argument: &&clap::Arg| match word.strip_prefix("--") {
        Some(long) => argument.get_long() == Some(long),
        None => {
            word.strip_prefix('-').is_some_and(|short| argument.get_short().map(String::from).as_deref() == Some(short))
        }
    };
    command.get_arguments().find(is).is_some_and(|argument| argument.get_action().takes_values())
}

/// What the words of Hydra's command line are here; `None` where there are none of them.
fn hydra(typed: &[OsString]) -> Option<String> {
    let program = invocation::program();
    let words: Vec<String> = typed.iter().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let without = |at: usize, count: usize, instead: &[&str]| {
        let before = words[..at].iter().map(String::as_str);
        let after = words[at + count..].iter().map(String::as_str);
        let all: Vec<String> = before.chain(instead.iter().copied()).chain(after).map(printable::shell_word).collect();
        all.join(" ")
    };
    for (at, word) in words.iter().enumerate() {
        let next = words.get(at + 1);
        if word == "-m" || word == "--multirun" {
            let rest = without(at, 1, &[]);
            let rest = rest.strip_prefix("run ").unwrap_or(&rest);
            return Some(format!(
                "there is no option `{word}`; several values are a sweep: `{program} sweep {rest}`, with a list or a range \
                 as the value of a key"
            ));
        }
        if let Some(set) =
            word.strip_prefix('+').map(|rest| rest.trim_start_matches('+')).filter(|set| is_override(set))
        {
            return Some(format!(
                "`{word}`: every key of an experiment is there to be set, and needs no `+`: `{program} {}`",
                without(at, 1, &["-s", set])
            ));
        }
        if let Some(key) = word.strip_prefix('~').filter(|key| is_key(key.split('=').next().unwrap_or_default())) {
            let key = key.split('=').next().unwrap_or_default();
            return Some(format!(
                "`{word}`: nothing is taken out of an experiment here; `-s {key}=VALUE` sets another value, and \
                 `{program} check FILE --origins` says in which file it is written"
            ));
        }
        let is_set = word == "-s" || word == "--set";
        if let Some((key, value)) =
            next.zip(words.get(at + 2)).filter(|(key, _)| is_set && is_key(key) && key.contains('.'))
        {
            let is_value = (!value.starts_with('-') || value.parse::<f64>().is_ok()) && !Path::new(value).exists();
            if is_value && !value.contains('=') {
                let set = format!("{key}={value}");
                return Some(format!(
                    "`{word}` takes the key and its value as one word: `{program} {}`",
                    without(at, 3, &["-s", &set])
                ));
            }
        }
    }
    None
}

/// Whether a word may be a key of an experiment.
fn is_key(word: &str) -> bool {
    let plain = |character: char| character.is_ascii_alphanumeric() || "_-.".contains(character);
    word.starts_with(|first: char| first.is_ascii_alphabetic()) && word.chars().all(plain) && !Path::new(word).exists()
}

/// What is wrong with a command line that no option or subcommand explains; `None` where it may be right.
pub fn answer(typed: &[OsString]) -> Option<String> {
    let first = typed.get(1)?;
    if let Some(meant) = hydra(typed) {
        return Some(meant);
    }
    if let Some(command) = watched(typed) {
        return Some(format!("the command stands behind `--`: `{} watch -- {command}`", invocation::program()));
    }
    let second = typed.get(2).filter(|word| !word.to_string_lossy().starts_with('-'));
    if let Some(meant) = subcommand_meant(first) {
        let word = first.to_string_lossy();
        return Some(format!("no such file `{word}`; did you mean the subcommand `{meant}`?"));
    }
    let word = first.to_str().filter(|word| !word.is_empty() && !word.starts_with('-'))?;
    let command = CommandLine::command();
    if word == "help" || command.find_subcommand(word).is_some() {
        return None;
    }
    let program = invocation::program();
    let is_name = !word.contains(['.', '/']) && !Path::new(word).exists();
    if let Some((_, instead)) = ELSEWHERE.iter().find(|(other, _)| is_name && *other == word) {
        let instead = match second {
            Some(file) if instead.starts_with("`PROGRAM FILE`") => instead.replace("FILE", &file.to_string_lossy()),
            _ => (*instead).to_owned(),
        };
        let instead = instead.replace("PROGRAM", program);
        return Some(format!("there is no subcommand `{word}`: {instead}"));
    }
    let second = second?.to_string_lossy();
    if !is_name && shape::at(schema::shared(), &second).is_some() {
        return Some(format!("`{second}` has no value: `{program} {word} {second}=VALUE`"));
    }
    match is_name {
        true => Some(format!("there is no subcommand `{word}`, and no file; `{program} --help` lists what there is")),
        false if command.find_subcommand(second.as_ref()).is_some() => {
            Some(format!("the subcommand comes first: `{program} {second} {word}`"))
        }
        false => Some(format!(
            "one experiment at a time: `{program} {word}`, then `{program} {second}`; `{program} check` takes several \
             files, and `{program} sweep` runs variants of one"
        )),
    }
}

/// The command of `watch python train.py`, which no `--` tells from options.
fn watched(typed: &[OsString]) -> Option<String> {
    let words: Vec<&str> = typed.iter().skip(1).map_while(|word| word.to_str()).collect();
    let (_, command) = words.split_first().filter(|(first, _)| **first == "watch")?;
    let is_command = command.first().is_some_and(|word| !word.starts_with('-')) && !command.contains(&"--");
    let words: Vec<String> = command.iter().map(|word| printable::shell_word(word)).collect();
    is_command.then(|| words.join(" "))
}

/// The subcommand that the first word on the command line was meant to be. Never of an option, nor of a file that is
/// there, nor of a word with a `.` or a `/` in it: those are names of files.
fn subcommand_meant(first: &OsStr) -> Option<String> {
    let word =
        first.to_str().filter(|word| !word.is_empty() && !word.starts_with('-') && !word.contains(['.', '/']))?;
    if ELSEWHERE.iter().any(|(other, _)| *other == word) {
        return None;
    }
    let command = CommandLine::command();
    let names: Vec<&str> = command.get_subcommands().map(Command::get_name).chain(["help"]).collect();
    if names.contains(&word) || Path::new(word).exists() {
        return None;
    }
    nearest(word, names).map(str::to_owned)
}

/// `--epochs 3` where `-s training.epochs=3` was meant.
pub fn option_meant(error: &clap::Error, typed: &[OsString]) -> Option<String> {
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else { return None };
    let name = option.strip_prefix("--")?.split('=').next()?;
    let is_whole = name.contains('.') && shape::at(schema::shared(), name).is_some();
    let keys = if is_whole { vec![name.to_owned()] } else { habits::whole_keys(name) };
    if keys.is_empty() {
        return None;
    }
    let begin = format!("--{name}");
    let at = typed.iter().position(|word| word.to_string_lossy().split('=').next() == Some(begin.as_str()))?;
    let written = typed[at].to_string_lossy().split_once('=').map(|(_, value)| value.to_owned());
    let next = typed.get(at + 1).map(|word| word.to_string_lossy().into_owned()).filter(|word| !word.starts_with('-'));
    let value = written.or(next).unwrap_or_else(|| "VALUE".into());
    let named: Vec<String> = keys.iter().take(6).map(|key| format!("`-s {key}={value}`")).collect();
    Some(format!("there is no option `{begin}`; a value of the experiment is set with {}", named.join(" or ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn only_a_word_that_is_nearly_a_subcommand_was_meant_as_one() {
        let meant = |word: &str| subcommand_meant(OsStr::new(word));
        assert_eq!(meant("verdit").as_deref(), Some("verdict"));
        assert_eq!(meant("shwo").as_deref(), Some("show"));
        for word in ["verdict", "help", "--hlep", "verdit.toml", "./verdit", "stage2", ""] {
            assert_eq!(meant(word), None, "{word}");
        }
    }

    #[test]
    fn words_with_an_equals_sign_are_overrides_where_a_file_could_not_be() {
        for (typed, becomes) in [
            ("xrun a.toml limits.workers=2 lr=1", "xrun a.toml -s limits.workers=2 -s lr=1"),
            ("xrun plan a.toml -s a=b limits.workers=2", "xrun plan a.toml -s a=b -s limits.workers=2"),
            ("xrun a.toml --name x=y -q seed=1", "xrun a.toml --name x=y -q -s seed=1"),
            ("xrun a.toml --set=a=b", "xrun a.toml --set=a=b"),
            ("xrun show a=b", "xrun show a=b"),
            ("xrun ./a=b/c.toml", "xrun ./a=b/c.toml"),
            ("xrun check a.toml b.toml n_way=2", "xrun check a.toml b.toml -s n_way=2"),
        ] {
            assert_eq!(with_overrides(words(typed)), words(becomes));
        }
    }

    #[test]
    fn habits_of_other_tools_are_answered() {
        let said = |typed: &str| answer(&words(typed)).unwrap_or_default();
        assert_eq!(said("xrun train exp.toml"), "there is no subcommand `train`: `xrun exp.toml` runs an experiment");
        assert!(said("xrun evaluate latest").contains("`xrun eval RUN`"));
        assert_eq!(
            said("xrun a.toml training.epochs"),
            "`training.epochs` has no value: `xrun a.toml training.epochs=VALUE`"
        );
        assert_eq!(said("xrun watch python a.py"), "the command stands behind `--`: `xrun watch -- python a.py`");
        assert_eq!(said("xrun watch -q -- python a.py"), "");
        assert!(said("xrun a.toml b.toml").starts_with("one experiment at a time"));
        assert_eq!(said("xrun a.toml plan"), "the subcommand comes first: `xrun plan a.toml`");
        assert_eq!(said("xrun a.toml -q"), "");
        for (typed, words) in [
            ("xrun a.toml +training.epochs=3 -q", "`xrun a.toml -s training.epochs=3 -q`"),
            ("xrun a.toml ++training.epochs=3", "`xrun a.toml -s training.epochs=3`"),
            ("xrun a.toml ~training.clip_norm", "`-s training.clip_norm=VALUE` sets another value"),
            ("xrun run a.toml -m -s training.epochs=1,2", "`xrun sweep a.toml -s training.epochs=1,2`"),
            ("xrun a.toml --multirun -s training.epochs=1,2", "`xrun sweep a.toml -s training.epochs=1,2`"),
            ("xrun a.toml -s training.epochs 3 -q", "`xrun a.toml -s training.epochs=3 -q`"),
            ("xrun check a.toml --set limits.workers -1", "`xrun check a.toml -s limits.workers=-1`"),
        ] {
            assert!(said(typed).contains(words), "{typed}: {}", said(typed));
        }
        assert_eq!(said("xrun a.toml -s a.b=c -q"), "");
        let meant = |typed: &str| {
            let typed = words(typed);
            option_meant(&<CommandLine as clap::Parser>::try_parse_from(&typed).unwrap_err(), &typed)
        };
        let epochs = "there is no option `--epochs`; a value of the experiment is set with `-s training.epochs=3`";
        assert_eq!(meant("xrun a.toml --epochs 3").as_deref(), Some(epochs));
        assert_eq!(meant("xrun a.toml --epochs=3").as_deref(), Some(epochs));
        assert_eq!(
            meant("xrun a.toml --training.epochs=3").as_deref(),
            Some(epochs.replace("--epochs", "--training.epochs").as_str())
        );
        assert!(meant("xrun a.toml --seed 3").is_some_and(|text| text.contains("-s experiment.seed=3")));
        assert_eq!(meant("xrun a.toml --nothing-like-it"), None);
    }
}
