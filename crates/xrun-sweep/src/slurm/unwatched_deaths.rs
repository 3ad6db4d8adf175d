//! Runs that ran out of memory while no launcher ran. A launcher finds them before it submits anything, so that a run that
//! leaks is not resubmitted unnoticed.

use std::collections::BTreeMap;
use std::path::Path;

use chrono::DateTime;

use super::super::journal::{Histories, History};
use super::super::record::run_directory;
use super::super::resources::retry;
use super::super::run_status::RunStatus;
use super::super::trials::RunId;
use super::outcome::{FAILED, OUT_OF_MEMORY};
use super::queue::{QueuedTask, is_active};
use crate::records::sweep::SweepRecord;
use xrun_results::read;
use xrun_run::killed;
use xrun_run::killed::Killer;

/// Returns these runs, each with a message. Runs whose retry is decided on are left out, and so are those that were given less memory than `asked` is now for their trial: the user has raised it since.
pub fn find(
    sweep: &Path,
    record: &SweepRecord,
    tasks: &[QueuedTask],
    histories: &Histories,
    asked: &dyn Fn(RunId) -> Option<u64>,
) -> BTreeMap<RunId, String> {
    let mut accounting = true;
    let mut died = BTreeMap::new();
    for (run, place) in record.runs().zip(0..) {
        let directory = run_directory(sweep, run);
        let history = histories.get(run);
        let decided = history.is_some_and(History::is_retry_to_come);
        if decided || is_active(tasks, place) || !begun_after(&directory, history) {
            continue;
        }
        let given = killed::cluster_memory(&directory);
        if given.zip(asked(run)).is_some_and(|(given, asked)| given < asked) {
            continue;
        }
        let state = tasks.iter().filter(|task| task.place == place).max_by_key(|task| task.job);
        let state = state.map(|task| task.state.clone());
        let found = match RunStatus::read(&directory) {
            RunStatus::Done(outcome) => retry::met_container_limit(&directory, outcome)
                .then(|| "the run reached its container's memory limit".to_owned()),
            RunStatus::Unfinished => {
                // The queue forgets its jobs after some minutes. Without accounting of one there is none of the others.
                let state = state.or_else(|| {
                    let state = accounting.then(|| killed::cluster_state(&directory)).flatten();
                    accounting &= state.is_some();
                    state
                });
                of_memory(&directory, state.as_deref(), given.or_else(|| asked(run)))
            }
            RunStatus::NotStarted | RunStatus::Running => None,
        };
        if let Some(why) = found {
            died.insert(run, format!("before the sweep was resumed, {why}"));
        }
    }
    died
}

fn of_memory(run: &Path, state: Option<&str>, had: Option<u64>) -> Option<String> {
    let by_kernel = || match killed::killer(run) {
        killer @ Killer::Oom { own: true, .. } => Some(killer.message()),
        _ => None,
    };
    match state {
        Some(OUT_OF_MEMORY) => Some(format!("Slurm said {OUT_OF_MEMORY}")),
        // A Slurm that watches memory itself gives no other reason.
        Some(FAILED) if had.is_some_and(|had| retry::held_more(run, had)) => Some(format!("Slurm said {FAILED}")),
        _ => by_kernel(),
    }
}

/// Returns whether the newest process of the run began after its newest recorded end.
fn begun_after(run: &Path, history: Option<&History>) -> bool {
    let Ok(manifest) = read::manifest(run) else { return false };
    let newest = manifest.resumed.last().unwrap_or(&manifest.started);
    let newest = DateTime::parse_from_rfc3339(newest);
    let recorded = history.and_then(|history| DateTime::parse_from_rfc3339(&history.last.ended).ok());
    recorded.is_none_or(|recorded| newest.is_ok_and(|newest| newest > recorded))
}
