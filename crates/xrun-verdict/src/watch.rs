//! All series of a run, judged together.
//!
//! Fed with samples one by one, during a run or from a file; holds a window and a few floors of each series.

use std::collections::BTreeMap;

use crate::axis::Axis;
use crate::context::{Context, NO_CAP, Place};
use crate::findings::{Judgement, ProcessOfRun, SeriesVerdict, VERSION, Verdict};
use crate::floors::Cutter;
use crate::judge::{BYTES, COUNT, Scale, Series, Z, judge, suspicious};
use crate::names::{
    DRIVER_BEYOND, HELD, KEPT, LIBRARIES, ON_GPUS, OWNER, RESERVED_BEYOND, RESIDENT_BEYOND, REST, is_on_gpus, lives_in,
    unit,
};
use crate::sample::{Processes, Sample};
use crate::trend;
use crate::words::{self, Holder, RunInWords};

/// The least share of the growth for which an owner is named.
const SHARE_MIN: f64 = 0.8;
/// The most series that are taken up.
const SERIES_MAX: usize = 256;

#[derive(Clone, Debug)]
struct Watched {
    cutter: Cutter,
    kind: Series,
    scale: Scale,
    first: f64,
    last: f64,
    peak: f64,
}

/// Takes samples of a run, process after process; see [`Watch::verdict`].
#[derive(Clone, Debug)]
pub struct Watch {
    context: Context,
    /// Series of the newest process, as all below but the last.
    series: BTreeMap<String, Watched>,
    process: Option<ProcessOfRun>,
    /// The most that it may use of its container's limit.
    room: Option<u64>,
    /// The most that a part of the loop had in use beyond what it left behind.
    working: u64,
    /// The worst verdict on a process before that grew.
    kept: Option<Box<Verdict>>,
}

impl Watch {
    /// A watch that has seen nothing yet.
    pub fn new(context: Context) -> Self {
        Self { context, series: BTreeMap::new(), process: None, room: None, working: 0, kept: None }
    }

    /// Adds a sample. Those of a new process begin anew: another process has another heap, and a cache that fills up in
    /// each would look like growth.
    pub fn add(&mut self, sample: &Sample<'_>) {
        let Sample { segment, step, heap, .. } = *sample;
        if self.process.is_some_and(|before| before.segment != segment) {
            self.next_process();
        }
        let first_step = self.process.map_or(step, |process| process.first_step);
        self.process =
            Some(ProcessOfRun { segment, first_step, last_step: step, newest_segment: segment, newest: None });
        self.room = self.room.or(sample.room);
        self.working = self.working.max(sample.heap_high.unwrap_or_default().saturating_sub(heap));
        let (at, scale) = (self.place(sample), self.scale());
        if let Some(processes) = sample.processes {
            return self.add_command(at, sample, processes);
        }
        let kept = Scale { growth_min: scale.growth_min.max(BYTES.growth_min), ..BYTES };
        self.total(at, "heap", heap, Place::Host, sample);
        if let Some(resident) = sample.resident {
            self.value(at, "resident", resident, Series::Kept, scale);
            self.value(at, RESIDENT_BEYOND, resident.saturating_sub(heap), Series::Beyond, kept);
        }
        if let Some(pool) = sample.pool {
            self.total(at, "device_in_use", pool.in_use, Place::Device, sample);
            self.value(at, "device_allocations", pool.allocations, Series::InUse, COUNT);
            self.value(at, "device_reserved", pool.reserved, Series::Kept, scale);
            self.value(at, RESERVED_BEYOND, pool.reserved.saturating_sub(pool.in_use), Series::Beyond, kept);
        }
        if let Some(anonymous) = sample.anonymous {
            self.value(at, "anonymous", anonymous, Series::Kept, scale);
        }
        if let Some(libraries) = sample.libraries {
            self.value(at, LIBRARIES, libraries, Series::Kept, kept);
        }
        if let Some(driver) = sample.driver {
            let name = if driver.process.is_some() { "driver_process" } else { "driver_device" };
            self.value(at, name, driver.process.unwrap_or(driver.device), Series::Kept, scale);
            // Of the whole device other processes may be the reason.
            if let Some((process, pool)) = driver.process.zip(sample.pool) {
                self.value(at, DRIVER_BEYOND, process.saturating_sub(pool.reserved), Series::Beyond, kept);
            }
        }
        if let Some(bytes) = sample.container {
            self.value(at, "container", bytes, Series::Kept, scale);
        }
        self.owners(at, sample, scale);
    }

    /// Adds a sample of a command. What counts is what only its processes can give back; pages of files are the
    /// kernel's.
    fn add_command(&mut self, at: u64, sample: &Sample<'_>, processes: Processes) {
        self.value(at, HELD, sample.heap, Series::InUse, BYTES);
        if let Some(on_gpus) = processes.on_gpus {
            self.value(at, ON_GPUS, on_gpus, Series::InUse, BYTES);
        }
        self.owners(at, sample, BYTES);
        let Processes { count, threads, open_files, files, .. } = processes;
        for (name, bytes) in [("resident", sample.resident), ("files", files), ("container", sample.container)] {
            if let Some(bytes) = bytes {
                self.value(at, name, bytes, Series::Kept, BYTES);
            }
        }
        for (name, count) in [("processes", Some(count)), ("threads", Some(threads)), ("open_files", open_files)] {
            if let Some(count) = count {
                self.value(at, name, count, Series::Kept, COUNT);
            }
        }
    }

    fn owners(&mut self, at: u64, sample: &Sample<'_>, scale: Scale) {
        for (owner, bytes) in sample.owners.into_iter().flatten() {
            self.value(at, &format!("{OWNER}{owner}"), *bytes, Series::InUse, scale);
        }
    }

    /// Returns where a sample is on the axis.
    fn place(&self, sample: &Sample<'_>) -> u64 {
        match self.context.axis {
            Axis::Clock => sample.milliseconds,
            _ => sample.step,
        }
    }

    /// Begins anew; of the process that has ended one thing stays: that it grew.
    fn next_process(&mut self) {
        let past = self.newest(Tense::Past);
        let worst = self.kept.as_ref().map_or(Judgement::Suspect, |kept| kept.verdict);
        if past.verdict > worst {
            self.kept = Some(Box::new(past));
        }
        self.series.clear();
        (self.process, self.room, self.working) = (None, None, 0);
    }

    /// Adds all that is in use somewhere, and the same less the buffers there that have a cap.
    fn total(&mut self, at: u64, name: &str, in_use: u64, place: Place, sample: &Sample<'_>) {
        let rest = in_use.saturating_sub(self.context.capped(sample, place, self.room));
        self.value(at, name, in_use, Series::InUse, self.scale());
        self.value(at, &format!("{REST}{name}"), rest, Series::InUse, self.scale());
    }

    fn scale(&self) -> Scale {
        self.context.scale.unwrap_or(BYTES)
    }

    /// Adds one value of a series.
    pub fn value(&mut self, step: u64, name: &str, value: u64, kind: Series, scale: Scale) {
        let value = value as f64;
        if let Some(watched) = self.series.get_mut(name) {
            watched.last = value;
            watched.peak = watched.peak.max(value);
            watched.cutter.add(step, value);
        } else if self.series.len() < SERIES_MAX {
            let mut cutter = Cutter::new(self.context.settled);
            cutter.add(step, value);
            let watched = Watched { cutter, kind, scale, first: value, last: value, peak: value };
            self.series.insert(name.to_owned(), watched);
        }
    }

    /// Steps between two floors, by now.
    pub fn window(&self) -> u64 {
        self.series.values().map(|watched| watched.cutter.length()).max().unwrap_or(1)
    }

    /// The series that look as if they grew, while the run goes on.
    pub fn suspects(&self) -> Vec<&str> {
        let looks = |watched: &Watched| suspicious(&watched.cutter.floors(), watched.scale);
        let in_use = self.shown().filter(|(_, watched)| watched.kind == Series::InUse);
        let suspect = in_use.filter(|(name, watched)| looks(watched) && !self.ends(name, watched, looks));
        suspect.map(|(name, _)| name.as_str()).collect()
    }

    fn shown(&self) -> impl Iterator<Item = (&String, &Watched)> {
        self.series.iter().filter(|(name, _)| !name.starts_with(REST))
    }

    /// Returns whether the growth of a series is that of buffers that will be full: of one of them, or of a total that
    /// does not grow without them.
    fn ends(&self, name: &str, watched: &Watched, grows: impl Fn(&Watched) -> bool) -> bool {
        if let Some(owner) = name.strip_prefix(OWNER) {
            return self
                .context
                .owners
                .get(owner)
                .is_some_and(|owner| owner.ends(&self.context, self.room) && watched.peak <= owner.full as f64);
        }
        self.series.get(&format!("{REST}{name}")).is_some_and(|rest| !grows(rest))
    }

    /// The verdict on all samples so far: that on the newest process, or on one before that was worse. Of a run that
    /// was resumed it says of which.
    pub fn verdict(&self) -> Verdict {
        let newest = self.newest(Tense::Present);
        match &self.kept {
            Some(kept) if kept.verdict > newest.verdict => words::of_earlier(kept, &newest),
            _ if self.process.is_some_and(|process| process.segment > 0) => words::of_newest(newest),
            _ => newest,
        }
    }

    fn newest(&self, tense: Tense) -> Verdict {
        let mut series: Vec<SeriesVerdict> = self.shown().map(|(name, watched)| self.one(name, watched)).collect();
        if tense == Tense::Past {
            // A process that has ended reaches no limit.
            series.iter_mut().for_each(|one| one.steps_to_limit = None);
        }
        let verdict = worst(&series);
        let total = |wanted| series.iter().find(move |one| is_total(&one.name) && one.findings.verdict == wanted);
        let total = total(Judgement::Growing).or_else(|| total(verdict)).filter(|one| rises(one.findings.verdict));
        let owners = || series.iter().filter(|one| one.name.starts_with(OWNER));
        let blamed = total.and_then(|total| self.blame(total, &series));
        let exceeded = owners().find(|one| one.findings.verdict == Judgement::Exceeded);
        let growing = owners().find(|one| one.findings.verdict == verdict && rises(verdict));
        let owner = blamed
            .as_ref()
            .map(|(name, _)| name.clone())
            .or_else(|| exceeded.or(growing).and_then(|one| Some(one.name.strip_prefix(OWNER)?.to_owned())))
            .or_else(|| faster_than(total?, &series));
        let rests = matches!(verdict, Judgement::GrewThenFlat | Judgement::Stepped);
        let rested = series.iter().find(|one| rests && is_total(&one.name) && one.findings.verdict == verdict);
        let held = rested.and_then(|total| self.holder(total, &series, |one| one.last - one.first));
        let owner = owner.or_else(|| held.as_ref().map(|(name, _)| name.clone()));
        let share = blamed.or(held).map(|(_, share)| share);
        let cut = self.series.get("heap").or_else(|| self.series.values().next());
        let cut = cut.map(|watched| watched.cutter.floors()).unwrap_or_default();
        let last = cut.steps.last().copied().unwrap_or_default();
        let run = RunInWords {
            axis: self.context.axis,
            window: cut.length,
            steps: self.context.steps,
            epoch: self.context.steps_per_epoch,
            warm: (cut.first + cut.warm_up) as f64,
            last,
        };
        let full_in = owner.as_deref().filter(|_| verdict == Judgement::Filling).and_then(|owner| self.full_in(owner));
        // Too early to be a finding of the verdict; whoever reads it wants to know where to look all the same.
        let so_far = if verdict == Judgement::Inconclusive { self.so_far(&series) } else { None };
        let holder = match &so_far {
            Some((owner, share)) => Holder { owner: Some(owner), share: Some(*share), full_in },
            None => Holder { owner: owner.as_deref(), share, full_in },
        };
        let message = words::sentence(run, verdict, &series, holder);
        Verdict {
            version: VERSION,
            axis: self.context.axis,
            verdict,
            message,
            warm_up: cut.warm_up,
            window: cut.length,
            owner,
            owner_share: share,
            process: self.process,
            series,
        }
    }

    /// The limit that ends what grows in a series, and what counts towards it now: limits act on resident memory and on
    /// memory reserved, whatever of it is in use.
    fn limit(&self, name: &str) -> Option<(u64, f64)> {
        let last = |name: &str| self.series.get(name).map(|watched| watched.last);
        match name {
            name if name == ON_GPUS || is_on_gpus(name) => self.context.device_limit.zip(last(ON_GPUS)),
            name if last(HELD).is_some() && (name == HELD || name.starts_with(OWNER)) => {
                let held = last(HELD)?;
                [self.context.host_limit, self.room].into_iter().flatten().min().map(|limit| (limit, held))
            }
            "heap" | "resident" | "anonymous" | "container" | LIBRARIES | RESIDENT_BEYOND => {
                let heap = last("heap")?;
                let resident = last("resident").unwrap_or(heap);
                let limited = self.context.host_limit.map(|limit| (limit, resident));
                // The container's holds for what the next step will need.
                let contained = self.room.map(|room| (room, resident.max(heap + self.working as f64)));
                let left = |(limit, held): &(u64, f64)| *limit as f64 - held;
                limited.into_iter().chain(contained).min_by(|a, b| left(a).total_cmp(&left(b)))
            }
            "device_in_use" | "device_reserved" | RESERVED_BEYOND => {
                self.context.device_limit.zip(last("device_reserved").or_else(|| last("device_in_use")))
            }
            _ => None,
        }
    }

    fn one(&self, name: &str, watched: &Watched) -> SeriesVerdict {
        let judged = |watched: &Watched| judge(&watched.cutter.floors(), watched.kind, watched.scale);
        let mut findings = judged(watched);
        let missing = self.context.span_min.saturating_sub(watched.cutter.floors().span());
        if missing > 0 {
            (findings.verdict, findings.more_steps) = (Judgement::Inconclusive, Some(missing));
        }
        if rises(findings.verdict) && self.ends(name, watched, |rest| rises(judged(rest).verdict)) {
            findings.verdict = Judgement::Filling;
        }
        let cap = name.strip_prefix(OWNER).and_then(|owner| self.context.owners.get(owner)).map(|owner| owner.cap);
        if cap.is_some_and(|cap| watched.peak > cap as f64) {
            findings.verdict = Judgement::Exceeded;
        }
        let limit = cap.map(|cap| (cap, watched.last)).or_else(|| self.limit(name));
        let growing = findings.slope.filter(|slope| *slope > 0.0 && rises(findings.verdict));
        let reached = |((limit, held), slope): ((u64, f64), f64)| ((limit as f64 - held) / slope).max(0.0);
        let per_epoch = Some(self.context.steps_per_epoch as f64).filter(|steps| *steps > 0.0);
        SeriesVerdict {
            name: name.to_owned(),
            unit: unit(name, watched.scale).into(),
            slope_per_epoch: findings.slope.zip(per_epoch).map(|(slope, steps)| slope * steps),
            steps_to_limit: limit.filter(|(limit, _)| *limit < NO_CAP).zip(growing).map(reached),
            first: watched.first,
            last: watched.last,
            peak: watched.peak,
            cap: limit.map(|(limit, _)| limit),
            findings,
        }
    }

    /// The owner whose slope is most of the slope of the memory that it lives in, since that began to grow.
    fn blame(&self, total: &SeriesVerdict, series: &[SeriesVerdict]) -> Option<(String, f64)> {
        let since = total.findings.since.unwrap_or_default();
        let slopes = self
            .owners_in(total, series)
            .filter_map(|(owner, one)| Some((owner, one.findings.verdict, self.slope_since(&one.name, since)?)));
        // Beside a leak a cache may fill up, and faster: it is not to blame.
        let leaks = total.findings.verdict == Judgement::Growing;
        let (filling, blamed): (Vec<_>, Vec<_>) =
            slopes.partition(|(_, verdict, _)| leaks && *verdict == Judgement::Filling);
        let filling: f64 = filling.iter().map(|(_, _, slope)| slope).sum();
        let whole = self.slope_since(&total.name, since).map(|slope| slope - filling).filter(|slope| *slope > 0.0)?;
        most(blamed.into_iter().map(|(owner, _, slope)| (owner, slope / whole)))
    }

    /// The owner that holds most of what a total grew by.
    fn holder(
        &self,
        total: &SeriesVerdict,
        series: &[SeriesVerdict],
        grew: impl Fn(&SeriesVerdict) -> f64,
    ) -> Option<(String, f64)> {
        let whole = Some(grew(total)).filter(|whole| *whole > 0.0)?;
        most(self.owners_in(total, series).map(|(owner, one)| (owner, grew(one) / whole)))
    }

    /// The owner that holds most of what memory grew by since the warm-up, if that is worth a word.
    fn so_far(&self, series: &[SeriesVerdict]) -> Option<(String, f64)> {
        let moved = |one: &&SeriesVerdict| is_total(&one.name) && one.findings.growth >= self.scale().move_min;
        series.iter().filter(moved).find_map(|total| self.holder(total, series, |one| one.findings.growth))
    }

    /// The owners that live in the memory of a total.
    fn owners_in<'a>(
        &self,
        total: &SeriesVerdict,
        series: &'a [SeriesVerdict],
    ) -> impl Iterator<Item = (&'a str, &'a SeriesVerdict)> {
        let place = if total.name == "heap" { Place::Host } else { Place::Device };
        let owners = series.iter().filter_map(|one| Some((one.name.strip_prefix(OWNER)?, one)));
        let name = total.name.clone();
        let owners = owners.filter(move |(_, one)| lives_in(&name, &one.name));
        owners.filter(move |(owner, _)| self.context.owners.get(*owner).is_none_or(|owner| owner.place == place))
    }

    /// Steps until an owner has all that there is for it to hold.
    fn full_in(&self, owner: &str) -> Option<f64> {
        let declared = self.context.owners.get(owner)?;
        let name = format!("{OWNER}{owner}");
        let slope = self.slope_since(&name, 0).filter(|slope| *slope > 0.0)?;
        Some(((declared.full as f64 - self.series.get(&name)?.last) / slope).max(0.0))
    }

    fn slope_since(&self, name: &str, since: u64) -> Option<f64> {
        let floors = self.series.get(name)?.cutter.floors();
        let part = floors.from(floors.steps.partition_point(|step| *step < since as f64));
        Some(trend::slope(&part.steps, &part.values, Z)?.middle)
    }
}

/// Past for a process that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tense {
    Past,
    Present,
}

/// The owner with the largest share, if that explains the growth.
fn most<'a>(shares: impl Iterator<Item = (&'a str, f64)>) -> Option<(String, f64)> {
    let (owner, share) = shares.max_by(|a, b| a.1.total_cmp(&b.1))?;
    (share >= SHARE_MIN).then(|| (owner.to_owned(), share))
}

/// An owner that grows faster than a total that nobody explains. It is in another memory, of which there is no total:
/// pools of other threads, each of which costs a little heap, too.
fn faster_than(total: &SeriesVerdict, series: &[SeriesVerdict]) -> Option<String> {
    let slope = |one: &SeriesVerdict| one.findings.slope.unwrap_or_default();
    let growing = series.iter().filter(|one| one.findings.verdict == Judgement::Growing && slope(one) > slope(total));
    let owners = growing.filter_map(|one| Some((one.name.strip_prefix(OWNER)?, slope(one))));
    owners.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(owner, _)| owner.to_owned())
}

/// Returns whether a series was rising in the floors.
fn rises(verdict: Judgement) -> bool {
    use Judgement::{Filling, Growing, Retained, Slowing, Suspect};
    matches!(verdict, Growing | Slowing | Suspect | Filling | Retained)
}

/// The verdict on a command; `None` of anything else. Memory that moves from one group of processes to another is no
/// growth, and what is held on GPUs says nothing for itself until it rises.
fn worst_of_command(series: &[SeriesVerdict]) -> Option<Judgement> {
    let of = |name: &str| series.iter().find(|one| one.name == name).map(|one| one.findings.verdict);
    let held = of(HELD)?;
    Some(of(ON_GPUS).filter(|on_gpus| rises(*on_gpus)).map_or(held, |on_gpus| on_gpus.max(held)))
}

fn is_total(name: &str) -> bool {
    matches!(name, "heap" | "device_in_use" | HELD | ON_GPUS)
}

/// The worst of all: `exceeded`, `growing` and `slowing` of anything in use count, and what is retained; otherwise heap
/// and device speak for all. Where there is neither, as in a table, all columns do.
fn worst(series: &[SeriesVerdict]) -> Judgement {
    let verdicts =
        |of: &dyn Fn(&SeriesVerdict) -> bool| series.iter().filter(|one| of(one)).map(|one| one.findings.verdict).max();
    let counts = |one: &SeriesVerdict| match one.findings.verdict {
        Judgement::Retained => true,
        Judgement::Slowing | Judgement::Growing | Judgement::Exceeded => is_in_use(&one.name),
        _ => false,
    };
    if let Some(of_command) = worst_of_command(series) {
        return of_command;
    }
    verdicts(&counts)
        .or_else(|| verdicts(&|one| is_total(&one.name)))
        .or_else(|| verdicts(&|_| true))
        .unwrap_or(Judgement::Inconclusive)
}

/// Returns whether growth of a series is a leak. A column of a table may be anything.
fn is_in_use(name: &str) -> bool {
    !KEPT.contains(&name)
}

#[cfg(test)]
#[path = "watch_tests.rs"]
mod tests;
