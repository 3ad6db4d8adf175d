//! Which words does a command get, once `{limits.batch_size}` and the like are filled in?

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

use super::shape::{self, Shape};
use super::{Experiment, schema};
use crate::experiment::resolved::flat;
use crate::problem::{Problem, Problems, nearest};
use crate::settings::command::Command;
use crate::settings::step_pattern::StepPattern;
use crate::units::{Bytes, Span};

/// The folder of the results.
const RUN: &str = "run";
/// What the command saves to.
const CHECKPOINT: &str = "checkpoint";
const VALUES: &str = "values";
/// In place of a pattern: progress bars that are known.
pub const RECOGNISE: &str = "auto";
/// In place of a pattern: nothing is read.
pub const NO_STEPS: &str = "none";

/// Keys that mean something for every command, whether or not a word of it names them.
const USED: &[&str] = &[
    "experiment.name",
    "experiment.description",
    "experiment.seed",
    "experiment.patch",
    "limits.host_memory",
    "limits.device_memory",
    "training.time_limit",
    "memory.fail_on",
    "memory.probe",
];
/// Sections in the same way.
const USED_SECTIONS: &[&str] = &["pipeline.", "sweep.", "launcher.", "leaks."];

/// A text in its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part<'a> {
    Text(&'a str),
    /// What stood in braces.
    Name(&'a str),
}

/// Cuts a text at its placeholders.
///
/// # Errors
/// A brace without its other one.
fn parts(text: &str) -> Result<Vec<Part<'_>>, String> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}']) {
        found.push(Part::Text(&rest[..at]));
        let brace = &rest[at..=at];
        let behind = &rest[at + 1..];
        if behind.starts_with(brace) {
            found.push(Part::Text(brace));
            rest = &behind[1..];
            continue;
        }
        let end = behind.find('}').filter(|_| brace == "{");
        let Some(end) = end else {
            return Err(format!("`{brace}` stands alone; a brace that is meant is written twice: `{brace}{brace}`"));
        };
        found.push(Part::Name(&behind[..end]));
        rest = &behind[end + 1..];
    }
    found.push(Part::Text(rest));
    Ok(found)
}

/// The names that stand in braces.
fn names(text: &str) -> impl Iterator<Item = &str> {
    parts(text).unwrap_or_default().into_iter().filter_map(|part| match part {
        Part::Name(name) => Some(name),
        Part::Text(_) => None,
    })
}

/// What placeholders stand for.
#[derive(Clone, Debug)]
pub struct Words {
    known: BTreeMap<String, String>,
}

impl Words {
    /// All that an experiment has a value for, and its run if that has a folder.
    pub fn of(experiment: &Experiment, command: &Command, run: Option<&Path>) -> Self {
        // Serialises: no map in it has keys other than strings.
        let values = flat(&serde_json::to_value(experiment).unwrap_or_default());
        let own = values.iter().filter(|(key, _)| !key.starts_with("pipeline."));
        let mut known: BTreeMap<String, String> =
            own.filter_map(|(key, value)| Some((key.clone(), word(key, value)?))).collect();
        let knobs = serde_json::to_value(&command.values).unwrap_or_default();
        let knobs = flat(&knobs).into_iter().filter(|(name, _)| !name.is_empty());
        known.extend(knobs.filter_map(|(name, value)| Some((format!("{VALUES}.{name}"), plain(&value)?))));
        // Not text that a path may lack: a folder whose name is no Unicode is no place for results that are to be named.
        known.insert(RUN.into(), run.map_or_else(|| "{run}".into(), |run| run.to_string_lossy().into_owned()));
        let mut words = Self { known };
        if let Some(checkpoint) = command.checkpoint.as_ref().and_then(|text| words.fill(text).ok()) {
            words.known.insert(CHECKPOINT.into(), checkpoint);
        }
        words
    }

    /// A text with its placeholders filled in.
    ///
    /// # Errors
    /// One that names nothing, and what to do.
    pub fn fill(&self, text: &str) -> Result<String, (String, String)> {
        let parts = parts(text).map_err(|message| (message, "write it twice, or close it".to_owned()))?;
        let mut filled = String::new();
        for part in parts {
            match part {
                Part::Text(text) => filled.push_str(text),
                Part::Name(name) => filled.push_str(self.known.get(name).ok_or_else(|| self.missing(name))?),
            }
        }
        Ok(filled)
    }

    /// All of them.
    ///
    /// # Errors
    /// As [`Words::fill`], in one sentence.
    pub fn fill_all(&self, texts: &[String]) -> Result<Vec<String>, String> {
        let fill = |text: &String| self.fill(text).map_err(|(message, help)| format!("{message}: {help}"));
        texts.iter().map(fill).collect()
    }

    fn missing(&self, name: &str) -> (String, String) {
        let shown = crate::printable::escape(name);
        if name == CHECKPOINT {
            return (
                "`{checkpoint}` has no value here".into(),
                "say where it saves: `checkpoint = \"{run}/…\"`".into(),
            );
        }
        if let Some(part) = shape::at(schema::shared(), name) {
            return match shape::of(part) {
                Shape::Table { .. } | Shape::Free { .. } | Shape::Array { .. } => {
                    (format!("`{{{shown}}}` is no single value"), "name a key of it that is one".into())
                }
                _ => (format!("`{{{shown}}}` has no value here"), format!("give `{shown}` one, or take the word out")),
            };
        }
        if name == CHECKPOINT {
            return (
                "`{checkpoint}` has no value here".into(),
                "say where it saves: `checkpoint = \"{run}/…\"`".into(),
            );
        }
        let near = nearest(name, self.known.keys().map(String::as_str));
        let help = match near {
            Some(near) => format!("did you mean `{{{near}}}`?"),
            None => {
                let own: Vec<&str> =
                    self.known.keys().map(String::as_str).filter(|name| name.starts_with(VALUES)).take(8).collect();
                let own = if own.is_empty() { "none yet".to_owned() } else { own.join(", ") };
                format!(
                    "it takes a key of the experiment, `{{run}}`, or one of its own below \
                     `values` ({own}); `{{{{` is a brace"
                )
            }
        };
        (format!("`{{{shown}}}` names nothing"), help)
    }
}

/// A value as a word: bytes and seconds for sizes and durations, which programs read as numbers.
fn word(key: &str, value: &Value) -> Option<String> {
    match (shape::at(schema::shared(), key).map(shape::of), value) {
        (Some(Shape::Bytes), Value::String(text)) => text.parse::<Bytes>().ok().map(|bytes| bytes.0.to_string()),
        (Some(Shape::Span), Value::String(text)) => {
            text.parse::<Span>().ok().map(|span| span.0.as_secs_f64().to_string())
        }
        _ => plain(value),
    }
}

fn plain(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        _ => None,
    }
}

/// The keys that words of the command name.
pub fn named(command: &Command) -> BTreeSet<String> {
    command.texts().flat_map(|(_, text)| names(text).map(str::to_owned).collect::<Vec<_>>()).collect()
}

/// Adds what is wrong with a command that stands below `section`, and keys that would do nothing.
pub fn check(command: &Command, section: &str, experiment: &Experiment, problems: &mut Problems) {
    let at = |field: &str| format!("{section}.{field}");
    let mut add = |field: &str, message: String, help: &str| problems.add(Problem::new(at(field), message).help(help));
    let example = "write `program = [\"python3\", \"train.py\"]`";
    for (field, words) in [("program", Some(&command.program)), ("resume", command.resume.as_ref())] {
        match words.map(|words| words.first().map(String::as_str)) {
            Some(None) if field == "program" => add(field, "is missing".into(), example),
            Some(None) => add(field, "is empty".into(), "name a program and its words, or take the key out"),
            Some(Some("")) => add(field, "the program has no name".into(), example),
            _ => {}
        }
    }
    if command.every.0 < EVERY_MIN {
        let message = format!("expected {} or more, found {}", Span(EVERY_MIN), command.every);
        add("every", message, "for example `every = \"1s\"`");
    }
    let pattern = command.steps.as_deref().filter(|text| ![RECOGNISE, NO_STEPS].contains(text));
    if let Some(Err(error)) = pattern.map(StepPattern::new) {
        add("steps", error, "or write `steps = \"auto\"` for progress bars that are known, or take the key out");
    }
    let sources =
        [("steps", &command.steps), ("steps_file", &command.steps_file), ("tensorboard", &command.tensorboard)];
    let given: Vec<&str> = sources.iter().filter(|(_, source)| source.is_some()).map(|(field, _)| *field).collect();
    if let [first, second, ..] = given.as_slice() {
        add(second, format!("`{first}` says already where steps come from"), "keep one of the two");
    }
    for name in command.environment.keys().filter(|name| name.contains('-')) {
        add(&format!("environment.{name}"), "no variable is called so".into(), "letters, digits and `_` are");
    }
    let words = Words::of(experiment, command, None);
    for (field, text) in command.texts() {
        if let Err((message, help)) = words.fill(text) {
            add(&field, message, &help);
        }
    }
    unused(command, section, experiment, problems);
}

/// Samples no closer than this.
const EVERY_MIN: std::time::Duration = std::time::Duration::from_millis(10);

/// Keys that were given a value which reaches nothing: the command does not know of it.
fn unused(command: &Command, section: &str, experiment: &Experiment, problems: &mut Problems) {
    let named = named(command);
    let values = |experiment: &Experiment| flat(&serde_json::to_value(experiment).unwrap_or_default());
    let default = values(&Experiment::new("", experiment.pipeline.clone()));
    let mut told: BTreeSet<String> = BTreeSet::new();
    for (key, value) in values(experiment) {
        let means_something = USED.contains(&key.as_str())
            || USED_SECTIONS.iter().any(|section| key.starts_with(section))
            // Data and models are told of as a whole.
            || key.starts_with("dataset.")
            || key.starts_with("model.");
        if means_something || named.contains(&key) || default.get(&key) == Some(&value) {
            continue;
        }
        // A kind that is not the default brings all its keys; one that is named is reason enough for the others.
        let table = key.rsplit_once('.').map_or("", |(table, _)| table);
        let of_other_kind = !default.contains_key(&key) && default.keys().all(|known| !known.starts_with(table));
        if of_other_kind && (named.iter().any(|name| name.starts_with(table)) || !told.insert(table.to_owned())) {
            continue;
        }
        let problem = Problem::new(key.as_str(), "would do nothing: no word of the command has it");
        problems.add(problem.help(format!("pass it on as `{{{key}}}`, or take it out")).related(at_program(section)));
    }
}

fn at_program(section: &str) -> String {
    format!("{section}.program")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn braces_are_placeholders_or_written_twice() {
        assert_eq!(
            parts("a{b.c}d{{e}}").unwrap(),
            [
                Part::Text("a"),
                Part::Name("b.c"),
                Part::Text("d"),
                Part::Text("{"),
                Part::Text("e"),
                Part::Text("}"),
                Part::Text("")
            ]
        );
        assert!(parts("a{b").unwrap_err().contains("stands alone"));
        assert!(parts("a}b").unwrap_err().contains("`}}`"));
    }

    fn experiment(text: &str) -> Experiment {
        toml::from_str(text).unwrap()
    }

    fn filled(text: &str, word: &str) -> Result<String, (String, String)> {
        let experiment = experiment(text);
        let command = experiment.command().unwrap();
        Words::of(&experiment, command, Some(Path::new("/results/a/1"))).fill(word)
    }

    #[test]
    fn a_word_gets_the_values_of_keys() {
        let text = "[pipeline.command]\ncheckpoint = \"{run}/last.pt\"\n[pipeline.command.values]\nrate = 1e-4\nname = \"a b\"\n\
                    [limits]\nhost_memory = \"2 GiB\"\n[training]\ntime_limit = \"90 s\"\n";
        let filled = |word| filled(text, word).unwrap();
        assert_eq!(filled("--lr={values.rate}/{values.name}"), "--lr=0.0001/a b");
        assert_eq!(filled("{limits.host_memory} {training.time_limit}"), "2147483648 90");
        assert_eq!(filled("{checkpoint}"), "/results/a/1/last.pt");
        assert_eq!(filled("{{\"seed\": {experiment.seed}}}"), "{\"seed\": 0}");
    }

    #[test]
    fn a_placeholder_that_names_nothing_is_told_what_may_be_meant() {
        let text = "[pipeline.command]\n[pipeline.command.values]\nrate = 1e-4\n";
        let wrong = |word| filled(text, word).unwrap_err();
        assert_eq!(
            wrong("{values.rat}"),
            ("`{values.rat}` names nothing".into(), "did you mean `{values.rate}`?".into())
        );
        assert!(wrong("{training.max_steps}").0.contains("has no value here"));
        assert!(wrong("{cleanup.actions}").0.contains("is no single value"));
        assert!(wrong("{checkpoint}").1.contains("checkpoint = "));
    }

    fn problems(text: &str) -> Vec<String> {
        let mut problems = Problems::default();
        let experiment = experiment(text);
        check(experiment.command().unwrap(), "pipeline.command", &experiment, &mut problems);
        problems.iter().map(|problem| format!("{}: {}", problem.key, problem.message)).collect()
    }

    #[test]
    fn a_key_that_reaches_nothing_is_told_and_one_that_is_passed_on_is_not() {
        let with =
            |word: &str, rest: &str| problems(&format!("[pipeline.command]\nprogram = [\"true\", \"{word}\"]\n{rest}"));
        assert_eq!(with("a", ""), [""; 0]);
        let nothing = "training.epochs: would do nothing: no word of the command has it";
        assert_eq!(with("a", "[training]\nepochs = 3\n"), [nothing]);
        assert_eq!(with("{training.epochs}", "[training]\nepochs = 3\n"), [""; 0]);
        let sgd = "[optimizer.sgd]\nlearning_rate = 0.5\n";
        assert_eq!(with("{optimizer.sgd.learning_rate}", sgd), [""; 0]);
        assert_eq!(with("a", sgd).len(), 1);
        assert_eq!(with("a", "[experiment]\nseed = 3\n[limits]\nhost_memory = \"1 GiB\"\n"), [""; 0]);
        assert_eq!(problems("[pipeline.command]\n"), ["pipeline.command.program: is missing"]);
    }
}
