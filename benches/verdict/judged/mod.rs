//! Which habits is the verdict judged by?
//!
//! This is the judged set. It was written from the text of the issue, before the verdict was tuned and without a look at
//! how it judges; nobody who tunes the verdict may look at it or run it while tuning. The tuning set is another.
//!
//! What one can hold against it, so that it is said: base levels end at 3 GiB, so that `growth_min`, and not half a per
//! cent of the level, is what a leak must pass; a saw has at least six teeth in a run, a staircase at least six stairs
//! and one-off buffers are at most three, since fewer stairs and more buffers are the same curve; and leaks in bursts do
//! not pause for more than a quarter of the run. A cache that warms slowly and a leak that slows by square root are nearly
//! one curve: `slowing` is right of the second, and of the first it is counted, though no goal forbids it.

mod bounded;
mod growing;
mod shapes;

use rand::RngExt;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;

use super::series::{Asked, Draw, Family, Habit, MIB, Set, log_uniform};

pub const SET: Set = Set { name: "judged", seed: 20_261_122, habits: &HABITS, draw };

const HABITS: [Habit; 39] = [
    habit("flat", Family::Bounded, bounded::flat),
    habit("saw, fixed period", Family::Bounded, bounded::saw_of_fixed_period),
    habit("saw, drifting period", Family::Bounded, bounded::saw_of_drifting_period),
    habit("trim teeth", Family::Bounded, bounded::trim_teeth),
    habit("AR(1), up to 1 % of the run", Family::Bounded, bounded::quick_autoregression),
    habit("AR(1), 1 to 5 % of the run", Family::Bounded, bounded::slow_autoregression),
    habit("warming cache", Family::Bounded, bounded::warming_cache),
    habit("page cache", Family::Bounded, bounded::page_cache),
    habit("page cache below a saw", Family::Bounded, bounded::page_cache_below_a_saw),
    habit("ratchet", Family::Bounded, bounded::ratchet),
    habit("changing batch sizes", Family::Bounded, bounded::changing_batch_sizes),
    habit("curriculum", Family::Bounded, bounded::curriculum),
    habit("late optimiser state", Family::Bounded, bounded::late_optimiser_state),
    habit("phase switch", Family::Bounded, bounded::phase_switch),
    habit("one-off buffers", Family::Bounded, bounded::one_off_buffers),
    habit("shrinking", Family::Bounded, bounded::shrinking),
    habit("log begins late", Family::Bounded, bounded::log_begins_late),
    habit("restarted", Family::Bounded, bounded::restarted),
    habit("warming cache, nearly full", Family::Filling, bounded::warming_cache_nearly_full),
    habit("warming cache, far from full", Family::Filling, bounded::warming_cache_far_from_full),
    habit("random walk", Family::Walk, bounded::random_walk),
    habit("linear", Family::Growing, growing::linear),
    habit("linear below AR(1)", Family::Growing, growing::linear_below_autoregression),
    habit("per epoch", Family::Growing, growing::per_epoch),
    habit("per validation", Family::Growing, growing::per_validation),
    habit("in bursts", Family::Growing, growing::in_bursts),
    habit("late, from 10 to 40 %", Family::Growing, growing::late),
    habit("late, from 40 to 70 %", Family::Growing, growing::later),
    habit("late, from 70 to 85 %", Family::Growing, growing::latest),
    habit("after a phase switch", Family::Growing, growing::after_a_phase_switch),
    habit("slowing by square root", Family::Growing, growing::slowing_by_square_root),
    habit("slowing to half", Family::Growing, growing::slowing_to_half),
    habit("stairs, 6 to 24", Family::Growing, growing::few_stairs),
    habit("stairs, more than 24", Family::Growing, growing::many_stairs),
    habit("saw with rising floor", Family::Growing, growing::saw_with_rising_floor),
    habit("two leaks", Family::Growing, growing::two_leaks),
    habit("hidden by trimming", Family::Growing, growing::hidden_by_trimming),
    habit("resumed: log begins late", Family::Growing, growing::log_begins_late),
    habit("resumed: restarted", Family::Growing, growing::restarted),
];

const fn habit(name: &'static str, family: Family, make: fn(&Draw, &mut ChaCha8Rng) -> super::series::Run) -> Habit {
    Habit { name, family, make }
}

/// Lengths of 200 to 100,000 steps; three of five with epochs, one of eight stopped before its planned end.
fn draw(asked: Asked, rng: &mut ChaCha8Rng) -> Draw {
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
    let draw = Draw { asked, first: 1, steps, every, planned, steps_per_epoch, cadences, settled: 0, base };
    settle(draw)
}

/// The first time of each cadence that comes early, as `xrun` itself has it.
fn settle(mut draw: Draw) -> Draw {
    let early = draw.cadences.iter().copied().filter(|cadence| *cadence <= draw.planned / 4);
    draw.settled = early.max().unwrap_or_default();
    draw
}
