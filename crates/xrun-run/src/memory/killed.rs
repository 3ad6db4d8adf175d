//! Killer of a process, from the kernel's counts of OOM kills: recorded when it starts, and compared when it is gone.

use std::path::Path;

use super::cgroup::{Cgroup, oom_kills_in};
use crate::host;
use xrun_core::units::pluralize;
use xrun_results::format::VERSION;
use xrun_results::process::{CgroupRecord, ProcessRecord, SlurmJob};
use xrun_results::read;

/// Cap on the cgroups that are recorded.
const GROUPS_MAX: usize = 32;

/// Record of this process and the counts of OOM kills at its start.
pub fn note(segment: u32) -> ProcessRecord {
    let above = Cgroup::of_self().map(|group| group.oom_kills_above()).unwrap_or_default().into_iter().take(GROUPS_MAX);
    let groups = above.filter_map(|(directory, oom_kills)| {
        Some(CgroupRecord { inode: inode(&directory)?, directory: directory.display().to_string(), oom_kills })
    });
    ProcessRecord {
        version: VERSION,
        segment,
        process: std::process::id(),
        host: host::name(),
        boot: boot_id(),
        up_seconds: up_seconds(),
        machine_oom_kills: machine_oom_kills(),
        groups: groups.collect(),
        slurm: SlurmJob::from_environment(),
    }
}

/// Killer of a process, as far as the counts show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Killer {
    /// OOM kill by the kernel.
    Oom {
        /// Directory of the cgroup.
        group: String,
        /// OOM kills in the cgroup since the process started.
        kills: u64,
        /// True if it is the cgroup of the process, and not an ancestor.
        own: bool,
    },
    /// The machine has rebooted since.
    Reboot,
    /// The process ran on another host, which has the counts.
    OtherHost {
        /// Name of that host.
        host: String,
    },
    /// The kernel counted no OOM kill.
    NotKernel,
    /// Nothing was recorded, or nothing can be read.
    Unknown,
}

impl Killer {
    /// Explanation for people, to follow "its process is gone:".
    pub fn message(&self) -> String {
        match self {
            Self::Oom { group, kills, own: true } => {
                format!("OOM kill by the kernel ({} in {group} since it started)", pluralize(*kills, "kill"))
            }
            Self::Oom { group, kills, own: false } => format!(
                "probably an OOM kill by the kernel ({} in {group} since it started; its own cgroup has no count)",
                pluralize(*kills, "kill")
            ),
            Self::Reboot => "the machine has rebooted since".into(),
            Self::OtherHost { host } => format!("it ran on {host}; only that host knows who killed it"),
            Self::NotKernel => "killed by SIGKILL from outside, not by an OOM kill of the kernel".into(),
            Self::Unknown => "killed, or the machine rebooted".into(),
        }
    }

    /// Cell of a table; `None` for killers that are not listed.
    pub fn label(&self) -> Option<&'static str> {
        match self {
            Self::Oom { .. } => Some("out of memory"),
            Self::Reboot => Some("reboot"),
            _ => None,
        }
    }
}

/// Record of a run's newest process.
pub fn noted(run: &Path) -> Option<ProcessRecord> {
    read::process(run).ok().flatten()
}

/// Killer of the newest process of a run. The caller knows that it has ended without an exit record.
pub fn killer(run: &Path) -> Killer {
    noted(run).map_or(Killer::Unknown, |note| killer_of(&note, &host::name()))
}

/// Killer of the process of a record.
fn killer_of(note: &ProcessRecord, host: &str) -> Killer {
    let this_boot = boot_id();
    if note.host != host {
        return Killer::OtherHost { host: note.host.clone() };
    }
    if note.boot.is_some() && this_boot.is_some() && note.boot != this_boot {
        return Killer::Reboot;
    }
    let mut counted = false;
    for (at, group) in note.groups.iter().enumerate() {
        let directory = Path::new(&group.directory);
        // A new group of the same name counts from 0.
        let now = (inode(directory) == Some(group.inode)).then(|| oom_kills_in(directory)).flatten();
        let Some(now) = now else { continue };
        counted = true;
        if now > group.oom_kills {
            let (kills, own) = (now - group.oom_kills, at == 0);
            return Killer::Oom { group: group.directory.clone(), kills, own };
        }
        if at == 0 {
            // OOM kills in ancestors were those of other processes.
            return Killer::NotKernel;
        }
    }
    match note.machine_oom_kills.zip(machine_oom_kills()) {
        // There was no OOM kill at all.
        Some((then, now)) if now == then => Killer::NotKernel,
        Some((then, now)) if now > then && !counted => {
            Killer::Oom { group: "the whole machine".into(), kills: now - then, own: false }
        }
        _ => Killer::Unknown,
    }
}

/// Boot id of Linux.
fn boot_id() -> Option<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

fn machine_oom_kills() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/vmstat").ok()?;
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

fn up_seconds() -> Option<f64> {
    std::fs::read_to_string("/proc/uptime").ok()?.split_ascii_whitespace().next()?.parse().ok()
}

fn inode(directory: &Path) -> Option<u64> {
    std::fs::metadata(directory).ok().map(|found| std::os::unix::fs::MetadataExt::ino(&found))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(directory: &str, oom_kills: u64) -> CgroupRecord {
        CgroupRecord { directory: directory.into(), inode: inode(Path::new(directory)).unwrap_or(7), oom_kills }
    }

    #[test]
    fn another_host_and_a_reboot_are_recognised() {
        let note = ProcessRecord { host: "here".into(), ..note(0) };
        assert_eq!(killer_of(&note, "there"), Killer::OtherHost { host: "here".into() });
        let before = ProcessRecord { boot: Some("another".into()), ..note.clone() };
        if note.boot.is_some() {
            assert_eq!(killer_of(&before, "here"), Killer::Reboot);
        }
        assert_ne!(killer_of(&note, "here"), Killer::Reboot);
    }

    #[test]
    fn a_missing_or_recreated_group_is_unknown() {
        let mut note = ProcessRecord { host: "here".into(), ..note(0) };
        note.groups = vec![group("/sys/fs/cgroup/memory/no-such-group", 0), group("/tmp", 0)];
        note.machine_oom_kills = None;
        assert_eq!(killer_of(&note, "here"), Killer::Unknown);
        note.groups.clear();
        assert_eq!(killer_of(&note, "here"), Killer::Unknown, "nothing was recorded");
        if machine_oom_kills().is_some() {
            note.machine_oom_kills = machine_oom_kills().map(|kills| kills + 1);
            assert_eq!(killer_of(&note, "here"), Killer::Unknown, "a count that fell");
        }
    }

    #[test]
    fn this_process_has_not_been_killed() {
        let note = ProcessRecord { host: "here".into(), ..note(0) };
        if !note.groups.is_empty() {
            assert!(!matches!(killer_of(&note, "here"), Killer::Unknown | Killer::Reboot), "{note:?}");
        }
    }
}
