//! Log-mel spectra: logarithms of power in mel bands, as Kaldi's filter bank computes them.
//!
//! The settings are those of the audio spectrogram transformer (Gong et al. 2021): frames of 25 ms every 10 ms of which none
//! reaches beyond the end, each without its mean, pre-emphasis 0.97, a symmetric Hann window, power, triangles in mel from
//! 20 Hz to 8 kHz. torchaudio's `compliance.kaldi.fbank` is the reference: `tests/reference/log_mel.py`. In floats of 64 bits:
//! with 32 the logarithms of weak bands beside strong ones are off by some thousandths, torchaudio's own among them.

use std::fmt;
use std::sync::Arc;

use rustfft::algorithm::Radix4;
use rustfft::num_complex::Complex;
use rustfft::{Fft, FftDirection};

use super::resample::RATE;

/// Samples of a frame.
const FRAME: usize = 400;
/// Samples from a frame to the next.
const SHIFT: usize = 160;
/// Zeros are appended to a frame.
const FFT: usize = 512;
const PRE_EMPHASIS: f64 = 0.97;
/// Lower edge of the first triangle, in Hz. The last ends at half the sample rate.
const LOWEST: f64 = 20.0;
/// Minimum power: `f32::EPSILON`, as in Kaldi.
const FLOOR: f64 = f32::EPSILON as f64;
/// Mean and twice the standard deviation over AudioSet's training clips: `mean` and `std` of AST's feature extractor.
const MEAN: f32 = -4.267_739_3;
const TWICE_DEVIATION: f32 = 2.0 * 4.568_997_4;

/// Number of frames of `samples` samples at 16 kHz.
pub const fn frames_of(samples: usize) -> usize {
    match samples < FRAME {
        true => 0,
        false => 1 + (samples - FRAME) / SHIFT,
    }
}

/// A filter bank of some number of bands; shared by threads.
#[derive(Clone)]
pub struct FilterBank {
    fft: Arc<Radix4<f64>>,
    window: Vec<f64>,
    bands: Vec<Band>,
}

/// A triangle over a few bins of the spectrum.
#[derive(Clone, Debug)]
struct Band {
    first: usize,
    weights: Vec<f64>,
}

impl fmt::Debug for FilterBank {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "FilterBank({} bands)", self.bands.len())
    }
}

impl FilterBank {
    /// A bank of `bands` triangles, with the window and the transform that they need.
    pub fn new(bands: usize) -> Self {
        let angle = |at: usize| std::f64::consts::TAU * at as f64 / (FRAME - 1) as f64;
        let window = (0..FRAME).map(|at| 0.5 - 0.5 * libm::cos(angle(at))).collect();
        // By name: a planner would choose by the processor, and bring its choice of all algorithms along.
        let fft = Arc::new(Radix4::new(FFT, FftDirection::Forward));
        let mel = |frequency: f64| 1127.0 * libm::log(1.0 + frequency / 700.0);
        let (low, high) = (mel(LOWEST), mel(f64::from(RATE) / 2.0));
        let step = (high - low) / (bands + 1) as f64;
        let triangle = |band: usize| {
            let left = low + band as f64 * step;
            // Without the last bin, as in Kaldi.
            let weight = |bin: usize| {
                let mel = mel(bin as f64 * f64::from(RATE) / FFT as f64);
                ((mel - left) / step).min((left + 2.0 * step - mel) / step).max(0.0)
            };
            let all: Vec<f64> = (0..FFT / 2).map(weight).collect();
            let first = all.iter().position(|weight| *weight > 0.0).unwrap_or(0);
            let past = all.iter().rposition(|weight| *weight > 0.0).map_or(first, |last| last + 1);
            Band { first, weights: all[first..past].to_vec() }
        };
        Self { fft, window, bands: (0..bands).map(triangle).collect() }
    }

    /// Logarithms of power of samples at 16 kHz, frame by frame: [`frames_of`] `* bands` numbers, as the reference has them.
    pub fn log_power(&self, samples: &[f32]) -> Vec<f32> {
        let mut buffer = vec![Complex::default(); FFT];
        let mut scratch = vec![Complex::default(); self.fft.get_inplace_scratch_len()];
        let mut power = vec![0.0; FFT / 2];
        let mut found = Vec::with_capacity(frames_of(samples.len()) * self.bands.len());
        for frame in 0..frames_of(samples.len()) {
            let samples = &samples[frame * SHIFT..][..FRAME];
            let mean = samples.iter().map(|sample| f64::from(*sample)).sum::<f64>() / FRAME as f64;
            let mut before = f64::from(samples[0]) - mean;
            for ((place, sample), window) in buffer.iter_mut().zip(samples).zip(&self.window) {
                let sample = f64::from(*sample) - mean;
                *place = Complex::from((sample - PRE_EMPHASIS * before) * window);
                before = sample;
            }
            buffer[FRAME..].fill(Complex::default());
            self.fft.process_with_scratch(&mut buffer, &mut scratch);
            power.iter_mut().zip(&buffer).for_each(|(power, bin)| *power = bin.norm_sqr());
            for Band { first, weights } in &self.bands {
                let sum: f64 = weights.iter().zip(&power[*first..]).map(|(weight, power)| weight * power).sum();
                found.push(libm::log(sum.max(FLOOR)) as f32);
            }
        }
        found
    }

    /// The input of a model: `frames` frames, `[frames, bands]` row by row. Frames that are missing are zeros before the
    /// mean is taken off, as in AST's feature extractor; frames too many are cut.
    pub fn log_mel(&self, samples: &[f32], frames: usize) -> Vec<f32> {
        let used = samples.len().min(FRAME + frames.saturating_sub(1) * SHIFT);
        let mut found = self.log_power(&samples[..used]);
        found.resize(frames * self.bands.len(), 0.0);
        found.iter_mut().for_each(|value| *value = (*value - MEAN) / TWICE_DEVIATION);
        found
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// As `made` in `tests/reference/log_mel.py`.
    fn made(count: u64) -> Vec<i64> {
        let (mut state, mut phase) = (1_i64, 0);
        (0..count as i64)
            .map(|at| {
                state = (state * 1_103_515_245 + 12_345) % (1 << 31);
                phase = (phase + 900 + at) % 65_536;
                let (tone, noise) = ((phase - 32_768).abs() - 16_384, (state >> 16) - 16_384);
                if at < count as i64 * 3 / 4 { tone.div_euclid(2) + noise.div_euclid(16) } else { 0 }
            })
            .collect()
    }

    #[test]
    fn it_is_what_torchaudio_computes() {
        let recorded: Value = serde_json::from_str(include_str!("../../../../tests/reference/log_mel.json")).unwrap();
        let samples = made(recorded["count"].as_u64().unwrap());
        assert_eq!(serde_json::json!(samples[..8]), recorded["first"]);
        let samples: Vec<f32> = samples.into_iter().map(|sample| sample as f32 / 32_768.0).collect();
        for bands in [40, 128] {
            let expected = recorded["log_mel"][bands.to_string()].as_array().unwrap();
            let found = FilterBank::new(bands).log_power(&samples);
            assert_eq!(found.len(), expected.len());
            assert_eq!(found.len(), frames_of(samples.len()) * bands);
            let distance = |(found, expected): (&f32, &Value)| (f64::from(*found) - expected.as_f64().unwrap()).abs();
            let most = found.iter().zip(expected).map(distance).fold(0.0, f64::max);
            assert!(most < 1e-4, "{bands} bands: {most}");
        }
    }

    #[test]
    fn frames_are_as_many_as_fit_and_the_rest_is_filled_or_cut() {
        assert_eq!([399, 400, 559, 560, 16_000, 80_000].map(frames_of), [0, 1, 1, 2, 98, 498]);
        let noise: Vec<f32> = made(1600).into_iter().map(|sample| sample as f32 / 32_768.0).collect();
        let [cut, whole, filled] = [3, 8, 10].map(|frames| FilterBank::new(20).log_mel(&noise, frames));
        assert_eq!([cut.len(), whole.len(), filled.len()], [60, 160, 200]);
        assert_eq!(cut, whole[..60]);
        assert_eq!(filled[..160], whole);
        // (0 + 4.2677393) / (2 * 4.5689974)
        assert!(filled[160..].iter().all(|value| (value - 0.467_032).abs() < 1e-5), "{}", filled[160]);
    }

    #[test]
    fn silence_and_many_bands_of_few_bins_stay_numbers() {
        let floor = f64::from(f32::EPSILON).ln() as f32;
        assert!(FilterBank::new(64).log_power(&[0.0; 800]).iter().all(|value| (value - floor).abs() < 1e-5));
        // Some triangles lie between two bins.
        for bands in [1, 2, 256, 512] {
            assert!(FilterBank::new(bands).log_mel(&[0.5; 1000], 4).iter().all(|value| value.is_finite()));
        }
    }
}
