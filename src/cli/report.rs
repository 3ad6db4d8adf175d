//! `xrun report RUN`: write the page for people again.

use super::RunName;
use super::terminal::{Failure, Terminal};
use crate::results::{index, layout};

pub fn run(arguments: &RunName, terminal: &Terminal) -> Result<u8, Failure> {
    let run =
        index::find(&arguments.results.folder, &arguments.run).map_err(|error| Failure::Usage(error.to_string()))?;
    for damage in crate::report::write(&run).map_err(Failure::failed)? {
        terminal.say(&format!("damaged: {damage}"));
    }
    let page = run.join(layout::REPORT).display().to_string();
    match arguments.json {
        true => terminal.json(&serde_json::json!({ "report": page })),
        false => terminal.answer(&page),
    }
    Ok(0)
}
