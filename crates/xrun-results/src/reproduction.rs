//! What does `reproduction.json` hold: a run that was run again, and whether the same came out?

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::format::Outcome;

/// `reproduction.json`, in the directory of the run that `xrun reproduce` made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Reproduction {
    /// The version of this record's format.
    pub version: u32,
    /// The directory of the run that was run again, and of the new one.
    pub original: String,
    /// The directory of the new run.
    pub reproduction: String,
    /// How the original ended; `null` where it has no summary.
    pub original_outcome: Option<Outcome>,
    /// How the new run ended; `null` where it has no summary.
    pub reproduction_outcome: Option<Outcome>,
    /// How near the two are.
    pub agreement: Agreement,
    /// The code that the process exited with: 0 when the same came out.
    pub exit_code: u8,
    /// For people: the same, or what differs first.
    pub message: String,
    /// The share of a number's mean size by which it may be off on average; 0 asks for the same bits.
    pub tolerance: f64,
    /// Lines of metrics.jsonl that both have, and those of each.
    pub lines_compared: u64,
    /// Lines of the original.
    pub lines_original: u64,
    /// Lines of the new run.
    pub lines_reproduction: u64,
    /// The last step that was compared.
    pub last_step: Option<u64>,
    /// Numbers that were compared.
    pub values_compared: u64,
    /// Those of them that are not the same to the bit.
    pub values_different: u64,
    /// Where the two part first; `null` where they do not.
    pub first_difference: Option<Difference>,
    /// Each number by its name.
    pub series: Vec<SeriesAgreement>,
    /// What is not as it was when the original ran: code, data, machine.
    pub changes: Vec<Change>,
    /// What can give other numbers on the same machine; empty on the CPU.
    pub not_deterministic: Vec<String>,
    /// What else is to be known, such as that the original ended early.
    pub notes: Vec<String>,
}

/// How near two runs are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Agreement {
    /// The same bits.
    Identical,
    /// Other bits, each number near enough on average.
    WithinTolerance,
    /// Other bits, beyond the tolerance; or the lines are of different things.
    Different,
    /// The same as far as the reproduction came, and it came less far than the original.
    Incomplete,
}

impl Agreement {
    /// For people.
    pub fn words(self) -> &'static str {
        match self {
            Self::Identical => "identical",
            Self::WithinTolerance => "within tolerance",
            Self::Different => "different",
            Self::Incomplete => "incomplete",
        }
    }
}

/// Where two runs part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Difference {
    /// The step of the line.
    pub step: u64,
    /// `loss of dummy steps`, `metric map50`, or `line` when the lines are of different things.
    pub value: String,
    /// As text, with every digit.
    pub original: String,
    /// What the new run has there.
    pub reproduction: String,
}

/// One number over all lines.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SeriesAgreement {
    /// Such as `loss of dummy steps` or `metric map50`.
    pub name: String,
    /// Values that were compared.
    pub values: u64,
    /// Those of them that are not the same to the bit.
    pub different: u64,
    /// Mean of the original's absolute values.
    pub mean_size: f64,
    /// Mean of the absolute differences.
    pub mean_difference: f64,
    /// The second over the first; `null` when the original is 0 throughout and the reproduction is not.
    pub share: Option<f64>,
    /// The greatest absolute difference.
    pub largest_difference: f64,
    /// The step of the largest difference.
    pub largest_at: Option<u64>,
}

/// Something that is not as it was.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// Such as `code: lock file` or `machine: processor`.
    pub what: String,
    /// As it was when the original ran.
    pub then: String,
    /// As it was when it was run again.
    pub now: String,
}
