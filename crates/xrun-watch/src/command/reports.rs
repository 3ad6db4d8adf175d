//! Reports of the command itself: steps, bytes of its owners and times of its phases, as JSON lines in a pipe.
//!
//! The Python package writes them (`python/xrun/_watched.py`). A writer opens the pipe by the path in [`VARIABLE`] and never
//! waits: a report that finds no room is lost or sent again, and the command runs on when xrun is gone.

use std::collections::BTreeMap;
use std::io::{PipeReader, PipeWriter, Read};
use std::os::fd::{AsRawFd, RawFd};

use serde::Deserialize;

use super::output::Lines;
use super::steps::Steps;
use xrun_core::bounded::buffer::Buffer;
use xrun_core::bounded::ledger::{Cap, Ledger, Policy, Registration};
use xrun_core::printable;
use xrun_results::format::{MemoryLine, PhaseSummary};
use xrun_verdict::names::REPORTED_GPU_SUFFIX;

/// Environment variable with the path of the pipe.
pub const VARIABLE: &str = "XRUN_REPORTS";
/// Cap on the owners of all processes together.
const OWNERS_MAX: usize = 16;
/// Cap on the phases.
const PHASES_MAX: usize = 16;
/// Cap on the processes that report owners.
const PROCESSES_MAX: usize = 64;
/// Fraction of the growth from which on it is that of a phase.
const PHASE_SHARE: f64 = 0.7;
/// Fraction of the largest growth from which on a phase may be the one within that phase.
const NESTED: f64 = 0.8;
const NAME_CHARACTERS_MAX: usize = 40;
/// Size of the pipe, where the system allows it: the reports of one tick of a fast trainer.
const PIPE_BYTES: i32 = 1 << 20;
/// Bytes that are read at once.
const BLOCK_BYTES: usize = 16 * 1024;
/// Cap on the blocks that are read in one tick.
const BLOCKS_MAX: usize = 128;

/// Buffer of the owners and phases that were reported.
pub fn buffer() -> Buffer {
    let items = (OWNERS_MAX * PROCESSES_MAX + PHASES_MAX) as u64;
    let cap = Cap { items, bytes: items * 256 + BLOCK_BYTES as u64 };
    Buffer::new("reports", Policy::Refuse, cap).because("newest bytes of each owner and times of each phase")
}

/// Report of a process that is no step.
#[derive(Deserialize)]
struct Report {
    #[serde(rename = "xrun_process")]
    process: u32,
    /// Bytes of all its owners, which replace those before.
    owners: Option<BTreeMap<String, Bytes>>,
    /// Times of its phases since the report before.
    #[serde(default)]
    phases: BTreeMap<String, Times>,
}

#[derive(Clone, Copy, Default, Deserialize)]
struct Bytes {
    #[serde(default)]
    host: u64,
    #[serde(default)]
    device: u64,
}

#[derive(Clone, Copy, Deserialize)]
struct Times {
    count: u64,
    total_us: u64,
    longest_us: u64,
    /// Bytes by which the process was larger at the ends.
    #[serde(default)]
    grown: i64,
}

/// Reader of the reports of a command.
pub struct Reports {
    reader: PipeReader,
    /// Keeps the pipe open while no process of the command has it open.
    writer: PipeWriter,
    /// True if it also takes steps: the user named no other source of them.
    takes_steps: bool,
    lines: Lines,
    owners: BTreeMap<u32, BTreeMap<String, u64>>,
    phases: BTreeMap<String, PhaseSummary>,
    /// Times of the phases since the newest sample.
    phases_us: BTreeMap<String, u64>,
    held: Registration,
}

impl Reports {
    /// Opens a pipe. `takes_steps` says that the user named no other source of steps.
    ///
    /// # Errors
    /// The process has too many open files.
    pub fn open(takes_steps: bool, ledger: &Ledger) -> std::io::Result<Self> {
        let (reader, writer) = std::io::pipe()?;
        // SAFETY: both calls change flags of a file that is open.
        unsafe {
            if libc::fcntl(reader.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) < 0 {
                return Err(std::io::Error::last_os_error());
            }
            // Refused above the user's limit; a smaller pipe loses reports of the fastest trainers.
            libc::fcntl(writer.as_raw_fd(), libc::F_SETPIPE_SZ, PIPE_BYTES);
        }
        Ok(Self {
            reader,
            writer,
            takes_steps,
            lines: Lines::default(),
            owners: BTreeMap::new(),
            phases: BTreeMap::new(),
            phases_us: BTreeMap::new(),
            held: buffer().register(ledger),
        })
    }

    /// Path by which processes of the command open the pipe.
    pub fn path(&self) -> String {
        let file: RawFd = self.writer.as_raw_fd();
        format!("/proc/{}/fd/{file}", std::process::id())
    }

    /// Reads what was reported since.
    pub fn read(&mut self, steps: &Steps) {
        let mut block = [0; BLOCK_BYTES];
        for _ in 0..BLOCKS_MAX {
            let Ok(count @ 1..) = self.reader.read(&mut block) else { break };
            let mut lines = std::mem::take(&mut self.lines);
            lines.add(&block[..count], |line| self.read_line(line, steps));
            self.lines = lines;
        }
        let items = self.owners.values().map(BTreeMap::len).sum::<usize>() + self.phases.len();
        self.held.set(items as u64, items as u64 * 256);
    }

    fn read_line(&mut self, line: &[u8], steps: &Steps) {
        let Ok(Report { process, owners, phases }) = serde_json::from_slice(line) else {
            if self.takes_steps {
                steps.read_report(line);
            }
            return;
        };
        if let Some(owners) = owners {
            self.set_owners(process, owners);
        }
        for (name, times) in phases {
            self.add_phase(name_of(&name), times);
        }
    }

    fn set_owners(&mut self, process: u32, reported: BTreeMap<String, Bytes>) {
        if self.owners.len() >= PROCESSES_MAX && !self.owners.contains_key(&process) {
            return;
        }
        let mut owners = BTreeMap::new();
        for (name, bytes) in reported.into_iter().take(OWNERS_MAX) {
            let name = name_of(&name);
            // An owner that once had device memory keeps its series.
            let on_gpu = format!("{name}{REPORTED_GPU_SUFFIX}");
            let had = self.owners.get(&process).is_some_and(|before| before.contains_key(&on_gpu));
            if bytes.device > 0 || had {
                owners.insert(on_gpu, bytes.device);
            }
            owners.insert(name, bytes.host);
        }
        self.owners.insert(process, owners);
    }

    fn add_phase(&mut self, name: String, times: Times) {
        if self.phases.len() >= PHASES_MAX && !self.phases.contains_key(&name) {
            return;
        }
        let new = PhaseSummary { name: name.clone(), count: 0, seconds: 0.0, longest: 0.0, grown: None };
        let phase = self.phases.entry(name.clone()).or_insert(new);
        phase.count = phase.count.saturating_add(times.count);
        phase.seconds += times.total_us as f64 / 1e6;
        phase.longest = phase.longest.max(times.longest_us as f64 / 1e6);
        phase.grown = Some(phase.grown.unwrap_or_default().saturating_add(times.grown));
        let sum = self.phases_us.entry(name).or_default();
        *sum = sum.saturating_add(times.total_us);
    }

    /// Adds owners and phases to a sample.
    pub fn add_to(&mut self, line: &mut MemoryLine) {
        // A process that was killed reports no end.
        self.owners.retain(|process, _| std::fs::exists(format!("/proc/{process}")).unwrap_or(true));
        let mut sums: BTreeMap<&String, u64> = BTreeMap::new();
        for (name, bytes) in self.owners.values().flatten() {
            if sums.len() < OWNERS_MAX || sums.contains_key(name) {
                let sum = sums.entry(name).or_default();
                *sum = sum.saturating_add(*bytes);
            }
        }
        line.owners.extend(sums.into_iter().map(|(name, bytes)| (name.clone(), bytes)));
        line.phases_us = std::mem::take(&mut self.phases_us);
    }

    /// Phase in which memory grows, with the bytes of each time; `None` where none accounts for most of the growth of the
    /// command, `whole` bytes by the verdict. Of phases within each other it is the shortest.
    pub fn growing_phase(&self, whole: f64) -> Option<String> {
        let most = self.phases.values().filter_map(|phase| phase.grown).max()? as f64;
        let least = (PHASE_SHARE * whole).max(NESTED * most);
        let growing = self.phases.values().filter(|phase| phase.grown.is_some_and(|grown| grown as f64 >= least));
        let phase = growing.min_by(|a, b| a.seconds.total_cmp(&b.seconds))?;
        let each = u64::try_from(phase.grown?).ok()? / phase.count.max(1);
        Some(format!("it grows in *{}*, {} each time", phase.name, xrun_core::units::Bytes(each)))
    }

    /// Summary of the phases, by time.
    pub fn phases(&self) -> Vec<PhaseSummary> {
        let mut phases: Vec<PhaseSummary> = self.phases.values().cloned().collect();
        phases.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        phases
    }
}

/// Name in one line. A slash separates the group of processes in the names of other owners.
fn name_of(reported: &str) -> String {
    printable::line(&reported.replace('/', "_"), NAME_CHARACTERS_MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::io::Write;

    use super::*;

    fn sampled(reports: &mut Reports) -> MemoryLine {
        let mut line = MemoryLine { owners: [("main/private".to_owned(), 9)].into(), ..MemoryLine::default() };
        reports.add_to(&mut line);
        line
    }

    #[test]
    fn reports_are_read_by_the_path_of_the_pipe() {
        let mut reports = Reports::open(true, &Ledger::default()).unwrap();
        let (steps, numbers) = Steps::new(None, BTreeSet::new());
        let (own, parent) = (std::process::id(), std::os::unix::process::parent_id());
        let mut pipe = std::fs::OpenOptions::new().write(true).open(reports.path()).unwrap();
        let times = r#"{"count":2,"total_us":30,"longest_us":20}"#;
        let lines = [
            r#"{"step":3,"loss":0.5}"#.to_owned(),
            format!(
                r#"{{"xrun_process":{own},"owners":{{"a/b":{{"host":5,"device":2}}}},"phases":{{"validation":{times}}}}}"#
            ),
            "nonsense".to_owned(),
            format!(r#"{{"xrun_process":{parent},"owners":{{"a/b":{{"host":7}}}}}}"#),
            format!(r#"{{"xrun_process":{},"owners":{{"gone":{{"host":1}}}}}}"#, u32::MAX),
            r#"{"xrun_process":-1,"owners":{}}"#.to_owned(),
        ];
        writeln!(pipe, "{}", lines.join("\n")).unwrap();
        reports.read(&steps);
        assert_eq!((steps.newest(), numbers.try_iter().count()), (3, 1));
        let line = sampled(&mut reports);
        let owners: Vec<(&str, u64)> = line.owners.iter().map(|(name, bytes)| (name.as_str(), *bytes)).collect();
        assert_eq!(owners, [("a_b", 12), ("a_b on GPU", 2), ("main/private", 9)]);
        assert_eq!(line.phases_us["validation"], 30);
        assert!(sampled(&mut reports).phases_us.is_empty(), "times since the sample before");
        let phases = reports.phases();
        assert_eq!((phases[0].count, phases[0].longest), (2, 20e-6));
        assert_eq!(reports.growing_phase(1.0), None);
        let phase = |name: &str, total: u64, grown: i64| {
            format!(r#""{name}":{{"count":4,"total_us":{total},"longest_us":20,"grown":{grown}}}"#)
        };
        let phases =
            [phase("epoch", 90, 99 << 20), phase("save", 40, 100 << 20), phase("train", 50, 1 << 20)].join(",");
        writeln!(pipe, r#"{{"xrun_process":{own},"phases":{{{phases}}}}}"#).unwrap();
        reports.read(&steps);
        let growing = |mib: f64| reports.growing_phase(mib * f64::from(1 << 20));
        assert_eq!(growing(110.0).as_deref(), Some("it grows in *save*, 25.0 MiB each time"));
        assert_eq!(growing(200.0), None);
        // Device memory that was freed is 0, not missing.
        writeln!(pipe, r#"{{"xrun_process":{own},"owners":{{"a/b":{{"host":5}}}}}}"#).unwrap();
        reports.read(&steps);
        assert_eq!(sampled(&mut reports).owners["a_b on GPU"], 0);
    }

    #[test]
    fn owners_phases_and_processes_have_caps() {
        let mut reports = Reports::open(false, &Ledger::default()).unwrap();
        for process in 0..200 {
            reports.set_owners(process, [("x".to_owned(), Bytes::default())].into());
        }
        assert_eq!(reports.owners.len(), PROCESSES_MAX);
        reports.owners.clear();
        let many = (0..200).map(|number| (format!("{number:0100}"), Bytes { host: 1, device: 1 })).collect();
        reports.set_owners(std::process::id(), many);
        assert!(sampled(&mut reports).owners.len() <= OWNERS_MAX + 1);
        for number in 0..200 {
            reports.add_phase(number.to_string(), Times { count: 1, total_us: u64::MAX, longest_us: 1, grown: 0 });
        }
        assert_eq!(reports.phases().len(), PHASES_MAX);
    }
}
