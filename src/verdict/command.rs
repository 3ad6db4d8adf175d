//! Does the memory of a command grow that `xrun watch` ran: by step where its steps are known, else by the clock?
//!
//! Both are judged as the samples come. A step is the better measure: a loader that is slow for an hour does not change it.

use super::judge::{BYTES, COUNT, STEPS_NEEDED, Scale, Series};
use super::watch::{Context, Watch};
use crate::results::axis::Axis;
use crate::results::format::MemoryLine;
use crate::results::verdict::{Judgement, OWNER, SeriesVerdict, Verdict};
use crate::results::watched::{Processes, Watched};
use crate::units::seconds;

/// The series of what all processes hold together that is no file.
pub const HELD: &str = "held";
/// The owner of files in `/dev/shm` that nobody has mapped.
pub const UNMAPPED: &str = "/dev/shm";
/// Behind the name of a group: memory of its own, and memory that is shared.
pub const PRIVATE: &str = "/private";
pub const SHARED: &str = "/shared";

/// A command's samples, judged by step and by the clock.
#[derive(Clone, Debug)]
pub struct Command {
    by_step: Watch,
    by_clock: Watch,
    step: u64,
}

impl Command {
    /// Nothing was sampled yet.
    pub fn new(watched: &Watched) -> Self {
        let context = Context { host_limit: watched.host_memory, ..Context::default() };
        // As many samples as there must be steps.
        let span_min = STEPS_NEEDED * watched.every_ms.max(1);
        Self {
            by_step: Watch::new(context.clone()),
            by_clock: Watch::new(Context { axis: Axis::Clock, span_min, ..context }),
            step: 0,
        }
    }

    /// Adds a sample.
    pub fn add(&mut self, line: &MemoryLine) {
        self.by_clock.add(line);
        // The first sample behind a step is nearest to its end. Those before the first step show the start of the program,
        // and those long after the last one its end.
        if line.step > self.step {
            self.step = line.step;
            self.by_step.add(line);
        }
    }

    /// By step where that says something.
    pub fn verdict(&self) -> Verdict {
        let (by_step, by_clock) = (self.by_step.verdict(), self.by_clock.verdict());
        let unknown = |verdict: &Verdict| verdict.verdict == Judgement::Inconclusive;
        if self.step == 0 || (unknown(&by_step) && !unknown(&by_clock)) {
            return by_clock;
        }
        let until =
            held(&by_clock).and_then(|held| held.steps_to_limit).filter(|_| grows(&by_step) && grows(&by_clock));
        let message = match until {
            Some(milliseconds) => format!("{}; by the clock in about {}", by_step.message, seconds(milliseconds / 1e3)),
            None => by_step.message.clone(),
        };
        Verdict { message, ..by_step }
    }

    /// Bytes a second by which memory grows, where that is the verdict.
    pub fn bytes_per_second(&self) -> Option<f64> {
        let by_clock = self.by_clock.verdict();
        held(&by_clock).filter(|_| grows(&by_clock))?.findings.slope.map(|slope| slope * 1e3)
    }
}

fn grows(verdict: &Verdict) -> bool {
    verdict.verdict == Judgement::Growing
}

fn held(verdict: &Verdict) -> Option<&SeriesVerdict> {
    verdict.series.iter().find(|one| one.name == HELD)
}

impl Watch {
    /// Adds a sample of a command. What counts is what only its processes can give back; pages of files are the kernel's.
    pub(super) fn add_command(&mut self, place: u64, line: &MemoryLine, processes: &Processes) {
        self.value(place, HELD, line.host.heap, Series::InUse, BYTES);
        for (owner, bytes) in &line.owners {
            self.value(place, &format!("{OWNER}{owner}"), *bytes, Series::InUse, BYTES);
        }
        let kept = [("resident", line.host.resident), ("files", line.host.file)];
        let container = line.container.and_then(|container| container.anonymous);
        for (name, bytes) in kept.into_iter().chain([("container", container)]) {
            if let Some(bytes) = bytes {
                self.value(place, name, bytes, Series::Kept, BYTES);
            }
        }
        let counts = [("processes", Some(processes.count)), ("threads", Some(processes.threads))];
        for (name, count) in counts.into_iter().chain([("open_files", processes.open_files)]) {
            if let Some(count) = count {
                self.value(place, name, count, Series::Kept, COUNT);
            }
        }
    }
}

/// What the numbers of a series count.
pub fn unit(name: &str, scale: Scale) -> &'static str {
    match name {
        "open_files" => "files",
        "processes" => "processes",
        "threads" => "threads",
        _ if scale == COUNT => "allocations",
        _ => "bytes",
    }
}

/// `private memory of workers`.
pub fn spoken_owner(owner: &str) -> String {
    if owner == UNMAPPED {
        return "files in /dev/shm that no process has mapped".into();
    }
    match (owner.strip_suffix(PRIVATE), owner.strip_suffix(SHARED)) {
        (Some(group), _) => format!("private memory of `{group}`"),
        (_, Some(group)) => format!("shared memory of `{group}`"),
        _ => format!("`{owner}`"),
    }
}
