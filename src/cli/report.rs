//! `xrun report RUN`: write report.html again.

use super::RunName;
use super::terminal::{Failure, Terminal};
use crate::files::layout;
use crate::judge;
use crate::results::{index, read};
use crate::verdict::table::TableOptions;

pub fn run(arguments: &RunName, terminal: &Terminal) -> Result<u8, Failure> {
    let run = index::find(&arguments.results.directory, &arguments.run)?;
    // An active or killed run has no verdict yet.
    let so_far = match read::verdict(&run) {
        Ok(None) => judge::path(&run, &TableOptions::default()).ok().map(|judged| judged.verdict),
        _ => None,
    };
    for damage in crate::report::write_judged(&run, so_far).map_err(Failure::failed)? {
        terminal.info(&format!("damaged: {damage}"));
    }
    let page = run.join(layout::REPORT).display().to_string();
    match arguments.json {
        true => terminal.json(&serde_json::json!({ "report": page })),
        false => terminal.print(&page),
    }
    Ok(0)
}
