//! Validation metrics: direction of improvement, unit, and the confidence interval of a mean over episodes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Direction in which a metric improves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Higher values are better.
    Higher,
    /// Lower values are better.
    Lower,
}

impl Direction {
    /// `higher` or `lower`.
    pub fn words(self) -> &'static str {
        match self {
            Self::Higher => "higher",
            Self::Lower => "lower",
        }
    }

    /// Arrow towards better values.
    pub fn arrow(self) -> &'static str {
        match self {
            Self::Higher => "↑",
            Self::Lower => "↓",
        }
    }

    /// `true` if `one` is strictly better than `other`.
    pub fn prefers(self, one: f64, other: f64) -> bool {
        match self {
            Self::Higher => one > other,
            Self::Lower => one < other,
        }
    }

    /// `true` if `one`, which was measured later, replaces `other` as the best: equally good after more training counts as
    /// better, because a metric such as accuracy is at its limit long before the loss is.
    pub fn replaces(self, one: f64, other: f64) -> bool {
        !self.prefers(other, one)
    }
}

/// Scale of a loss on held-out data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HeldOutLoss {
    /// Mean loss.
    Mean,
    /// Exponential of the mean loss.
    Perplexity,
}

/// A validation metric that the pipeline may report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedMetric {
    /// Name in `metrics.jsonl`.
    pub name: String,
    /// Direction of improvement; `null` for a constant of the data, such as the accuracy of guessing.
    pub direction: Option<Direction>,
    /// Unit, such as `%`; empty where there is none.
    pub unit: String,
    /// Figure that the metric is drawn in, together with others of this name.
    pub family: String,
    /// Label of its line in that figure, such as `8 bit`.
    pub line: String,
    /// Description in one sentence.
    pub about: String,
    /// Value of a model that guesses; absent where it is unknown before the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chance: Option<f64>,
    /// Name of the metric that measures what needs no learning; absent where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<String>,
    /// Scale of the metric where it is the loss on held-out data; absent for other metrics.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<HeldOutLoss>,
}

impl PlannedMetric {
    /// A metric of which only the name and the direction are known.
    pub fn plain(name: &str, direction: Direction) -> Self {
        Self {
            name: name.to_owned(),
            direction: Some(direction),
            unit: String::new(),
            family: name.to_owned(),
            line: name.to_owned(),
            about: String::new(),
            chance: None,
            baseline: None,
            loss: None,
        }
    }

    /// Suffix of a number: ` %` where that is the unit, else empty.
    pub fn percent(unit: &str) -> &'static str {
        if unit == "%" { " %" } else { "" }
    }
}

/// 95 % confidence interval of a mean over episodes (or other examples): mean ± `half_width`. The half width is Student's t
/// quantile (97.5 %, `episodes - 1` degrees of freedom) times the standard error of the mean; of permuted classes, times the
/// standard deviation of single permutations.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Interval {
    /// Half width in the unit of the metric.
    pub half_width: f64,
    /// Number of episodes, examples or permutations in which the metric could be measured, at least 2.
    pub episodes: u64,
}

/// 97.5 % quantile of Student's t distribution.
pub fn student_t_quantile(degrees_of_freedom: usize) -> f64 {
    const TABLE: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
        2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
    ];
    match degrees_of_freedom {
        0 => f64::INFINITY,
        few if few <= TABLE.len() => TABLE[few - 1],
        // The first terms of the expansion around the normal quantile (Abramowitz and Stegun 26.7.5).
        many => {
            let (x, n) = (1.959_964_f64, many as f64);
            x + (x.powi(3) + x) / (4.0 * n) + (5.0 * x.powi(5) + 16.0 * x.powi(3) + 3.0 * x) / (96.0 * n * n)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_tables() {
        // NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.6.7.2.
        for (degrees, quantile) in [(1, 12.706), (5, 2.571), (30, 2.042), (31, 2.040), (60, 2.000), (100, 1.984)] {
            assert!(
                (student_t_quantile(degrees) - quantile).abs() < 6e-4,
                "{degrees}: {}",
                student_t_quantile(degrees)
            );
        }
    }
}
