//! Rule of TraceML 0.5.0 (<https://pypi.org/project/traceml-ai/>), `evaluate_step_memory_window_creep`: means of three bands of the
//! newest 10,000 steps, at 15 to 25, 45 to 55 and 90 to 100 %, rise. It is confirmed when they rise by 1 GiB in all.

use super::Sample;

const STEPS_MIN: usize = 50;
const STEPS_MAX: usize = 10_000;
const CONFIRMED: f64 = 1024.0 * 1024.0 * 1024.0;

/// Rise from the first band to the last; `None` where the bands do not rise.
fn rise(samples: &[Sample]) -> Option<f64> {
    let newest = &samples[samples.len().saturating_sub(STEPS_MAX)..];
    let mean = |from: f64, to: f64| {
        let count = newest.len() as f64;
        let band = &newest[(count * from).floor() as usize..(count * to).ceil() as usize];
        band.iter().map(|sample| sample.bytes).sum::<f64>() / band.len() as f64
    };
    let [base, middle, recent] = [(0.15, 0.25), (0.45, 0.55), (0.9, 1.0)].map(|(from, to)| mean(from, to));
    (newest.len() >= STEPS_MIN && recent > middle && middle > base).then_some(recent - base)
}

/// `CREEP_EARLY` or `CREEP_CONFIRMED`.
pub fn grows(samples: &[Sample]) -> bool {
    rise(samples).is_some()
}

/// `CREEP_CONFIRMED` alone.
pub fn grows_surely(samples: &[Sample]) -> bool {
    rise(samples).is_some_and(|rise| rise >= CONFIRMED)
}
