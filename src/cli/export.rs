//! `xrun export RUN --to parquet`: tables of a run for other tools.

use clap::ValueEnum;

use std::path::{Path, PathBuf};

use super::ExportArguments;
use super::terminal::{Failure, Terminal};
use crate::export::{self, Exported, Format, Table, public, tensorboard};
use crate::files::{layout, write};
use crate::report;
use crate::results::timestamp;
use crate::results::{index, read};

pub fn run(arguments: &ExportArguments, terminal: &Terminal) -> Result<u8, Failure> {
    let Some(to) = arguments.to else {
        let named = To::value_variants().iter().filter_map(ValueEnum::to_possible_value);
        let all: Vec<String> = named
            .map(|value| {
                let about = value.get_help().map(|about| format!(" ({about})")).unwrap_or_default();
                format!("`--to {}`{about}", value.get_name())
            })
            .collect();
        return Err(Failure::Usage(format!("which format? {}", all.join(" or "))));
    };
    let run =
        index::find(&arguments.results.folder, &arguments.run).map_err(|error| Failure::Usage(error.to_string()))?;
    if to == To::Public {
        return public(&run, arguments, terminal);
    }
    let own = run.join(layout::EXPORT);
    if arguments.output.is_none() && std::fs::symlink_metadata(&own).is_ok_and(|found| found.is_symlink()) {
        let own = own.display();
        return Err(Failure::Failed(format!(
            "{own} is a link, and may lead anywhere; name a folder with --output DIR"
        )));
    }
    let output = arguments.output.clone().unwrap_or(own);
    write::at(&output, std::fs::create_dir_all(&output)).map_err(Failure::failed)?;
    let format = match to {
        To::Parquet => Format::Parquet,
        To::Csv => Format::Csv,
        To::Tensorboard | To::Public => return events(&run, &output, arguments.json, terminal),
    };
    let tables = Table::ALL.into_iter().filter(|table| arguments.tables.is_empty() || arguments.tables.contains(table));
    let mut written = Vec::new();
    for table in tables {
        match export::export(&run, table, format, &output).map_err(Failure::failed)? {
            Some(one) => {
                tell_what_is_missing(&one, terminal);
                written.push(one);
            }
            None => terminal.say(&format!("{}: left out: there is no {} here", table.name(), table.made_of())),
        }
    }
    if written.is_empty() {
        return Err(Failure::Failed(format!("no table can be written: {} has no lines", run.display())));
    }
    match arguments.json {
        true => terminal.json(&written.iter().map(json).collect::<Vec<_>>()),
        false => terminal.answer(&written.iter().map(text).collect::<Vec<_>>().join("\n")),
    }
    Ok(0)
}

/// What to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum To {
    /// Apache Parquet, compressed with Snappy.
    Parquet,
    /// Text with commas (RFC 4180) and a header.
    Csv,
    /// An event file for TensorBoard.
    Tensorboard,
    /// A copy without host, user, folders and words of the command.
    Public,
}

fn public(run: &Path, arguments: &ExportArguments, terminal: &Terminal) -> Result<u8, Failure> {
    let output = arguments.output.clone().unwrap_or_else(|| PathBuf::from("public"));
    let made = public::export(run, &output, arguments.with_checkpoints).map_err(Failure::failed)?;
    if made.lines_left_out > 0 {
        terminal.say(&format!("{} lines are damaged and are left out", made.lines_left_out));
    }
    if !made.left_out.is_empty() {
        terminal.say(&format!("left out, since nobody can clean them: {}", made.left_out.join(", ")));
    }
    report::write(&made.path).map_err(Failure::failed)?;
    let path = made.path.display().to_string();
    match arguments.json {
        true => terminal.json(&serde_json::json!({
            "path": path, "left_out": made.left_out, "lines_left_out": made.lines_left_out,
        })),
        false => terminal.answer(&path),
    }
    Ok(0)
}

fn events(run: &Path, output: &Path, json: bool, terminal: &Terminal) -> Result<u8, Failure> {
    let started = read::manifest(run).ok().and_then(|manifest| timestamp::seconds_of(&manifest.started));
    let written = tensorboard::export(run, output, started.unwrap_or_default()).map_err(Failure::failed)?;
    if written.lines_left_out > 0 {
        terminal.say(&format!("{} lines are damaged and are left out", written.lines_left_out));
    }
    if written.tags_left_out {
        terminal.say("some names are too many or too long for charts and are left out");
    }
    let path = written.path.display().to_string();
    match json {
        true => terminal.json(&serde_json::json!({
            "path": path, "events": written.events, "tags": written.tags, "lines_left_out": written.lines_left_out,
        })),
        false => terminal.answer(&format!("{path}: {} events, {} charts", written.events, written.tags)),
    }
    Ok(0)
}

fn tell_what_is_missing(one: &Exported, terminal: &Terminal) {
    let name = one.table.name();
    if one.lines_left_out > 0 {
        terminal.say(&format!("{name}: {} lines are damaged and are left out", one.lines_left_out));
    }
    if one.names_left_out {
        terminal.say(&format!("{name}: some names are too many or too long for columns and are left out"));
    }
}

fn text(one: &Exported) -> String {
    format!("{}: {} rows, {} columns", one.path.display(), one.rows, one.columns)
}

fn json(one: &Exported) -> serde_json::Value {
    serde_json::json!({
        "table": one.table.name(),
        "path": one.path.display().to_string(),
        "rows": one.rows,
        "columns": one.columns,
        "lines_left_out": one.lines_left_out,
        "names_left_out": one.names_left_out,
    })
}
