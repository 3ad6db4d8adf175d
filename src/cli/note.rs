//! `xrun note RUN TEXT`: write something down of a run, and give it tags.

use clap::{Args, ValueHint};

use super::Results;
use super::terminal::{Failure, Terminal};
use crate::files::{file, layout, write};
use crate::results::format::VERSION;
use crate::results::notes::{CHARACTERS_MAX, NOTES_MAX, Note, Notes, TAGS_MAX, wrong_tag};
use crate::results::timestamp;
use crate::results::{index, named, read};

#[derive(Clone, Debug, Args)]
pub struct NoteArguments {
    /// A run: a folder, `experiment/run`, the beginning of a run's name or its last six digits, an experiment's name, `latest` or `latest~2`.
    #[arg(value_hint = ValueHint::DirPath)]
    run: String,
    /// What to write down.
    #[arg(required_unless_present_any = ["tag", "untag"])]
    text: Option<String>,
    /// Give it this tag; may be given many times. `ls --tag` finds it.
    #[arg(long, value_name = "TAG")]
    tag: Vec<String>,
    /// Take this tag away; may be given many times.
    #[arg(long, value_name = "TAG")]
    untag: Vec<String>,
    #[command(flatten)]
    results: Results,
}

pub fn run(arguments: &NoteArguments, terminal: &Terminal) -> Result<u8, Failure> {
    let usage = |message: String| Failure::Usage(message);
    let run = index::find(&arguments.results.folder, &arguments.run).map_err(|error| usage(error.to_string()))?;
    let run = std::fs::canonicalize(&run).map_err(|error| Failure::Failed(format!("{}: {error}", run.display())))?;
    for tag in arguments.tag.iter().chain(&arguments.untag) {
        if let Some(why) = wrong_tag(tag) {
            return Err(usage(format!("the tag {tag:?} {why}; for example --tag paper")));
        }
    }
    // Others may write a note at the same time, and the run itself may go on.
    let turn = file::turn(&run).map_err(|error| Failure::Failed(format!("{}: {error}", run.display())))?;
    let Notes { mut notes, mut tags, .. } = read::notes(&run).map_err(Failure::failed)?;
    if let Some(text) = &arguments.text {
        let text = text.trim();
        if text.is_empty() || text.chars().count() > CHARACTERS_MAX {
            return Err(usage(format!("a note has 1 to {CHARACTERS_MAX} characters")));
        }
        if notes.len() >= NOTES_MAX {
            return Err(usage(format!("the run has {NOTES_MAX} notes, and takes no more")));
        }
        notes.push(Note { time: timestamp::now(), text: text.to_owned() });
    }
    tags.extend(arguments.tag.iter().cloned());
    tags.retain(|tag| !arguments.untag.contains(tag));
    tags.sort();
    tags.dedup();
    if tags.len() > TAGS_MAX {
        return Err(usage(format!("a run has at most {TAGS_MAX} tags")));
    }
    let written = Notes { version: VERSION, notes, tags };
    write::replace_json(&run.join(layout::NOTES), &written).map_err(Failure::failed)?;
    drop(turn);
    let entry = index::entry(&run);
    let tags = if written.tags.is_empty() { "none".to_owned() } else { written.tags.join(", ") };
    let name = named::run(&run, &entry.experiment);
    terminal.say(&format!("{name}: notes {}, tags: {tags}", written.notes.len()));
    Ok(0)
}
