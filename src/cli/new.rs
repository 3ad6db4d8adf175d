//! `xrun new PIPELINE`: print a commented experiment file.

use super::NewArguments;
use super::project;
use super::terminal::{Failure, Terminal};
use crate::experiment::pipeline::Pipeline;
use crate::experiment::{flatten, schema, shape, template};
use crate::files::write;
use crate::invocation;
use crate::problem::nearest;

pub fn run(arguments: &NewArguments, terminal: &Terminal) -> Result<u8, Failure> {
    let text = match (&arguments.like, &arguments.pipeline) {
        (Some(name), _) => example(name)?,
        (None, Some(pipeline)) => template_of(pipeline)?,
        (None, None) if arguments.project.is_some() => example("dummy")?,
        (None, None) => {
            terminal.print(&format!("{}\n{}", pipelines(), examples()));
            return Ok(0);
        }
    };
    if let Some(directory) = &arguments.project {
        let name = arguments.like.as_ref().or(arguments.pipeline.as_ref()).map_or("dummy", String::as_str);
        return project::create(directory, name, text, terminal);
    }
    let Some(path) = &arguments.output else {
        terminal.print(&text);
        return Ok(0);
    };
    let name = path.display();
    if path.symlink_metadata().is_ok() {
        return Err(Failure::Usage(format!("{name} already exists; choose another file")));
    }
    write::replace(path, text.as_bytes()).map_err(Failure::failed)?;
    let xrun = invocation::program();
    terminal.info(&format!("{name}: written; `{xrun} check {name}` checks it, `{xrun} {name}` runs it"));
    Ok(0)
}

/// Committed experiment as an example.
struct Example {
    name: &'static str,
    text: &'static str,
    /// The experiment that it extends.
    base: Option<&'static str>,
}

/// Examples, each with the name of the one that it extends, if any.
macro_rules! examples {
    ($($name:literal $(extends $base:literal)?,)*) => {
        &[$(Example {
            name: $name,
            text: include_str!(concat!("../../experiments/", $name, ".toml")),
            base: examples!(@base $($base)?),
        },)*]
    };
    (@base $base:literal) => { Some(include_str!(concat!("../../experiments/", $base, ".toml"))) };
    (@base) => { None };
}

/// Committed experiments, except for that of a command, which needs a script. Those on public data need `XRUN_REAL_DATA`.
const EXAMPLES: &[Example] = examples! {
    "cards" extends "stage2",
    "dummy",
    "esc10" extends "federated",
    "federated",
    "federated_gpu" extends "federated",
    "federated_seed" extends "federated",
    "federated_soak",
    "images",
    "qat_gpt2",
    "qat_gpt2_gpu" extends "qat_gpt2",
    "qat_soak",
    "qat_squad" extends "qat_gpt2",
    "soak",
    "stage2",
    "stage2_gpu" extends "stage2",
    "vision_easy_vqa" extends "vision_language",
    "vision_language",
    "vision_language_gpu" extends "vision_language",
    "vision_language_seed" extends "vision_language",
    "vision_soak",
};

/// Examples whose pipeline this program has.
fn known_examples() -> impl Iterator<Item = &'static Example> {
    let has_pipeline = |text: &str| Pipeline::names().any(|kind| text.contains(&format!("[pipeline.{kind}]")));
    EXAMPLES.iter().filter(move |example| has_pipeline(example.base.unwrap_or(example.text)))
}

/// Text of an example, for a file next to the schema.
pub fn example(name: &str) -> Result<String, Failure> {
    let found = known_examples().find(|example| example.name == name);
    let Example { text, base, .. } = found.ok_or_else(|| {
        let names = || known_examples().map(|example| example.name);
        let hint = nearest(name, names()).map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
        Failure::Usage(format!("unknown example `{name}`{hint} (known: {})", names().collect::<Vec<_>>().join(", ")))
    })?;
    let whole = base.and_then(|base| flatten::flatten(base, text)).unwrap_or_else(|| (*text).to_owned());
    // In this repository the schemas are in another directory, and so are the files that comments name.
    let mut whole = whole.replacen("#:schema ../schemas/", "#:schema ", 1);
    whole = whole.replace(&format!("experiments/{name}.toml"), &format!("{name}.toml"));
    Ok(with_repository(&whole))
}

/// Text with the names of files of xrun's repository marked as such.
fn with_repository(text: &str) -> String {
    let mut marked = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = ["docs/", "experiments/"].iter().filter_map(|directory| rest.find(directory)).min() {
        let is_path = |character: char| character.is_ascii_alphanumeric() || "/_.".contains(character);
        let end = at + rest[at..].find(|character| !is_path(character)).unwrap_or(rest.len() - at);
        // The full stop of a sentence is not part of a name.
        let end = at + rest[at..end].trim_end_matches('.').len();
        marked.push_str(&rest[..end]);
        marked.push_str(" (in xrun's repository)");
        rest = &rest[end..];
    }
    marked + rest
}

/// Table of the examples with their descriptions.
fn examples() -> String {
    let width = known_examples().map(|example| example.name.len()).max().unwrap_or_default();
    let mut text = format!("examples (`{} new --like EXAMPLE`):\n", invocation::program());
    for Example { name, text: example, .. } in known_examples() {
        let value: Option<toml::Value> = toml::from_str(example).ok();
        let about = value.as_ref().and_then(|value| value.get("experiment")?.get("description")?.as_str());
        text.push_str(&format!("  {name:<width$}  {}\n", about.unwrap_or_default()));
    }
    text
}

/// Text of an experiment file with every key of a pipeline.
pub fn template_of(pipeline: &str) -> Result<String, Failure> {
    template::template(pipeline).ok_or_else(|| {
        let hint = similar(pipeline).map_or_else(String::new, |kind| format!("; did you mean `{kind}`?"));
        let known = Pipeline::names().collect::<Vec<_>>().join(", ");
        Failure::Usage(format!("unknown pipeline `{pipeline}`{hint} (known: {known})"))
    })
}

/// Pipeline whose name is similar to a word or contains it.
fn similar(word: &str) -> Option<&'static str> {
    let part = |kind: &&str| word.len() > 2 && kind.contains(&word.to_lowercase());
    Pipeline::names().find(part).or_else(|| nearest(word, Pipeline::names()))
}

/// Table of the pipelines with their descriptions.
fn pipelines() -> String {
    let width = Pipeline::names().map(str::len).max().unwrap_or_default();
    let mut text = format!("pipelines (`{} new PIPELINE`):\n", invocation::program());
    for kind in Pipeline::names() {
        let part = shape::schema_at(schema::shared(), &format!("pipeline.{kind}"));
        let meaning = part.map(shape::meaning).unwrap_or_default();
        let first = meaning.find(". ").map_or(meaning, |end| &meaning[..=end]);
        text.push_str(&format!("  {kind:<width$}  {first}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_committed_experiment_but_that_of_a_command_is_an_example() {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/experiments");
        let names =
            std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.filter_map(|name| name.strip_suffix(".toml").map(str::to_owned)).collect();
        names.sort();
        names.retain(|name| name != "command");
        assert_eq!(EXAMPLES.iter().map(|example| example.name).collect::<Vec<_>>(), names);
    }

    #[test]
    fn names_of_files_of_the_repository_are_marked() {
        let text = "# See docs/a.md. As experiments/b_c.toml has it (docs/d.md)\n";
        let at = "(in xrun's repository)";
        assert_eq!(
            with_repository(text),
            format!("# See docs/a.md {at}. As experiments/b_c.toml {at} has it (docs/d.md {at})\n")
        );
    }
}
