//! What is known of each run that is shown, from one look to the next?

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use super::find;
use super::row::{Live, Row, ended};
use crate::files::layout;
use crate::results::index;

/// Of more runs that go on, the oldest are left out.
const LIVE_MAX: usize = 200;
/// Folders are searched for new runs this much less often than it takes.
const SEARCH_SHARE: u32 = 20;
const SEARCH_EVERY_MIN: Duration = Duration::from_secs(1);

/// What is seen in one look.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub rows: Vec<Row>,
    /// Runs that go on, also those that are not shown.
    pub going_on: usize,
    /// Runs that have ended or were killed and are not shown.
    pub left_out: usize,
    /// Where was looked.
    pub folders: Vec<PathBuf>,
}

/// Follows the runs of some folders.
#[derive(Debug)]
pub struct Runs {
    folders: Vec<PathBuf>,
    /// Runs that have ended and are shown.
    count: usize,
    /// As of the newest search, newest first; at most [`index::RUNS_MAX`] together.
    going_on: Vec<PathBuf>,
    others: Vec<PathBuf>,
    searched: Option<(Instant, Duration)>,
    /// Of runs that are shown only.
    live: BTreeMap<PathBuf, Live>,
    ended: BTreeMap<PathBuf, (Stamp, Row)>,
}

/// When the files were changed that tell how a run ended.
#[derive(Clone, Debug, PartialEq)]
struct Stamp([Option<SystemTime>; 4]);

impl Stamp {
    fn of(run: &Path) -> Self {
        let files = [layout::SUMMARY, layout::MANIFEST, layout::MEMORY, layout::VERDICT];
        Self(files.map(|name| std::fs::metadata(run.join(name)).ok()?.modified().ok()))
    }
}

impl Runs {
    pub fn new(folders: Vec<PathBuf>, count: usize) -> Self {
        let (live, ended) = (BTreeMap::new(), BTreeMap::new());
        Self { folders, count, going_on: Vec::new(), others: Vec::new(), searched: None, live, ended }
    }

    /// Looks at those that are shown: first those that go on, then the newest of the others.
    pub fn look(&mut self) -> Seen {
        self.search();
        // Those that have ended since the search; one that was resumed is found by the next.
        let (going_on, over): (Vec<PathBuf>, Vec<PathBuf>) =
            std::mem::take(&mut self.going_on).into_iter().partition(|run| goes_on(run));
        self.going_on = going_on;
        self.others.splice(0..0, over);
        let (going_on, others) = (&self.going_on, &self.others);
        let shown: Vec<PathBuf> = going_on.iter().take(LIVE_MAX).cloned().collect();
        let rest: Vec<PathBuf> = others.iter().take(self.count).cloned().collect();
        let (live_count, left_out) = (going_on.len(), others.len() - rest.len());
        let keep: BTreeSet<&PathBuf> = shown.iter().chain(&rest).collect();
        self.live.retain(|run, _| keep.contains(run));
        self.ended.retain(|run, _| keep.contains(run));
        let mut rows: Vec<Row> =
            shown.iter().map(|run| self.live.entry(run.clone()).or_insert_with(|| Live::new(run)).look()).collect();
        for run in &rest {
            self.live.remove(run);
            let stamp = Stamp::of(run);
            match self.ended.get(run).filter(|(before, _)| *before == stamp) {
                Some((_, row)) => rows.push(row.clone()),
                None => {
                    let row = ended(run);
                    rows.push(row.clone());
                    self.ended.insert(run.clone(), (stamp, row));
                }
            }
        }
        Seen { rows, going_on: live_count, left_out, folders: self.folders.clone() }
    }

    fn search(&mut self) {
        let due = |(at, took): &(Instant, Duration)| at.elapsed() >= (*took * SEARCH_SHARE).max(SEARCH_EVERY_MIN);
        if !self.searched.as_ref().is_none_or(due) {
            return;
        }
        let begun = Instant::now();
        let mut known = BTreeSet::new();
        let all = self.folders.iter().flat_map(|folder| find::runs(folder));
        // One that is named twice, or lies in a folder that is named, too.
        let all = all.filter(|run| known.insert(std::fs::canonicalize(run).unwrap_or_else(|_| run.clone())));
        (self.going_on, self.others) = all.take(index::RUNS_MAX).partition(|run| goes_on(run));
        self.searched = Some((Instant::now(), begun.elapsed()));
    }
}

/// It has not ended, and a process of this machine works on it, or one of another machine may.
fn goes_on(run: &Path) -> bool {
    !run.join(layout::SUMMARY).exists() && (index::is_locked(run) || Live::may_go_on_elsewhere(run))
}
