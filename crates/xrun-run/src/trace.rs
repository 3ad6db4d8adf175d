//! When is a sample taken, and how does it become a line?
//!
//! A sample is taken on the training thread at a rest point: the step's tensors are dropped and the device is done.
//! What it costs is measured and stands in the line. The instrument's own memory is constant: nothing is kept but
//! peaks.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use xrun_core::bounded::ledger::Ledger;
use xrun_core::heap;
use xrun_core::task::DeviceMemory;
use xrun_results::format::{DriverMemory, HostMemory, MemoryLine, MemorySummary, Point, VERSION};
use xrun_watch::memory::gpus::MeanLoad;
use xrun_watch::memory::sources;

/// The share of the time since the start of the process that may go into reading the parts of resident memory.
const PARTS_SHARE: f64 = 0.001;

/// Takes samples.
#[derive(Debug)]
pub struct Tracer {
    ledger: Ledger,
    started: Instant,
    segment: u32,
    parts_every: u64,
    /// Time spent on the parts of resident memory.
    parts_cost: Duration,
    driver: Option<sources::GpuDriver>,
    peaks: MemorySummary,
    load: MeanLoad,
    cost: Duration,
}

/// What the caller knows of the moment.
#[derive(Debug)]
pub struct Moment {
    /// When the caller began to measure.
    pub begun: Instant,
    /// Optimiser steps done.
    pub step: u64,
    /// The epoch of that step, from 1; 0 before the first step.
    pub epoch: u64,
    /// Where in the loop it is.
    pub point: Point,
    /// What the device's pool says; `None` where there is none.
    pub device: Option<DeviceMemory>,
    /// Bytes that a cleanup gave back; only after one.
    pub freed: Option<u64>,
    /// Microseconds in each part of the loop since the sample before.
    pub phases: BTreeMap<String, u64>,
}

impl Tracer {
    /// `gpu` is the index of the GPU in use, if any; `parts_every` the cadence of the slower sources, in samples.
    pub fn new(ledger: &Ledger, segment: u32, parts_every: u64, gpu: Option<sources::GpuInUse>) -> Self {
        Self {
            ledger: ledger.clone(),
            started: Instant::now(),
            segment,
            parts_every: parts_every.max(1),
            parts_cost: Duration::ZERO,
            driver: gpu.and_then(sources::GpuDriver::open),
            peaks: MemorySummary::default(),
            load: MeanLoad::default(),
            cost: Duration::ZERO,
        }
    }

    /// Takes a sample: asks the allocator, the ledger and the system.
    pub fn sample(&mut self, moment: Moment) -> MemoryLine {
        let begun = moment.begun;
        let heap = heap::read();
        let frequent = matches!(moment.point, Point::Step | Point::BeforeCleanup | Point::AfterCleanup);
        let slow = !frequent || self.peaks.samples.is_multiple_of(self.parts_every);
        let parts = if slow && self.reads_parts(moment.point) { self.parts() } else { sources::RssParts::default() };
        let line = MemoryLine {
            version: VERSION,
            segment: self.segment,
            time_us: microseconds(self.started.elapsed()),
            step: moment.step,
            epoch: moment.epoch,
            point: moment.point,
            host: HostMemory {
                heap: heap.bytes,
                heap_peak: heap.peak,
                heap_high: Some(heap::take_high()),
                heap_allocations: heap.allocations,
                resident: sources::rss(),
                resident_peak: slow.then(sources::rss_peak).flatten(),
                anonymous: parts.anonymous,
                file: parts.file,
                swap: parts.swap,
                libraries: (slow && self.driver.is_some()).then(|| sources::libraries(&heap)).flatten(),
            },
            device: moment.device,
            driver: slow.then(|| self.driver.as_ref()?.read()).flatten(),
            container: slow.then(sources::container).flatten(),
            owners: self.ledger.read().into_iter().map(|owner| (owner.name.to_owned(), owner.bytes)).collect(),
            freed: moment.freed,
            phases_us: moment.phases,
            cost_us: 0,
            pressure: slow.then(sources::pressure).flatten(),
            processes: None,
        };
        self.peaks.samples += 1;
        self.peaks.heap_at_end = line.host.heap;
        self.raise_peaks(&line);
        let cost = begun.elapsed();
        self.cost += cost;
        MemoryLine { cost_us: microseconds(cost), ..line }
    }

    /// The parts of resident memory cost the most, and the more, the more memory is mapped: they are read at the start,
    /// at the end, and in between while that stays within [`PARTS_SHARE`].
    fn reads_parts(&self, point: Point) -> bool {
        let always = self.parts_every == 1 || matches!(point, Point::Start | Point::End);
        always || self.parts_cost <= self.started.elapsed().mul_f64(PARTS_SHARE)
    }

    fn parts(&mut self) -> sources::RssParts {
        let begun = Instant::now();
        let parts = sources::rss_parts();
        self.parts_cost += begun.elapsed();
        parts
    }

    /// Takes in a sample; of another process, too: peaks are those of the run.
    pub fn raise_peaks(&mut self, line: &MemoryLine) {
        self.load.add(line.driver.and_then(|driver| driver.load));
        let peaks = &mut self.peaks;
        peaks.heap_peak = peaks.heap_peak.max(line.host.heap_peak);
        let resident = line.host.resident_peak.max(line.host.resident);
        peaks.resident_peak = peaks.resident_peak.max(resident);
        peaks.device_in_use_peak = peaks.device_in_use_peak.max(line.device.map(|pool| pool.in_use));
        peaks.device_reserved_peak = peaks.device_reserved_peak.max(line.device.map(|pool| pool.reserved));
    }

    /// What the driver tells of the GPU now.
    pub fn gpu_memory(&self) -> Option<DriverMemory> {
        self.driver.as_ref()?.read()
    }

    /// Adds what writing a sample down took.
    pub fn add_cost(&mut self, cost: Duration) {
        self.cost += cost;
    }

    /// Peaks of the run so far. `training` is the time of the steps, against which the trace's own cost is stated.
    pub fn summary(&self, training: Duration) -> MemorySummary {
        let trace_seconds = self.cost.as_secs_f64();
        let trace_share = (!training.is_zero()).then(|| trace_seconds / training.as_secs_f64());
        let (gpu_utilisation_mean, gpu_power_mean) = self.load.means();
        MemorySummary { trace_seconds, trace_share, gpu_utilisation_mean, gpu_power_mean, ..self.peaks.clone() }
    }
}

fn microseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use xrun_core::bounded::buffer::Buffer;
    use xrun_core::bounded::ledger::{Cap, Policy};

    fn moment(step: u64, point: Point) -> Moment {
        Moment { begun: Instant::now(), step, epoch: 1, point, device: None, freed: None, phases: BTreeMap::new() }
    }

    #[test]
    fn a_sample_names_each_owner_and_what_it_cost() {
        let ledger = Ledger::default();
        let cache = Buffer::new("frame_cache", Policy::Evict, Cap { items: 10, bytes: 1000 }).register(&ledger);
        cache.set(2, 640);
        let mut tracer = Tracer::new(&ledger, 0, 20, None);
        let line = tracer.sample(moment(0, Point::Start));
        assert_eq!(line.owners["frame_cache"], 640);
        assert!(line.host.heap > 0 && line.host.heap_allocations > 0);
        assert_eq!(line.device, None, "what cannot be measured is absent, never 0");
        assert!(tracer.summary(Duration::from_secs(1)).trace_seconds > 0.0);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_slower_sources_keep_their_cadence() {
        let mut tracer = Tracer::new(&Ledger::default(), 0, 3, None);
        let slow: Vec<bool> =
            (0..7).map(|step| tracer.sample(moment(step, Point::Step)).host.resident_peak.is_some()).collect();
        assert_eq!(slow, [true, false, false, true, false, false, true]);
        let points = [Point::Epoch, Point::BeforeValidation, Point::AfterValidation, Point::Checkpoint, Point::End];
        assert!(points.iter().all(|point| tracer.sample(moment(7, *point)).host.resident_peak.is_some()));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_parts_of_resident_memory_are_read_while_they_cost_little() {
        let mut tracer = Tracer::new(&Ledger::default(), 0, 2, None);
        assert!(tracer.sample(moment(0, Point::Start)).host.anonymous.is_some());
        tracer.parts_cost = Duration::from_secs(3600);
        assert_eq!(tracer.sample(moment(7, Point::Epoch)).host.anonymous, None);
        assert!(tracer.sample(moment(7, Point::End)).host.anonymous.is_some());
        tracer.parts_every = 1;
        assert!(tracer.sample(moment(7, Point::Step)).host.anonymous.is_some(), "asked for at each sample");
    }
}
