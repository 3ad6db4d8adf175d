//! Memory limits of a command: those it has reached, and those it would reach before it can save.

use std::time::{Duration, Instant};

use super::WatchRequest;
use xrun_core::bounded::planned::MemoryKind;
use xrun_core::units::{Bytes, Span};
use xrun_results::format::{ContainerMemory, MemoryLine};
use xrun_results::judge::CommandJudge;

/// Interval of checks of the trend, which cost more than a sample.
const TREND_INTERVAL: Duration = Duration::from_secs(5);
/// Fraction of a limit from which on the trend is checked.
const TREND_FRACTION: f64 = 0.5;

/// Limit that ended a command.
#[derive(Clone, Debug)]
pub struct CommandLimitReached {
    pub message: String,
    pub limit: LimitUse,
    pub line: MemoryLine,
}

/// Limit, with the memory that counts towards it.
#[derive(Clone, Copy, Debug)]
pub struct LimitUse {
    /// Option that sets it; `None` for the limit of the container.
    pub key: Option<&'static str>,
    pub place: MemoryKind,
    pub limit: u64,
    pub used: u64,
}

impl LimitUse {
    /// `--host-memory, 2.0 GiB`.
    fn label(&self) -> String {
        format!("{}, {}", self.key.unwrap_or("the container's limit"), Bytes(self.limit))
    }

    fn memory(&self) -> &'static str {
        match self.place {
            MemoryKind::Host => "memory",
            MemoryKind::Device => "GPU memory",
        }
    }

    fn is_at(&self, fraction: f64) -> bool {
        self.used as f64 >= fraction * self.limit as f64
    }
}

/// First limit that a sample reaches, or that the trend would reach within the grace period. `trend_checked` is the time of the last
/// check of the trend.
pub fn reached(
    request: &WatchRequest,
    line: &MemoryLine,
    judged: &CommandJudge,
    trend_checked: &mut Instant,
) -> Option<CommandLimitReached> {
    let limits = limits(request, line);
    let reached = |limit: &LimitUse, message| CommandLimitReached { message, limit: *limit, line: line.clone() };
    if let Some(limit) = limits.iter().find(|limit| limit.is_at(request.limit_fraction)) {
        let percent = 100.0 * request.limit_fraction;
        let (memory, used) = (limit.memory(), Bytes(limit.used));
        let message = format!("{memory} reached {percent:.0} % of {}: {used} in use", limit.label());
        return Some(reached(limit, message));
    }
    let near = limits.iter().filter(|limit| limit.is_at(TREND_FRACTION)).collect::<Vec<_>>();
    if near.is_empty() || trend_checked.elapsed() < TREND_INTERVAL {
        return None;
    }
    *trend_checked = Instant::now();
    near.into_iter().find_map(|limit| {
        let rate = judged.bytes_per_second(limit.place)?;
        let expected = limit.used as f64 + rate * request.grace.as_secs_f64();
        let message = format!(
            "{} would reach {} within the grace period of {}: {} in use, growing by {} per second",
            limit.memory(),
            limit.label(),
            Span(request.grace),
            Bytes(limit.used),
            Bytes(rate as u64)
        );
        (rate > 0.0 && expected >= limit.limit as f64).then(|| reached(limit, message))
    })
}

/// Limits of a command, with their use at a sample.
fn limits(request: &WatchRequest, line: &MemoryLine) -> Vec<LimitUse> {
    let names = &request.names;
    let on_gpus = line.driver.and_then(|driver| driver.process);
    let (key, place) = (Some(names.device_memory), MemoryKind::Device);
    let device = request.device_memory.zip(on_gpus).map(|(limit, used)| LimitUse { key, place, limit, used });
    let host = |key, limit, used| LimitUse { key, place: MemoryKind::Host, limit, used };
    let own = request.host_memory.map(|limit| host(Some(names.host_memory), limit, line.host.heap));
    let hard = request.hard_limit.map(|_| names.hard_limit);
    let container = line.container.and_then(|now| Some(host(hard, now.limit?, unreclaimable(line, &now))));
    device.into_iter().chain(own).chain(container).collect()
}

/// Memory of a container that the kernel cannot reclaim. The kernel counts shared memory as files, but that of the command
/// is known.
pub fn unreclaimable(line: &MemoryLine, container: &ContainerMemory) -> u64 {
    let Some(anonymous) = container.anonymous else { return container.current };
    let shared = line.processes.as_ref().map_or(0, |processes| {
        let mapped: u64 = processes.groups.values().map(|group| group.shared).sum();
        mapped + processes.unmapped_shm.unwrap_or_default()
    });
    (anonymous + shared).min(container.current)
}
