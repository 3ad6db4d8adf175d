//! Rule like the one of Stormlog (<https://pypi.org/project/stormlog/>): a significant linear trend over all samples.
//!
//! The slope of a regression is positive, its correlation above 0.5, and its p-value below 0.05. (The tool's page on leaks describes
//! another rule, for functions: more than a tenth of the calls grow, by more than 100 MB together.)

use super::Sample;
use super::line::least_squares;

/// Two-sided 5 % quantile of the normal distribution.
const SIGNIFICANT: f64 = 1.96;

pub fn grows(samples: &[Sample]) -> bool {
    least_squares(samples).is_some_and(|line| {
        let r = line.correlation.min(1.0 - 1e-12);
        let statistic = r * ((samples.len() - 2) as f64 / (1.0 - r * r)).sqrt();
        line.slope > 0.0 && r > 0.5 && statistic > SIGNIFICANT
    })
}
