//! What memory does a run need: what the plan expects, what each part came to need, and why a limit ended it?

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::format::{MemoryLine, OwnerSummary, Place};
use crate::memory::ledger::Policy;

/// What a run will need, from sizes that are known and from a probe: some steps in a process of its own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Forecast {
    /// Steps of the probe.
    pub probe_steps: u64,
    pub rows: Vec<ForecastRow>,
    /// The most that heap in use will be, in bytes.
    pub heap_peak: u64,
    pub resident_peak: Option<u64>,
    pub device_in_use_peak: Option<u64>,
    pub device_reserved_peak: Option<u64>,
}

/// One part of a forecast.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ForecastRow {
    pub name: String,
    pub place: Place,
    pub bytes: u64,
    pub basis: Basis,
    /// What it is.
    pub about: String,
}

/// Where a number of a forecast comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// Computed from sizes.
    Sizes,
    /// The cap of a buffer that will be full.
    Cap,
    /// Measured in a probe.
    Probe,
    /// Measured in a probe as growth a step, times the steps.
    Growth,
}

/// A part of the forecast beside what it came to be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedAndActual {
    pub name: String,
    pub planned: u64,
    pub actual: u64,
    /// Planned over actual, less one; `null` where nothing was needed.
    pub error: Option<f64>,
}

/// What a run needed by part, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Demand {
    pub steps: u64,
    pub heap_peak: u64,
    pub heap_at_start: u64,
    /// Of it, in the ledger.
    pub owners_at_start: u64,
    /// What the first step left behind outside the ledger: the optimiser's state, and what libraries keep.
    pub kept_by_first_step: u64,
    /// Working memory of a training step: gradients, activations, temporary tensors.
    pub step: u64,
    pub validation: u64,
    pub checkpoint: u64,
    pub resident_peak: Option<u64>,
    pub device_in_use_at_start: Option<u64>,
    pub device_in_use_peak: Option<u64>,
    pub device_reserved_peak: Option<u64>,
    pub owners: BTreeMap<String, OwnerDemand>,
}

/// `post_mortem.json`: a memory limit ended the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PostMortem {
    pub version: u32,
    pub step: u64,
    pub message: String,
    /// The key that sets the limit; `null` for the container's.
    pub limit_key: Option<String>,
    pub limit: u64,
    /// What was held, or what the next step would have held.
    pub held: u64,
    /// What would help; estimates.
    pub suggestions: Vec<Suggestion>,
    /// The sample at which it ended.
    pub sample: MemoryLine,
    /// Who held most then comes first.
    pub owners: Vec<OwnerSummary>,
    pub demand: Demand,
    /// The newest samples before it.
    pub samples: Vec<MemoryLine>,
}

/// A value of a key with which the run would fit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Suggestion {
    pub key: String,
    /// As it is written in the file.
    pub value: String,
    /// Bytes that it frees, by estimate.
    pub frees: u64,
}

/// What an owner held at its highest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OwnerDemand {
    pub peak: u64,
    pub policy: Policy,
}
