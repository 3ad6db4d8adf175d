//! What does a command hold now? A quick look for its limits, and samples for its trace.
//!
//! A look reads some lines of each process. A sample has the kernel walk all their pages; it is taken no more often than
//! its cost allows, and less often the longer the command runs, so that a trace of days stays small.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant, SystemTime};

use super::groups::{Groups, Seen};
use crate::memory::cgroup::Cgroup;
use crate::memory::gpus::{Gpus, MeanLoad, together};
use crate::memory::own_cgroup::Cgroups;
use crate::memory::processes;
use crate::memory::processes::{Member, PROCESSES_MAX, Status};
use crate::memory::sources;
use xrun_core::bounded::buffer::Buffer;
use xrun_core::bounded::ledger::{Cap, Holding, Ledger, Policy};
use xrun_results::format::{DriverMemory, HostMemory, MemoryLine, MemorySummary, Point, VERSION};
use xrun_results::watched::{Gpu, Processes};
use xrun_verdict::names::UNMAPPED;

/// A sample is taken after this many times what the last one cost: less than 1 % of one core. Who asks for samples more
/// often than each second pays for them.
const COST_FACTOR: f64 = 150.0;
/// The same where a limit may have been reached, and at most as often as anybody may ask.
const COST_FACTOR_MIN: f64 = 3.0;
/// So many samples are taken before they become rarer.
const SAMPLES_OFTEN: u32 = 20_000;
const SHARED_FOLDER: &str = "/dev/shm";
/// More files in it are not looked at.
const SHARED_FILES_MAX: usize = 4096;
/// What is known of one process while a sample is taken.
const PROCESS_BYTES_MAX: u64 = 8 * 1024;

/// Whose processes they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// All that this process started, and all that these left behind; the first is `main`.
    Ours { main: u32 },
    /// A process that was there already, and all that it started.
    Other { main: u32 },
}

/// Takes looks and samples.
#[derive(Debug)]
pub struct Sampler {
    whose: Whose,
    groups: Groups,
    started: Instant,
    /// Files in `/dev/shm` that are older are not the command's.
    since: SystemTime,
    every: Duration,
    newest: Option<Instant>,
    /// Of it, work of this thread.
    newest_cost: Duration,
    cost: Duration,
    peaks: MemorySummary,
    seen: Holding,
    /// There was a file in `/dev/shm` that nobody had mapped.
    unmapped: bool,
    gpus: Option<Gpus>,
    load: MeanLoad,
    cgroups: Cgroups,
}

/// What processes hold, by a quick look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Look {
    pub processes: u64,
    /// At most what they hold that is no file: pages that several share count once for each.
    pub held_at_most: u64,
}

/// How many processes are seen at once.
pub fn buffer() -> Buffer {
    let cap = Cap { items: PROCESSES_MAX as u64, bytes: PROCESSES_MAX as u64 * PROCESS_BYTES_MAX };
    Buffer::new("processes_seen", Policy::Refuse, cap).because("the rest of the processes is not looked at")
}

impl Sampler {
    /// Begins to count time.
    pub fn new(whose: Whose, every: Duration, cgroups: Cgroups, ledger: &Ledger) -> Self {
        let (Whose::Ours { main } | Whose::Other { main }) = whose;
        Self {
            whose,
            groups: Groups::new(main),
            started: Instant::now(),
            since: SystemTime::now(),
            every,
            newest: None,
            newest_cost: Duration::ZERO,
            cost: Duration::ZERO,
            peaks: MemorySummary::default(),
            seen: buffer().register(ledger),
            unmapped: false,
            gpus: Gpus::open(),
            load: MeanLoad::default(),
            cgroups,
        }
    }

    /// All processes of the command.
    pub fn members(&self) -> Vec<Member> {
        match self.whose {
            Whose::Ours { .. } => processes::descendants(std::process::id()),
            Whose::Other { main } => processes::with_descendants(main),
        }
    }

    /// Some microseconds a process.
    pub fn look(&mut self) -> Look {
        let begun = Instant::now();
        let read = |member: &Member| Status::read(member.id);
        let look = self.members().iter().filter_map(read).fold(Look::default(), |look, status| Look {
            processes: look.processes + 1,
            held_at_most: look.held_at_most + status.held(),
        });
        self.cost += begun.elapsed();
        look
    }

    /// Whether the next sample may be taken; near a limit more may be spent on it.
    pub fn is_due(&self, near_limit: bool) -> bool {
        let rare = self.started.elapsed() / SAMPLES_OFTEN;
        let asked = (COST_FACTOR * self.every.as_secs_f64()).clamp(COST_FACTOR_MIN, COST_FACTOR);
        let pause = match near_limit {
            true => self.every.max(self.newest_cost.mul_f64(COST_FACTOR_MIN)),
            false => self.every.max(rare).max(self.newest_cost.mul_f64(asked)),
        };
        self.newest.is_none_or(|newest| newest.elapsed() >= pause)
    }

    /// One moment of all processes; `None` where there are none.
    pub fn sample(&mut self, step: u64, point: Point) -> Option<MemoryLine> {
        let (begun, worked) = (Instant::now(), processor_time());
        let mut seen = Seen::read_all(&self.members());
        let gpus = self.read_gpus(&mut seen);
        self.seen.set(seen.len() as u64, seen.len() as u64 * size_of::<Seen>() as u64);
        let line = (!seen.is_empty()).then(|| self.line(&seen, gpus, step, point));
        self.seen.set(0, 0);
        let cost = begun.elapsed();
        self.newest = Some(Instant::now());
        // On a busy machine a sample waits, which costs nobody anything.
        self.newest_cost = processor_time().saturating_sub(worked);
        self.cost += cost;
        line.map(|line| MemoryLine { cost_us: microseconds(cost), ..line })
    }

    /// What is held on each GPU; what each of these processes holds is noted with it.
    fn read_gpus(&self, seen: &mut [Seen]) -> Vec<Gpu> {
        let read = self.gpus.as_ref().map(Gpus::read).unwrap_or_default();
        let one = |gpu: &crate::memory::gpus::Held| {
            let mut held = 0;
            for one in seen.iter_mut() {
                let bytes = gpu.processes.get(&one.member.id).copied().unwrap_or_default();
                one.gpu += bytes;
                held += bytes;
            }
            Gpu { index: gpu.index, total: gpu.total, used: gpu.used, held, load: gpu.load }
        };
        read.iter().map(one).collect()
    }

    fn line(&mut self, seen: &[Seen], gpus: Vec<Gpu>, step: u64, point: Point) -> MemoryLine {
        let mut held = self.groups.add_up(seen);
        let sum = |of: fn(&xrun_results::watched::Group) -> u64| held.groups.values().map(of).sum::<u64>();
        let (private, shared, file, swap) =
            (sum(|group| group.private), sum(|group| group.shared), sum(|group| group.file), sum(|group| group.swap));
        let unmapped = self.shared_files().map(|files| files.saturating_sub(shared));
        self.unmapped |= unmapped.is_some_and(|bytes| bytes > 0);
        if let Some(bytes) = unmapped.filter(|_| self.unmapped) {
            held.owners.insert(UNMAPPED.into(), bytes);
        }
        let heap = private + shared + unmapped.unwrap_or_default();
        let resident = (private + shared + file).saturating_sub(swap);
        let on_gpus: u64 = gpus.iter().map(|gpu| gpu.held).sum();
        let driver = (!gpus.is_empty()).then(|| DriverMemory {
            process: Some(on_gpus),
            device: gpus.iter().map(|gpu| gpu.used).sum(),
            before: None,
            total: Some(gpus.iter().map(|gpu| gpu.total).sum()),
            load: together(gpus.iter().filter(|gpu| on_gpus == 0 || gpu.held > 0).filter_map(|gpu| gpu.load)),
        });
        self.load.add(driver.and_then(|driver| driver.load));
        if on_gpus > 0 {
            self.peaks.device_reserved_peak = self.peaks.device_reserved_peak.max(Some(on_gpus));
        }
        self.peaks.samples += 1;
        self.peaks.heap_at_end = heap;
        self.peaks.heap_peak = self.peaks.heap_peak.max(heap);
        self.peaks.resident_peak = self.peaks.resident_peak.max(Some(resident));
        let open = |one: &Seen| processes::open_files(one.member.id);
        MemoryLine {
            version: VERSION,
            segment: 0,
            time_us: microseconds(self.started.elapsed()),
            step,
            epoch: 0,
            point,
            host: HostMemory {
                heap,
                heap_peak: self.peaks.heap_peak,
                heap_high: None,
                heap_allocations: 0,
                resident: Some(resident),
                resident_peak: self.peaks.resident_peak,
                anonymous: None,
                file: Some(file),
                swap: Some(swap),
                libraries: None,
            },
            device: None,
            driver,
            container: self.cgroups.container.as_ref().and_then(Cgroup::memory),
            owners: held.owners,
            freed: None,
            phases_us: BTreeMap::new(),
            cost_us: 0,
            pressure: None,
            processes: Some(Processes {
                count: seen.len() as u64,
                threads: seen.iter().map(|one| one.status.threads).sum(),
                open_files: seen.iter().filter_map(open).reduce(|a, b| a + b),
                inexact: seen.iter().filter(|one| one.pages.is_none()).count() as u64,
                groups: held.groups,
                unmapped_shared: unmapped,
                pressure: self.cgroups.nearest().and_then(Cgroup::pressure).or_else(sources::pressure),
                oom_kills: self.cgroups.oom_kills(),
                charged: self.cgroups.own.as_ref().and_then(Cgroup::charged),
                gpus,
            }),
        }
    }

    /// Bytes of files of this user in `/dev/shm` that were made since the start.
    fn shared_files(&self) -> Option<u64> {
        // SAFETY: takes nothing and cannot fail.
        let user = unsafe { libc::geteuid() };
        let since = self.since.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let since = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
        let entries = std::fs::read_dir(SHARED_FOLDER).ok()?.flatten().take(SHARED_FILES_MAX);
        let files = entries.filter_map(|entry| entry.metadata().ok());
        let ours = files.filter(|file| file.is_file() && file.uid() == user && file.ctime() >= since);
        Some(ours.map(|file| file.blocks() * 512).sum())
    }

    /// Peaks so far, and what looking cost.
    pub fn summary(&self) -> MemorySummary {
        let (cost, time) = (self.cost.as_secs_f64(), self.started.elapsed().as_secs_f64());
        let trace_share = (time > 0.0).then(|| cost / time);
        let (gpu_utilisation_mean, gpu_power_mean) = self.load.means();
        MemorySummary { trace_seconds: cost, trace_share, gpu_utilisation_mean, gpu_power_mean, ..self.peaks.clone() }
    }

    /// Since the start.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }
}

/// What cannot be measured on this machine, for people. `own_cgroup`: the command has one.
pub fn not_measured(own_cgroup: bool) -> Vec<String> {
    let own = std::process::id();
    let missing = [
        (
            processes::Pages::read(own).is_none(),
            "pages of each process (`smaps_rollup`): shared pages count once for each process",
        ),
        (sources::container().is_none(), "the container: there is no memory cgroup here"),
        (
            !own_cgroup,
            "what the kernel charges to the command: no cgroup could be made for it, so its processes are added up",
        ),
        (sources::oom_kills().is_none(), "kills by the kernel (`oom_kill`)"),
        (sources::pressure().is_none(), "memory pressure (PSI)"),
        (std::fs::read_dir(SHARED_FOLDER).is_err(), "files in /dev/shm"),
        (Gpus::open().is_none(), "memory of GPUs: there is no NVIDIA driver with a GPU here"),
    ];
    missing.into_iter().filter(|(missing, _)| *missing).map(|(_, what)| what.to_owned()).collect()
}

/// What this thread has worked so far.
fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the place lives until the call returns.
    let told = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    let (seconds, rest) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    seconds
        .ok()
        .zip(rest.ok())
        .filter(|_| told == 0)
        .map_or(Duration::ZERO, |(seconds, rest)| Duration::new(seconds, rest))
}

fn microseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
