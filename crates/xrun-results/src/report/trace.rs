//! Memory over time, by epoch and by stage, read from `memory.jsonl` in one pass.
//!
//! Caps: seven series of 48 KB, one of owners of 1.1 MB, [`PHASES_MAX`] names of phases, marks as `series` bounds
//! them, epochs and stages as `periods` bounds them.

use std::collections::BTreeMap;

use super::periods::Periods;
use super::series::{ThinnedSeries, TimeMarks};
use crate::format::{MemoryLine, MemorySummary, Peaks, SamplePoint};
use crate::read::{self, Skipped};
use crate::view::RunView;
use xrun_core::bounded::ledger::OWNERS_MAX;
use xrun_verdict::names::{GPU_SUFFIX, PRIVATE_SUFFIX, REPORTED_GPU_SUFFIX, is_group};

/// Maximum number of phases.
const PHASES_MAX: usize = 64;

/// Series and peaks of `memory.jsonl`. The x of all series is working time in seconds: pauses between a stop and a
/// resume are left out.
#[derive(Debug, Default)]
pub struct MemoryTrace {
    /// Heap in use, in bytes.
    pub heap: ThinnedSeries,
    /// RSS in bytes.
    pub rss: ThinnedSeries,
    /// Device memory of live tensors, in bytes.
    pub in_use: ThinnedSeries,
    /// Memory reserved by the device's pool, in bytes.
    pub reserved: ThinnedSeries,
    /// Memory of the process by the driver's count or, if unknown, of the whole device.
    pub driver: ThinnedSeries,
    /// `driver` is the memory of the whole device.
    pub driver_is_whole_device: bool,
    /// GPU utilisation in percent.
    pub utilisation: ThinnedSeries,
    /// GPU power in watts.
    pub power: ThinnedSeries,
    /// y is the sum over all owners; `extra` has the bytes of each, in the order of `owner_names`.
    pub owners: ThinnedSeries<[u64; OWNERS_MAX]>,
    /// Names of the owners, at most `OWNERS_MAX`.
    pub owner_names: Vec<String>,
    /// Peak of each owner in bytes, in the order of `owner_names`.
    pub owner_peaks: Vec<u64>,
    /// Start and end.
    pub validations: TimeMarks<(f64, f64)>,
    /// Times of the cleanups.
    pub cleanups: TimeMarks<f64>,
    /// Times of the resumes.
    pub resumes: TimeMarks<f64>,
    /// Seconds by phase.
    pub phases: BTreeMap<String, f64>,
    /// Peaks over all samples.
    pub peaks: MemorySummary,
    /// Memory by epoch.
    pub epochs: Periods,
    /// Memory by stage of the training; none if the pipeline has no stages.
    pub stages: Periods,
    /// Working time up to the last sample, in seconds.
    pub seconds: f64,
    /// Newest step.
    pub last_step: Option<u64>,
    /// Damage of the file.
    pub skipped: Skipped,
    highest: Peaks,
    segment: u32,
    segment_start: f64,
    validation_start: Option<f64>,
}

impl MemoryTrace {
    /// Reads the trace of a run; a missing file gives an empty one.
    pub fn read(run: &RunView) -> Self {
        let [epochs, stages] = run.curves().periods.clone();
        let mut trace = Self { epochs, stages, ..Self::default() };
        trace.skipped = read::for_each(read::memory(&run.path), |line| trace.add(&line));
        trace
    }

    fn add(&mut self, line: &MemoryLine) {
        if self.peaks.samples == 0 {
            self.segment = line.segment;
        } else if line.segment != self.segment {
            self.segment = line.segment;
            self.segment_start = self.seconds;
            self.validation_start = None;
            self.resumes.add(self.seconds);
        }
        let x = self.segment_start + line.time_us as f64 / 1e6;
        self.seconds = self.seconds.max(x);
        self.last_step = self.last_step.max(Some(line.step));
        self.heap.add(x, line.host.heap as f64, ());
        let add = |series: &mut ThinnedSeries, bytes: Option<u64>| {
            if let Some(bytes) = bytes {
                series.add(x, bytes as f64, ());
            }
        };
        add(&mut self.rss, line.host.rss);
        add(&mut self.in_use, line.device.map(|pool| pool.in_use));
        add(&mut self.reserved, line.device.map(|pool| pool.reserved));
        add(&mut self.driver, line.driver.map(|driver| driver.process.unwrap_or(driver.device)));
        let load = line.driver.and_then(|driver| driver.load).unwrap_or_default();
        if let Some(percent) = load.utilisation_percent {
            self.utilisation.add(x, percent.into(), ());
        }
        if let Some(power) = load.power_milliwatts {
            self.power.add(x, f64::from(power) / 1000.0, ());
        }
        self.driver_is_whole_device |= line.driver.is_some_and(|driver| driver.process.is_none());
        match line.point {
            SamplePoint::BeforeValidation => self.validation_start = Some(x),
            SamplePoint::AfterValidation => {
                if let Some(began) = self.validation_start.take() {
                    self.validations.add((began, x));
                }
            }
            SamplePoint::AfterCleanup => self.cleanups.add(x),
            _ => {}
        }
        self.add_owners(x, &disjoint_owners(line));
        for (name, &spent) in &line.phases_us {
            if let Some(seconds) = self.phases.get_mut(name) {
                *seconds += spent as f64 / 1e6;
            } else if self.phases.len() < PHASES_MAX {
                self.phases.insert(name.clone(), spent as f64 / 1e6);
            }
        }
        self.stages.add_sample(line);
        self.epochs.add_sample(line);
        self.highest.add(line);
        self.peaks = MemorySummary {
            heap_at_end: line.host.heap,
            samples: self.peaks.samples + 1,
            trace_seconds: self.peaks.trace_seconds + line.cost_us as f64 / 1e6,
            ..MemorySummary::from(self.highest)
        };
    }

    fn add_owners(&mut self, x: f64, owners: &BTreeMap<String, u64>) {
        if owners.is_empty() {
            return;
        }
        let mut bytes = [0; OWNERS_MAX];
        for (name, &held) in owners {
            let known = self.owner_names.iter().position(|known| known == name);
            let at = match known {
                Some(at) => at,
                None if self.owner_names.len() < OWNERS_MAX => {
                    self.owner_names.push(name.clone());
                    self.owner_peaks.push(0);
                    self.owner_names.len() - 1
                }
                None => continue,
            };
            bytes[at] = held;
            self.owner_peaks[at] = self.owner_peaks[at].max(held);
        }
        let sum = bytes.iter().fold(0u64, |sum, &held| sum.saturating_add(held));
        self.owners.add(x, sum as f64, bytes);
    }
}

/// Bytes by owner, each byte once: what a command reports itself is a part of its largest group of processes.
fn disjoint_owners(line: &MemoryLine) -> BTreeMap<String, u64> {
    let mut owners = line.owners.clone();
    if line.processes.is_none() {
        return owners;
    }
    for (on_gpu, suffix) in [(false, PRIVATE_SUFFIX), (true, GPU_SUFFIX)] {
        let is_part = |name: &str| !is_group(name) && name.ends_with(REPORTED_GPU_SUFFIX) == on_gpu;
        let reported = line.owners.iter().filter(|(name, _)| is_part(name)).map(|(_, bytes)| bytes);
        let reported = reported.fold(0u64, |sum, bytes| sum.saturating_add(*bytes));
        let groups = owners.iter_mut().filter(|(name, _)| name.ends_with(suffix));
        if let Some((_, bytes)) = groups.max_by_key(|(_, bytes)| **bytes) {
            *bytes = bytes.saturating_sub(reported);
        }
    }
    owners
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_that_a_command_reports_are_parts_of_a_group() {
        let line = |processes: &str| {
            let text = format!(
                r#"{{"version":1,"segment":0,"time_us":1,"step":1,"epoch":0,"point":"step","host":{{"heap":1,"heap_peak":1,
                "heap_high":null,"heap_allocations":0,"rss":1,"rss_peak":1,"anonymous":null,"file":0,"swap":0,"libraries":null}},
                "device":null,"driver":null,"container":null,"owners":{{"main/private":50,"workers/private":9,"main/GPU":7,
                "buffer":20,"buffer on GPU":30}},"freed":null,"phases_us":{{}},"cost_us":0{processes}}}"#
            );
            disjoint_owners(&serde_json::from_str(&text).unwrap())
        };
        let command = r#","processes":{"count":1,"threads":1,"open_files":3,"inexact":0,"groups":{},"unmapped_shared":0,
            "pressure":null,"oom_kills":null,"charged":null}"#;
        let owners = line(command);
        assert_eq!(
            [owners["main/private"], owners["workers/private"], owners["main/GPU"], owners["buffer"]],
            [30, 9, 0, 20]
        );
        assert_eq!(line("")["main/private"], 50, "owners of an experiment are disjoint");
    }
}
