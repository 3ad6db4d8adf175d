//! `xrun show RUN`: show a run or a sweep.

use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};

use super::terminal::{Failure, Terminal};
use super::{RUN_HELP, Results};
use crate::files::layout;
use crate::killed;
use crate::killed::KillReport;
use crate::report::formatting::utc_time;
use crate::report::run_report::open;
use crate::report::summary;
use crate::results::run_state::RunState;
use crate::results::{index, run_name};
use crate::sweep::records::sweep::SweepRecord;
use crate::sweep::{listing, table, text};

#[derive(Clone, Debug, Args)]
pub struct ShowArguments {
    #[arg(help = RUN_HELP, default_value = "latest", value_hint = ValueHint::DirPath)]
    run: String,
    /// Show some ten lines, the verdict first.
    #[arg(long, conflicts_with = "json")]
    brief: bool,
    #[command(flatten)]
    results: Results,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &ShowArguments, terminal: &Terminal) -> Result<u8, Failure> {
    let results = &arguments.results.directory;
    if let Some(sweep) = find_sweep(results, &arguments.run) {
        if arguments.brief {
            return Err(Failure::Usage(format!("{}: a sweep; --brief shows a run", arguments.run)));
        }
        return show_sweep(&sweep, arguments.json, terminal);
    }
    let run = index::find(results, &arguments.run)?;
    let view = open(&run).map_err(Failure::failed)?;
    if arguments.brief {
        terminal.print(&summary::brief(&view, terminal.width()));
        return Ok(0);
    }
    let notes = view.notes().map_err(Failure::failed)?;
    let killed = (*view.state() == RunState::Killed).then(|| killed::explain(&run));
    if arguments.json {
        let mut value = summary::json(&view).map_err(Failure::failed)?;
        if let Some(object) = value.as_object_mut() {
            object.insert("notes".into(), serde_json::json!({ "tags": notes.tags, "notes": notes.notes }));
            object.extend(killed.iter().map(|killed| ("killed".to_owned(), serde_json::json!(killed))));
        }
        terminal.json(&value);
        return Ok(0);
    }
    let text = summary::text(&view, terminal.width());
    let mut more = Vec::new();
    more.extend(killed.iter().flat_map(kill_lines));
    more.extend((!notes.tags.is_empty()).then(|| ("tags", notes.tags.join(", "))));
    more.extend(notes.notes.iter().map(|note| ("note", format!("{} {}", utc_time(&note.time), note.text))));
    terminal.print(&match more.as_slice() {
        [] => text,
        more => format!("{}\n\n{}", text.trim_end(), summary::labelled(more, terminal.width())),
    });
    Ok(0)
}

/// Labelled lines about a kill.
fn kill_lines(killed: &KillReport) -> Vec<(&'static str, String)> {
    let held = killed.held.clone().map(|held| ("memory", held));
    let growing = killed.growing.clone().map(|growing| ("growing", growing));
    [Some(("killed", killed.who.clone())), held, growing, Some(("advice", killed.to_do.clone()))]
        .into_iter()
        .flatten()
        .collect()
}

/// Finds the sweep with this name, or the newest sweep of an experiment that has only sweeps.
fn find_sweep(results: &Path, text: &str) -> Option<PathBuf> {
    let experiments = index::experiments(results);
    let has_runs = match text {
        layout::LATEST => !experiments.is_empty(),
        name => experiments.iter().any(|known| known == name),
    };
    if has_runs { run_name::sweep(results, Path::new(text)) } else { listing::find(results, text) }
}

/// Shows the current state of a sweep, which may be active; writes nothing.
fn show_sweep(sweep: &Path, json: bool, terminal: &Terminal) -> Result<u8, Failure> {
    let record = SweepRecord::read(sweep).map_err(Failure::failed)?;
    let table = table::read(sweep, &record);
    if json {
        terminal.json(&table);
        return Ok(0);
    }
    let page = sweep.join(layout::REPORT);
    let page = if page.is_file() { page.display().to_string() } else { "not written yet".into() };
    terminal.print(&format!("sweep   {}\nreport  {page}\n\n{}", sweep.display(), text::text(&table, terminal.width())));
    Ok(0)
}
