//! Judged set: the held-out habits on which the verdict is evaluated.
//!
//! It was written before the verdict was tuned and independently of how it judges. Do not look at it or run it while tuning; use
//! the tuning set.
//!
//! Known limits: base levels end at 3 GiB, so that the threshold of a leak is `growth_min` and not half a percent of the level. A
//! sawtooth has at least six teeth in a run, a staircase at least six steps, and there are at most three one-off buffers, as
//! fewer steps and more buffers would be the same curve. Leaks in bursts pause for at most a quarter of the run. A cache that warms
//! slowly and a leak that slows like a square root are almost the same curve: `slowing` is right for the leak; for the cache it
//! is counted as a false alarm, but no goal limits it.

mod bounded;
mod growing;
mod shapes;

use rand::RngExt;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;

use super::series::{Category, Conditions, Habit, MIB, Scenario, Set, log_uniform};

pub const SET: Set = Set { name: "judged", seed: 20_261_122, habits: &HABITS, draw };

const HABITS: [Habit; 39] = [
    habit("flat", Category::Bounded, bounded::flat),
    habit("saw, fixed period", Category::Bounded, bounded::saw_of_fixed_period),
    habit("saw, drifting period", Category::Bounded, bounded::saw_of_drifting_period),
    habit("trim teeth", Category::Bounded, bounded::trim_teeth),
    habit("AR(1), up to 1 % of the run", Category::Bounded, bounded::quick_autoregression),
    habit("AR(1), 1 to 5 % of the run", Category::Bounded, bounded::slow_autoregression),
    habit("warming cache", Category::Bounded, bounded::warming_cache),
    habit("page cache", Category::Bounded, bounded::page_cache),
    habit("page cache below a saw", Category::Bounded, bounded::page_cache_below_a_saw),
    habit("ratchet", Category::Bounded, bounded::ratchet),
    habit("changing batch sizes", Category::Bounded, bounded::changing_batch_sizes),
    habit("curriculum", Category::Bounded, bounded::curriculum),
    habit("late optimiser state", Category::Bounded, bounded::late_optimiser_state),
    habit("phase switch", Category::Bounded, bounded::phase_switch),
    habit("one-off buffers", Category::Bounded, bounded::one_off_buffers),
    habit("shrinking", Category::Bounded, bounded::shrinking),
    habit("log begins late", Category::Bounded, bounded::log_begins_late),
    habit("restarted", Category::Bounded, bounded::restarted),
    habit("warming cache, nearly full", Category::Filling, bounded::warming_cache_nearly_full),
    habit("warming cache, far from full", Category::Filling, bounded::warming_cache_far_from_full),
    habit("random walk", Category::RandomWalk, bounded::random_walk),
    habit("linear", Category::Growing, growing::linear),
    habit("linear below AR(1)", Category::Growing, growing::linear_below_autoregression),
    habit("per epoch", Category::Growing, growing::per_epoch),
    habit("per validation", Category::Growing, growing::per_validation),
    habit("in bursts", Category::Growing, growing::in_bursts),
    habit("late, from 10 to 40 %", Category::Growing, growing::late),
    habit("late, from 40 to 70 %", Category::Growing, growing::later),
    habit("late, from 70 to 85 %", Category::Growing, growing::latest),
    habit("after a phase switch", Category::Growing, growing::after_a_phase_switch),
    habit("slowing by square root", Category::Growing, growing::slowing_by_square_root),
    habit("slowing to half", Category::Growing, growing::slowing_to_half),
    habit("stairs, 6 to 24", Category::Growing, growing::few_stairs),
    habit("stairs, more than 24", Category::Growing, growing::many_stairs),
    habit("saw with rising floor", Category::Growing, growing::saw_with_rising_floor),
    habit("two leaks", Category::Growing, growing::two_leaks),
    habit("hidden by trimming", Category::Growing, growing::hidden_by_trimming),
    habit("resumed: log begins late", Category::Growing, growing::log_begins_late),
    habit("resumed: restarted", Category::Growing, growing::restarted),
];

const fn habit(
    name: &'static str,
    category: Category,
    generate: fn(&Scenario, &mut ChaCha8Rng) -> super::series::Run,
) -> Habit {
    Habit { name, category, generate }
}

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
