//! Growth that will end at a declared cap is no leak, and hides none.

use super::*;
use crate::context::DeclaredOwner;
use crate::sample::Pool;

const KIB: u64 = 1024;
const STEPS: u64 = 200;

fn context(cap: u64) -> Context {
    let owner = |name: &str, cap| (name.to_owned(), DeclaredOwner { memory: MemoryKind::Host, cap, full: cap });
    let owners = [owner("cache", cap), owner("leak", NO_CAP)].into();
    let thresholds = Some(Thresholds { growth_min: 128.0 * KIB as f64, move_min: 4.0 * KIB as f64 });
    Context { steps: STEPS, steps_per_epoch: 10, owners, thresholds, ..Context::default() }
}

fn sample(segment: u32, step: u64, heap: u64) -> Sample<'static> {
    Sample { segment, step, heap, ..Sample::default() }
}

/// Verdict on a run in which a cache with this cap and a leak grow by these bytes per step.
fn judged(cap: u64, cache: u64, leak: u64) -> Verdict {
    let mut judge = MemoryJudge::new(context(cap));
    let mut suspects = 0;
    for step in 1..=STEPS {
        let owners = [("cache".to_owned(), cache * step), ("leak".to_owned(), leak * step)].into();
        let heap = 1024 * KIB + (cache + leak) * step;
        judge.add(&Sample { owners: Some(&owners), ..sample(0, step, heap) });
        suspects = suspects.max(judge.suspects().len());
    }
    let verdict = judge.verdict();
    assert_eq!(suspects > 0, verdict.verdict >= VerdictWord::Suspect, "during the run: {}", verdict.message);
    verdict
}

fn series<'a>(verdict: &'a Verdict, name: &str) -> &'a SeriesVerdict {
    verdict.series.iter().find(|one| one.name == name).unwrap()
}

#[test]
fn a_cache_that_is_not_yet_full_is_filling() {
    let verdict = judged(64 * 1024 * KIB, 10 * KIB, 0);
    assert_eq!(verdict.verdict, VerdictWord::Filling, "{}", verdict.message);
    assert_eq!(verdict.owner.as_deref(), Some("cache"));
    assert_eq!(series(&verdict, "heap").findings.verdict, VerdictWord::Filling);
    assert_eq!(series(&verdict, "owner:cache").steps_to_limit, Some(64.0 * 1024.0 / 10.0 - STEPS as f64));
    assert!(
        verdict.series.iter().all(|one| !one.name.starts_with(UNCAPPED)),
        "internal series are not part of a verdict"
    );
}

#[test]
fn a_cap_above_the_memory_limit_does_not_end_growth() {
    let verdict = |host_limit| {
        let mut judge = MemoryJudge::new(Context { host_limit, ..context(64 * 1024 * KIB) });
        for step in 1..=STEPS {
            let owners = [("cache".to_owned(), 10 * KIB * step)].into();
            judge.add(&Sample { owners: Some(&owners), ..sample(0, step, (1024 + 10 * step) * KIB) });
        }
        judge.verdict().verdict
    };
    assert_eq!(verdict(None), VerdictWord::Filling);
    assert_eq!(verdict(Some(32 * 1024 * KIB)), VerdictWord::Growing);
}

#[test]
fn rss_that_rises_while_the_heap_is_flat_is_retained() {
    let mut judge = MemoryJudge::new(Context { host_limit: Some(2 << 30), ..context(64 * 1024 * KIB) });
    for step in 1..=STEPS {
        let rss = Some((1 << 30) + step * 1024 * KIB);
        judge.add(&Sample { rss, ..sample(0, step, 4096 * KIB) });
    }
    let verdict = judge.verdict();
    assert_eq!(verdict.verdict, VerdictWord::Retained, "{}", verdict.message);
    let beyond = series(&verdict, RSS_BEYOND);
    assert_eq!((beyond.findings.slope, beyond.findings.since), (Some(1024.0 * KIB as f64), Some(1)));
    assert_eq!(beyond.steps_to_limit, Some(824.0));
    insta::assert_snapshot!(verdict.message);
}

#[test]
fn a_filling_cache_hides_no_leak() {
    let verdict = judged(64 * 1024 * KIB, 100 * KIB, 2 * KIB);
    assert_eq!(verdict.verdict, VerdictWord::Growing, "{}", verdict.message);
    assert_eq!(verdict.owner.as_deref(), Some("leak"), "{}", verdict.message);
    assert!((verdict.owner_share.unwrap() - 1.0).abs() < 1e-9);
    assert_eq!(series(&verdict, "owner:cache").findings.verdict, VerdictWord::Filling);
}

/// Verdict on a run of several processes, each with its first and last step and the heap's growth per step.
fn resumed(processes: &[(u64, u64, u64)]) -> Verdict {
    let mut judge = MemoryJudge::new(context(NO_CAP));
    for (segment, (first, last, growth)) in processes.iter().enumerate() {
        for step in *first..=*last {
            judge.add(&sample(segment as u32, step, 1024 * KIB + growth * (step - first)));
        }
    }
    judge.verdict()
}

#[test]
fn a_process_that_grew_is_reported_after_a_resume() {
    let verdict = resumed(&[(0, 150, 10 * KIB), (150, 180, 10 * KIB)]);
    assert_eq!(verdict.verdict, VerdictWord::Growing, "{}", verdict.message);
    let process = verdict.process.unwrap();
    assert_eq!((process.segment, process.first_step, process.last_step), (0, 0, 150));
    assert_eq!((process.newest_segment, process.newest), (1, Some(VerdictWord::Inconclusive)));
    insta::assert_snapshot!(verdict.message);
    // The worst verdict is kept, however many processes follow.
    let many = resumed(&[(0, 150, 10 * KIB), (150, 160, 0), (160, 170, 0), (170, 200, 0)]);
    let process = many.process.unwrap();
    assert_eq!((many.verdict, process.segment, process.newest_segment), (VerdictWord::Growing, 0, 3));
}

#[test]
fn the_message_on_a_resumed_run_names_the_process() {
    let verdict = resumed(&[(0, 20, 0), (20, 200, 0)]);
    assert_eq!(verdict.verdict, VerdictWord::Bounded);
    let short = resumed(&[(0, 150, 0), (150, 160, 0)]);
    // A tail that is too short for a verdict does not take that of the longest process.
    let (process, each) = (short.process.unwrap(), short.processes);
    assert_eq!(
        (short.verdict, process.segment, process.newest),
        (VerdictWord::Bounded, 0, Some(VerdictWord::Inconclusive))
    );
    let each: Vec<(u32, VerdictWord)> = each.iter().map(|process| (process.segment, process.verdict)).collect();
    assert_eq!(each, [(0, VerdictWord::Bounded), (1, VerdictWord::Inconclusive)]);
    let messages = [verdict.message, short.message, resumed(&[(0, 200, 0)]).message];
    insta::assert_snapshot!(messages.join("\n"));
}

/// Message after 30 steps, each of which adds these bytes to a cache with this cap, and to memory in no buffer.
fn early_message(cap: u64, cache: u64, elsewhere: u64) -> String {
    let mut judge = MemoryJudge::new(context(cap));
    for step in 1..=30 {
        let owners = [("cache".to_owned(), cache * step)].into();
        judge.add(&Sample { owners: Some(&owners), ..sample(0, step, (1024 * KIB) + (cache + elsewhere) * step) });
    }
    let verdict = judge.verdict();
    assert_eq!((verdict.verdict, &verdict.owner), (VerdictWord::Inconclusive, &None), "{}", verdict.message);
    verdict.message
}

#[test]
fn the_message_on_a_short_run_names_the_buffer_that_explains_the_growth() {
    let cap = 64 * 1024 * KIB;
    let messages = [
        early_message(cap, 10 * KIB, 0),
        early_message(NO_CAP, 10 * KIB, 0),
        early_message(cap, 10 * KIB, 10 * KIB),
        early_message(cap, 16, 0),
    ];
    insta::assert_snapshot!(messages.join("\n"));
}

#[test]
fn growth_from_process_to_process_is_no_growth() {
    // Each holds more than the one before, and none grows.
    let mut judge = MemoryJudge::new(context(NO_CAP));
    for segment in 0..10u32 {
        let from = u64::from(segment) * 20;
        (from..=from + 20).for_each(|step| judge.add(&sample(segment, step, 1024 * KIB * u64::from(segment + 1))));
    }
    let verdict = judge.verdict();
    assert!(verdict.verdict < VerdictWord::Suspect, "{}", verdict.message);
    assert_eq!(verdict.process.unwrap().newest, None);
}

#[test]
fn rss_and_reserved_memory_count_towards_limits() {
    const MIB: u64 = 1024 * KIB;
    let limits =
        Context { steps: STEPS, host_limit: Some(400 * MIB), device_limit: Some(1000 * MIB), ..Context::default() };
    let verdict_with = |container_budget: Option<u64>| {
        let mut judge = MemoryJudge::new(limits.clone());
        for step in 1..=STEPS {
            let pool = Pool { in_use: step * MIB, reserved: (step + 300) * MIB, allocations: 1 };
            let rss = Some((step + 50) * MIB);
            judge.add(&Sample { rss, pool: Some(pool), container_budget, ..sample(0, step, step * MIB) });
        }
        judge.verdict()
    };
    let steps = |verdict: &Verdict, name: &str| series(verdict, name).steps_to_limit.unwrap().round();
    let verdict = verdict_with(None);
    assert_eq!(steps(&verdict, "heap"), 150.0, "400 MiB less 250 MiB of RSS");
    assert_eq!(steps(&verdict, "device_in_use"), 500.0, "1000 MiB less 500 MiB reserved");
    assert_eq!(steps(&verdict_with(Some(285 * MIB)), "heap"), 35.0);
    assert_eq!(series(&verdict_with(Some(285 * MIB)), "heap").cap, Some(285 * MIB));
    assert_eq!(steps(&verdict_with(Some(2850 * MIB)), "heap"), 150.0, "the tighter of the two");
    assert_eq!(steps(&verdict_with(Some(95 * MIB)), "heap"), 0.0, "reached");
    assert_eq!(series(&verdict, "heap").slope_per_epoch, None, "there are no epochs");
}

/// Verdict on a heap that grows by 10 KiB per step up to step `end`, in a run whose epochs have `epoch` steps. If `owned`,
/// all of it is held by an owner that is full after `epoch` steps.
fn decoded_images(end: u64, epoch: u64, owned: bool) -> Verdict {
    let mut context = context(64 * 1024 * KIB);
    if owned && let Some(declared) = context.owners.get_mut("leak") {
        declared.full = 10 * KIB * epoch;
    }
    let mut judge = MemoryJudge::new(Context { steps_per_epoch: epoch, ..context });
    for step in 1..=STEPS {
        let held = 10 * KIB * step.min(end);
        let owners = owned.then(|| [("leak".to_owned(), held)].into());
        judge.add(&Sample { owners: owners.as_ref(), ..sample(0, step, 1024 * KIB + held) });
    }
    judge.verdict()
}

#[test]
fn a_buffer_bounded_by_the_data_is_filling_until_it_is_full() {
    let within = decoded_images(STEPS, 400, true);
    assert_eq!((within.verdict, within.owner.as_deref()), (VerdictWord::Filling, Some("leak")), "{}", within.message);
    insta::assert_snapshot!("filling", within.message);
    let over = decoded_images(70, 70, true);
    assert_eq!((over.verdict, over.owner.as_deref()), (VerdictWord::GrewThenFlat, Some("leak")), "{}", over.message);
    let flat_from = series(&over, "heap").findings.flat_since.unwrap();
    assert!((66..=74).contains(&flat_from), "from step {flat_from}");
    let beyond = BeyondPlan { owner: Some("leak".into()), bytes: 700 * KIB, since: Some(flat_from) };
    assert_eq!(over.beyond_plan, Some(beyond));
    insta::assert_snapshot!("grew_then_flat", over.message);
}

/// Verdict on a heap that rises by 10 KiB per step up to step 70, of which a cache with a cap holds this fraction.
fn rose_and_rests(cached: f64) -> Verdict {
    let mut judge = MemoryJudge::new(context(64 * 1024 * KIB));
    for step in 1..=STEPS {
        let held = 10 * KIB * step.min(70);
        let owners = [("cache".to_owned(), (cached * held as f64) as u64)].into();
        judge.add(&Sample { owners: Some(&owners), ..sample(0, step, 1024 * KIB + held) });
    }
    judge.verdict()
}

#[test]
fn memory_beyond_the_plan_that_rose_and_rests_is_told() {
    let control = rose_and_rests(0.95);
    assert_eq!((control.verdict, control.owner.as_deref()), (VerdictWord::GrewThenFlat, Some("cache")));
    assert_eq!(control.beyond_plan, None);
    let elsewhere = rose_and_rests(0.3);
    let beyond = elsewhere.beyond_plan.clone().unwrap();
    assert_eq!((elsewhere.verdict, &elsewhere.owner, &beyond.owner), (VerdictWord::GrewThenFlat, &None, &None));
    assert!(beyond.since.is_some_and(|step| (66..=74).contains(&step)), "{beyond:?}");
    // Seven tenths of the rise after the warm-up.
    assert!((200 * KIB..490 * KIB).contains(&beyond.bytes), "{beyond:?}");
    assert_eq!(decoded_images(70, 70, false).beyond_plan.unwrap().owner, None);
    insta::assert_snapshot!([control.message, elsewhere.message].join("\n"));
}

#[test]
fn the_message_on_unexplained_growth_within_the_first_epoch_has_a_caveat() {
    let verdicts = [decoded_images(STEPS, 400, false), decoded_images(STEPS, 100, false)];
    assert!(verdicts.iter().all(|one| (one.verdict, &one.owner) == (VerdictWord::Growing, &None)));
    insta::assert_snapshot!(verdicts.map(|one| one.message).join("\n"));
}

/// Message on 200 samples of a heap in MiB, in steps of an epoch of 50.
fn heap_message(expected: VerdictWord, mebibytes: impl Fn(f64) -> f64) -> String {
    let mut judge = MemoryJudge::new(Context { steps: STEPS, steps_per_epoch: 50, ..Context::default() });
    for step in 1..=STEPS {
        judge.add(&sample(0, step, (mebibytes(step as f64) * 1024.0 * 1024.0) as u64));
    }
    let verdict = judge.verdict();
    assert_eq!(verdict.verdict, expected, "{}", verdict.message);
    verdict.message
}

#[test]
fn each_judgement_has_a_message() {
    let slowing = |step: f64| if step < 100.0 { 500.0 + step } else { 600.0 + 0.5 * (step - 100.0) };
    let suspect = |step: f64| 100.0 + 300.0 * (step / 160.0).min(1.0);
    let messages = [
        heap_message(VerdictWord::Growing, |step| 500.0 + step),
        heap_message(VerdictWord::Slowing, slowing),
        heap_message(VerdictWord::Suspect, suspect),
        heap_message(VerdictWord::Stepped, |step| if step < 80.0 { 100.0 } else { 200.0 }),
        heap_message(VerdictWord::GrewThenFlat, |step| 100.0 + step.min(100.0)),
        heap_message(VerdictWord::Bounded, |step| 100.0 + 0.05 * step),
        heap_message(VerdictWord::Bounded, |_| 100.0),
        judged(1024 * KIB, 10 * KIB, 0).message,
    ];
    insta::assert_snapshot!(messages.join("\n"));
}

/// Verdict on one series in MiB, by step, of a run with this many planned steps.
fn judged_series(planned: u64, mebibytes: impl Fn(u64) -> f64) -> Verdict {
    let mut judge = MemoryJudge::new(Context { steps: planned, ..Context::default() });
    for step in 0..1200 {
        let value = (mebibytes(step) * 1024.0 * 1024.0) as u64;
        judge.add_value(step, "memory", value, SeriesKind::InUse, BYTES);
    }
    judge.verdict()
}

/// Noise from 0 to 3.4 that depends on the step only.
fn swing(step: u64) -> f64 {
    3.4 * ((step as f64 * 12.9898).sin() * 43_758.547).fract().abs()
}

#[test]
fn gaps_and_the_time_after_the_end_hide_no_leak() {
    let leak = |step: u64| 1000.0 + 0.5 * step as f64 + swing(step);
    let gaps = judged_series(0, |step| if step % 60 == 31 { 0.0 } else { leak(step) });
    let one = series(&gaps, "memory");
    assert_eq!((gaps.verdict, one.left_out, one.ended), (VerdictWord::Growing, 20, None));
    let lacking = judged_series(0, |step| leak(step) * if step % 40 == 31 { 0.93 } else { 1.0 });
    assert_eq!((lacking.verdict, series(&lacking, "memory").left_out), (VerdictWord::Growing, 30), "a part of a sum");
    let ended = judged_series(0, |step| if step < 1000 { leak(step) } else { 3.0 });
    let one = series(&ended, "memory");
    assert_eq!((ended.verdict, one.left_out, one.ended), (VerdictWord::Growing, 0, Some(999)));
    let wrapped = judged_series(0, |step| (3500.0 + leak(step) - 500.0) % 4096.0);
    assert_eq!((wrapped.verdict, series(&wrapped, "memory").wraps), (VerdictWord::Growing, 1));
    insta::assert_snapshot!([gaps.message, ended.message, wrapped.message].join("\n"));
}

#[test]
fn peaks_that_rise_above_a_level_floor_are_a_series_of_their_own() {
    let height = |step: u64| 50.0 + 0.3 * step as f64;
    let verdict = judged_series(0, |step| 1000.0 + height(step) * (step % 24) as f64 / 24.0);
    assert_eq!(verdict.verdict, VerdictWord::Growing, "{}", verdict.message);
    assert!(series(&verdict, "memory").findings.verdict < VerdictWord::Suspect);
    assert_eq!(series(&verdict, "memory:peaks").findings.verdict, VerdictWord::Growing);
    insta::assert_snapshot!(verdict.message);
    let level = judged_series(0, |step| 1000.0 + 200.0 * swing(step));
    assert!(level.series.iter().all(|one| !one.name.ends_with(PEAKS_SUFFIX)), "{}", level.message);
}

#[test]
fn bounded_is_shown_over_the_run_as_planned_and_no_growth_found_is_not() {
    let noise = |step: u64| 1000.0 + 4.0 * swing(step);
    assert_eq!(judged_series(1200, noise).verdict, VerdictWord::Bounded);
    let early = judged_series(1_000_000, noise);
    assert_eq!(early.verdict, VerdictWord::NoGrowthFound, "{}", early.message);
    let wander = |step: u64| 1000.0 + 80.0 * (step as f64 / 70.0).sin() + 40.0 * (step as f64 / 23.0).cos();
    let unclear = judged_series(0, wander);
    assert_eq!(unclear.verdict, VerdictWord::NoGrowthFound, "{}", unclear.message);
    let most = series(&unclear, "memory").findings.growth_max.unwrap() / (1024.0 * 1024.0);
    assert!((16.0..200.0).contains(&most), "{most} MiB");
    assert!(VerdictWord::NoGrowthFound < VerdictWord::Suspect && VerdictWord::NoGrowthFound > VerdictWord::Bounded);
    insta::assert_snapshot!(unclear.message);
}

#[test]
fn the_rate_of_a_late_leak_is_that_since_its_onset() {
    for onset in [0, 120, 240, 360, 480, 600, 720, 840, 960] {
        let verdict = judged_series(1200, |step| 500.0 + step.saturating_sub(onset) as f64 + 2.0 * swing(step));
        assert_eq!(verdict.verdict, VerdictWord::Growing, "{}", verdict.message);
        let findings = &series(&verdict, "memory").findings;
        let [low, slope, high] =
            [findings.slope_low, findings.slope, findings.slope_high].map(|slope| slope.unwrap() / (1 << 20) as f64);
        assert!((0.95..1.05).contains(&slope) && low <= 1.0 && 1.0 <= high, "{onset}: {}", verdict.message);
        assert!(findings.since.unwrap().abs_diff(onset) <= 120, "{onset}: {}", verdict.message);
    }
}
