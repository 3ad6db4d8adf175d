//! Verdict on a watched command: by step if its steps are known, otherwise by the clock.
//!
//! Both series are judged as samples arrive. Steps are the better axis: an hour of slow loading does not change them.

use std::collections::BTreeMap;

use xrun_verdict::names::{FOOTPRINT, GPU_FOOTPRINT, OWNER_PREFIX};
use xrun_verdict::{Axis, BYTES, Context, MemoryJudge, ProcessVerdicts, STEPS_NEEDED, Verdict, VerdictWord};

use super::sample::sample;
use crate::format::{MemoryLine, SamplePoint};
use crate::watched::{RANK_PREFIXES, WatchSettings};
use xrun_core::bounded::planned::MemoryKind;
use xrun_core::units::{Bytes, seconds};

/// Divisor of the run time: without a step for longer than this part of it, the clock judges what came after the last step.
const SILENT_TIME_DIVISOR: u64 = 10;

/// Judges the samples of a command by step and by the clock, process after process.
#[derive(Clone, Debug)]
pub struct CommandJudge {
    context: Context,
    /// Verdicts on the processes of a resumed command that have ended.
    ended: ProcessVerdicts,
    /// Index of the newest process.
    segment: u32,
    by_step: MemoryJudge,
    by_clock: MemoryJudge,
    step: u64,
    /// Newest sample, added when a later step follows: until then it may show the end of the program.
    newest: Option<MemoryLine>,
    /// Number of samples.
    samples: u64,
    first: Moment,
    last: Moment,
    /// First sample with the newest step.
    last_step: Moment,
    /// Bytes of each owner that is a rank at the newest step.
    ranks: BTreeMap<String, u64>,
}

/// Time and footprint of a sample.
#[derive(Clone, Copy, Debug, Default)]
struct Moment {
    milliseconds: u64,
    footprint: u64,
}

impl CommandJudge {
    /// Creates a judge without samples.
    pub fn new(watched: &WatchSettings) -> Self {
        let context =
            Context { host_limit: watched.host_memory, device_limit: watched.device_memory, ..Context::default() };
        Self::with_context(context)
    }

    fn with_context(context: Context) -> Self {
        let none = Moment::default();
        Self {
            ended: ProcessVerdicts::default(),
            segment: 0,
            by_step: MemoryJudge::new(context.clone()),
            by_clock: MemoryJudge::new(Context { axis: Axis::Clock, ..context.clone() }),
            context,
            step: 0,
            newest: None,
            samples: 0,
            first: none,
            last: none,
            last_step: none,
            ranks: BTreeMap::new(),
        }
    }

    /// Forgets the steps so far: they were not those of the training.
    pub fn restart_steps(&mut self) {
        (self.by_step, self.step, self.newest) = (MemoryJudge::new(self.context.clone()), 0, None);
    }

    /// Adds a sample.
    pub fn add(&mut self, line: &MemoryLine) {
        if line.segment != self.segment {
            self.end_process();
            self.segment = line.segment;
        }
        if line.point == SamplePoint::Explained {
            return;
        }
        let line = &without_agent(line);
        self.last = Moment { milliseconds: line.time_us / 1000, footprint: line.host.heap };
        if self.samples == 0 {
            self.first = self.last;
        }
        self.samples += 1;
        let ranks = line.owners.iter().filter(|(owner, _)| RANK_PREFIXES.iter().any(|kind| owner.starts_with(kind)));
        // Those that have ended hold nothing, and differ in nothing.
        if (line.step > self.step || self.step == 0) && ranks.clone().any(|(_, bytes)| *bytes > 0) {
            self.ranks = ranks.map(|(owner, bytes)| (owner.clone(), *bytes)).collect();
        }
        self.by_clock.set_span_min(self.span_min());
        self.by_clock.add(&sample(line));
        // The first sample after a step is closest to its end. Samples before the first step show the program's
        // start, those after the last step its end, when workers are gone.
        if line.step > self.step {
            self.step = line.step;
            self.last_step = self.last;
            if let Some(before) = self.newest.replace(line.clone()) {
                self.by_step.add(&sample(&before));
            }
        }
    }

    /// Judges the process so far, which has ended: a resumed command starts with other memory.
    fn end_process(&mut self) {
        let mut ended = std::mem::take(&mut self.ended);
        if self.samples > 0 {
            ended.end(self.newest_verdict());
        }
        *self = Self { ended, ..Self::with_context(self.context.clone()) };
    }

    /// Verdict on the command: on its processes together, if it was resumed.
    pub fn verdict(&self) -> Verdict {
        self.ended.with_newest(self.newest_verdict())
    }

    /// Time in milliseconds with as many samples as steps are required, at the pace so far.
    fn span_min(&self) -> u64 {
        let span = self.last.milliseconds.saturating_sub(self.first.milliseconds);
        let missing = STEPS_NEEDED.saturating_sub(self.samples);
        if missing == 0 { 0 } else { span + missing * (span / self.samples.max(1)).max(1) }
    }

    /// Verdict on the newest process, with how its ranks differ.
    fn newest_verdict(&self) -> Verdict {
        let verdict = self.newest_by_axis();
        match self.about_ranks(&verdict) {
            Some(about) => Verdict { message: format!("{}; {about}", verdict.message), ..verdict },
            None => verdict,
        }
    }

    /// How the memory of the rank that is the owner of the growth differs from that of the other ranks.
    fn about_ranks(&self, verdict: &Verdict) -> Option<String> {
        let owner = verdict.owner.as_deref().filter(|_| verdict.verdict >= VerdictWord::Suspect)?;
        let (rank, kind) = owner.rsplit_once('/').filter(|_| self.ranks.contains_key(owner))?;
        let noun = rank.trim_end_matches(|letter: char| letter.is_ascii_digit()).trim_end();
        let of_kind =
            |name: &str| name.rsplit_once('/').is_some_and(|(other, of)| of == kind && other.starts_with(noun));
        let mut held: Vec<u64> = self.ranks.iter().filter(|(name, _)| of_kind(name)).map(|(_, bytes)| *bytes).collect();
        if held.len() < 2 {
            return None;
        }
        held.sort_unstable();
        // The lower one of two: with two ranks the other is the measure.
        let more = self.ranks[owner].saturating_sub(held[(held.len() - 1) / 2]);
        let grows = |name: &&String| {
            let series = verdict.series.iter().find(|one| one.name == format!("{OWNER_PREFIX}{name}"));
            series.is_some_and(|one| one.findings.verdict >= VerdictWord::Suspect)
        };
        let growing = self.ranks.keys().filter(|name| of_kind(name)).filter(grows).count();
        let alone = if growing == 1 { ", and alone grows" } else { "" };
        Some(format!("{rank} holds {} more than the median {noun}{alone}", Bytes(more)))
    }

    /// Verdict by step if that is conclusive, otherwise by the clock.
    fn newest_by_axis(&self) -> Verdict {
        let (by_step, by_clock) = (self.by_step.newest_verdict(), self.by_clock.newest_verdict());
        let is_inconclusive = |verdict: &Verdict| verdict.verdict == VerdictWord::Inconclusive;
        if self.step == 0 || (is_inconclusive(&by_step) && !is_inconclusive(&by_clock)) {
            return by_clock;
        }
        if self.grew_after_last_step()
            && by_step.verdict < VerdictWord::Suspect
            && by_clock.verdict >= VerdictWord::Suspect
        {
            let message = format!("{}; the last step was {}", by_clock.message, self.step);
            return Verdict { message, ..by_clock };
        }
        let to_limit = by_clock.footprint().and_then(|series| series.steps_to_limit);
        let message = match to_limit.filter(|_| grows(&by_step) && grows(&by_clock)) {
            Some(milliseconds) => {
                let left = seconds(milliseconds / 1e3);
                format!("{}; at this speed the limit is reached in about {left}", by_step.message)
            }
            None => by_step.message.clone(),
        };
        Verdict { message, ..by_step }
    }

    /// Returns whether steps ended long ago, and the footprint has grown since.
    fn grew_after_last_step(&self) -> bool {
        let since = |then: Moment| self.last.milliseconds.saturating_sub(then.milliseconds);
        let grown = self.last.footprint.saturating_sub(self.last_step.footprint) as f64;
        since(self.last_step) * SILENT_TIME_DIVISOR >= since(self.first) && grown >= BYTES.growth_min
    }

    /// Growth of host or GPU memory in bytes per second; `None` unless the verdict on that series is growing.
    pub fn bytes_per_second(&self, kind: MemoryKind) -> Option<f64> {
        let by_clock = self.by_clock.verdict();
        let name = if kind == MemoryKind::Device { GPU_FOOTPRINT } else { FOOTPRINT };
        let series = by_clock.series.iter().find(|one| one.name == name)?;
        let grows = series.findings.verdict == VerdictWord::Growing;
        series.findings.slope.filter(|_| grows).map(|slope| slope * 1e3)
    }
}

/// Sample without what the agent of `--explain` has left in the processes.
fn without_agent(line: &MemoryLine) -> MemoryLine {
    let mut line = line.clone();
    for (owner, bytes) in line.processes.iter().flat_map(|processes| &processes.agent) {
        line.host.heap = line.host.heap.saturating_sub(*bytes);
        line.host.rss = line.host.rss.map(|rss| rss.saturating_sub(*bytes));
        if let Some(held) = line.owners.get_mut(owner) {
            *held = held.saturating_sub(*bytes);
        }
    }
    line
}

fn grows(verdict: &Verdict) -> bool {
    verdict.verdict == VerdictWord::Growing
}

#[cfg(test)]
mod tests {
    use xrun_verdict::names::PRIVATE_SUFFIX;

    use super::*;
    use crate::format::HostMemory;
    use crate::watched::ProcessMemory;

    const MIB: u64 = 1 << 20;

    fn line(milliseconds: u64, step: u64, main: u64, workers: u64) -> MemoryLine {
        let owner = |group: &str, bytes: u64| (format!("{group}{PRIVATE_SUFFIX}"), bytes);
        MemoryLine {
            time_us: milliseconds * 1000,
            step,
            host: HostMemory { heap: main + workers, rss: Some(main + workers), ..HostMemory::default() },
            owners: [owner("main", main), owner("workers", workers)].into(),
            processes: Some(ProcessMemory { process_count: 3, threads: 3, ..ProcessMemory::default() }),
            ..MemoryLine::default()
        }
    }

    #[test]
    fn the_rank_that_differs_is_named() {
        let lines = (0..300).map(|at| {
            let held = |rank: u64| 300 * MIB + if rank == 5 { 2 * MIB * at } else { 0 };
            let mut line = line(1000 * at, at, 50 * MIB, 0);
            for rank in 0..8 {
                line.owners.insert(format!("rank {rank}/private"), held(rank));
                line.host.heap += held(rank);
            }
            line
        });
        let ended = (300..303).map(|at| {
            let mut line = line(1000 * at, 299, 50 * MIB, 0);
            line.owners.extend((0..8).map(|rank| (format!("rank {rank}/private"), 0)));
            line
        });
        let verdict = judged(&WatchSettings::default(), lines.chain(ended));
        assert_eq!((verdict.verdict, verdict.owner.as_deref()), (VerdictWord::Growing, Some("rank 5/private")));
        let about = "rank 5 holds 598.0 MiB more than the median rank, and alone grows";
        assert!(verdict.message.contains(about), "{}", verdict.message);
    }

    #[test]
    fn what_the_agent_needs_and_leaves_is_not_judged() {
        let lines = |leak: u64| {
            (0..300).map(move |at| {
                let left = 20 * MIB * u64::from(at >= 140);
                let mut line = line(1000 * at, at, 100 * MIB + leak * at + left, 0);
                if (120..140).contains(&at) {
                    (line.host.heap, line.point) = (line.host.heap + 60 * MIB, SamplePoint::Explained);
                }
                if let Some(processes) = line.processes.as_mut().filter(|_| at >= 140) {
                    processes.agent.insert("main/private".into(), left);
                }
                line
            })
        };
        let judge = |leak: u64| judged(&WatchSettings::default(), lines(leak)).verdict;
        assert_eq!((judge(0), judge(MIB)), (VerdictWord::Bounded, VerdictWord::Growing));
    }

    #[test]
    fn growing_gpu_memory_is_named_if_host_memory_is_constant() {
        let watched = WatchSettings { device_memory: Some(1024 * MIB), ..WatchSettings::default() };
        let lines = (0..300).map(|at| {
            let mut line = line(1000 * at, at, 100 * MIB, 50 * MIB);
            let held = 2 * MIB * at;
            line.owners.insert("workers/GPU".into(), held);
            let group = crate::watched::ProcessGroup { gpu: Some(held), ..Default::default() };
            line.processes = line.processes.map(|mut processes| {
                processes.groups.insert("workers".into(), group);
                processes
            });
            line
        });
        let verdict = judged(&watched, lines);
        assert_eq!(
            (verdict.verdict, verdict.owner.as_deref()),
            (VerdictWord::Growing, Some("workers/GPU")),
            "{verdict:?}"
        );
        let gpus = verdict.series.iter().find(|one| one.name == GPU_FOOTPRINT).unwrap();
        assert!(is_near(gpus.findings.slope, 2.0 * MIB as f64) && gpus.steps_to_limit.is_some(), "{gpus:?}");
    }

    fn is_near(value: Option<f64>, expected: f64) -> bool {
        value.is_some_and(|value| (value - expected).abs() < 0.01 * expected)
    }

    fn judged(watched: &WatchSettings, lines: impl Iterator<Item = MemoryLine>) -> Verdict {
        let mut command = CommandJudge::new(watched);
        lines.for_each(|line| command.add(&line));
        command.verdict()
    }

    #[test]
    fn an_owner_that_the_command_reports_is_named_in_place_of_its_group() {
        let grown = |part: u64| {
            judged(
                &WatchSettings { host_memory: Some(1024 * MIB), ..WatchSettings::default() },
                (0..300).map(|at| {
                    let mut line = line(1000 * at, at, (100 + at) * MIB, 0);
                    // Allocated at once, and filled later: larger than what is in memory.
                    line.owners.insert("replay buffer".into(), 500 * MIB);
                    line.owners.insert("losses".into(), 10 * MIB + part * at * MIB / 100);
                    line
                }),
            )
        };
        let verdict = grown(97);
        assert_eq!((verdict.verdict, verdict.owner.as_deref()), (VerdictWord::Growing, Some("losses")), "{verdict:?}");
        assert!(is_near(verdict.owner_share, 0.97));
        assert!(verdict.message.contains("the limit of 1.0 GiB"), "owners have no cap: {}", verdict.message);
        assert_eq!(grown(50).owner.as_deref(), Some("main/private"), "half of the growth explains nothing");
    }

    #[test]
    fn growth_by_step_has_a_group_a_slope_and_steps_to_the_limit() {
        let watched = WatchSettings { host_memory: Some(1024 * MIB), ..WatchSettings::default() };
        let verdict = judged(&watched, (0..300).map(|at| line(1000 * at, at, 100 * MIB, at * MIB)));
        assert_eq!((verdict.verdict, verdict.axis), (VerdictWord::Growing, Axis::Steps), "{verdict:?}");
        assert_eq!(verdict.owner.as_deref(), Some("workers/private"));
        let footprint = verdict.footprint().unwrap();
        assert!(is_near(footprint.findings.slope, MIB as f64), "{footprint:?}");
        assert!(is_near(footprint.steps_to_limit, 626.0), "{footprint:?}");
        assert!(verdict.message.contains("10 min"), "{}", verdict.message);
    }

    #[test]
    fn without_steps_the_clock_is_the_axis_and_ninety_samples_are_needed_at_any_pace() {
        let leak = |count: u64, every: u64| {
            let verdict = judged(&WatchSettings::default(), (0..count).map(|at| line(every * at, 0, 2 * at * MIB, 0)));
            assert_eq!(verdict.axis, Axis::Clock);
            verdict
        };
        assert_eq!([leak(80, 1000), leak(80, 200)].map(|found| found.verdict), [VerdictWord::Inconclusive; 2]);
        assert_eq!(leak(150, 200).verdict, VerdictWord::Growing, "30 s");
        let verdict = leak(300, 1000);
        assert_eq!((verdict.verdict, verdict.owner.as_deref()), (VerdictWord::Growing, Some("main/private")));
        let slope = verdict.footprint().unwrap().findings.slope;
        assert!(is_near(slope.map(|slope| 1000.0 * slope), 2.0 * MIB as f64), "{slope:?} bytes per millisecond");
    }

    #[test]
    fn growth_after_the_last_step_is_judged_by_the_clock() {
        let steps = (0..150).map(|at| line(200 * at, 2 * at, 100 * MIB, 0));
        let after = (0..200).map(|at| line(30_000 + 200 * at, 298, (100 + at) * MIB, 0));
        let verdict = judged(&WatchSettings::default(), steps.clone().chain(after));
        assert_eq!((verdict.verdict, verdict.axis), (VerdictWord::Growing, Axis::Clock), "{}", verdict.message);
        // An evaluation at the end that needs more memory, and keeps it.
        let after = (0..200).map(|at| line(30_000 + 200 * at, 298, (100 + at.min(60)) * MIB, 0));
        let verdict = judged(&WatchSettings::default(), steps.clone().chain(after));
        assert!(verdict.verdict < VerdictWord::Growing, "{}", verdict.message);
        let verdict = judged(&WatchSettings::default(), steps);
        assert_eq!((verdict.verdict, verdict.axis), (VerdictWord::Bounded, Axis::Steps), "{}", verdict.message);
    }

    #[test]
    fn a_resumed_command_keeps_the_verdict_of_its_longest_process() {
        let process = |segment: u32, first: u64, count: u64, leak: u64| {
            (first..first + count).map(move |at| {
                let line = line(1000 * (at - first), at, (100 + leak * (at - first)) * MIB, 0);
                MemoryLine { segment, ..line }
            })
        };
        let watched = WatchSettings::default();
        let verdict = judged(&watched, process(0, 1, 300, 0).chain(process(1, 301, 20, 0)));
        let about = verdict.process.unwrap();
        assert_eq!(
            (verdict.verdict, about.segment, about.newest),
            (VerdictWord::Bounded, 0, Some(VerdictWord::Inconclusive))
        );
        let each: Vec<VerdictWord> = verdict.processes.iter().map(|process| process.verdict).collect();
        assert_eq!(each, [VerdictWord::Bounded, VerdictWord::Inconclusive]);
        // The worst counts, wherever it is.
        let verdict =
            judged(&watched, process(0, 1, 300, 2).chain(process(1, 301, 400, 0)).chain(process(2, 701, 9, 0)));
        assert_eq!((verdict.verdict, verdict.process.unwrap().segment), (VerdictWord::Growing, 0));
        assert_eq!(verdict.processes.len(), 3);
    }

    #[test]
    fn steps_that_were_not_of_the_training_are_forgotten() {
        let mut command = CommandJudge::new(&WatchSettings::default());
        (0..200).for_each(|at| command.add(&line(1000 * at, 25 * at, 50 * MIB, 0)));
        command.restart_steps();
        (0..300).for_each(|at| command.add(&line(200_000 + 1000 * at, 1 + at, 50 * MIB, at * MIB)));
        let verdict = command.verdict();
        assert_eq!((verdict.verdict, verdict.axis), (VerdictWord::Growing, Axis::Steps), "{}", verdict.message);
        assert_eq!(verdict.process.map(|process| process.last_step), Some(299));
    }

    #[test]
    fn growth_is_found_although_workers_exit_before_the_last_step() {
        let steps = (0..40).map(|at| line(15_000 * at, 500 * at, 400 * MIB, 20 * at * MIB));
        let end = std::iter::once(line(615_000, 20_000, 400 * MIB, 0));
        let verdict = judged(&WatchSettings::default(), steps.chain(end));
        assert_eq!(verdict.owner.as_deref(), Some("workers/private"), "{}", verdict.message);
        assert_eq!((verdict.verdict, verdict.axis), (VerdictWord::Growing, Axis::Steps), "{}", verdict.message);
    }

    #[test]
    fn start_end_and_memory_that_moves_between_groups_are_no_growth() {
        let start = (0..100).map(|at| line(1000 * at, 0, at * MIB, 0));
        let steps = (0..200).map(|at| line(1000 * (100 + at), 1 + at, (300 - at) * MIB, at * MIB));
        let end = (0..50).map(|at| line(1000 * (300 + at), 200, (100 - at) * MIB, 0));
        let verdict = judged(&WatchSettings::default(), start.chain(steps).chain(end));
        assert_eq!((verdict.verdict, verdict.axis), (VerdictWord::Bounded, Axis::Steps), "{}", verdict.message);
    }
}
