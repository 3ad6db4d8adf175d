//! Which memory cgroup is a process in, and what does the kernel say of it? Version 2 or 1.

use std::fs;
use std::path::{Path, PathBuf};

use xrun_results::format::ContainerMemory;

/// A memory cgroup.
#[derive(Clone, Debug)]
pub struct Cgroup {
    pub(super) folder: PathBuf,
    /// Of its kind.
    root: &'static Path,
    pub(super) files: &'static CgroupFiles,
}

/// What the files of a version of cgroups are called.
#[derive(Debug)]
pub(super) struct CgroupFiles {
    root: &'static str,
    /// In `/proc/self/cgroup`, before the path.
    line: &'static str,
    current: &'static str,
    peak: &'static str,
    pub(super) limit: &'static str,
    /// Memory and swap together, or swap: what is not to be used in place of memory.
    pub(super) swap_limit: (&'static str, bool),
    anonymous: &'static str,
    /// Counts kills.
    events: &'static str,
}

/// Where both are mounted, memory is controlled by version 1.
const CGROUPS: [CgroupFiles; 2] = [
    CgroupFiles {
        root: "/sys/fs/cgroup/memory",
        line: ":memory:",
        current: "memory.usage_in_bytes",
        peak: "memory.max_usage_in_bytes",
        limit: "memory.limit_in_bytes",
        swap_limit: ("memory.memsw.limit_in_bytes", true),
        anonymous: "total_rss ",
        events: "memory.oom_control",
    },
    CgroupFiles {
        root: "/sys/fs/cgroup",
        line: "0::",
        current: "memory.current",
        peak: "memory.peak",
        limit: "memory.max",
        swap_limit: ("memory.swap.max", false),
        anonymous: "anon ",
        events: "memory.events",
    },
];

impl Cgroup {
    /// That of this process; `None` outside one.
    pub fn of_self() -> Option<Self> {
        let text = fs::read_to_string("/proc/self/cgroup").ok()?;
        CGROUPS.iter().find_map(|files| {
            let path = text.lines().find_map(|line| line.split_once(files.line).map(|(_, path)| path))?;
            let root = Path::new(files.root);
            let folder = root.join(path.trim_start_matches('/'));
            // In a container the path may be the host's.
            let folder = if folder.join(files.current).is_file() { folder } else { root.to_path_buf() };
            folder.join(files.current).is_file().then_some(Self { folder, root, files })
        })
    }

    /// The group of this name below it. Nothing is made.
    pub(super) fn below(&self, name: &str) -> Self {
        Self { folder: self.folder.join(name), ..self.clone() }
    }

    /// Bytes that the kernel charges to it: memory of its processes, pages of files that they read, the kernel's own.
    pub fn charged(&self) -> Option<u64> {
        fs::read_to_string(self.folder.join(self.files.current)).ok()?.trim().parse().ok()
    }

    /// What it holds and may hold.
    pub fn memory(&self) -> Option<ContainerMemory> {
        let number = |folder: &Path, name: &str| fs::read_to_string(folder.join(name)).ok()?.trim().parse::<u64>().ok();
        let stat = fs::read_to_string(self.folder.join("memory.stat")).unwrap_or_default();
        let anonymous = stat.lines().find_map(|line| line.strip_prefix(self.files.anonymous)?.trim().parse().ok());
        // A group above may have a tighter limit. The word `max` is no number, and version 1 has a huge one.
        let groups = self.folder.ancestors().take_while(|folder| folder.starts_with(self.root));
        let limits = groups.filter_map(|folder| number(folder, self.files.limit));
        Some(ContainerMemory {
            current: number(&self.folder, self.files.current)?,
            anonymous,
            peak: number(&self.folder, self.files.peak),
            limit: limits.filter(|limit| *limit < 1 << 62).min(),
        })
    }

    /// Processes of it that the kernel killed for want of memory, since there is the group.
    pub fn oom_kills(&self) -> Option<u64> {
        kills(&self.folder, self.files)
    }

    /// This group and those above it, each with the processes in it that the kernel has killed for want of memory; version 2
    /// counts those of groups below, too.
    pub fn oom_kills_above(&self) -> Vec<(PathBuf, u64)> {
        let above = self.folder.ancestors().take_while(|folder| folder.starts_with(self.root));
        above.filter_map(|folder| Some((folder.to_path_buf(), kills(folder, self.files)?))).collect()
    }

    /// The share of the last ten seconds in which something in it waited for memory, in percent.
    pub fn pressure(&self) -> Option<f64> {
        share_of_pressure(&fs::read_to_string(self.folder.join("memory.pressure")).ok()?)
    }
}

/// Processes that the kernel killed for want of memory in a group that is given by its folder.
pub fn oom_kills_in(folder: &Path) -> Option<u64> {
    CGROUPS.iter().filter(|files| folder.starts_with(files.root)).find_map(|files| kills(folder, files))
}

fn kills(folder: &Path, files: &CgroupFiles) -> Option<u64> {
    let text = fs::read_to_string(folder.join(files.events)).ok()?;
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

/// The share of the last ten seconds in a file of pressure.
pub fn share_of_pressure(text: &str) -> Option<f64> {
    let some = text.lines().find_map(|line| line.strip_prefix("some "))?;
    some.split_ascii_whitespace().find_map(|word| word.strip_prefix("avg10=")?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_is_that_of_ten_seconds() {
        let text = "some avg10=1.50 avg60=0.10 avg300=0.00 total=1\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n";
        assert_eq!(share_of_pressure(text), Some(1.5));
        assert_eq!(share_of_pressure("nothing"), None);
    }
}
