//! What does `evaluation.json` hold: a checkpoint of a run that was validated once more, on its own data or on other data?

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use xrun_core::task::metric::{Interval, PlannedMetric};

/// `evaluation.json`, in a folder of its own below the run's `evaluations`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Evaluation {
    /// The version of this record's format.
    pub version: u32,
    /// The experiment's name.
    pub experiment: String,
    /// The run's id: the name of its folder.
    pub run: String,
    /// The steps that the checkpoint had been trained for.
    pub step: u64,
    /// RFC 3339, UTC.
    pub started: String,
    /// Seconds that it took.
    pub seconds: f64,
    /// The command as it was typed, one entry a word.
    pub command: Vec<String>,
    /// What was otherwise than in the run, as `section.key=value`.
    pub overrides: Vec<String>,
    /// The device's kind and number, and its name.
    pub device: String,
    /// What the device calls itself.
    pub device_name: String,
    /// SHA-256 of the sources of the program.
    pub source_digest: Option<String>,
    /// Digest of each data set by name.
    pub data: BTreeMap<String, String>,
    /// Whether it is the data that the run had.
    pub same_data: bool,
    /// What each metric is.
    pub planned: Vec<PlannedMetric>,
    /// By name; `null` where it cannot be measured on this data.
    pub metrics: BTreeMap<String, Option<f64>>,
    /// Of metrics that are means over episodes.
    pub intervals: BTreeMap<String, Interval>,
    /// What the run itself measured after this step, where it validated then.
    pub in_training: BTreeMap<String, Option<f64>>,
    /// The highest that heap in use was, in bytes.
    pub heap_peak: u64,
    /// The highest that resident memory was, in bytes; `null` where the system does not tell.
    pub resident_peak: Option<u64>,
}
