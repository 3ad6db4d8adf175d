//! A run that is gone without an ending: who killed it, what did it hold, what was growing, and what is to be changed?

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::host;
use crate::memory::killed;
pub use crate::memory::killed::Killer;
use xrun_core::experiment::read as read_experiment;
use xrun_core::files::layout;
use xrun_core::invocation;
use xrun_core::printable;
use xrun_core::units::{Bytes, seconds};
use xrun_results::format::MemoryLine;
use xrun_results::judge;
use xrun_results::process::{ProcessNote, SlurmJob};
use xrun_results::verdict::{Judgement, Verdict};
use xrun_results::{named, read};

/// What is known of a kill, a sentence each.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Explained {
    pub who: String,
    /// At the last sample; `None` where none was taken.
    pub held: Option<String>,
    /// What was growing by then; `None` where nothing was.
    pub growing: Option<String>,
    pub to_do: String,
    #[serde(skip)]
    pub of_memory: bool,
}

/// Owners that are named.
const OWNERS_MAX: usize = 3;
/// A cluster's accounting that does not answer for so long is left out.
const ACCOUNTING_LIMIT: Duration = Duration::from_secs(5);
/// Of what it says, and of the kernel's log.
const SAID_BYTES_MAX: usize = 16 * 1024;
const KERNEL_LINES_MAX: usize = 100_000;

/// Who killed the newest process of this run, by counters alone: fast.
pub fn killer(run: &Path) -> Killer {
    killed::killer(run, &host::name())
}

/// All that can be found out. The caller knows that the run's process is gone and has not ended by itself.
pub fn explain(run: &Path) -> Explained {
    let note = killed::noted(run);
    let killer = killer(run);
    let kernel = note.as_ref().filter(|_| here(&killer)).and_then(kernel_said);
    let slurm = note.as_ref().and_then(|note| note.slurm.as_ref()).and_then(accounting);
    let of_memory =
        kernel.is_some() || slurm.as_deref() == Some("OUT_OF_MEMORY") || matches!(killer, Killer::Memory { .. });
    let mut who = match &kernel {
        Some(line) => format!("the kernel killed it for want of memory; its log says \"{line}\""),
        None => killer.words(),
    };
    if let Some(state) = &slurm {
        who.push_str(&format!("; Slurm says {state}"));
    }
    let newest = newest(run);
    let verdict = judged(run).filter(|verdict| verdict.verdict >= Judgement::Suspect);
    let to_do = to_do(run, of_memory, verdict.as_ref());
    Explained {
        who,
        held: newest.as_ref().map(held),
        growing: verdict.map(|verdict| verdict.message),
        to_do,
        of_memory,
    }
}

/// What the cluster's accounting says of the newest process of this run, such as `OUT_OF_MEMORY`; `None` outside of a cluster, and
/// where it does not answer.
pub fn state_on_cluster(run: &Path) -> Option<String> {
    accounting(killed::noted(run)?.slurm.as_ref()?)
}

/// Bytes that the newest process of this run was given by its cluster; `None` where that is not known.
pub fn given_by_cluster(run: &Path) -> Option<u64> {
    killed::noted(run)?.slurm?.memory
}

/// The log of this machine may speak of it.
fn here(killer: &Killer) -> bool {
    !matches!(killer, Killer::Machine | Killer::Elsewhere { .. })
}

fn newest(run: &Path) -> Option<MemoryLine> {
    read::memory(run)
        .ok()?
        .map_while(|line| match line {
            Err(error) if !matches!(error, read::ReadError::Content { .. }) => None,
            line => Some(line.ok()),
        })
        .flatten()
        .last()
}

/// The verdict on what was recorded of a run, also of one that did not end by itself; `None` where nothing can be judged.
pub fn judged(run: &Path) -> Option<Verdict> {
    if let Some(watched) = read::manifest(run).ok()?.watched {
        let mut command = judge::Command::new(&watched);
        read::memory(run).ok()?.flatten().for_each(|line| command.add(&line));
        return Some(command.verdict());
    }
    let experiment = read_experiment::read_resolved(&run.join(layout::RESOLVED), &[]).ok()?.experiment;
    judge::of_run(run, &experiment).ok()
}

/// `after step 12, 3 s after its start, it held 1.2 GiB of 2.0 GiB: frame_cache 800.0 MiB, feed_ready 12.0 MiB`
fn held(line: &MemoryLine) -> String {
    let resident = line.host.resident.unwrap_or(line.host.heap);
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
        pressure.map_or_else(String::new, |percent| format!("; work waited for memory {percent:.0} % of the time"));
    let time = seconds(line.time_us as f64 / 1e6);
    format!(
        "at its last sample, after step {} and {time}, it held {}{of}{owners}{pressure}",
        line.step,
        Bytes(resident)
    )
}

fn to_do(run: &Path, of_memory: bool, verdict: Option<&Verdict>) -> String {
    let (program, resolved) =
        (invocation::program(), printable::shell_word(&run.join(layout::RESOLVED).to_string_lossy()));
    let name = read::manifest(run)
        .map_or_else(|_| run.display().to_string(), |manifest| named::run(run, &manifest.experiment));
    let resume = format!("{program} resume {}", printable::shell_word(&name));
    let watched_only = !run.join(layout::RESOLVED).exists();
    match (of_memory, verdict) {
        (true, Some(verdict)) if verdict.verdict >= Judgement::Growing => {
            let owner =
                verdict.owner.as_ref().map_or_else(String::new, |owner| format!(", `{}`", printable::line(owner, 80)));
            format!("more memory only moves the next kill: mend what grows{owner}, then start a new run")
        }
        (true, _) if watched_only => {
            "watch it again with `--host-memory SIZE`, less than there is: then it is told to save before it is killed"
                .into()
        }
        (false, _) if watched_only => "watch it again: only the command itself knows how it goes on".into(),
        (true, _) => format!(
            "`{program} plan {resolved}` says what it needs and which keys make that smaller; `{resume} -s limits.host_memory=SIZE` \
             with less than there is ends it by itself, with a checkpoint and a post-mortem"
        ),
        (false, _) => format!("`{resume}` goes on from the last checkpoint"),
    }
}

/// What the kernel's log says of the process, where it may be read.
fn kernel_said(note: &ProcessNote) -> Option<String> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = std::fs::OpenOptions::new();
    let mut log = options.read(true).custom_flags(libc::O_NONBLOCK).open("/dev/kmsg").ok()?;
    let mut buffer = [0; 8192];
    let mut found = None;
    for _ in 0..KERNEL_LINES_MAX {
        let count = match log.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            // Lines were overwritten while they were read: the next one is whole.
            Err(error) if error.raw_os_error() == Some(libc::EPIPE) => continue,
            Err(_) => break,
        };
        let line = String::from_utf8_lossy(&buffer[..count]).into_owned();
        found = said_of(&line, note).or(found);
    }
    found
}

/// `6,123,4567890,-;Killed process 77 (xrun) …`: a priority, a number, microseconds since the machine started, and the text.
fn said_of(line: &str, note: &ProcessNote) -> Option<String> {
    let (head, text) = line.split_once(';')?;
    let microseconds: f64 = head.split(',').nth(2)?.parse().ok()?;
    let text = text.lines().next()?;
    let number = text.split_once("illed process ")?.1.split_ascii_whitespace().next()?;
    let ours = number.parse() == Ok(note.process) && microseconds / 1e6 >= note.up_seconds?;
    ours.then(|| printable::line(text, 160))
}

/// The state of the job by the cluster's accounting; `None` where it keeps none or does not answer.
fn accounting(job: &SlurmJob) -> Option<String> {
    let mut command = Command::new("sacct");
    command.args(["--noheader", "--parsable2", "--allocations", "--format=State", "--jobs", &job.job]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
    let begun = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(_)) => break,
            Ok(None) if begun.elapsed() < ACCOUNTING_LIMIT => std::thread::sleep(Duration::from_millis(20)),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                return None;
            }
        }
    }
    let mut said = Vec::new();
    child.stdout.take()?.take(SAID_BYTES_MAX as u64).read_to_end(&mut said).ok()?;
    state(&String::from_utf8_lossy(&said))
}

/// The newest state that is told; `CANCELLED by 1000` is `CANCELLED`.
fn state(said: &str) -> Option<String> {
    let line = said.lines().rev().map(str::trim).find(|line| !line.is_empty())?;
    let word = line.split_ascii_whitespace().next()?;
    Some(printable::line(word, 40))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_log_speaks_of_a_process_by_its_number_and_after_its_start() {
        let note = ProcessNote { process: 77, up_seconds: Some(10.0), ..killed::note(0, "here".into()) };
        let line = |microseconds: u64, text: &str| format!("6,123,{microseconds},-;{text}\n SUBSYSTEM=x");
        let killed = "Memory cgroup out of memory: Killed process 77 (xrun) total-vm:1kB, anon-rss:2kB";
        assert_eq!(said_of(&line(11_000_000, killed), &note).as_deref(), Some(killed));
        assert_eq!(said_of(&line(9_000_000, killed), &note), None, "another process had that number before");
        assert_eq!(said_of(&line(11_000_000, &killed.replace("77", "78")), &note), None);
        for odd in ["", ";", "1,2,x,-;Killed process 77 (xrun)", "6,1,11000000,-;Killed process", "a;b;c"] {
            assert_eq!(said_of(odd, &note), None, "{odd}");
        }
    }

    #[test]
    fn the_accounting_is_read() {
        assert_eq!(state("OUT_OF_MEMORY\n").as_deref(), Some("OUT_OF_MEMORY"));
        assert_eq!(state("REQUEUED\nCANCELLED by 1000\n\n").as_deref(), Some("CANCELLED"));
        assert_eq!(state(" \n"), None);
    }
}
