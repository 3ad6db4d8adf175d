//! Records of a run directory and the version of their format.
//!
//! A reader accepts its own version and rejects newer ones. Sizes are integer bytes; a value that could not be
//! measured is `null`, never 0. Each record has a JSON Schema in `schemas/`, generated from these types.

use std::collections::BTreeMap;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use super::demand::*;
use super::durations::Durations;
use super::loss::KindLoss;
pub use super::outcome::Outcome;
use super::process::SlurmJob;
pub use super::sample::*;
pub use super::state::*;
use super::verdict::TrainingVerdict;
use super::watched::WatchSettings;
use xrun_core::bounded::ledger::{OwnerSnapshot, Policy};
use xrun_core::bounded::planned::PlannedBuffer;
use xrun_core::settings::rung::{Bits, Rung};
use xrun_core::task::confusion::ClassResult;
use xrun_core::task::lowered::LoweredSetting;
use xrun_core::task::metric::{Interval, PlannedMetric};

/// Version of every record below.
pub const VERSION: u32 = 1;

/// Maximum number of characters of the command in the description of a watched run.
pub const DESCRIPTION_CHARACTERS_MAX: usize = 400;

/// `manifest.json`: what ran, where and on which data. Written at the start and again by each resume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Manifest {
    /// The version of this record's format.
    pub version: u32,
    /// The experiment's name.
    pub experiment: String,
    /// The author's description; may be empty.
    pub description: String,
    /// The run's id: the name of its directory.
    pub run: String,
    /// SHA-256 over the parts of the resolved experiment that affect numbers, the digests of the data, and the
    /// version, sources and lock file of the code.
    pub fingerprint: String,
    /// `experiment.seed`: the source of all random numbers of the run.
    pub seed: u32,
    /// The command as it was typed, one argument per entry, with `***` in place of secrets.
    pub command: Vec<String>,
    /// Absolute path of the directory in which the command was called.
    pub working_directory: String,
    /// Start time: RFC 3339, UTC.
    pub started: String,
    /// Times of the resumes: RFC 3339, UTC. One for each that was asked for, without a cap: their number is that of the segments.
    pub resumed: Vec<String>,
    /// Command of each resume, one argument per entry.
    pub resume_commands: Vec<Vec<String>>,
    /// The program that ran.
    pub code: Code,
    /// The machine.
    pub host: Host,
    /// The device that held the tensors.
    pub device: Device,
    /// Digest of each data set, by name.
    pub data: BTreeMap<String, String>,
    /// Number of items of the data left out, by reason.
    pub data_skipped: BTreeMap<String, u64>,
    /// Settings that were lowered because the data is smaller than the experiment asks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lowered: Vec<LoweredSetting>,
    /// Slurm job that started the run; absent outside Slurm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slurm: Option<SlurmJob>,
    /// Origin of each value of the experiment.
    pub origins: BTreeMap<String, String>,
    /// Settings of `xrun watch`; absent for an experiment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watched: Option<WatchSettings>,
    /// Checkpoint of another run from which this one started (`xrun fork`); absent if it started at step 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Parent>,
    /// Step after which the newest process was to stop (`--until`); absent if it was to do all steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<u64>,
}

impl Manifest {
    /// Id of the run that its checkpoints refer to. The name of the directory is not enough: two experiments that
    /// differ only in their names may start in the same second.
    pub fn run_id(&self) -> String {
        format!("{}/{}", self.experiment, self.run)
    }

    /// Working directory of a command, if it still exists.
    pub fn existing_working_directory(&self) -> Option<&Path> {
        Some(Path::new(&self.working_directory)).filter(|directory| directory.is_dir())
    }
}

/// Checkpoint of another run from which a run started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Parent {
    /// Id of the other run: its experiment, `/` and its name.
    pub run: String,
    /// Number of steps done at the checkpoint.
    pub step: u64,
    /// Keys of the experiment that were changed, as typed.
    pub changed: Vec<String>,
}

impl std::fmt::Display for Parent {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} after step {}", self.run, self.step)
    }
}

/// The program that ran.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Code {
    /// The version of xrun.
    pub xrun: String,
    /// Commit of the working directory, if it is a git checkout.
    pub git_commit: Option<String>,
    /// Uncommitted changes, at most 1 MiB, with `***` in place of secrets.
    pub git_patch: Option<String>,
    /// Changes that are not in the patch, and why, for people; absent if the patch is complete or was not requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git_left_out: Option<String>,
    /// Features of the build: `train`, `cuda`, `vulkan`.
    pub features: Vec<String>,
    /// SHA-256 of the lock file of the build.
    pub lock_digest: String,
    /// SHA-256 of the sources of the build.
    pub source_digest: Option<String>,
    /// Commit of the sources of the build; `null` also if it was built without git.
    pub built_commit: Option<String>,
    /// `true` if the sources differed from that commit.
    pub built_with_changes: Option<bool>,
}

/// The machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Host {
    /// Host name.
    pub name: String,
    /// Operating system and version of its kernel, such as `linux 6.8.0`.
    pub system: String,
    /// Model of the processor.
    pub processor: String,
    /// Instruction sets that affect how sums are rounded, such as `fma avx2 avx512f`.
    pub instruction_sets: String,
    /// Number of threads that the process may run at once.
    pub cores: u64,
    /// Memory of the whole machine in bytes; `null` if the system does not report it.
    pub memory: Option<u64>,
    /// Memory limit of the container in bytes; `null` if there is none.
    pub memory_limit: Option<u64>,
}

/// The device of the tensors.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Device {
    /// Chosen device: `cpu`, `cuda:0`, …
    pub chosen: String,
    /// Reason for the choice if the file said `auto`.
    pub because: String,
    /// Name that the device reports: the model of the processor or of the GPU.
    pub name: String,
    /// Version of the GPU driver; `null` on the CPU.
    pub driver: Option<String>,
    /// Memory of the device in bytes; `null` if it has none of its own or does not report it.
    pub memory: Option<u64>,
    /// NVIDIA compute capability, such as `9.0`; `null` on other devices.
    pub compute_capability: Option<String>,
    /// Precision of 32-bit matrix products: `float32`, or `tf32` if the device may round inputs to ten bits of
    /// mantissa.
    pub float32_products: Option<String>,
    /// Version of the LLVM that compiled the CUDA kernels; `null` on other devices.
    pub llvm: Option<String>,
    /// Kernels of fused operations on the CPU, `fused` or `plain`; `null` on other devices.
    pub cpu_kernels: Option<String>,
}

/// `plan.json`: the planned work and the cap of every buffer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlanFile {
    /// The version of this record's format.
    pub version: u32,
    /// Number of epochs; `training.max_steps` may end the run earlier.
    pub epochs: u64,
    /// Number of optimiser steps in an epoch.
    pub steps_per_epoch: u64,
    /// Number of optimiser steps; 0 if unknown, as for a command.
    pub steps: u64,
    /// Number of validations, including the one before training.
    pub validations: u64,
    /// Number of parameters of the model.
    pub parameters: u64,
    /// Number of trainable parameters in the stage that has the most of them; `null` if all are trainable.
    pub trained_parameters: Option<u64>,
    /// Every buffer of the run, sorted by name.
    pub owners: Vec<PlannedBuffer>,
    /// Validation metrics that the pipeline may report, in display order.
    pub metrics: Vec<PlannedMetric>,
    /// Metric that selects the best checkpoint; `null` if there is none.
    pub best_by: Option<String>,
    /// Legend of the images of a validation, for people.
    pub images: String,
    /// Names of step values that identify the stage of the training, such as a round and a local epoch; memory is
    /// reported by stage.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<String>,
    /// Memory forecast; `null` if nothing was measured before the run.
    pub forecast: Option<Forecast>,
    /// Settings that were lowered because the data is smaller than the experiment asks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lowered: Vec<LoweredSetting>,
    /// Rungs of `limits.on_pressure`, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rungs: Vec<PlannedRung>,
}

/// Rung of `limits.on_pressure` before the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedRung {
    /// The rung.
    pub rung: Rung,
    /// Bytes that it gives when it is taken as often as it can be, by the caps of the buffers and the forecast of a step; `null`
    /// if unknown.
    pub gives: Option<u64>,
    /// Effect on the numbers of the run.
    pub bits: Bits,
    /// Duration of a step with it taken once, relative to one without, by the probe; `null` if it was not measured.
    #[serde(default)]
    pub duration: Option<f64>,
}

/// A line of `metrics.jsonl`. It has no clock, so the same experiment gives the same bytes on the same machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum MetricsLine {
    /// A training step.
    Train {
        /// Number of the step, from 1.
        step: u64,
        /// Number of the epoch, from 1.
        epoch: u64,
        /// Kind of the step.
        batch: String,
        /// Loss that was minimised.
        loss: f64,
        /// Learning rate; `null` if a watched command does not report it.
        learning_rate: Option<f64>,
        /// Norm over all gradients before clipping; `null` if it was not computed.
        gradient_norm: Option<f64>,
        /// Median of the norm over `limits.gradient_norm_window` steps.
        gradient_norm_median: Option<f64>,
        /// Components of the loss and other numbers of the step, by name.
        values: BTreeMap<String, f64>,
    },
    /// A validation.
    Validation {
        /// Number of steps done before it; 0 is the untrained model. A fork begins with one.
        step: u64,
        /// Epoch of that step; 0 for the untrained model.
        epoch: u64,
        /// Metrics by name; `null` if a metric cannot be measured on this data.
        metrics: BTreeMap<String, Option<f64>>,
        /// 95 % intervals of the metrics that are means over episodes; absent if there are none.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        intervals: BTreeMap<String, Interval>,
    },
}

impl PlanFile {
    /// Number of planned steps, if known.
    pub fn known_steps(&self) -> Option<u64> {
        Some(self.steps).filter(|steps| *steps > 0)
    }
}

impl MetricsLine {
    /// Step of the line; for a validation, the number of steps done before it.
    pub fn step(&self) -> u64 {
        match self {
            Self::Train { step, .. } | Self::Validation { step, .. } => *step,
        }
    }
}

/// `summary.json`: how the run ended and its results.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Summary {
    /// The version of this record's format.
    pub version: u32,
    /// The experiment's name.
    pub experiment: String,
    /// The run's id: the name of its directory.
    pub run: String,
    /// Outcome of the run.
    pub outcome: Outcome,
    /// The data could not be used. Corrected data are other data, so this run cannot be resumed with them.
    pub is_data_error: bool,
    /// Why the run ended, for people.
    pub message: String,
    /// Exit status of the process.
    pub exit_code: u8,
    /// End time: RFC 3339, UTC.
    pub finished: String,
    /// Working time of all processes in seconds, without the pauses between them.
    pub seconds: f64,
    /// Number of optimiser steps done, including those before a resume.
    pub steps: u64,
    /// Number of optimiser steps planned; 0 if unknown.
    pub steps_planned: u64,
    /// Number of steps done divided by the steps per epoch: 2.5 is halfway through the third epoch.
    pub epochs: f64,
    /// Steps per second of training alone; `null` if there were none.
    pub steps_per_second: Option<f64>,
    /// Images, sequences or clips per second of training alone; `null` if there were none.
    pub items_per_second: Option<f64>,
    /// Loss of the first step, whatever its kind; not comparable with `loss_last`.
    pub loss_first: Option<f64>,
    /// Loss of the last step, whatever its kind; `null` if there was none.
    pub loss_last: Option<f64>,
    /// The loss of each kind of step.
    pub losses: Vec<KindLoss>,
    /// Metrics of the validation before the first step.
    pub metrics_first: BTreeMap<String, Option<f64>>,
    /// Metrics of the last validation after a step; empty if there was none.
    pub metrics_last: BTreeMap<String, Option<f64>>,
    /// 95 % intervals of those of the last metrics that are means over episodes.
    pub intervals_last: BTreeMap<String, Interval>,
    /// Checkpoint with the best validation; `null` if there is none.
    pub best: Option<Best>,
    /// Step of the best checkpoint if later ones were removed to make it the newest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restored: Option<u64>,
    /// Verdict on training; absent in summaries of older versions and where there is no loss and no validation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub training: Option<TrainingVerdict>,
    /// Memory peaks.
    pub memory: MemorySummary,
    /// Memory demand of each part of this process.
    pub demand: Demand,
    /// Forecast and measured memory; empty without a forecast.
    pub plan_and_actual: Vec<PlannedAndActual>,
    /// Cap and peak of each owner.
    pub owners: Vec<OwnerSummary>,
    /// Rungs of `limits.on_pressure` that were taken and climbed back, in order; absent if there was none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rungs: Vec<RungTaken>,
    /// Durations of the parts of the last process; absent in summaries of older versions and of commands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub durations: Option<Durations>,
    /// Time of each part of the loop, longest first.
    pub phases: Vec<PhaseSummary>,
    /// Counters of the task by name, such as cache hits.
    pub counters: BTreeMap<String, u64>,
    /// Lines that were written; absent in summaries of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lines: Option<WrittenLines>,
}

/// Peaks over all samples of all processes of the run, in bytes; everything else is from the newest process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MemorySummary {
    /// Peak of the heap in use.
    pub heap_peak: u64,
    /// Heap in use at the last sample.
    pub heap_at_end: u64,
    /// Peak RSS; `null` if the system does not report it.
    pub rss_peak: Option<u64>,
    /// Peak of the live tensors on the device; `null` if it has no memory pool.
    pub device_in_use_peak: Option<u64>,
    /// Peak of the pool's memory reserved from the driver; `null` if there is no pool.
    pub device_reserved_peak: Option<u64>,
    /// Mean GPU utilisation in percent over the samples that have it (kernels of all processes); absent if none has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_utilisation_mean: Option<f64>,
    /// Mean GPU power in watts over the samples that have it; absent if none has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_power_mean: Option<f64>,
    /// Large live allocations of the heap at the end, by size; empty if the heap is not counted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub size_classes: Vec<SizeClass>,
    /// Number of memory samples.
    pub samples: u64,
    /// Time spent on sampling, in seconds.
    pub trace_seconds: f64,
    /// `trace_seconds` as a fraction of the training time; `null` if there was none.
    pub trace_share: Option<f64>,
}

impl From<Peaks> for MemorySummary {
    fn from(peaks: Peaks) -> Self {
        let Peaks { heap, rss, device_in_use, device_reserved } = peaks;
        Self {
            heap_peak: heap,
            rss_peak: rss,
            device_in_use_peak: device_in_use,
            device_reserved_peak: device_reserved,
            ..Self::default()
        }
    }
}

/// Large live allocations of similar size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SizeClass {
    /// Smallest size in the class in bytes; the next class begins at four times as much.
    pub from_bytes: u64,
    /// Number of allocations at the first sample after a step of the process.
    pub allocations_at_start: u64,
    /// Number of allocations at the end.
    pub allocations: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Cap and peak of one owner.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OwnerSummary {
    /// The owner's name in the ledger.
    pub name: String,
    /// Policy at the cap.
    pub policy: Policy,
    /// Maximum number of items allowed.
    pub cap_items: u64,
    /// Maximum number of bytes allowed.
    pub cap_bytes: u64,
    /// Peak number of items.
    pub peak_items: u64,
    /// Peak number of bytes.
    pub peak_bytes: u64,
}

impl From<OwnerSnapshot> for OwnerSummary {
    fn from(owner: OwnerSnapshot) -> Self {
        let OwnerSnapshot { name, policy, cap, peak_items, peak_bytes, .. } = owner;
        Self { name: name.to_owned(), policy, cap_items: cap.items, cap_bytes: cap.bytes, peak_items, peak_bytes }
    }
}

/// Time of one part of the loop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PhaseSummary {
    /// Name, such as `forward`, `validation` or `cleanup`.
    pub name: String,
    /// Number of times it was entered.
    pub count: u64,
    /// Total time in seconds.
    pub seconds: f64,
    /// Longest time in seconds.
    pub longest: f64,
    /// Bytes by which the memory of its processes was larger at its ends than at its beginnings, all times together; absent
    /// if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grown: Option<i64>,
}

/// `classes.json`: results of the last validation by class, a confusion matrix.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClassIndex {
    /// The version of this record's format.
    pub version: u32,
    /// One entry per class, in the order of the data.
    pub classes: Vec<ClassResult>,
}

/// `images/index.json`: images of the last validation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ImageIndex {
    /// The version of this record's format.
    pub version: u32,
    /// One entry per file, in display order.
    pub images: Vec<ImageEntry>,
}

/// An entry of `images/index.json`: an image of the last validation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ImageEntry {
    /// File name in the same directory.
    pub file: String,
    /// Description of the image.
    pub caption: String,
}
