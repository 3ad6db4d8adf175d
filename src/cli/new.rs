//! `xrun new PIPELINE`: a commented file to start from.

use super::NewArguments;
use super::terminal::{Failure, Terminal};
use crate::experiment::pipeline::Pipeline;
use crate::experiment::{schema, shape, template};
use crate::invocation;
use crate::problem::nearest;
use crate::results::write;

pub fn run(arguments: &NewArguments, terminal: &Terminal) -> Result<u8, Failure> {
    let Some(pipeline) = &arguments.pipeline else {
        terminal.answer(&pipelines());
        return Ok(0);
    };
    let text = template::template(pipeline).ok_or_else(|| {
        let hint = meant(pipeline).map_or_else(String::new, |kind| format!("; did you mean `{kind}`?"));
        let known = Pipeline::names().collect::<Vec<_>>().join(", ");
        Failure::Usage(format!("there is no pipeline `{pipeline}`{hint} (known: {known})"))
    })?;
    let Some(path) = &arguments.output else {
        terminal.answer(&text);
        return Ok(0);
    };
    let name = path.display();
    if path.symlink_metadata().is_ok() {
        return Err(Failure::Usage(format!("{name} is there already; name another file")));
    }
    write::replace(path, text.as_bytes()).map_err(Failure::failed)?;
    let xrun = invocation::program();
    terminal
        .say(&format!("{name}: written; `{xrun} check {name}` says what is wrong with it, `{xrun} {name}` runs it"));
    Ok(0)
}

/// The kind that is nearly this one, or that has it as a part of its name.
fn meant(word: &str) -> Option<&'static str> {
    let part = |kind: &&str| word.len() > 2 && kind.contains(&word.to_lowercase());
    Pipeline::names().find(part).or_else(|| nearest(word, Pipeline::names()))
}

/// Each kind with its meaning.
fn pipelines() -> String {
    let width = Pipeline::names().map(str::len).max().unwrap_or_default();
    let mut text = format!("pipelines, each for `{} new PIPELINE`:\n", invocation::program());
    for kind in Pipeline::names() {
        let part = shape::at(schema::shared(), &format!("pipeline.{kind}"));
        let meaning = part.map(shape::meaning).unwrap_or_default();
        let first = meaning.find(". ").map_or(meaning, |end| &meaning[..=end]);
        text.push_str(&format!("  {kind:<width$}  {first}\n"));
    }
    text
}
