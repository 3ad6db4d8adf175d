//! Document that a hook reads from stdin.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::format::{Best, Outcome};
use super::verdict::VerdictWord;

/// Name of a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HookName {
    /// The run ended, with any outcome.
    OnEnd,
    /// Memory was found to be growing; called once per run.
    OnGrowing,
    /// A memory limit ended the run.
    OnLimit,
    /// The run failed: an error, a panic, or a loss that is not a number.
    OnFailed,
}

impl HookName {
    /// Key in the experiment file.
    pub fn key(self) -> &'static str {
        match self {
            Self::OnEnd => "on_end",
            Self::OnGrowing => "on_growing",
            Self::OnLimit => "on_limit",
            Self::OnFailed => "on_failed",
        }
    }
}

/// Document that a hook reads from stdin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HookDocument {
    /// The version of this document's format.
    pub version: u32,
    /// Hook that is called.
    pub hook: HookName,
    /// The experiment's name.
    pub experiment: String,
    /// The run's id: the name of its directory.
    pub run: String,
    /// Absolute path of the run's directory.
    pub directory: String,
    /// Host name.
    pub host: String,
    /// Time of the call: RFC 3339, UTC.
    pub time: String,
    /// Number of optimiser steps done.
    pub step: u64,
    /// Number of optimiser steps planned; 0 if unknown.
    pub steps_planned: u64,
    /// Outcome; `null` while the run is running.
    pub outcome: Option<Outcome>,
    /// Exit status of the process; `null` while the run is running.
    pub exit_code: Option<u8>,
    /// Why the run ended, or what grows, for people.
    pub message: String,
    /// Working time in seconds, without the pauses between processes; `null` while the run is running.
    pub seconds: Option<f64>,
    /// The verdict on memory; `null` where there is none.
    pub verdict: Option<HookVerdict>,
    /// Metrics of the last validation after a step; empty if there was none.
    pub metrics_last: BTreeMap<String, Option<f64>>,
    /// Checkpoint with the best validation; `null` if there is none.
    pub best: Option<Best>,
    /// Absolute path; `null` if no memory limit ended the run.
    pub post_mortem: Option<String>,
    /// Absolute path; `null` if there is no report yet.
    pub report: Option<String>,
}

/// Main fields of `verdict.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HookVerdict {
    /// The verdict in a word.
    pub verdict: VerdictWord,
    /// The verdict as a sentence, for people.
    pub message: String,
    /// Owner of the growth, if known.
    pub owner: Option<String>,
}
