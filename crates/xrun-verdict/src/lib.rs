//! Judges whether a series of memory samples grows, how fast, since when, and who holds it.
//!
//! ```
//! use xrun_verdict::{Judgement, judge};
//!
//! // A mebibyte a step, from step 400 on.
//! let leak = (0..1200u64).map(|step| (step, (500 << 20) + step.saturating_sub(400) * (1 << 20)));
//! let findings = judge(leak);
//! assert_eq!(findings.verdict, Judgement::Growing);
//! assert_eq!(findings.slope, Some(1_048_576.0));
//! assert!(findings.since.is_some_and(|step| (390..410).contains(&step)));
//! ```
//!
//! [`judge`] is for one series. A [`Watch`] takes the samples of a process as they come and judges all of their series
//! together: heap, resident memory, the device's pool, and what each owner holds, whose caps a [`Context`] declares.
//! Its [`Verdict`] names the owner whose growth explains that of the memory, and says so in a sentence. With the
//! feature `table`, `table::of_table` judges what mprof, psrecord, memray, nvidia-smi, free, vmstat or a table in CSV
//! recorded.
//!
//! A series is cut into windows. Judged is the least value of each, its floor, so that what a cleanup gives back does
//! not count. The slope of the floors is that of Theil and Sen with a 99.9 % interval; whether they rise at all is told
//! by the statistic of Mann and Kendall. Memory needed for a series is bounded, however long it is.

#![warn(missing_docs)]

mod axis;
mod context;
mod findings;
mod floors;
mod judge;
pub mod names;
mod recent;
mod rising;
mod sample;
mod shape;
#[cfg(feature = "table")]
pub mod table;
mod trend;
mod units;
mod watch;
mod words;

pub use axis::{Axis, Per};
pub use context::{Context, Declared, NO_CAP, Place};
pub use findings::{Findings, Judgement, ProcessOfRun, SeriesVerdict, VERSION, Verdict};
pub use judge::{BYTES, COUNT, STEPS_NEEDED, Scale, Series};
pub use recent::{Recent, RecentGrowth};
pub use sample::{Driver, Pool, Processes, Sample};
pub use watch::Watch;

/// Judges a series of bytes in use, each with its step; steps never fall.
///
/// Growth of less than 16 MiB is none. At least 90 steps are needed. For other scales, for several series together and
/// for samples that come one by one there is [`Watch`].
pub fn judge(series: impl IntoIterator<Item = (u64, u64)>) -> Findings {
    let points = series.into_iter().map(|(step, bytes)| (step, bytes as f64));
    judge::judge(&floors::floors(points, 0), Series::InUse, BYTES)
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
