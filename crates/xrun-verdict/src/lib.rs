//! Judges whether a series of memory samples grows, how fast, since when, and who holds it.
//!
//! ```
//! use xrun_verdict::{VerdictWord, judge};
//!
//! // A mebibyte a step, from step 400 on. The onset is found to within a window, here 16 steps.
//! let leak = (0..1200u64).map(|step| (step, (500 << 20) + step.saturating_sub(400) * (1 << 20)));
//! let findings = judge(leak);
//! assert_eq!(findings.verdict, VerdictWord::Growing);
//! assert_eq!(findings.slope, Some(1_048_576.0));
//! assert!(findings.since.is_some_and(|step| (384..=416).contains(&step)));
//! ```
//!
//! [`judge`] is for one series. A [`MemoryJudge`] takes the samples of a process one by one and judges all of their series
//! together: heap, RSS, the device's memory pool, and the bytes of each owner, whose caps a [`Context`] declares.
//! Its [`Verdict`] names the owner whose growth explains the growth of memory, and has a message for people. With the
//! feature `table`, `table::judge_table` judges a trace of mprof, psrecord, memray, nvidia-smi, free or vmstat, a table, a
//! log, or JSON.
//!
//! A series is cut into windows, and the minimum of each window is judged: memory that a cleanup returns does not count.
//! The slope of the window minima is the Theil-Sen estimate with a 99.9 % interval; the Mann-Kendall test decides
//! whether they rise at all. The memory needed for a series is bounded, however long it is.

#![warn(missing_docs)]

mod axis;
mod context;
mod end;
mod findings;
mod judge;
mod memory_judge;
mod memory_release;
mod message;
pub mod names;
mod onset;
mod pieces;
mod processes;
mod readings;
mod recent;
mod rise;
mod sample;
mod shape;
#[cfg(feature = "table")]
pub mod table;
mod thresholds;
pub mod training;
mod trend;
pub mod units;
mod window_minima;
#[cfg(feature = "schema")]
mod word_schemas;
mod words;

pub use axis::{Axis, RateUnit};
pub use context::{Context, DeclaredOwner, MemoryKind, NO_CAP};
pub use findings::{
    BeyondPlan, Findings, LineDamage, ProcessOfRun, ProcessVerdict, SeriesVerdict, UnitSource, UnjudgedColumn, VERSION,
    Verdict, VerdictWord,
};
pub use judge::SeriesKind;
pub use memory_judge::MemoryJudge;
pub use processes::ProcessVerdicts;
pub use recent::{Recent, RecentGrowth};
pub use sample::{Driver, Pool, Processes, Sample};
pub use thresholds::{BYTES, COUNT, STEPS_NEEDED, Thresholds};
pub use words::{Tone, Word};

/// Judges a series of bytes in use, each with its step, in ascending order of steps.
///
/// Growth below 16 MiB does not count, and at least 90 steps are needed. [`MemoryJudge`] has other thresholds, judges several
/// series together, and takes samples one by one.
pub fn judge(series: impl IntoIterator<Item = (u64, u64)>) -> Findings {
    let mut readings = readings::Readings::new(0);
    series.into_iter().for_each(|(step, bytes)| readings.add(step, bytes as f64, false));
    judge::judge(&readings.minima().0, judge::SeriesKind::InUse, BYTES, 0)
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
