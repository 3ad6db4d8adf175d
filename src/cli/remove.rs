//! `xrun rm RUN…` and `xrun gc`: remove results. Asks, and never touches what is running or committed in git.

use std::collections::BTreeMap;
use std::io::{BufRead, IsTerminal};
use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};

use super::Results;
use super::terminal::{Failure, Terminal};
use crate::results::index::{self, RunState};
use crate::results::{named, read, write};
use crate::run::remove;
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
    /// Of each experiment, keep so many of the newest runs. A run with a tag is kept, too.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    keep: u64,
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

pub fn rm(arguments: &RemoveArguments, terminal: &Terminal) -> Result<u8, Failure> {
    let mut going = Vec::with_capacity(arguments.runs.len());
    // Nothing goes unless all may.
    for text in &arguments.runs {
        let found = index::find(&arguments.results.folder, text).map_err(|error| Failure::Usage(error.to_string()))?;
        let run = absolute(&found)?;
        let bytes = remove::may_go(&run).map_err(|why| Failure::Usage(format!("{}: {why}", found.display())))?;
        if !going.iter().any(|(known, _)| *known == run) {
            going.push((run, bytes));
        }
    }
    go(&going, &[], arguments.sure, terminal)
}

pub fn gc(arguments: &CollectArguments, terminal: &Terminal) -> Result<u8, Failure> {
    let results = &arguments.results.folder;
    if let Some(name) = &arguments.experiment {
        index::known_experiment(results, name).map_err(|error| Failure::Usage(error.to_string()))?;
    }
    let runs = index::runs(results);
    let mut seen: BTreeMap<String, u64> = BTreeMap::new();
    let (mut going, mut stay) = (Vec::new(), 0);
    // Newest first.
    for run in runs.iter().filter(|run| arguments.experiment.as_ref().is_none_or(|name| *name == run.experiment)) {
        let count = seen.entry(run.experiment.clone()).or_default();
        *count += 1;
        // Notes that do not read may have had tags.
        let tagged = read::notes(&run.path).map_or(true, |notes| !notes.tags.is_empty());
        if *count <= arguments.keep || tagged || run.state == RunState::Running {
            continue;
        }
        let path = absolute(&run.path)?;
        match remove::may_go(&path) {
            Ok(bytes) => going.push((path, bytes)),
            Err(why) => {
                stay += 1;
                if stay <= LISTED_MAX {
                    terminal.say(&format!("{} stays: {why}", named::run(&run.path, &run.experiment)));
                }
            }
        }
    }
    let left = remove::left_over(runs.iter().map(|run| run.path.clone()));
    go(&going, &left, arguments.sure, terminal)
}

/// Not through a `latest` that will mean another one, and not through a link to the run itself.
fn absolute(run: &Path) -> Result<PathBuf, Failure> {
    let failed = |error: std::io::Error| Failure::Failed(format!("{}: {error}", run.display()));
    let (Some(parent), Some(name)) = (run.parent(), run.file_name()) else {
        return std::fs::canonicalize(run).map_err(failed);
    };
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    if name == crate::results::layout::LATEST {
        return std::fs::canonicalize(run).map_err(failed);
    }
    Ok(std::fs::canonicalize(parent).map_err(failed)?.join(name))
}

fn go(going: &[(PathBuf, u64)], left: &[PathBuf], sure: Sure, terminal: &Terminal) -> Result<u8, Failure> {
    if going.is_empty() && left.is_empty() {
        terminal.say("nothing to remove");
        return Ok(0);
    }
    for (run, bytes) in going.iter().take(LISTED_MAX) {
        terminal.say(&format!("{}  {}", run.display(), Bytes(*bytes)));
    }
    if let more @ 1.. = going.len().saturating_sub(LISTED_MAX) {
        terminal.say(&format!("and {more} more"));
    }
    let of_left: u64 = left.iter().map(|folder| remove::bytes(folder)).sum();
    if !left.is_empty() {
        terminal.say(&format!("{} of an earlier removal", counted(left.len() as u64, "rest")));
    }
    let all = Bytes(going.iter().map(|(_, bytes)| bytes).sum::<u64>() + of_left);
    let what = format!("{}, {all}", counted(going.len() as u64, "run"));
    if sure.dry_run {
        terminal.say(&format!("would remove {what}"));
        return Ok(0);
    }
    if !sure.yes && !agreed(&what, terminal)? {
        terminal.say("nothing was removed");
        return Ok(0);
    }
    for (run, _) in going {
        remove::remove(run).map_err(|why| Failure::Failed(format!("{}: {why}", run.display())))?;
    }
    for folder in left {
        write::at(folder, std::fs::remove_dir_all(folder)).map_err(Failure::failed)?;
    }
    terminal.say(&format!("removed {what}"));
    Ok(0)
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
