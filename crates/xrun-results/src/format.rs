//! Which records stand in a run directory, and which version is each?
//!
//! A reader accepts its own version and refuses a newer one by name. Sizes are integer bytes; what could not be
//! measured is `null`, never 0. Each record has a schema in `schemas/`, generated from these types.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::loss::KindLoss;
pub use super::need::*;
pub use super::outcome::Outcome;
use super::process::SlurmJob;
pub use super::sample::*;
pub use super::state::*;
use super::watched::Watched;
use xrun_core::bounded::ledger::Policy;
use xrun_core::bounded::planned::PlannedOwner;
use xrun_core::task::metric::{Interval, PlannedMetric};
use xrun_core::task::smaller::Smaller;

/// The version of every record below. One number while the format is young.
pub const VERSION: u32 = 1;

/// Characters of its command that a watched run has for a description.
pub const DESCRIPTION_CHARACTERS_MAX: usize = 400;

/// `manifest.json`: what ran, where, on what. Written at the start, and again by each resume.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Manifest {
    /// The version of this record's format.
    pub version: u32,
    /// The experiment's name.
    pub experiment: String,
    /// What its author says that it is about; may be empty.
    pub description: String,
    /// The run's id: the name of its folder.
    pub run: String,
    /// SHA-256 over the resolved experiment without what changes no number, the data's digests, the code's version,
    /// sources and lock file.
    pub fingerprint: String,
    /// `experiment.seed`: all random numbers of the run follow from it.
    pub seed: u32,
    /// The command as it was typed, one entry a word, with `***` for what looks like a secret.
    pub command: Vec<String>,
    /// The absolute folder that the command was called in.
    pub working_directory: String,
    /// RFC 3339, UTC.
    pub started: String,
    /// Times of later resumes.
    pub resumed: Vec<String>,
    /// The command of each of them, as it was typed, one entry a word.
    pub resume_commands: Vec<Vec<String>>,
    /// The program that ran.
    pub code: Code,
    /// The machine that it ran on.
    pub host: Host,
    /// Where its tensors were.
    pub device: Device,
    /// Digest of each data set by name.
    pub data: BTreeMap<String, String>,
    /// What was left out of the data, by reason.
    pub data_skipped: BTreeMap<String, u64>,
    /// What is smaller than the experiment asks, since the data is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub smaller: Vec<Smaller>,
    /// The Slurm job that began it; absent outside of Slurm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slurm: Option<SlurmJob>,
    /// Where each value of the experiment came from.
    pub origins: BTreeMap<String, String>,
    /// Of a command that `xrun watch` ran: what was asked for; absent of an experiment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watched: Option<Watched>,
    /// The step after which the newest process was to stop (`--until`); absent where it was to do all steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<u64>,
}

impl Manifest {
    /// The run that its checkpoints belong to. The name of its folder alone is not enough: two experiments that differ in
    /// nothing but their names may begin in the same second.
    pub fn whose(&self) -> String {
        format!("{}/{}", self.experiment, self.run)
    }
}

/// The program that ran.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Code {
    /// The version of xrun.
    pub xrun: String,
    /// Of the working directory, if it is a git checkout.
    pub git_commit: Option<String>,
    /// The uncommitted changes, at most 1 MiB of them, with `***` for what looks like a secret.
    pub git_patch: Option<String>,
    /// For people: what of the changes is not in the patch, and why; absent where all are, or none were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git_left_out: Option<String>,
    /// Features that it was built with: `train`, `cuda`, `vulkan`.
    pub features: Vec<String>,
    /// SHA-256 of the lock file that the program was built from.
    pub lock_digest: String,
    /// SHA-256 of the sources that the program was built from.
    pub source_digest: Option<String>,
    /// The commit that the program was built from; `null` also when it was built without git.
    pub built_commit: Option<String>,
    /// Whether the sources differed from that commit.
    pub built_with_changes: Option<bool>,
}

/// The machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Host {
    /// The name that the machine gives itself.
    pub name: String,
    /// The system and the version of its kernel, such as `linux 6.8.0`.
    pub system: String,
    /// The processor's model, as the system names it.
    pub processor: String,
    /// What of it decides how sums are rounded, such as `fma avx2 avx512f`.
    pub instruction_sets: String,
    /// Threads that the process may use at once.
    pub cores: u64,
    /// Bytes of memory of the whole machine; `null` where the system does not tell.
    pub memory: Option<u64>,
    /// The container's limit, when there is one.
    pub memory_limit: Option<u64>,
}

/// Where tensors live.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Device {
    /// `cpu`, `cuda:0`, …, as chosen.
    pub chosen: String,
    /// Why, when the file said `auto`.
    pub because: String,
    /// What the device calls itself: the processor's model, the GPU's name.
    pub name: String,
    /// The version of the GPU's driver; `null` on the CPU.
    pub driver: Option<String>,
    /// Bytes of the device's own memory; `null` where it has none, or does not tell.
    pub memory: Option<u64>,
    /// NVIDIA's, as `9.0`; `null` on other devices.
    pub compute_capability: Option<String>,
    /// How 32-bit floats are multiplied: `float32`, or `tf32` where the device may round them to ten bits of mantissa.
    pub float32_products: Option<String>,
    /// The version of the LLVM that made CUDA's kernels; `null` on other devices.
    pub llvm: Option<String>,
    /// The kernels of fused operations on the CPU, `fused` or `plain`; `null` on other devices.
    pub cpu_kernels: Option<String>,
}

/// `plan.json`: what was to happen, and who may hold how much.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlanFile {
    /// The version of this record's format.
    pub version: u32,
    /// Epochs that the experiment asks for; `training.max_steps` may end the run before.
    pub epochs: u64,
    /// Optimiser steps in an epoch.
    pub steps_per_epoch: u64,
    /// 0 where nobody knows, as of a command.
    pub steps: u64,
    /// Validations in all, that of the untrained model included.
    pub validations: u64,
    /// Parameters of the model: how many numbers.
    pub parameters: u64,
    /// Of them, those that have a gradient and an optimiser's state, in the phase that has most of them; `null` for all.
    pub trained_parameters: Option<u64>,
    /// Every buffer of the run, sorted by name.
    pub owners: Vec<PlannedOwner>,
    /// The validation metrics that the pipeline may report, in the order in which they are shown.
    pub metrics: Vec<PlannedMetric>,
    /// The one by which a checkpoint is best; `null` where there is none.
    pub best_by: Option<String>,
    /// What the pictures of a validation show, for people.
    pub pictures: String,
    /// Values of a training step whose numbers say which stage of the training it is in, such as a round and a local epoch;
    /// memory is shown by stage.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<String>,
    /// What memory the run was expected to need; `null` where nothing was measured before it.
    pub forecast: Option<Forecast>,
    /// What is smaller than the experiment asks, since the data is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub smaller: Vec<Smaller>,
}

/// A line of `metrics.jsonl`. No clock is in it: the same experiment gives the same bytes on the same machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum MetricsLine {
    /// A training step.
    Train {
        /// From 1.
        step: u64,
        /// From 1.
        epoch: u64,
        /// What kind of step it was.
        batch: String,
        /// The loss that was minimised.
        loss: f64,
        /// `null` where a watched command does not tell it.
        learning_rate: Option<f64>,
        /// The norm over all gradients before clipping; `null` where it was not computed.
        gradient_norm: Option<f64>,
        /// Median over `limits.gradient_norm_window` steps.
        gradient_norm_median: Option<f64>,
        /// Parts of the loss and other numbers of the step, by name.
        values: BTreeMap<String, f64>,
    },
    /// A validation.
    Validation {
        /// Steps done before it; 0 is the untrained model.
        step: u64,
        /// The epoch of that step; 0 for the untrained model.
        epoch: u64,
        /// Each metric by its name; `null` where it cannot be measured on this data.
        metrics: BTreeMap<String, Option<f64>>,
        /// Of those metrics that are means over episodes; left out where there are none.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        intervals: BTreeMap<String, Interval>,
    },
}

impl PlanFile {
    /// How many steps there will be, where that is known.
    pub fn steps_known(&self) -> Option<u64> {
        Some(self.steps).filter(|steps| *steps > 0)
    }
}

impl MetricsLine {
    /// The step that the line is of; of a validation, the steps done before it.
    pub fn step(&self) -> u64 {
        match self {
            Self::Train { step, .. } | Self::Validation { step, .. } => *step,
        }
    }
}

/// `summary.json`: how the run ended and what came out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Summary {
    /// The version of this record's format.
    pub version: u32,
    /// The experiment's name.
    pub experiment: String,
    /// The run's id: the name of its folder.
    pub run: String,
    /// How the run ended.
    pub outcome: Outcome,
    /// The data could not be used: when they are mended they are other data, and this run is not resumed with them.
    pub of_data: bool,
    /// For people: why it ended.
    pub message: String,
    /// The code that the process exited with.
    pub exit_code: u8,
    /// When it ended: RFC 3339, UTC.
    pub finished: String,
    /// Seconds of all processes that worked on it, without the pauses between them.
    pub seconds: f64,
    /// Optimiser steps done, those before a resume included.
    pub steps: u64,
    /// Optimiser steps that were planned; 0 where nobody knew.
    pub steps_planned: u64,
    /// Steps done over the steps of an epoch: 2.5 is halfway through the third.
    pub epochs: f64,
    /// Steps a second within the training parts.
    pub steps_per_second: Option<f64>,
    /// Images, sequences or clips a second within the training parts; `null` where there were none.
    pub items_per_second: Option<f64>,
    /// Of the first step and of the last one, whatever kinds of steps they were: not to be compared.
    pub loss_first: Option<f64>,
    /// The loss of the last step; `null` where there was none.
    pub loss_last: Option<f64>,
    /// The loss of each kind of step.
    pub losses: Vec<KindLoss>,
    /// The validation before the first step.
    pub metrics_first: BTreeMap<String, Option<f64>>,
    /// The last validation after a step; empty where there was none.
    pub metrics_last: BTreeMap<String, Option<f64>>,
    /// Its 95 % intervals, of those metrics that are means over episodes.
    pub intervals_last: BTreeMap<String, Interval>,
    /// The checkpoint with the best validation; `null` where there is none.
    pub best: Option<Best>,
    /// The step of the best checkpoint, where later ones were removed for it to be the newest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restored: Option<u64>,
    /// The highest that memory was.
    pub memory: MemorySummary,
    /// What each part of this process needed.
    pub demand: Demand,
    /// The forecast beside what came of it; empty where there was no forecast.
    pub plan_and_actual: Vec<PlannedAndActual>,
    /// Planned cap and highest level of each owner, side by side.
    pub owners: Vec<OwnerSummary>,
    /// Time by part of the loop, longest first.
    pub phases: Vec<PhaseSummary>,
    /// What the task counted, such as hits of a cache, by name.
    pub counters: BTreeMap<String, u64>,
}

/// Peaks over all samples of all processes of the run, in bytes; the rest is of the newest process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MemorySummary {
    /// The highest that heap in use was.
    pub heap_peak: u64,
    /// Heap in use at the last sample.
    pub heap_at_end: u64,
    /// The highest that resident memory was; `null` where the system does not tell.
    pub resident_peak: Option<u64>,
    /// The highest that live tensors on the device took; `null` where there is no pool to ask.
    pub device_in_use_peak: Option<u64>,
    /// The highest that the pool had taken from the driver; `null` where there is no pool to ask.
    pub device_reserved_peak: Option<u64>,
    /// Percent of the time in which the GPU ran kernels of anybody, the mean of the samples that have it; absent where none
    /// has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_utilisation_mean: Option<f64>,
    /// Watts that the GPU took, in the same way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_power_mean: Option<f64>,
    /// Samples of memory that were taken.
    pub samples: u64,
    /// All that the samples cost, and its share of the time of the steps.
    pub trace_seconds: f64,
    /// That time over the time of the training parts; `null` where there were none.
    pub trace_share: Option<f64>,
}

/// One owner: what it might hold and what it came to hold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OwnerSummary {
    /// The owner's name in the ledger.
    pub name: String,
    /// What happens when it is full.
    pub policy: Policy,
    /// The most items that it was allowed.
    pub cap_items: u64,
    /// The most bytes that it was allowed.
    pub cap_bytes: u64,
    /// The most items that it held.
    pub peak_items: u64,
    /// The most bytes that it held.
    pub peak_bytes: u64,
}

/// One part of the loop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PhaseSummary {
    /// Such as `forward`, `validation` or `cleanup`.
    pub name: String,
    /// How often it was entered.
    pub count: u64,
    /// Seconds in all.
    pub seconds: f64,
    /// Seconds of the longest time.
    pub longest: f64,
}

/// `pictures/index.json`: what there is to be seen of the last validation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pictures {
    /// The version of this record's format.
    pub version: u32,
    /// One for each file, in the order in which they are shown.
    pub pictures: Vec<PictureEntry>,
}

/// An entry of `pictures/index.json`: a picture of the last validation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PictureEntry {
    /// In the same folder.
    pub file: String,
    /// What is to be seen.
    pub caption: String,
}
