//! Memory of a process and its descendants, from `/proc`.
//!
//! A process may end between two reads, or belong to another user: what cannot be read is omitted.

use std::collections::HashMap;
use std::fs;
use std::time::Duration;

use xrun_core::device::machine::kibibytes;

/// Cap on the processes of a tree; further ones are ignored.
pub const PROCESSES_MAX: usize = 4096;
/// Cap on the bytes of a command line.
const COMMAND_BYTES_MAX: usize = 4096;
/// Cap on the bytes of an environment.
const ENVIRONMENT_BYTES_MAX: u64 = 1 << 20;

/// Process of a process tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Process id.
    pub id: u32,
    /// Index of its parent in the list; `None` where the parent is not in it.
    pub parent: Option<usize>,
}

/// A process and its descendants, parents first.
pub fn with_descendants(process: u32) -> Vec<Member> {
    let mut members = vec![Member { id: process, parent: None }];
    append_descendants(&mut members, 0);
    members
}

/// Descendants of a process, parents first.
pub fn descendants(process: u32) -> Vec<Member> {
    let mut children = Children::default();
    let mut members: Vec<Member> = children.of(process).into_iter().map(|id| Member { id, parent: None }).collect();
    append_descendants(&mut members, 0);
    members
}

/// Appends the descendants of the members from index `at` on.
fn append_descendants(members: &mut Vec<Member>, mut at: usize) {
    let mut children = Children::default();
    while at < members.len() && members.len() < PROCESSES_MAX {
        let remaining = PROCESSES_MAX - members.len();
        let found = children.of(members[at].id).into_iter().take(remaining);
        members.extend(found.map(|id| Member { id, parent: Some(at) }));
        at += 1;
    }
}

/// Children of processes: read from the kernel's lists, or where it has none, by a scan of all processes.
#[derive(Default)]
struct Children {
    by_parent: Option<HashMap<u32, Vec<u32>>>,
}

impl Children {
    fn of(&mut self, process: u32) -> Vec<u32> {
        if let Some(known) = &self.by_parent {
            return known.get(&process).cloned().unwrap_or_default();
        }
        // The kernel lists a child under the thread that started it.
        let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
        let mut all = Vec::new();
        for thread in threads {
            match fs::read_to_string(thread.path().join("children")) {
                Ok(text) => all.extend(text.split_ascii_whitespace().filter_map(|id| id.parse::<u32>().ok())),
                // The thread has ended, or this kernel has no such file.
                Err(_) if thread.path().exists() && !thread.path().join("children").exists() => {
                    return self.by_parent.insert(all_by_parent()).get(&process).cloned().unwrap_or_default();
                }
                Err(_) => {}
            }
        }
        all
    }
}

fn all_by_parent() -> HashMap<u32, Vec<u32>> {
    let mut by_parent: HashMap<u32, Vec<u32>> = HashMap::new();
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    for id in all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()).take(16 * PROCESSES_MAX) {
        if let Some(status) = Status::read(id) {
            by_parent.entry(status.parent).or_default().push(id);
        }
    }
    by_parent
}

/// Contents of `/proc/<pid>/status`; takes some microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Process id of the parent.
    pub parent: u32,
    /// Number of threads.
    pub threads: u64,
    /// Resident anonymous bytes; shared pages count once for each process.
    pub anonymous: u64,
    /// Resident bytes of mapped files.
    pub file: u64,
    /// Resident bytes of shared memory.
    pub shared: u64,
    /// Swapped bytes.
    pub swap: u64,
}

impl Status {
    /// Reads the status of a process; `None` where it has ended, also as a zombie.
    pub fn read(process: u32) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        Self::parsed(&text)
    }

    fn parsed(text: &str) -> Option<Self> {
        let number = |key: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(key))?;
            line.split_ascii_whitespace().next()?.parse::<u64>().ok()
        };
        let size = |key: &str| kibibytes(text, key);
        Some(Self {
            parent: u32::try_from(number("PPid:")?).ok()?,
            threads: number("Threads:")?,
            // A zombie has no memory.
            anonymous: size("RssAnon:")?,
            file: size("RssFile:")?,
            shared: size("RssShmem:").unwrap_or_default(),
            swap: size("VmSwap:").unwrap_or_default(),
        })
    }

    /// RSS in bytes.
    pub fn rss(&self) -> u64 {
        self.anonymous + self.file + self.shared
    }

    /// Upper bound of the footprint in bytes: everything but files; shared pages count in full.
    pub fn footprint_max(&self) -> u64 {
        self.anonymous + self.shared + self.swap
    }
}

/// Proportional set sizes of `/proc/<pid>/smaps_rollup`, in bytes. The kernel walks all pages: some milliseconds per GiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pages {
    /// Anonymous pages; a page of several processes counts in proportion.
    pub anonymous: u64,
    /// Part of the anonymous pages that no other process has.
    pub private: u64,
    /// Pages of mapped files.
    pub file: u64,
    /// Pages of shared memory.
    pub shared: u64,
    /// Swapped pages.
    pub swap: u64,
}

impl Pages {
    /// Reads the pages of a process; `None` where it has ended, belongs to another user, or the kernel lacks the file.
    pub fn read(process: u32) -> Option<Self> {
        Self::parsed(&fs::read_to_string(format!("/proc/{process}/smaps_rollup")).ok()?)
    }

    fn parsed(text: &str) -> Option<Self> {
        let size = |key: &str| kibibytes(text, key);
        let anonymous = size("Pss_Anon:")?;
        Some(Self {
            anonymous,
            // Dirty pages may include shared memory, which is why they are capped.
            private: size("Private_Dirty:").unwrap_or_default().min(anonymous),
            file: size("Pss_File:")?,
            shared: size("Pss_Shmem:")?,
            swap: size("SwapPss:").unwrap_or_default(),
        })
    }
}

/// Number of open files of a process.
pub fn open_files(process: u32) -> Option<u64> {
    Some(fs::read_dir(format!("/proc/{process}/fd")).ok()?.count() as u64)
}

/// Command line of a process; its name in brackets where it has none.
pub fn command(process: u32) -> Option<Vec<String>> {
    let bytes = fs::read(format!("/proc/{process}/cmdline")).ok()?;
    let bytes = &bytes[..bytes.len().min(COMMAND_BYTES_MAX)];
    let text = String::from_utf8_lossy(bytes);
    let text = text.trim_end_matches(['\0', ' ']);
    if !text.is_empty() {
        return Some(text.split('\0').map(str::to_owned).collect());
    }
    let name = fs::read_to_string(format!("/proc/{process}/comm")).ok()?;
    Some(vec![format!("[{}]", name.trim())])
}

/// Value of the first of these variables in the environment that a process was started with; `None` if it has none of them.
pub fn variable(process: u32, names: &[&str]) -> Option<String> {
    let mut bytes = Vec::new();
    let file = fs::File::open(format!("/proc/{process}/environ")).ok()?;
    std::io::Read::read_to_end(&mut std::io::Read::take(file, ENVIRONMENT_BYTES_MAX), &mut bytes).ok()?;
    let variables = || bytes.split(|byte| *byte == 0).filter_map(|one| std::str::from_utf8(one).ok()?.split_once('='));
    names.iter().find_map(|name| variables().find(|(found, _)| found == name)).map(|(_, value)| value.to_owned())
}

/// Time since a process started.
pub fn age(process: u32) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let uptime = fs::read_to_string("/proc/uptime").ok()?;
    let uptime: f64 = uptime.split_ascii_whitespace().next()?.parse().ok()?;
    Some(Duration::from_secs_f64((uptime - start_ticks(&stat)? / ticks_per_second()).max(0.0)))
}

/// Returns whether a process is exiting and freeing its memory: `PF_EXITING` (`include/linux/sched.h`) in the ninth field
/// of `/proc/<pid>/stat`.
pub fn is_exiting(process: u32) -> bool {
    const EXITING: u64 = 0x4;
    let Ok(stat) = fs::read_to_string(format!("/proc/{process}/stat")) else { return true };
    flags(&stat).is_none_or(|flags| flags & EXITING != 0)
}

fn flags(stat: &str) -> Option<u64> {
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(6)?.parse().ok()
}

/// Parses the start time of a process, in ticks since boot. The name, in parentheses, may contain anything.
fn start_ticks(stat: &str) -> Option<f64> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(19)?.parse().ok()
}

fn ticks_per_second() -> f64 {
    // SAFETY: `sysconf` takes and returns numbers.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    if ticks > 0 { ticks as f64 } else { 100.0 }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn files_of_proc_are_parsed() {
        let status =
            "Name:\ta\nPPid:\t7\nThreads:\t3\nRssAnon:\t 8 kB\nRssFile:\t 4 kB\nRssShmem:\t 2 kB\nVmSwap:\t 1 kB\n";
        let read = Status::parsed(status).unwrap();
        assert_eq!((read.parent, read.threads, read.rss(), read.footprint_max()), (7, 3, 14 << 10, 11 << 10));
        assert_eq!(Status::parsed("PPid:\t7\nThreads:\t1\n"), None, "a zombie");
        let rollup = "Pss_Anon: 10 kB\nPss_File: 3 kB\nPss_Shmem: 5 kB\nPrivate_Dirty: 12 kB\nSwapPss: 1 kB\n";
        let pages = Pages::parsed(rollup).unwrap();
        assert_eq!(
            [pages.anonymous, pages.private, pages.file, pages.shared, pages.swap],
            [10, 10, 3, 5, 1].map(|k| k << 10)
        );
        assert_eq!(Pages::parsed("Rss: 1 kB\n"), None);
        let stat = "5 (a) b) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 1234 20";
        assert_eq!(start_ticks(stat), Some(1234.0));
        assert_eq!(flags(stat), Some(6));
    }

    #[test]
    fn a_child_is_found_with_its_memory() {
        let mut child = std::process::Command::new("sleep").arg("30").spawn().unwrap();
        let own = std::process::id();
        let found = descendants(own).iter().any(|member| member.id == child.id());
        let (pages, age, command) = (Pages::read(child.id()), age(child.id()), command(child.id()));
        child.kill().unwrap();
        assert!(found);
        assert!(pages.is_some() && age.unwrap() < Duration::from_secs(30) && open_files(own).unwrap() > 2);
        assert!(command.unwrap()[0].contains("sleep") || cfg!(not(target_os = "linux")));
        assert!(!is_exiting(own));
        child.wait().unwrap();
        assert_eq!(Status::read(child.id()), None);
        assert!(is_exiting(child.id()));
        assert_eq!(with_descendants(own)[0], Member { id: own, parent: None });
    }
}
