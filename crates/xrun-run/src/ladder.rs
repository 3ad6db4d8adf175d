//! Descent of the ladder `limits.on_pressure` when memory gets short, and the climb back.
//!
//! Rungs are taken at sample points only, between steps. A limit that a sample exceeds is soft: each rung has one step to show its
//! effect. The container's limit is not, because the kernel kills in the middle of a step: rungs are taken until the next step is
//! expected to fit.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::growth::GrowthBeyondCaps;
use super::launch::Extent;
use super::limits::{LimitReached, Trigger};
use super::observer::Event;
use super::session::Session;
use super::train::{clean, rate, sample};
use super::{RunError, checkpoint};
use crate::plan::Plan;
use crate::stop::Ending;
use xrun_core::bounded::ledger::{Cap, Ledger};
use xrun_core::bounded::planned::MemoryKind;
use xrun_core::panics;
use xrun_core::settings::rung::Rung;
use xrun_core::settings::sections::{CleanupAction, Limits};
use xrun_core::task::Task;
use xrun_core::units::Bytes;
use xrun_results::format::{MemoryLine, Outcome, RungTaken, SamplePoint};

/// Halvings of a cache after which it is emptied.
const CACHE_HALVINGS: u32 = 4;
/// Percentage of ten seconds in which tasks wait for memory (PSI) from which memory counts as short.
const STALLED_PERCENT: f64 = 20.0;
/// Time for which the kernel averages it.
const STALL_WINDOW: Duration = Duration::from_secs(10);
/// There is room for what a rung gave if a run with it needs less than this fraction of each limit.
const ROOM: f64 = 0.85;
/// Steps with room before a rung is climbed back; doubled after each that had to be taken again.
const PATIENCE: u64 = 20;

/// Steps in each part of the measurement of rungs.
const MEASURED_STEPS: u64 = 6;
/// Longest time that the measurement of rungs may take, by the steps of the probe before it.
const MEASUREMENT: Duration = Duration::from_secs(20);

/// Rungs of a run and how often each is taken.
#[derive(Debug)]
pub struct Ladder {
    rungs: Vec<Rung>,
    recover: bool,
    levels: Levels,
    /// Step of the newest change.
    changed: Option<u64>,
    /// Time of the newest rung because of tasks that waited.
    stalled: Option<Instant>,
    /// Step since which there is room to climb.
    room_since: Option<u64>,
    patience: u64,
    /// Peak of the newest step, in the memory of the newest rung.
    peak: Option<u64>,
    /// Peak before the newest rung, until the step after it.
    peak_before: Option<(u64, MemoryKind)>,
    growth: GrowthBeyondCaps,
    /// Peak of the process.
    peak_ever: u64,
}

/// Number of times that each rung is taken: at most one entry for each kind.
type Levels = BTreeMap<Rung, u32>;

impl Ladder {
    /// Ladder of a plan, at its top. A probe, which measures what the experiment needs, has none.
    pub fn new(plan: &Plan, extent: Extent) -> Self {
        let limits = &plan.experiment.limits;
        let is_probe = matches!(extent, Extent::Probe(_));
        Self {
            rungs: if is_probe { Vec::new() } else { limits.on_pressure.clone() },
            recover: limits.recover,
            levels: Levels::new(),
            changed: None,
            stalled: None,
            room_since: None,
            patience: PATIENCE,
            peak: None,
            peak_before: None,
            growth: GrowthBeyondCaps::new(&plan.owners),
            peak_ever: 0,
        }
    }

    /// Returns whether there is a rung to take.
    pub fn is_on(&self) -> bool {
        !self.rungs.is_empty()
    }

    /// Returns whether a step that does not fit can be repeated in parts.
    pub fn retries(&self) -> bool {
        self.rungs.iter().any(is_of_step)
    }

    /// Adds a sample.
    pub fn add(&mut self, line: &MemoryLine) {
        if self.is_on() {
            self.growth.add(line, line.host.heap);
            self.peak_ever = self.peak_ever.max(line.host.heap);
        }
    }

    fn level(&self, rung: Rung) -> u32 {
        self.levels.get(&rung).copied().unwrap_or_default()
    }
}

/// Measures in a probe how long a step takes with each rung taken once, relative to one without, by the fastest of the last steps of
/// each part; the first ones use batches that were prepared before. Steps that take long are not measured.
///
/// # Errors
/// The data or the device fails.
pub fn measure(task: &mut dyn Task, session: &mut Session<'_>) -> Result<(), RunError> {
    let (plan, ledger) = (session.plan, session.recorder.ledger.clone());
    let limits = &plan.experiment.limits;
    // The caches of a probe are cold.
    let is_measured = |rung: &Rung| !matches!(rung, Rung::Caches | Rung::Park);
    let rungs: Vec<Rung> = limits.on_pressure.iter().copied().filter(is_measured).collect();
    let part = limits.batches_ahead() + MEASURED_STEPS;
    let needed = part * (rungs.len() as u64 + 1);
    let step_seconds = session.timer.durations().steps.iter().map(|step| step.mean).fold(0.0, f64::max);
    if rungs.is_empty()
        || session.state.step + needed > plan.steps
        || step_seconds * needed as f64 > MEASUREMENT.as_secs_f64()
    {
        return Ok(());
    }
    let mut step = session.state.step;
    let mut without = None;
    for rung in std::iter::once(None).chain(rungs.into_iter().map(Some)) {
        let mut levels = Levels::from_iter(rung.map(|rung| (rung, 1)));
        if rung.is_some_and(|rung| apply(task, &ledger, limits, &levels, rung).is_none()) {
            continue;
        }
        // The fastest step of each kind.
        let mut fastest = BTreeMap::<&str, f64>::new();
        for number in 0..part {
            let start_time = Instant::now();
            step += 1;
            let report = task.train_step(step, rate(plan, step), &mut session.clock)?;
            task.synchronise()?;
            if number >= part - MEASURED_STEPS {
                let seconds = fastest.entry(report.kind).or_insert(f64::MAX);
                *seconds = seconds.min(start_time.elapsed().as_secs_f64());
            }
        }
        let Some(rung) = rung else {
            without = Some(fastest);
            continue;
        };
        let both = fastest.iter().filter_map(|(kind, with)| Some((with, without.as_ref()?.get(kind)?)));
        let (with, without) = both.fold((0.0, 0.0), |sums, (with, without)| (sums.0 + with, sums.1 + without));
        if without > 0.0 {
            session.timer.rung_measured(rung, with / without);
        }
        levels.clear();
        apply(task, &ledger, limits, &levels, rung);
    }
    Ok(())
}

/// Returns whether a rung makes a step smaller.
fn is_of_step(rung: &Rung) -> bool {
    matches!(rung, Rung::MicroBatch | Rung::ActivationCheckpointing)
}

/// Peak of the newest step in a place, in bytes.
fn peak_of_step(line: &MemoryLine, place: MemoryKind) -> Option<u64> {
    match place {
        MemoryKind::Host => line.host.heap_high,
        MemoryKind::Device => line.device.map(|pool| pool.reserved),
    }
}

/// Takes the rungs again that the run had taken when it saved its checkpoint, unless it parked: then it has other memory now.
pub fn resume(task: &mut dyn Task, session: &mut Session<'_>) {
    let since = session.state.rungs.iter().rposition(|taken| taken.rung == Rung::Park).map_or(0, |at| at + 1);
    let levels: Levels = session.state.rungs[since..].iter().map(|taken| (taken.rung, taken.level)).collect();
    for (rung, level) in levels {
        if session.ladder.rungs.contains(&rung) && level > 0 {
            set(task, session, rung, level);
        }
    }
}

/// Takes rungs while memory is short, or climbs back. Returns the ending of a run that parks, or that reaches a limit with no rung
/// left.
///
/// # Errors
/// The trace cannot be written, or the device fails.
pub fn at_rest(
    task: &mut dyn Task,
    session: &mut Session<'_>,
    mut reached: Option<LimitReached>,
) -> Result<Option<Ending>, RunError> {
    let step = session.state.step;
    loop {
        record_effect(session)?;
        if !session.ladder.is_on() {
            return reached.map(|reached| session.limit_reached(&reached, task.parameters())).transpose();
        }
        let Some(short) = reached.clone().or_else(|| stalled(session)) else {
            climb(task, session)?;
            return Ok(None);
        };
        session.ladder.room_since = None;
        let is_stalled = matches!(short.trigger, Trigger::Stalled(_));
        if !is_stalled
            && let verdict = session.recorder.verdict()
            && let Some(grows) = session.ladder.growth.growing(Some(&verdict), session.ladder.peak_ever)
        {
            return end(task, session, &short, Some(&grows)).map(Some);
        }
        // The effect of a rung shows in the next step.
        let is_hard = short.trigger == Trigger::NextStep && short.place == MemoryKind::Host;
        if !is_hard && session.ladder.changed == Some(step) {
            return Ok(None);
        }
        match next(task, session, &short)? {
            true if is_hard => {}
            true => return Ok(None),
            false if is_stalled => return Ok(None),
            false => return end(task, session, &short, None).map(Some),
        }
        reached = sample(task, session, SamplePoint::AfterCleanup, None)?;
    }
}

/// Pressure of tasks that wait for memory, at most once in the window of its average.
fn stalled(session: &mut Session<'_>) -> Option<LimitReached> {
    let line = session.recorder.newest.as_ref()?;
    let percent = line.pressure.filter(|percent| *percent >= STALLED_PERCENT)?;
    if session.ladder.stalled.is_some_and(|at| at.elapsed() < STALL_WINDOW) {
        return None;
    }
    session.ladder.stalled = Some(Instant::now());
    let held = line.host.rss.unwrap_or(line.host.heap);
    let trigger = Trigger::Stalled(percent as u32);
    Some(LimitReached { key: None, place: MemoryKind::Host, limit: held, held, trigger })
}

/// Takes the next rung that has something to give; returns `false` if none has.
fn next(task: &mut dyn Task, session: &mut Session<'_>, short: &LimitReached) -> Result<bool, RunError> {
    for rung in session.ladder.rungs.clone() {
        let before = session.ladder.level(rung);
        let mut given = (before + 1..).map_while(|level| set(task, session, rung, level).map(|given| (level, given)));
        // A cache that holds little gives nothing at first.
        let Some((level, given)) = given.find(|(_, given)| *given != Some(0)) else {
            set(task, session, rung, before);
            continue;
        };
        let half_of_step = session.recorder.demand.working / 2;
        if given.is_none() {
            session.recorder.demand.working -= half_of_step;
        }
        let gives = given.unwrap_or(half_of_step);
        let pool = (short.place == MemoryKind::Device).then_some(CleanupAction::DevicePool);
        let caches = (rung == Rung::Caches).then_some(CleanupAction::Caches);
        let actions: Vec<_> = caches.into_iter().chain([CleanupAction::Heap]).chain(pool).collect();
        clean(task, &actions, &mut session.clock);
        let peak =
            session.ladder.peak.or(session.recorder.newest.as_ref().and_then(|line| peak_of_step(line, short.place)));
        // Several at one step: the last has the effect of all.
        session.ladder.peak_before = session.ladder.peak_before.or(peak.map(|peak| (peak, short.place)));
        let (step, patience) = (session.state.step, session.ladder.patience);
        if session.state.rungs.last().is_some_and(|last| last.climbed && step < last.step + patience) {
            session.ladder.patience = patience.saturating_mul(2);
        }
        record(session, rung, level, false, short.message(), Some(gives))?;
        return Ok(true);
    }
    Ok(false)
}

/// Takes a rung to a level; returns what [`apply`] does.
fn set(task: &mut dyn Task, session: &mut Session<'_>, rung: Rung, level: u32) -> Option<Option<u64>> {
    session.ladder.levels.insert(rung, level);
    let limits = &session.plan.experiment.limits;
    apply(task, &session.recorder.ledger, limits, &session.ladder.levels, rung)
}

/// Makes a rung's parts as its level says. Returns the bytes that it gives, `Some(None)` for half of the memory of a step, and
/// `None` where nothing is left to give; then nothing has changed.
fn apply(task: &mut dyn Task, ledger: &Ledger, limits: &Limits, levels: &Levels, rung: Rung) -> Option<Option<u64>> {
    let level = |rung: Rung| levels.get(&rung).copied().unwrap_or_default();
    let workers = limits.workers.max(1) as u64;
    let batches = |prefetch: u32, halved: u32| match halved {
        0 => (limits.batches_ahead() >> prefetch.min(63)).max(workers),
        halved => (workers >> halved.min(63)).max(1),
    };
    match rung {
        Rung::Caches if level(rung) > CACHE_HALVINGS => None,
        Rung::Caches => {
            let left = |bytes: u64| if level(rung) == CACHE_HALVINGS { 0 } else { bytes >> level(rung) };
            Some(Some(ledger.allow(rung, |cap| Cap { bytes: left(cap.bytes), ..cap })))
        }
        Rung::Prefetch | Rung::Workers => {
            let now = batches(level(Rung::Prefetch), level(Rung::Workers));
            let above = |of: Rung| level(of) - u32::from(of == rung && level(of) > 0);
            if level(rung) > 0 && now == batches(above(Rung::Prefetch), above(Rung::Workers)) {
                return None;
            }
            let share = |cap: Cap| Cap { items: now, bytes: cap.bytes / cap.items.max(1) * now };
            Some(Some(ledger.allow(Rung::Prefetch, share)))
        }
        Rung::MicroBatch | Rung::ActivationCheckpointing => task.set_rung(rung, level(rung)).then_some(None),
        Rung::Park => None,
    }
}

/// Takes the next rung that makes a step smaller, after the device refused an allocation in one, for a resume that repeats it from
/// the newest checkpoint. `None` if none is left, or there is no checkpoint. The device may be unusable: the task is not used.
///
/// # Errors
/// The checkpoint or the log cannot be written.
pub fn retry(
    task: &mut dyn Task,
    session: &mut Session<'_>,
    requested: Option<u64>,
) -> Result<Option<Ending>, RunError> {
    let mut next = session.ladder.rungs.iter().filter(|rung| is_of_step(rung)).map(|rung| {
        let level = session.ladder.level(*rung) + 1;
        (*rung, level, panics::caught(|| task.set_rung(*rung, level)).unwrap_or(true))
    });
    let Some((rung, level, _)) = next.find(|(.., is_possible)| *is_possible) else { return Ok(None) };
    let reserved = session.recorder.newest.as_ref().and_then(|line| line.device).map_or(0, |pool| pool.reserved);
    let because = LimitReached::refused(requested, None, reserved).message();
    record(session, rung, level, false, because.clone(), None)?;
    if !checkpoint::replace_rungs(&session.recorder.run, &session.state.rungs)? {
        return Ok(None);
    }
    let step = session.state.step + 1;
    let message = format!("step {step} did not fit: {because}; it is repeated with `{}`", rung.name());
    Ok(Some(Ending { retries: true, ..Ending::new(Outcome::MemoryLimit, message) }))
}

/// Climbs one rung back when there has been room for what it gave for a while.
fn climb(task: &mut dyn Task, session: &mut Session<'_>) -> Result<(), RunError> {
    let step = session.state.step;
    if !session.ladder.recover {
        return Ok(());
    }
    let newest = session.ladder.rungs.iter().rev().copied().find(|rung| session.ladder.level(*rung) > 0);
    let (Some(rung), Some(line)) = (newest, &session.recorder.newest) else { return Ok(()) };
    let gave = session.state.rungs.iter().rev().find(|taken| taken.rung == rung && !taken.climbed);
    let gave =
        gave.map_or(0, |taken| taken.gives.unwrap_or_default().max(taken.gave.unwrap_or_default().max(0) as u64));
    let with = |bytes: u64| bytes.saturating_add(gave);
    let mut wanted = line.clone();
    wanted.host.heap = with(line.host.heap);
    wanted.host.rss = line.host.rss.map(with);
    if let Some(pool) = &mut wanted.device {
        pool.reserved = with(pool.reserved);
    }
    let demand = &session.recorder.demand;
    let is_calm = line.pressure.is_none_or(|percent| percent < STALLED_PERCENT / 2.0);
    if !is_calm || session.limits.reached_at(ROOM, &wanted, &demand.so_far, demand.working).is_some() {
        session.ladder.room_since = None;
        return Ok(());
    }
    let since = *session.ladder.room_since.get_or_insert(step);
    if step < since.max(session.ladder.changed.unwrap_or_default()) + session.ladder.patience {
        return Ok(());
    }
    let level = session.ladder.level(rung) - 1;
    set(task, session, rung, level);
    session.ladder.room_since = None;
    if is_of_step(&rung) {
        session.recorder.demand.working = session.recorder.demand.working.saturating_add(gave);
    }
    record(session, rung, level, true, "there is room again".into(), Some(gave))
}

/// Records a change in the state, in the log and for observers.
fn record(
    session: &mut Session<'_>,
    rung: Rung,
    level: u32,
    climbed: bool,
    because: String,
    gives: Option<u64>,
) -> Result<(), RunError> {
    let step = session.state.step;
    session.ladder.changed = Some(step);
    let taken = RungTaken { step, rung, level, bits: rung.bits(), climbed, because, gives, gave: None };
    session.recorder.log(&format!("step {step}: {}", taken.message()))?;
    session.observer.event(Event::Rung { taken: &taken });
    session.state.add_rung(taken);
    Ok(())
}

/// Records what the newest rung gave, after the step that follows it.
fn record_effect(session: &mut Session<'_>) -> Result<(), RunError> {
    let Some(line) = session.recorder.newest.as_ref().filter(|line| line.point == SamplePoint::Step) else {
        return Ok(());
    };
    let place = session.ladder.peak_before.map_or(MemoryKind::Host, |(_, place)| place);
    let Some(peak) = peak_of_step(line, place) else { return Ok(()) };
    let step = line.step;
    session.ladder.peak = Some(peak);
    if let Some((before, _)) = session.ladder.peak_before.filter(|_| session.ladder.changed < Some(step)) {
        session.ladder.peak_before = None;
        let gave = i64::try_from(i128::from(before) - i128::from(peak)).unwrap_or_default();
        if let Some(newest) = session.state.rungs.last_mut() {
            newest.gave = Some(gave);
            let (name, bytes) = (newest.rung.name(), Bytes(gave.unsigned_abs()));
            let verb = if gave < 0 { "took" } else { "gave" };
            session.recorder.log(&format!("step {step}: `{name}` {verb} {bytes}"))?;
        }
    }
    Ok(())
}

/// Ending at a limit without another rung, or because memory grows: parks if the ladder ends in `park`.
fn end(
    task: &mut dyn Task,
    session: &mut Session<'_>,
    short: &LimitReached,
    grows: Option<&str>,
) -> Result<Ending, RunError> {
    let ending = session.limit_reached(short, task.parameters())?;
    if !session.ladder.rungs.contains(&Rung::Park) {
        return Ok(ending);
    }
    let because = match grows {
        Some(grows) => format!("{}; no rung feeds a leak: {grows}", short.message()),
        None => format!("{}, and no rung is left", short.message()),
    };
    record(session, Rung::Park, 1, false, because.clone(), None)?;
    Ok(Ending::new(Outcome::Parked, format!("parked after step {}: {because}", session.state.step)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use xrun_core::bounded::buffer::Buffer;
    use xrun_core::bounded::ledger::Policy;
    use xrun_core::pipelines::dummy::settings::Dummy;
    use xrun_core::pipelines::dummy::task::DummyTask;
    use xrun_core::units::Bytes;

    /// What each level of a rung gives, from level 1 until nothing is left, above the levels of other rungs.
    fn gives(ledger: &Ledger, limits: &Limits, levels: &mut Levels, rung: Rung) -> Vec<Option<u64>> {
        let settings = Dummy { activations: Bytes(4), ..Dummy::default() };
        let mut task = DummyTask::new(settings, 0, limits, ledger);
        let mut level = |level: u32| {
            levels.insert(rung, level);
            apply(&mut task, ledger, limits, levels, rung)
        };
        let given: Vec<Option<u64>> = (1..).map_while(&mut level).collect();
        level(given.len() as u32);
        given
    }

    #[test]
    fn batches_ahead_halve_to_one_a_worker_and_workers_to_one() {
        let limits = Limits { workers: 3, prefetch: Some(8), ..Limits::default() };
        let (ledger, mut levels) = (Ledger::default(), Levels::new());
        let cap = Cap { items: 8, bytes: 80 };
        let queue = Buffer::new("queue", Policy::Block, cap).rung(Rung::Prefetch).register(&ledger);
        assert_eq!(gives(&ledger, &limits, &mut levels, Rung::Prefetch), [Some(40), Some(10)]);
        assert_eq!(queue.allowed(), Cap { items: 3, bytes: 30 });
        assert_eq!(gives(&ledger, &limits, &mut levels, Rung::Workers), [Some(20)]);
        assert_eq!(queue.allowed(), Cap { items: 1, bytes: 10 });
        levels.insert(Rung::Workers, 0);
        let mut task = DummyTask::new(Dummy::default(), 0, &limits, &Ledger::default());
        assert_eq!(apply(&mut task, &ledger, &limits, &levels, Rung::Workers), Some(Some(0)));
        assert_eq!(queue.allowed(), Cap { items: 3, bytes: 30 }, "climbed back to the rung above");
    }

    #[test]
    fn caches_halve_to_nothing_and_micro_batches_to_one_item() {
        let (limits, ledger, mut levels) = (Limits::default(), Ledger::default(), Levels::new());
        let cache = Buffer::new("cache", Policy::Evict, Cap { items: 9, bytes: 160 }).rung(Rung::Caches);
        let cache = cache.register(&ledger);
        cache.set(1, 100);
        assert_eq!(gives(&ledger, &limits, &mut levels, Rung::Caches), [20, 60, 80, 100].map(Some));
        assert_eq!(cache.allowed().bytes, 0);
        assert_eq!(gives(&ledger, &limits, &mut levels, Rung::MicroBatch), [None, None], "half of a step each");
        assert_eq!(gives(&ledger, &limits, &mut levels, Rung::Park), [] as [Option<u64>; 0]);
    }
}
