//! Findings on one series, and the verdict on all series of a run.

use crate::axis::Axis;

/// The version of the record's format.
pub const VERSION: u32 = 1;

/// The course of a series, from harmless to bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Judgement {
    /// Too short: too few windows after the warm-up.
    Inconclusive,
    /// It does not grow, or by too little to matter (16 MiB over the run).
    Bounded,
    /// It rose once or twice, at once, and not since.
    Stepped,
    /// It grew and came to rest: the last third of the run is shown to be flat.
    GrewThenFlat,
    /// It grows towards a cap that was declared, and will stop there: a cache that is not yet full.
    Filling,
    /// It rose, or its newest floors rise, and more cannot be said yet.
    Suspect,
    /// It still rises, clearly slower than before.
    Slowing,
    /// Memory that is kept beyond what is in use grows: it is not given back, or it is memory that is not counted.
    Retained,
    /// It grows, and nothing says that it will stop.
    Growing,
    /// It passed its declared cap.
    Exceeded,
}

impl Judgement {
    /// The judgement in words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Inconclusive => "inconclusive",
            Self::Bounded => "bounded",
            Self::Stepped => "stepped",
            Self::GrewThenFlat => "grew, then flat",
            Self::Filling => "filling",
            Self::Suspect => "suspect",
            Self::Slowing => "slowing",
            Self::Retained => "retained",
            Self::Growing => "growing",
            Self::Exceeded => "exceeded",
        }
    }
}

/// A judgement and what it rests on.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Findings {
    /// The course of the series.
    pub verdict: Judgement,
    /// Floors that were looked at.
    pub floors: usize,
    /// Growth over the floors, or over those of the rise: slope times steps, in bytes (or allocations).
    pub growth: f64,
    /// Bytes (or allocations) a step: the Theil-Sen slope of the floors, or of those of the rise, and the ends of its
    /// 99.9 % interval, which allows for floors that depend on those before them; `null` for fewer than two floors.
    pub slope: Option<f64>,
    /// The lower end of that interval.
    pub slope_low: Option<f64>,
    /// The upper end of that interval.
    pub slope_high: Option<f64>,
    /// The Mann-Kendall statistic of the floors.
    pub rise: f64,
    /// The step at which it began to rise, of what rises up to the end.
    pub since: Option<u64>,
    /// The step at which it had come to rest, of what grew and then did not.
    pub at_rest: Option<u64>,
    /// The slope of the last third.
    pub late_slope: Option<f64>,
    /// The upper end of its interval.
    pub late_slope_high: Option<f64>,
    /// Steps after which more could be said; of `inconclusive` and `suspect`.
    pub more_steps: Option<u64>,
}

/// `verdict.json`: is memory growing, how fast, and who holds it?
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Verdict {
    /// The version of this record's format.
    pub version: u32,
    /// The worst of all series: `exceeded`, `growing` or `slowing` of anything in use, `retained`, else that of the
    /// heap and the device.
    pub verdict: Judgement,
    /// A sentence for people.
    pub message: String,
    /// The unit of `warm_up`, `window`, slopes and `steps_to_limit` in place of steps, where a table has none.
    pub axis: Axis,
    /// Steps that were not looked at.
    pub warm_up: u64,
    /// Steps in a window; the least value of each is a floor.
    pub window: u64,
    /// The owner whose growth explains that of the memory it is in; `null` when nothing grows, or nobody explains it.
    pub owner: Option<String>,
    /// The share of the growth that the owner explains.
    pub owner_share: Option<f64>,
    /// The process that `series` is of; `null` of a table.
    pub process: Option<ProcessOfRun>,
    /// Each series that was judged.
    pub series: Vec<SeriesVerdict>,
}

/// A run has one process, and one more for each resume. Each is judged by itself; a verdict is of the newest one, or of
/// an earlier one that was growing, or passed a cap, when the newest is not as bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProcessOfRun {
    /// Its number, as in `memory.jsonl`: 0 for the first.
    pub segment: u32,
    /// The steps done at its first and at its last sample.
    pub first_step: u64,
    /// The steps done at its last sample.
    pub last_step: u64,
    /// The newest process with samples.
    pub newest_segment: u32,
    /// The verdict on the newest process, where this one is of another.
    pub newest: Option<Judgement>,
}

/// One series.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SeriesVerdict {
    /// `heap`, `device_in_use`, `resident`, …, or `owner:<name>`.
    pub name: String,
    /// `bytes` or `allocations`.
    pub unit: String,
    /// The judgement and what it rests on.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub findings: Findings,
    /// The slope times the steps of an epoch; `null` where there are no epochs.
    pub slope_per_epoch: Option<f64>,
    /// The value at its first sample.
    pub first: f64,
    /// The value at the last sample.
    pub last: f64,
    /// The highest value.
    pub peak: f64,
    /// The declared cap of an owner; of memory of the process and of the device the limit that is reached first.
    pub cap: Option<u64>,
    /// Steps until the cap or the limit is reached at this slope; only of what grows. Limits are reached by resident
    /// and by reserved memory.
    pub steps_to_limit: Option<f64>,
}
