//! Checks of `[pipeline.command]`, and substitution of placeholders such as `{limits.batch_size}` in its arguments.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

use super::shape::{self, Shape};
use super::{Experiment, command_script, schema};
use crate::experiment::resolved::flat;
use crate::problem::{Problem, Problems, nearest};
use crate::settings::command::Command;
use crate::settings::step_pattern::StepPattern;
use crate::units::{Bytes, Span};

/// Placeholder of the run directory.
const RUN: &str = "run";
/// Placeholder of the checkpoint's path.
const CHECKPOINT: &str = "checkpoint";
const VALUES: &str = "values";
/// Value of `steps` for automatic detection of progress bars.
pub const RECOGNISE: &str = "auto";
/// Value of `steps` for no detection.
pub const NO_STEPS: &str = "none";

/// Keys that have an effect even if no argument refers to them.
const ALWAYS_USED: &[&str] = &[
    "experiment.name",
    "experiment.description",
    "experiment.seed",
    "experiment.patch",
    "limits.host_memory",
    "limits.device_memory",
    "training.time_limit",
    "training.fail_on",
    "memory.fail_on",
    "memory.probe",
];
/// Prefixes of such keys.
const ALWAYS_USED_SECTIONS: &[&str] = &["pipeline.", "sweep.", "launcher.", "leaks."];

/// Part of a text with placeholders.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part<'a> {
    Text(&'a str),
    /// Name in braces.
    Name(&'a str),
}

/// Splits a text into literal parts and placeholders.
///
/// # Errors
/// A brace is unmatched.
fn parts(text: &str) -> Result<Vec<Part<'_>>, String> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}']) {
        found.push(Part::Text(&rest[..at]));
        let brace = &rest[at..=at];
        let after = &rest[at + 1..];
        if after.starts_with(brace) {
            found.push(Part::Text(brace));
            rest = &after[1..];
            continue;
        }
        let end = after.find('}').filter(|_| brace == "{");
        let Some(end) = end else {
            return Err(format!("unmatched `{brace}`; a literal brace is written `{brace}{brace}`"));
        };
        found.push(Part::Name(&after[..end]));
        rest = &after[end + 1..];
    }
    found.push(Part::Text(rest));
    Ok(found)
}

/// Names of the placeholders in a text.
fn names(text: &str) -> impl Iterator<Item = &str> {
    parts(text).unwrap_or_default().into_iter().filter_map(|part| match part {
        Part::Name(name) => Some(name),
        Part::Text(_) => None,
    })
}

/// Values of the placeholders.
#[derive(Clone, Debug)]
pub struct Placeholders {
    known: BTreeMap<String, String>,
}

impl Placeholders {
    /// Values of an experiment's keys, of the command's own values, and of the run directory if there is one.
    pub fn new(experiment: &Experiment, command: &Command, run: Option<&Path>) -> Self {
        // All map keys are strings, so serialising cannot fail.
        let values = flat(&serde_json::to_value(experiment).unwrap_or_default());
        let own = values.iter().filter(|(key, _)| !key.starts_with("pipeline."));
        let mut known: BTreeMap<String, String> =
            own.filter_map(|(key, value)| Some((key.clone(), argument(key, value)?))).collect();
        let values = serde_json::to_value(&command.values).unwrap_or_default();
        let values = flat(&values).into_iter().filter(|(name, _)| !name.is_empty());
        known.extend(values.filter_map(|(name, value)| Some((format!("{VALUES}.{name}"), scalar(&value)?))));
        // Without a run directory, as in a check, the placeholder stays.
        known.insert(RUN.into(), run.map_or_else(|| "{run}".into(), |run| run.to_string_lossy().into_owned()));
        let mut words = Self { known };
        if let Some(checkpoint) = command.checkpoint.as_ref().and_then(|text| words.fill(text).ok()) {
            words.known.insert(CHECKPOINT.into(), checkpoint);
        }
        words
    }

    /// Substitutes the placeholders in a text.
    ///
    /// # Errors
    /// A placeholder is unknown: the message and the help.
    pub fn fill(&self, text: &str) -> Result<String, (String, String)> {
        let parts =
            parts(text).map_err(|message| (message, "double the brace, or close the placeholder".to_owned()))?;
        let mut filled = String::new();
        for part in parts {
            match part {
                Part::Text(text) => filled.push_str(text),
                Part::Name(name) => filled.push_str(self.known.get(name).ok_or_else(|| self.missing(name))?),
            }
        }
        Ok(filled)
    }

    /// Substitutes the placeholders in the arguments of a command. One whose placeholders are empty is left out, as a flag that is swept.
    ///
    /// # Errors
    /// As [`Placeholders::fill`], as one message.
    pub fn fill_all(&self, texts: &[String]) -> Result<Vec<String>, String> {
        let fill = |text: &String| self.fill(text).map_err(|(message, help)| format!("{message}: {help}"));
        let filled: Result<Vec<String>, String> = texts.iter().map(fill).collect();
        let is_kept = |(text, filled): &(&String, String)| text.is_empty() || !filled.is_empty();
        Ok(texts.iter().zip(filled?).filter(is_kept).map(|(_, filled)| filled).collect())
    }

    fn missing(&self, name: &str) -> (String, String) {
        let shown = crate::printable::escape(name);
        if name == CHECKPOINT {
            return ("`{checkpoint}` has no value".into(), "set the path: `checkpoint = \"{run}/…\"`".into());
        }
        if let Some(part) = shape::schema_at(schema::shared(), name) {
            return match shape::parse(part) {
                Shape::Table { .. } | Shape::Map { .. } | Shape::Array { .. } => (
                    format!("`{{{shown}}}` is a table or array, expected a single value"),
                    "name one of its keys".into(),
                ),
                _ => (format!("`{{{shown}}}` has no value"), format!("set `{shown}`, or remove the argument")),
            };
        }
        let near = nearest(name, self.known.keys().map(String::as_str));
        let help = match near {
            Some(near) => format!("did you mean `{{{near}}}`?"),
            None => {
                let own: Vec<&str> =
                    self.known.keys().map(String::as_str).filter(|name| name.starts_with(VALUES)).take(8).collect();
                let own = if own.is_empty() { "none yet".to_owned() } else { own.join(", ") };
                format!(
                    "expected a key of the experiment, `{{run}}`, or a key of `values` ({own}); `{{{{` is a literal \
                                         brace"
                )
            }
        };
        (format!("unknown placeholder `{{{shown}}}`"), help)
    }
}

/// Value as an argument: sizes in bytes and durations in seconds.
fn argument(key: &str, value: &Value) -> Option<String> {
    match (shape::schema_at(schema::shared(), key).map(shape::parse), value) {
        (Some(Shape::Bytes), Value::String(text)) => text.parse::<Bytes>().ok().map(|bytes| bytes.0.to_string()),
        (Some(Shape::Span), Value::String(text)) => {
            text.parse::<Span>().ok().map(|span| span.0.as_secs_f64().to_string())
        }
        _ => scalar(value),
    }
}

/// Text of a single value; `None` for tables and arrays.
fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        _ => None,
    }
}

/// Names of all placeholders of a command.
pub fn named(command: &Command) -> BTreeSet<String> {
    command.texts().flat_map(|(_, text)| names(text).map(str::to_owned).collect::<Vec<_>>()).collect()
}

/// Adds the problems of the command in `section`, and of keys without an effect.
pub fn check(command: &Command, section: &str, experiment: &Experiment, problems: &mut Problems) {
    let at = |field: &str| format!("{section}.{field}");
    let mut add = |field: &str, message: String, help: &str| problems.add(Problem::new(at(field), message).help(help));
    let example = "write `program = [\"python3\", \"train.py\"]`";
    for (field, arguments) in [("program", Some(&command.program)), ("resume", command.resume.as_ref())] {
        match arguments.map(|arguments| arguments.first().map(String::as_str)) {
            Some(None) if field == "program" => add(field, "is missing".into(), example),
            Some(None) => add(field, "is empty".into(), "write a program and its arguments, or remove the key"),
            Some(Some("")) => add(field, "the name of the program is empty".into(), example),
            _ => {}
        }
    }
    if command.every.0 < EVERY_MIN {
        let message = format!("expected {} or more, found {}", Span(EVERY_MIN), command.every);
        add("every", message, "for example `every = \"1s\"`");
    }
    let pattern = command.steps.as_deref().filter(|text| ![RECOGNISE, NO_STEPS].contains(text));
    if let Some(Err(error)) = pattern.map(StepPattern::new) {
        add("steps", error, "or write `steps = \"auto\"` for common progress bars, or remove the key");
    }
    if command.steps.is_some() && command.steps_file.is_some() {
        add("steps_file", "`steps` is already the source of steps".into(), "keep one of the two");
    }
    for name in command.environment.keys().filter(|name| name.contains('-')) {
        add(
            &format!("environment.{name}"),
            "is not a name of an environment variable".into(),
            "use letters, digits and `_`",
        );
    }
    let words = Placeholders::new(experiment, command, None);
    for (field, text) in command.texts() {
        if let Err((message, help)) = words.fill(text) {
            add(&field, message, &help);
        }
    }
    // A cluster may have what this machine has not.
    if experiment.launcher.is_none() {
        command_script::check(command, section, &words, problems);
    }
    unused(command, section, experiment, problems);
}

/// Smallest interval between samples.
const EVERY_MIN: std::time::Duration = std::time::Duration::from_millis(10);

/// Adds keys whose values have no effect, because no argument passes them to the command.
fn unused(command: &Command, section: &str, experiment: &Experiment, problems: &mut Problems) {
    let named = named(command);
    let values = |experiment: &Experiment| flat(&serde_json::to_value(experiment).unwrap_or_default());
    let default = values(&Experiment::new("", experiment.pipeline.clone()));
    let mut reported: BTreeSet<String> = BTreeSet::new();
    for (key, value) in values(experiment) {
        let is_used = ALWAYS_USED.contains(&key.as_str())
            || ALWAYS_USED_SECTIONS.iter().any(|section| key.starts_with(section))
            // Reported as a whole section by the general checks.
            || key.starts_with("dataset.")
            || key.starts_with("model.");
        if is_used || named.contains(&key) || default.get(&key) == Some(&value) {
            continue;
        }
        // A kind that is not the default adds all its keys: report it once, and not at all if a placeholder names one of them.
        let table = key.rsplit_once('.').map_or("", |(table, _)| table);
        let of_other_kind = !default.contains_key(&key) && default.keys().all(|known| !known.starts_with(table));
        if of_other_kind && (named.iter().any(|name| name.starts_with(table)) || !reported.insert(table.to_owned())) {
            continue;
        }
        let problem = Problem::new(key.as_str(), "has no effect: no argument of the command uses it");
        problems
            .add(problem.help(format!("pass it as `{{{key}}}`, or remove it")).related(format!("{section}.program")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn experiment(text: &str) -> Experiment {
        toml::from_str(text).unwrap()
    }

    fn filled(text: &str, argument: &str) -> Result<String, (String, String)> {
        let experiment = experiment(text);
        let command = experiment.command().unwrap();
        Placeholders::new(&experiment, command, Some(Path::new("/results/a/1"))).fill(argument)
    }

    #[test]
    fn placeholders_are_replaced_by_values() {
        let text = "[pipeline.command]\ncheckpoint = \"{run}/last.pt\"\n[pipeline.command.values]\nrate = 1e-4\nname = \"a b\"\n\
                    [limits]\nhost_memory = \"2 GiB\"\n[training]\ntime_limit = \"90 s\"\n";
        let filled = |argument| filled(text, argument).unwrap();
        assert_eq!(filled("--lr={values.rate}/{values.name}"), "--lr=0.0001/a b");
        assert_eq!(filled("{limits.host_memory} {training.time_limit}"), "2147483648 90");
        assert_eq!(filled("{checkpoint}"), "/results/a/1/last.pt");
        assert_eq!(filled("{{\"seed\": {experiment.seed}}}"), "{\"seed\": 0}");
    }

    #[test]
    fn an_argument_of_an_empty_value_is_left_out_and_an_empty_one_kept() {
        let text = "[pipeline.command]\n[pipeline.command.values]\nflag = \"\"\nname = \"a\"\n";
        let experiment = experiment(text);
        let words = Placeholders::new(&experiment, experiment.command().unwrap(), None);
        let arguments = ["{values.flag}", "", "--x={values.flag}", "{values.name}"].map(str::to_owned);
        assert_eq!(words.fill_all(&arguments).unwrap(), ["", "--x=", "a"]);
    }

    fn problems(text: &str) -> Vec<String> {
        let mut problems = Problems::default();
        let experiment = experiment(text);
        check(experiment.command().unwrap(), "pipeline.command", &experiment, &mut problems);
        problems.iter().map(|problem| problem.key.clone()).collect()
    }

    #[test]
    fn a_key_without_effect_is_a_problem_and_one_that_is_passed_is_not() {
        let with = |argument: &str, rest: &str| {
            problems(&format!("[pipeline.command]\nprogram = [\"true\", \"{argument}\"]\n{rest}"))
        };
        assert_eq!(with("a", ""), [""; 0]);
        assert_eq!(with("a", "[training]\nepochs = 3\n"), ["training.epochs"]);
        assert_eq!(with("{training.epochs}", "[training]\nepochs = 3\n"), [""; 0]);
        let sgd = "[optimizer.sgd]\nlearning_rate = 0.5\n";
        assert_eq!(with("{optimizer.sgd.learning_rate}", sgd), [""; 0]);
        assert_eq!(with("a", sgd).len(), 1);
        assert_eq!(with("a", "[experiment]\nseed = 3\n[limits]\nhost_memory = \"1 GiB\"\n"), [""; 0]);
        assert_eq!(problems("[pipeline.command]\n"), ["pipeline.command.program"]);
    }
}
