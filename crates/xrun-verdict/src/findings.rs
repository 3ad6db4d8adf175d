//! Findings on one series, and the verdict on all series of a run.

use crate::axis::Axis;
use crate::names::FOOTPRINT;
pub use crate::words::VerdictWord;

/// Version of the format of [`Verdict`].
pub const VERSION: u32 = 1;

/// Judgement on a series, and the statistics that it follows from.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Findings {
    /// Judgement on the series.
    pub verdict: VerdictWord,
    /// Number of window minima that were judged.
    #[cfg_attr(feature = "serde", serde(alias = "floors"))]
    pub windows: usize,
    /// Growth over the judged windows, or over those of the rise: slope times steps, in bytes (or allocations).
    pub growth: f64,
    /// Theil-Sen slope of the window minima, or of those of the rise, in bytes (or allocations) per step; `null` for fewer
    /// than two windows.
    pub slope: Option<f64>,
    /// Lower end of the slope's 99.9 % interval, which allows for autocorrelation.
    pub slope_low: Option<f64>,
    /// Upper end of that interval.
    pub slope_high: Option<f64>,
    /// Growth over the run as planned that the window minima do not exclude, in bytes (or allocations): the upper end of a
    /// 95 % interval; `null` for fewer than eight windows.
    pub growth_max: Option<f64>,
    /// Mann-Kendall statistic of the window minima.
    #[cfg_attr(feature = "serde", serde(alias = "rise"))]
    pub mann_kendall: f64,
    /// Step at which the rise began; only of a series that rises up to its end.
    pub since: Option<u64>,
    /// Step from which on the series is flat; only of a series that grew before. `suspect` has it where the flat end is shorter
    /// than three tenths of the run.
    pub flat_since: Option<u64>,
    /// Slope before the rise became slower; only of `slowing`.
    pub earlier_slope: Option<f64>,
    /// Slope of the last third.
    pub late_slope: Option<f64>,
    /// Upper end of that slope's interval.
    pub late_slope_high: Option<f64>,
    /// Further steps needed to decide; only of `inconclusive` and `suspect`.
    pub more_steps: Option<u64>,
}

/// Contents of `verdict.json`: whether memory is growing, how fast, and who holds it.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Verdict {
    /// Version of this record's format.
    pub version: u32,
    /// Worst judgement of all series: `exceeded`, `growing` or `slowing` of memory in use, or `retained`; otherwise that
    /// of the heap and the device.
    pub verdict: VerdictWord,
    /// Verdict as a sentence.
    pub message: String,
    /// Unit of `warm_up`, `window`, slopes and `steps_to_limit`, where a table has no steps.
    pub axis: Axis,
    /// Steps of the warm-up, which are not judged.
    pub warm_up: u64,
    /// Steps in a window; the minimum of each window is judged.
    pub window: u64,
    /// Owner whose growth explains the growth of the memory it lives in; `null` where nothing grows or no owner explains it.
    pub owner: Option<String>,
    /// Fraction of the growth that the owner explains.
    pub owner_share: Option<f64>,
    /// Memory beyond the plan that rose and rests; `null` where there is none, and without a plan.
    #[cfg_attr(feature = "serde", serde(default))]
    pub beyond_plan: Option<BeyondPlan>,
    /// Process that `series` belongs to; `null` for a table.
    pub process: Option<ProcessOfRun>,
    /// Judgement on each process of a resumed run, the newest last; absent for a run of one process.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Vec::is_empty"))]
    pub processes: Vec<ProcessVerdict>,
    /// All judged series.
    pub series: Vec<SeriesVerdict>,
    /// Columns of a table that are not judged.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Vec::is_empty"))]
    pub not_judged: Vec<UnjudgedColumn>,
    /// Files of a run whose lines are not those that were written; absent if there are none. If they are samples, the
    /// verdict is the one that was recorded on all of them when the run ended.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Vec::is_empty"))]
    pub line_damage: Vec<LineDamage>,
}

impl Verdict {
    /// Judgement on all host memory in use.
    pub fn footprint(&self) -> Option<&SeriesVerdict> {
        self.series.iter().find(|one| one.name == FOOTPRINT)
    }
}

/// Lines of a file of a run that are not those that were written. Where all counts are 0, their bytes differ.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LineDamage {
    /// Name of the file: `metrics.jsonl` or `memory.jsonl`.
    pub file: String,
    /// Number of lines that were written: by the summary of a run, and for one without, up to its last checkpoint.
    pub written: u64,
    /// Number of lines that are missing.
    pub missing: u64,
    /// Number of damaged lines, which are left out.
    pub damaged: u64,
    /// Number of lines that repeat the line before them.
    pub doubled: u64,
    /// Number of lines that belong before an earlier line.
    pub out_of_order: u64,
}

impl std::fmt::Display for LineDamage {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let counts = [self.missing, self.damaged, self.doubled, self.out_of_order];
        let counts =
            counts.iter().zip(["missing", "damaged", "doubled", "out of order"]).filter(|(count, _)| **count > 0);
        let counts: Vec<String> = counts.map(|(count, what)| format!("{count} {what}")).collect();
        let what = if counts.is_empty() { "their bytes differ".to_owned() } else { counts.join(", ") };
        write!(formatter, "lines of {} are not those that were written: of {}, {what}", self.file, self.written)
    }
}

/// Memory that rose and rests, and that no cap of the plan covers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BeyondPlan {
    /// Buffer without a cap that holds it; `null` where no buffer does.
    pub owner: Option<String>,
    /// Bytes of the owner, or the rise since the warm-up of memory in no buffer.
    pub bytes: u64,
    /// Step from which on it is level.
    pub since: Option<u64>,
}

/// Column of a table that is not judged.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UnjudgedColumn {
    /// Name of the column.
    pub column: String,
    /// Reason why it is not judged.
    pub reason: String,
    /// True if its name is that of memory, but its cells cannot be read: a leak in it would go unseen, so `--fail-on`
    /// fails.
    #[cfg_attr(feature = "serde", serde(default))]
    pub unreadable_memory: bool,
}

/// Evidence for the unit of a column of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum UnitSource {
    /// Name of the column.
    Header,
    /// Each cell.
    Cells,
    /// Format of a known tool.
    Tool,
    /// Option `--unit` or `--of`.
    Option,
    /// Values that are likely in one unit only; the verdict's message says so.
    Assumed,
    /// None: the series is judged relative to its own level.
    Unknown,
}

/// Process of a run that a verdict is about. A run has one process, and one more for each resume; each is judged
/// separately. The verdict is the worst one that shows growth (worse than `suspect`), or else that on the longest process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProcessOfRun {
    /// Index of the process, as in `memory.jsonl`: 0 for the first.
    pub segment: u32,
    /// Steps done at its first sample.
    pub first_step: u64,
    /// Steps done at its last sample.
    pub last_step: u64,
    /// Index of the newest process with samples.
    pub newest_segment: u32,
    /// Judgement on the newest process, where this verdict is about an earlier one.
    pub newest: Option<VerdictWord>,
}

/// Judgement on one process of a resumed run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProcessVerdict {
    /// Index of the process, as in `memory.jsonl`: 0 for the first.
    pub segment: u32,
    /// Steps done at its first sample.
    pub first_step: u64,
    /// Steps done at its last sample.
    pub last_step: u64,
    /// Judgement on it.
    #[cfg_attr(feature = "schema", schemars(schema_with = "VerdictWord::listed"))]
    pub verdict: VerdictWord,
}

/// Findings on one series of a run.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SeriesVerdict {
    /// Name of the series: `heap`, `device_in_use`, `rss`, …, or `owner:<name>`; with the suffix `:peaks` for the
    /// peaks of a series with a level floor, where they grow.
    pub name: String,
    /// Unit of the values: `bytes`, `allocations`, `files`, `processes` or `threads`; of a column also `percent` or
    /// `unknown`.
    pub unit: String,
    /// Evidence for the unit of a column.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub unit_source: Option<UnitSource>,
    /// Judgement and its statistics.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub findings: Findings,
    /// Slope times the steps of an epoch; `null` where there are no epochs.
    pub slope_per_epoch: Option<f64>,
    /// Value of the first sample.
    pub first: f64,
    /// Value of the last sample.
    pub last: f64,
    /// Highest value.
    pub peak: f64,
    /// Number of low readings that were left out: gaps, and dips of single readings.
    #[cfg_attr(feature = "serde", serde(default))]
    pub left_out: u64,
    /// Last step that was judged, where readings go on after the process has ended.
    #[cfg_attr(feature = "serde", serde(default))]
    pub ended: Option<u64>,
    /// Number of times that a 32-bit counter of bytes began again and was continued.
    #[cfg_attr(feature = "serde", serde(default))]
    pub wraps: u32,
    /// Declared cap of an owner, or for memory of the process or device the limit that is reached first.
    pub cap: Option<u64>,
    /// Steps until the cap or the limit is reached at this slope; only of a series that grows. RSS and reserved device
    /// memory count towards limits.
    pub steps_to_limit: Option<f64>,
}
