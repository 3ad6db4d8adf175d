//! Memory cgroup of a process, version 2 or 1: its use, limit, OOM kills and memory pressure.

use std::fs;
use std::path::{Path, PathBuf};

use xrun_results::format::ContainerMemory;

/// Memory cgroup.
#[derive(Clone, Debug)]
pub struct Cgroup {
    pub(super) directory: PathBuf,
    /// Mount point of its hierarchy.
    root: &'static Path,
    pub(super) files: &'static CgroupFiles,
}

/// Names of the files of a cgroup version.
#[derive(Debug)]
pub(super) struct CgroupFiles {
    root: &'static str,
    /// Prefix of the path in `/proc/self/cgroup`.
    line: &'static str,
    current: &'static str,
    peak: &'static str,
    pub(super) limit: &'static str,
    /// File of the swap limit, and whether that limit includes memory.
    pub(super) swap_limit: (&'static str, bool),
    anonymous: &'static str,
    shared: &'static str,
    /// Page cache, with shared memory.
    cache: &'static str,
    /// File with the count of OOM kills.
    events: &'static str,
}

/// Both versions; where both are mounted, version 1 controls memory.
const CGROUPS: [CgroupFiles; 2] = [
    CgroupFiles {
        root: "/sys/fs/cgroup/memory",
        line: ":memory:",
        current: "memory.usage_in_bytes",
        peak: "memory.max_usage_in_bytes",
        limit: "memory.limit_in_bytes",
        swap_limit: ("memory.memsw.limit_in_bytes", true),
        anonymous: "total_rss ",
        shared: "total_shmem ",
        cache: "total_cache ",
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
        shared: "shmem ",
        cache: "file ",
        events: "memory.events",
    },
];

impl Cgroup {
    /// Cgroup of this process; `None` outside of one.
    pub fn of_self() -> Option<Self> {
        let text = fs::read_to_string("/proc/self/cgroup").ok()?;
        CGROUPS.iter().find_map(|files| {
            let path = text.lines().find_map(|line| line.split_once(files.line).map(|(_, path)| path))?;
            let root = Path::new(files.root);
            let directory = root.join(path.trim_start_matches('/'));
            // In a container the path may be that of the host.
            let directory = if directory.join(files.current).is_file() { directory } else { root.to_path_buf() };
            directory.join(files.current).is_file().then_some(Self { directory, root, files })
        })
    }

    /// Cgroup of this name below it, which need not exist.
    pub(super) fn below(&self, name: &str) -> Self {
        Self { directory: self.directory.join(name), ..self.clone() }
    }

    /// Bytes that the kernel charges to it: memory of its processes, their file cache, and kernel memory.
    pub fn charged(&self) -> Option<u64> {
        fs::read_to_string(self.directory.join(self.files.current)).ok()?.trim().parse().ok()
    }

    /// Bytes of its shared memory and of files in memory (`/dev/shm`, `memfd_create`), mapped or not.
    pub fn shared(&self) -> Option<u64> {
        self.counter(self.files.shared)
    }

    /// Returns whether a process is in it; a command without the right to enter it is outside.
    pub fn has_processes(&self) -> bool {
        fs::read(self.directory.join("cgroup.procs")).is_ok_and(|processes| !processes.is_empty())
    }

    /// Number in `memory.stat`.
    fn counter(&self, name: &str) -> Option<u64> {
        let stat = fs::read_to_string(self.directory.join("memory.stat")).ok()?;
        stat.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
    }

    /// Use and limit; `None` where they cannot be read.
    pub fn memory(&self) -> Option<ContainerMemory> {
        let number =
            |directory: &Path, name: &str| fs::read_to_string(directory.join(name)).ok()?.trim().parse::<u64>().ok();
        let current = number(&self.directory, self.files.current)?;
        let anonymous = self.counter(self.files.anonymous);
        let pages = anonymous.zip(self.counter(self.files.cache)).map(|(anonymous, cache)| anonymous + cache);
        // An ancestor may have a lower limit. No limit is `max` in version 2, and a huge number in version 1.
        let groups = self.directory.ancestors().take_while(|directory| directory.starts_with(self.root));
        let limits = groups.filter_map(|directory| number(directory, self.files.limit));
        Some(ContainerMemory {
            current,
            anonymous,
            kernel: pages.map(|pages| current.saturating_sub(pages)),
            peak: number(&self.directory, self.files.peak),
            limit: limits.filter(|limit| *limit < 1 << 62).min(),
        })
    }

    /// OOM kills in it since it was created.
    pub fn oom_kills(&self) -> Option<u64> {
        kills(&self.directory, self.files)
    }

    /// OOM kills in this group and in each of its ancestors; version 2 includes those of groups below.
    pub fn oom_kills_above(&self) -> Vec<(PathBuf, u64)> {
        let above = self.directory.ancestors().take_while(|directory| directory.starts_with(self.root));
        above.filter_map(|directory| Some((directory.to_path_buf(), kills(directory, self.files)?))).collect()
    }

    /// Percentage of the last ten seconds in which some of its tasks stalled on memory (PSI).
    pub fn pressure(&self) -> Option<f64> {
        parse_pressure(&fs::read_to_string(self.directory.join("memory.pressure")).ok()?)
    }
}

/// OOM kills in the cgroup of a directory.
pub fn oom_kills_in(directory: &Path) -> Option<u64> {
    CGROUPS.iter().filter(|files| directory.starts_with(files.root)).find_map(|files| kills(directory, files))
}

fn kills(directory: &Path, files: &CgroupFiles) -> Option<u64> {
    let text = fs::read_to_string(directory.join(files.events)).ok()?;
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

/// Parses the percentage of the last ten seconds from a PSI file.
pub fn parse_pressure(text: &str) -> Option<f64> {
    let some = text.lines().find_map(|line| line.strip_prefix("some "))?;
    some.split_ascii_whitespace().find_map(|word| word.strip_prefix("avg10=")?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_is_the_average_over_ten_seconds() {
        let text = "some avg10=1.50 avg60=0.10 avg300=0.00 total=1\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n";
        assert_eq!(parse_pressure(text), Some(1.5));
        assert_eq!(parse_pressure("nothing"), None);
    }
}
