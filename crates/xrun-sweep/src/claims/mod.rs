//! Claims of reports on memory, each with the measurement that confirms or refutes it: `results/claims.toml` and the kept
//! results of sweeps and leaks.
//!
//! A figure is read from `results/reference/<sweep>/table.json`, or from `results/reference/leaks.json`. Where the claim has an
//! expectation, the interval of its last figure answers it; otherwise the file does, with a reason.

mod figure;
mod page;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use xrun_core::files::file;

pub use figure::{Measurement, Results};
pub use page::markdown;

/// File name below the results.
pub const CLAIMS: &str = "claims.toml";
/// Largest file of claims, and of a table, in bytes.
const BYTES_MAX: u64 = 16 << 20;

/// `claims.toml`: claims by report.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claims {
    /// Reports, in order.
    pub report: Vec<Report>,
}

/// Claims of one report.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// Heading.
    pub title: String,
    /// Claims, in order.
    pub claim: Vec<Claim>,
}

/// A claim, remedy, figure or command of a report.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Statement of the report, in our words.
    pub says: String,
    /// Figure of the report; empty if it has none.
    #[serde(default)]
    pub reported: String,
    /// Command that shows it; empty if none can.
    #[serde(default)]
    pub command: String,
    /// Figures measured here. The last one answers the claim.
    #[serde(default)]
    pub figures: Vec<Figure>,
    /// Range in which the last figure confirms the claim.
    pub expect: Option<Expectation>,
    /// Answer of a claim without an expectation.
    pub answer: Option<Answer>,
    /// Reason or condition of the answer.
    #[serde(default)]
    pub because: String,
}

/// A measured figure of a claim: of a sweep, of a leak, or as text.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Figure {
    /// Text before the figure.
    pub label: String,
    /// Name of a kept sweep.
    pub sweep: Option<String>,
    /// Number of the trial.
    pub trial: u64,
    /// Number of the trial that it is compared with; the figure is then the relative change.
    pub against: Option<u64>,
    /// Name of the measurement: a number of a run in `table.json`, such as `rss_peak`, or one of its `figures`.
    pub name: String,
    /// Name of a leak whose pair of runs is in `leaks.json`.
    pub leak: Option<String>,
    /// Text of a figure that was measured elsewhere, with its place.
    pub text: Option<String>,
}

/// Range of a figure that confirms a claim: the whole interval must be inside. An interval that is outside refutes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expectation {
    /// Smallest value; of a relative change in percent, otherwise in the unit of the figure.
    pub at_least: Option<f64>,
    /// Largest value.
    pub at_most: Option<f64>,
}

/// Answer to a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Measured as the report says.
    Confirmed,
    /// Measured, and it is not as the report says.
    Refuted,
    /// True under a condition, or not distinguishable from noise.
    Depends,
    /// Nothing here can show it.
    CannotBeShown,
}

impl Answer {
    /// Word for people.
    pub fn label(self) -> &'static str {
        match self {
            Self::Confirmed => "confirmed",
            Self::Refuted => "refuted",
            Self::Depends => "depends",
            Self::CannotBeShown => "cannot be shown here",
        }
    }
}

/// A claim with its figures and its answer.
#[derive(Clone, Debug)]
pub struct AnsweredClaim {
    /// Claim of the file.
    pub claim: Claim,
    /// Figures as text, in order.
    pub figures: Vec<String>,
    /// Answer.
    pub answer: Answer,
}

/// Error of reading claims or their results.
#[derive(Debug, thiserror::Error)]
pub enum ClaimsError {
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// A file has other content than expected.
    #[error("{}: {message}", path.display())]
    Content {
        /// Path of the file.
        path: PathBuf,
        /// Reason.
        message: String,
    },
    /// A claim cannot be answered.
    #[error("claim `{says}`: {message}")]
    Claim {
        /// Statement of the claim.
        says: String,
        /// Reason.
        message: String,
    },
}

fn read(path: &Path) -> Result<String, ClaimsError> {
    let bytes =
        file::bytes(path, BYTES_MAX).map_err(|source| ClaimsError::Read { path: path.to_path_buf(), source })?;
    String::from_utf8(bytes)
        .map_err(|error| ClaimsError::Content { path: path.to_path_buf(), message: error.to_string() })
}

impl Claims {
    /// Reads the claims of a file.
    ///
    /// # Errors
    /// The file cannot be read, or is not as described here.
    pub fn read(path: &Path) -> Result<Self, ClaimsError> {
        toml::from_str(&read(path)?)
            .map_err(|error| ClaimsError::Content { path: path.to_path_buf(), message: error.to_string() })
    }

    /// Answers all claims, by report.
    ///
    /// # Errors
    /// A result is missing or has no such figure, or a claim has neither an answer nor an expectation.
    pub fn answer(&self, results: &mut Results) -> Result<Vec<(&str, Vec<AnsweredClaim>)>, ClaimsError> {
        let mut reports = Vec::with_capacity(self.report.len());
        for report in &self.report {
            let claims: Result<Vec<_>, _> = report.claim.iter().map(|claim| answer(claim, results)).collect();
            reports.push((report.title.as_str(), claims?));
        }
        Ok(reports)
    }
}

fn answer(claim: &Claim, results: &mut Results) -> Result<AnsweredClaim, ClaimsError> {
    let refuse = |message: String| ClaimsError::Claim { says: claim.says.clone(), message };
    let mut figures = Vec::with_capacity(claim.figures.len());
    let mut last = None;
    for figure in &claim.figures {
        let measured = results.measure(figure).map_err(|error| match error {
            figure::FigureError::File(error) => error,
            figure::FigureError::Missing(message) => refuse(message),
        })?;
        let label = if figure.label.is_empty() { String::new() } else { format!("{}: ", figure.label) };
        figures.push(format!("{label}{}", measured.text));
        last = Some(measured);
    }
    let answer = match (claim.answer, claim.expect, last) {
        (Some(answer), None, _) => answer,
        (None, Some(expected), Some(measured)) => match measured.interval {
            Some(interval) => expected.answer(interval),
            None => return Err(refuse("the last figure has no number for `expect`".into())),
        },
        (None, None, Some(Measurement { is_shown: Some(is_shown), .. })) if is_shown => Answer::Confirmed,
        (None, None, Some(Measurement { is_shown: Some(_), .. })) => Answer::Refuted,
        _ => {
            return Err(refuse("needs either `answer`, or `expect` and a figure, or a leak as its last figure".into()));
        }
    };
    if matches!(answer, Answer::Depends | Answer::CannotBeShown) && claim.expect.is_none() && claim.because.is_empty() {
        return Err(refuse(format!("`{}` needs `because`", answer.label())));
    }
    Ok(AnsweredClaim { claim: claim.clone(), figures, answer })
}

impl Expectation {
    fn answer(self, (low, high): (f64, f64)) -> Answer {
        let (least, most) = (self.at_least.unwrap_or(f64::NEG_INFINITY), self.at_most.unwrap_or(f64::INFINITY));
        if least <= low && high <= most {
            Answer::Confirmed
        } else if high < least || most < low {
            Answer::Refuted
        } else {
            Answer::Depends
        }
    }
}
