//! Explanation of a run that was killed: who killed it, its memory, the growth, and what to do.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::child;
use crate::memory::killed;
pub use crate::memory::killed::{Killer, killer};
use xrun_core::files::layout;
use xrun_core::invocation;
use xrun_core::printable;
use xrun_core::units::{Bytes, seconds};
use xrun_results::format::MemoryLine;
use xrun_results::judge;
use xrun_results::process::SlurmJob;
use xrun_results::verdict::{Verdict, VerdictWord};
use xrun_results::{read, run_name};

/// Explanation of a kill, in sentences.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct KillReport {
    /// Killer, as a sentence.
    pub who: String,
    /// Memory at the last sample; `None` without a sample.
    pub held: Option<String>,
    /// Verdict on memory that was growing; `None` where none was.
    pub growing: Option<String>,
    /// Advice for the user.
    pub to_do: String,
    /// True if it was an OOM kill.
    #[serde(skip)]
    pub is_oom: bool,
}

/// Cap on the owners that are named.
const OWNERS_MAX: usize = 3;
/// Time that `sacct` may take.
const SACCT_TIMEOUT: Duration = Duration::from_secs(5);

/// Explains the kill of a run from the kernel's counters and log, Slurm's accounting and the recorded samples. The caller
/// knows that the run's process has ended without an exit record.
pub fn explain(run: &Path) -> KillReport {
    let note = killed::noted(run);
    let killer = killer(run);
    let slurm = note.as_ref().and_then(|note| note.slurm.as_ref()).and_then(slurm_state);
    let is_oom = slurm.as_deref() == Some("OUT_OF_MEMORY") || matches!(killer, Killer::Oom { .. });
    let mut who = killer.message();
    if let Some(state) = &slurm {
        who.push_str(&format!("; state in Slurm: {state}"));
    }
    let verdict = verdict_on(run).filter(|verdict| verdict.verdict >= VerdictWord::Suspect);
    let to_do = to_do(run, is_oom, verdict.as_ref());
    KillReport {
        who,
        held: read::newest_memory(run).last().map(memory_at),
        growing: verdict.map(|verdict| verdict.message),
        to_do,
        is_oom,
    }
}

/// State of the newest process of a run in Slurm's accounting, such as `OUT_OF_MEMORY`; `None` outside of a cluster, and
/// where `sacct` does not answer.
pub fn cluster_state(run: &Path) -> Option<String> {
    slurm_state(killed::noted(run)?.slurm.as_ref()?)
}

/// Verdict on the recorded samples of a run, also of one that was killed; `None` where nothing can be judged.
pub fn verdict_on(run: &Path) -> Option<Verdict> {
    judge::judge_run(run).ok()
}

/// Memory at a sample: `1.2 GiB of 2.0 GiB at the last sample (step 12, after 3 s): frame_cache 800.0 MiB`.
fn memory_at(line: &MemoryLine) -> String {
    let rss = line.host.rss.unwrap_or(line.host.heap);
    let limit = line.container.and_then(|container| container.limit);
    let of = limit.map_or_else(String::new, |limit| format!(" of {}", Bytes(limit)));
    let mut owners: Vec<(&String, u64)> = line.owners.iter().map(|(name, bytes)| (name, *bytes)).collect();
    owners.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    let named = owners.iter().filter(|(_, bytes)| *bytes > 0).take(OWNERS_MAX);
    let named: Vec<String> =
        named.map(|(name, bytes)| format!("{} {}", printable::line(name, 40), Bytes(*bytes))).collect();
    let owners = if named.is_empty() { String::new() } else { format!(": {}", named.join(", ")) };
    let pressure = line.pressure.filter(|percent| *percent >= 1.0);
    let pressure =
        pressure.map_or_else(String::new, |percent| format!("; tasks stalled on memory {percent:.0} % of the time"));
    let (step, time) = (line.step, seconds(line.time_us as f64 / 1e6));
    format!("{}{of} at the last sample (step {step}, after {time}){owners}{pressure}", Bytes(rss))
}

/// Advice to the user.
fn to_do(run: &Path, is_oom: bool, verdict: Option<&Verdict>) -> String {
    let (program, resolved) =
        (invocation::program(), printable::shell_word(&run.join(layout::RESOLVED).to_string_lossy()));
    let name = read::manifest(run)
        .map_or_else(|_| run.display().to_string(), |manifest| run_name::run(run, &manifest.experiment));
    let resume = format!("{program} resume {}", printable::shell_word(&name));
    let watched_only = !run.join(layout::RESOLVED).exists();
    match (is_oom, verdict) {
        (true, Some(verdict)) if verdict.verdict >= VerdictWord::Growing => {
            let owner =
                verdict.owner.as_ref().map_or_else(String::new, |owner| format!(", `{}`", printable::line(owner, 80)));
            format!("more memory only delays the next OOM kill: fix the leak{owner}, then start a new run")
        }
        (true, _) if watched_only => {
            "watch it again with `--host-memory SIZE` below the memory limit: the command is then signalled to save \
             before an OOM kill"
                .into()
        }
        (false, _) if watched_only => "watch it again; whether it continues is up to the command".into(),
        (true, _) => format!(
            "`{program} plan {resolved}` shows the memory needed and the keys that reduce it; `{resume} -s limits.host_memory=SIZE` \
             below the memory limit stops the run before an OOM kill, with a checkpoint and a post-mortem"
        ),
        (false, _) => format!("`{resume}` continues from the last checkpoint"),
    }
}

/// State of a job by `sacct`; `None` where it is unavailable or does not answer in time.
fn slurm_state(job: &SlurmJob) -> Option<String> {
    let mut command = Command::new("sacct");
    command.args(["--noheader", "--parsable2", "--allocations", "--format=State", "--jobs", &job.job]);
    let output = child::output(command.stdin(Stdio::null()), &|| false, SACCT_TIMEOUT).ok()??;
    newest_state(&String::from_utf8_lossy(&output.stdout))
}

/// Newest state in the output of `sacct`; `CANCELLED by 1000` is `CANCELLED`.
fn newest_state(output: &str) -> Option<String> {
    let line = output.lines().rev().map(str::trim).find(|line| !line.is_empty())?;
    let word = line.split_ascii_whitespace().next()?;
    Some(printable::line(word, 40))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_state_of_sacct_is_read() {
        assert_eq!(newest_state("OUT_OF_MEMORY\n").as_deref(), Some("OUT_OF_MEMORY"));
        assert_eq!(newest_state("REQUEUED\nCANCELLED by 1000\n\n").as_deref(), Some("CANCELLED"));
        assert_eq!(newest_state(" \n"), None);
    }
}
