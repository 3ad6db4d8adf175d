//! Sampling of a process that is already running, from outside.

use std::time::{Duration, Instant};

use super::WatchError;
use super::sampler::{ProcessTree, Sampler};
use xrun_core::bounded::ledger::Ledger;
use xrun_results::format::SamplePoint;
use xrun_results::judge::CommandJudge;
use xrun_results::verdict::Verdict;
use xrun_results::watched::WatchSettings;
use xrun_run::memory::own_cgroup::Cgroups;
use xrun_run::memory::processes::{Pages, Status, age};

/// Cap on the time between two checks whether to stop.
const TICK_MAX: Duration = Duration::from_millis(50);

/// Samples a process and its descendants until it ends or `stopped` returns true, and returns the verdict. `info` receives messages
/// for people.
///
/// # Errors
/// There is no such process, or it cannot be read.
pub fn attach(
    process: u32,
    every: Duration,
    stopped: &dyn Fn() -> bool,
    info: &dyn Fn(&str),
) -> Result<Verdict, WatchError> {
    if Status::read(process).is_none() {
        let message = format!("there is no process {process} that can be read; `ps -e` lists all processes");
        return Err(WatchError::Input(message));
    }
    if Pages::read(process).is_none() {
        info(&format!(
            "the pages of process {process} cannot be read (another user's?): shared pages count once for each process"
        ));
    }
    let ledger = Ledger::default();
    let mut sampler = Sampler::new(ProcessTree::Attached { main: process }, every, Cgroups::of_self(), &ledger);
    let sampling_period_ms = u64::try_from(every.as_millis()).unwrap_or(u64::MAX);
    let mut command = CommandJudge::new(&WatchSettings { sampling_period_ms, ..WatchSettings::default() });
    info(&format!("sampling process {process} until it ends, or until Ctrl-C"));
    let begun = Instant::now();
    let mut point = SamplePoint::Start;
    while !stopped() {
        // A younger process has reused the id of one that has ended.
        if Status::read(process).is_none() || age(process).is_none_or(|age| age + every < begun.elapsed()) {
            info(&format!("process {process} has ended"));
            break;
        }
        if sampler.is_due(false)
            && let Some(line) = sampler.sample(0, std::mem::replace(&mut point, SamplePoint::Step))
        {
            command.add(&line);
        }
        std::thread::sleep(every.min(TICK_MAX));
    }
    Ok(command.verdict())
}
