//! Synthesiser of the generated clips: a timbre and a modulation in a room.
//!
//! In floats of 64 bits with `libm`: the sine of the standard library differs between platforms.

use std::f64::consts::TAU;

use rand::{Rng, RngExt};

use super::resample::RATE;

/// Recordings are dealt to this many folds.
pub const FOLDS: u32 = 5;
/// Samples of a clip: 1 second.
pub const SAMPLES: usize = RATE as usize;

const SECOND: f64 = RATE as f64;
/// Pitches in Hz.
const PITCH: (f64, f64) = (150.0, 600.0);
/// Partials above it are left out: the sample rate has no place for them.
const HIGHEST: f64 = 7600.0;
/// Partials of a tone.
const PARTIALS: usize = 16;
/// Frequency and strength of a bell's partials, and how fast each dies away, a second.
const BELL: [(f64, f64, f64); 4] = [(1.0, 1.0, 1.0), (2.76, 0.6, 1.5), (5.40, 0.4, 2.2), (8.93, 0.25, 3.0)];
/// Strength of the second voice relative to the first.
const SECOND_VOICE: f64 = 0.25;
/// Seconds in which a sound begins and ends.
const ATTACK: f64 = 0.01;

/// Instrument of a clip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timbre {
    /// Odd partials, falling with the square of their number.
    Flute,
    /// All partials, falling with their number.
    Reed,
    /// Partials that are no multiples, each dying away.
    Bell,
    /// The partials of a reed, dying away at 3 to 6 a second.
    Pluck,
    /// Band-passed noise.
    Breath,
}

impl Timbre {
    /// All variants, in the order in which classes are made of them.
    pub const ALL: [Self; 5] = [Self::Flute, Self::Reed, Self::Bell, Self::Pluck, Self::Breath];

    /// The word in the names of classes.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Flute => "flute",
            Self::Reed => "reed",
            Self::Bell => "bell",
            Self::Pluck => "pluck",
            Self::Breath => "breath",
        }
    }
}

/// Modulation of a clip over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Modulation {
    /// Nothing: strength and pitch stay.
    Steady,
    /// Its strength changes 4 to 8 times a second, by 0.8.
    Tremolo,
    /// Its pitch changes 5 to 7 times a second, by 6 % up and down.
    Vibrato,
    /// It is heard 2.5 to 4 times a second, for 30 % of the time.
    Pulses,
    /// Its pitch goes an octave up.
    Glide,
}

impl Modulation {
    /// All variants, in the order in which classes are made of them.
    pub const ALL: [Self; 5] = [Self::Steady, Self::Tremolo, Self::Vibrato, Self::Pulses, Self::Glide];

    /// The word in the names of classes.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Steady => "steady",
            Self::Tremolo => "tremolo",
            Self::Vibrato => "vibrato",
            Self::Pulses => "pulses",
            Self::Glide => "glide",
        }
    }

    /// Highest pitch relative to the drawn one.
    const fn highest(self) -> f64 {
        match self {
            Self::Vibrato => 1.06,
            Self::Glide => 2.0,
            _ => 1.0,
        }
    }
}

/// State at one moment of a recording.
struct Moment {
    /// Beside the drawn pitch.
    pitch: f64,
    strength: f64,
    /// Seconds since it was struck.
    age: f64,
}

/// Pitch, tuning and room of a recording are drawn; its loudest sample is 1.
pub fn recording(random: &mut impl Rng, timbre: Timbre, modulation: Modulation) -> Vec<f64> {
    let pitch = PITCH.0 * libm::exp(random.random_range(0.0..1.0) * libm::log(PITCH.1 / PITCH.0));
    let detune = 1.0 + random.random_range(-0.003..0.003);
    let moments = moments(random, modulation);
    let mut samples = match timbre {
        Timbre::Breath => breath(random, pitch, &moments),
        _ => tone(random, timbre, pitch, detune, modulation.highest(), &moments),
    };
    let edge = (ATTACK * SECOND) as usize;
    for at in 0..edge {
        let share = at as f64 / edge as f64;
        samples[at] *= share;
        samples[SAMPLES - 1 - at] *= share;
    }
    let (room, wet) = (random.random_range(0.1..0.5), random.random_range(0.1..0.4));
    reverberate(&mut samples, room, wet);
    let loudest = samples.iter().fold(1e-9_f64, |most, sample| most.max(sample.abs()));
    samples.iter_mut().for_each(|sample| *sample /= loudest);
    samples
}

/// A clip of a recording: its level (-12 to 0 dB), when it begins (0 to 0.2 s), and white noise (0 to 20 dB below it) are
/// drawn. 16 bits a sample.
pub fn take(random: &mut impl Rng, recording: &[f64]) -> Vec<i16> {
    let decibels = |value: f64| libm::pow(10.0, value / 20.0);
    let level = decibels(random.random_range(-12.0..0.0));
    let start = (random.random_range(0.0..0.2) * SECOND) as usize;
    let power = recording.iter().map(|sample| sample * sample).sum::<f64>() / recording.len() as f64;
    // Uniform noise up to 1 has the power 1/3.
    let noise = libm::sqrt(3.0 * power) / decibels(random.random_range(0.0..20.0));
    let sounds = std::iter::repeat_n(&0.0, start).chain(recording);
    let mixed: Vec<f64> = sounds.take(SAMPLES).map(|sample| sample + noise * random.random_range(-1.0..1.0)).collect();
    // Nothing is cut off, whatever the noise adds.
    let loudest = mixed.iter().fold(1.0_f64, |most, sample| most.max(sample.abs()));
    let scale = 32_000.0 * level / loudest;
    mixed.into_iter().map(|sample| (sample * scale).round() as i16).collect()
}

fn moments(random: &mut impl Rng, modulation: Modulation) -> Vec<Moment> {
    let phase = random.random_range(0.0..1.0);
    let rate = match modulation {
        Modulation::Tremolo => random.random_range(4.0..8.0),
        Modulation::Vibrato => random.random_range(5.0..7.0),
        Modulation::Pulses => random.random_range(2.5..4.0),
        Modulation::Steady | Modulation::Glide => 0.0,
    };
    let moment = |at: usize| {
        let time = at as f64 / SECOND;
        let cycles = time * rate + phase;
        let wave = || libm::sin(TAU * cycles);
        match modulation {
            Modulation::Steady => Moment { pitch: 1.0, strength: 1.0, age: time },
            Modulation::Tremolo => Moment { pitch: 1.0, strength: 1.0 - 0.4 * (1.0 + wave()), age: time },
            Modulation::Vibrato => Moment { pitch: 1.0 + 0.06 * wave(), strength: 1.0, age: time },
            Modulation::Glide => Moment { pitch: libm::exp2(time), strength: 1.0, age: time },
            Modulation::Pulses => {
                // The first begins with the clip.
                let within = time * rate - (time * rate).floor();
                let edge = ATTACK * rate;
                let strength = (within / edge).min((0.3 - within) / edge).clamp(0.0, 1.0);
                Moment { pitch: 1.0, strength, age: within / rate }
            }
        }
    };
    (0..SAMPLES).map(moment).collect()
}

/// Two voices of partials.
fn tone(random: &mut impl Rng, timbre: Timbre, pitch: f64, detune: f64, highest: f64, moments: &[Moment]) -> Vec<f64> {
    let number = |number: usize| number as f64;
    let decay = random.random_range(3.0..6.0);
    let partials: Vec<(f64, f64, f64)> = match timbre {
        Timbre::Flute => (0..PARTIALS / 2).map(|at| number(2 * at + 1)).map(|n| (n, 1.0 / (n * n), 0.0)).collect(),
        Timbre::Pluck => (1..=PARTIALS).map(number).map(|n| (n, 1.0 / n, decay)).collect(),
        Timbre::Bell => BELL.to_vec(),
        Timbre::Reed | Timbre::Breath => (1..=PARTIALS).map(number).map(|n| (n, 1.0 / n, 0.0)).collect(),
    };
    let heard: Vec<_> = partials.into_iter().filter(|(ratio, ..)| ratio * pitch * highest < HIGHEST).collect();
    let phases: Vec<f64> = heard.iter().map(|_| random.random_range(0.0..1.0)).collect();
    // In periods.
    let (mut first, mut second) = (0.0, 0.0);
    let sample = |moment: &Moment| {
        first += pitch * moment.pitch / SECOND;
        second += pitch * detune * moment.pitch / SECOND;
        let of = |(ratio, strength, decay): (f64, f64, f64), phase: f64| {
            let voice = |periods: f64| libm::sin(TAU * (ratio * periods + phase));
            let strength = if decay > 0.0 { strength * libm::exp(-decay * moment.age) } else { strength };
            strength * (voice(first) + SECOND_VOICE * voice(second))
        };
        moment.strength * heard.iter().zip(&phases).map(|(partial, phase)| of(*partial, *phase)).sum::<f64>()
    };
    moments.iter().map(sample).collect()
}

/// Noise in a band around four times the pitch: a resonant second-order filter (Bristow-Johnson's cookbook).
fn breath(random: &mut impl Rng, pitch: f64, moments: &[Moment]) -> Vec<f64> {
    const QUALITY: f64 = 8.0;
    let (mut one, mut two) = (0.0, 0.0);
    let sample = |moment: &Moment| {
        let angle = TAU * (4.0 * pitch * moment.pitch).min(HIGHEST) / SECOND;
        let alpha = libm::sin(angle) / (2.0 * QUALITY);
        let scale = 1.0 / (1.0 + alpha);
        let noise: f64 = random.random_range(-1.0..1.0);
        let heard = alpha * scale * noise + one;
        one = 2.0 * libm::cos(angle) * scale * heard + two;
        two = -alpha * scale * noise - (1.0 - alpha) * scale * heard;
        moment.strength * heard
    };
    moments.iter().map(sample).collect()
}

/// Seconds of the four combs that sound side by side, and of the two all-passes behind them (Schroeder 1962).
const COMBS: [f64; 4] = [0.0297, 0.0371, 0.0411, 0.0437];
const ALL_PASSES: [f64; 2] = [0.0050, 0.0017];

/// Adds what a room sends back: after `room` seconds it has died away by 60 dB.
fn reverberate(samples: &mut [f64], room: f64, wet: f64) {
    let mut sent = vec![0.0; samples.len()];
    for seconds in COMBS {
        let delay = (seconds * SECOND) as usize;
        let gain = libm::pow(10.0, -3.0 * seconds / room);
        let mut line = vec![0.0; delay];
        for (at, (sent, sample)) in sent.iter_mut().zip(samples.iter()).enumerate() {
            let place = &mut line[at % delay];
            *sent += *place;
            *place = sample + gain * *place;
        }
    }
    for seconds in ALL_PASSES {
        const GAIN: f64 = 0.7;
        let delay = (seconds * SECOND) as usize;
        let mut line = vec![0.0; delay];
        for (at, sent) in sent.iter_mut().enumerate() {
            let place = &mut line[at % delay];
            let kept = *sent + GAIN * *place;
            *sent = *place - GAIN * kept;
            *place = kept;
        }
    }
    samples.iter_mut().zip(sent).for_each(|(sample, sent)| *sample += wet * sent);
}
