//! Which limit on memory has a command reached, or will it reach before it could save?

use std::time::{Duration, Instant};

use super::Request;
use super::record::Reached;
use xrun_core::bounded::planned::Place;
use xrun_core::units::{Bytes, Span};
use xrun_results::format::{ContainerMemory, MemoryLine};
use xrun_results::judge::Command as Judged;

/// Time between two looks at the trend, which costs more than a sample.
const TREND_EVERY: Duration = Duration::from_secs(5);
/// Below this share of a limit the trend is not looked at.
const TREND_SHARE: f64 = 0.5;

/// When the trend was looked at.
pub struct Limits {
    trend_looked: Instant,
}

/// A limit, and what counts towards it.
struct Bound {
    /// The option that sets it; `None` for the container's.
    key: Option<&'static str>,
    place: Place,
    limit: u64,
    held: u64,
}

impl Bound {
    fn words(&self) -> String {
        format!("{}, {}", self.key.unwrap_or("the container's limit"), Bytes(self.limit))
    }

    fn memory(&self) -> &'static str {
        match self.place {
            Place::Host => "memory",
            Place::Device => "memory of GPUs",
        }
    }

    fn is_at(&self, share: f64) -> bool {
        self.held as f64 >= share * self.limit as f64
    }
}

impl Limits {
    /// Looks at the trend from now on.
    pub fn new() -> Self {
        Self { trend_looked: Instant::now() }
    }

    /// The first limit that a sample reaches, or that the trend reaches within the time to save.
    pub fn reached(&mut self, request: &Request, line: &MemoryLine, judged: &Judged) -> Option<Reached> {
        let bounds = bounds(request, line);
        let told = |bound: &Bound, message: String| Reached {
            message,
            key: bound.key,
            place: bound.place,
            limit: bound.limit,
            held: bound.held,
            line: line.clone(),
        };
        if let Some(bound) = bounds.iter().find(|bound| bound.is_at(request.at)) {
            let share = 100.0 * request.at;
            let held = Bytes(bound.held);
            let message = format!("{} reached {share:.0} % of {}: {held} are held", bound.memory(), bound.words());
            return Some(told(bound, message));
        }
        let near = bounds.iter().filter(|bound| bound.is_at(TREND_SHARE)).collect::<Vec<_>>();
        if near.is_empty() || self.trend_looked.elapsed() < TREND_EVERY {
            return None;
        }
        self.trend_looked = Instant::now();
        near.into_iter().find_map(|bound| {
            let rate = judged.bytes_per_second(bound.place)?;
            let expected = bound.held as f64 + rate * request.grace.as_secs_f64();
            let message = format!(
                "{} would reach {}, within {}, the time that --grace gives it to save: {} are held, and {} come each second",
                bound.memory(),
                bound.words(),
                Span(request.grace),
                Bytes(bound.held),
                Bytes(rate as u64)
            );
            (rate > 0.0 && expected >= bound.limit as f64).then(|| told(bound, message))
        })
    }
}

/// All that bound it, by a sample.
fn bounds(request: &Request, line: &MemoryLine) -> Vec<Bound> {
    let names = &request.names;
    let on_gpus = line.driver.and_then(|driver| driver.process);
    let device = request.device_memory.zip(on_gpus).map(|(limit, held)| Bound {
        key: Some(names.device_memory),
        place: Place::Device,
        limit,
        held,
    });
    let host = |key, limit, held| Bound { key, place: Place::Host, limit, held };
    let own = request.host_memory.map(|limit| host(Some(names.host_memory), limit, line.host.heap));
    let hard = request.hard_limit.map(|_| names.hard_limit);
    let container = line.container.and_then(|now| Some(host(hard, now.limit?, held_in(line, &now))));
    device.into_iter().chain(own).chain(container).collect()
}

/// What a container holds that its kernel cannot drop. It counts shared memory among files; the command's is known.
pub fn held_in(line: &MemoryLine, container: &ContainerMemory) -> u64 {
    let Some(anonymous) = container.anonymous else { return container.current };
    let shared = line.processes.as_ref().map_or(0, |processes| {
        let mapped: u64 = processes.groups.values().map(|group| group.shared).sum();
        mapped + processes.unmapped_shared.unwrap_or_default()
    });
    (anonymous + shared).min(container.current)
}
