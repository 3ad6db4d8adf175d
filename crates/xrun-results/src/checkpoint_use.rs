//! Facts that the records of `xrun eval` and `xrun predict` have in common.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Use of a checkpoint: by which command, when, on which device and which data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CheckpointUse {
    /// The version of this record's format.
    pub version: u32,
    /// The experiment's name.
    pub experiment: String,
    /// The run's id: the name of its directory.
    pub run: String,
    /// Number of steps for which the checkpoint had been trained.
    pub step: u64,
    /// Start time: RFC 3339, UTC.
    pub started: String,
    /// Duration in seconds, from loading the checkpoint to the last result.
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
    /// Digest of each data set, by name.
    pub data: BTreeMap<String, String>,
    /// `true` if the data is that of the run.
    pub same_data: bool,
    /// Peak of the heap in use, in bytes.
    pub heap_peak: u64,
    /// Peak RSS in bytes; `null` if the system does not report it.
    pub rss_peak: Option<u64>,
}
