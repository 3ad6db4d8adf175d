//! How does memory behave that comes to rest?

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::super::series::{Ar1, Claim, Draw, MIB, Noise, Run, Sample, gaussian, log_uniform};
use super::shapes::{Around, Changes, Teeth, period};

fn mib(rng: &mut ChaCha8Rng, low: f64, high: f64) -> f64 {
    log_uniform(rng, low, high) * MIB
}

/// A run that stays at its base, below something.
fn below(draw: &Draw, rng: &mut ChaCha8Rng, mut above: impl FnMut(u64, &mut ChaCha8Rng) -> f64) -> Run {
    let mut around = Around::of(draw, rng);
    draw.run(Claim::Rests, |_| draw.base, |step| around.at(step, rng) + above(step, rng))
}

/// A run whose level changes.
fn at_level(draw: &Draw, rng: &mut ChaCha8Rng, claim: Claim, level: impl FnMut(u64) -> f64) -> Run {
    let mut around = Around::of(draw, rng);
    draw.run(claim, level, |step| around.at(step, rng))
}

pub fn flat(draw: &Draw, rng: &mut ChaCha8Rng) -> Run {
    below(draw, rng, |_, _| 0.0)
}

/// One of three with the period of the epochs, where there are enough of them.
pub fn saw_of_fixed_period(draw: &Draw, rng: &mut ChaCha8Rng) -> Run {
    let of_epochs = draw.steps_per_epoch > 0 && draw.steps / draw.steps_per_epoch >= 6 && rng.random_bool(0.33);
    let period = if of_epochs { draw.steps_per_epoch as f64 } else { period(draw, 6.0, rng) };
    let (teeth, height) = (Teeth::new(draw, period, 0.0, 1.0, rng), mib(rng, 8.0, 256.0));
    below(draw, rng, |step, _| height * teeth.at(step))
}

/// The last tooth is between half and twice as long as the first, as high, and each differs a little.
pub fn saw_of_drifting_period(draw: &Draw, rng: &mut ChaCha8Rng) -> Run {
    let (period, jitter) = (period(draw, 8.0, rng), rng.random_range(0.02..0.3));
    let stretch = log_uniform(rng, 0.5, 2.0);
    let (teeth, height) = (Teeth::new(draw, period, jitter, stretch, rng), mib(rng, 8.0, 256.0));
    below(draw, rng, |step, _| height * teeth.at(step))
}

/// The C library gives pages back when it wants to, and not all of them.
pub fn trim_teeth(draw: &Draw, rng: &mut ChaCha8Rng) -> Run {
    let period = period(draw, 8.0, rng);
    let teeth = Teeth::new(draw, period, 0.7, 1.0, rng).leaving(0.25, rng);
    let height = mib(rng, 8.0, 192.0);
    below(draw, rng, |step, _| height * teeth.at(step))
}

pub fn quick_autoregression(draw: &Draw, rng: &mut ChaCha8Rng) -> Run {
    let samples = (draw.steps / draw.every) as f64;
    let time = log_uniform(rng, 2.0, (samples / 100.0).max(2.5));
    autoregression(draw, time, rng)
}

pub fn slow_autoregression(draw: &Draw, rng: &mut ChaCha8Rng) -> Run {
    let samples = (draw.steps / draw.every) as f64;
    let time = samples * log_uniform(rng, 0.01, 0.05);
    autoregression(draw, time, rng)
}

fn autoregression(draw: &Draw, samples: f64, rng: &mut ChaCha8Rng) -> Run {
    let noise = Noise::Correlated(Ar1::new(draw.asked.noise, samples));
    let mut around = Around::with(noise, draw, rng);
    draw.run(Claim::Rests, |_| draw.base, |step| around.at(step, rng))
}

/// How much of its size a cache still gains in the last third of the run.
fn last_third(time: f64) -> f64 {
    (-2.0 / (3.0 * time)).exp() - (-1.0 / time).exp()
}

/// Fills as a cache does that is asked for random items, at most until it gains half of `growth_min` in the last third.
pub fn warming_cache(draw: &Draw, rng: &mut ChaCha8Rng) -> Run {
    let time = log_uniform(rng, 0.05, 0.5);
    let most = 0.48 * draw.asked.growth_min / last_third(time) / MIB;
    let size = mib(rng, 16.0, most.clamp(17.0, 512.0));
    warming(draw, time, size, rng)
}

/// Gains between half of `growth_min` and all of it in the last third.
pub fn warming_cache_nearly_full(draw: &Draw, rng: &mut ChaCha8Rng) -> Run {
    let time = log_uniform(rng, 0.15, 0.5);
    let gain = rng.random_range(0.55..0.95) * draw.asked.growth_min;
    warming(draw, time, gain / last_third(time), rng)
}

/// Gains between 1.1 and 4 times `growth_min` in the last third.
pub fn warming_cache_far_from_full(draw: &Draw, rng: &mut ChaCha8Rng) -> Run {
    let time = log_uniform(rng, 0.2, 0.5);
    let gain = log_uniform(rng, 1.1, 4.0) * draw.asked.growth_min;
    warming(draw, time, gain / last_third(time), rng)
}

fn warming(draw: &Draw, time: f64, size: f64, rng: &mut ChaCha8Rng) -> Run {
    at_level(draw, rng, Claim::Rests, |step| draw.base + size * (1.0 - (-draw.share(step) / time).exp()))
}

/// Fills at speeds that change, to a tenth of the run or to six, and stops.
fn filling(draw: &Draw, rng: &mut ChaCha8Rng) -> impl Fn(u64) -> f64 + use<> {
    let (size, full) = (mib(rng, 32.0, 1024.0), rng.random_range(0.1..0.6));
    let pieces: Vec<f64> = (0..rng.random_range(1..8)).map(|_| rng.random_range(0.3..1.7)).collect();
    let sum: f64 = pieces.iter().sum();
    let (first, steps, base) = (draw.first, draw.steps as f64, draw.base);
    move |step| {
        let place = ((step - first) as f64 / steps / full).min(1.0) * pieces.len() as f64;
        let filled = |(piece, speed): (usize, &f64)| (place - piece as f64).clamp(0.0, 1.0) * speed;
        base + size * pieces.iter().enumerate().map(filled).sum::<f64>() / sum
    }
}

pub fn page_cache(draw: &Draw, rng: &mut ChaCha8Rng) -> Run {
    let level = filling(draw, rng);
    at_level(draw, rng, Claim::Rests, level)
}

pub fn page_cache_below_a_saw(draw: &Draw, rng: &mut ChaCha8Rng) -> Run {
    let (level, period) = (filling(draw, rng), period(draw, 8.0, rng));
    let (teeth, height) = (Teeth::new(draw, period, 0.4, 1.0, rng), mib(rng, 8.0, 128.0));
    let mut around = Around::of(draw, rng);
    draw.run(Claim::Rests, level, |step| around.at(step, rng) + height * teeth.at(step))
}

/// An allocator keeps what the largest batch so far needed. No batch is larger than the data's largest.
pub fn ratchet(draw: &Draw, rng: &mut ChaCha8Rng) -> Run {
    let (scale, batches) = (mib(rng, 3.0, 24.0), rng.random_range(20..400));
    let mut hard: Vec<(u64, f64)> = (0..batches)
        .map(|_| {
            let size = -rng.random_range(1e-9_f64..1.0).ln();
            (draw.at(rng.random_range(0.0..1.0)), scale * size.min(5.0))
        })
        .collect();
    hard.sort_by_key(|(step, _)| *step);
    let mut mark = 0.0;
    let mut marks = Vec::new();
    for (step, size) in hard {
        if size > mark {
            marks.push((step, size - mark));
            mark = size;
        }
    }
    let marks = Changes::new(marks);
    at_level(draw, rng, Claim::RestsAfterSteps, |step| draw.base + marks.at(step))
}

/// Batches of three to eight sizes, at random: each by itself, or many of one size in a row.
pub fn changing_batch_sizes(draw: &Draw, rng: &mut ChaCha8Rng) -> Run {
    let largest = mib(rng, 16.0, 256.0);
    let sizes: Vec<f64> = (0..rng.random_range(3..=8)).map(|_| rng.random_range(0.0..largest)).collect();
    let row = if rng.random_bool(0.3) { 1.0 } else { draw.steps as f64 * log_uniform(rng, 0.002, 0.03) };
    let (mut until, mut size) = (0.0, 0.0);
    below(draw, rng, |step, rng| {
        if step as f64 >= until {
            until = step as f64 + row * rng.random_range(0.5..1.5);
            size = sizes[rng.random_range(0..sizes.len())];
        }
        size
    })
}

/// Sequences get longer in two to six stages; the last begins at 15 to 60 % of the run. Longer ones differ more.
pub fn curriculum(draw: &Draw, rng: &mut ChaCha8Rng) -> Run {
    let (stages, ends) = (rng.random_range(2..=6), rng.random_range(0.15..0.6));
    let height = mib(rng, 8.0, 128.0);
    let even = rng.random_bool(0.5);
    let stages = (1..=stages).map(|stage| {
        let at = if even { ends * f64::from(stage) / f64::from(stages) } else { rng.random_range(0.03..ends) };
        (draw.at(at), height * rng.random_range(0.5..1.5))
    });
    let stages = Changes::new(stages.collect());
    let varies = rng.random_range(0.0..0.1);
    let mut around = Around::of(draw, rng);
    draw.run(
        Claim::Rests,
        |step| draw.base + stages.at(step),
        |step| around.at(step, rng) + varies * stages.at(step) * rng.random_range(-1.0..1.0),
    )
}

/// State that is made when the optimiser first steps, at 2 to 60 % of the run, in up to 2 % of the run.
pub fn late_optimiser_state(draw: &Draw, rng: &mut ChaCha8Rng) -> Run {
    let (size, begins) = (mib(rng, 16.0, 512.0), rng.random_range(0.02..0.6));
    let takes = if rng.random_bool(0.5) { 1e-9 } else { rng.random_range(0.002..0.02) };
    let made = |step| ((draw.share(step) - begins) / takes).clamp(0.0, 1.0);
    at_level(draw, rng, Claim::Rests, |step| draw.base + size * made(step))
}

/// Another phase, at 10 to 90 % of the run: more or less memory, more or less noise, with or without a saw.
pub fn phase_switch(draw: &Draw, rng: &mut ChaCha8Rng) -> Run {
    let switch = draw.at(rng.random_range(0.1..0.9));
    let size = mib(rng, 16.0, 512.0);
    let size = if rng.random_bool(0.5) { size } else { -size.min(0.8 * draw.base) };
    let mut second = draw.clone();
    second.asked.noise = (draw.asked.noise * log_uniform(rng, 0.3, 3.0)).min(30.0 * MIB);
    let (mut before, mut after) = (Around::of(draw, rng), Around::of(&second, rng));
    let teeth = Teeth::new(draw, draw.steps as f64 / rng.random_range(60.0..200.0), 0.3, 1.0, rng);
    let height = if rng.random_bool(0.4) { mib(rng, 8.0, 64.0) } else { 0.0 };
    draw.run(
        Claim::RestsAfterSteps,
        |step| if step < switch { draw.base } else { draw.base + size },
        |step| {
            let around = if step < switch { &mut before } else { &mut after };
            around.at(step, rng) + if step < switch { 0.0 } else { height * teeth.at(step) }
        },
    )
}

/// One to three buffers that stay, made at 5 to 95 % of the run, and up to six that go again.
pub fn one_off_buffers(draw: &Draw, rng: &mut ChaCha8Rng) -> Run {
    let stay = (0..rng.random_range(1..=3)).map(|_| (draw.at(rng.random_range(0.05..0.95)), mib(rng, 8.0, 256.0)));
    let stay = Changes::new(stay.collect());
    let mut go = Vec::new();
    for _ in 0..rng.random_range(0..=6) {
        let (begins, size) = (rng.random_range(0.0..0.95), mib(rng, 8.0, 256.0));
        go.push((draw.at(begins), size));
        go.push((draw.at((begins + rng.random_range(0.005..0.1)).min(0.98)), -size));
    }
    let go = Changes::new(go);
    let mut around = Around::of(draw, rng);
    draw.run(Claim::RestsAfterSteps, |step| draw.base + stay.at(step), |step| around.at(step, rng) + go.at(step))
}

/// What was needed at first is given back, at once or little by little.
pub fn shrinking(draw: &Draw, rng: &mut ChaCha8Rng) -> Run {
    let (size, time) = (mib(rng, 16.0, 512.0), log_uniform(rng, 0.02, 1.0));
    at_level(draw, rng, Claim::Rests, |step| draw.base + size * (-draw.share(step) / time).exp())
}

/// The log of a run that was resumed elsewhere: its first step is far from the first of all.
pub fn log_begins_late(draw: &Draw, rng: &mut ChaCha8Rng) -> Run {
    let draw = super::growing::begun_late(draw, rng);
    match rng.random_range(0..4) {
        0 => flat(&draw, rng),
        1 => saw_of_fixed_period(&draw, rng),
        2 => page_cache(&draw, rng),
        _ => warming_cache(&draw, rng),
    }
}

/// Two to four processes, each of which fills its cache anew.
pub fn restarted(draw: &Draw, rng: &mut ChaCha8Rng) -> Run {
    let (draw, restarts) = super::growing::with_restarts(draw, rng);
    let time = draw.steps as f64 * log_uniform(rng, 0.002, 0.015);
    let size = mib(rng, 8.0, 256.0);
    let bases: Vec<f64> = (0..=restarts.len()).map(|_| draw.base * rng.random_range(0.8..1.25)).collect();
    let mut around = Around::of(&draw, rng);
    let sample = |step| {
        let process = restarts.partition_point(|begins| *begins <= step);
        let begins = if process == 0 { draw.first } else { restarts[process - 1] };
        let level = bases[process] + size * (1.0 - (-((step - begins) as f64) / time).exp());
        Sample { step, level, bytes: (level + around.at(step, rng)).max(0.0) }
    };
    let samples = draw.sampled().map(sample).collect();
    draw.run_of(samples, restarts.clone(), Claim::Rests)
}

/// Its deviation at the end is 8 to 128 MiB.
pub fn random_walk(draw: &Draw, rng: &mut ChaCha8Rng) -> Run {
    let move_of = mib(rng, 8.0, 128.0) / ((draw.steps / draw.every) as f64).sqrt();
    let mut around = Around::of(draw, rng);
    let mut level = draw.base + 512.0 * MIB;
    let sample = |step| {
        level = (level + gaussian(rng, move_of)).max(0.0);
        Sample { step, level, bytes: (level + around.at(step, rng)).max(0.0) }
    };
    let samples = draw.sampled().map(sample).collect();
    draw.run_of(samples, Vec::new(), Claim::Walks)
}
