//! Record `evaluation.json`: a checkpoint validated again, on the data of its run or on other data.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::checkpoint_use::CheckpointUse;
use xrun_core::task::confusion::ClassResult;
use xrun_core::task::metric::{Interval, PlannedMetric};

/// `evaluation.json`, in a directory of its own below the run's `evaluations`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Evaluation {
    /// The checkpoint, and how it was used.
    #[serde(flatten)]
    pub used: CheckpointUse,
    /// Description of each metric.
    pub planned: Vec<PlannedMetric>,
    /// Metrics by name; `null` if a metric cannot be measured on this data.
    pub metrics: BTreeMap<String, Option<f64>>,
    /// 95 % intervals of the metrics that are means over episodes.
    pub intervals: BTreeMap<String, Interval>,
    /// Results of each class of a classification.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<ClassResult>,
    /// Metrics that the run itself measured after this step; empty if it did not validate then.
    pub in_training: BTreeMap<String, Option<f64>>,
}
