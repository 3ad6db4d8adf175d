//! Conversion of sample rates to that of the models.

use rubato::audioadapter_buffers::direct::SequentialSlice;
use rubato::{Fft, FixedSync, Resampler, WindowFunction};

/// Samples a second that models hear.
pub const RATE: u32 = 16_000;

/// Samples that are transformed at once, at least: with fewer, the filter takes away more below 8 kHz.
const BLOCK: usize = 2048;

/// The number of samples that are transformed at once: of so many come a whole number of samples at [`RATE`]. An even number:
/// the filter delays by half of it.
fn block(rate: u32) -> usize {
    let (mut divisor, mut rest) = (rate, RATE);
    while rest > 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    let shortest = (rate / divisor) as usize;
    shortest * BLOCK.div_ceil(shortest).next_multiple_of(2)
}

/// Samples at [`RATE`], of samples at `rate`, which is above 0; in time they begin where the others do.
///
/// # Errors
/// Message of the resampler.
pub fn resample(samples: &[f32], rate: u32) -> Result<Vec<f32>, String> {
    if rate == RATE || samples.is_empty() {
        return Ok(samples.to_vec());
    }
    let (from, to, window) = (rate as usize, RATE as usize, WindowFunction::BlackmanHarris2);
    let resampler = Fft::<f32>::new_custom(from, to, block(rate), 1, 1, window, FixedSync::Both);
    let mut resampler = resampler.map_err(|error| error.to_string())?;
    let input = SequentialSlice::new(samples, 1, samples.len()).map_err(|error| error.to_string())?;
    let output = resampler.process_all(&input, samples.len(), None).map_err(|error| error.to_string())?;
    Ok(output.take_data())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sine(frequency: f64, rate: u32, count: usize) -> Vec<f32> {
        let at = |sample: usize| (std::f64::consts::TAU * frequency * sample as f64 / f64::from(rate)).sin() as f32;
        (0..count).map(at).collect()
    }

    #[test]
    fn a_sine_stays_the_same_sine() {
        for rate in [8_000, 11_025, 22_050, 44_100, 48_000, 96_000, 192_000] {
            let frequency = if rate < 16_000 { 1000.0 } else { 6900.0 };
            let found = resample(&sine(frequency, rate, rate as usize), rate).unwrap();
            let expected = sine(frequency, RATE, 16_000);
            assert_eq!(found.len(), 16_000, "{rate}");
            // Where the sound begins and ends the filter hears what is not there.
            let most = (2000..14_000).map(|at| (found[at] - expected[at]).abs()).fold(0.0, f32::max);
            assert!(most < 2e-3, "{rate}: {most}");
        }
    }

    #[test]
    fn what_16_khz_has_no_place_for_is_taken_away() {
        let found = resample(&sine(9500.0, 44_100, 44_100), 44_100).unwrap();
        let most = (2000..14_000).map(|at| found[at].abs()).fold(0.0, f32::max);
        assert!(most < 1e-4, "{most}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(12))]
        #[test]
        fn any_rate_and_length_give_a_sound_of_the_same_seconds(rate in 8_000_u32..=192_000, count in 1_usize..3000) {
            let found = resample(&vec![0.5; count], rate).unwrap();
            let expected = (count as f64 * f64::from(RATE) / f64::from(rate)).ceil() as usize;
            prop_assert_eq!(found.len(), expected);
            prop_assert!(found.iter().all(|sample| sample.is_finite()));
        }
    }
}
