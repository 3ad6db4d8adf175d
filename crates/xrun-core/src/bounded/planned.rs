//! Buffers as `plan.json` lists them before the run.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::buffer::{Buffer, BufferSet};
use super::leak_growth::LeakGrowth;
use super::ledger::Policy;
use crate::settings::rung::Rung;

/// Planned buffer with its cap.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedBuffer {
    /// Name of the owner in the ledger; unique in a run.
    pub name: String,
    /// Memory that the buffer is in.
    pub place: MemoryKind,
    /// Behaviour when it is full.
    pub policy: Policy,
    /// Maximum number of items.
    pub items: u64,
    /// Maximum number of bytes.
    pub bytes: u64,
    /// Dotted key of the experiment that sets the cap; `null` where the cap follows from several keys or from the data, and
    /// where there is no cap.
    pub key: Option<String>,
    /// Origin of the cap, human-readable: the key, or a derivation.
    pub because: String,
    /// Bytes of everything that could ever be put into the buffer, where known; may be less than the cap.
    pub working_set_bytes: Option<u64>,
    /// Expected contents of a leak at the end of the run, as far as known beforehand; `null` for a buffer with a cap.
    pub leak_growth: Option<LeakGrowth>,
    /// Rung of `limits.on_pressure` that makes the buffer smaller; absent if none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rung: Option<Rung>,
}

impl From<&Buffer> for PlannedBuffer {
    /// A buffer in host memory.
    fn from(buffer: &Buffer) -> Self {
        Self {
            name: buffer.name.to_owned(),
            place: MemoryKind::Host,
            policy: buffer.policy,
            items: buffer.cap.items,
            bytes: buffer.cap.bytes,
            key: buffer.key.as_deref().map(str::to_owned),
            because: buffer.because.clone(),
            working_set_bytes: buffer.working_set_bytes,
            leak_growth: None,
            rung: buffer.rung,
        }
    }
}

impl PlannedBuffer {
    /// Buffers of several components, in host memory.
    pub fn all(components: &[&dyn BufferSet]) -> Vec<Self> {
        components.iter().flat_map(|component| component.all()).map(Self::from).collect()
    }

    /// Bytes when full: the cap, or the size of everything to be put in if that is less.
    pub fn full(&self) -> u64 {
        self.working_set_bytes.map_or(self.bytes, |bytes| bytes.min(self.bytes))
    }
}

/// Memory that a buffer is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MemoryKind {
    /// Memory of the process.
    Host,
    /// Memory of the device.
    Device,
}
