//! `xrun verdict PATH`: is memory growing, in a run or in a trace of another tool?

use std::path::PathBuf;

use super::VerdictArguments;
use super::terminal::{Failure, Terminal};
use crate::report::verdict;
use crate::results::{index, layout, printable};
use crate::run::stop::EXIT_VERDICT;
use crate::verdict::of_file;

/// Enough to name some columns.
const LEFT_OUT_CHARACTERS_MAX: usize = 2000;
/// Memory of a training is more than this, in bytes.
const SMALL: f64 = 1024.0 * 1024.0;

pub fn run(arguments: &VerdictArguments, terminal: &Terminal) -> Result<u8, Failure> {
    let path = PathBuf::from(&arguments.path);
    let path = match path.exists() {
        true => path,
        // A run by its name, as everywhere.
        false => index::find(&arguments.results.folder, &arguments.path)
            .map_err(|error| Failure::Usage(error.to_string()))?,
    };
    let judged = of_file::of_path(&path, &arguments.column).map_err(Failure::failed)?;
    let found = judged.verdict;
    if !judged.left_out.is_empty() {
        terminal.say(&format!("left out: {}", printable::line(&judged.left_out.join(", "), LEFT_OUT_CHARACTERS_MAX)));
    }
    if path.is_dir() && !path.join(layout::MEMORY).exists() {
        terminal.say("this result has no memory.jsonl: the verdict is that of its verdict.json");
    }
    // A column in MB would be taken for bytes, and its growth for none.
    let small = found.series.iter().all(|one| one.peak < SMALL);
    if small && path.is_file() {
        terminal.say("no value reaches 1 MiB: are these bytes? A unit at the end of a column's name is read: `rss_mb`");
    }
    match arguments.json {
        true => terminal.json(&found),
        false => terminal.answer(&verdict::text(&found, terminal.width())),
    }
    Ok(if arguments.fail_on.fails(found.verdict) { EXIT_VERDICT } else { 0 })
}
