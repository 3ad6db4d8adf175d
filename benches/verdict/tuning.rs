//! The habits that the verdict's gates were chosen on. Judged is the other set.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::series::{Ar1, Asked, Claim, Draw, Family, Habit, MIB, Noise, Run, Sample, Set, gaussian, log_uniform};

pub const SET: Set = Set { name: "tuning", seed: 0x7475_6e69_6e67, habits: HABITS, draw };

const HABITS: &[Habit] = &[
    Habit { name: "flat", family: Family::Bounded, make: flat },
    Habit { name: "saw of a fixed period", family: Family::Bounded, make: saw },
    Habit { name: "saw of a drifting period", family: Family::Bounded, make: drifting_saw },
    Habit { name: "teeth of trimming", family: Family::Bounded, make: trim_teeth },
    Habit { name: "autoregressive", family: Family::Bounded, make: autoregressive },
    Habit { name: "warming cache", family: Family::Bounded, make: warming },
    Habit { name: "page cache", family: Family::Bounded, make: page_cache },
    Habit { name: "ratchet", family: Family::Bounded, make: ratchet },
    Habit { name: "batches of several sizes", family: Family::Bounded, make: batches },
    Habit { name: "curriculum", family: Family::Bounded, make: curriculum },
    Habit { name: "late optimiser state", family: Family::Bounded, make: late_state },
    Habit { name: "phase switch", family: Family::Bounded, make: phase_switch },
    Habit { name: "one-off buffers", family: Family::Bounded, make: one_off },
    Habit { name: "falling", family: Family::Bounded, make: falling },
    Habit { name: "random walk", family: Family::Walk, make: walk },
    Habit { name: "linear", family: Family::Growing, make: linear },
    Habit { name: "per epoch", family: Family::Growing, make: per_epoch },
    Habit { name: "per validation", family: Family::Growing, make: per_validation },
    Habit { name: "in bursts", family: Family::Growing, make: bursts },
    Habit { name: "late", family: Family::Growing, make: late },
    Habit { name: "slowing as a square root", family: Family::Growing, make: square_root },
    Habit { name: "stairs", family: Family::Growing, make: stairs },
    Habit { name: "saw with a rising floor", family: Family::Growing, make: rising_saw },
    Habit { name: "two leaks", family: Family::Growing, make: two_leaks },
    Habit { name: "hidden by trimming", family: Family::Growing, make: hidden },
    Habit { name: "after a warm-up", family: Family::Growing, make: after_warm_up },
    Habit { name: "resumed", family: Family::Growing, make: resumed },
];

fn draw(asked: Asked, rng: &mut ChaCha8Rng) -> Draw {
    let steps = log_uniform(rng, 200.0, 100_000.0) as u64;
    let every = if steps > 5000 { [1, 10, 50][rng.random_range(0..3)] } else { [1, 1, 5][rng.random_range(0..3)] };
    let steps_per_epoch = if rng.random::<bool>() { 0 } else { (steps / rng.random_range(3..60)).max(1) };
    let cleanup = [0, 10, 50][rng.random_range(0..3)];
    Draw {
        asked,
        first: 0,
        steps,
        every: if steps / every < 100 { 1 } else { every },
        planned: steps,
        steps_per_epoch,
        cadences: vec![cleanup, steps_per_epoch],
        settled: if steps_per_epoch > 0 && steps_per_epoch <= steps / 4 { steps_per_epoch } else { 0 },
        base: log_uniform(rng, 200.0, 40_000.0) * MIB,
    }
}

/// One of four kinds of noise.
fn noise(draw: &Draw, rng: &mut ChaCha8Rng) -> Noise {
    let deviation = draw.asked.noise;
    match rng.random_range(0..4) {
        0 => Noise::Upward(deviation),
        1 => Noise::Uniform(deviation),
        2 => Noise::Correlated(Ar1::new(deviation, rng.random_range(2.0..10.0))),
        _ => Noise::Gaussian(deviation),
    }
}

/// What every process does at first.
fn start(draw: &Draw, rng: &mut ChaCha8Rng) -> impl Fn(u64) -> f64 + use<> {
    let (height, steps) = (rng.random_range(0.0..500.0) * MIB, rng.random_range(2.0..10.0));
    let (first, base) = (draw.first, draw.base);
    move |step| base - height * (-((step - first) as f64) / steps).exp()
}

fn with_noise(
    draw: &Draw,
    rng: &mut ChaCha8Rng,
    claim: Claim,
    mut level: impl FnMut(u64, &mut ChaCha8Rng) -> f64,
    mut above: impl FnMut(u64, &mut ChaCha8Rng) -> f64,
) -> Run {
    let (mut noise, start) = (noise(draw, rng), start(draw, rng));
    let samples = draw.sampled().map(|step| {
        // The start belongs to no level: it is over at once.
        let level = draw.base + level(step, rng);
        let bytes = level + start(step) - draw.base + above(step, rng) + noise.next(rng);
        Sample { step, bytes: bytes.max(0.0), level }
    });
    draw.run_of(samples.collect(), Vec::new(), claim)
}

fn bounded(draw: &Draw, rng: &mut ChaCha8Rng, level: impl FnMut(u64, &mut ChaCha8Rng) -> f64) -> Run {
    with_noise(draw, rng, Claim::Rests, level, |_, _| 0.0)
}

fn flat(draw: &Draw, rng: &mut ChaCha8Rng) -> Run {
    bounded(draw, rng, |_, _| 0.0)
}

fn saw(draw: &Draw, rng: &mut ChaCha8Rng) -> Run {
    let period = log_uniform(rng, 5.0, draw.steps as f64 / 6.0).max(2.0) as u64;
    let (height, phase) = (log_uniform(rng, 8.0, 400.0) * MIB, rng.random_range(0..period));
    with_noise(draw, rng, Claim::Rests, |_, _| 0.0, |step, _| height * ((step + phase) % period) as f64 / period as f64)
}

fn drifting_saw(draw: &Draw, rng: &mut ChaCha8Rng) -> Run {
    let mean = log_uniform(rng, 8.0, draw.steps as f64 / 8.0);
    let slope = log_uniform(rng, 8.0, 400.0) * MIB / mean;
    let (mut begun, mut ends) = (draw.first, draw.first + (mean * rng.random_range(0.4..1.6)) as u64);
    with_noise(
        draw,
        rng,
        Claim::Rests,
        |_, _| 0.0,
        move |step, rng| {
            if step >= ends {
                begun = step;
                ends = step + (mean * rng.random_range(0.4..1.6)) as u64;
            }
            slope * (step - begun) as f64
        },
    )
}

fn trim_teeth(draw: &Draw, rng: &mut ChaCha8Rng) -> Run {
    let period = (draw.steps as f64 / rng.random_range(7.0..50.0)).max(2.0);
    let (height, keeps) = (log_uniform(rng, 16.0, 300.0) * MIB, rng.random_range(0.5..1.0));
    let phase = rng.random_range(0.0..period);
    with_noise(
        draw,
        rng,
        Claim::Rests,
        |_, _| 0.0,
        |step, _| {
            let at = (step as f64 + phase) / period;
            height * (at.fract() / keeps).min(1.0)
        },
    )
}

fn autoregressive(draw: &Draw, rng: &mut ChaCha8Rng) -> Run {
    let count = draw.sampled().count() as f64;
    let mut wander = Ar1::new(rng.random_range(2.0..30.0) * MIB, log_uniform(rng, 2.0, count / 10.0));
    with_noise(draw, rng, Claim::Rests, |_, _| 0.0, move |_, rng| wander.next(rng))
}

fn warming(draw: &Draw, rng: &mut ChaCha8Rng) -> Run {
    let (height, time) = (log_uniform(rng, 8.0, 1000.0) * MIB, rng.random_range(0.05..0.5));
    bounded(draw, rng, |step, _| height * (1.0 - (-draw.share(step) / time).exp()))
}

fn page_cache(draw: &Draw, rng: &mut ChaCha8Rng) -> Run {
    let (height, full) = (log_uniform(rng, 8.0, 1000.0) * MIB, rng.random_range(0.1..0.9));
    bounded(draw, rng, |step, _| height * (draw.share(step) / full).min(1.0))
}

fn ratchet(draw: &Draw, rng: &mut ChaCha8Rng) -> Run {
    let (share, heavy) = (rng.random_range(0.1..0.7), rng.random_range(0.2..0.6));
    let mut high: f64 = 0.0;
    let most = rng.random_range(200.0..800.0);
    with_noise(
        draw,
        rng,
        Claim::RestsAfterSteps,
        move |_, rng| {
            let peak = 60.0 * (1.0 - rng.random::<f64>()).powf(-heavy);
            high = high.max(peak.min(most));
            share * high * MIB
        },
        |_, _| 0.0,
    )
}

fn batches(draw: &Draw, rng: &mut ChaCha8Rng) -> Run {
    let sizes: Vec<f64> = (0..rng.random_range(2..6)).map(|_| rng.random_range(0.0..200.0) * MIB).collect();
    with_noise(draw, rng, Claim::Rests, |_, _| 0.0, move |_, rng| sizes[rng.random_range(0..sizes.len())])
}

fn curriculum(draw: &Draw, rng: &mut ChaCha8Rng) -> Run {
    let (stages, ends) = (rng.random_range(2..8) as f64, rng.random_range(0.3..0.66));
    let height = log_uniform(rng, 8.0, 200.0) * MIB;
    bounded(draw, rng, |step, _| height * (draw.share(step) / ends * stages).floor().min(stages))
}

fn late_state(draw: &Draw, rng: &mut ChaCha8Rng) -> Run {
    let (height, at) = (log_uniform(rng, 16.0, 1000.0) * MIB, rng.random_range(0.1..0.95));
    with_noise(
        draw,
        rng,
        Claim::RestsAfterSteps,
        |step, _| if draw.share(step) >= at { height } else { 0.0 },
        |_, _| 0.0,
    )
}

fn phase_switch(draw: &Draw, rng: &mut ChaCha8Rng) -> Run {
    let (height, at) = (rng.random_range(-300.0..300.0) * MIB, rng.random_range(0.2..0.8));
    let (saw, period) = (rng.random_range(0.0..60.0) * MIB, rng.random_range(5..50));
    with_noise(
        draw,
        rng,
        Claim::RestsAfterSteps,
        |step, _| if draw.share(step) >= at { height } else { 0.0 },
        |step, _| {
            if draw.share(step) >= at { saw * (step % period) as f64 / period as f64 } else { 0.0 }
        },
    )
}

fn one_off(draw: &Draw, rng: &mut ChaCha8Rng) -> Run {
    let buffers: Vec<(f64, f64)> = (0..rng.random_range(1..4))
        .map(|_| (rng.random_range(0.05..0.9), log_uniform(rng, 8.0, 300.0) * MIB))
        .collect();
    with_noise(
        draw,
        rng,
        Claim::RestsAfterSteps,
        |step, _| buffers.iter().filter(|(at, _)| draw.share(step) >= *at).map(|(_, height)| height).sum(),
        |_, _| 0.0,
    )
}

fn falling(draw: &Draw, rng: &mut ChaCha8Rng) -> Run {
    let height = rng.random_range(10.0..150.0) * MIB;
    bounded(draw, rng, |step, _| -height * draw.share(step))
}

fn walk(draw: &Draw, rng: &mut ChaCha8Rng) -> Run {
    let step = rng.random_range(20.0..200.0) * MIB / (draw.sampled().count() as f64).sqrt();
    let mut at = 0.0;
    with_noise(
        draw,
        rng,
        Claim::Walks,
        move |_, rng| {
            at += gaussian(rng, step);
            at
        },
        |_, _| 0.0,
    )
}

fn linear(draw: &Draw, rng: &mut ChaCha8Rng) -> Run {
    let claim = Claim::Leaks { since: draw.first, seen: draw.first };
    with_noise(draw, rng, claim, |step, _| draw.asked.growth * draw.share(step), |_, _| 0.0)
}

fn grown_by_cadence(draw: &Draw, rng: &mut ChaCha8Rng, period: u64, phase: u64) -> Run {
    let stairs = draw.steps / period;
    let each = draw.asked.growth / stairs.max(1) as f64;
    let claim = Claim::Leaks { since: draw.first, seen: draw.first + period };
    with_noise(draw, rng, claim, |step, _| each * ((step - draw.first + phase) / period) as f64, |_, _| 0.0)
}

fn per_epoch(draw: &Draw, rng: &mut ChaCha8Rng) -> Run {
    let period = (draw.steps / rng.random_range(6..100)).max(1);
    let draw = Draw { steps_per_epoch: period, cadences: vec![period], settled: period, ..draw.clone() };
    grown_by_cadence(&draw, rng, period, 0)
}

fn per_validation(draw: &Draw, rng: &mut ChaCha8Rng) -> Run {
    let period = (draw.steps / rng.random_range(6..40)).max(1);
    let draw = Draw { cadences: vec![10, period], settled: period, ..draw.clone() };
    grown_by_cadence(&draw, rng, period, 0)
}

fn stairs(draw: &Draw, rng: &mut ChaCha8Rng) -> Run {
    let period = (draw.steps as f64 / log_uniform(rng, 6.0, 60.0)).max(1.0) as u64;
    let phase = rng.random_range(0..period);
    grown_by_cadence(draw, rng, period, phase)
}

fn bursts(draw: &Draw, rng: &mut ChaCha8Rng) -> Run {
    let count = rng.random_range(10..60);
    let mut at: Vec<f64> = (0..count).map(|_| rng.random::<f64>()).collect();
    at.sort_by(f64::total_cmp);
    let sizes: Vec<f64> = at.iter().map(|_| rng.random_range(0.3..1.7)).collect();
    let whole: f64 = sizes.iter().sum();
    let claim = Claim::Leaks { since: draw.first, seen: draw.at(at[0]) };
    with_noise(
        draw,
        rng,
        claim,
        |step, _| {
            let burst = at.iter().zip(&sizes).take_while(|(at, _)| **at <= draw.share(step));
            draw.asked.growth * burst.map(|(_, size)| size).sum::<f64>() / whole
        },
        |_, _| 0.0,
    )
}

fn late(draw: &Draw, rng: &mut ChaCha8Rng) -> Run {
    let begins = rng.random_range(0.1..0.85);
    let claim = Claim::Leaks { since: draw.at(begins), seen: draw.at(begins) };
    with_noise(
        draw,
        rng,
        claim,
        |step, _| draw.asked.growth * ((draw.share(step) - begins) / (1.0 - begins)).max(0.0),
        |_, _| 0.0,
    )
}

fn square_root(draw: &Draw, rng: &mut ChaCha8Rng) -> Run {
    let claim = Claim::Slows { since: draw.first, seen: draw.first };
    with_noise(draw, rng, claim, |step, _| draw.asked.growth * draw.share(step).sqrt(), |_, _| 0.0)
}

fn rising_saw(draw: &Draw, rng: &mut ChaCha8Rng) -> Run {
    let period = log_uniform(rng, 5.0, draw.steps as f64 / 16.0).max(2.0) as u64;
    let height = log_uniform(rng, 8.0, 200.0) * MIB;
    let claim = Claim::Leaks { since: draw.first, seen: draw.first };
    with_noise(
        draw,
        rng,
        claim,
        |step, _| draw.asked.growth * draw.share(step),
        |step, _| height * (step % period) as f64 / period as f64,
    )
}

fn two_leaks(draw: &Draw, rng: &mut ChaCha8Rng) -> Run {
    let (first, second) = (rng.random_range(0.0..0.3), rng.random_range(0.3..0.7));
    let share = rng.random_range(0.3..0.7);
    let claim = Claim::Leaks { since: draw.at(first), seen: draw.at(first) };
    let from = |begins: f64, at: f64| ((at - begins) / (1.0 - begins)).max(0.0);
    with_noise(
        draw,
        rng,
        claim,
        |step, _| {
            let at = draw.share(step);
            draw.asked.growth * (share * from(first, at) + (1.0 - share) * from(second, at))
        },
        |_, _| 0.0,
    )
}

fn hidden(draw: &Draw, rng: &mut ChaCha8Rng) -> Run {
    let period = draw.steps as f64 / rng.random_range(16.0..60.0);
    let height = rng.random_range(0.5..2.0) * draw.asked.growth.min(100.0 * MIB);
    let claim = Claim::Leaks { since: draw.first, seen: draw.first };
    with_noise(
        draw,
        rng,
        claim,
        |step, _| draw.asked.growth * draw.share(step),
        |step, _| height * (step as f64 / period).fract(),
    )
}

fn after_warm_up(draw: &Draw, rng: &mut ChaCha8Rng) -> Run {
    let (height, time, begins) =
        (rng.random_range(50.0..500.0) * MIB, rng.random_range(0.01..0.06), rng.random_range(0.4..0.6));
    let claim = Claim::Leaks { since: draw.at(begins), seen: draw.at(begins) };
    with_noise(
        draw,
        rng,
        claim,
        |step, _| {
            let at = draw.share(step);
            height * (1.0 - (-at / time).exp()) + draw.asked.growth * ((at - begins) / (1.0 - begins)).max(0.0)
        },
        |_, _| 0.0,
    )
}

fn resumed(draw: &Draw, rng: &mut ChaCha8Rng) -> Run {
    let first = log_uniform(rng, 1000.0, 2_000_000.0) as u64;
    let draw = Draw { first, planned: first + draw.steps, ..draw.clone() };
    linear(&draw, rng)
}
