//! Record `prediction.json`: a checkpoint applied to files.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `prediction.json`, next to `predictions.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Prediction {
    /// The version of this record's format.
    pub version: u32,
    /// The experiment's name.
    pub experiment: String,
    /// The run's id: the name of its directory.
    pub run: String,
    /// Directory of this record and of the answers.
    pub directory: String,
    /// Number of steps for which the checkpoint had been trained.
    pub step: u64,
    /// Start time: RFC 3339, UTC.
    pub started: String,
    /// Time from loading the checkpoint to the last answer, in seconds.
    pub seconds: f64,
    /// The command as it was typed, one argument per entry.
    pub command: Vec<String>,
    /// Values that differ from those of the run, as `section.key=value`.
    pub overrides: Vec<String>,
    /// Kind and index of the device, such as `cpu` or `cuda:0`.
    pub device: String,
    /// Name that the device reports.
    pub device_name: String,
    /// SHA-256 of the program's sources.
    pub source_digest: Option<String>,
    /// Digest of each data set, by name: references, vocabulary and classes come from there.
    pub data: BTreeMap<String, String>,
    /// `true` if the data is that of the run.
    pub same_data: bool,
    /// Number of files given.
    pub files: u64,
    /// Number of lines of `predictions.jsonl` with an answer.
    pub answered: u64,
    /// Number of lines with an error.
    pub failed: u64,
    /// Facts about all answers, specific to the pipeline.
    pub about: serde_json::Value,
    /// Peak of the heap in use, in bytes.
    pub heap_peak: u64,
    /// Peak RSS in bytes; `null` if the system does not report it.
    pub rss_peak: Option<u64>,
}
