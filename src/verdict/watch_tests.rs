//! Growth that is declared to end is not a leak; and it hides none.

use super::*;
use crate::memory::ledger::Policy;
use crate::results::format::{HostMemory, Point};

const KIB: u64 = 1024;
const STEPS: u64 = 200;

fn context(cap: u64) -> Context {
    let owner = |name: &str, policy, bytes| PlannedOwner {
        name: name.into(),
        place: Place::Host,
        policy,
        items: NO_CAP.items,
        bytes,
        because: String::new(),
        fills: None,
        keeps: None,
    };
    let owners = [owner("cache", Policy::Evict, cap), owner("leak", Policy::Leak, NO_CAP.bytes)];
    let owners = owners.iter().map(|owner| (owner.name.clone(), Declared::of(owner))).collect();
    let scale = Some(Scale { growth_min: 128.0 * KIB as f64, move_min: 4.0 * KIB as f64 });
    Context { steps: STEPS, steps_per_epoch: 10, owners, scale, ..Context::default() }
}

/// What a run says in which a cache and a leak grow by so much a step.
fn said(cap: u64, cache: u64, leak: u64) -> Verdict {
    let mut watch = Watch::new(context(cap));
    let mut suspects = 0;
    for step in 1..=STEPS {
        let owners = [("cache".to_owned(), cache * step), ("leak".to_owned(), leak * step)];
        let heap = 1024 * KIB + (cache + leak) * step;
        watch.add(&MemoryLine {
            version: VERSION,
            segment: 0,
            time_us: 0,
            step,
            epoch: 1,
            point: Point::Step,
            host: HostMemory { heap, ..HostMemory::default() },
            device: None,
            driver: None,
            container: None,
            owners: owners.into(),
            freed: None,
            phases_us: [].into(),
            cost_us: 0,
        });
        suspects = suspects.max(watch.suspects().len());
    }
    let verdict = watch.verdict();
    assert_eq!(suspects > 0, verdict.verdict >= Judgement::Suspect, "while it goes on, too: {}", verdict.message);
    verdict
}

fn of<'a>(verdict: &'a Verdict, name: &str) -> &'a SeriesVerdict {
    verdict.series.iter().find(|one| one.name == name).unwrap()
}

#[test]
fn a_cache_that_is_not_yet_full_is_filling_and_no_leak() {
    let verdict = said(64 * 1024 * KIB, 10 * KIB, 0);
    assert_eq!(verdict.verdict, Judgement::Filling, "{}", verdict.message);
    assert_eq!(verdict.owner.as_deref(), Some("cache"));
    assert_eq!(of(&verdict, "heap").findings.verdict, Judgement::Filling);
    assert_eq!(of(&verdict, "owner:cache").steps_to_limit, Some(64.0 * 1024.0 / 10.0 - STEPS as f64));
    assert!(verdict.series.iter().all(|one| !one.name.starts_with(REST)), "what is reckoned with is not shown");
}

#[test]
fn without_a_cap_the_same_growth_is_a_leak() {
    let verdict = said(NO_CAP.bytes, 10 * KIB, 0);
    assert_eq!((verdict.verdict, verdict.owner.as_deref()), (Judgement::Growing, Some("cache")));
}

#[test]
fn a_cache_that_fills_up_hides_no_leak_beside_it() {
    let verdict = said(64 * 1024 * KIB, 100 * KIB, 2 * KIB);
    assert_eq!(verdict.verdict, Judgement::Growing, "{}", verdict.message);
    assert_eq!(verdict.owner.as_deref(), Some("leak"), "{}", verdict.message);
    assert!((verdict.owner_share.unwrap() - 1.0).abs() < 1e-9);
    assert_eq!(of(&verdict, "owner:cache").findings.verdict, Judgement::Filling);
}

#[test]
fn a_buffer_above_its_cap_has_exceeded_it() {
    let verdict = said(1024 * KIB, 10 * KIB, 0);
    assert_eq!((verdict.verdict, verdict.owner.as_deref()), (Judgement::Exceeded, Some("cache")));
}
