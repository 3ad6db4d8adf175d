//! What is said of a validation metric: its unit, which way is better, and how sure a mean over episodes is?

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which values of a metric are better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// More is better.
    Higher,
    /// Less is better.
    Lower,
}

impl Better {
    /// For people.
    pub fn words(self) -> &'static str {
        match self {
            Self::Higher => "higher",
            Self::Lower => "lower",
        }
    }

    /// Points to where better values are.
    pub fn arrow(self) -> &'static str {
        match self {
            Self::Higher => "↑",
            Self::Lower => "↓",
        }
    }

    /// Whether one value is better than another.
    pub fn prefers(self, one: f64, other: f64) -> bool {
        match self {
            Self::Higher => one > other,
            Self::Lower => one < other,
        }
    }
}

/// A validation metric that the pipeline may report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedMetric {
    /// As in `metrics.jsonl`.
    pub name: String,
    /// Which values are better; `null` of a constant of the data, such as what guessing would give.
    pub better: Option<Better>,
    /// Such as `share`, a number from 0 to 1; empty where it has none.
    pub unit: String,
    /// The figure that it is drawn in, together with others of this name.
    pub family: String,
    /// What its line is called in that figure, such as `8 bit`.
    pub line: String,
    /// What is measured, in a sentence.
    pub about: String,
}

impl PlannedMetric {
    /// One of which nothing is known but its name and which way is better.
    pub fn plain(name: &str, better: Better) -> Self {
        Self {
            name: name.to_owned(),
            better: Some(better),
            unit: String::new(),
            family: name.to_owned(),
            line: name.to_owned(),
            about: String::new(),
        }
    }

    /// ` %` behind a number, where that is its unit.
    pub fn percent(unit: &str) -> &'static str {
        if unit == "%" { " %" } else { "" }
    }
}

/// The 95 % interval of a mean over episodes: the mean, plus and minus `half_width`. It is Student's: the 97.5 % quantile
/// with `episodes - 1` degrees of freedom, times the standard deviation between episodes, over the root of `episodes`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Interval {
    /// In the unit of the metric.
    pub half_width: f64,
    /// Episodes in which the metric could be measured, at least 2.
    pub episodes: u64,
}

/// The 97.5 % quantile of Student's distribution.
pub fn student(degrees_of_freedom: usize) -> f64 {
    const TABLE: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
        2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
    ];
    match degrees_of_freedom {
        0 => f64::INFINITY,
        few if few <= TABLE.len() => TABLE[few - 1],
        // The first terms of its series around the normal distribution (Abramowitz and Stegun 26.7.5).
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
            assert!((student(degrees) - quantile).abs() < 6e-4, "{degrees}: {}", student(degrees));
        }
    }
}
