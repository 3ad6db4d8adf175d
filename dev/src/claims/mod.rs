//! Claims of reports on memory, each with the measurements that answer it: `results/claims.toml` and the kept results of sweeps and
//! leaks.
//!
//! A claim has two answers: whether xrun finds the leak or effect, and whether the cause or remedy is as the report states it. Both are
//! computed from the figures alone: an answer is no better than that of its worst figure.

mod figure;
mod page;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use serde::Deserialize;

use xrun_core::files::file;

pub use figure::{Figure, Results};
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
    /// Figures on whether xrun finds the leak or effect. A claim without any is not shown here.
    #[serde(default)]
    pub found: Vec<Figure>,
    /// Figures on the cause or remedy as the report states it.
    #[serde(default)]
    pub cause: Vec<Figure>,
    /// Explanation of the answers.
    #[serde(default)]
    pub because: String,
}

/// Answer to a claim, from best to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Answer {
    /// Measured as expected.
    Confirmed,
    /// Measured differently by different runs, or not distinguishable from noise.
    Depends,
    /// Nothing here shows it.
    NotShown,
    /// Measured, and it is not as expected.
    Refuted,
}

impl Answer {
    /// Word for people.
    pub fn label(self) -> &'static str {
        match self {
            Self::Confirmed => "confirmed",
            Self::Depends => "depends",
            Self::NotShown => "not shown here",
            Self::Refuted => "refuted",
        }
    }
}

/// Figures of one answer as text, each with its own answer.
pub type Measured = Vec<(String, Answer)>;

/// A claim with its measured figures.
#[derive(Clone, Debug)]
pub struct AnsweredClaim {
    /// Claim of the file.
    pub claim: Claim,
    /// Whether xrun finds the leak or effect.
    pub found: Measured,
    /// Whether the cause or remedy is as the report states it.
    pub cause: Measured,
}

/// Answer of figures: the worst one.
pub fn worst(measured: &Measured) -> Answer {
    measured.iter().map(|(_, answer)| *answer).max().unwrap_or(Answer::NotShown)
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
    /// A result is missing or has no such figure, a figure has no expectation, or an answer without figures has no reason.
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
    if (claim.found.is_empty() || claim.cause.is_empty()) && claim.because.is_empty() {
        return Err(refuse("an answer without figures needs `because`".into()));
    }
    if claim.cause.iter().any(|figure| figure.leak.is_some()) {
        return Err(refuse("a leak switch keeps things by construction and answers no cause".into()));
    }
    let mut measure = |figures: &[Figure]| -> Result<Measured, ClaimsError> {
        figures.iter().map(|figure| results.measure(figure).map_err(refuse)).collect()
    };
    let (found, cause) = (measure(&claim.found)?, measure(&claim.cause)?);
    Ok(AnsweredClaim { claim: claim.clone(), found, cause })
}
