//! `xrun new PIPELINE`: print a commented experiment file, or an example.

use super::NewArguments;
use super::terminal::{Failure, Terminal};
use crate::experiment::pipeline::Pipeline;
use crate::experiment::{schema, shape, template};
use crate::files::write;
use crate::invocation;
use crate::problem::nearest;

pub fn run(arguments: &NewArguments, terminal: &Terminal) -> Result<u8, Failure> {
    let text = match (&arguments.like, &arguments.pipeline) {
        (Some(name), _) => example(name)?,
        (None, Some(name)) if !Pipeline::names().any(|kind| kind == name.as_str()) && is_example(name) => {
            example(name)?
        }
        (None, Some(pipeline)) => template_of(pipeline)?,
        (None, None) => {
            terminal.print(&format!("{}\n{}", pipelines(), examples()));
            return Ok(0);
        }
    };
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

/// Committed experiments that need no other file, with their names, listed by the build script.
const EXAMPLES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/examples.rs"));

/// Examples whose pipeline this program has.
fn known_examples() -> impl Iterator<Item = (&'static str, &'static str)> {
    let has_pipeline = |text: &str| Pipeline::names().any(|kind| text.contains(&format!("[pipeline.{kind}]")));
    EXAMPLES.iter().copied().filter(move |(_, text)| has_pipeline(text))
}

fn is_example(name: &str) -> bool {
    known_examples().any(|(known, _)| known == name)
}

/// Text of an example, for a file next to the schema.
fn example(name: &str) -> Result<String, Failure> {
    let found = known_examples().find(|(known, _)| *known == name);
    let (_, text) = found.ok_or_else(|| {
        let names = || known_examples().map(|(name, _)| name);
        let hint = nearest(name, names()).map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
        Failure::Usage(format!("unknown example `{name}`{hint} (known: {})", names().collect::<Vec<_>>().join(", ")))
    })?;
    // In this repository the schemas are in another directory.
    Ok(text.replacen("#:schema ../schemas/", "#:schema ", 1))
}

/// Table of the examples with their descriptions.
fn examples() -> String {
    let width = known_examples().map(|(name, _)| name.len()).max().unwrap_or_default();
    let mut text = format!("examples (`{} new --like EXAMPLE`):\n", invocation::program());
    for (name, example) in known_examples() {
        let value: Option<toml::Value> = toml::from_str(example).ok();
        let about = value.as_ref().and_then(|value| value.get("experiment")?.get("description")?.as_str());
        text.push_str(&format!("  {name:<width$}  {}\n", about.unwrap_or_default()));
    }
    text
}

/// Text of an experiment file with every key of a pipeline.
fn template_of(pipeline: &str) -> Result<String, Failure> {
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
        let meaning = part.map(shape::description).unwrap_or_default();
        let first = meaning.find(". ").map_or(meaning, |end| &meaning[..=end]);
        text.push_str(&format!("  {kind:<width$}  {first}\n"));
    }
    text
}
