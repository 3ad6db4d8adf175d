//! Explanation of a run that was killed: who killed it, its memory, the growth, and what to do.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::memory::killed;
pub use crate::memory::killed::{Killer, killer};
use xrun_core::files::layout;
use xrun_core::invocation;
use xrun_core::printable;
use xrun_core::units::{Bytes, seconds};
use xrun_results::format::MemoryLine;
use xrun_results::judge;
use xrun_results::process::{ProcessRecord, SlurmJob};
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
/// Cap on the output of `sacct`.
const SACCT_BYTES_MAX: usize = 16 * 1024;
/// Cap on the lines of the kernel's log.
const KERNEL_LINES_MAX: usize = 100_000;

/// Explains the kill of a run from the kernel's counters and log, Slurm's accounting and the recorded samples. The caller
/// knows that the run's process has ended without an exit record.
pub fn explain(run: &Path) -> KillReport {
    let note = killed::noted(run);
    let killer = killer(run);
    let kernel = note.as_ref().filter(|_| is_local(&killer)).and_then(kernel_log_line);
    let slurm = note.as_ref().and_then(|note| note.slurm.as_ref()).and_then(slurm_state);
    let is_oom = kernel.is_some() || slurm.as_deref() == Some("OUT_OF_MEMORY") || matches!(killer, Killer::Oom { .. });
    let mut who = match &kernel {
        Some(line) => format!("OOM kill by the kernel; its log: \"{line}\""),
        None => killer.message(),
    };
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

/// Bytes that Slurm allocated to the newest process of a run; `None` where unknown.
pub fn cluster_memory(run: &Path) -> Option<u64> {
    killed::noted(run)?.slurm?.memory
}

/// Returns whether the kernel's log of this machine covers the kill.
fn is_local(killer: &Killer) -> bool {
    !matches!(killer, Killer::Reboot | Killer::OtherHost { .. })
}

/// Verdict on the recorded samples of a run, also of one that was killed; `None` where nothing can be judged.
pub fn verdict_on(run: &Path) -> Option<Verdict> {
    judge::samples(run).ok()
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

/// Line of the kernel's log about the OOM kill of a process; `None` where there is none, or the log may not be read.
fn kernel_log_line(note: &ProcessRecord) -> Option<String> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = std::fs::OpenOptions::new();
    let mut log = options.read(true).custom_flags(libc::O_NONBLOCK).open("/dev/kmsg").ok()?;
    let mut buffer = [0; 8192];
    let mut found = None;
    for _ in 0..KERNEL_LINES_MAX {
        let count = match log.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            // Lines were overwritten while they were read; the next one is complete.
            Err(error) if error.raw_os_error() == Some(libc::EPIPE) => continue,
            Err(_) => break,
        };
        let line = String::from_utf8_lossy(&buffer[..count]).into_owned();
        found = oom_kill_text(&line, note).or(found);
    }
    found
}

/// Parses `6,123,4567890,-;Killed process 77 (xrun) …`: a priority, a number, microseconds since boot, and the text. `None`
/// for other lines, and for other processes.
fn oom_kill_text(line: &str, note: &ProcessRecord) -> Option<String> {
    let (head, text) = line.split_once(';')?;
    let microseconds: f64 = head.split(',').nth(2)?.parse().ok()?;
    let text = text.lines().next()?;
    let number = text.split_once("illed process ")?.1.split_ascii_whitespace().next()?;
    let ours = number.parse() == Ok(note.process) && microseconds / 1e6 >= note.up_seconds?;
    ours.then(|| printable::line(text, 160))
}

/// State of a job by `sacct`; `None` where it is unavailable or does not answer in time.
fn slurm_state(job: &SlurmJob) -> Option<String> {
    let mut command = Command::new("sacct");
    command.args(["--noheader", "--parsable2", "--allocations", "--format=State", "--jobs", &job.job]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
    let begun = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(_)) => break,
            Ok(None) if begun.elapsed() < SACCT_TIMEOUT => std::thread::sleep(Duration::from_millis(20)),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                return None;
            }
        }
    }
    let mut output = Vec::new();
    child.stdout.take()?.take(SACCT_BYTES_MAX as u64).read_to_end(&mut output).ok()?;
    newest_state(&String::from_utf8_lossy(&output))
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
    fn a_line_of_the_kernels_log_is_matched_by_process_id_and_time() {
        let note = ProcessRecord { process: 77, up_seconds: Some(10.0), ..killed::note(0) };
        let line = |microseconds: u64, text: &str| format!("6,123,{microseconds},-;{text}\n SUBSYSTEM=x");
        let killed = "Memory cgroup out of memory: Killed process 77 (xrun) total-vm:1kB, anon-rss:2kB";
        assert_eq!(oom_kill_text(&line(11_000_000, killed), &note).as_deref(), Some(killed));
        assert_eq!(oom_kill_text(&line(9_000_000, killed), &note), None, "an earlier process with the same id");
        assert_eq!(oom_kill_text(&line(11_000_000, &killed.replace("77", "78")), &note), None);
        for odd in ["", ";", "1,2,x,-;Killed process 77 (xrun)", "6,1,11000000,-;Killed process", "a;b;c"] {
            assert_eq!(oom_kill_text(odd, &note), None, "{odd}");
        }
    }

    #[test]
    fn the_newest_state_of_sacct_is_read() {
        assert_eq!(newest_state("OUT_OF_MEMORY\n").as_deref(), Some("OUT_OF_MEMORY"));
        assert_eq!(newest_state("REQUEUED\nCANCELLED by 1000\n\n").as_deref(), Some("CANCELLED"));
        assert_eq!(newest_state(" \n"), None);
    }
}
