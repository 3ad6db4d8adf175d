//! What do other processes hold: a process, those that it started, and all that these started?
//!
//! From `/proc`. A process may end between two reads, and may be somebody else's: what cannot be read is left out.

use std::collections::HashMap;
use std::fs;
use std::time::Duration;

use xrun_core::device::machine::kibibytes;

/// More processes than this are not looked at.
pub const PROCESSES_MAX: usize = 4096;
/// A longer command line is cut.
const COMMAND_BYTES_MAX: usize = 4096;

/// A process among those that a process started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    pub id: u32,
    /// Where its parent stands in the list; `None` of one whose parent is not in it.
    pub parent: Option<usize>,
}

/// The process and all below it, parents first.
pub fn with_descendants(process: u32) -> Vec<Member> {
    let mut members = vec![Member { id: process, parent: None }];
    below(&mut members, 0);
    members
}

/// All below a process, parents first.
pub fn descendants(process: u32) -> Vec<Member> {
    let mut children = Children::default();
    let mut members: Vec<Member> = children.of(process).into_iter().map(|id| Member { id, parent: None }).collect();
    below(&mut members, 0);
    members
}

fn below(members: &mut Vec<Member>, mut at: usize) {
    let mut children = Children::default();
    while at < members.len() && members.len() < PROCESSES_MAX {
        let room = PROCESSES_MAX - members.len();
        let found = children.of(members[at].id).into_iter().take(room);
        members.extend(found.map(|id| Member { id, parent: Some(at) }));
        at += 1;
    }
}

/// Finds children: asks the kernel for those of a process, or where it cannot be asked looks at all processes once.
#[derive(Default)]
struct Children {
    by_parent: Option<HashMap<u32, Vec<u32>>>,
}

impl Children {
    fn of(&mut self, process: u32) -> Vec<u32> {
        if let Some(known) = &self.by_parent {
            return known.get(&process).cloned().unwrap_or_default();
        }
        // A child belongs to the thread that started it.
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

/// What is read at once: some microseconds a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    pub parent: u32,
    pub threads: u64,
    /// Resident, in bytes; shared pages count once for each process.
    pub anonymous: u64,
    pub file: u64,
    pub shared: u64,
    pub swap: u64,
}

impl Status {
    /// `None` of one that is gone, or that has ended and waits for its parent.
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
            // One without memory has ended.
            anonymous: size("RssAnon:")?,
            file: size("RssFile:")?,
            shared: size("RssShmem:").unwrap_or_default(),
            swap: size("VmSwap:").unwrap_or_default(),
        })
    }

    /// All that is resident.
    pub fn resident(&self) -> u64 {
        self.anonymous + self.file + self.shared
    }

    /// What is no file: at most what the process alone could give back.
    pub fn held(&self) -> u64 {
        self.anonymous + self.shared + self.swap
    }
}

/// Its pages one by one, as the kernel adds them up: a walk over all of them, some milliseconds a GiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pages {
    /// Without files and shared memory, a page that several have counted in parts.
    pub anonymous: u64,
    /// Of it, pages that no other process has.
    pub own: u64,
    pub file: u64,
    pub shared: u64,
    pub swap: u64,
}

impl Pages {
    /// `None` of a process that is gone or somebody else's, and on a kernel that does not add up.
    pub fn read(process: u32) -> Option<Self> {
        Self::parsed(&fs::read_to_string(format!("/proc/{process}/smaps_rollup")).ok()?)
    }

    fn parsed(text: &str) -> Option<Self> {
        let size = |key: &str| kibibytes(text, key);
        let anonymous = size("Pss_Anon:")?;
        Some(Self {
            anonymous,
            // Pages that were written to. Written shared memory may be among them, so no more than there is of the other.
            own: size("Private_Dirty:").unwrap_or_default().min(anonymous),
            file: size("Pss_File:")?,
            shared: size("Pss_Shmem:")?,
            swap: size("SwapPss:").unwrap_or_default(),
        })
    }
}

/// Files that it has open.
pub fn open_files(process: u32) -> Option<u64> {
    Some(fs::read_dir(format!("/proc/{process}/fd")).ok()?.count() as u64)
}

/// The words of its command line; its name in brackets where it has none.
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

/// How long it has been there.
pub fn age(process: u32) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let uptime = fs::read_to_string("/proc/uptime").ok()?;
    let uptime: f64 = uptime.split_ascii_whitespace().next()?.parse().ok()?;
    Some(Duration::from_secs_f64((uptime - started(&stat)? / ticks_per_second()).max(0.0)))
}

/// Whether it gives back its memory at this moment, since it ends. `PF_EXITING` of the kernel's `include/linux/sched.h`, the
/// ninth field of `/proc/N/stat`.
pub fn is_exiting(process: u32) -> bool {
    const EXITING: u64 = 0x4;
    let Ok(stat) = fs::read_to_string(format!("/proc/{process}/stat")) else { return true };
    flags(&stat).is_none_or(|flags| flags & EXITING != 0)
}

fn flags(stat: &str) -> Option<u64> {
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(6)?.parse().ok()
}

/// When it started, in ticks since the machine did. The name, in parentheses, may hold anything.
fn started(stat: &str) -> Option<f64> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(19)?.parse().ok()
}

fn ticks_per_second() -> f64 {
    // SAFETY: `sysconf` takes a number and gives one.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    if ticks > 0 { ticks as f64 } else { 100.0 }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_says_is_read() {
        let status =
            "Name:\ta\nPPid:\t7\nThreads:\t3\nRssAnon:\t 8 kB\nRssFile:\t 4 kB\nRssShmem:\t 2 kB\nVmSwap:\t 1 kB\n";
        let read = Status::parsed(status).unwrap();
        assert_eq!((read.parent, read.threads, read.resident(), read.held()), (7, 3, 14 << 10, 11 << 10));
        assert_eq!(Status::parsed("PPid:\t7\nThreads:\t1\n"), None, "it has ended");
        let rollup = "Pss_Anon: 10 kB\nPss_File: 3 kB\nPss_Shmem: 5 kB\nPrivate_Dirty: 12 kB\nSwapPss: 1 kB\n";
        let pages = Pages::parsed(rollup).unwrap();
        assert_eq!(
            [pages.anonymous, pages.own, pages.file, pages.shared, pages.swap],
            [10, 10, 3, 5, 1].map(|k| k << 10)
        );
        assert_eq!(Pages::parsed("Rss: 1 kB\n"), None);
        let stat = "5 (a) b) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 1234 20";
        assert_eq!(started(stat), Some(1234.0));
        assert_eq!(flags(stat), Some(6));
    }

    #[test]
    fn a_child_is_found_and_so_is_what_it_holds() {
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
