//! Runs that `xrun top` follows.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use super::find;
use super::row::{ActiveRun, INACTIVE_AFTER, Row, ended};
use crate::directory;
use crate::files::layout;
use crate::results::run_state;

/// Largest number of active runs that are shown; the oldest are omitted.
const ACTIVE_MAX: usize = 200;
/// Smallest ratio of the search period to the duration of a search for new runs.
const SEARCH_PERIOD_FACTOR: u32 = 20;
/// Shortest search period.
const SEARCH_EVERY_MIN: Duration = Duration::from_secs(1);

/// State of all runs at one time.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Rows of the active runs, then of the newest ended ones.
    pub rows: Vec<Row>,
    /// Number of active runs, including those that are not shown.
    pub active: usize,
    /// Number of ended or killed runs that are not shown.
    pub omitted: usize,
    /// Directories that were searched.
    pub directories: Vec<PathBuf>,
}

/// Follower of the runs in some directories.
#[derive(Debug)]
pub struct Runs {
    directories: Vec<PathBuf>,
    /// Largest number of ended runs that are shown.
    count: usize,
    /// Active and other runs of the last search, newest first; at most [`find::FOLLOWED_MAX`] in all.
    active: Vec<PathBuf>,
    others: Vec<PathBuf>,
    /// End and duration of the last search.
    searched: Option<(Instant, Duration)>,
    /// State of the active runs that are shown.
    followed: BTreeMap<PathBuf, ActiveRun>,
    /// Rows of the ended runs that are shown.
    ended: BTreeMap<PathBuf, (Stamp, Row)>,
}

/// Modification times of the files that describe how a run ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Stamp([Option<SystemTime>; 4]);

impl Stamp {
    /// Reads the times.
    pub fn new(run: &Path) -> Self {
        let files = [layout::SUMMARY, layout::MANIFEST, layout::MEMORY, layout::VERDICT];
        Self(files.map(|name| std::fs::metadata(run.join(name)).ok()?.modified().ok()))
    }
}

impl Runs {
    /// Creates a follower that shows at most `count` ended runs.
    pub fn new(directories: Vec<PathBuf>, count: usize) -> Self {
        let (followed, ended) = (BTreeMap::new(), BTreeMap::new());
        Self { directories, count, active: Vec::new(), others: Vec::new(), searched: None, followed, ended }
    }

    /// Reads the current state of the runs that are shown: the active ones, then the newest of the others.
    pub fn snapshot(&mut self) -> Snapshot {
        self.search();
        // Runs may have ended since the search. Runs that were resumed are found by the next search.
        let (active, over): (Vec<PathBuf>, Vec<PathBuf>) =
            std::mem::take(&mut self.active).into_iter().partition(|run| is_active(run));
        self.active = active;
        self.others.splice(0..0, over);
        let (active, others) = (&self.active, &self.others);
        let shown: Vec<PathBuf> = active.iter().take(ACTIVE_MAX).cloned().collect();
        let rest: Vec<PathBuf> = others.iter().take(self.count).cloned().collect();
        let (active_count, omitted) = (active.len(), others.len() - rest.len());
        let keep: BTreeSet<&PathBuf> = shown.iter().chain(&rest).collect();
        self.followed.retain(|run, _| keep.contains(run));
        self.ended.retain(|run, _| keep.contains(run));
        let mut rows: Vec<Row> = shown
            .iter()
            .map(|run| self.followed.entry(run.clone()).or_insert_with(|| ActiveRun::new(run)).update())
            .collect();
        for run in &rest {
            self.followed.remove(run);
            let stamp = Stamp::new(run);
            match self.ended.get(run).filter(|(before, _)| *before == stamp) {
                Some((_, row)) => rows.push(row.clone()),
                None => {
                    let row = ended(run);
                    rows.push(row.clone());
                    self.ended.insert(run.clone(), (stamp, row));
                }
            }
        }
        Snapshot { rows, active: active_count, omitted, directories: self.directories.clone() }
    }

    fn search(&mut self) {
        let due =
            |(at, took): &(Instant, Duration)| at.elapsed() >= (*took * SEARCH_PERIOD_FACTOR).max(SEARCH_EVERY_MIN);
        if !self.searched.as_ref().is_none_or(due) {
            return;
        }
        let start_time = Instant::now();
        let mut known = BTreeSet::new();
        let all = self.directories.iter().flat_map(|directory| find::runs(directory).0);
        // A run may be named twice, or be in a directory that is named as well.
        let all = all.filter(|run| known.insert(std::fs::canonicalize(run).unwrap_or_else(|_| run.clone())));
        (self.active, self.others) = all.take(find::FOLLOWED_MAX).partition(|run| is_active(run));
        self.searched = Some((Instant::now(), start_time.elapsed()));
    }
}

/// Returns true if a run has not ended and a process writes to it, on this machine or possibly on another one.
pub fn is_active(run: &Path) -> bool {
    !run.join(layout::SUMMARY).exists()
        && (run_state::is_locked(run) || directory::active_elsewhere(run, INACTIVE_AFTER).is_some())
}
