//! Tests of the documents: pages of the commands are those of the code, and every command in a document can be typed.
//!
//! `XRUN_BLESS=1 cargo test --no-default-features documents` writes the pages anew.

use std::ffi::OsString;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use clap::{Arg, Command, CommandFactory, Parser};

use super::{CommandLine, EXIT_CODES, typo};
use crate::verdict::training::TrainingVerdictWord;
use crate::verdict::{VerdictWord, Word};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Text of one table cell.
fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|").replace('<', "&lt;")
}

fn about(command: &Command) -> String {
    command.get_about().map(ToString::to_string).unwrap_or_default()
}

fn argument_row(argument: &Arg) -> String {
    let values = argument.get_value_names().unwrap_or_default().join(" ");
    let takes_value = argument.get_action().takes_values();
    let mut names: Vec<String> = Vec::new();
    names.extend(argument.get_short().map(|short| format!("-{short}")));
    names.extend(argument.get_long().map(|long| format!("--{long}")));
    let name = match (names.is_empty(), takes_value) {
        (true, _) => values,
        (false, true) if argument.is_require_equals_set() => format!("{}[={values}]", names.join(", ")),
        (false, true) => format!("{} {values}", names.join(", ")),
        (false, false) => names.join(", "),
    };
    let help = argument.get_long_help().or(argument.get_help()).map(ToString::to_string).unwrap_or_default();
    let mut meaning = cell(&help);
    let possible = argument.get_possible_values();
    if !meaning.is_empty() && !meaning.ends_with(['.', '?']) {
        meaning.push('.');
    }
    if takes_value && !possible.is_empty() && !argument.is_hide_possible_values_set() {
        let shown = possible.iter().filter(|value| !value.is_hide_set()).map(|value| format!("`{}`", value.get_name()));
        write!(meaning, " Values: {}.", shown.collect::<Vec<_>>().join(", ")).unwrap();
    }
    let defaults: Vec<String> =
        argument.get_default_values().iter().map(|value| value.to_string_lossy().into()).collect();
    if takes_value && !defaults.is_empty() {
        write!(meaning, " Default: `{}`.", defaults.join(" ")).unwrap();
    }
    format!("| `{name}` | {} |\n", meaning.trim())
}

fn page(command: &mut Command) -> String {
    let usage = command.render_usage().to_string();
    let mut page = format!("# xrun {}\n\n", command.get_name());
    let text = command.get_long_about().or(command.get_about()).map(ToString::to_string).unwrap_or_default();
    write!(page, "{text}\n\n```text\n{}\n```\n\n| argument | meaning |\n|---|---|\n", usage.trim()).unwrap();
    for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
        page += &argument_row(argument);
    }
    if let Some(after) = command.get_after_help().map(ToString::to_string).filter(|text| text != EXIT_CODES) {
        write!(page, "\n```text\n{}\n```\n", after.trim()).unwrap();
    }
    page
}

/// Pages below `docs/commands` by file name.
fn pages() -> Vec<(String, String)> {
    let mut whole = CommandLine::command().name("xrun").bin_name("xrun");
    whole.build();
    let mut index = String::from("# Commands\n\n| command | |\n|---|---|\n");
    let mut pages = Vec::new();
    for command in whole.get_subcommands_mut().filter(|command| command.get_name() != "help" && !command.is_hide_set())
    {
        let name = command.get_name().to_owned();
        writeln!(index, "| [`xrun {name}`]({name}.md) | {} |", cell(&about(command))).unwrap();
        pages.push((format!("{name}.md"), page(command)));
    }
    write!(index, "\n`xrun FILE` is `xrun run FILE`.\n\n```text\n{EXIT_CODES}\n```\n").unwrap();
    index += "\nColours follow `NO_COLOR` and `CLICOLOR_FORCE`.\n";
    pages.push(("README.md".into(), index));
    pages
}

#[test]
fn pages_of_commands_are_those_of_the_code() {
    let directory = root().join("docs/commands");
    let bless = std::env::var_os("XRUN_BLESS").is_some();
    let pages = pages();
    for (name, expected) in &pages {
        if bless {
            std::fs::create_dir_all(&directory).unwrap();
            crate::files::write::replace(&directory.join(name), expected.as_bytes()).unwrap();
        }
        let committed = std::fs::read_to_string(directory.join(name)).unwrap_or_default();
        assert!(committed == *expected, "{name} is stale: XRUN_BLESS=1 cargo test --no-default-features documents");
    }
    let committed = std::fs::read_dir(directory).unwrap().count();
    assert_eq!(committed, pages.len(), "docs/commands has a page of a command that is gone");
}

/// Rows of a table of words: the word as in JSON, its meaning, and what to do.
fn word_rows(words: impl Iterator<Item = (String, Word)>) -> String {
    let row = |(name, word): (String, Word)| format!("| {name} | {} | {} |\n", word.meaning, word.advice);
    words.map(row).collect()
}

#[test]
fn the_glossary_has_all_words_of_verdicts() {
    let path = root().join("docs/glossary.md");
    let committed = std::fs::read_to_string(&path).unwrap();
    let json = |word: serde_json::Value| word.as_str().unwrap().to_owned();
    let named = |word: &VerdictWord| (json(serde_json::to_value(word).unwrap()), word.word());
    let of_training = |word: &TrainingVerdictWord| (json(serde_json::to_value(word).unwrap()), word.word());
    let tables = [
        ("## Verdicts on memory\n", word_rows(VerdictWord::ALL.iter().map(named))),
        ("## Verdicts on training\n", word_rows(TrainingVerdictWord::ALL.iter().map(of_training))),
    ];
    let mut expected = committed.clone();
    for (title, rows) in tables {
        let head = "| verdict | meaning | what to do |\n|---|---|---|\n";
        let (before, after) = expected.split_once(title).unwrap();
        let (text, table) = after.split_once("| verdict").unwrap();
        let end = table.find("\n\n").map_or("", |end| &table[end + 1..]);
        expected = format!("{before}{title}{text}{head}{rows}{end}");
    }
    if std::env::var_os("XRUN_BLESS").is_some() {
        crate::files::write::replace(&path, expected.as_bytes()).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap();
    assert!(committed == expected, "glossary.md is stale: XRUN_BLESS=1 cargo test --no-default-features documents");
}

/// Markdown files whose commands people copy.
fn documents() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root().join("docs")).unwrap().flatten().map(|entry| entry.path());
    let mut all: Vec<PathBuf> = entries.filter(|path| path.extension().is_some_and(|e| e == "md")).collect();
    all.extend(["README.md", "CONTRIBUTING.md", "results/reference/README.md"].map(|name| root().join(name)));
    all.sort();
    all
}

/// Words of a line of a shell, without its comment. Quotes group; nothing is expanded.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for letter in line.chars() {
        match (quote, letter) {
            (Some(open), letter) if letter == open => quote = None,
            (Some(_), letter) => word.get_or_insert_default().push(letter),
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => break,
            (None, letter) if letter.is_whitespace() => words.extend(word.take()),
            (None, letter) => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words
}

/// Commands of xrun in fenced blocks and in code spans, which may go over the end of a line.
fn commands(text: &str) -> Vec<Vec<String>> {
    let (mut candidates, mut prose, mut fence) = (Vec::new(), String::new(), None);
    for line in text.lines() {
        if let Some(language) = line.strip_prefix("```") {
            fence = if fence.is_some() { None } else { Some(language) };
        } else if matches!(fence, Some("console" | "sh" | "bash")) {
            candidates.push(line.trim_start_matches("$ ").to_owned());
        } else if fence.is_none() {
            prose += line;
            prose.push(' ');
        }
    }
    candidates.extend(prose.split('`').skip(1).step_by(2).map(str::to_owned));
    let typed = candidates.iter().map(|line| line.replacen("cargo run --release --", "xrun", 1));
    let typed = typed.filter(|line| line.starts_with("xrun "));
    typed.map(|line| words(line.split(" | ").next().unwrap_or_default())).collect()
}

#[test]
fn every_command_in_the_documents_can_be_typed() {
    use clap::error::ErrorKind::{InvalidSubcommand, UnknownArgument};
    let (mut count, mut wrong) = (0, Vec::new());
    for path in documents() {
        for typed in commands(&std::fs::read_to_string(&path).unwrap()) {
            count += 1;
            let words = typo::insert_set_options(typed.iter().map(OsString::from).collect());
            let Err(error) = CommandLine::try_parse_from(words) else { continue };
            // Prose names commands without what they need, and with placeholders.
            let accepted = !matches!(error.kind(), UnknownArgument | InvalidSubcommand);
            if !accepted {
                wrong.push(format!("{}: {}: {}", path.display(), typed.join(" "), error.kind()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(count > 100, "{count} commands");
}
