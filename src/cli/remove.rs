//! `xrun rm RUN…` and `xrun rm --keep COUNT`: remove runs after confirmation.

use std::collections::BTreeMap;
use std::io::{self, BufRead, IsTerminal};
use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};

use super::Results;
use super::terminal::{Failure, Terminal};
use crate::files::layout;
use crate::printable;
use crate::results::format::Outcome;
use crate::results::index;
use crate::results::run_state::RunState;
use crate::results::timestamp;
use crate::results::view::RunView;
use crate::results::{read, run_name, selection};
use crate::run::remove::{self, Removable, RemoveError};
use crate::units::{Bytes, pluralize};

#[derive(Clone, Debug, Args)]
pub struct RemoveArguments {
    /// Runs: directories, EXPERIMENT/RUN, or the first or last six characters of their names. With --keep: an experiment.
    #[arg(required_unless_present = "keep", value_name = "RUN", value_hint = ValueHint::DirPath)]
    runs: Vec<String>,
    /// Remove all runs but the COUNT newest of each experiment. Failed and killed runs do not count. Runs with a tag are always
    /// kept.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    keep: Option<u64>,
    /// With --keep, also keep the run with the best METRIC of each experiment. Default: the metric that selects the run's best
    /// checkpoint; `none` disables this.
    #[arg(long, value_name = "METRIC|none", num_args = 0..=1, requires = "keep")]
    keep_best: Option<Option<String>>,
    /// Do not ask for confirmation.
    #[arg(short, long)]
    yes: bool,
    /// List the runs that would be removed, and remove nothing.
    #[arg(long, conflicts_with = "yes")]
    dry_run: bool,
    #[command(flatten)]
    results: Results,
}

/// Largest number of runs that are listed.
const LISTED_MAX: usize = 10;
/// Largest number of failures that are described.
const FAILED_MAX: usize = 5;

pub fn run(arguments: &RemoveArguments, terminal: &Terminal) -> Result<u8, Failure> {
    match arguments.keep {
        Some(count) => all_but(count, arguments, terminal),
        None => named(arguments, terminal),
    }
}

fn named(arguments: &RemoveArguments, terminal: &Terminal) -> Result<u8, Failure> {
    let mut removable: Vec<Removable> = Vec::with_capacity(arguments.runs.len());
    // No run is removed unless all can be.
    for text in &arguments.runs {
        let found = index::find(&arguments.results.directory, text)?;
        if let more @ 1.. = index::newest_first(&arguments.results.directory, Some(text)).len().saturating_sub(1) {
            terminal.info(&format!("`{text}` is its newest run alone ({} kept)", pluralize(more as u64, "other run")));
        }
        match absolute(&found).and_then(|run| remove::check_removable(&run)) {
            Ok(run) if removable.iter().any(|known| known.path == run.path) => {}
            Ok(run) => removable.push(run),
            Err(RemoveError::Gone) => {}
            Err(why @ RemoveError::Failed { .. }) => return Err(Failure::failed(why)),
            Err(why) => return Err(Failure::Usage(format!("{}: {why}", found.display()))),
        }
    }
    remove_confirmed(&removable, arguments, terminal)
}

/// Value of `--keep-best` that disables it.
const NONE: &str = "none";

/// Removes all runs but the newest `count` of each experiment, or of the one that is named.
fn all_but(count: u64, arguments: &RemoveArguments, terminal: &Terminal) -> Result<u8, Failure> {
    let results = &arguments.results.directory;
    let experiment = match arguments.runs.as_slice() {
        [] => None,
        [name] => Some(name.as_str()),
        _ => return Err(Failure::Usage("--keep takes one experiment, or none for all".into())),
    };
    if let Some(name) = experiment {
        index::check_experiment(results, name)?;
    }
    let found: Vec<RunView> = index::newest_first(results, experiment).collect();
    let mut not_runs = 0;
    let mut experiments: BTreeMap<&str, Vec<&RunView>> = BTreeMap::new();
    for run in found.iter().filter(|run| *run.state() != RunState::Running) {
        match remove::verify_run(&run.path) {
            Ok(()) => experiments.entry(&run.experiment).or_default().push(run),
            Err(RemoveError::Gone) => {}
            Err(_) => not_runs += 1,
        }
    }
    let best = best(&experiments, arguments.keep_best.as_ref().and_then(Option::as_deref))?;
    let mut removable = Vec::new();
    let mut kept_runs = KeptRuns { terminal, lines: 0, damaged: 0, unfinished: 0 };
    for runs in experiments.values() {
        let mut kept = 0;
        // Newest first.
        for run in runs {
            if starts_in_the_future(run) {
                kept_runs.report(run, &"its start time is in the future");
            } else if kept < count {
                let is_orderly = |outcome: Outcome| outcome.is_orderly() || outcome == Outcome::TimeLimit;
                let counts = matches!(run.state(), RunState::Ended(outcome) if is_orderly(*outcome));
                kept += u64::from(counts);
                kept_runs.unfinished += u64::from(!counts);
            } else if is_tagged(&run.path) {
                // Kept as documented, without a message.
            } else if best.iter().any(|best| best.path == run.path) {
                kept_runs.report(run, &format!("it is the best run of {}", printable::line(&run.experiment, 100)));
            } else if let Some(fork) = found.iter().find(|fork| is_fork_of(fork, run)) {
                kept_runs.report(run, &format!("`reproduce` of its fork {} needs it", printable::line(&fork.run, 100)));
            } else if matches!(run.state(), RunState::Unreadable(_)) {
                // It may be the best run.
                kept_runs.damaged += 1;
            } else {
                match absolute(&run.path).and_then(|path| remove::check_removable(&path)) {
                    Ok(run) => removable.push(run),
                    Err(RemoveError::Gone) => {}
                    Err(why @ RemoveError::Failed { .. }) => return Err(Failure::failed(why)),
                    Err(why) => kept_runs.report(run, &why),
                }
            }
        }
    }
    kept_runs.report_counts(not_runs);
    remove_confirmed(&removable, arguments, terminal)
}

/// Best run of each experiment.
fn best<'a>(experiments: &BTreeMap<&str, Vec<&'a RunView>>, metric: Option<&str>) -> Result<Vec<&'a RunView>, Failure> {
    if metric == Some(NONE) {
        return Ok(Vec::new());
    }
    let mut found: Vec<&RunView> = experiments.values().flat_map(|runs| selection::best(runs, metric)).collect();
    let Some(metric) = metric else { return Ok(found) };
    if found.is_empty() && !experiments.is_empty() {
        let metric = printable::line(metric, 100);
        return Err(Failure::Usage(format!(
            "no run has the metric `{metric}`; `xrun show RUN` lists the metrics of a run (an EXPERIMENT must come before \
             --keep-best)"
        )));
    }
    // Experiments without this metric.
    let others = experiments.iter().filter(|(name, _)| !found.iter().any(|run| run.experiment == **name));
    let others: Vec<&RunView> = others.flat_map(|(_, runs)| selection::best(runs, None)).collect();
    found.extend(others);
    Ok(found)
}

/// Returns true if a run started from a checkpoint of `parent`.
fn is_fork_of(fork: &RunView, parent: &RunView) -> bool {
    let named = fork.parent().and_then(|parent| parent.run.rsplit_once('/'));
    named.is_some_and(|(experiment, run)| (experiment, run) == (&*parent.experiment, &*parent.run))
}

/// Returns true if a clock was wrong, then or now, so that the order of runs is unknown.
fn starts_in_the_future(run: &RunView) -> bool {
    let started = run.started().and_then(timestamp::seconds_of);
    started.is_none_or(|started| started > timestamp::time().timestamp() as f64)
}

/// Returns true if a run has tags, or may have: its notes are damaged.
fn is_tagged(run: &Path) -> bool {
    read::notes(run).map_or(true, |notes| !notes.tags.is_empty())
}

/// Messages about runs that `--keep` keeps for another reason than its options.
struct KeptRuns<'a> {
    terminal: &'a Terminal,
    lines: usize,
    damaged: u64,
    unfinished: u64,
}

impl KeptRuns<'_> {
    fn report(&mut self, run: &RunView, why: &dyn std::fmt::Display) {
        self.lines += 1;
        if self.lines <= LISTED_MAX {
            self.terminal.info(&format!("kept {}: {why}", run_name::run(&run.path, &run.experiment)));
        }
    }

    fn report_counts(&self, not_runs: u64) {
        let line = |count: u64, what: String, why: &str| {
            if count > 0 {
                self.terminal.info(&format!("kept {what}: {why}"));
            }
        };
        line(not_runs, pluralize(not_runs, "directory"), "not a run");
        line(self.damaged, pluralize(self.damaged, "run"), "damaged records; use `xrun rm`");
        line(self.unfinished, pluralize(self.unfinished, "run"), "failed or killed, but newer than the runs to keep");
    }
}

/// Absolute path of a run. `latest` is resolved, because it will change; a symlink to a run is not, as it is refused.
fn absolute(run: &Path) -> Result<PathBuf, RemoveError> {
    let whole = |path: &Path| match std::fs::canonicalize(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(RemoveError::Gone),
        found => found.map_err(|source| RemoveError::Failed { path: path.to_path_buf(), source }),
    };
    let (Some(parent), Some(name)) = (run.parent(), run.file_name().filter(|name| *name != layout::LATEST)) else {
        return whole(run);
    };
    Ok(whole(if parent.as_os_str().is_empty() { Path::new(".") } else { parent })?.join(name))
}

/// Lists the runs, asks for confirmation, and removes them.
fn remove_confirmed(removable: &[Removable], arguments: &RemoveArguments, terminal: &Terminal) -> Result<u8, Failure> {
    if removable.is_empty() {
        terminal.info("nothing to remove");
        return Ok(0);
    }
    let listed = if arguments.dry_run { usize::MAX } else { LISTED_MAX };
    for run in removable.iter().take(listed) {
        terminal.info(&format!("{}  {}", run.path.display(), Bytes(run.bytes)));
    }
    if let more @ 1.. = removable.len().saturating_sub(listed) {
        terminal.info(&format!("and {more} more (--dry-run lists all)"));
    }
    let amount = |runs: u64, bytes: u64| format!("{} ({})", pluralize(runs, "run"), Bytes(bytes));
    let total = amount(removable.len() as u64, removable.iter().map(|run| run.bytes).sum());
    let is_selection = arguments.keep.is_some();
    if arguments.dry_run {
        terminal.info(&format!("would remove {total}"));
        return Ok(0);
    }
    if !arguments.yes && !confirm(&total, terminal)? {
        terminal.info("nothing was removed");
        return Ok(0);
    }
    let (mut removed, mut bytes, mut gone) = (0, 0, 0);
    // A failure does not prevent the other removals.
    let mut failed = Vec::new();
    for run in removable {
        let shown = run.path.display();
        // It may have been tagged or resumed during the confirmation.
        if is_selection && is_tagged(&run.path) {
            terminal.info(&format!("kept {shown}: it has a tag"));
            continue;
        }
        match remove::remove(run) {
            Ok(()) => (removed, bytes) = (removed + 1, bytes + run.bytes),
            Err(RemoveError::Gone) => gone += 1,
            Err(why @ RemoveError::Failed { .. }) => failed.push(why.to_string()),
            Err(why) if is_selection => terminal.info(&format!("kept {shown}: {why}")),
            Err(why) => failed.push(format!("{shown}: {why}")),
        }
    }
    let more = if gone > 0 { format!("; already removed: {}", pluralize(gone, "run")) } else { String::new() };
    if failed.is_empty() || removed > 0 {
        terminal.info(&format!("removed {}{more}", amount(removed, bytes)));
    }
    let more = failed.len().saturating_sub(FAILED_MAX);
    failed.truncate(FAILED_MAX);
    if more > 0 {
        failed.push(format!("and {more} more"));
    }
    if failed.is_empty() { Ok(0) } else { Err(Failure::Failed(failed.join("\n"))) }
}

fn confirm(what: &str, terminal: &Terminal) -> Result<bool, Failure> {
    let mut input = std::io::stdin().lock();
    if !std::io::stdin().is_terminal() {
        return Err(Failure::Usage(format!(
            "cannot ask for confirmation because stdin is not a terminal; use --yes to remove {what}, or --dry-run to list"
        )));
    }
    Terminal { quiet: false, ..*terminal }.info(&format!("remove {what}? This cannot be undone. [y/N]"));
    let mut answer = String::new();
    input.read_line(&mut answer).map_err(Failure::failed)?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}
