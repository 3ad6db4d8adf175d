//! Judgement on all series of a run together.
//!
//! Samples come one by one, during a run or from a file; of each series only its windows are kept.

use std::collections::BTreeMap;

use crate::axis::Axis;
use crate::context::{Context, MemoryKind, NO_CAP};
use crate::findings::{BeyondPlan, ProcessOfRun, SeriesVerdict, UnitSource, VERSION, Verdict, VerdictWord};
use crate::judge::{SeriesKind, judge, suspicious};
use crate::message::{self, Attribution, RunSpan};
use crate::names::{
    DRIVER_BEYOND, FOOTPRINT, GPU_FOOTPRINT, LIBRARIES, OWNER_PREFIX, PEAKS_SUFFIX, RESERVED_BEYOND, RSS_BEYOND,
    TOTALS, UNCAPPED, is_group, is_on_gpus, lives_in, unit,
};
use crate::processes::ProcessVerdicts;
use crate::readings::Readings;
use crate::sample::{Processes, Sample};
use crate::thresholds::{BYTES, COUNT, Thresholds, WINDOWS_NEEDED, Z};
use crate::trend;
use crate::window_minima::WindowSeries;

/// Smallest fraction of the growth for which an owner is named.
const FRACTION_MIN: f64 = 0.8;
/// Length of a sample on the axis of samples, in steps.
const STEPS_PER_SAMPLE: u64 = 1000;
/// Factor on `growth_min` for peaks, which are noisier than floors.
const PEAK_GROWTH_FACTOR: f64 = 4.0;
/// Cap on the series; further ones are ignored.
const SERIES_MAX: usize = 256;

/// Windows and range of one series.
#[derive(Clone, Debug)]
struct TrackedSeries {
    readings: Readings,
    /// Low values are no gaps in the readings.
    may_vanish: bool,
    kind: SeriesKind,
    thresholds: Thresholds,
    /// Unit of a column of a table, with the evidence for it.
    unit: Option<(&'static str, UnitSource)>,
    first: f64,
    last: f64,
    peak: f64,
}

impl TrackedSeries {
    fn minima(&self) -> WindowSeries {
        self.readings.minima().0
    }
}

/// Judge of the samples of a run, which are added as they come, process after process; see [`MemoryJudge::verdict`].
#[derive(Clone, Debug)]
pub struct MemoryJudge {
    context: Context,
    /// Series of the newest process.
    series: BTreeMap<String, TrackedSeries>,
    /// Newest process.
    process: Option<ProcessOfRun>,
    /// Bytes of the container's limit that are available to the newest process.
    container_budget: Option<u64>,
    /// Largest temporary use of heap within a step of the newest process.
    temporary_peak: u64,
    /// Verdicts on the processes before.
    ended: ProcessVerdicts,
}

impl MemoryJudge {
    /// Judge without samples.
    pub fn new(context: Context) -> Self {
        Self {
            context,
            series: BTreeMap::new(),
            process: None,
            container_budget: None,
            temporary_peak: 0,
            ended: ProcessVerdicts::default(),
        }
    }

    /// Sets the length on the axis below which every verdict is `inconclusive`.
    pub fn set_span_min(&mut self, span: u64) {
        self.context.span_min = span;
    }

    /// Adds a sample. A new process starts new series: it has its own heap, and a cache that fills up in each process would
    /// look like growth.
    pub fn add(&mut self, sample: &Sample<'_>) {
        let Sample { segment, step, heap, .. } = *sample;
        if self.process.is_some_and(|before| before.segment != segment) {
            self.end_process();
        }
        let first_step = self.process.map_or(step, |process| process.first_step);
        self.process =
            Some(ProcessOfRun { segment, first_step, last_step: step, newest_segment: segment, newest: None });
        self.container_budget = self.container_budget.or(sample.container_budget);
        self.temporary_peak = self.temporary_peak.max(sample.heap_high.unwrap_or_default().saturating_sub(heap));
        let (at, thresholds) = (self.position(sample), self.thresholds());
        if let Some(processes) = sample.processes {
            return self.add_command(at, sample, processes);
        }
        // Totals are noisier than memory in use.
        let coarse = Thresholds { growth_min: thresholds.growth_min.max(BYTES.growth_min), ..BYTES };
        self.add_in_use(at, "heap", heap, MemoryKind::Host, sample);
        if let Some(pool) = sample.pool {
            self.add_in_use(at, "device_in_use", pool.in_use, MemoryKind::Device, sample);
        }
        let Sample { rss, pool, driver, .. } = *sample;
        let (process, reserved) = (driver.and_then(|driver| driver.process), pool.map(|pool| pool.reserved));
        let beyond = |whole: Option<u64>, part: Option<u64>| Some(whole?.saturating_sub(part?));
        for (name, value, kind, thresholds) in [
            ("rss", rss, SeriesKind::Total, thresholds),
            (RSS_BEYOND, beyond(rss, Some(heap)), SeriesKind::Overhead, coarse),
            ("device_allocations", pool.map(|pool| pool.allocations), SeriesKind::InUse, COUNT),
            ("device_reserved", reserved, SeriesKind::Total, thresholds),
            (RESERVED_BEYOND, beyond(reserved, pool.map(|pool| pool.in_use)), SeriesKind::Overhead, coarse),
            ("anonymous", sample.anonymous, SeriesKind::Total, thresholds),
            (LIBRARIES, sample.libraries, SeriesKind::Total, coarse),
            ("driver_process", process, SeriesKind::Total, thresholds),
            // Memory of the whole device may belong to other processes.
            (
                "driver_device",
                driver.filter(|_| process.is_none()).map(|one| one.device),
                SeriesKind::Total,
                thresholds,
            ),
            (DRIVER_BEYOND, beyond(process, reserved), SeriesKind::Overhead, coarse),
            ("container", sample.container, SeriesKind::Total, thresholds),
        ] {
            value.into_iter().for_each(|value| self.add_value(at, name, value, kind, thresholds));
        }
        self.add_owners(at, sample, thresholds);
    }

    /// Adds a sample of a command. Its memory in use is what only its processes can free; the kernel can drop pages of files.
    fn add_command(&mut self, at: u64, sample: &Sample<'_>, processes: Processes) {
        self.add_owners(at, sample, BYTES);
        let Processes { count, threads, open_files, files, on_gpus } = processes;
        for (name, value, kind, thresholds) in [
            (FOOTPRINT, Some(sample.heap), SeriesKind::InUse, BYTES),
            (GPU_FOOTPRINT, on_gpus, SeriesKind::InUse, BYTES),
            ("rss", sample.rss, SeriesKind::Total, BYTES),
            ("files", files, SeriesKind::Total, BYTES),
            ("container", sample.container, SeriesKind::Total, BYTES),
            ("processes", Some(count), SeriesKind::Total, COUNT),
            ("threads", Some(threads), SeriesKind::Total, COUNT),
            ("open_files", open_files, SeriesKind::Total, COUNT),
        ] {
            value.into_iter().for_each(|value| self.add_value(at, name, value, kind, thresholds));
        }
    }

    fn add_owners(&mut self, at: u64, sample: &Sample<'_>, thresholds: Thresholds) {
        for (owner, bytes) in sample.owners.into_iter().flatten() {
            self.add_value(at, &format!("{OWNER_PREFIX}{owner}"), *bytes, SeriesKind::InUse, thresholds);
        }
    }

    /// Returns the position of a sample on the axis.
    fn position(&self, sample: &Sample<'_>) -> u64 {
        match self.context.axis {
            Axis::Clock => sample.milliseconds,
            _ => sample.step,
        }
    }

    /// Clears the state of the process that has ended, after it was judged.
    fn end_process(&mut self) {
        let ended = self.judge_process(true);
        self.ended.end(ended);
        self.series.clear();
        (self.process, self.container_budget, self.temporary_peak) = (None, None, 0);
    }

    /// Adds the bytes in use of one kind of memory, and the same without its buffers whose growth will end.
    fn add_in_use(&mut self, at: u64, name: &str, in_use: u64, memory: MemoryKind, sample: &Sample<'_>) {
        let capped = self.context.bytes_in_capped(sample, memory, self.container_budget);
        self.add_value(at, name, in_use, SeriesKind::InUse, self.thresholds());
        let uncapped = format!("{UNCAPPED}{name}");
        self.add_value(at, &uncapped, in_use.saturating_sub(capped), SeriesKind::InUse, self.thresholds());
    }

    fn thresholds(&self) -> Thresholds {
        self.context.thresholds.unwrap_or(BYTES)
    }

    /// Adds one value of a series; of more than 256 series the rest is ignored.
    pub fn add_value(&mut self, step: u64, name: &str, value: u64, kind: SeriesKind, thresholds: Thresholds) {
        self.add_number(step, name, value as f64, (kind, thresholds), None);
    }

    /// Adds one number of a series; `unit` is that of a column of a table.
    pub(crate) fn add_number(
        &mut self,
        step: u64,
        name: &str,
        value: f64,
        (kind, thresholds): (SeriesKind, Thresholds),
        unit: Option<(&'static str, UnitSource)>,
    ) {
        if let Some(tracked) = self.series.get_mut(name) {
            tracked.last = value;
            tracked.peak = tracked.peak.max(value);
            tracked.readings.add(step, value, tracked.may_vanish);
        } else if self.series.len() < SERIES_MAX {
            let mut readings = Readings::new(self.context.settled);
            // A buffer and a count may be 0 while the process lives, and so may what is beyond the memory in use.
            let may_vanish = name.starts_with(OWNER_PREFIX)
                || name.starts_with(UNCAPPED)
                || name == GPU_FOOTPRINT
                || thresholds == COUNT
                || kind == SeriesKind::Overhead;
            readings.add(step, value, may_vanish);
            let tracked =
                TrackedSeries { readings, may_vanish, kind, thresholds, unit, first: value, last: value, peak: value };
            self.series.insert(name.to_owned(), tracked);
        }
    }

    /// Steps in a window at present.
    pub fn window(&self) -> u64 {
        self.series.values().map(|tracked| tracked.readings.length()).max().unwrap_or(1)
    }

    /// Names of the series that are suspect during the run.
    pub fn suspects(&self) -> Vec<&str> {
        let is_suspect = |tracked: &TrackedSeries| suspicious(&tracked.minima(), tracked.thresholds);
        let in_use = self.public_series().filter(|(_, tracked)| tracked.kind == SeriesKind::InUse);
        let suspect =
            in_use.filter(|(name, tracked)| is_suspect(tracked) && !self.growth_ends(name, tracked, is_suspect));
        suspect.map(|(name, _)| name.as_str()).collect()
    }

    /// Series that are part of a verdict.
    fn public_series(&self) -> impl Iterator<Item = (&String, &TrackedSeries)> {
        self.series.iter().filter(|(name, _)| !name.starts_with(UNCAPPED))
    }

    /// Returns whether the growth of a series will end by declared caps: it is such a buffer, or a total that does not grow
    /// without them.
    fn growth_ends(&self, name: &str, tracked: &TrackedSeries, grows: impl Fn(&TrackedSeries) -> bool) -> bool {
        if let Some(owner) = name.strip_prefix(OWNER_PREFIX) {
            return self.context.owners.get(owner).is_some_and(|owner| {
                owner.growth_ends(&self.context, self.container_budget) && tracked.peak <= owner.full as f64
            });
        }
        self.series.get(&format!("{UNCAPPED}{name}")).is_some_and(|uncapped| !grows(uncapped))
    }

    /// Verdict on the samples so far: the worst one on a process that grew, or else that on the longest. The message has those
    /// on all processes of a resumed run.
    pub fn verdict(&self) -> Verdict {
        self.ended.with_newest(self.judge_process(false))
    }

    /// Verdict on the newest process alone.
    pub fn newest_verdict(&self) -> Verdict {
        self.judge_process(false)
    }

    /// Verdict on the newest process.
    fn judge_process(&self, has_ended: bool) -> Verdict {
        let mut series: Vec<SeriesVerdict> = Vec::new();
        for (name, tracked) in self.public_series() {
            let floor = self.judge_series(name, tracked);
            let peaks = self.judge_peaks(tracked, &floor);
            series.extend(std::iter::once(floor).chain(peaks));
        }
        if has_ended {
            // A process that has ended reaches no limit.
            series.iter_mut().for_each(|one| one.steps_to_limit = None);
        }
        let verdict = if self.context.columns { worst_column(&series) } else { worst(&series) };
        let total = |verdict| series.iter().find(move |one| is_total(&one.name) && one.findings.verdict == verdict);
        let total = total(VerdictWord::Growing).or_else(|| total(verdict)).filter(|one| one.findings.verdict.rises());
        let owners = || series.iter().filter(|one| one.name.starts_with(OWNER_PREFIX));
        let explained = total.and_then(|total| self.explain_growth(total, &series));
        let exceeded = owners().find(|one| one.findings.verdict == VerdictWord::Exceeded);
        let growing = owners().find(|one| one.findings.verdict == verdict && verdict.rises());
        let owner = explained
            .as_ref()
            .map(|(name, _)| name.clone())
            .or_else(|| exceeded.or(growing).and_then(|one| Some(one.name.strip_prefix(OWNER_PREFIX)?.to_owned())))
            .or_else(|| fastest_owner(total?, &series));
        let flat = series
            .iter()
            .find(|one| verdict.rose_and_rests() && is_total(&one.name) && one.findings.verdict == verdict);
        let holder = flat.and_then(|total| self.main_owner(total, &series, |one| one.last - one.first));
        let beyond_plan = self.beyond_plan(&series);
        let unplanned_owner = || beyond_plan.as_ref().filter(|_| verdict.rose_and_rests())?.owner.clone();
        let owner = owner.or_else(unplanned_owner).or_else(|| holder.as_ref().map(|(name, _)| name.clone()));
        // That of another owner is none of this one.
        let holder = holder.filter(|(name, _)| owner.as_ref() == Some(name));
        let fraction = explained.or(holder).map(|(_, fraction)| fraction);
        let minima = self.series.get("heap").or_else(|| self.series.values().next());
        let minima = minima.map(|tracked| tracked.minima()).unwrap_or_default();
        let run = RunSpan {
            is_command: self.series.contains_key(FOOTPRINT),
            axis: self.context.axis,
            window: minima.length,
            steps: self.context.steps,
            epoch: self.context.steps_per_epoch,
            warm_up_end: (minima.first + minima.warm_up) as f64,
            last: minima.steps.last().copied().unwrap_or_default(),
        };
        let full_in =
            owner.as_deref().filter(|_| verdict == VerdictWord::Filling).and_then(|owner| self.full_in(owner));
        // Too early for a field of the verdict, but the message says where to look.
        let early = if verdict == VerdictWord::Inconclusive { self.early_owner(&series) } else { None };
        let (named, share) = match &early {
            Some((owner, fraction)) => (Some(owner.as_str()), Some(*fraction)),
            None => (owner.as_deref(), fraction),
        };
        let attribution = Attribution { owner: named, fraction: share, full_in, beyond_plan: beyond_plan.as_ref() };
        let message = message::message(run, verdict, &series, attribution);
        Verdict {
            version: VERSION,
            axis: self.context.axis,
            verdict,
            message,
            warm_up: minima.warm_up,
            // Where samples are rarer than windows, each sample is one.
            window: minima.length.max(minima.spacing()).max(if self.context.axis == Axis::Samples {
                STEPS_PER_SAMPLE
            } else {
                1
            }),
            owner,
            owner_share: fraction,
            beyond_plan,
            process: self.process,
            processes: Vec::new(),
            series,
            not_judged: Vec::new(),
            line_damage: Vec::new(),
        }
    }

    /// Limit that ends the growth of a series, and the bytes that count towards it now: limits apply to RSS and to reserved
    /// memory, whatever part of it is in use.
    fn limit(&self, name: &str) -> Option<(u64, f64)> {
        let last = |name: &str| self.series.get(name).map(|tracked| tracked.last);
        match name {
            name if name == GPU_FOOTPRINT || is_on_gpus(name) => self.context.device_limit.zip(last(GPU_FOOTPRINT)),
            name if last(FOOTPRINT).is_some() && (name == FOOTPRINT || name.starts_with(OWNER_PREFIX)) => {
                let held = last(FOOTPRINT)?;
                [self.context.host_limit, self.container_budget].into_iter().flatten().min().map(|limit| (limit, held))
            }
            "heap" | "rss" | "anonymous" | "container" | LIBRARIES | RSS_BEYOND => {
                let heap = last("heap")?;
                let rss = last("rss").unwrap_or(heap);
                let limited = self.context.host_limit.map(|limit| (limit, rss));
                // The container's limit applies to the peak of the next step.
                let peak = rss.max(heap + self.temporary_peak as f64);
                let contained = self.container_budget.map(|budget| (budget, peak));
                let available = |(limit, used): &(u64, f64)| *limit as f64 - used;
                limited.into_iter().chain(contained).min_by(|a, b| available(a).total_cmp(&available(b)))
            }
            "device_in_use" | "device_reserved" | RESERVED_BEYOND => {
                self.context.device_limit.zip(last("device_reserved").or_else(|| last("device_in_use")))
            }
            _ => None,
        }
    }

    fn judge_series(&self, name: &str, tracked: &TrackedSeries) -> SeriesVerdict {
        let planned = if self.context.axis == Axis::Steps { self.context.steps } else { 0 };
        let judged =
            |tracked: &TrackedSeries, minima: &WindowSeries| judge(minima, tracked.kind, tracked.thresholds, planned);
        let (minima, left_out) = tracked.readings.minima();
        let mut findings = judged(tracked, &minima);
        let missing = self.context.span_min.saturating_sub(minima.span());
        if missing > 0 {
            (findings.verdict, findings.more_steps) = (VerdictWord::Inconclusive, Some(missing));
        }
        if self.context.axis == Axis::Samples {
            // Whole samples, one for each missing window at least.
            let windows = WINDOWS_NEEDED.saturating_sub(findings.windows).max(1) as u64;
            let whole = |more: u64| {
                more.next_multiple_of(STEPS_PER_SAMPLE).max(if findings.windows < WINDOWS_NEEDED {
                    windows * STEPS_PER_SAMPLE
                } else {
                    0
                })
            };
            findings.more_steps = findings.more_steps.map(whole);
        }
        if findings.verdict.rises()
            && self.growth_ends(name, tracked, |uncapped| judged(uncapped, &uncapped.minima()).verdict.rises())
        {
            findings.verdict = VerdictWord::Filling;
        }
        let cap =
            name.strip_prefix(OWNER_PREFIX).and_then(|owner| self.context.owners.get(owner)).map(|owner| owner.cap);
        if cap.is_some_and(|cap| tracked.peak > cap as f64) {
            findings.verdict = VerdictWord::Exceeded;
        }
        let limit = cap.map(|cap| (cap, tracked.last)).or_else(|| self.limit(name));
        let growing = findings.slope.filter(|slope| *slope > 0.0 && findings.verdict.rises());
        let reached_in = |((limit, used), slope): ((u64, f64), f64)| ((limit as f64 - used) / slope).max(0.0);
        let per_epoch = Some(self.context.steps_per_epoch as f64).filter(|steps| *steps > 0.0);
        SeriesVerdict {
            name: name.to_owned(),
            unit: tracked.unit.map_or_else(|| unit(name, tracked.thresholds), |(unit, _)| unit).into(),
            unit_source: tracked.unit.map(|(_, source)| source),
            slope_per_epoch: findings.slope.zip(per_epoch).map(|(slope, steps)| slope * steps),
            steps_to_limit: limit.filter(|(limit, _)| *limit < NO_CAP).zip(growing).map(reached_in),
            first: tracked.first,
            last: tracked.last,
            peak: tracked.peak,
            cap: limit.map(|(limit, _)| limit),
            left_out: left_out.readings,
            ended: left_out.ended,
            wraps: left_out.wraps,
            findings,
        }
    }

    /// Peaks of memory in use whose floor is level, as a series of their own; `None` where they do not grow. Peaks are
    /// noisier than floors.
    fn judge_peaks(&self, tracked: &TrackedSeries, floor: &SeriesVerdict) -> Option<SeriesVerdict> {
        if !floor.findings.verdict.may_be_level() || tracked.may_vanish || tracked.kind != SeriesKind::InUse {
            return None;
        }
        let Thresholds { growth_min, move_min } = tracked.thresholds;
        let thresholds =
            Thresholds { growth_min: PEAK_GROWTH_FACTOR * growth_min, move_min: PEAK_GROWTH_FACTOR * move_min };
        let findings = judge(&tracked.minima().heights(), tracked.kind, thresholds, 0);
        (findings.verdict == VerdictWord::Growing).then(|| SeriesVerdict {
            name: format!("{}{PEAKS_SUFFIX}", floor.name),
            slope_per_epoch: None,
            findings,
            ..floor.clone()
        })
    }

    /// Owner whose slope is most of the slope of the memory that it lives in, since the onset of the growth; with its
    /// fraction.
    fn explain_growth(&self, total: &SeriesVerdict, series: &[SeriesVerdict]) -> Option<(String, f64)> {
        let since = total.findings.since.unwrap_or_default();
        let slopes = self
            .owners_in(total, series)
            .filter_map(|(owner, one)| Some((owner, one.findings.verdict, self.slope_since(&one.name, since)?)));
        // A cache may fill up faster than a leak grows, and does not explain it.
        let is_leak = total.findings.verdict == VerdictWord::Growing;
        let (filling, candidates): (Vec<_>, Vec<_>) =
            slopes.partition(|(_, verdict, _)| is_leak && *verdict == VerdictWord::Filling);
        let filling: f64 = filling.iter().map(|(_, _, slope)| slope).sum();
        let whole = self.slope_since(&total.name, since).map(|slope| slope - filling).filter(|slope| *slope > 0.0)?;
        main_fraction(candidates.into_iter().map(|(owner, _, slope)| (owner, slope / whole)))
    }

    /// Owner that holds most of the growth of a total, with its fraction.
    fn main_owner(
        &self,
        total: &SeriesVerdict,
        series: &[SeriesVerdict],
        grew: impl Fn(&SeriesVerdict) -> f64,
    ) -> Option<(String, f64)> {
        let whole = Some(grew(total)).filter(|whole| *whole > 0.0)?;
        main_fraction(self.owners_in(total, series).map(|(owner, one)| (owner, grew(one) / whole)))
    }

    /// Largest memory beyond the plan that rose and rests: of an owner without a cap, or else in no buffer.
    fn beyond_plan(&self, series: &[SeriesVerdict]) -> Option<BeyondPlan> {
        if self.context.owners.is_empty() || self.series.contains_key(FOOTPRINT) {
            return None;
        }
        let cap = |owner: &str| self.context.owners.get(owner).map_or(NO_CAP, |owner| owner.cap);
        let rests = series.iter().filter(|one| one.findings.verdict.rose_and_rests());
        let owners = rests.filter_map(|one| Some((one, one.name.strip_prefix(OWNER_PREFIX)?)));
        let uncapped = owners.filter(|(_, owner)| cap(owner) == NO_CAP).max_by(|a, b| a.0.last.total_cmp(&b.0.last));
        if let Some((one, owner)) = uncapped {
            let (owner, bytes) = (Some(owner.to_owned()), one.last as u64);
            return Some(BeyondPlan { owner, bytes, since: one.findings.flat_since });
        }
        let rest = ["device_in_use", "heap"].map(|total| self.series.get(&format!("{UNCAPPED}{total}")));
        let found = rest.into_iter().flatten().filter_map(|tracked| {
            let minima = tracked.minima();
            let findings = judge(&minima, tracked.kind, tracked.thresholds, 0);
            let rise = minima.values.last()? - minima.values.first()?;
            findings.verdict.rose_and_rests().then_some((rise.max(0.0) as u64, findings.flat_since))
        });
        found.max().map(|(bytes, since)| BeyondPlan { owner: None, bytes, since })
    }

    /// Owner that holds most of the growth since the warm-up, where there was a move.
    fn early_owner(&self, series: &[SeriesVerdict]) -> Option<(String, f64)> {
        let moved = |one: &&SeriesVerdict| is_total(&one.name) && one.findings.growth >= self.thresholds().move_min;
        series.iter().filter(moved).find_map(|total| self.main_owner(total, series, |one| one.findings.growth))
    }

    /// Owners that live in the memory of a total.
    fn owners_in<'a>(
        &self,
        total: &SeriesVerdict,
        series: &'a [SeriesVerdict],
    ) -> impl Iterator<Item = (&'a str, &'a SeriesVerdict)> {
        let memory = if total.name == "heap" { MemoryKind::Host } else { MemoryKind::Device };
        let owners = series.iter().filter_map(|one| Some((one.name.strip_prefix(OWNER_PREFIX)?, one)));
        let name = total.name.clone();
        let owners = owners.filter(move |(_, one)| lives_in(&name, &one.name));
        owners.filter(move |(owner, _)| self.context.owners.get(*owner).is_none_or(|owner| owner.memory == memory))
    }

    /// Steps until an owner is full.
    fn full_in(&self, owner: &str) -> Option<f64> {
        let declared = self.context.owners.get(owner)?;
        let name = format!("{OWNER_PREFIX}{owner}");
        let slope = self.slope_since(&name, 0).filter(|slope| *slope > 0.0)?;
        Some(((declared.full as f64 - self.series.get(&name)?.last) / slope).max(0.0))
    }

    fn slope_since(&self, name: &str, since: u64) -> Option<f64> {
        let minima = self.series.get(name)?.minima();
        let part = minima.from(minima.steps.partition_point(|step| *step < since as f64));
        Some(trend::theil_sen(&part.steps, &part.values, Z)?.median)
    }
}

/// Owner with the largest fraction, if it explains the growth. One that a command reports itself is a part of a group of
/// processes, and says more.
fn main_fraction<'a>(fractions: impl Iterator<Item = (&'a str, f64)>) -> Option<(String, f64)> {
    let explaining = fractions.filter(|(_, fraction)| *fraction >= FRACTION_MIN);
    let (owner, fraction) = explaining.max_by(|a, b| is_group(b.0).cmp(&is_group(a.0)).then(a.1.total_cmp(&b.1)))?;
    Some((owner.to_owned(), fraction))
}

/// Fastest owner that grows faster than an unexplained total, or that rises and has no cap. The first lives in memory without
/// a total, such as pools of other threads, each of which costs a little heap, too. The bytes of the second may be counted in
/// part, and grow in stairs as the capacity of a vector does.
fn fastest_owner(total: &SeriesVerdict, series: &[SeriesVerdict]) -> Option<String> {
    let slope = |one: &SeriesVerdict| one.findings.slope.unwrap_or_default();
    let is_uncapped =
        |one: &SeriesVerdict| one.cap == Some(NO_CAP) && one.findings.slope_low.is_some_and(|low| low > 0.0);
    let explains = |one: &SeriesVerdict| match one.findings.verdict {
        VerdictWord::Growing => slope(one) > slope(total) || is_uncapped(one),
        verdict => verdict.rises() && is_uncapped(one),
    };
    let growing = series.iter().filter(|one| explains(one));
    let owners = growing.filter_map(|one| Some((one.name.strip_prefix(OWNER_PREFIX)?, slope(one))));
    owners.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(owner, _)| owner.to_owned())
}

/// Judgement on a command; `None` for anything else. Only the sum of all processes counts, as memory may move from one
/// group to another, and GPU memory counts once it rises.
fn worst_of_command(series: &[SeriesVerdict]) -> Option<VerdictWord> {
    let of = |name: &str| series.iter().find(|one| one.name == name).map(|one| one.findings.verdict);
    let held = of(FOOTPRINT)?.max(of(&format!("{FOOTPRINT}{PEAKS_SUFFIX}")).unwrap_or(VerdictWord::Inconclusive));
    Some(of(GPU_FOOTPRINT).filter(|on_gpus| on_gpus.rises()).map_or(held, |on_gpus| on_gpus.max(held)))
}

fn is_total(name: &str) -> bool {
    matches!(name, "heap" | "device_in_use" | FOOTPRINT | GPU_FOOTPRINT)
}

/// Worst judgement: `exceeded`, `growing` and `slowing` of memory in use, and `retained`; otherwise that of heap and
/// device, or of all series where there is neither, as in a table.
fn worst(series: &[SeriesVerdict]) -> VerdictWord {
    let verdicts =
        |of: &dyn Fn(&SeriesVerdict) -> bool| series.iter().filter(|one| of(one)).map(|one| one.findings.verdict).max();
    let counts = |one: &SeriesVerdict| match one.findings.verdict {
        VerdictWord::Retained => true,
        VerdictWord::Slowing | VerdictWord::Growing | VerdictWord::Exceeded => is_in_use(&one.name),
        _ => false,
    };
    if let Some(of_command) = worst_of_command(series) {
        return of_command;
    }
    verdicts(&counts)
        .or_else(|| verdicts(&|one| is_total(&one.name)))
        .or_else(|| verdicts(&|_| true))
        .unwrap_or(VerdictWord::Inconclusive)
}

/// Worst judgement on the columns of a table.
fn worst_column(series: &[SeriesVerdict]) -> VerdictWord {
    series.iter().map(|one| one.findings.verdict).max().unwrap_or(VerdictWord::Inconclusive)
}

/// Returns whether growth of a series is a leak; a column of a table may be anything.
fn is_in_use(name: &str) -> bool {
    !TOTALS.contains(&name)
}

#[cfg(test)]
#[path = "memory_judge_tests.rs"]
mod tests;
