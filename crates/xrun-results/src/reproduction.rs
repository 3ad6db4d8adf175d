//! Record `reproduction.json`: the comparison of a run with its repetition.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::format::Outcome;

/// `reproduction.json`, in the directory of the run that `xrun reproduce` made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Reproduction {
    /// The version of this record's format.
    pub version: u32,
    /// Directory of the original run.
    pub original: String,
    /// Directory of the new run.
    pub reproduction: String,
    /// Outcome of the original; `null` if it has no summary.
    pub original_outcome: Option<Outcome>,
    /// Outcome of the new run; `null` if it has no summary.
    pub reproduction_outcome: Option<Outcome>,
    /// Degree of agreement.
    pub agreement: Agreement,
    /// Exit status of the process: 0 if the results agree.
    pub exit_code: u8,
    /// The result or the first difference, for people.
    pub message: String,
    /// Maximum mean difference of a series, as a fraction of its mean absolute value; 0 requires the same bits.
    pub tolerance: f64,
    /// The comparison of their metrics.
    #[serde(flatten)]
    pub compared: ComparedMetrics,
    /// Changes of code, data and machine since the original.
    pub changes: Vec<EnvironmentChange>,
    /// Sources of nondeterminism on the same machine; empty on the CPU.
    pub not_deterministic: Vec<String>,
    /// Remarks, such as that the original ended early.
    pub notes: Vec<String>,
}

/// Comparison of the metrics of two runs, over the lines that both have.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ComparedMetrics {
    /// Number of lines compared.
    pub lines_compared: u64,
    /// Number of lines of the original.
    pub lines_original: u64,
    /// Number of lines of the new run.
    pub lines_reproduction: u64,
    /// Last step compared.
    pub last_step: Option<u64>,
    /// Number of values compared.
    pub values_compared: u64,
    /// Number of values that differ in at least one bit.
    pub values_different: u64,
    /// First difference; `null` if there is none.
    pub first_difference: Option<FirstDifference>,
    /// Statistics of each series of numbers.
    pub series: Vec<SeriesAgreement>,
}

/// Degree of agreement of two runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Agreement {
    /// All bits are equal.
    Identical,
    /// Some bits differ, and each series is within the tolerance.
    WithinTolerance,
    /// A series is beyond the tolerance, or the lines describe different things.
    Different,
    /// All compared values are equal, and the reproduction ended before the original.
    Incomplete,
}

impl Agreement {
    /// The agreement as it is displayed.
    pub fn label(self) -> &'static str {
        match self {
            Self::Identical => "identical",
            Self::WithinTolerance => "within tolerance",
            Self::Different => "different",
            Self::Incomplete => "incomplete",
        }
    }
}

/// First difference of two runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FirstDifference {
    /// Step of the line.
    pub step: u64,
    /// Name of the value: `loss of dummy steps`, `metric map50`, or `line` if the lines describe different things.
    pub value: String,
    /// Value of the original, with all digits.
    pub original: String,
    /// Value of the new run, with all digits.
    pub reproduction: String,
}

/// Statistics of one number over all lines.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SeriesAgreement {
    /// Name, such as `loss of dummy steps` or `metric map50`.
    pub name: String,
    /// Number of values compared.
    pub values: u64,
    /// Number of values that differ in at least one bit.
    pub different: u64,
    /// Mean of the original's absolute values.
    pub mean_size: f64,
    /// Mean of the absolute differences.
    pub mean_difference: f64,
    /// `mean_difference` / `mean_size`; `null` if the original is 0 throughout and the reproduction is not.
    pub share: Option<f64>,
    /// Maximum absolute difference.
    pub largest_difference: f64,
    /// Step of the maximum difference.
    pub largest_at: Option<u64>,
}

/// A change since the original run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EnvironmentChange {
    /// Name, such as `code: lock file` or `machine: processor`.
    pub what: String,
    /// Value when the original ran.
    pub then: String,
    /// Value now.
    pub now: String,
}
