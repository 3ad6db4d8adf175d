//! Decision on the one retry of a run that ran out of memory: with the memory that its trace shows it to need, and not if memory
//! was growing, since it would run out again.

use std::collections::BTreeMap;
use std::path::Path;

use super::with_margin;
use xrun_core::bounded::ledger::Policy;
use xrun_core::bounded::planned::MemoryKind;
use xrun_core::printable;
use xrun_core::units::Bytes;
use xrun_results::format::{MemoryLine, Outcome, PlanFile, SamplePoint};
use xrun_results::read;
use xrun_results::verdict::{Verdict, VerdictWord};
use xrun_run::killed;
use xrun_verdict::{Recent, RecentGrowth};

/// A trace that is too short for a verdict shows growth from this fraction of what was held, as its inverse, and from this
/// number of bytes.
const GREW_FRACTION: u64 = 20;
const GREW_MIN: u64 = 4 << 20;
/// It is tried with three fifths more at least: a forecast that was 30 % too low is then high enough, and a run leaves a
/// twentieth of its container's limit free.
const LEAST_PARTS: u64 = 5;
/// A run is never tried with more than this multiple of what it had.
const TIMES_MAX: u64 = 4;
/// Owners of a trace after this number are ignored: no run has more.
const OWNERS_MAX: usize = 256;

/// Decision on a retry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RetryDecision {
    /// The run is tried once more with this number of bytes.
    Retry(u64),
    /// It was growing: a message with what grew and who holds it.
    Growing(String),
}

/// Returns whether a limit of the host's memory that no key sets ended the run: more memory helps.
pub fn met_container_limit(run: &Path, outcome: Outcome) -> bool {
    let of_container = || read::post_mortem(run).ok().flatten().filter(|died| died.limit_key.is_none());
    outcome == Outcome::MemoryLimit && of_container().is_some_and(|died| died.place == MemoryKind::Host)
}

/// Returns whether the run's newest process held more than this number of bytes, by its own trace: a cluster that kills it for
/// that may not name memory as the reason.
pub fn held_more(run: &Path, bytes: u64) -> bool {
    Trace::read(run).peak > bytes
}

/// Decides by the run's directory. `had` is the number of bytes that it was given; 0 where that is not known.
pub fn decide(run: &Path, had: u64) -> RetryDecision {
    let verdict = killed::verdict_on(run);
    let plan = read::plan(run).ok();
    let trace = Trace::read(run);
    // Without a number, the run had what its trace shows.
    let had = if had > 0 { had } else { trace.peak };
    by_trace(verdict.as_ref(), &trace, plan.as_ref(), had)
}

/// The trace of a run's newest process, in constant memory.
#[derive(Debug, Default)]
struct Trace {
    segment: u32,
    /// The highest RSS, in bytes.
    peak: u64,
    last_step: u64,
    /// RSS at samples of steps.
    rss: Recent,
    /// Bytes of each owner at these samples: their windows, and the last.
    owners: BTreeMap<String, (Recent, u64)>,
}

impl Trace {
    fn read(run: &Path) -> Self {
        let mut trace = Self::default();
        for line in read::memory(run).into_iter().flatten().map_while(Result::ok) {
            if line.segment != trace.segment {
                trace = Self { segment: line.segment, ..Self::default() };
            }
            trace.add(line);
        }
        trace
    }

    fn add(&mut self, line: MemoryLine) {
        let rss = line.host.rss.unwrap_or(line.host.heap);
        self.peak = self.peak.max(rss).max(line.host.heap_peak).max(line.host.rss_peak.unwrap_or_default());
        self.last_step = self.last_step.max(line.step);
        if line.point == SamplePoint::Step {
            self.rss.add(line.step, rss as f64);
            for (name, bytes) in line.owners {
                if self.owners.len() >= OWNERS_MAX && !self.owners.contains_key(&name) {
                    continue;
                }
                let (recent, last) = self.owners.entry(name).or_default();
                recent.add(line.step, bytes as f64);
                *last = bytes;
            }
        }
    }

    /// RSS growth, where it is steady.
    fn growth(&self) -> Option<RecentGrowth> {
        self.rss.growth().filter(|growth| growth.steady)
    }

    /// Owners that grow, and by how many bytes.
    fn growing_owners(&self) -> impl Iterator<Item = (&String, u64, u64)> {
        let grown = |recent: &Recent| recent.growth().map_or(0, |growth| growth.growth.max(0.0) as u64);
        self.owners.iter().map(move |(name, (recent, last))| (name, grown(recent), *last)).filter(|owner| owner.1 > 0)
    }

    /// Growth of the growing owners that have a cap, and the bytes until they are full.
    fn filling(&self, plan: &PlanFile) -> (u64, u64) {
        let full = |name: &str| {
            let owner = plan.owners.iter().find(|owner| owner.name == name)?;
            match owner.policy {
                Policy::Leak => owner.leak_growth.and_then(|leak_growth| leak_growth.plateau_bytes()),
                _ => Some(owner.full()),
            }
        };
        let filling =
            self.growing_owners().filter_map(|(name, grown, last)| Some((grown, full(name)?.saturating_sub(last))));
        filling.fold((0, 0), |all, one| (all.0.saturating_add(one.0), all.1.saturating_add(one.1)))
    }

    /// The owner of more than half of a growth; `None` where there is none.
    fn grower(&self, growth: u64) -> Option<String> {
        let (name, ..) = self.growing_owners().filter(|owner| owner.1 > growth / 2).max_by_key(|owner| owner.1)?;
        Some(printable::line(name, 80))
    }
}

fn by_trace(verdict: Option<&Verdict>, trace: &Trace, plan: Option<&PlanFile>, had: u64) -> RetryDecision {
    if let Some(verdict) = verdict.filter(|verdict| verdict.verdict >= VerdictWord::Slowing) {
        return RetryDecision::Growing(printable::line(&verdict.message, 400));
    }
    // The verdict says that memory is flat, or that its growth ends; otherwise the trace may be too short for a verdict.
    let flat = verdict.is_some_and(|verdict| (VerdictWord::Bounded..VerdictWord::Suspect).contains(&verdict.verdict));
    let growth = trace.growth().filter(|_| !flat);
    let grown = growth.map_or(0, |growth| growth.growth as u64);
    let (filled, to_fill) = plan.map_or((0, 0), |plan| trace.filling(plan));
    if grown >= GREW_MIN.max(trace.peak / GREW_FRACTION) && filled < grown / 2 {
        let owner = trace.grower(grown).map_or_else(
            || "no buffer in the ledger explains it".to_owned(),
            |owner| format!("`{owner}` holds most of that"),
        );
        let steps = growth.map_or(0, |growth| growth.steps);
        return RetryDecision::Growing(format!("RSS rose by {} in its last {steps} steps; {owner}", Bytes(grown)));
    }
    let left = plan.map_or(0, |plan| plan.steps.saturating_sub(trace.last_step));
    let by_trend = match growth.filter(|growth| grown >= GREW_MIN / 4 && growth.steps > 0) {
        Some(growth) => (growth.growth / growth.steps as f64 * left as f64) as u64,
        None => 0,
    };
    let to_come = if filled > 0 { to_fill } else { by_trend };
    let needed = with_margin(trace.peak.saturating_add(to_come));
    let least = had.saturating_add(had / LEAST_PARTS * 3);
    let most = had.saturating_mul(TIMES_MAX).max(least);
    RetryDecision::Retry(needed.clamp(least, most).checked_next_multiple_of(1 << 20).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use xrun_core::files::write;
    use xrun_results::format::{HostMemory, VERSION};

    const MIB: u64 = 1 << 20;

    /// A run's directory with a trace: resident memory and the owner `kept` of each step, in MiB.
    fn traced(samples: &[(u64, u64)]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let line = |(at, (rss, kept)): (usize, &(u64, u64))| MemoryLine {
            version: VERSION,
            segment: 0,
            time_us: 0,
            step: at as u64 + 1,
            epoch: 1,
            point: SamplePoint::Step,
            host: HostMemory { rss: Some(rss * MIB), heap: MIB, ..HostMemory::default() },
            device: None,
            driver: None,
            container: None,
            owners: [("kept".to_owned(), kept * MIB)].into(),
            freed: None,
            phases_us: [].into(),
            cost_us: 0,
            seconds_left: None,
            pressure: None,
            processes: None,
        };
        let lines: Vec<String> =
            samples.iter().enumerate().map(|sample| serde_json::to_string(&line(sample)).unwrap() + "\n").collect();
        write::replace(&directory.path().join("memory.jsonl"), lines.concat().as_bytes()).unwrap();
        directory
    }

    #[test]
    fn without_a_known_size_the_trace_counts() {
        let directory = traced(&[(300, 0); 40]);
        assert_eq!(decide(directory.path(), 0), RetryDecision::Retry(556 * MIB));
    }

    #[test]
    fn a_damaged_trace_is_accepted() {
        let directory = traced(&[(300, 0); 3]);
        let path = directory.path().join("memory.jsonl");
        let text = std::fs::read_to_string(&path).unwrap();
        let line = text.lines().next().unwrap();
        let line_of = |segment: u32, step: u64| {
            let line = line.replace("\"segment\":0", &format!("\"segment\":{segment}"));
            line.replace("\"step\":1", &format!("\"step\":{step}")) + "\n"
        };
        for lines in [
            [line_of(0, 0), line_of(0, u64::MAX), line_of(0, 7)],
            [line_of(0, u64::MAX - 1), line_of(1, 3), line_of(0, 2)],
        ] {
            write::replace(&path, lines.concat().as_bytes()).unwrap();
            let trace = Trace::read(directory.path());
            assert!(matches!(by_trace(None, &trace, None, MIB), RetryDecision::Retry(_)), "{trace:?}");
        }
    }

    fn decided(samples: &[(u64, u64)], had: u64) -> RetryDecision {
        let directory = traced(samples);
        by_trace(None, &Trace::read(directory.path()), None, had * MIB)
    }

    #[test]
    fn a_run_that_does_not_grow_gets_its_peak_and_clearly_more_than_it_had() {
        assert_eq!(decided(&[(300, 0); 40], 310), RetryDecision::Retry(556 * MIB), "300 and 256");
        assert_eq!(decided(&[(3000, 0); 40], 2000), RetryDecision::Retry(3750 * MIB));
        assert_eq!(decided(&[(20, 0); 3], 2000), RetryDecision::Retry(3200 * MIB), "killed before a sample was taken");
        assert_eq!(decided(&[], 100), RetryDecision::Retry(256 * MIB));
        assert_eq!(decided(&[(30_000, 0); 40], 100), RetryDecision::Retry(400 * MIB), "never more than four times");
    }

    #[test]
    fn a_run_that_grew_is_not_retried_and_its_owner_is_named() {
        let leak: Vec<(u64, u64)> = (0..60).map(|step| (100 + 3 * step, 3 * step)).collect();
        let RetryDecision::Growing(why) = decided(&leak, 300) else { panic!("it grew") };
        assert_eq!(why, "RSS rose by 72.0 MiB in its last 24 steps; `kept` holds most of that");
        assert!(matches!(decided(&leak[..6], 300), RetryDecision::Growing(_)), "a short trace shows it, too");
        let risen: Vec<(u64, u64)> = (0..60).map(|step| (if step < 4 { 100 } else { 250 }, 0)).collect();
        assert!(matches!(decided(&risen, 300), RetryDecision::Retry(_)), "it rose once");
        let noisy: Vec<(u64, u64)> = (0..60).map(|step| (250 + 7 * (step % 3), 0)).collect();
        assert!(matches!(decided(&noisy, 300), RetryDecision::Retry(_)));
    }

    #[test]
    fn a_filling_buffer_gets_the_bytes_up_to_its_cap() {
        let filling: Vec<(u64, u64)> = (0..60).map(|step| (100 + 3 * step, 3 * step)).collect();
        let directory = traced(&filling);
        let mut plan = crate::search::rungs::tests::plan_of("[pipeline.dummy]\nsteps_per_epoch = 100\n").to_file(1);
        plan.owners[0].name = "kept".into();
        (plan.owners[0].bytes, plan.owners[0].working_set_bytes) = (600 * MIB, Some(500 * MIB));
        let trace = Trace::read(directory.path());
        // 277 resident, 177 of 500 kept.
        assert_eq!(by_trace(None, &trace, Some(&plan), 300 * MIB), RetryDecision::Retry((600 + 256) * MIB));
    }

    #[test]
    fn the_verdict_counts_more_than_the_trace() {
        let flat = trace_of(&[(300, 0); 40]);
        let verdict = |judgement| Verdict {
            version: VERSION,
            verdict: judgement,
            message: "memory is growing: `cache` holds 96 %".into(),
            axis: Default::default(),
            warm_up: 0,
            window: 1,
            owner: None,
            owner_share: None,
            process: None,
            processes: Vec::new(),
            series: Vec::new(),
            not_judged: Vec::new(),
            line_damage: Vec::new(),
            beyond_plan: None,
        };
        let decided = |judgement, trace: &Trace| by_trace(Some(&verdict(judgement)), trace, None, 310 * MIB);
        assert_eq!(
            decided(VerdictWord::Growing, &flat),
            RetryDecision::Growing("memory is growing: `cache` holds 96 %".into())
        );
        assert!(matches!(decided(VerdictWord::Bounded, &flat), RetryDecision::Retry(_)));
        let leak: Vec<(u64, u64)> = (0..60).map(|step| (100 + 3 * step, 0)).collect();
        assert!(matches!(decided(VerdictWord::Filling, &trace_of(&leak)), RetryDecision::Retry(_)));
        assert!(matches!(decided(VerdictWord::Inconclusive, &trace_of(&leak)), RetryDecision::Growing(_)));
    }

    fn trace_of(samples: &[(u64, u64)]) -> Trace {
        let directory = traced(samples);
        Trace::read(directory.path())
    }
}
