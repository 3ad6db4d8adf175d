//! Memory samples of the run's own process, as lines of `memory.jsonl`.
//!
//! A sample is taken on the training thread between steps, when the step's tensors are dropped and the device is idle. Its
//! cost is part of the line. The memory of the tracer is constant: only peaks are kept.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::memory::gpus::MeanLoad;
use crate::memory::sources;
use xrun_core::bounded::ledger::Ledger;
use xrun_core::heap;
use xrun_core::task::DeviceMemory;
use xrun_results::format::{
    DriverMemory, HostMemory, MemoryLine, MemorySummary, Peaks, SamplePoint, SizeClass, VERSION,
};

/// Fraction of the time since the start of the process that may be spent on reading the breakdown of the RSS.
const BREAKDOWN_TIME_FRACTION: f64 = 0.001;

/// Sampler of heap, RSS, device memory and ledger.
#[derive(Debug)]
pub struct Tracer {
    ledger: Ledger,
    started: Instant,
    segment: u32,
    /// Cadence of the slow sources, in samples.
    slow_every: u64,
    /// Time spent on reading the breakdown of the RSS.
    breakdown_cost: Duration,
    driver: Option<sources::GpuDriver>,
    /// Peaks of all processes.
    peaks: Peaks,
    samples: u64,
    heap_at_end: u64,
    /// Large allocations at the first sample after a step.
    large_at_start: Option<[(u64, u64); heap::SIZE_CLASSES]>,
    load: MeanLoad,
    cost: Duration,
}

/// Position in the loop at which a sample is taken.
#[derive(Clone, Copy, Debug)]
pub struct LoopPosition {
    /// Optimiser steps done.
    pub step: u64,
    /// Epoch of that step, from 1; 0 before the first step.
    pub epoch: u64,
    /// Kind of sample.
    pub point: SamplePoint,
    /// Bytes that a cleanup freed; `None` unless the sample follows a cleanup.
    pub freed: Option<u64>,
    /// Remaining seconds of the run; `None` while unknown.
    pub left: Option<f64>,
}

/// Facts about a sample that the caller supplies.
#[derive(Debug)]
pub struct SampleContext {
    /// Time at which the caller started to measure.
    pub start_time: Instant,
    /// Position in the loop.
    pub position: LoopPosition,
    /// Statistics of the device's memory pool; `None` without one.
    pub device: Option<DeviceMemory>,
    /// Microseconds in each phase of the loop since the previous sample.
    pub phases: BTreeMap<String, u64>,
}

impl Tracer {
    /// Creates a tracer. `slow_every` is the cadence of the slow sources in samples, `gpu` the GPU in use, if any.
    pub fn new(ledger: &Ledger, segment: u32, slow_every: u64, gpu: Option<sources::GpuInUse>) -> Self {
        Self {
            ledger: ledger.clone(),
            started: Instant::now(),
            segment,
            slow_every: slow_every.max(1),
            breakdown_cost: Duration::ZERO,
            driver: gpu.and_then(sources::GpuDriver::open),
            peaks: Peaks::default(),
            samples: 0,
            heap_at_end: 0,
            large_at_start: None,
            load: MeanLoad::default(),
            cost: Duration::ZERO,
        }
    }

    /// Takes a sample from the allocator, the ledger and the system.
    pub fn sample(&mut self, context: SampleContext) -> MemoryLine {
        let SampleContext { start_time, position, device, phases } = context;
        let heap = heap::read();
        let frequent =
            matches!(position.point, SamplePoint::Step | SamplePoint::BeforeCleanup | SamplePoint::AfterCleanup);
        let slow = !frequent || self.samples.is_multiple_of(self.slow_every);
        let with_breakdown = slow && self.breakdown_due(position.point);
        let parts = if with_breakdown { self.breakdown() } else { sources::RssParts::default() };
        let line = MemoryLine {
            version: VERSION,
            segment: self.segment,
            time_us: microseconds(self.started.elapsed()),
            step: position.step,
            epoch: position.epoch,
            point: position.point,
            host: HostMemory {
                heap: heap.bytes,
                heap_peak: heap.peak,
                heap_high: Some(heap::take_peak()),
                heap_allocations: heap.allocations,
                rss: sources::rss(),
                rss_peak: slow.then(sources::rss_peak).flatten(),
                anonymous: parts.anonymous,
                file: parts.file,
                swap: parts.swap,
                libraries: (slow && self.driver.is_some()).then(|| sources::libraries(&heap)).flatten(),
            },
            device,
            driver: slow.then(|| self.driver.as_ref()?.read()).flatten(),
            container: slow.then(sources::container).flatten(),
            owners: self.ledger.read().into_iter().map(|owner| (owner.name.to_owned(), owner.bytes)).collect(),
            freed: position.freed,
            phases_us: phases,
            cost_us: 0,
            seconds_left: position.left,
            pressure: slow.then(sources::pressure).flatten(),
            processes: None,
        };
        self.samples += 1;
        self.heap_at_end = line.host.heap;
        if heap.allocations > 0 && position.point == SamplePoint::Step {
            self.large_at_start.get_or_insert_with(heap::size_classes);
        }
        self.raise_peaks(&line);
        let cost = start_time.elapsed();
        self.cost += cost;
        MemoryLine { cost_us: microseconds(cost), ..line }
    }

    /// Returns true if the breakdown of the RSS is read with this sample. It is the slowest source, and slower the more memory
    /// is mapped: it is read at the start, at the end, and otherwise within [`BREAKDOWN_TIME_FRACTION`].
    fn breakdown_due(&self, point: SamplePoint) -> bool {
        let always = self.slow_every == 1 || matches!(point, SamplePoint::Start | SamplePoint::End);
        always || self.breakdown_cost <= self.started.elapsed().mul_f64(BREAKDOWN_TIME_FRACTION)
    }

    fn breakdown(&mut self) -> sources::RssParts {
        let start_time = Instant::now();
        let parts = sources::rss_parts();
        self.breakdown_cost += start_time.elapsed();
        parts
    }

    /// Raises the run's peaks to those of a sample, which may be of an earlier process.
    pub fn raise_peaks(&mut self, line: &MemoryLine) {
        self.load.add(line.driver.and_then(|driver| driver.load));
        self.peaks.add(line);
    }

    /// Memory of the GPU by its driver.
    pub fn gpu_memory(&self) -> Option<DriverMemory> {
        self.driver.as_ref()?.read()
    }

    /// Adds the time that writing a sample took.
    pub fn add_cost(&mut self, cost: Duration) {
        self.cost += cost;
    }

    /// Peaks of the run so far. `training` is the time of the steps, to which the cost of the trace is relative.
    pub fn summary(&self, training: Duration) -> MemorySummary {
        let trace_seconds = self.cost.as_secs_f64();
        let trace_share = (!training.is_zero()).then(|| trace_seconds / training.as_secs_f64());
        let (gpu_utilisation_mean, gpu_power_mean) = self.load.means();
        let size_classes = self.large_at_start.as_ref().map(size_classes).unwrap_or_default();
        MemorySummary {
            heap_at_end: self.heap_at_end,
            samples: self.samples,
            trace_seconds,
            trace_share,
            gpu_utilisation_mean,
            gpu_power_mean,
            size_classes,
            ..self.peaks.into()
        }
    }
}

/// Large live allocations of this moment, with their numbers at the start.
fn size_classes(start: &[(u64, u64); heap::SIZE_CLASSES]) -> Vec<SizeClass> {
    let now = heap::size_classes();
    let class = |class: usize| SizeClass {
        from_bytes: (heap::LARGE_MIN as u64) << (2 * class),
        allocations_at_start: start[class].0,
        allocations: now[class].0,
        bytes: now[class].1,
    };
    (0..heap::SIZE_CLASSES).map(class).collect()
}

fn microseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use xrun_core::bounded::buffer::Buffer;
    use xrun_core::bounded::ledger::{Cap, Policy};

    fn context(step: u64, point: SamplePoint) -> SampleContext {
        let position = LoopPosition { step, epoch: 1, point, freed: None, left: None };
        SampleContext { start_time: Instant::now(), position, device: None, phases: BTreeMap::new() }
    }

    #[test]
    fn a_sample_has_each_owner_and_its_own_cost() {
        let ledger = Ledger::default();
        let cache = Buffer::new("frame_cache", Policy::Evict, Cap { items: 10, bytes: 1000 }).register(&ledger);
        cache.set(2, 640);
        let mut tracer = Tracer::new(&ledger, 0, 20, None);
        let line = tracer.sample(context(0, SamplePoint::Start));
        assert_eq!(line.owners["frame_cache"], 640);
        assert!(line.host.heap > 0 && line.host.heap_allocations > 0);
        assert_eq!(line.device, None, "what cannot be measured is absent, never 0");
        assert!(tracer.summary(Duration::from_secs(1)).trace_seconds > 0.0);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn slow_sources_keep_their_cadence() {
        let mut tracer = Tracer::new(&Ledger::default(), 0, 3, None);
        let slow: Vec<bool> =
            (0..7).map(|step| tracer.sample(context(step, SamplePoint::Step)).host.rss_peak.is_some()).collect();
        assert_eq!(slow, [true, false, false, true, false, false, true]);
        let points = [
            SamplePoint::Epoch,
            SamplePoint::BeforeValidation,
            SamplePoint::AfterValidation,
            SamplePoint::Checkpoint,
            SamplePoint::End,
        ];
        assert!(points.iter().all(|point| tracer.sample(context(7, *point)).host.rss_peak.is_some()));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_breakdown_of_the_rss_is_read_within_its_time_budget() {
        let mut tracer = Tracer::new(&Ledger::default(), 0, 2, None);
        assert!(tracer.sample(context(0, SamplePoint::Start)).host.anonymous.is_some());
        tracer.breakdown_cost = Duration::from_secs(3600);
        assert_eq!(tracer.sample(context(7, SamplePoint::Epoch)).host.anonymous, None);
        assert!(tracer.sample(context(7, SamplePoint::End)).host.anonymous.is_some());
        tracer.slow_every = 1;
        assert!(tracer.sample(context(7, SamplePoint::Step)).host.anonymous.is_some(), "requested with each sample");
    }
}
