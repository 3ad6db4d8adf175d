//! Which runs died for want of memory while nobody watched? A watcher tells such a death from others when it sees it; one that comes
//! later looks for those that nobody has told, before it submits anything: a leak is not submitted again unseen.

use std::collections::BTreeMap;
use std::path::Path;

use chrono::{DateTime, FixedOffset};

use super::super::record::run_folder;
use super::super::resources::{Retry, processes, retry};
use super::super::run_status::RunStatus;
use super::super::trials::RunId;
use super::outcome::{FAILED, OUT_OF_MEMORY};
use super::queue::{Task, is_active};
use crate::records::sweep::{Process, Record};
use xrun_results::read;
use xrun_watch::killed;
use xrun_watch::killed::Killer;

/// Each with what is known of its death, for people. What is decided on in `retries` is not asked again. `asked` is what Slurm is asked for, for a run of a point: one that was given
/// less than that died of what somebody has mended since.
pub fn find(
    sweep: &Path,
    record: &Record,
    tasks: &[Task],
    retries: &BTreeMap<RunId, Retry>,
    asked: &dyn Fn(RunId) -> Option<u64>,
) -> BTreeMap<RunId, String> {
    let told = told(sweep);
    let mut accounting = true;
    let mut died = BTreeMap::new();
    for (run, place) in record.runs().zip(0..) {
        let folder = run_folder(sweep, run);
        let decided = retries.get(&run).is_some_and(|retry| retry.to_come);
        if decided || is_active(tasks, place) || !begun_after(&folder, told.get(&run.to_string())) {
            continue;
        }
        let given = killed::given_by_cluster(&folder);
        if given.zip(asked(run)).is_some_and(|(given, asked)| given < asked) {
            continue;
        }
        let state = tasks.iter().filter(|task| task.place == place).max_by_key(|task| task.job);
        let state = state.map(|task| task.state.clone());
        let found = match RunStatus::read(&folder) {
            RunStatus::Done(outcome) => {
                retry::met_container_limit(&folder, outcome).then(|| "it came to its container's limit".to_owned())
            }
            RunStatus::Unfinished => {
                // The queue forgets its jobs after some minutes; where one is not in the accounting, none is.
                let state = state.or_else(|| {
                    let said = accounting.then(|| killed::state_on_cluster(&folder)).flatten();
                    accounting &= said.is_some();
                    said
                });
                of_memory(&folder, state.as_deref(), given.or_else(|| asked(run)))
            }
            RunStatus::Missing | RunStatus::Running => None,
        };
        if let Some(why) = found {
            died.insert(run, format!("while nobody watched, {why}"));
        }
    }
    died
}

fn of_memory(run: &Path, state: Option<&str>, had: Option<u64>) -> Option<String> {
    let by_kernel = || match killed::killer(run) {
        killer @ Killer::Memory { own: true, .. } => Some(killer.words()),
        _ => None,
    };
    match state {
        Some(OUT_OF_MEMORY) => Some(format!("Slurm said {OUT_OF_MEMORY}")),
        // One that watches memory itself says no more.
        Some(FAILED) if had.is_some_and(|had| retry::held_more(run, had)) => Some(format!("Slurm said {FAILED}")),
        _ => by_kernel(),
    }
}

/// When each run was last told to have ended.
fn told(sweep: &Path) -> BTreeMap<String, DateTime<FixedOffset>> {
    let ended = |process: Process| Some((process.run, DateTime::parse_from_rfc3339(&process.ended).ok()?));
    processes(sweep).filter_map(ended).collect()
}

/// Whether the newest process of the run began after that.
fn begun_after(run: &Path, told: Option<&DateTime<FixedOffset>>) -> bool {
    let Ok(manifest) = read::manifest(run) else { return false };
    let newest = manifest.resumed.last().unwrap_or(&manifest.started);
    let newest = DateTime::parse_from_rfc3339(newest);
    told.is_none_or(|told| newest.is_ok_and(|newest| newest > *told))
}
