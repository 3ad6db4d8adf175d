//! Runs and sweeps of a results directory, as `xrun ui` lists them.
//!
//! Runs that ended are read once and again when their files change; active ones are followed. Bounds: [`index::RUNS_MAX`]
//! runs, [`ACTIVE_MAX`] followed ones, and [`READING_MAX`] for reading new ones in one update, so that the first page of
//! a large directory appears at once.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::cli::top::find;
use crate::cli::top::row::{ActiveRun, Row};
use crate::cli::top::runs::{Stamp, is_active};
use crate::dataset::digest::digest;
use crate::files::layout;
use crate::printable;
use crate::report::page::tone::outcome_tone;
use crate::results::index::{self, RunState};
use crate::results::judge::recorded_training;
use crate::results::read;
use crate::results::selection::metric_direction;
use crate::results::verdict::{TrainingVerdictWord, VerdictWord};
use crate::sweep::listing;
use crate::task::metric::Direction;

/// Number of hexadecimal digits of an identifier.
const ID_DIGITS: usize = 16;
const TAGS_MAX: usize = 16;
const ACTIVE_MAX: usize = 200;
const READING_MAX: Duration = Duration::from_secs(2);
/// Largest age of the list, and smallest ratio of its age to the time that it took to make.
const FRESH_FOR: Duration = Duration::from_millis(900);
const FRESH_FACTOR: u32 = 10;
const TEXT_CHARACTERS_MAX: usize = 400;

/// List of runs and sweeps.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Listing {
    /// Name of the results directory.
    pub results: String,
    /// Runs, newest first.
    pub runs: Vec<RunRow>,
    /// Sweeps, newest first.
    pub sweeps: Vec<SweepRow>,
    /// Number of runs that are not read yet.
    pub pending: usize,
}

/// A run in the list; texts are escaped, unknown values are `null`.
#[derive(Clone, Debug, Serialize)]
pub struct RunRow {
    /// Identifies the run in addresses.
    pub id: String,
    /// Name by which commands find it.
    pub name: String,
    pub experiment: String,
    pub run: String,
    /// Name of its sweep.
    pub sweep: Option<String>,
    pub state: String,
    /// `good`, `busy` or `bad`.
    pub tone: &'static str,
    /// A process writes to it.
    pub live: bool,
    /// RFC 3339, UTC.
    pub started: Option<String>,
    pub steps: Option<u64>,
    pub planned: Option<u64>,
    /// Time left; empty if it is over or unknown.
    pub left: String,
    pub loss: Option<f64>,
    /// Metric that selects the best checkpoint, and its best value.
    pub metric: Option<String>,
    pub best: Option<f64>,
    /// `higher` or `lower`.
    pub better: Option<&'static str>,
    /// Peak RSS in bytes.
    pub memory: Option<u64>,
    /// Working time in seconds.
    pub seconds: Option<f64>,
    /// Verdict on training.
    pub training: String,
    pub training_tone: &'static str,
    /// Verdict on memory.
    pub verdict: String,
    pub verdict_tone: &'static str,
    /// Message of its end, or about its memory.
    pub message: String,
    pub tags: Vec<String>,
}

/// A sweep in the list.
#[derive(Clone, Debug, Serialize)]
pub struct SweepRow {
    /// Identifies the sweep in addresses.
    pub id: String,
    /// Name by which commands find it.
    pub name: String,
    pub started: String,
    pub keys: Vec<String>,
    pub trials: usize,
    pub runs: usize,
    pub finished: usize,
}

/// Follower of a results directory.
#[derive(Debug)]
pub struct Catalog {
    results: PathBuf,
    ended: BTreeMap<PathBuf, (Stamp, RunRow)>,
    active: BTreeMap<PathBuf, ActiveRun>,
    /// Directories of runs and of sweeps by their ids.
    directories: BTreeMap<String, PathBuf>,
    listing: Listing,
    /// End and duration of the last update.
    updated: Option<(Instant, Duration)>,
}

impl Catalog {
    /// Catalogue of a results directory; nothing is read yet.
    pub fn new(results: &Path) -> Self {
        Self {
            results: results.to_path_buf(),
            ended: BTreeMap::new(),
            active: BTreeMap::new(),
            directories: BTreeMap::new(),
            listing: Listing::default(),
            updated: None,
        }
    }

    /// Current list.
    pub fn listing(&mut self) -> &Listing {
        let fresh = |(at, took): (Instant, Duration)| {
            self.listing.pending == 0 && at.elapsed() < (took * FRESH_FACTOR).max(FRESH_FOR)
        };
        if !self.updated.is_some_and(fresh) {
            let begin = Instant::now();
            self.update();
            self.updated = Some((Instant::now(), begin.elapsed()));
        }
        &self.listing
    }

    /// Directory of a listed run or sweep.
    pub fn directory(&self, id: &str) -> Option<&Path> {
        self.directories.get(id).map(PathBuf::as_path)
    }

    fn update(&mut self) {
        let begin = Instant::now();
        let found = find::runs(&self.results);
        let known: BTreeSet<&PathBuf> = found.iter().collect();
        self.ended.retain(|run, _| known.contains(run));
        self.active.retain(|run, _| known.contains(run));
        self.directories.clear();
        let mut listing =
            Listing { results: printable::line(&self.results.display().to_string(), 200), ..Listing::default() };
        for run in found {
            let row = if is_active(&run) && (self.active.contains_key(&run) || self.active.len() < ACTIVE_MAX) {
                active_row(&run, self.active.entry(run.clone()).or_insert_with(|| ActiveRun::new(&run)))
            } else {
                self.active.remove(&run);
                let stamp = Stamp::new(&run);
                match self.ended.get(&run).filter(|(before, _)| *before == stamp) {
                    Some((_, row)) => row.clone(),
                    None if begin.elapsed() < READING_MAX => {
                        let row = row(&run);
                        self.ended.insert(run.clone(), (stamp, row.clone()));
                        row
                    }
                    None => {
                        listing.pending += 1;
                        continue;
                    }
                }
            };
            self.directories.insert(row.id.clone(), run);
            listing.runs.push(row);
        }
        for sweep in listing::sweeps(&self.results, None) {
            let row = SweepRow {
                id: id(&sweep.directory),
                name: printable::line(&sweep.name, 120),
                started: printable::line(&sweep.created, 40),
                keys: sweep.keys.iter().map(|key| printable::line(key, 80)).collect(),
                trials: sweep.trials,
                runs: sweep.runs,
                finished: sweep.finished,
            };
            self.directories.insert(row.id.clone(), sweep.directory);
            listing.sweeps.push(row);
        }
        self.listing = listing;
    }
}

/// Identifier of a directory, without a path in it.
fn id(directory: &Path) -> String {
    let path = std::path::absolute(directory).unwrap_or_else(|_| directory.to_path_buf());
    digest(path.as_os_str().as_encoded_bytes())[..ID_DIGITS].to_owned()
}

fn active_row(run: &Path, active: &mut ActiveRun) -> RunRow {
    let now = active.update();
    let mut row = row(run);
    (row.live, row.state, row.tone, row.left, row.message) = (true, now.state, "busy", now.left, now.message);
    (row.training, row.training_tone) = training_cell(active.training());
    if let Some(verdict) = active.verdict() {
        (row.verdict, row.verdict_tone) = verdict_cell(verdict);
    }
    row
}

/// Row of a run from its files.
fn row(run: &Path) -> RunRow {
    let entry = index::entry(run);
    let names = Row::new(run);
    let absolute = std::path::absolute(run).unwrap_or_else(|_| run.to_path_buf());
    let sweep = absolute.parent().filter(|parent| parent.ends_with(layout::TRIALS)).and_then(Path::parent);
    let sweep = sweep.and_then(Path::file_name).map(|name| {
        let name = name.to_string_lossy();
        printable::line(&format!("{}/{}/{name}", names.experiment, layout::SWEEPS), 120)
    });
    let verdict = read::verdict(run);
    let message = match (&entry.state, &verdict) {
        (RunState::Unreadable(why), _) => why.clone(),
        (_, Err(error)) => error.to_string(),
        (_, Ok(Some(verdict))) if verdict.verdict >= VerdictWord::Suspect => verdict.message.clone(),
        _ => entry.summary.as_ref().map_or(String::new(), |summary| summary.message.clone()),
    };
    let (verdict, verdict_tone) = verdict.ok().flatten().map_or((String::new(), ""), |one| verdict_cell(one.verdict));
    // An active run is judged as it is followed.
    let training = (entry.state != RunState::Running).then(|| recorded_training(run, entry.summary.as_ref()));
    let (training, training_tone) = training_cell(training.flatten().map(|training| training.verdict));
    let best = entry.best.as_ref();
    let better = best.and_then(|best| metric_direction(run, &best.metric)).map(Direction::words);
    let tags = read::notes(run).unwrap_or_default().tags;
    RunRow {
        id: id(run),
        name: names.name,
        experiment: names.experiment,
        run: names.run,
        sweep,
        tone: outcome_tone(&entry.state).class(),
        state: entry.state.label().to_owned(),
        live: false,
        started: entry.started.as_ref().map(|time| printable::line(time, 40)),
        steps: entry.last_step,
        planned: entry.steps_planned,
        left: String::new(),
        loss: entry.loss.as_ref().map(|(_, loss)| *loss).filter(|loss| loss.is_finite()),
        metric: best.map(|best| printable::line(&best.metric, 60)),
        best: best.map(|best| best.value).filter(|value| value.is_finite()),
        better,
        memory: entry.rss_peak,
        seconds: entry.summary.as_ref().map(|summary| summary.seconds),
        training,
        training_tone,
        verdict,
        verdict_tone,
        message: printable::line(&message, TEXT_CHARACTERS_MAX),
        tags: tags.iter().take(TAGS_MAX).map(|tag| printable::line(tag, 60)).collect(),
    }
}

fn training_cell(verdict: Option<TrainingVerdictWord>) -> (String, &'static str) {
    verdict.map_or((String::new(), ""), |verdict| (verdict.words().to_owned(), verdict.word().tone.class()))
}

fn verdict_cell(verdict: VerdictWord) -> (String, &'static str) {
    (verdict.words().to_owned(), verdict.word().tone.class())
}
