//! Judged set: the held-out habits on which the verdict is evaluated.
//!
//! It was written before the verdict was tuned and independently of how it judges. Do not look at it or run it while tuning; use
//! the tuned set.
//!
//! Known limits: base levels end at 3 GiB, so that the threshold of a leak is `growth_min` and not half a percent of the level. A
//! sawtooth has at least six teeth in a run, a staircase at least six steps, and there are at most three one-off buffers, as
//! fewer steps and more buffers would be the same curve. Leaks in bursts pause for at most a quarter of the run. A cache that warms
//! slowly and a leak that slows like a square root are almost the same curve: `slowing` is right for the leak; for the cache it
//! is counted as a false alarm, but no goal limits it.

mod bounded;
mod growing;
mod programs;
mod shapes;
mod traces;

use rand::RngExt;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;

use super::series::{Conditions, FILLING, Habit, LATE_REST, LEAK, MIB, REST, Scenario, Set, WALK, habit, log_uniform};

pub const SET: Set = Set { name: "judged", seed: 20_261_122, habits: &HABITS, draw };

const HABITS: [Habit; 77] = [
    habit("flat", REST, bounded::flat),
    habit("saw, fixed period", REST, bounded::saw_of_fixed_period),
    habit("saw, drifting period", REST, bounded::saw_of_drifting_period),
    habit("trim teeth", REST, bounded::trim_teeth),
    habit("AR(1), up to 1 % of the run", REST, bounded::quick_autoregression),
    habit("AR(1), 1 to 5 % of the run", REST, bounded::slow_autoregression),
    habit("warming cache", REST, bounded::warming_cache),
    habit("page cache", REST, bounded::page_cache),
    habit("page cache below a saw", REST, bounded::page_cache_below_a_saw),
    habit("ratchet", REST, bounded::ratchet),
    habit("changing batch sizes", REST, bounded::changing_batch_sizes),
    habit("curriculum", REST, bounded::curriculum),
    habit("late optimiser state", REST, bounded::late_optimiser_state),
    habit("phase switch", REST, bounded::phase_switch),
    habit("one-off buffers", REST, bounded::one_off_buffers),
    habit("shrinking", REST, bounded::shrinking),
    habit("log begins late", REST, bounded::log_begins_late),
    habit("restarted", REST, bounded::restarted),
    habit("warming cache, nearly full", FILLING, bounded::warming_cache_nearly_full),
    habit("warming cache, far from full", FILLING, bounded::warming_cache_far_from_full),
    habit("random walk", WALK, bounded::random_walk),
    habit("linear", LEAK, growing::linear),
    habit("linear below AR(1)", LEAK, growing::linear_below_autoregression),
    habit("per epoch", LEAK, growing::per_epoch),
    habit("per validation", LEAK, growing::per_validation),
    habit("in bursts", LEAK, growing::in_bursts),
    habit("late, from 10 to 40 %", LEAK, growing::late),
    habit("late, from 40 to 70 %", LEAK, growing::later),
    habit("late, from 70 to 85 %", LEAK, growing::latest),
    habit("after a phase switch", LEAK, growing::after_a_phase_switch),
    habit("slowing by square root", LEAK, growing::slowing_by_square_root),
    habit("slowing to half", LEAK, growing::slowing_to_half),
    habit("stairs, 6 to 24", LEAK, growing::few_stairs),
    habit("stairs, more than 24", LEAK, growing::many_stairs),
    habit("saw with rising floor", LEAK, growing::saw_with_rising_floor),
    habit("two leaks", LEAK, growing::two_leaks),
    habit("hidden by trimming", LEAK, growing::hidden_by_trimming),
    habit("resumed: log begins late", LEAK, growing::log_begins_late),
    habit("resumed: restarted", LEAK, growing::restarted),
    habit("lost readings in a leak", LEAK, traces::lost_readings_in_a_leak),
    habit("lost readings below a saw", REST, traces::lost_readings_below_a_saw),
    habit("readings that miss a process", LEAK, traces::readings_that_miss_a_process),
    habit("killed while it leaked", LEAK, traces::killed_while_it_leaked),
    habit("ended at rest", REST, traces::ended_at_rest),
    habit("away in the middle", REST, traces::away_in_the_middle),
    habit("page cache full late", LATE_REST, traces::page_cache_full_late),
    habit("two caches", LATE_REST, traces::two_caches),
    habit("growing vector", LEAK, traces::growing_vector),
    habit("stages that end", REST, traces::stages_that_end),
    habit("leak with pauses", LEAK, traces::leak_with_pauses),
    habit("late leak in several habits", LEAK, traces::late_leak_in_several_habits),
    habit("several habits at rest", REST, traces::several_habits_at_rest),
    habit("leak after a large phase", LEAK, traces::leak_after_a_large_phase),
    habit("releases", REST, traces::releases),
    habit("few large teeth", REST, traces::few_large_teeth),
    habit("growing temporaries", LEAK, traces::growing_temporaries),
    habit("varying temporaries", REST, traces::varying_temporaries),
    habit("leak in a wrapped counter", LEAK, traces::leak_in_a_wrapped_counter),
    habit("two wanders", REST, traces::two_wanders),
    habit("slow swing", REST, traces::slow_swing),
    habit("highest reserved", REST, traces::highest_reserved),
    // The third part, of 29 November 2026.
    habit("start, then rest", REST, programs::start_then_rest),
    habit("start, then leak", LEAK, programs::start_then_leak),
    habit("start, then late leak", LEAK, programs::start_then_late_leak),
    habit("checkpoint loaded, then leak", LEAK, programs::checkpoint_loaded_then_leak),
    habit("dips in a rest", REST, programs::dips_in_a_rest),
    habit("dips in a leak", LEAK, programs::dips_in_a_leak),
    habit("sum that lacks a part", REST, programs::sum_that_lacks_a_part),
    habit("leaking sum that lacks a part", LEAK, programs::leaking_sum_that_lacks_a_part),
    habit("helpers that come and go", REST, programs::helpers_that_come_and_go),
    habit("stages of one ratio that rest", LATE_REST, programs::stages_of_one_ratio_that_rest),
    habit("stages of one ratio that go on", LEAK, programs::stages_of_one_ratio_that_go_on),
    habit("left by each save", LEAK, programs::left_by_each_save),
    habit("full after an epoch", REST, programs::full_after_an_epoch),
    habit("paged out and back", REST, programs::paged_out_and_back),
    habit("coarse readings", REST, programs::coarse_readings),
    habit("leak in coarse readings", LEAK, programs::leak_in_coarse_readings),
];

/// Draws a run of 200 to 100,000 steps: 60 % with epochs, 12.5 % stopped before the planned end.
fn draw(conditions: Conditions, rng: &mut ChaCha8Rng) -> Scenario {
    let steps = log_uniform(rng, 200.0, 100_000.0) as u64;
    let every = match steps {
        2001.. if rng.random_bool(0.2) => *[2, 5, 10].choose(rng).unwrap_or(&2),
        _ => 1,
    };
    let stretch = if rng.random_bool(0.125) { rng.random_range(1.2..3.0) } else { 1.0 };
    let planned = 1 + (steps as f64 * stretch) as u64;
    let epochs = log_uniform(rng, 2.0, 300.0);
    let steps_per_epoch = if rng.random_bool(0.6) { (planned as f64 / epochs).max(10.0) as u64 } else { 0 };
    let cleanup = *[0, 10, 25, 50, 100, 500].choose(rng).unwrap_or(&0);
    let validation = if steps_per_epoch > 0 && rng.random_bool(0.7) {
        steps_per_epoch * rng.random_range(1..=2)
    } else {
        (planned as f64 / log_uniform(rng, 3.0, 100.0)) as u64
    };
    let checkpoint = if rng.random_bool(0.7) { planned / rng.random_range(2..=20) } else { 0 };
    let cadences = vec![cleanup, validation, checkpoint];
    let base = log_uniform(rng, 64.0 * MIB, 3072.0 * MIB);
    let scenario =
        Scenario { conditions, first: 1, steps, every, planned, steps_per_epoch, cadences, settled: 0, base };
    settle(scenario)
}

/// Sets `settled` to the last first occurrence of those cadences that occur in the first quarter, as `xrun` does.
fn settle(mut scenario: Scenario) -> Scenario {
    let early = scenario.cadences.iter().copied().filter(|cadence| *cadence <= scenario.planned / 4);
    scenario.settled = early.max().unwrap_or_default();
    scenario
}
