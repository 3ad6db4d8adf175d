//! Record of one `xrun predict`: a checkpoint applied to files.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::checkpoint_use::CheckpointUse;

/// `prediction.json`, next to `predictions.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PredictionRecord {
    /// The checkpoint, and how it was used: references, vocabulary and classes come from its data.
    #[serde(flatten)]
    pub used: CheckpointUse,
    /// Directory of this record and of the answers.
    pub directory: String,
    /// Number of files given.
    pub files: u64,
    /// Number of lines of `predictions.jsonl` with an answer.
    pub answered: u64,
    /// Number of lines with an error.
    pub failed: u64,
    /// Facts about all answers, specific to the pipeline.
    pub about: serde_json::Value,
}
