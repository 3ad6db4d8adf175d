//! `xrun show RUN`: show a run or a sweep.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};
use serde_json::Value;

use super::terminal::{Failure, Terminal};
use super::{RUN_HELP, Results};
use crate::files::layout;
use crate::invocation;
use crate::killed;
use crate::killed::KillReport;
use crate::report::formatting::utc_time;
use crate::report::run_report::open;
use crate::report::summary;
use crate::results::resolved::format_value;
use crate::results::run_state::RunState;
use crate::results::view::RunView;
use crate::results::{index, run_name};
use crate::sweep::records::sweep::SweepRecord;
use crate::sweep::trials::masked;
use crate::sweep::{listing, table, text};

#[derive(Clone, Debug, Args)]
pub struct ShowArguments {
    #[arg(help = RUN_HELP, default_value = "latest", value_hint = ValueHint::DirPath)]
    run: String,
    /// Show everything: the forecast, metrics, buffers, phases, epochs.
    #[arg(short, long, conflicts_with = "json")]
    verbose: bool,
    #[command(flatten)]
    results: Results,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &ShowArguments, terminal: &Terminal) -> Result<u8, Failure> {
    let results = &arguments.results.directory;
    if let Some(sweep) = find_sweep(results, &arguments.run) {
        return show_sweep(&sweep, arguments.json, terminal);
    }
    let run = index::find(results, &arguments.run)?;
    let view = open(&run).map_err(Failure::failed)?;
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
    let killed: Vec<(&str, String)> = killed.iter().flat_map(kill_lines).collect();
    let mut more = Vec::new();
    more.extend((!notes.tags.is_empty()).then(|| ("tags", notes.tags.join(", "))));
    more.extend(notes.notes.iter().map(|note| ("note", format!("{} {}", utc_time(&note.time), note.text))));
    let width = terminal.width();
    if !arguments.verbose {
        terminal.print(&summary::brief(&view, killed, changed(results, &view), more, width));
        return Ok(0);
    }
    let text = summary::text(&view, width);
    let more: Vec<(&str, String)> = killed.into_iter().chain(more).collect();
    terminal.print(&match more.as_slice() {
        [] => text,
        more => format!("{}\n\n{}", text.trim_end(), summary::labelled(more, width)),
    });
    Ok(0)
}

/// Largest number of changed settings that are shown.
const CHANGED_MAX: usize = 3;

/// Settings that differ from those of the run of the same experiment before; `None` without one.
fn changed(results: &Path, view: &RunView) -> Option<String> {
    let mut runs = index::newest_first(results, Some(&view.experiment)).skip_while(|run| run.run != view.run);
    let before = runs.nth(1)?;
    let (now, then) = (view.values().ok()?, before.values().ok()?);
    let keys: BTreeSet<&String> = now.keys().chain(then.keys()).collect();
    let different: Vec<&String> = keys.into_iter().filter(|key| now.get(*key) != then.get(*key)).collect();
    let text = |key: &str, value: Option<&Value>| {
        value.map_or_else(|| "not set".to_owned(), |value| format_value(&masked(key, value)))
    };
    let one = |key: &&String| format!("{key} = {} (was {})", text(key, now.get(*key)), text(key, then.get(*key)));
    let mut shown: Vec<String> = different.iter().take(CHANGED_MAX).map(one).collect();
    let more = different.len().saturating_sub(CHANGED_MAX);
    shown.extend((more > 0).then(|| format!("and {more} more (`{} compare` shows them)", invocation::program())));
    (!shown.is_empty()).then(|| format!("{}, since {}", shown.join(", "), before.name()))
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
    let is_newest = |known: &String| {
        let names = [PathBuf::from(layout::LATEST), PathBuf::from(known), Path::new(known).join(layout::LATEST)];
        names.contains(&PathBuf::from(text))
    };
    let has_runs = index::experiments(results).iter().any(is_newest);
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
