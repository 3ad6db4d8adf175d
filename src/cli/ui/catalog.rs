//! Runs and sweeps of a results directory, as `xrun ui` lists them.
//!
//! Runs that ended are read once and again when their files change; active ones are followed. Bounds: [`ACTIVE_MAX`] followed
//! ones of those that are found, and [`READING_MAX`] for reading new ones in one update, so that the first page of a large
//! directory appears at once.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::{Value, json};

use crate::cli::top::find;
use crate::cli::top::row::{ActiveRun, Row};
use crate::cli::top::runs::{Stamp, is_active};
use crate::dataset::digest::digest;
use crate::experiment::{schema, shape};
use crate::files::layout;
use crate::printable;
use crate::report::page::tone::outcome_tone;
use crate::results::resolved::format_value;
use crate::results::run_state::RunState;
use crate::results::verdict::{TrainingVerdictWord, VerdictWord};
use crate::results::view::RunView;
use crate::sweep::listing;
use crate::sweep::trials::masked;
use crate::task::metric::Direction;

/// Number of hexadecimal digits of an identifier.
const ID_DIGITS: usize = 16;
const TAGS_MAX: usize = 16;
const SETTINGS_MAX: usize = 64;
const ACTIVE_MAX: usize = 200;
const READING_MAX: Duration = Duration::from_secs(2);
/// As [`READING_MAX`], of the first update.
const FIRST_READING_MAX: Duration = Duration::from_millis(30);
/// Largest age of the list, and smallest ratio of its age to the time that it took to make.
const FRESH_FOR: Duration = Duration::from_millis(900);
const FRESH_FACTOR: u32 = 10;
const TEXT_CHARACTERS_MAX: usize = 400;

/// List of runs and sweeps.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Listing {
    /// Name of the results directory.
    pub results: String,
    /// Runs, newest first; texts are escaped, unknown values are `null`.
    pub runs: Vec<Value>,
    /// Sweeps, newest first.
    pub sweeps: Vec<Value>,
    /// Number of older runs and of older sweeps, which are not listed.
    pub older: (usize, usize),
    /// Number of runs that are not read yet.
    pub pending: usize,
    /// Defaults of the settings in which some run differs, by key.
    pub defaults: BTreeMap<String, Value>,
}

/// Follower of a results directory.
#[derive(Debug, Default)]
pub struct Catalog {
    results: PathBuf,
    ended: BTreeMap<PathBuf, (Stamp, Value)>,
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
        Self { results: results.to_path_buf(), ..Self::default() }
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
        let (found, older) = find::runs(&self.results);
        let (sweeps, older_sweeps) = listing::sweeps(&self.results, None);
        let known: BTreeSet<&PathBuf> = found.iter().collect();
        self.ended.retain(|run, _| known.contains(run));
        self.active.retain(|run, _| known.contains(run));
        self.directories.clear();
        let results = printable::line(&self.results.display().to_string(), 200);
        let mut listing = Listing { results, older: (older, older_sweeps), ..Listing::default() };
        let reading_max = if self.updated.is_some() { READING_MAX } else { FIRST_READING_MAX };
        // Finding many runs takes longer, and each update must read some.
        let begin = Instant::now();
        for run in found {
            let is_known = self.ended.contains_key(&run) || self.active.contains_key(&run);
            if !is_known && begin.elapsed() >= reading_max {
                listing.pending += 1;
                continue;
            }
            let row = if is_active(&run) && (self.active.contains_key(&run) || self.active.len() < ACTIVE_MAX) {
                row(&run, Some(self.active.entry(run.clone()).or_insert_with(|| ActiveRun::new(&run))))
            } else {
                self.active.remove(&run);
                let stamp = Stamp::new(&run);
                match self.ended.get(&run).filter(|(before, _)| *before == stamp) {
                    Some((_, row)) => row.clone(),
                    None => {
                        let row = row(&run, None);
                        self.ended.insert(run.clone(), (stamp, row.clone()));
                        row
                    }
                }
            };
            self.directories.insert(id(&run), run);
            listing.runs.push(row);
        }
        let set = listing.runs.iter().filter_map(|row| row["settings"].as_object()).flat_map(|set| set.keys());
        listing.defaults = set.filter_map(|key| Some((key.clone(), shown(key, default_of(key)?)))).collect();
        for sweep in sweeps {
            let keys: Vec<String> = sweep.keys.iter().map(|key| printable::line(key, 80)).collect();
            listing.sweeps.push(json!({
                "id": id(&sweep.directory),
                "name": printable::line(&sweep.name, 120),
                "started": printable::line(&sweep.created, 40),
                "keys": keys,
                "trials": sweep.trials,
                "runs": sweep.runs,
                "finished": sweep.finished,
            }));
            self.directories.insert(id(&sweep.directory), sweep.directory);
        }
        self.listing = listing;
    }
}

/// Identifier of a directory, without a path in it.
fn id(directory: &Path) -> String {
    let path = std::path::absolute(directory).unwrap_or_else(|_| directory.to_path_buf());
    digest(path.as_os_str().as_encoded_bytes())[..ID_DIGITS].to_owned()
}

/// Values of a run that are not their defaults, by key: numbers, and texts for others.
fn settings(view: &RunView) -> BTreeMap<String, Value> {
    let values = view.values().into_iter().flatten();
    let is_name = |key: &str| ["experiment.name", "experiment.description"].contains(&key);
    let set = values.filter(|(key, value)| !is_name(key) && default_of(key) != Some(value)).take(SETTINGS_MAX);
    set.map(|(key, value)| (printable::line(key, 120), shown(key, value))).collect()
}

fn default_of(key: &str) -> Option<&'static Value> {
    shape::schema_at(schema::shared(), key)?.get("default")
}

fn shown(key: &str, value: &Value) -> Value {
    let value = masked(key, value);
    if value.is_number() { value } else { printable::line(&format_value(&value), 80).into() }
}

/// Sections whose keys a run has, such as `optimizer.adamw`; a key of them that is not among its `settings` has its default. None if
/// these were cut.
fn sections(view: &RunView, settings: usize) -> BTreeSet<String> {
    let keys = view.values().into_iter().flatten().map(|(key, _)| key).filter(|_| settings < SETTINGS_MAX);
    let sections: BTreeSet<&str> = keys.filter_map(|key| Some(key.rsplit_once('.')?.0)).collect();
    sections.into_iter().take(SETTINGS_MAX).map(|section| printable::line(section, 120)).collect()
}

/// Row of a run from its files, and from its follower while it is active.
fn row(run: &Path, active: Option<&mut ActiveRun>) -> Value {
    let now = active.map(|active| (active.update(), active.training(), active.verdict()));
    let view = RunView::open(run);
    let names = Row::new(run);
    let absolute = std::path::absolute(run).unwrap_or_else(|_| run.to_path_buf());
    let sweep = absolute.parent().filter(|parent| parent.ends_with(layout::TRIALS)).and_then(Path::parent);
    let sweep = sweep.and_then(Path::file_name).map(|name| {
        let name = name.to_string_lossy();
        printable::line(&format!("{}/{}/{name}", names.experiment, layout::SWEEPS), 120)
    });
    let message = match (view.state(), view.verdict_error(), view.verdict()) {
        (RunState::Unreadable(why), ..) => why.clone(),
        (_, Some(error), _) => error.to_string(),
        (_, _, Some(verdict)) if verdict.verdict >= VerdictWord::Suspect => verdict.message.clone(),
        _ => view.final_summary().map_or(String::new(), |summary| summary.message.clone()),
    };
    let verdict = now.as_ref().and_then(|(_, _, verdict)| *verdict);
    let verdict = verdict.or_else(|| view.verdict().map(|verdict| verdict.verdict));
    let training = match &now {
        Some((_, training, _)) => *training,
        None if *view.state() == RunState::Running => None,
        None => view.listed_training().map(|training| training.verdict),
    };
    let live = now.is_some();
    let (state, tone, left, message) = match now {
        Some((now, ..)) => (now.state, "busy", now.left, now.message),
        None => {
            let state = view.state();
            let message = printable::line(&message, TEXT_CHARACTERS_MAX);
            (state.label().to_owned(), outcome_tone(state).class(), String::new(), message)
        }
    };
    let best = view.best();
    let settings = settings(&view);
    let tags: Vec<String> = view.tags().iter().take(TAGS_MAX).map(|tag| printable::line(tag, 60)).collect();
    json!({
        // Identifies the run in addresses.
        "id": id(run),
        "name": names.name,
        "experiment": names.experiment,
        "run": names.run,
        "sweep": sweep,
        "state": state,
        "tone": tone,
        "live": live,
        "started": view.started().map(|time| printable::line(time, 40)),
        "steps": view.steps(),
        "planned": view.steps_planned(),
        "left": left,
        "loss": view.loss().map(|(_, loss)| loss).filter(|loss| loss.is_finite()),
        "metric": best.map(|best| printable::line(&best.metric, 60)),
        "best": best.map(|best| best.value).filter(|value| value.is_finite()),
        "better": best.and_then(|best| view.direction(&best.metric)).map(Direction::words),
        "memory": view.rss_peak(),
        "seconds": view.final_summary().map(|summary| summary.seconds),
        "training": training.map_or("", TrainingVerdictWord::words),
        "training_tone": training.map_or("", |training| training.word().tone.class()),
        "verdict": verdict.map_or("", VerdictWord::words),
        "verdict_tone": verdict.map_or("", |verdict| verdict.word().tone.class()),
        "message": message,
        "tags": tags,
        "sections": sections(&view, settings.len()),
        "settings": settings,
    })
}
