//! Memory of a command: quick scans for its limits, and samples for its trace.
//!
//! A scan reads the status of each process. For a sample the kernel walks all their pages; it is taken no more often than
//! its cost allows, and less often the longer the command runs, which bounds a trace of days.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::groups::{Groups, ProcessSample};
use xrun_core::bounded::buffer::Buffer;
use xrun_core::bounded::ledger::{Cap, Ledger, Policy, Registration};
use xrun_results::format::{DriverMemory, HostMemory, MemoryLine, MemorySummary, SamplePoint, VERSION};
use xrun_results::watched::{GpuMemory, ProcessMemory};
use xrun_run::memory::cgroup::Cgroup;
use xrun_run::memory::gpus::{GpuSample, Gpus, MeanLoad, combined_load};
use xrun_run::memory::own_cgroup::Cgroups;
use xrun_run::memory::processes;
use xrun_run::memory::processes::{Member, PROCESSES_MAX, Status};
use xrun_run::memory::shared_files::{self, SharedFiles};
use xrun_run::memory::sources;
use xrun_verdict::names::UNMAPPED_SHM;

/// Pause after a sample in multiples of its cost: less than 1 % of one core. An interval below one second costs more.
const COST_FACTOR: f64 = 150.0;
/// Smallest such multiple, near a limit or at short intervals.
const COST_FACTOR_MIN: f64 = 3.0;
/// Interval of samples at first: a short training has enough of them for a verdict.
const FIRST_INTERVAL: Duration = Duration::from_millis(200);
/// Number of such intervals in the first minute, after which they become longer up to the interval that is set.
const FIRST_SAMPLES: u32 = 300;
/// Number of samples after which they become less frequent.
const SAMPLES_FREQUENT: u32 = 20_000;
/// Cap on the bytes of a [`ProcessSample`].
const PROCESS_BYTES_MAX: u64 = 8 * 1024;

/// Processes that are sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessTree {
    /// Descendants of this process, including orphans that it has adopted; the first is `main`.
    Started { main: u32 },
    /// A process that was already running, and its descendants.
    Attached { main: u32 },
}

/// Sampler of the processes of a command.
#[derive(Debug)]
pub struct Sampler {
    tree: ProcessTree,
    groups: Groups,
    started: Instant,
    every: Duration,
    /// Time of the newest sample.
    newest: Option<Instant>,
    /// Processor time of the newest sample.
    newest_cost: Duration,
    /// Processor time of all scans and samples: on a busy machine a sample waits, which costs nothing.
    cost: Duration,
    peaks: MemorySummary,
    seen: Registration,
    shared_files: SharedFiles,
    /// True if there was shared memory that no process had mapped.
    unmapped: bool,
    gpus: Option<Gpus>,
    load: MeanLoad,
    cgroups: Cgroups,
}

/// Result of a quick scan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scan {
    pub processes: u64,
    /// Upper bound of the memory footprint in bytes: shared pages count once for each process.
    pub footprint_max: u64,
}

/// Buffer of the processes of a sample.
pub fn buffer() -> Buffer {
    let cap = Cap { items: PROCESSES_MAX as u64, bytes: PROCESSES_MAX as u64 * PROCESS_BYTES_MAX };
    Buffer::new("processes_seen", Policy::Refuse, cap).because("further processes are not sampled")
}

impl Sampler {
    /// Sampler that starts now.
    pub fn new(tree: ProcessTree, every: Duration, cgroups: Cgroups, ledger: &Ledger) -> Self {
        let (ProcessTree::Started { main } | ProcessTree::Attached { main }) = tree;
        Self {
            tree,
            groups: Groups::new(main),
            started: Instant::now(),
            every,
            newest: None,
            newest_cost: Duration::ZERO,
            cost: Duration::ZERO,
            peaks: MemorySummary::default(),
            seen: buffer().register(ledger),
            shared_files: SharedFiles::default(),
            unmapped: false,
            gpus: Gpus::open(),
            load: MeanLoad::default(),
            cgroups,
        }
    }

    /// Processes of the command.
    fn members(&self) -> Vec<Member> {
        match self.tree {
            ProcessTree::Started { .. } => processes::descendants(std::process::id()),
            ProcessTree::Attached { main } => processes::with_descendants(main),
        }
    }

    /// Process ids of the command.
    pub fn member_ids(&self) -> Vec<u32> {
        self.members().iter().map(|member| member.id).collect()
    }

    /// Scans all processes; takes some microseconds for each.
    pub fn scan(&mut self) -> Scan {
        let worked = processor_time();
        let read = |member: &Member| Status::read(member.id);
        let scan = self.members().iter().filter_map(read).fold(Scan::default(), |scan, status| Scan {
            processes: scan.processes + 1,
            footprint_max: scan.footprint_max + status.footprint_max(),
        });
        self.cost += processor_time().saturating_sub(worked);
        scan
    }

    /// Returns whether the next sample may be taken; near a limit it may cost more.
    pub fn is_due(&self, near_limit: bool) -> bool {
        let rare = self.started.elapsed() / SAMPLES_FREQUENT;
        let every = self.interval();
        let factor = (COST_FACTOR * every.as_secs_f64()).clamp(COST_FACTOR_MIN, COST_FACTOR);
        let pause = match near_limit {
            true => every.max(self.newest_cost.mul_f64(COST_FACTOR_MIN)),
            false => every.max(rare).max(self.newest_cost.mul_f64(factor)),
        };
        self.newest.is_none_or(|newest| newest.elapsed() >= pause)
    }

    /// Interval of samples now: short at first, and the one that is set some minutes later.
    pub fn interval(&self) -> Duration {
        interval(self.every, self.started.elapsed())
    }

    /// Samples all processes; `None` where there are none.
    pub fn sample(&mut self, step: u64, point: SamplePoint) -> Option<MemoryLine> {
        let (begun, worked) = (Instant::now(), processor_time());
        let mut seen = ProcessSample::read_all(&self.members());
        self.groups.read_ranks(&mut seen);
        let gpus = self.read_gpus(&mut seen);
        self.seen.set(seen.len() as u64, seen.len() as u64 * size_of::<ProcessSample>() as u64);
        let line = (!seen.is_empty()).then(|| self.line(&seen, gpus, step, point));
        self.seen.set(0, 0);
        let cost = begun.elapsed();
        self.newest = Some(Instant::now());
        self.newest_cost = processor_time().saturating_sub(worked);
        self.cost += self.newest_cost;
        line.map(|line| MemoryLine { cost_us: microseconds(cost), ..line })
    }

    /// Memory of each GPU; adds the memory of each process to its sample.
    fn read_gpus(&self, seen: &mut [ProcessSample]) -> Vec<GpuMemory> {
        let read = self.gpus.as_ref().map(Gpus::read).unwrap_or_default();
        let gpu_memory = |gpu: &GpuSample| {
            let mut used_by_command = 0;
            for one in seen.iter_mut() {
                let bytes = gpu.processes.get(&one.member.id).copied().unwrap_or_default();
                one.gpu += bytes;
                used_by_command += bytes;
            }
            GpuMemory { index: gpu.index, total: gpu.total, used: gpu.used, used_by_command, load: gpu.load }
        };
        read.iter().map(gpu_memory).collect()
    }

    fn line(&mut self, seen: &[ProcessSample], gpus: Vec<GpuMemory>, step: u64, point: SamplePoint) -> MemoryLine {
        let mut held = self.groups.sum(seen);
        let sum = |of: fn(&xrun_results::watched::ProcessGroup) -> u64| held.groups.values().map(of).sum::<u64>();
        let (private, shared) = (sum(|group| group.private), sum(|group| group.shared));
        let (file, swap) = (sum(|group| group.file_pages), sum(|group| group.swap));
        let processes: Vec<u32> = seen.iter().map(|one| one.member.id).collect();
        let shared_files = self.shared_files.bytes(&processes, self.cgroups.own.as_ref());
        let unmapped = shared_files.map(|bytes| bytes.saturating_sub(shared));
        self.unmapped |= unmapped.is_some_and(|bytes| bytes > 0);
        if let Some(bytes) = unmapped.filter(|_| self.unmapped) {
            held.owners.insert(UNMAPPED_SHM.into(), bytes);
        }
        let heap = private + shared + unmapped.unwrap_or_default();
        let rss = (private + shared + file).saturating_sub(swap);
        let on_gpus: u64 = gpus.iter().map(|gpu| gpu.used_by_command).sum();
        let driver = (!gpus.is_empty()).then(|| DriverMemory {
            process: Some(on_gpus),
            device: gpus.iter().map(|gpu| gpu.used).sum(),
            before: None,
            total: Some(gpus.iter().map(|gpu| gpu.total).sum()),
            load: combined_load(
                gpus.iter().filter(|gpu| on_gpus == 0 || gpu.used_by_command > 0).filter_map(|gpu| gpu.load),
            ),
        });
        self.load.add(driver.and_then(|driver| driver.load));
        if on_gpus > 0 {
            self.peaks.device_reserved_peak = self.peaks.device_reserved_peak.max(Some(on_gpus));
        }
        self.peaks.samples += 1;
        self.peaks.heap_at_end = heap;
        self.peaks.heap_peak = self.peaks.heap_peak.max(heap);
        self.peaks.rss_peak = self.peaks.rss_peak.max(Some(rss));
        let open = |one: &ProcessSample| processes::open_files(one.member.id);
        MemoryLine {
            version: VERSION,
            time_us: microseconds(self.started.elapsed()),
            step,
            point,
            host: HostMemory {
                heap,
                heap_peak: self.peaks.heap_peak,
                rss: Some(rss),
                rss_peak: self.peaks.rss_peak,
                file: Some(file),
                swap: Some(swap),
                ..HostMemory::default()
            },
            driver,
            container: self.cgroups.container.as_ref().and_then(Cgroup::memory),
            owners: held.owners,
            processes: Some(ProcessMemory {
                process_count: seen.len() as u64,
                threads: seen.iter().map(|one| one.status.threads).sum(),
                open_files: seen.iter().filter_map(open).reduce(|a, b| a + b),
                inexact: seen.iter().filter(|one| one.pages.is_none()).count() as u64,
                groups: held.groups,
                unmapped_shm: unmapped,
                pressure: self.cgroups.nearest().and_then(Cgroup::pressure).or_else(sources::pressure),
                oom_kills: self.cgroups.oom_kills(),
                charged: self.cgroups.own.as_ref().and_then(Cgroup::charged),
                agent: BTreeMap::new(),
                gpus,
            }),
            ..MemoryLine::default()
        }
    }

    /// Peaks so far, and the cost of sampling.
    pub fn summary(&self) -> MemorySummary {
        let (cost, time) = (self.cost.as_secs_f64(), self.started.elapsed().as_secs_f64());
        let trace_share = (time > 0.0).then(|| cost / time);
        let (gpu_utilisation_mean, gpu_power_mean) = self.load.means();
        MemorySummary { trace_seconds: cost, trace_share, gpu_utilisation_mean, gpu_power_mean, ..self.peaks.clone() }
    }

    /// Time since the start.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }
}

/// Interval of samples at a time since the start.
fn interval(every: Duration, elapsed: Duration) -> Duration {
    every.min(FIRST_INTERVAL.max(elapsed / FIRST_SAMPLES))
}

/// Descriptions of what cannot be measured on this machine. `own_cgroup` says whether the command has its own cgroup.
pub fn not_measured(own_cgroup: bool) -> Vec<String> {
    let own = std::process::id();
    let missing = [
        (
            processes::Pages::read(own).is_none(),
            "proportional set size (`smaps_rollup`): shared pages count once for each process",
        ),
        (sources::container().is_none(), "memory of the container: no memory cgroup"),
        (
            !own_cgroup,
            "memory that the kernel charges to the command: no cgroup could be created; its processes are added up",
        ),
        (sources::oom_kills().is_none(), "OOM kills (`oom_kill`)"),
        (sources::pressure().is_none(), "memory pressure (PSI)"),
        (std::fs::read_dir(shared_files::DIRECTORY).is_err(), "files in /dev/shm"),
        (Gpus::open().is_none(), "GPU memory: no NVIDIA driver with a GPU"),
    ];
    missing.into_iter().filter(|(missing, _)| *missing).map(|(_, what)| what.to_owned()).collect()
}

/// Processor time of this thread.
fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` outlives the call.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    let read = || Some(Duration::new(u64::try_from(time.tv_sec).ok()?, u32::try_from(time.tv_nsec).ok()?));
    if result == 0 { read().unwrap_or_default() } else { Duration::ZERO }
}

fn microseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_frequent_at_first_and_as_set_later() {
        let at =
            |every: u64, elapsed: u64| interval(Duration::from_millis(every), Duration::from_secs(elapsed)).as_millis();
        assert_eq!([0, 60, 120, 300, 9000].map(|elapsed| at(1000, elapsed)), [200, 200, 400, 1000, 1000]);
        assert_eq!([0, 9000].map(|elapsed| at(20, elapsed)), [20, 20], "a shorter interval is kept");
    }
}
