//! A run died for want of memory: is it tried once more, and with how much? With what its own trace says that it needed; and
//! never if it was growing, since more memory would only move its next end.

use std::collections::BTreeMap;
use std::path::Path;

use super::with_margin;
use xrun_core::bounded::ledger::Policy;
use xrun_core::bounded::planned::Place;
use xrun_core::printable;
use xrun_core::units::Bytes;
use xrun_results::format::{MemoryLine, Outcome, PlanFile, Point};
use xrun_results::read;
use xrun_results::verdict::{Judgement, Verdict};
use xrun_watch::killed;

/// Growth that is shown by the floors of so many parts of the trace, one above the other.
const PARTS: usize = 4;
/// Of a trace with fewer samples of steps, all are looked at; else those of its second half.
const SAMPLES_OF_HALVES: usize = 16;
/// It grew where the last floor is so much above the first: a share of it, and bytes.
const GREW_SHARE: u64 = 20;
const GREW_MIN: u64 = 4 << 20;
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

/// A limit of memory on the host that no key sets ended the run: more memory helps.
pub fn met_the_containers_limit(run: &Path, outcome: Outcome) -> bool {
    let of_container = || read::post_mortem(run).ok().flatten().filter(|died| died.limit_key.is_none());
    outcome == Outcome::MemoryLimit && of_container().is_some_and(|died| died.place == Place::Host)
}

/// Whether its newest process held more than so many bytes, by its own trace: a cluster that ends it for that may say nothing
/// of memory.
pub fn held_more(run: &Path, bytes: u64) -> bool {
    seen(run, newest(run)).peak > bytes
}

/// Decides by the run's folder. `had` is how many bytes it was given; 0 where that is not known.
pub fn after(run: &Path, had: u64) -> Again {
    let verdict = killed::judged(run);
    let plan = read::plan(run).ok();
    let seen = seen(run, newest(run));
    // What it was given is not known of all runs: then it had what its trace shows.
    let had = if had > 0 { had } else { seen.peak };
    decide(verdict.as_ref(), &seen, plan.as_ref(), had)
}

/// What the trace of the newest process shows, in constant memory.
#[derive(Clone, Debug, Default)]
struct Seen {
    /// The highest resident memory.
    peak: u64,
    /// The step of the last sample.
    last_step: u64,
    /// The least of each part, of samples of steps; and how many steps the parts have together.
    floors: [Option<u64>; PARTS],
    steps: u64,
    /// What owners held at the first and at the last of these samples.
    owners: [BTreeMap<String, u64>; 2],
}

/// The newest process in a trace: its number, its first and last step, and how many samples of steps it has.
#[derive(Clone, Copy, Debug, Default)]
struct Newest {
    segment: u32,
    first: Option<u64>,
    last: u64,
    samples: usize,
}

fn lines(run: &Path) -> impl Iterator<Item = MemoryLine> {
    read::memory(run).into_iter().flatten().map_while(Result::ok)
}

fn newest(run: &Path) -> Newest {
    let mut newest = Newest::default();
    for line in lines(run) {
        if line.segment != newest.segment {
            newest = Newest { segment: line.segment, ..Newest::default() };
        }
        newest.last = newest.last.max(line.step);
        if line.point == Point::Step {
            newest.first = newest.first.or(Some(line.step));
            newest.samples += 1;
        }
    }
    newest
}

fn seen(run: &Path, newest: Newest) -> Seen {
    let mut seen = Seen { last_step: newest.last, ..Seen::default() };
    let Some(first) = newest.first else {
        seen.peak =
            lines(run).filter(|line| line.segment == newest.segment).map(|line| resident(&line)).max().unwrap_or(0);
        return seen;
    };
    let from = if newest.samples < SAMPLES_OF_HALVES { first } else { first + (newest.last - first) / 2 };
    seen.steps = newest.last - from;
    for line in lines(run).filter(|line| line.segment == newest.segment) {
        seen.peak = seen.peak.max(resident(&line)).max(line.host.resident_peak.unwrap_or_default());
        if line.point != Point::Step || line.step < from {
            continue;
        }
        let part = u128::from(line.step - from) * PARTS as u128 / (u128::from(seen.steps) + 1);
        let floor = &mut seen.floors[usize::try_from(part).unwrap_or(PARTS).min(PARTS - 1)];
        let held = line.host.resident.unwrap_or(line.host.heap);
        *floor = Some(floor.map_or(held, |floor| floor.min(held)));
        if seen.owners[0].is_empty() {
            seen.owners[0].clone_from(&line.owners);
        }
        seen.owners[1] = line.owners;
    }
    seen
}

fn resident(line: &MemoryLine) -> u64 {
    line.host.resident.unwrap_or(line.host.heap).max(line.host.heap_peak)
}

impl Seen {
    /// From the first floor to the last, where each is above the one before.
    fn rise(&self) -> Option<u64> {
        let floors: Vec<u64> = self.floors.iter().copied().collect::<Option<_>>()?;
        floors.is_sorted_by(|one, next| one < next).then(|| floors[PARTS - 1] - floors[0])
    }

    fn grew(&self) -> Option<u64> {
        let last = self.floors[PARTS - 1].unwrap_or_default();
        self.rise().filter(|rise| *rise >= GREW_MIN.max(last / GREW_SHARE))
    }

    /// What an owner has more at the end than at the beginning.
    fn risen<'a>(&'a self, name: &str) -> u64 {
        let held = |at: &'a BTreeMap<String, u64>| at.get(name).copied().unwrap_or_default();
        held(&self.owners[1]).saturating_sub(held(&self.owners[0]))
    }

    /// Of owners that come to an end by themselves: how much they rose, and how much is to come.
    fn ending(&self, plan: &PlanFile) -> (u64, u64) {
        let full = |name: &str| {
            let owner = plan.owners.iter().find(|owner| owner.name == name)?;
            match owner.policy {
                Policy::Leak => owner.keeps.and_then(|keeps| keeps.full()),
                _ => Some(owner.full()),
            }
        };
        let rising = self.owners[1].iter().filter(|(name, _)| self.risen(name) > 0);
        let ending = rising.filter_map(|(name, now)| Some((self.risen(name), full(name)?.saturating_sub(*now))));
        ending.fold((0, 0), |all, one| (all.0.saturating_add(one.0), all.1.saturating_add(one.1)))
    }

    /// Who explains most of a rise; `None` where no owner does.
    fn grower(&self, rise: u64) -> Option<String> {
        let name = self.owners[1].keys().max_by_key(|name| self.risen(name))?;
        (self.risen(name) > rise / 2).then(|| printable::line(name, 80))
    }
}

fn decide(verdict: Option<&Verdict>, seen: &Seen, plan: Option<&PlanFile>, had: u64) -> Again {
    if let Some(verdict) = verdict.filter(|verdict| verdict.verdict >= Judgement::Slowing) {
        return Again::Grew(printable::line(&verdict.message, 400));
    }
    // It is shown that it rests, or that it ends; of the others the trace may be too short for a verdict.
    let rests = verdict.is_some_and(|verdict| (Judgement::Bounded..Judgement::Suspect).contains(&verdict.verdict));
    let (risen, to_come) = plan.map_or((0, 0), |plan| seen.ending(plan));
    if !rests && let Some(rise) = seen.grew().filter(|rise| risen < rise / 2) {
        let owner = seen.grower(rise).map_or_else(
            || "no buffer in the ledger explains it".to_owned(),
            |owner| format!("`{owner}` holds most of that"),
        );
        return Again::Grew(format!(
            "resident memory rose by {} in its last {} steps; {owner}",
            Bytes(rise),
            seen.steps
        ));
    }
    let left = plan.map_or(0, |plan| plan.steps.saturating_sub(seen.last_step));
    let by_trend = match seen.rise().filter(|rise| !rests && *rise >= GREW_MIN / 4 && seen.steps > 0) {
        // A floor stands for the beginning of its part.
        Some(rise) => {
            let steps = (u128::from(seen.steps) * (PARTS as u128 - 1) / PARTS as u128).max(1);
            u64::try_from(u128::from(rise) * u128::from(left) / steps).unwrap_or(u64::MAX)
        }
        None => 0,
    };
    let to_come = if risen > 0 { to_come } else { by_trend };
    let needed = with_margin(seen.peak.saturating_add(to_come));
    let least = had.saturating_add(had / LEAST_PARTS * 3);
    let most = had.saturating_mul(TIMES_MAX).max(least);
    Again::With(needed.clamp(least, most).checked_next_multiple_of(1 << 20).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use xrun_core::files::write;
    use xrun_results::format::{HostMemory, VERSION};

    const MIB: u64 = 1 << 20;

    /// A run's folder with a trace: resident memory and the owner `kept` of each step, in MiB.
    fn traced(samples: &[(u64, u64)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let line = |(at, (resident, kept)): (usize, &(u64, u64))| MemoryLine {
            version: VERSION,
            segment: 0,
            time_us: 0,
            step: at as u64 + 1,
            epoch: 1,
            point: Point::Step,
            host: HostMemory { resident: Some(resident * MIB), heap: MIB, ..HostMemory::default() },
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
            let seen = seen(folder.path(), newest(folder.path()));
            assert!(matches!(decide(None, &seen, None, MIB), Again::With(_)), "{seen:?}");
        }
    }

    fn decided(samples: &[(u64, u64)], had: u64) -> Again {
        let folder = traced(samples);
        decide(None, &seen(folder.path(), newest(folder.path())), None, had * MIB)
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
        let leak: Vec<(u64, u64)> = (0..60).map(|step| (100 + 3 * step, 3 * step)).collect();
        let Again::Grew(why) = decided(&leak, 300) else { panic!("it grew") };
        assert_eq!(why, "resident memory rose by 72.0 MiB in its last 30 steps; `kept` holds most of that");
        assert!(matches!(decided(&leak[..6], 300), Again::Grew(_)), "a short trace shows it, too");
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
        let seen = seen(folder.path(), newest(folder.path()));
        // 277 resident, 177 of 500 kept.
        assert_eq!(decide(None, &seen, Some(&plan), 300 * MIB), Again::With((600 + 256) * MIB));
    }

    #[test]
    fn the_verdict_counts_more_than_the_trace() {
        let flat = seen_of(&[(300, 0); 40]);
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
        let decided = |judgement, seen: &Seen| decide(Some(&verdict(judgement)), seen, None, 310 * MIB);
        assert_eq!(decided(Judgement::Growing, &flat), Again::Grew("memory is growing: `cache` holds 96 %".into()));
        assert!(matches!(decided(Judgement::Bounded, &flat), Again::With(_)));
        let leak: Vec<(u64, u64)> = (0..60).map(|step| (100 + 3 * step, 0)).collect();
        assert!(matches!(decided(Judgement::Filling, &seen_of(&leak)), Again::With(_)));
        assert!(matches!(decided(Judgement::Inconclusive, &seen_of(&leak)), Again::Grew(_)));
    }

    fn seen_of(samples: &[(u64, u64)]) -> Seen {
        let folder = traced(samples);
        seen(folder.path(), newest(folder.path()))
    }
}
