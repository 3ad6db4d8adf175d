//! Which memory cgroup is a process in, and what does the kernel say of it? Version 2 or 1; and one of one's own, where the
//! system allows that.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::results::format::ContainerMemory;

/// A memory cgroup.
#[derive(Clone, Debug)]
pub struct Cgroup {
    folder: PathBuf,
    /// Of its kind.
    root: &'static Path,
    files: &'static CgroupFiles,
}

/// What the files of a version of cgroups are called.
#[derive(Debug)]
struct CgroupFiles {
    root: &'static str,
    /// In `/proc/self/cgroup`, before the path.
    line: &'static str,
    current: &'static str,
    peak: &'static str,
    limit: &'static str,
    /// Memory and swap together, or swap: what is not to be used in place of memory.
    swap_limit: (&'static str, bool),
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

/// Processes are moved into a group by this file of it.
const PROCESSES: &str = "cgroup.procs";

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

/// A cgroup with a limit, below that of this process. It is taken away again when it is dropped, if nobody is left in it.
#[derive(Debug)]
pub struct Limited {
    cgroup: Cgroup,
}

impl Limited {
    /// Makes one whose processes hold so many bytes at most: beyond that the kernel kills one of them.
    ///
    /// # Errors
    /// Why this system does not allow it.
    pub fn new(bytes: u64) -> Result<Self, String> {
        let parent = Cgroup::of_self().ok_or("there is no memory cgroup here")?;
        let folder = parent.folder.join(format!("xrun-{}", std::process::id()));
        fs::create_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let made = Self { cgroup: Cgroup { folder, ..parent } };
        let Cgroup { folder, files, .. } = &made.cgroup;
        if !folder.join(files.limit).is_file() {
            return Err(format!("{}: memory is not delegated to it", folder.display()));
        }
        made.set(files.limit, bytes)?;
        // Where the kernel does not limit swap, memory of the group may go there.
        let (swap, with_memory) = files.swap_limit;
        let _ = made.set(swap, if with_memory { bytes } else { 0 });
        Ok(made)
    }

    fn set(&self, name: &str, bytes: u64) -> Result<(), String> {
        use io::Write;
        let path = self.cgroup.folder.join(name);
        let written = File::options().write(true).open(&path).and_then(|mut file| write!(file, "{bytes}"));
        written.map_err(|error| format!("{}: {error}", path.display()))
    }

    /// The group itself.
    pub fn cgroup(&self) -> &Cgroup {
        &self.cgroup
    }

    /// A process that writes `0` here moves itself, and all that it starts, into the group.
    ///
    /// # Errors
    /// The system does not allow it.
    pub fn door(&self) -> io::Result<File> {
        File::options().write(true).open(self.cgroup.folder.join(PROCESSES))
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        // One in which processes were left behind stays: they are still limited by it.
        let _ = fs::remove_dir(&self.cgroup.folder);
    }
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
