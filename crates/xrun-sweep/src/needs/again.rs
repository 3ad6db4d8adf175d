//! Whether a run that died for want of memory is tried once more, and with how much: with what its own trace says that it
//! needed; and never if it was growing, by the verdict, since more memory would only move its next end.

use std::path::Path;

use super::with_margin;
use xrun_core::bounded::ledger::Policy;
use xrun_core::bounded::planned::{Place, PlannedOwner};
use xrun_core::files::layout;
use xrun_core::printable;
use xrun_results::format::{Outcome, PlanFile};
use xrun_results::verdict::{Judgement, OWNER, SeriesVerdict, Verdict};
use xrun_results::{judge, read};
use xrun_watch::killed;

/// It is tried with three fifths more at least: a forecast that was 30 % too low is then high enough, and a run leaves a
/// twentieth of its container's limit free.
const LEAST_PARTS: u64 = 5;
/// A run is never tried with more than so many times what it had.
const TIMES_MAX: u64 = 4;

/// What becomes of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Again {
    /// It is tried once more with so many bytes.
    With(u64),
    /// It was growing; what, and who holds it, for people.
    Grew(String),
}

/// Returns whether a limit of memory on the host that no key sets ended the run: more memory helps.
pub fn met_the_containers_limit(run: &Path, outcome: Outcome) -> bool {
    let of_container = || read::post_mortem(run).ok().flatten().filter(|died| died.limit_key.is_none());
    outcome == Outcome::MemoryLimit && of_container().is_some_and(|died| died.place == Place::Host)
}

/// Returns whether its newest process held more than so many bytes, by its own trace: a cluster that ends it for that may say
/// nothing of memory.
pub fn held_more(run: &Path, bytes: u64) -> bool {
    Newest::of(run).peak > bytes
}

/// Decides by the run's folder. `had` is how many bytes it was given; 0 where that is not known.
pub fn after(run: &Path, had: u64) -> Again {
    let verdict = killed::judged(run).or_else(|| judge::of_samples(&run.join(layout::MEMORY)).ok());
    decide(verdict.as_ref(), Newest::of(run), read::plan(run).ok().as_ref(), had)
}

/// The newest process in a trace.
#[derive(Clone, Copy, Debug, Default)]
struct Newest {
    segment: u32,
    /// The highest resident memory.
    peak: u64,
    /// The step of the last sample.
    step: u64,
}

impl Newest {
    fn of(run: &Path) -> Self {
        let mut newest = Self::default();
        for line in read::memory(run).into_iter().flatten().map_while(Result::ok) {
            if line.segment != newest.segment {
                newest = Self { segment: line.segment, ..Self::default() };
            }
            let resident = line.host.resident.unwrap_or(line.host.heap).max(line.host.heap_peak);
            newest.peak = newest.peak.max(resident).max(line.host.resident_peak.unwrap_or_default());
            newest.step = newest.step.max(line.step);
        }
        newest
    }
}

fn decide(verdict: Option<&Verdict>, newest: Newest, plan: Option<&PlanFile>, had: u64) -> Again {
    if let Some(verdict) = verdict.filter(|verdict| verdict.verdict >= Judgement::Suspect) {
        return Again::Grew(printable::line(&verdict.message, 400));
    }
    let to_come = verdict.zip(plan).map_or(0, |(verdict, plan)| to_come(verdict, plan, newest.step));
    let needed = with_margin(newest.peak.saturating_add(to_come));
    // What it was given is not known of all runs: then it had what its trace shows.
    let had = if had > 0 { had } else { newest.peak };
    let least = had.saturating_add(had / LEAST_PARTS * 3);
    let most = had.saturating_mul(TIMES_MAX).max(least);
    Again::With(needed.clamp(least, most).checked_next_multiple_of(1 << 20).unwrap_or(u64::MAX))
}

/// Bytes that the run would have come to hold beyond its peak: what buffers that fill have still to take; or else, where
/// that is too early to tell, what memory rises by until the last step.
fn to_come(verdict: &Verdict, plan: &PlanFile, step: u64) -> u64 {
    let series = |name: &str| verdict.series.iter().find(|one| one.name == name);
    let fills = |one: &SeriesVerdict| match one.findings.verdict {
        Judgement::Filling => true,
        Judgement::Inconclusive => one.last > one.first,
        _ => false,
    };
    let owners = plan.owners.iter().filter_map(|owner| Some((owner, series(&format!("{OWNER}{}", owner.name))?)));
    let filling = owners.filter(|(_, one)| fills(one));
    let to_take = filling.filter_map(|(owner, one)| Some(full(owner)?.saturating_sub(one.last as u64)));
    if let Some(bytes) = to_take.reduce(u64::saturating_add) {
        return bytes;
    }
    let total = series("resident").or_else(|| series("heap"));
    let rises = total.filter(|one| one.findings.verdict == Judgement::Inconclusive);
    let slope = rises.and_then(|one| one.findings.slope).unwrap_or_default().max(0.0);
    (slope * plan.steps.saturating_sub(step) as f64) as u64
}

/// Bytes at which an owner comes to an end by itself; `None` where nothing ends it.
fn full(owner: &PlannedOwner) -> Option<u64> {
    match owner.policy {
        Policy::Leak => owner.keeps.and_then(|keeps| keeps.full()),
        _ => Some(owner.full()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use xrun_core::files::write;
    use xrun_results::format::{HostMemory, MemoryLine, Point, VERSION};

    const MIB: u64 = 1 << 20;

    /// A run's folder with a trace: memory and the owner `kept` of each step, in MiB.
    fn traced(samples: &[(u64, u64)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let line = |(at, (resident, kept)): (usize, &(u64, u64))| MemoryLine {
            version: VERSION,
            segment: 0,
            time_us: 0,
            step: at as u64 + 1,
            epoch: 1,
            point: Point::Step,
            host: HostMemory { resident: Some(resident * MIB), heap: resident * MIB, ..HostMemory::default() },
            device: None,
            driver: None,
            container: None,
            owners: [("kept".to_owned(), kept * MIB)].into(),
            freed: None,
            phases_us: [].into(),
            cost_us: 0,
            pressure: None,
            processes: None,
        };
        let lines: Vec<String> =
            samples.iter().enumerate().map(|sample| serde_json::to_string(&line(sample)).unwrap() + "\n").collect();
        write::replace(&folder.path().join("memory.jsonl"), lines.concat().as_bytes()).unwrap();
        folder
    }

    #[test]
    fn where_nobody_knows_what_it_had_its_trace_says() {
        let folder = traced(&[(300, 0); 40]);
        assert_eq!(after(folder.path(), 0), Again::With(556 * MIB));
    }

    #[test]
    fn a_trace_that_somebody_damaged_ends_nothing() {
        let folder = traced(&[(300, 0); 3]);
        let path = folder.path().join("memory.jsonl");
        let text = std::fs::read_to_string(&path).unwrap();
        let line = text.lines().next().unwrap();
        let of = |segment: u32, step: u64| {
            let line = line.replace("\"segment\":0", &format!("\"segment\":{segment}"));
            line.replace("\"step\":1", &format!("\"step\":{step}")) + "\n"
        };
        for lines in [[of(0, 0), of(0, u64::MAX), of(0, 7)], [of(0, u64::MAX - 1), of(1, 3), of(0, 2)]] {
            write::replace(&path, lines.concat().as_bytes()).unwrap();
            assert!(matches!(after(folder.path(), MIB), Again::With(_)));
        }
    }

    fn decided(samples: &[(u64, u64)], had: u64) -> Again {
        after(traced(samples).path(), had * MIB)
    }

    #[test]
    fn a_run_that_does_not_grow_gets_what_it_needed_and_clearly_more_than_it_had() {
        assert_eq!(decided(&[(300, 0); 40], 310), Again::With(556 * MIB), "300 and 256");
        assert_eq!(decided(&[(3000, 0); 40], 2000), Again::With(3750 * MIB));
        assert_eq!(decided(&[(20, 0); 3], 2000), Again::With(3200 * MIB), "killed before a sample was taken");
        assert_eq!(decided(&[], 100), Again::With(256 * MIB));
        assert_eq!(decided(&[(30_000, 0); 40], 100), Again::With(400 * MIB), "never more than four times");
    }

    #[test]
    fn a_run_that_grew_is_not_tried_again_and_its_owner_is_named() {
        let leak: Vec<(u64, u64)> = (0..120).map(|step| (100 + 3 * step, 3 * step)).collect();
        let Again::Grew(why) = decided(&leak, 300) else { panic!("it grew") };
        assert!(why.contains("memory is growing") && why.contains("`kept` holds 100 % of the growth"), "{why}");
        assert!(matches!(decided(&leak[..60], 300), Again::Grew(_)), "what rises evenly is told early");
        assert!(matches!(decided(&leak[..6], 300), Again::With(_)), "too short to tell");
        let risen: Vec<(u64, u64)> = (0..60).map(|step| (if step < 4 { 100 } else { 250 }, 0)).collect();
        assert!(matches!(decided(&risen, 300), Again::With(_)), "it rose once");
        let noisy: Vec<(u64, u64)> = (0..60).map(|step| (250 + 7 * (step % 3), 0)).collect();
        assert!(matches!(decided(&noisy, 300), Again::With(_)));
    }

    #[test]
    fn what_fills_up_to_a_cap_gets_what_is_to_come() {
        let filling: Vec<(u64, u64)> = (0..60).map(|step| (100 + 3 * step, 3 * step)).collect();
        let folder = traced(&filling);
        let mut plan = crate::search::rungs::tests::plan_of("[pipeline.dummy]\nsteps_per_epoch = 100\n").to_file(1);
        plan.owners[0].name = "kept".into();
        (plan.owners[0].bytes, plan.owners[0].fills) = (600 * MIB, Some(500 * MIB));
        write::replace_json(&folder.path().join(layout::PLAN), &plan).unwrap();
        let experiment = toml::from_str("[pipeline.dummy]\n").unwrap();
        let decided = |samples: usize| {
            let trace = traced(&filling[..samples]);
            std::fs::copy(trace.path().join(layout::MEMORY), folder.path().join(layout::MEMORY)).unwrap();
            let verdict = judge::of_run(folder.path(), &experiment).unwrap();
            decide(Some(&verdict), Newest::of(folder.path()), Some(&plan), 300 * MIB)
        };
        // 277 resident, 177 of 500 kept.
        assert_eq!(decided(60), Again::With((600 + 256) * MIB));
        // Too short to tell: 154 resident, 54 of 500 kept.
        assert_eq!(decided(19), Again::With((600 + 256) * MIB));
    }

    #[test]
    fn the_verdict_decides() {
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
            series: Vec::new(),
        };
        let newest = Newest { peak: 300 * MIB, step: 40, segment: 0 };
        let decided = |judgement| decide(Some(&verdict(judgement)), newest, None, 310 * MIB);
        for grew in [Judgement::Suspect, Judgement::Growing] {
            assert_eq!(decided(grew), Again::Grew("memory is growing: `cache` holds 96 %".into()));
        }
        for rests in [Judgement::Inconclusive, Judgement::Bounded, Judgement::Filling] {
            assert_eq!(decided(rests), Again::With(556 * MIB), "{rests:?}");
        }
    }
}
