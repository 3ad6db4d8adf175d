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

const SAMPLES_PER_SECOND: f64 = RATE as f64;
/// Range of the pitch in Hz.
const PITCH_HZ: (f64, f64) = (150.0, 600.0);
/// Highest partial in Hz; those above it, near the Nyquist frequency, are left out.
const PARTIAL_HZ_MAX: f64 = 7600.0;
/// Partials of a tone.
const PARTIALS: usize = 16;
/// Partials of a bell: ratio to the pitch, amplitude, and decay rate per second.
const BELL: [(f64, f64, f64); 4] = [(1.0, 1.0, 1.0), (2.76, 0.6, 1.5), (5.40, 0.4, 2.2), (8.93, 0.25, 3.0)];
/// Amplitude of the second voice relative to the first.
const SECOND_VOICE: f64 = 0.25;
/// Duration in seconds of the fade at the begin and end of a sound.
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
}

/// Modulation of a clip over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Modulation {
    /// Constant amplitude and pitch.
    Steady,
    /// Amplitude changes 4 to 8 times a second, by 0.8.
    Tremolo,
    /// Pitch changes 5 to 7 times a second, by 6 % up and down.
    Vibrato,
    /// Sounds 2.5 to 4 times a second, for 30 % of the time.
    Pulses,
    /// Pitch rises by an octave.
    Glide,
}

impl Modulation {
    /// All variants, in the order in which classes are made of them.
    pub const ALL: [Self; 5] = [Self::Steady, Self::Tremolo, Self::Vibrato, Self::Pulses, Self::Glide];

    /// Largest ratio of the pitch to the drawn one.
    const fn pitch_ratio_max(self) -> f64 {
        match self {
            Self::Vibrato => 1.06,
            Self::Glide => 2.0,
            _ => 1.0,
        }
    }
}

/// State at one moment of a recording.
struct Moment {
    /// Factor on the drawn pitch.
    pitch_ratio: f64,
    amplitude: f64,
    /// Seconds since the begin of the sound or pulse.
    age: f64,
}

/// Pitch, tuning and room of a recording are drawn; its loudest sample is 1.
pub fn recording(random: &mut impl Rng, timbre: Timbre, modulation: Modulation) -> Vec<f64> {
    let pitch = PITCH_HZ.0 * libm::exp(random.random_range(0.0..1.0) * libm::log(PITCH_HZ.1 / PITCH_HZ.0));
    let detune = 1.0 + random.random_range(-0.003..0.003);
    let moments = moments(random, modulation);
    let mut samples = match timbre {
        Timbre::Breath => breath(random, pitch, &moments),
        _ => tone(random, timbre, pitch, detune, modulation.pitch_ratio_max(), &moments),
    };
    let edge = (ATTACK * SAMPLES_PER_SECOND) as usize;
    for at in 0..edge {
        let gain = at as f64 / edge as f64;
        samples[at] *= gain;
        samples[SAMPLES - 1 - at] *= gain;
    }
    let (rt60, wet) = (random.random_range(0.1..0.5), random.random_range(0.1..0.4));
    reverberate(&mut samples, rt60, wet);
    let loudest = samples.iter().fold(1e-9_f64, |most, sample| most.max(sample.abs()));
    samples.iter_mut().for_each(|sample| *sample /= loudest);
    samples
}

/// Clip of a recording in samples of 16 bits. Its level (-12 to 0 dB), its begin (0 to 0.2 s), and white noise (0 to 20 dB
/// below the power of the recording) are drawn.
pub fn clip_of(random: &mut impl Rng, recording: &[f64]) -> Vec<i16> {
    let amplitude_of_decibels = |value: f64| libm::pow(10.0, value / 20.0);
    let level = amplitude_of_decibels(random.random_range(-12.0..0.0));
    let start = (random.random_range(0.0..0.2) * SAMPLES_PER_SECOND) as usize;
    let power = recording.iter().map(|sample| sample * sample).sum::<f64>() / recording.len() as f64;
    // Uniform noise up to 1 has the power 1/3.
    let noise = libm::sqrt(3.0 * power) / amplitude_of_decibels(random.random_range(0.0..20.0));
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
        let time = at as f64 / SAMPLES_PER_SECOND;
        let cycles = time * rate + phase;
        let wave = || libm::sin(TAU * cycles);
        match modulation {
            Modulation::Steady => Moment { pitch_ratio: 1.0, amplitude: 1.0, age: time },
            Modulation::Tremolo => Moment { pitch_ratio: 1.0, amplitude: 1.0 - 0.4 * (1.0 + wave()), age: time },
            Modulation::Vibrato => Moment { pitch_ratio: 1.0 + 0.06 * wave(), amplitude: 1.0, age: time },
            Modulation::Glide => Moment { pitch_ratio: libm::exp2(time), amplitude: 1.0, age: time },
            Modulation::Pulses => {
                // The first begins with the clip.
                let within = time * rate - (time * rate).floor();
                let edge = ATTACK * rate;
                let amplitude = (within / edge).min((0.3 - within) / edge).clamp(0.0, 1.0);
                Moment { pitch_ratio: 1.0, amplitude, age: within / rate }
            }
        }
    };
    (0..SAMPLES).map(moment).collect()
}

/// Two voices of partials.
fn tone(
    random: &mut impl Rng,
    timbre: Timbre,
    pitch: f64,
    detune: f64,
    pitch_ratio_max: f64,
    moments: &[Moment],
) -> Vec<f64> {
    let number = |number: usize| number as f64;
    let decay = random.random_range(3.0..6.0);
    let partials: Vec<(f64, f64, f64)> = match timbre {
        Timbre::Flute => (0..PARTIALS / 2).map(|at| number(2 * at + 1)).map(|n| (n, 1.0 / (n * n), 0.0)).collect(),
        Timbre::Pluck => (1..=PARTIALS).map(number).map(|n| (n, 1.0 / n, decay)).collect(),
        Timbre::Bell => BELL.to_vec(),
        Timbre::Reed | Timbre::Breath => (1..=PARTIALS).map(number).map(|n| (n, 1.0 / n, 0.0)).collect(),
    };
    let audible: Vec<_> =
        partials.into_iter().filter(|(ratio, ..)| ratio * pitch * pitch_ratio_max < PARTIAL_HZ_MAX).collect();
    let phases: Vec<f64> = audible.iter().map(|_| random.random_range(0.0..1.0)).collect();
    // In periods.
    let (mut first, mut second) = (0.0, 0.0);
    let sample = |moment: &Moment| {
        first += pitch * moment.pitch_ratio / SAMPLES_PER_SECOND;
        second += pitch * detune * moment.pitch_ratio / SAMPLES_PER_SECOND;
        let of = |(ratio, amplitude, decay): (f64, f64, f64), phase: f64| {
            let voice = |periods: f64| libm::sin(TAU * (ratio * periods + phase));
            let amplitude = if decay > 0.0 { amplitude * libm::exp(-decay * moment.age) } else { amplitude };
            amplitude * (voice(first) + SECOND_VOICE * voice(second))
        };
        moment.amplitude * audible.iter().zip(&phases).map(|(partial, phase)| of(*partial, *phase)).sum::<f64>()
    };
    moments.iter().map(sample).collect()
}

/// Noise in a band around four times the pitch: a resonant second-order filter (Bristow-Johnson's cookbook).
fn breath(random: &mut impl Rng, pitch: f64, moments: &[Moment]) -> Vec<f64> {
    const Q: f64 = 8.0;
    let (mut state_1, mut state_2) = (0.0, 0.0);
    let sample = |moment: &Moment| {
        let angle = TAU * (4.0 * pitch * moment.pitch_ratio).min(PARTIAL_HZ_MAX) / SAMPLES_PER_SECOND;
        let alpha = libm::sin(angle) / (2.0 * Q);
        let scale = 1.0 / (1.0 + alpha);
        let noise: f64 = random.random_range(-1.0..1.0);
        let output = alpha * scale * noise + state_1;
        state_1 = 2.0 * libm::cos(angle) * scale * output + state_2;
        state_2 = -alpha * scale * noise - (1.0 - alpha) * scale * output;
        moment.amplitude * output
    };
    moments.iter().map(sample).collect()
}

/// Delays in seconds of the four parallel comb filters, and of the two all-pass filters in series after them (Schroeder 1962).
const COMBS: [f64; 4] = [0.0297, 0.0371, 0.0411, 0.0437];
const ALL_PASSES: [f64; 2] = [0.0050, 0.0017];

/// Adds reverberation. `rt60` is the time in seconds in which it decays by 60 dB, `wet` its gain.
fn reverberate(samples: &mut [f64], rt60: f64, wet: f64) {
    let mut wet_signal = vec![0.0; samples.len()];
    for seconds in COMBS {
        let delay = (seconds * SAMPLES_PER_SECOND) as usize;
        let gain = libm::pow(10.0, -3.0 * seconds / rt60);
        let mut delay_line = vec![0.0; delay];
        for (at, (output, sample)) in wet_signal.iter_mut().zip(samples.iter()).enumerate() {
            let slot = &mut delay_line[at % delay];
            *output += *slot;
            *slot = sample + gain * *slot;
        }
    }
    for seconds in ALL_PASSES {
        const GAIN: f64 = 0.7;
        let delay = (seconds * SAMPLES_PER_SECOND) as usize;
        let mut delay_line = vec![0.0; delay];
        for (at, sample) in wet_signal.iter_mut().enumerate() {
            let slot = &mut delay_line[at % delay];
            let kept = *sample + GAIN * *slot;
            *sample = *slot - GAIN * kept;
            *slot = kept;
        }
    }
    samples.iter_mut().zip(wet_signal).for_each(|(sample, reverberated)| *sample += wet * reverberated);
}
