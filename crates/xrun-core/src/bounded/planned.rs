//! A buffer as a plan states it, before the run.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::buffer::Buffer;
use super::growth::Keeps;
use super::ledger::Policy;

/// One line of the plan: a buffer and its cap.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedOwner {
    /// The owner's name in the ledger; unique in a run.
    pub name: String,
    /// The memory that it is in.
    pub place: Place,
    /// The policy when it is full.
    pub policy: Policy,
    /// The most items that it may hold.
    pub items: u64,
    /// The most bytes that it may hold.
    pub bytes: u64,
    /// The dotted key of the experiment that sets its cap; `null` where it follows from several or from the data, and of
    /// what has no cap.
    pub key: Option<String>,
    /// The key that sets it, or how it follows; for people.
    pub because: String,
    /// Bytes of all that it could ever be asked to hold, where that is known and may be less than the cap.
    pub fills: Option<u64>,
    /// Bytes that a leak will have kept when the run ends, as far as that is known beforehand; `null` of what has a cap.
    pub keeps: Option<Keeps>,
}

impl From<&Buffer> for PlannedOwner {
    /// In the memory of the process.
    fn from(buffer: &Buffer) -> Self {
        Self {
            name: buffer.name.to_owned(),
            place: Place::Host,
            policy: buffer.policy,
            items: buffer.cap.items,
            bytes: buffer.cap.bytes,
            key: buffer.key.as_deref().map(str::to_owned),
            because: buffer.because.clone(),
            fills: buffer.fills,
            keeps: None,
        }
    }
}

impl PlannedOwner {
    /// Bytes that it holds when it is full: its cap, or all that there is to hold.
    pub fn full(&self) -> u64 {
        self.fills.map_or(self.bytes, |fills| fills.min(self.bytes))
    }
}

/// The memory that a buffer is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// The memory of the process.
    Host,
    /// The device's own memory.
    Device,
}
