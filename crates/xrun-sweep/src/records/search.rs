//! The search of a sweep in `sweep.toml`, and the trials that it chose in `proposals.jsonl`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use xrun_core::experiment::number_range::NumberRange;
use xrun_core::task::metric::Direction;

/// The search of a sweep of method `asha` or `tpe`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Search {
    /// The validation metric that is optimized.
    pub metric: String,
    /// Direction in which the metric is better.
    pub direction: Direction,
    /// Number of trials.
    pub trials: u64,
    /// Algorithm and its settings.
    pub method: SearchMethod,
}

impl Search {
    /// Number of different trials where all values are from lists; `None` where some are from a range.
    pub fn trials_of_lists(&self) -> Option<usize> {
        self.tpe()?.space.iter().try_fold(1_usize, |count, dimension| match dimension {
            Dimension::Choice(values) => count.checked_mul(values.len()),
            Dimension::Range(_) => None,
        })
    }

    /// Returns why a search from a file is invalid for this number of keys; `None` where it is valid.
    pub fn invalid_reason(&self, keys: usize) -> Option<&'static str> {
        match &self.method {
            SearchMethod::Asha { rungs, reduction_factor } => {
                let ascending = !rungs.is_empty() && rungs.windows(2).all(|pair| pair[0] < pair[1]);
                (!ascending || *reduction_factor < 2).then_some("its rungs do not ascend")
            }
            SearchMethod::Tpe(TpeSearch { space, gamma, .. }) => {
                let empty = |dimension: &Dimension| matches!(dimension, Dimension::Choice(values) if values.is_empty());
                let sound = space.len() == keys && !space.iter().any(empty) && *gamma > 0.0 && *gamma < 1.0;
                (!sound).then_some("its space does not fit its keys")
            }
        }
    }
}

/// Algorithm of a search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SearchMethod {
    /// Asynchronous successive halving.
    Asha {
        /// Steps after which a run stops until it is promoted; the last is the end of a run.
        rungs: Vec<u64>,
        /// One trial in this number is promoted.
        reduction_factor: u64,
    },
    /// The tree-structured Parzen estimator.
    Tpe(TpeSearch),
}

/// Settings of the tree-structured Parzen estimator, and its space.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TpeSearch {
    /// Number of trials that are drawn at random before results count.
    pub startup: u64,
    /// Fraction of the trials that count as good.
    pub gamma: f64,
    /// Number of candidates that are drawn for each trial.
    pub candidates: u64,
    /// The values of each key.
    pub space: Vec<Dimension>,
}

/// The values of a key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Dimension {
    /// Numbers of a range.
    Range(NumberRange),
    /// Values of a list, without an order.
    Choice(Vec<Value>),
}

impl Dimension {
    /// Returns whether a trial may have this value.
    pub fn has(&self, value: &Value) -> bool {
        match self {
            Self::Range(_) => value.is_number(),
            Self::Choice(values) => values.contains(value),
        }
    }
}

/// A line of `proposals.jsonl`: a trial that method `tpe` chose, written before its run begins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Proposal {
    /// The version of this record's format.
    pub version: u32,
    /// Number of the trial, from 1.
    pub trial: u64,
    /// Its value of each swept key.
    pub values: Vec<Value>,
    /// Trials whose results it was chosen by; empty for those that were drawn at random.
    pub based_on: Vec<u64>,
}

impl Search {
    /// Steps at which runs stop; empty where all runs do all steps.
    pub fn rungs(&self) -> &[u64] {
        match &self.method {
            SearchMethod::Asha { rungs, .. } => rungs,
            SearchMethod::Tpe(_) => &[],
        }
    }

    /// The settings of method `tpe`; `None` for another method.
    pub fn tpe(&self) -> Option<&TpeSearch> {
        match &self.method {
            SearchMethod::Asha { .. } => None,
            SearchMethod::Tpe(tpe) => Some(tpe),
        }
    }

    /// A value of the metric as a cost, which is minimized. An unknown value costs infinitely much.
    pub fn cost(&self, value: Option<f64>) -> f64 {
        match value.filter(|value| value.is_finite()) {
            Some(value) if self.direction == Direction::Higher => -value,
            Some(value) => value,
            None => f64::INFINITY,
        }
    }
}
