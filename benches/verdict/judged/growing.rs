//! How does memory leak? Each leak grows by what it is asked to, over the run.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::super::series::{Ar1, Claim, Draw, MIB, Noise, Run, Sample, log_uniform};
use super::shapes::{Around, Changes, Teeth, period};

/// A leak from the first sample on, whose part so far is `part`.
fn leak(draw: &Draw, rng: &mut ChaCha8Rng, claim: Claim, mut part: impl FnMut(u64) -> f64) -> Run {
    let mut around = Around::of(draw, rng);
    draw.run(claim, |step| draw.base + draw.asked.growth * part(step), |step| around.at(step, rng))
}

fn from_the_first(draw: &Draw) -> Claim {
    Claim::Leaks { since: draw.first, seen: draw.first }
}

/// The part of a linear leak that began at a share of the run.
fn linear_from(draw: &Draw, begins: f64) -> impl Fn(u64) -> f64 + '_ {
    move |step| ((draw.share(step) - begins) / (1.0 - begins)).max(0.0)
}

pub fn linear(draw: &Draw, rng: &mut ChaCha8Rng) -> Run {
    leak(draw, rng, from_the_first(draw), |step| draw.share(step))
}

pub fn linear_below_autoregression(draw: &Draw, rng: &mut ChaCha8Rng) -> Run {
    let samples = (draw.steps / draw.every) as f64;
    let noise = Noise::Correlated(Ar1::new(draw.asked.noise, log_uniform(rng, 2.0, (samples / 100.0).max(2.5))));
    let mut around = Around::with(noise, draw, rng);
    let level = |step| draw.base + draw.asked.growth * draw.share(step);
    draw.run(from_the_first(draw), level, |step| around.at(step, rng))
}

/// Something is kept each so many steps.
fn each(draw: &Draw, every: u64, rng: &mut ChaCha8Rng) -> Run {
    let last = draw.first + draw.steps;
    let times = (1..).map(|time| time * every).skip_while(|step| *step < draw.first).take_while(|step| *step <= last);
    let kept = Changes::summing_to(1.0, times.map(|step| (step, 1.0)).collect());
    leak(draw, rng, Claim::Leaks { since: draw.first, seen: kept.first() }, |step| kept.at(step))
}

/// At least six epochs.
pub fn per_epoch(draw: &Draw, rng: &mut ChaCha8Rng) -> Run {
    let mut draw = draw.clone();
    if draw.steps_per_epoch == 0 || draw.steps / draw.steps_per_epoch < 6 {
        let epochs = log_uniform(rng, 6.0, (draw.steps as f64 / 10.0).min(250.0));
        draw.steps_per_epoch = ((draw.steps as f64 / epochs) as u64).max(1);
    }
    each(&draw, draw.steps_per_epoch, rng)
}

/// At least six validations.
pub fn per_validation(draw: &Draw, rng: &mut ChaCha8Rng) -> Run {
    let mut draw = draw.clone();
    if draw.cadences[1] == 0 || draw.steps / draw.cadences[1] < 6 {
        let validations = log_uniform(rng, 6.0, (draw.steps as f64 / 10.0).min(100.0));
        draw.cadences[1] = ((draw.steps as f64 / validations) as u64).max(1);
        draw = super::settle(draw);
    }
    each(&draw, draw.cadences[1], rng)
}

/// Eight to forty bursts of different size, at irregular times.
pub fn in_bursts(draw: &Draw, rng: &mut ChaCha8Rng) -> Run {
    let bursts = rng.random_range(8..=40);
    let burst = |number: u32| {
        let at = (f64::from(number) + rng.random_range(0.0..1.0)) / f64::from(bursts);
        (draw.at(at).max(draw.first + 1), rng.random_range(0.3..1.7))
    };
    let bursts = Changes::summing_to(1.0, (0..bursts).map(burst).collect());
    leak(draw, rng, Claim::Leaks { since: draw.first, seen: bursts.first() }, |step| bursts.at(step))
}

pub fn late(draw: &Draw, rng: &mut ChaCha8Rng) -> Run {
    late_from(draw, 0.1, 0.4, rng)
}

pub fn later(draw: &Draw, rng: &mut ChaCha8Rng) -> Run {
    late_from(draw, 0.4, 0.7, rng)
}

pub fn latest(draw: &Draw, rng: &mut ChaCha8Rng) -> Run {
    late_from(draw, 0.7, 0.85, rng)
}

fn late_from(draw: &Draw, earliest: f64, latest: f64, rng: &mut ChaCha8Rng) -> Run {
    let begins = rng.random_range(earliest..latest);
    let since = draw.at(begins);
    leak(draw, rng, Claim::Leaks { since, seen: since }, linear_from(draw, begins))
}

/// The second phase leaks; it needs more or less memory than the first.
pub fn after_a_phase_switch(draw: &Draw, rng: &mut ChaCha8Rng) -> Run {
    let begins = rng.random_range(0.1..0.8);
    let since = draw.at(begins);
    let size = log_uniform(rng, 16.0, 256.0) * MIB;
    let size = if rng.random_bool(0.5) { size } else { -size.min(0.8 * draw.base) };
    let part = linear_from(draw, begins);
    let mut around = Around::of(draw, rng);
    let phase = |step| if step < since { 0.0 } else { size };
    draw.run(
        Claim::Leaks { since, seen: since },
        |step| draw.base + phase(step) + draw.asked.growth * part(step),
        |step| around.at(step, rng),
    )
}

pub fn slowing_by_square_root(draw: &Draw, rng: &mut ChaCha8Rng) -> Run {
    let claim = Claim::Slows { since: draw.first, seen: draw.first };
    leak(draw, rng, claim, |step| draw.share(step).sqrt())
}

/// To half its speed, at 30 to 70 % of the run.
pub fn slowing_to_half(draw: &Draw, rng: &mut ChaCha8Rng) -> Run {
    let turn = rng.random_range(0.3..0.7);
    let grown = |share: f64| share.min(turn) + 0.5 * (share - turn).max(0.0);
    let claim = Claim::Slows { since: draw.first, seen: draw.first };
    leak(draw, rng, claim, |step| grown(draw.share(step)) / grown(1.0))
}

pub fn few_stairs(draw: &Draw, rng: &mut ChaCha8Rng) -> Run {
    stairs(draw, 6.0, 24.0, rng)
}

pub fn many_stairs(draw: &Draw, rng: &mut ChaCha8Rng) -> Run {
    stairs(draw, 25.0, (draw.steps as f64 / 4.0).min(1000.0), rng)
}

/// Stairs of one height and one period, which is that of nothing else.
fn stairs(draw: &Draw, fewest: f64, most: f64, rng: &mut ChaCha8Rng) -> Run {
    let stairs = log_uniform(rng, fewest, most).round();
    let phase = rng.random_range(0.05..1.0);
    let stairs = (0..stairs as u32).map(|stair| (draw.at((f64::from(stair) + phase) / stairs), 1.0));
    let stairs = Changes::summing_to(1.0, stairs.collect());
    leak(draw, rng, Claim::Leaks { since: draw.first, seen: stairs.first() }, |step| stairs.at(step))
}

pub fn saw_with_rising_floor(draw: &Draw, rng: &mut ChaCha8Rng) -> Run {
    let (period, jitter) = (period(draw, 8.0, rng), rng.random_range(0.0..0.3));
    let teeth = Teeth::new(draw, period, jitter, log_uniform(rng, 0.6, 1.6), rng);
    let height = log_uniform(rng, 8.0, 256.0) * MIB;
    let mut around = Around::of(draw, rng);
    draw.run(
        from_the_first(draw),
        |step| draw.base + draw.asked.growth * draw.share(step),
        |step| around.at(step, rng) + height * teeth.at(step),
    )
}

/// The second begins when the first is at 40 to 80 % of the run; neither has less than three tenths of the growth.
pub fn two_leaks(draw: &Draw, rng: &mut ChaCha8Rng) -> Run {
    let (first, second) = (rng.random_range(0.0..0.3), rng.random_range(0.4..0.8));
    let share = rng.random_range(0.3..0.7);
    let (one, other) = (linear_from(draw, first), linear_from(draw, second));
    let since = draw.at(first);
    leak(draw, rng, Claim::Leaks { since, seen: since }, |step| share * one(step) + (1.0 - share) * other(step))
}

/// Teeth that all end at one height: only what a trim leaves behind rises.
pub fn hidden_by_trimming(draw: &Draw, rng: &mut ChaCha8Rng) -> Run {
    let teeth = Teeth::new(draw, period(draw, 10.0, rng), 0.6, 1.0, rng);
    let height = draw.asked.growth + log_uniform(rng, 16.0, 128.0) * MIB;
    let leaked = |step| draw.asked.growth * draw.share(step);
    let mut around = Around::of(draw, rng);
    draw.run(
        from_the_first(draw),
        |step| draw.base + leaked(step),
        |step| around.at(step, rng) + (height - leaked(step)) * teeth.passed(step),
    )
}

/// The same run, numbered from a high step on; its plan is as much longer.
pub fn begun_late(draw: &Draw, rng: &mut ChaCha8Rng) -> Draw {
    let before = log_uniform(rng, 1e3, 1e7) as u64;
    Draw { first: draw.first + before, planned: draw.planned + before, ..draw.clone() }
}

pub fn log_begins_late(draw: &Draw, rng: &mut ChaCha8Rng) -> Run {
    linear(&begun_late(draw, rng), rng)
}

/// At least 800 steps, and where a second process begins, and perhaps a third and a fourth.
pub fn with_restarts(draw: &Draw, rng: &mut ChaCha8Rng) -> (Draw, Vec<u64>) {
    let steps = draw.steps.max(800);
    let draw = Draw { steps, planned: draw.planned + steps - draw.steps, ..draw.clone() };
    let restarts: u32 = rng.random_range(1..=3);
    let place = |number: u32| (f64::from(number) + rng.random_range(-0.2..0.2)) / f64::from(restarts + 1);
    let restarts = (1..=restarts).map(place).map(|place| draw.at(place)).collect();
    (draw, restarts)
}

/// Each process leaks as fast as the last one, which leaks what is asked for.
pub fn restarted(draw: &Draw, rng: &mut ChaCha8Rng) -> Run {
    let (draw, restarts) = with_restarts(draw, rng);
    let newest = restarts.last().copied().unwrap_or(draw.first);
    let speed = draw.asked.growth / (draw.first + draw.steps - newest) as f64;
    let mut around = Around::of(&draw, rng);
    let sample = |step| {
        let begins = restarts.iter().rev().copied().find(|begins| *begins <= step).unwrap_or(draw.first);
        let level = draw.base + speed * (step - begins) as f64;
        Sample { step, level, bytes: (level + around.at(step, rng)).max(0.0) }
    };
    let samples = draw.sampled().map(sample).collect();
    let first = draw.sampled().find(|step| *step >= newest).unwrap_or(newest);
    draw.run_of(samples, restarts.clone(), Claim::Leaks { since: newest, seen: first })
}
