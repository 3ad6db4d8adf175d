//! Facts about a run that are known before its samples: length, limits, declared owners.

use std::collections::BTreeMap;

use crate::axis::Axis;
use crate::sample::Sample;
use crate::thresholds::Thresholds;

/// Cap of an owner without one.
pub const NO_CAP: u64 = i64::MAX as u64;

/// Facts about a run that are known before its samples: its length, its limits, and its declared owners.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Context {
    /// Planned steps; 0 where unknown.
    pub steps: u64,
    /// Steps in an epoch; 0 where there are no epochs.
    pub steps_per_epoch: u64,
    /// Steps after which each periodic action, such as a checkpoint, has happened once; the warm-up is no shorter.
    pub settled: u64,
    /// Limit on host memory of the process, in bytes.
    pub host_limit: Option<u64>,
    /// Limit on device memory of the process, in bytes.
    pub device_limit: Option<u64>,
    /// Declared owners, by name.
    pub owners: BTreeMap<String, DeclaredOwner>,
    /// Growth from which on bytes count as growing; [`BYTES`](crate::BYTES) when absent.
    pub thresholds: Option<Thresholds>,
    /// Unit of all fields that are in steps.
    pub axis: Axis,
    /// Length on the axis below which every verdict is `inconclusive`.
    pub span_min: u64,
    /// True if the series are columns of a table: each counts, whatever its name.
    pub columns: bool,
}

/// Declaration of an owner: its cap, and the memory that it lives in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeclaredOwner {
    /// Memory that the owner lives in.
    pub memory: MemoryKind,
    /// Cap in bytes; [`NO_CAP`] without one.
    pub cap: u64,
    /// Bytes at which its growth ends at the latest: its cap, or the size of everything it could hold.
    pub full: u64,
}

/// Memory of the process, or of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryKind {
    /// Memory of the process.
    Host,
    /// Memory of the device.
    Device,
}

impl DeclaredOwner {
    /// Returns whether its growth will end before the memory limit is reached.
    pub(crate) fn growth_ends(self, context: &Context, budget: Option<u64>) -> bool {
        let budget = match self.memory {
            MemoryKind::Host => context.host_limit.into_iter().chain(budget).min(),
            MemoryKind::Device => context.device_limit,
        };
        self.full < NO_CAP && budget.is_none_or(|budget| self.full <= budget)
    }
}

impl Context {
    /// Bytes of a sample that are held by owners whose growth will end.
    pub(crate) fn bytes_in_capped(&self, sample: &Sample<'_>, memory: MemoryKind, budget: Option<u64>) -> u64 {
        let will_end = |owner: &DeclaredOwner| owner.memory == memory && owner.growth_ends(self, budget);
        let capped = |name: &String| self.owners.get(name).is_some_and(will_end);
        sample.owners.into_iter().flatten().filter(|(name, _)| capped(name)).map(|(_, bytes)| bytes).sum()
    }
}
