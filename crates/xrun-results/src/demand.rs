//! Memory demand of a run: the forecast, the measured demand of each part, and the post-mortem of a memory limit.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::durations::{DurationForecast, Durations};
use super::format::{MemoryLine, OwnerSummary};
use super::verdict::VerdictWord;
use xrun_core::bounded::ledger::Policy;
use xrun_core::bounded::planned::MemoryKind;

/// Memory forecast of a run, from known sizes and from a probe: some steps in a separate process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Forecast {
    /// Number of steps of the probe.
    pub probe_steps: u64,
    /// Components of the forecast.
    pub rows: Vec<ForecastRow>,
    /// Peak of the heap in use, in bytes.
    pub heap_peak: u64,
    /// Peak RSS in bytes; `null` if the system does not report it.
    pub rss_peak: Option<u64>,
    /// Peak of live tensors between steps, in bytes: weights, optimiser state and saved tensors. The working memory
    /// of a step is part of the pool.
    pub device_in_use_peak: Option<u64>,
    /// Peak of the training thread's memory pool, in bytes reserved from the driver.
    pub device_reserved_peak: Option<u64>,
    /// Peak of the process on the device in bytes: pool, context, modules, other streams, and a margin of 5 %.
    pub device_peak: Option<u64>,
    /// Minimum that each buffer held between steps of the probe, in bytes. Only buffers that a later step cannot fill
    /// are listed: no queues, caches and leaks.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub floors: BTreeMap<String, u64>,
    /// Duration of the run; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<DurationForecast>,
    /// Durations in the probe, from which `duration` follows; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe_durations: Option<Durations>,
}

/// A component of a forecast.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ForecastRow {
    /// Name of a buffer in the ledger, or of a component such as `weights`, `activations` or `program`.
    pub name: String,
    /// Host or device memory.
    pub place: MemoryKind,
    /// Peak in bytes.
    pub bytes: u64,
    /// Source of the number.
    pub basis: Basis,
    /// Description for people.
    pub about: String,
}

/// Source of a number of a forecast.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// Computed from known sizes.
    Sizes,
    /// The cap of a buffer that will fill up.
    Cap,
    /// Measured in a probe.
    Probe,
    /// Growth per step, validation or epoch measured in a probe, times their number.
    Growth,
}

/// Forecast and measured memory of one component.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedAndActual {
    /// Name of a component of the forecast, or of a peak.
    pub name: String,
    /// Forecast in bytes.
    pub planned: u64,
    /// Measured bytes.
    pub actual: u64,
    /// Relative error, planned / actual - 1; `null` if nothing was needed.
    pub error: Option<f64>,
}

/// Measured memory demand of a run by part, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Demand {
    /// Number of training steps done.
    pub steps: u64,
    /// Number of validations done.
    pub validations: u64,
    /// Number of episodes of all validations.
    pub episodes: u64,
    /// Peak of the heap in use.
    pub heap_peak: u64,
    /// Peak of the heap in use without injected leaks: the peak of each part minus what the leaks held before it.
    pub heap_peak_beside_leaks: u64,
    /// Heap in use at the first sample.
    pub heap_at_start: u64,
    /// Part of `heap_at_start` that is in the ledger.
    pub owners_at_start: u64,
    /// Memory outside the ledger that the first step left allocated: optimiser state and caches of libraries.
    pub kept_by_first_step: u64,
    /// Working memory of a training step: gradients, activations, temporary tensors.
    pub step: u64,
    /// Working memory of a training step of each kind, of the steps after which memory was sampled.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub step_kinds: BTreeMap<String, u64>,
    /// Working memory of a validation.
    pub validation: u64,
    /// Largest change of the heap in use from before a validation to after it, of all but the first; `null` if there was one.
    #[serde(default)]
    pub validation_left: Option<i64>,
    /// Working memory of writing a checkpoint.
    pub checkpoint: u64,
    /// Working memory of reading a checkpoint, as a resume does before its first step; 0 where none was read.
    pub load: u64,
    /// Peak RSS; `null` if the system does not report it.
    pub rss_peak: Option<u64>,
    /// Live tensors on the device at the first sample; `null` if there is no memory pool.
    pub device_in_use_at_start: Option<u64>,
    /// Peak of live tensors on the device at sample points.
    pub device_in_use_peak: Option<u64>,
    /// Peak of the pool's reserved memory at sample points; `null` if there is no memory pool.
    pub device_reserved_peak: Option<u64>,
    /// Device memory of the process outside the pool of the training thread: context, code and pools of other
    /// streams. `null` if the driver does not report it.
    pub device_beside_pool: Option<u64>,
    /// Pool memory reserved after the newest sampled step.
    pub device_newest_step: Option<u64>,
    /// Demand of each owner in the ledger, by name.
    pub owners: BTreeMap<String, OwnerDemand>,
}

/// `post_mortem.json`: how a memory limit ended the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PostMortem {
    /// The version of this record's format.
    pub version: u32,
    /// Number of optimiser steps done.
    pub step: u64,
    /// The limit and what reached it, as a sentence for people.
    pub message: String,
    /// Key that sets the limit; `null` for the container's limit and for a device out of memory.
    pub limit_key: Option<String>,
    /// Host or device.
    pub place: MemoryKind,
    /// The limit, in bytes.
    pub limit: u64,
    /// Bytes held, forecast for the next step, or held and requested together.
    pub held: u64,
    /// Suggested changes, by estimate. For growing memory no higher limit is suggested: it would only be reached
    /// later.
    pub suggestions: Vec<Suggestion>,
    /// Memory in use outside all buffers, on the host or the device, whichever has the limit.
    pub unattributed: u64,
    /// Growth before the limit; `null` if memory was not seen to grow.
    pub growth: Option<GrowthToLimit>,
    /// Sample at which the run ended.
    pub sample: MemoryLine,
    /// Owners, the largest first.
    pub owners: Vec<OwnerSummary>,
    /// Demand of each part of the run until then.
    pub demand: Demand,
    /// Newest samples before the end.
    pub samples: Vec<MemoryLine>,
}

/// Growth of memory up to the limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GrowthToLimit {
    /// Verdict at the end.
    pub verdict: VerdictWord,
    /// The verdict as a sentence, for people.
    pub message: String,
    /// Slope in bytes per step, of the heap or of device memory in use.
    pub slope: Option<f64>,
    /// Buffer that explains the growth; `null` if none does.
    pub owner: Option<String>,
}

/// A value of a key with which the run would fit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Suggestion {
    /// Dotted key, such as `limits.batch_size`.
    pub key: String,
    /// Value as it is written in the file.
    pub value: String,
    /// Estimated number of bytes freed.
    pub frees: u64,
}

/// Peak and minimum of one owner.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OwnerDemand {
    /// Peak in bytes.
    pub peak: u64,
    /// Minimum between steps in bytes, without the first step; `null` if there was no sample.
    pub floor: Option<u64>,
    /// Policy at the cap.
    pub policy: Policy,
}
