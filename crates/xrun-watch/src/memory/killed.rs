//! Who killed a process that is gone? Noted at its start, and compared later: the kernel counts whom it kills.

use std::path::Path;

use super::cgroup::{Cgroup, oom_kills_in};
use xrun_results::format::VERSION;
use xrun_results::process::{GroupNote, ProcessNote, SlurmJob};
use xrun_results::read;

/// More groups above are not noted.
const GROUPS_MAX: usize = 32;

/// Notes this process.
pub fn note(segment: u32, host: String) -> ProcessNote {
    let above = Cgroup::of_self().map(|group| group.oom_kills_above()).unwrap_or_default().into_iter().take(GROUPS_MAX);
    let groups = above.filter_map(|(folder, oom_kills)| {
        Some(GroupNote { inode: inode(&folder)?, folder: folder.display().to_string(), oom_kills })
    });
    ProcessNote {
        version: VERSION,
        segment,
        process: std::process::id(),
        host,
        boot: boot(),
        up_seconds: up_seconds(),
        machine_oom_kills: machine_oom_kills(),
        groups: groups.collect(),
        slurm: SlurmJob::here(),
    }
}

/// Who it was, as far as counters tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Killer {
    /// The kernel, for want of memory: kills in this group since the start. `own` says that it is the group of the process
    /// and not one above.
    Memory { group: String, kills: u64, own: bool },
    /// The machine was started anew since.
    Machine,
    /// It ran elsewhere, where the counters are.
    Elsewhere { host: String },
    /// The kernel counted no kill.
    NotTheKernel,
    /// Nothing was noted, or nothing can be read.
    Unknown,
}

impl Killer {
    /// For people, after "its process is gone:".
    pub fn words(&self) -> String {
        match self {
            Self::Memory { group, kills, own: true } => {
                format!("the kernel killed it for want of memory ({} in {group} since it began)", counted(*kills))
            }
            Self::Memory { group, kills, own: false } => format!(
                "the kernel probably killed it for want of memory: its own group does not say, and there was {} in {group} since",
                counted(*kills)
            ),
            Self::Machine => "the machine went down: it was started anew since".into(),
            Self::Elsewhere { host } => format!("it ran on {host}; the kernel there knows who killed it"),
            Self::NotTheKernel => {
                "somebody killed it, and not the kernel for want of memory, which counted no kill in its group".into()
            }
            Self::Unknown => "killed, or the machine went down".into(),
        }
    }

    /// For a table.
    pub fn word(&self) -> Option<&'static str> {
        match self {
            Self::Memory { .. } => Some("out of memory"),
            Self::Machine => Some("machine went down"),
            _ => None,
        }
    }
}

fn counted(kills: u64) -> String {
    if kills == 1 { "1 kill".into() } else { format!("{kills} kills") }
}

/// The note of a run's newest process.
pub fn noted(run: &Path) -> Option<ProcessNote> {
    read::process(run).ok().flatten()
}

/// Who killed the newest process of this run. The caller knows that it is gone and did not end by itself.
pub fn killer(run: &Path, host: &str) -> Killer {
    noted(run).map_or(Killer::Unknown, |note| of(&note, host))
}

/// The same of a note.
pub fn of(note: &ProcessNote, host: &str) -> Killer {
    let here = boot();
    if note.host != host {
        return Killer::Elsewhere { host: note.host.clone() };
    }
    if note.boot.is_some() && here.is_some() && note.boot != here {
        return Killer::Machine;
    }
    let mut counted = false;
    for (at, group) in note.groups.iter().enumerate() {
        let folder = Path::new(&group.folder);
        // One that was made anew counts from 0 again.
        let now = (inode(folder) == Some(group.inode)).then(|| oom_kills_in(folder)).flatten();
        let Some(now) = now else { continue };
        counted = true;
        if now > group.oom_kills {
            let (kills, own) = (now - group.oom_kills, at == 0);
            return Killer::Memory { group: group.folder.clone(), kills, own };
        }
        if at == 0 {
            // Its own group has counted nobody, so whoever was killed in those above was another.
            return Killer::NotTheKernel;
        }
    }
    match note.machine_oom_kills.zip(machine_oom_kills()) {
        // Nobody at all was killed for want of memory.
        Some((then, now)) if now == then => Killer::NotTheKernel,
        Some((then, now)) if now > then && !counted => {
            Killer::Memory { group: "the whole machine".into(), kills: now - then, own: false }
        }
        _ => Killer::Unknown,
    }
}

/// Linux's name for this start of the machine.
fn boot() -> Option<String> {
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

#[cfg(unix)]
fn inode(folder: &Path) -> Option<u64> {
    std::fs::metadata(folder).ok().map(|found| std::os::unix::fs::MetadataExt::ino(&found))
}

#[cfg(not(unix))]
fn inode(_: &Path) -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(folder: &str, oom_kills: u64) -> GroupNote {
        GroupNote { folder: folder.into(), inode: inode(Path::new(folder)).unwrap_or(7), oom_kills }
    }

    #[test]
    fn another_machine_and_another_start_of_it_are_told_apart() {
        let note = note(0, "here".into());
        assert_eq!(of(&note, "there"), Killer::Elsewhere { host: "here".into() });
        let before = ProcessNote { boot: Some("another".into()), ..note.clone() };
        if note.boot.is_some() {
            assert_eq!(of(&before, "here"), Killer::Machine);
        }
        assert_ne!(of(&note, "here"), Killer::Machine);
    }

    #[test]
    fn a_group_that_is_gone_or_was_made_anew_says_nothing() {
        let mut note = note(0, "here".into());
        note.groups = vec![group("/sys/fs/cgroup/memory/no-such-group", 0), group("/tmp", 0)];
        note.machine_oom_kills = None;
        assert_eq!(of(&note, "here"), Killer::Unknown);
        note.groups.clear();
        assert_eq!(of(&note, "here"), Killer::Unknown, "nothing was noted");
        if machine_oom_kills().is_some() {
            note.machine_oom_kills = machine_oom_kills().map(|kills| kills + 1);
            assert_eq!(of(&note, "here"), Killer::Unknown, "a counter that went back");
        }
    }

    #[test]
    fn this_process_has_not_been_killed() {
        let note = note(0, "here".into());
        if !note.groups.is_empty() {
            assert!(!matches!(of(&note, "here"), Killer::Unknown | Killer::Machine), "{note:?}");
        }
    }
}
