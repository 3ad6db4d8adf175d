//! Growth that is declared to end is not a leak; and it hides none.

use super::*;
use crate::context::Declared;
use crate::sample::Pool;

const KIB: u64 = 1024;
const STEPS: u64 = 200;

fn context(cap: u64) -> Context {
    let owner = |name: &str, cap| (name.to_owned(), Declared { place: Place::Host, cap, full: cap });
    let owners = [owner("cache", cap), owner("leak", NO_CAP)].into();
    let scale = Some(Scale { growth_min: 128.0 * KIB as f64, move_min: 4.0 * KIB as f64 });
    Context { steps: STEPS, steps_per_epoch: 10, owners, scale, ..Context::default() }
}

fn sample(segment: u32, step: u64, heap: u64) -> Sample<'static> {
    Sample { segment, step, heap, ..Sample::default() }
}

/// The verdict on a run in which a cache and a leak grow by so much a step.
fn said(cap: u64, cache: u64, leak: u64) -> Verdict {
    let mut watch = Watch::new(context(cap));
    let mut suspects = 0;
    for step in 1..=STEPS {
        let owners = [("cache".to_owned(), cache * step), ("leak".to_owned(), leak * step)].into();
        let heap = 1024 * KIB + (cache + leak) * step;
        watch.add(&Sample { owners: Some(&owners), ..sample(0, step, heap) });
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
fn a_cap_beyond_the_limit_ends_no_growth() {
    let grown = |host_limit| {
        let mut watch = Watch::new(Context { host_limit, ..context(64 * 1024 * KIB) });
        for step in 1..=STEPS {
            let owners = [("cache".to_owned(), 10 * KIB * step)].into();
            watch.add(&Sample { owners: Some(&owners), ..sample(0, step, (1024 + 10 * step) * KIB) });
        }
        watch.verdict().verdict
    };
    assert_eq!(grown(None), Judgement::Filling);
    assert_eq!(grown(Some(32 * 1024 * KIB)), Judgement::Growing);
}

#[test]
fn resident_memory_that_climbs_beside_a_flat_heap_is_not_given_back() {
    let mut watch = Watch::new(Context { host_limit: Some(2 << 30), ..context(64 * 1024 * KIB) });
    for step in 1..=STEPS {
        let resident = Some((1 << 30) + step * 1024 * KIB);
        watch.add(&Sample { resident, ..sample(0, step, 4096 * KIB) });
    }
    let verdict = watch.verdict();
    assert_eq!(verdict.verdict, Judgement::Retained, "{}", verdict.message);
    for words in
        ["resident memory beyond the heap grows by 1.0 MiB a step", "since step 1", "a C library", "824 more steps"]
    {
        assert!(verdict.message.contains(words), "{words}: {}", verdict.message);
    }
}

#[test]
fn a_bounded_series_says_how_much_it_can_grow_at_most() {
    let mut watch = Watch::new(context(64 * 1024 * KIB));
    for step in 1..=STEPS {
        watch.add(&sample(0, step, 4096 * KIB + step * 64));
    }
    let said = watch.verdict().message;
    assert_eq!(
        said,
        "memory is bounded: heap in use grows by at most 64 B a step after step 21, by at most 11.2 KiB up to step 200"
    );
}

#[test]
fn without_a_cap_the_same_growth_is_a_leak() {
    let verdict = said(NO_CAP, 10 * KIB, 0);
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

/// A run of processes, each with its first and last step and the heap's growth a step.
fn resumed(processes: &[(u64, u64, u64)]) -> Verdict {
    let mut watch = Watch::new(context(NO_CAP));
    for (segment, (first, last, growth)) in processes.iter().enumerate() {
        for step in *first..=*last {
            watch.add(&sample(segment as u32, step, 1024 * KIB + growth * (step - first)));
        }
    }
    watch.verdict()
}

#[test]
fn a_process_that_grew_is_not_forgotten_by_a_resume() {
    let verdict = resumed(&[(0, 150, 10 * KIB), (150, 180, 10 * KIB)]);
    assert_eq!(verdict.verdict, Judgement::Growing, "{}", verdict.message);
    let process = verdict.process.unwrap();
    assert_eq!((process.segment, process.first_step, process.last_step), (0, 0, 150));
    assert_eq!((process.newest_segment, process.newest), (1, Some(Judgement::Inconclusive)));
    assert!(verdict.message.starts_with("process 1 of 2 (steps 0 to 150): memory is growing"), "{}", verdict.message);
    assert!(verdict.message.contains("process 2 of 2 (steps 150 to 180): too short"), "{}", verdict.message);
    // The worst is kept once, however many processes follow.
    let many = resumed(&[(0, 150, 10 * KIB), (150, 160, 0), (160, 170, 0), (170, 200, 0)]);
    assert_eq!((many.verdict, many.process.unwrap().segment), (Judgement::Growing, 0));
    assert!(many.message.contains("process 4 of 4"), "{}", many.message);
}

#[test]
fn the_verdict_on_a_resumed_run_says_of_which_process_it_is() {
    let verdict = resumed(&[(0, 20, 0), (20, 200, 0)]);
    assert_eq!(verdict.verdict, Judgement::Bounded);
    assert!(verdict.message.starts_with("process 2 of 2 (steps 20 to 200): memory is bounded"), "{}", verdict.message);
    let short = resumed(&[(0, 150, 0), (150, 160, 0)]);
    assert!(short.message.starts_with("process 2 of 2 (steps 150 to 160): too short"), "{}", short.message);
    assert!(resumed(&[(0, 200, 0)]).message.starts_with("memory is bounded"));
}

/// The verdict after 30 steps, of which each keeps so much in a cache with this cap, and so much in no buffer.
fn said_early(cap: u64, cache: u64, elsewhere: u64) -> Verdict {
    let mut watch = Watch::new(context(cap));
    for step in 1..=30 {
        let owners = [("cache".to_owned(), cache * step)].into();
        watch.add(&Sample { owners: Some(&owners), ..sample(0, step, (1024 * KIB) + (cache + elsewhere) * step) });
    }
    let verdict = watch.verdict();
    assert_eq!((verdict.verdict, &verdict.owner), (Judgement::Inconclusive, &None), "{}", verdict.message);
    verdict
}

#[test]
fn a_run_that_is_too_short_says_where_its_growth_lies_if_one_buffer_explains_it() {
    let filling = said_early(64 * 1024 * KIB, 10 * KIB, 0).message;
    let words = "; so far `cache` holds 100 % of the growth, 300.0 KiB of its cap of 64.0 MiB";
    assert!(filling.starts_with("too short for a verdict: ") && filling.ends_with(words), "{filling}");
    let endless = said_early(NO_CAP, 10 * KIB, 0).message;
    assert!(endless.ends_with("`cache` holds 100 % of the growth, 300.0 KiB and without a cap"), "{endless}");
    for nobody in [said_early(64 * 1024 * KIB, 10 * KIB, 10 * KIB), said_early(64 * 1024 * KIB, 16, 0)] {
        assert!(nobody.message.ends_with(" would make one possible"), "{}", nobody.message);
    }
}

#[test]
fn processes_that_each_fill_up_again_are_not_growth_together() {
    // Each holds more than the one before, and none grows.
    let mut watch = Watch::new(context(NO_CAP));
    for segment in 0..10u32 {
        let from = u64::from(segment) * 20;
        (from..=from + 20).for_each(|step| watch.add(&sample(segment, step, 1024 * KIB * u64::from(segment + 1))));
    }
    let verdict = watch.verdict();
    assert!(verdict.verdict < Judgement::Suspect, "{}", verdict.message);
    assert_eq!(verdict.process.unwrap().newest, None);
}

#[test]
fn a_limit_is_reached_by_what_it_limits() {
    const MIB: u64 = 1024 * KIB;
    let limits =
        Context { steps: STEPS, host_limit: Some(400 * MIB), device_limit: Some(1000 * MIB), ..Context::default() };
    // What a process may use of its container's limit.
    let said = |room: Option<u64>| {
        let mut watch = Watch::new(limits.clone());
        for step in 1..=STEPS {
            let pool = Pool { in_use: step * MIB, reserved: (step + 300) * MIB, allocations: 1 };
            let resident = Some((step + 50) * MIB);
            watch.add(&Sample { resident, pool: Some(pool), room, ..sample(0, step, step * MIB) });
        }
        watch.verdict()
    };
    let steps = |verdict: &Verdict, name: &str| of(verdict, name).steps_to_limit.unwrap().round();
    let verdict = said(None);
    assert_eq!(steps(&verdict, "heap"), 150.0, "400 MiB less the 250 MiB that are resident");
    assert_eq!(steps(&verdict, "device_in_use"), 500.0, "1000 MiB less the 500 MiB that are reserved");
    assert_eq!(steps(&said(Some(285 * MIB)), "heap"), 35.0);
    assert_eq!(of(&said(Some(285 * MIB)), "heap").cap, Some(285 * MIB));
    assert_eq!(steps(&said(Some(2850 * MIB)), "heap"), 150.0, "the tighter of the two");
    assert_eq!(steps(&said(Some(95 * MIB)), "heap"), 0.0, "it is reached");
    assert_eq!(of(&verdict, "heap").slope_per_epoch, None, "there are no epochs");
}

/// A heap that grows by 10 KiB a step, up to step `end`, of a run whose epochs have `epoch` steps. All of it is the
/// leak's if that `owns` it, which has all that there is after `epoch` steps.
fn of_pictures(end: u64, epoch: u64, owns: bool) -> Verdict {
    let mut context = context(64 * 1024 * KIB);
    if owns && let Some(declared) = context.owners.get_mut("leak") {
        declared.full = 10 * KIB * epoch;
    }
    let mut watch = Watch::new(Context { steps_per_epoch: epoch, ..context });
    for step in 1..=STEPS {
        let kept = 10 * KIB * step.min(end);
        let owners = owns.then(|| [("leak".to_owned(), kept)].into());
        watch.add(&Sample { owners: owners.as_ref(), ..sample(0, step, 1024 * KIB + kept) });
    }
    watch.verdict()
}

#[test]
fn what_ends_with_the_data_is_filling_until_then_and_says_when_it_ends() {
    let within = of_pictures(STEPS, 400, true);
    assert_eq!((within.verdict, within.owner.as_deref()), (Judgement::Filling, Some("leak")), "{}", within.message);
    let words = "`leak` holds 100 % of the growth and has all that there is after 200 more steps, when this run is over: \
                 whether it ends there cannot be told yet";
    assert!(within.message.ends_with(words), "{}", within.message);
    let over = of_pictures(70, 70, true);
    assert_eq!((over.verdict, over.owner.as_deref()), (Judgement::GrewThenFlat, Some("leak")), "{}", over.message);
    assert!(over.message.starts_with("memory grew and came to rest at step "), "{}", over.message);
    let rest = of(&over, "heap").findings.at_rest.unwrap();
    assert!((66..=74).contains(&rest), "at step {rest}");
    assert!(over.message.contains("; `leak` holds 100 % of the growth; its last third"), "{}", over.message);
}

#[test]
fn growth_of_the_first_epoch_that_nobody_explains_may_end_with_it() {
    let words = "all of it within the first epoch, of 400 steps";
    let within = of_pictures(STEPS, 400, false);
    assert_eq!((within.verdict, &within.owner), (Judgement::Growing, &None));
    assert!(within.message.contains(words), "{}", within.message);
    let beyond = of_pictures(STEPS, 100, false);
    assert!(!beyond.message.contains("first epoch"), "{}", beyond.message);
}
