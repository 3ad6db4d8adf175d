//! The run that samples are of, as far as it is known before them.

use std::collections::BTreeMap;

use crate::axis::Axis;
use crate::judge::Scale;
use crate::sample::Sample;

/// The cap of an owner that has none.
pub const NO_CAP: u64 = i64::MAX as u64;

/// The run that samples are of: its length, its limits, and the owners that were declared.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Context {
    /// Steps that are planned; 0 where nobody knows.
    pub steps: u64,
    /// Steps of an epoch; 0 where there are none.
    pub steps_per_epoch: u64,
    /// Steps after which everything that happens now and then has happened once, such as a checkpoint.
    pub settled: u64,
    /// The most bytes of host memory that the process may use.
    pub host_limit: Option<u64>,
    /// The most bytes of the device's memory that it may use.
    pub device_limit: Option<u64>,
    /// Owners that were declared, by name.
    pub owners: BTreeMap<String, Declared>,
    /// The least growth of bytes that counts; [`BYTES`](crate::BYTES) when absent.
    pub scale: Option<Scale>,
    /// The axis of everything here that is said to be in steps.
    pub axis: Axis,
    /// The length on the axis before which nothing is said.
    pub span_min: u64,
}

/// The cap of an owner, and the memory that it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Declared {
    /// The memory that it is in.
    pub place: Place,
    /// The most bytes that it may hold; [`NO_CAP`] where it may hold any.
    pub cap: u64,
    /// The bytes at which its growth ends at the latest: its cap, or all that there is to hold.
    pub full: u64,
}

/// The memory of the process, or the device's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The memory of the process.
    Host,
    /// The device's own memory.
    Device,
}

impl Declared {
    /// Returns whether anything says that its growth will end, before memory does.
    pub(crate) fn ends(self, context: &Context, room: Option<u64>) -> bool {
        let room = match self.place {
            Place::Host => context.host_limit.into_iter().chain(room).min(),
            Place::Device => context.device_limit,
        };
        self.full < NO_CAP && room.is_none_or(|room| self.full <= room)
    }
}

impl Context {
    /// Bytes of a sample that are in buffers whose growth will end.
    pub(crate) fn capped(&self, sample: &Sample<'_>, place: Place, room: Option<u64>) -> u64 {
        let ends = |owner: &Declared| owner.place == place && owner.ends(self, room);
        let capped = |name: &String| self.owners.get(name).is_some_and(ends);
        sample.owners.into_iter().flatten().filter(|(name, _)| capped(name)).map(|(_, bytes)| bytes).sum()
    }
}
