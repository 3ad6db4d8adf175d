//! `[training.early_stopping]`: the end of a run whose validation metric no longer improves.

use crate::settings;
use crate::task::metric::Direction;

settings! {
    /// Ends the run when the validation metric no longer improves. This counts as success: outcome `stopped_early`, exit code 0.
    pub struct EarlyStopping {
        /// Number of consecutive validations without improvement after which the run stops; absent means never. The validation of
        /// the untrained model does not count.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(range(min = 1, max = 1_000_000))]
        pub patience: Option<u64> = None,
        /// Validation metric that must improve, and that selects the best checkpoint; if absent, that of `checkpoint.best`.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub metric: Option<String> = None,
        /// Better direction of the metric; if absent, the metric's own.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub mode: Option<Direction> = None,
        /// Smallest change that counts as an improvement.
        #[schemars(range(min = 0.0, max = 1e300))]
        pub min_delta: f64 = 0.0,
        /// Remove the checkpoints after the best one when the run has ended early or after its last step, so that the newest
        /// checkpoint is the best. `false` keeps the best and the last.
        pub restore_best: bool = true,
    }
}

impl EarlyStopping {
    /// Metric in the file, if early stopping is on.
    pub fn named_metric(&self) -> Option<&str> {
        self.patience.and(self.metric.as_deref())
    }
}
