//! What is a hook told, on its standard input?

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::format::{Best, Outcome};
use super::verdict::Judgement;

/// Which hook it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HookName {
    /// The run ended, however it did.
    OnEnd,
    /// Memory was found to be growing, once a run.
    OnGrowing,
    /// A memory limit ended the run.
    OnLimit,
    /// The run failed: an error, a panic, or a loss that is not a number.
    OnFailed,
}

impl HookName {
    /// The key in the file.
    pub fn key(self) -> &'static str {
        match self {
            Self::OnEnd => "on_end",
            Self::OnGrowing => "on_growing",
            Self::OnLimit => "on_limit",
            Self::OnFailed => "on_failed",
        }
    }
}

/// The document that a hook reads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HookDocument {
    /// The version of this document's format.
    pub version: u32,
    /// The hook that is called.
    pub hook: HookName,
    /// The experiment's name.
    pub experiment: String,
    /// The run's id: the name of its folder.
    pub run: String,
    /// The run's folder, absolute.
    pub folder: String,
    /// The machine.
    pub host: String,
    /// RFC 3339, UTC.
    pub time: String,
    /// Steps done, and planned.
    pub step: u64,
    /// 0 where nobody knows.
    pub steps_planned: u64,
    /// `null` while the run goes on.
    pub outcome: Option<Outcome>,
    /// What the process will exit with; `null` while the run goes on.
    pub exit_code: Option<u8>,
    /// A sentence for people: why it ended, or what grows.
    pub message: String,
    /// Seconds of work, without the pauses between processes; `null` while the run goes on.
    pub seconds: Option<f64>,
    /// The verdict on memory; `null` where there is none.
    pub verdict: Option<HookVerdict>,
    /// The last validation after a step, by metric; empty where there was none.
    pub metrics_last: BTreeMap<String, Option<f64>>,
    /// The checkpoint with the best validation; `null` where there is none.
    pub best: Option<Best>,
    /// Absolute; `null` where no memory limit ended the run.
    pub post_mortem: Option<String>,
    /// Absolute; `null` where there is none yet.
    pub report: Option<String>,
}

/// The most important of `verdict.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HookVerdict {
    /// The verdict in a word.
    pub verdict: Judgement,
    /// The verdict in a sentence for people.
    pub message: String,
    /// Who holds what grows, where that is known.
    pub owner: Option<String>,
}
