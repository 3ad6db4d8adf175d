//! When does a run end because it no longer gets better?

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::task::metric::Better;

/// Ends the run when validations no longer get better. That is a success: the outcome is `stopped_early`, the exit code 0.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EarlyStopping {
    /// Stop after this many validations in a row that were not better; absent means never. The validation of the
    /// untrained model does not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub patience: Option<u64>,
    /// The validation metric that has to get better, and by which a checkpoint is best; if absent, that of
    /// `checkpoint.best`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metric: Option<String>,
    /// Which values of the metric are better; if absent, the metric says so itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Better>,
    /// By how much a validation has to be better than the last one that was; less does not count.
    #[schemars(range(min = 0.0, max = 1e300))]
    pub minimum_change: f64,
    /// When the run has ended, by itself or after its last step, remove the checkpoints after the best one: the newest
    /// checkpoint is then the best. `false` keeps both, the best and the last.
    pub restore_best: bool,
}

impl Default for EarlyStopping {
    fn default() -> Self {
        Self { patience: None, metric: None, mode: None, minimum_change: 0.0, restore_best: true }
    }
}

impl EarlyStopping {
    /// Nothing is set.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// The metric that the file names, where the run may stop early.
    pub fn named_metric(&self) -> Option<&str> {
        self.patience.and(self.metric.as_deref())
    }
}
