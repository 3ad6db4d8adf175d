//! `xrun rm RUN…` and `xrun gc`: remove results. Asks, and touches only what is proven to be a run, is not running and not
//! committed in git.

use std::collections::BTreeMap;
use std::io::{self, BufRead, IsTerminal};
use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};

use super::Results;
use super::terminal::{Failure, Terminal};
use crate::files::layout;
use crate::printable;
use crate::results::format::Outcome;
use crate::results::index::{self, Entry, RunState};
use crate::results::timestamp;
use crate::results::{named, read, selection};
use crate::run::remove::{self, LeftOver, Removable, Stays};
use crate::units::{Bytes, counted};

#[derive(Clone, Debug, Args)]
pub struct RemoveArguments {
    /// Runs: folders, `experiment/run`, beginnings of names or their last six digits.
    #[arg(required = true, value_name = "RUN", value_hint = ValueHint::DirPath)]
    runs: Vec<String>,
    #[command(flatten)]
    sure: Sure,
    #[command(flatten)]
    results: Results,
}

#[derive(Clone, Debug, Args)]
pub struct CollectArguments {
    /// Of each experiment, keep so many of the newest runs. Runs that failed, were killed, or by their clock have not begun
    /// yet do not count among them. A run with a tag is kept, too.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    keep: u64,
    /// Of each experiment, also keep the run with the best METRIC. The default is the metric by which a run's plan says
    /// that a checkpoint is best. `none` keeps none for that.
    #[arg(long, value_name = "METRIC|none", num_args = 0..=1)]
    keep_best: Option<Option<String>>,
    /// Only runs of this experiment.
    #[arg(value_name = "EXPERIMENT")]
    experiment: Option<String>,
    #[command(flatten)]
    sure: Sure,
    #[command(flatten)]
    results: Results,
}

#[derive(Clone, Copy, Debug, Args)]
struct Sure {
    /// Do not ask.
    #[arg(short, long)]
    yes: bool,
    /// Say what would go, and remove nothing.
    #[arg(long, conflicts_with = "yes")]
    dry_run: bool,
}

/// More are counted, and not listed.
const LISTED_MAX: usize = 50;
/// More failures are counted, and not described.
const FAILED_MAX: usize = 5;

pub fn rm(arguments: &RemoveArguments, terminal: &Terminal) -> Result<u8, Failure> {
    let mut going: Vec<Removable> = Vec::with_capacity(arguments.runs.len());
    // Nothing goes unless all may.
    for text in &arguments.runs {
        let found = index::find(&arguments.results.folder, text).map_err(|error| Failure::Usage(error.to_string()))?;
        match absolute(&found).and_then(|run| remove::may_go(&run)) {
            Ok(run) if going.iter().any(|known| known.path == run.path) => {}
            Ok(run) => going.push(run),
            Err(Stays::Gone) => {}
            Err(why @ Stays::Failed { .. }) => return Err(Failure::failed(why)),
            Err(why) => return Err(Failure::Usage(format!("{}: {why}", found.display()))),
        }
    }
    go(&going, None, arguments.sure, terminal)
}

/// The word of `--keep-best` that turns it off.
const NONE: &str = "none";

pub fn gc(arguments: &CollectArguments, terminal: &Terminal) -> Result<u8, Failure> {
    let results = &arguments.results.folder;
    let experiment = arguments.experiment.as_deref();
    if let Some(name) = experiment {
        index::known_experiment(results, name).map_err(|error| Failure::Usage(error.to_string()))?;
    }
    let found: Vec<Entry> = index::newest_first(results, experiment).collect();
    let mut left = remove::left_over(results, experiment);
    let mut experiments: BTreeMap<&str, Vec<&Entry>> = BTreeMap::new();
    for run in found.iter().filter(|run| run.state != RunState::Running) {
        match remove::proven(&run.path) {
            Ok(()) => experiments.entry(&run.experiment).or_default().push(run),
            Err(Stays::Gone) => {}
            Err(_) => left.others += 1,
        }
    }
    let best = best(&experiments, arguments.keep_best.as_ref().and_then(Option::as_deref))?;
    let mut going = Vec::new();
    let mut staying = Staying { terminal, lines: 0, damaged: 0, unfinished: 0 };
    for runs in experiments.values() {
        let mut kept = 0;
        // Newest first.
        for run in runs {
            if begins_later(run) {
                staying.say(run, &"by its manifest it has not begun yet");
            } else if kept < arguments.keep {
                let counts = counts(&run.state);
                kept += u64::from(counts);
                staying.unfinished += u64::from(!counts);
            } else if is_tagged(&run.path) {
                // As was asked for.
            } else if best.iter().any(|best| best.path == run.path) {
                staying.say(run, &format!("it is the best of {}", printable::line(&run.experiment, 100)));
            } else if matches!(run.state, RunState::Unreadable(_)) {
                // It may be the best one.
                staying.damaged += 1;
            } else {
                match absolute(&run.path).and_then(|path| remove::may_go(&path)) {
                    Ok(run) => going.push(run),
                    Err(Stays::Gone) => {}
                    Err(why @ Stays::Failed { .. }) => return Err(Failure::failed(why)),
                    Err(why) => staying.say(run, &why),
                }
            }
        }
    }
    staying.say_counts(left.others);
    go(&going, Some(&left), arguments.sure, terminal)
}

/// The runs that stay because they are the best of their experiment.
fn best<'a>(experiments: &BTreeMap<&str, Vec<&'a Entry>>, metric: Option<&str>) -> Result<Vec<&'a Entry>, Failure> {
    if metric == Some(NONE) {
        return Ok(Vec::new());
    }
    let mut found: Vec<&Entry> = experiments.values().flat_map(|runs| selection::best(runs, metric)).collect();
    let Some(metric) = metric else { return Ok(found) };
    if found.is_empty() && !experiments.is_empty() {
        let metric = printable::line(metric, 100);
        return Err(Failure::Usage(format!(
            "no run has a metric `{metric}` to be the best by; `xrun show RUN` lists those of a run, and behind \
             --keep-best without a METRIC an experiment's name must stand first"
        )));
    }
    // Where it is not measured.
    let others = experiments.iter().filter(|(name, _)| !found.iter().any(|run| run.experiment == **name));
    let others: Vec<&Entry> = others.flat_map(|(_, runs)| selection::best(runs, None)).collect();
    found.extend(others);
    Ok(found)
}

/// Whether a run is one of those to keep: it did what it was asked to do, or as much as its time let it. Who asks for one
/// run does not mean one that failed.
fn counts(state: &RunState) -> bool {
    matches!(state, RunState::Ended(outcome) if outcome.is_whole() || *outcome == Outcome::TimeLimit)
}

/// A clock was wrong, then or now: nobody knows which runs are newer.
fn begins_later(run: &Entry) -> bool {
    let started = run.started.as_deref().and_then(timestamp::seconds_of);
    started.is_none_or(|started| started > timestamp::time().timestamp() as f64)
}

/// Notes that do not read may have had tags.
fn is_tagged(run: &Path) -> bool {
    read::notes(run).map_or(true, |notes| !notes.tags.is_empty())
}

/// Runs that `gc` does not remove, beside what it was asked to keep.
struct Staying<'a> {
    terminal: &'a Terminal,
    lines: usize,
    damaged: u64,
    unfinished: u64,
}

impl Staying<'_> {
    fn say(&mut self, run: &Entry, why: &dyn std::fmt::Display) {
        self.lines += 1;
        if self.lines <= LISTED_MAX {
            self.terminal.say(&format!("{} stays: {why}", named::run(&run.path, &run.experiment)));
        }
    }

    fn say_counts(&self, no_runs: u64) {
        let line = |count: u64, one: &str, more: &str| match count {
            0 => {}
            1 => self.terminal.say(one),
            _ => self.terminal.say(&format!("{count} {more}")),
        };
        line(no_runs, "1 folder is not a run and stays", "folders are not runs and stay");
        line(
            self.damaged,
            "1 run with damaged records stays; the subcommand rm removes it",
            "runs with damaged records stay; the subcommand rm removes them",
        );
        line(
            self.unfinished,
            "1 run that failed or was killed stays: it is newer than those to keep, and does not count as one of them",
            "runs that failed or were killed stay: they are newer than those to keep, and do not count among them",
        );
    }
}

/// Not through a `latest` that will mean another one, and not through a link to the run itself.
fn absolute(run: &Path) -> Result<PathBuf, Stays> {
    let whole = |path: &Path| match std::fs::canonicalize(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Stays::Gone),
        found => found.map_err(|source| Stays::Failed { path: path.to_path_buf(), source }),
    };
    let (Some(parent), Some(name)) = (run.parent(), run.file_name().filter(|name| *name != layout::LATEST)) else {
        return whole(run);
    };
    Ok(whole(if parent.as_os_str().is_empty() { Path::new(".") } else { parent })?.join(name))
}

/// Removes what was agreed to; `left` is given where runs are collected, and were not named.
fn go(going: &[Removable], left: Option<&LeftOver>, sure: Sure, terminal: &Terminal) -> Result<u8, Failure> {
    let rests = left.map_or(&[][..], |left| &left.rests);
    if going.is_empty() && rests.is_empty() {
        terminal.say("nothing to remove");
        return Ok(0);
    }
    for run in going.iter().take(LISTED_MAX) {
        terminal.say(&format!("{}  {}", run.path.display(), Bytes(run.bytes)));
    }
    if let more @ 1.. = going.len().saturating_sub(LISTED_MAX) {
        terminal.say(&format!("and {more} more"));
    }
    let rests: Vec<(&PathBuf, u64)> = rests.iter().map(|rest| (rest, remove::bytes(rest))).collect();
    if !rests.is_empty() {
        terminal.say(&format!("{} of an earlier removal", counted(rests.len() as u64, "rest")));
    }
    let all = going.iter().map(|run| run.bytes).chain(rests.iter().map(|(_, bytes)| *bytes)).sum();
    let what = |runs: u64, bytes: u64| format!("{}, {}", counted(runs, "run"), Bytes(bytes));
    let asked = what(going.len() as u64, all);
    if sure.dry_run {
        terminal.say(&format!("would remove {asked}"));
        return Ok(0);
    }
    if !sure.yes && !agreed(&asked, terminal)? {
        terminal.say("nothing was removed");
        return Ok(0);
    }
    let (mut removed, mut bytes, mut gone) = (0, 0, 0);
    // What cannot be removed keeps nothing else.
    let mut failed = Vec::new();
    for run in going {
        let shown = run.path.display();
        // Somebody may have given it a tag since, or gone on with it.
        if left.is_some() && is_tagged(&run.path) {
            terminal.say(&format!("{shown} stays: it has a tag"));
            continue;
        }
        match remove::remove(run) {
            Ok(()) => (removed, bytes) = (removed + 1, bytes + run.bytes),
            Err(Stays::Gone) => gone += 1,
            Err(why @ Stays::Failed { .. }) => failed.push(why.to_string()),
            Err(why) if left.is_some() => terminal.say(&format!("{shown} stays: {why}")),
            Err(why) => failed.push(format!("{shown}: {why}")),
        }
    }
    for (rest, of_rest) in rests {
        match remove::remove_rest(rest) {
            Ok(()) => bytes += of_rest,
            Err(why @ Stays::Failed { .. }) => failed.push(why.to_string()),
            // Another process removes it.
            Err(_) => {}
        }
    }
    let more = if gone > 0 { format!("; {} gone already", counted(gone, "run")) } else { String::new() };
    if failed.is_empty() || removed > 0 || bytes > 0 {
        terminal.say(&format!("removed {}{more}", what(removed, bytes)));
    }
    let more = failed.len().saturating_sub(FAILED_MAX);
    failed.truncate(FAILED_MAX);
    if more > 0 {
        failed.push(format!("and {more} more"));
    }
    if failed.is_empty() { Ok(0) } else { Err(Failure::Failed(failed.join("\n"))) }
}

fn agreed(what: &str, terminal: &Terminal) -> Result<bool, Failure> {
    let mut input = std::io::stdin().lock();
    if !std::io::stdin().is_terminal() {
        return Err(Failure::Usage(format!(
            "nobody can be asked whether to remove {what}: --yes removes, --dry-run only lists"
        )));
    }
    Terminal { quiet: false, ..*terminal }.say(&format!("remove {what}? This cannot be taken back. [y/N]"));
    let mut answer = String::new();
    input.read_line(&mut answer).map_err(Failure::failed)?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}
