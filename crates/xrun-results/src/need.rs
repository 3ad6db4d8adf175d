//! What memory does a run need: what the plan expects, what each part came to need, and why a limit ended it?

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::format::{MemoryLine, OwnerSummary};
use super::verdict::Judgement;
use xrun_core::bounded::ledger::Policy;
use xrun_core::bounded::planned::Place;

/// What a run will need, from sizes that are known and from a probe: some steps in a process of its own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Forecast {
    /// Steps of the probe.
    pub probe_steps: u64,
    /// The parts of it.
    pub rows: Vec<ForecastRow>,
    /// The most that heap in use will be, in bytes.
    pub heap_peak: u64,
    /// The most that resident memory will be, in bytes; `null` where the system does not tell.
    pub resident_peak: Option<u64>,
    /// The most that tensors hold at rest, between steps: weights, the optimiser's state, and what is kept. What a step needs
    /// on top is in the pool's pages.
    pub device_in_use_peak: Option<u64>,
    /// The most that the pool of the training thread takes from the driver.
    pub device_reserved_peak: Option<u64>,
    /// The most that the process takes of the device: pages, context, modules, other streams, and a twentieth on top.
    pub device_peak: Option<u64>,
    /// The least that each buffer held at rest after a step of the probe, in bytes; of those alone that a later step cannot fill:
    /// not of queues, caches and leaks.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub floors: BTreeMap<String, u64>,
    /// What the results will take of the disk; `null` where that is not known.
    pub disk: Option<DiskForecast>,
}

/// What the results of a run will take of the disk at most, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DiskForecast {
    /// One checkpoint.
    pub checkpoint: u64,
    /// So many are there at once: those that are kept, and one that is being written.
    pub checkpoints: u64,
    /// `memory.jsonl` and `metrics.jsonl`.
    pub trace: u64,
    /// Everything else, as the probe left it.
    pub rest: u64,
    /// All of it: so many checkpoints, and the rest.
    pub in_all: u64,
}

/// What a probe left on the disk, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DiskDemand {
    /// The largest checkpoint.
    pub checkpoint: u64,
    /// A line of `memory.jsonl`, in the mean.
    pub sample: u64,
    /// A line of `metrics.jsonl`, in the mean.
    pub metrics_line: u64,
    /// Everything else.
    pub rest: u64,
}

/// One part of a forecast.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ForecastRow {
    /// A buffer's name in the ledger, or such as `weights`, `activations` or `program`.
    pub name: String,
    /// The memory that it is in.
    pub place: Place,
    /// How much it will hold at its highest, in bytes.
    pub bytes: u64,
    /// What the number was taken from.
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
    /// Measured in a probe as growth a step, a validation or an epoch, times as many as the run has.
    Growth,
}

/// A part of the forecast beside what it came to be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedAndActual {
    /// The part's name: that of a row of the forecast, or of a peak.
    pub name: String,
    /// Bytes that were expected.
    pub planned: u64,
    /// Bytes that were needed.
    pub actual: u64,
    /// Planned over actual, less one; `null` where nothing was needed.
    pub error: Option<f64>,
}

/// What a run needed by part, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Demand {
    /// Training steps that were done.
    pub steps: u64,
    /// Validations that were done.
    pub validations: u64,
    /// Episodes of all validations.
    pub episodes: u64,
    /// The highest that heap in use was.
    pub heap_peak: u64,
    /// The same without what leaks held: the highest of each part less what they held before it.
    pub heap_peak_beside_leaks: u64,
    /// Heap in use at the first sample.
    pub heap_at_start: u64,
    /// Of it, in the ledger.
    pub owners_at_start: u64,
    /// What the first step left behind outside the ledger: the optimiser's state, and what libraries keep.
    pub kept_by_first_step: u64,
    /// Working memory of a training step: gradients, activations, temporary tensors.
    pub step: u64,
    /// Working memory of a validation.
    pub validation: u64,
    /// Working memory of writing a checkpoint.
    pub checkpoint: u64,
    /// Working memory of reading a checkpoint, as a resume does before its first step; 0 where none was read.
    pub load: u64,
    /// The highest that resident memory was; `null` where the system does not tell.
    pub resident_peak: Option<u64>,
    /// What live tensors took on the device at the first sample; `null` where there is no pool to ask.
    pub device_in_use_at_start: Option<u64>,
    /// At rest points.
    pub device_in_use_peak: Option<u64>,
    /// The most that the pool had taken from the driver at rest points; `null` where there is no pool to ask.
    pub device_reserved_peak: Option<u64>,
    /// What the process has on the device besides the pool of the training thread: the driver's context, code, pools of
    /// other streams. `null` where the driver does not tell.
    pub device_beside_pool: Option<u64>,
    /// What the pool had reserved after the first step or the first validation, when operations had been tuned; it was given
    /// back then.
    pub device_tuning_peak: Option<u64>,
    /// What the pool had reserved after the newest step that was sampled.
    pub device_newest_step: Option<u64>,
    /// What each owner in the ledger held, by its name.
    pub owners: BTreeMap<String, OwnerDemand>,
}

/// `post_mortem.json`: a memory limit ended the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PostMortem {
    /// The version of this record's format.
    pub version: u32,
    /// Optimiser steps done.
    pub step: u64,
    /// A sentence for people: which limit was reached, and by what.
    pub message: String,
    /// The key that sets the limit; `null` for the container's, and for a device that had no memory to give.
    pub limit_key: Option<String>,
    /// Where the limit is.
    pub place: Place,
    /// The limit, in bytes.
    pub limit: u64,
    /// What was held, what the next step would have held, or what was held and asked for.
    pub held: u64,
    /// What would help; estimates. Of memory that grows no higher limit: it would be reached later.
    pub suggestions: Vec<Suggestion>,
    /// What was in use where the limit is, on the host or on the device, and in no buffer.
    pub in_no_buffer: u64,
    /// `null` when memory was not seen to grow.
    pub growth: Option<GrowthToLimit>,
    /// The sample at which it ended.
    pub sample: MemoryLine,
    /// Who held most then comes first.
    pub owners: Vec<OwnerSummary>,
    /// What each part of the run needed until then.
    pub demand: Demand,
    /// The newest samples before it.
    pub samples: Vec<MemoryLine>,
}

/// How memory grew until the limit was reached.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GrowthToLimit {
    /// The verdict at that moment.
    pub verdict: Judgement,
    /// The verdict's sentence.
    pub message: String,
    /// Bytes a step, of heap or of device memory in use.
    pub slope: Option<f64>,
    /// The buffer that explains it; `null` when none does.
    pub owner: Option<String>,
}

/// A value of a key with which the run would fit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Suggestion {
    /// The dotted key, such as `limits.batch_size`.
    pub key: String,
    /// As it is written in the file.
    pub value: String,
    /// Bytes that it frees, by estimate.
    pub frees: u64,
}

/// What an owner held at its highest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OwnerDemand {
    /// Bytes at its highest.
    pub peak: u64,
    /// The least that it held at rest after a step, the first left out; `null` where none was sampled.
    pub floor: Option<u64>,
    /// What happens when it is full.
    pub policy: Policy,
}
