//! What does `prediction.json` hold: which checkpoint answered about files, and about how many?

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `prediction.json`, beside `predictions.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Prediction {
    /// Of the form of the record.
    pub version: u32,
    /// The name of the run's experiment.
    pub experiment: String,
    /// The name of the run's folder.
    pub run: String,
    /// Where it and the answers are.
    pub folder: String,
    /// The steps that the checkpoint had been trained for.
    pub step: u64,
    /// RFC 3339, UTC.
    pub started: String,
    /// From the loading of the checkpoint to the last answer.
    pub seconds: f64,
    /// The command as it was typed, one entry a word.
    pub command: Vec<String>,
    /// What was otherwise than in the run, as `section.key=value`.
    pub overrides: Vec<String>,
    /// The device's kind and number, such as `cpu` or `cuda:0`.
    pub device: String,
    /// The device as it calls itself.
    pub device_name: String,
    /// SHA-256 of the sources of the program.
    pub source_digest: Option<String>,
    /// Digest of each data set by name: references, vocabulary and classes come from there.
    pub data: BTreeMap<String, String>,
    /// Whether it is the data that the run had.
    pub same_data: bool,
    /// How many were named.
    pub files: u64,
    /// Lines of `predictions.jsonl` with an answer.
    pub answered: u64,
    /// Lines with an error.
    pub failed: u64,
    /// What holds of all answers; each pipeline has its own.
    pub about: serde_json::Value,
    /// The highest that heap in use was, in bytes.
    pub heap_peak: u64,
    /// The highest that resident memory was, in bytes; `null` where the system does not tell.
    pub resident_peak: Option<u64>,
}
