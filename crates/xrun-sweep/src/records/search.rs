//! How does a sweep search, and which points did it choose? What stands in `sweep.toml` and in `proposals.jsonl`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use xrun_core::experiment::between::Between;
use xrun_core::task::metric::Better;

/// How a sweep of mode `asha` or `tpe` chooses what it runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Search {
    /// The validation metric that is made better.
    pub metric: String,
    /// Which of its values are better.
    pub better: Better,
    /// How many points there are to be.
    pub samples: u64,
    /// What decides, and how it is set.
    pub method: Method,
}

impl Search {
    /// How many different points there are where all values are from lists; `None` where some are numbers between two ends.
    pub fn points_of_lists(&self) -> Option<usize> {
        let Method::Tpe { space, .. } = &self.method else { return None };
        space.iter().try_fold(1_usize, |count, dimension| match dimension {
            Dimension::Choice(values) => count.checked_mul(values.len()),
            Dimension::Between(_) => None,
        })
    }

    /// What is wrong with a search that was read from a file, for keys so many.
    pub fn unsound(&self, keys: usize) -> Option<&'static str> {
        match &self.method {
            Method::Asha { rungs, reduction_factor } => {
                let ascending = !rungs.is_empty() && rungs.windows(2).all(|pair| pair[0] < pair[1]);
                (!ascending || *reduction_factor < 2).then_some("its rungs do not ascend")
            }
            Method::Tpe { space, gamma, .. } => {
                let empty = |dimension: &Dimension| matches!(dimension, Dimension::Choice(values) if values.is_empty());
                let sound = space.len() == keys && !space.iter().any(empty) && *gamma > 0.0 && *gamma < 1.0;
                (!sound).then_some("its space does not fit its keys")
            }
        }
    }
}

/// What decides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// Asynchronous successive halving.
    Asha {
        /// The steps after which a run stops until it is chosen to go on; the last is the end of the run.
        rungs: Vec<u64>,
        /// One point in so many goes on.
        reduction_factor: u64,
    },
    /// The tree-structured Parzen estimator.
    Tpe {
        /// Points that are drawn without a look at results.
        startup: u64,
        /// The share of points that count as good.
        gamma: f64,
        /// How many points are drawn, of which one is run.
        candidates: u64,
        /// Where the values of each key are drawn from.
        space: Vec<Dimension>,
    },
}

/// What the values of a key are drawn from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Dimension {
    /// Any number between two ends.
    Between(Between),
    /// One of these; they have no order.
    Choice(Vec<Value>),
}

impl Dimension {
    /// Whether a point may have this value.
    pub fn has(&self, value: &Value) -> bool {
        match self {
            Self::Between(_) => value.is_number(),
            Self::Choice(values) => values.contains(value),
        }
    }
}

/// A line of `proposals.jsonl`: a point that mode `tpe` chose, written before its run begins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Proposal {
    /// Of the format.
    pub version: u32,
    /// Counted from 1.
    pub point: u64,
    /// For each swept key.
    pub values: Vec<Value>,
    /// The points whose results it was chosen by; empty of those at the start, which are drawn without a look at results.
    pub told: Vec<u64>,
}

impl Search {
    /// The steps at which runs stop; empty where all runs do all steps.
    pub fn rungs(&self) -> &[u64] {
        match &self.method {
            Method::Asha { rungs, .. } => rungs,
            Method::Tpe { .. } => &[],
        }
    }

    /// A value of the metric as a number of which less is better. What could not be measured is worse than all else.
    pub fn cost(&self, value: Option<f64>) -> f64 {
        match value.filter(|value| value.is_finite()) {
            Some(value) if self.better == Better::Higher => -value,
            Some(value) => value,
            None => f64::INFINITY,
        }
    }
}
