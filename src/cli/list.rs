//! `xrun ls`: list runs.

use std::io::IsTerminal;
use std::path::Path;

use clap::Args;
use serde_json::Value;

use super::Results;
use super::terminal::{Failure, Terminal};
use crate::experiment::{key_lookup, schema, shape};
use crate::files::layout::REFERENCE;
use crate::invocation;
use crate::killed;
use crate::printable;
use crate::problem::nearest;
use crate::report::listing;
use crate::results::index;
use crate::results::run_state::RunState;
use crate::results::selection::{self, RunFilter, SORT_KEYS, STARTED, STATES, SortKey, sorted};
use crate::results::verdict::{TrainingVerdictWord, VerdictWord};
use crate::results::view::RunView;
use crate::sweep::listing::{sweeps, text as listing_of_sweeps};
use crate::units::pluralize;

#[derive(Clone, Debug, Args)]
pub struct ListArguments {
    /// Only runs of this experiment.
    #[arg(value_name = "EXPERIMENT")]
    experiment: Option<String>,
    /// Only runs with this status.
    #[arg(long, value_parser = STATES, value_name = "STATUS")]
    status: Option<String>,
    /// Only runs with this memory verdict, such as `growing`.
    #[arg(long, value_enum, value_name = "VERDICT", hide_possible_values = true)]
    verdict: Option<VerdictWord>,
    /// Only runs with this verdict on their training, such as `diverged`.
    #[arg(long, value_enum, value_name = "VERDICT", hide_possible_values = true)]
    training: Option<TrainingVerdictWord>,
    /// Only runs with this tag (repeatable; see the subcommand note).
    #[arg(long, value_name = "TAG")]
    tag: Vec<String>,
    /// Only runs with this value in their experiment (repeatable).
    #[arg(short = 's', long = "set", value_name = "SECTION.KEY=VALUE")]
    set: Vec<String>,
    /// Sort by started (newest first), experiment, state, steps, loss, best, memory, seconds, speed, a metric such as map50
    /// (its best, best first), metrics.NAME (of the last validation), or a key of the experiment such as training.epochs.
    #[arg(long, value_name = "KEY", default_value = "started")]
    sort: String,
    /// Reverse the order.
    #[arg(long)]
    reverse: bool,
    #[command(flatten)]
    results: Results,
    /// Largest number of runs to list; 0 lists all. Default: 50 on a terminal, otherwise all.
    #[arg(short = 'n', long, value_name = "COUNT")]
    count: Option<usize>,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

/// Largest number of damaged runs that are reported.
const DAMAGE_MAX: usize = 20;
/// Largest number of killed runs whose killer is shown.
const KILLED_MAX: usize = 20;

pub fn run(arguments: &ListArguments, terminal: &Terminal) -> Result<u8, Failure> {
    let results = &arguments.results.directory;
    let experiment = arguments.experiment.as_ref();
    let by_run = arguments.status.is_some()
        || arguments.verdict.is_some()
        || arguments.training.is_some()
        || !(arguments.set.is_empty() && arguments.tag.is_empty());
    // Filters on runs exclude sweeps.
    let sweeps = if by_run { Default::default() } else { sweeps(results, experiment.map(String::as_str)) };
    if let Some(name) = experiment.filter(|_| sweeps.0.is_empty()) {
        index::check_experiment(results, name)?;
    }
    let selection = RunFilter {
        status: arguments.status.clone(),
        verdict: arguments.verdict,
        training: arguments.training,
        tags: arguments.tag.clone(),
        values: arguments.set.iter().map(|text| key_and_value(text)).collect::<Result<_, _>>()?,
    };
    let order = order(&arguments.sort, results)?;
    let found = index::newest_first(results, experiment.map(String::as_str));
    let all = found.len();
    let mut damage = 0;
    let is_taken = |run: &RunView| {
        if let Some(why) = selection.unreadable_reason(run, &order).filter(|_| damage < DAMAGE_MAX) {
            damage += 1;
            terminal.info(&format!("damaged: {why}"));
        }
        selection.accepts(run)
    };
    // In the default order, older runs need not be read, and without a filter not even be looked at.
    let mut runs: Box<dyn Iterator<Item = RunView>> = match order == SortKey::Word(STARTED) && !arguments.reverse {
        true if !by_run => Box::new(found),
        true => Box::new(found.filter(is_taken)),
        false => Box::new(sorted(found.filter(is_taken), &order, arguments.reverse)),
    };
    let by_default = if arguments.json || !std::io::stdout().is_terminal() { 0 } else { LISTED_BY_DEFAULT };
    let count = Some(arguments.count.unwrap_or(by_default)).filter(|count| *count > 0).unwrap_or(usize::MAX);
    let mut shown = runs.by_ref().take(count).peekable();
    if arguments.json {
        terminal.json_array(shown.map(|run| with_killer(listing::json(&run), &run)));
    } else {
        let swept = listing_of_sweeps(&sweeps, terminal.width());
        match shown.peek() {
            None if !swept.is_empty() => terminal.print(&swept),
            None if all == 0 => terminal.info(&no_runs(results)),
            None => terminal.info(&format!("no match among {}", pluralize(all as u64, "run"))),
            Some(_) => {
                let mut killed = Vec::new();
                let noted = shown.inspect(|run| killed.extend(killer(run).filter(|_| killed.len() < KILLED_MAX)));
                let listed = listing::text(noted, terminal.width());
                let gap = if swept.is_empty() { "" } else { "\n" };
                terminal.print(&format!("{listed}{}{gap}{swept}", killed.concat()));
            }
        }
    }
    // The list is printed by now: a filter reads all runs to count those that match.
    let (least, most) = runs.size_hint();
    let more = if most == Some(least) { least } else { runs.count() };
    if more > 0 {
        terminal.info(&format!("and {more} more (-n 0 lists all)"));
    }
    if all == index::RUNS_MAX {
        terminal.info(&format!("older runs than the newest {all} are not looked for; name another --results"));
    }
    Ok(0)
}

/// Number of runs listed on a terminal.
const LISTED_BY_DEFAULT: usize = 50;

/// Message about a directory without runs. Committed results, as in a fresh clone, are named: they are not listed, because git
/// gives them the time of the checkout.
fn no_runs(results: &Path) -> String {
    let kept = index::committed(results);
    let message = format!("no runs in {}", results.display());
    let Some(first) = kept.first() else { return message };
    let program = invocation::program();
    format!(
        "{message}; {} in {}: {}; `{program} show {REFERENCE}/{first}` shows one",
        pluralize(kept.len() as u64, "committed result"),
        results.join(REFERENCE).display(),
        kept.join(", "),
    )
}

/// Line about a killed run whose killer is known from the kernel's counters.
fn killer(run: &RunView) -> Option<String> {
    let killer = (*run.state() == RunState::Killed).then(|| killed::killer(&run.path));
    let known = killer.filter(|killer| killer.label().is_some())?;
    Some(format!("{}: {}\n", printable::line(&run.run, 28), known.message()))
}

fn with_killer(mut listed: Value, run: &RunView) -> Value {
    if let Some(object) = listed.as_object_mut().filter(|_| *run.state() == RunState::Killed) {
        object.insert("killed".into(), killed::killer(&run.path).message().into());
    }
    listed
}

fn key_and_value(text: &str) -> Result<(String, String), Failure> {
    let Some((key, value)) = text.split_once('=') else {
        return Err(Failure::Usage(format!("`{text}`: missing `=`; use -s section.key=value")));
    };
    check_key(key.trim())?;
    Ok((key.trim().to_owned(), value.trim().to_owned()))
}

fn order(text: &str, results: &Path) -> Result<SortKey, Failure> {
    let Some(order) = SortKey::parse(text) else {
        // Only an unknown word is looked for in the runs.
        let metrics = selection::metrics(index::newest_first(results, None));
        if metrics.contains(text) {
            return Ok(SortKey::BestMetric(text.to_owned()));
        }
        let known = SORT_KEYS.join(", ");
        let words = SORT_KEYS.iter().copied().chain(metrics.iter().map(String::as_str));
        let near = nearest(text, words).map_or(String::new(), |near| format!("did you mean `{near}`? "));
        let message = format!(
            "cannot sort by `{text}`; {near}known: {known}, names of metrics, and keys of the experiment such as training.epochs"
        );
        return Err(Failure::Usage(message));
    };
    if let SortKey::Value(key) = &order {
        check_key(key)?;
    }
    Ok(order)
}

/// Refuses an unknown key, which would silently match no run.
fn check_key(key: &str) -> Result<(), Failure> {
    let schema = schema::shared();
    if shape::schema_at(schema, key).is_some() {
        return Ok(());
    }
    // `seed` is a part of `experiment.seed`, which need not resemble the whole.
    let mut meant = key_lookup::dotted_keys(key);
    meant.truncate(KEYS_NAMED_MAX);
    if meant.is_empty() {
        let keys = key_lookup::all_keys();
        meant.extend(nearest(key, keys.iter().map(String::as_str)).map(str::to_owned));
    }
    let help = match meant.is_empty() {
        true => "`docs/reference.md` lists all keys".to_owned(),
        false => format!("did you mean `{}`?", meant.join("` or `")),
    };
    Err(Failure::Usage(format!("unknown key `{key}`; {help}")))
}

/// Largest number of keys that are suggested for one name.
const KEYS_NAMED_MAX: usize = 4;
