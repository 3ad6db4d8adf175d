//! `xrun note RUN TEXT`: attach a note or tags to a run.

use clap::{Args, ValueHint};

use super::Results;
use super::terminal::{Failure, Terminal};
use crate::files::{file, layout, write};
use crate::results::format::VERSION;
use crate::results::notes::{CHARACTERS_MAX, NOTES_MAX, Note, Notes, TAGS_MAX, tag_error};
use crate::results::timestamp;
use crate::results::view::RunView;
use crate::results::{index, read, run_name};
use crate::units::pluralize;

#[derive(Clone, Debug, Args)]
pub struct NoteArguments {
    #[arg(help = super::RUN_HELP, value_hint = ValueHint::DirPath)]
    run: String,
    /// Text of the note.
    #[arg(required_unless_present_any = ["tag", "untag"])]
    text: Option<String>,
    /// Add this tag (repeatable); `ls --tag` finds the run by it.
    #[arg(long, value_name = "TAG")]
    tag: Vec<String>,
    /// Remove this tag (repeatable).
    #[arg(long, value_name = "TAG")]
    untag: Vec<String>,
    #[command(flatten)]
    results: Results,
}

pub fn run(arguments: &NoteArguments, terminal: &Terminal) -> Result<u8, Failure> {
    let usage = |message: String| Failure::Usage(message);
    let run = index::find(&arguments.results.directory, &arguments.run)?;
    let run = std::fs::canonicalize(&run).map_err(|error| Failure::Failed(format!("{}: {error}", run.display())))?;
    for tag in arguments.tag.iter().chain(&arguments.untag) {
        if let Some(why) = tag_error(tag) {
            return Err(usage(format!("invalid tag {tag:?}: it {why}; for example --tag paper")));
        }
    }
    // Other processes may write notes at the same time.
    let turn = file::lock_directory(&run).map_err(|error| Failure::Failed(format!("{}: {error}", run.display())))?;
    let Notes { mut notes, mut tags, .. } = read::notes(&run).map_err(Failure::failed)?;
    if let Some(text) = &arguments.text {
        let text = text.trim();
        if text.is_empty() || text.chars().count() > CHARACTERS_MAX {
            return Err(usage(format!("a note must have 1 to {CHARACTERS_MAX} characters")));
        }
        if notes.len() >= NOTES_MAX {
            return Err(usage(format!("the run already has the maximum of {NOTES_MAX} notes")));
        }
        notes.push(Note { time: timestamp::now(), text: text.to_owned() });
    }
    tags.extend(arguments.tag.iter().cloned());
    tags.retain(|tag| !arguments.untag.contains(tag));
    tags.sort();
    tags.dedup();
    if tags.len() > TAGS_MAX {
        return Err(usage(format!("a run can have at most {TAGS_MAX} tags")));
    }
    let written = Notes { version: VERSION, notes, tags };
    write::replace_json(&run.join(layout::NOTES), &written).map_err(Failure::failed)?;
    drop(turn);
    let tags = if written.tags.is_empty() { "none".to_owned() } else { written.tags.join(", ") };
    let name = run_name::run(&run, &RunView::open(&run).experiment);
    terminal.info(&format!("{name}: {}, tags: {tags}", pluralize(written.notes.len() as u64, "note")));
    Ok(0)
}
