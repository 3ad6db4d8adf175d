//! Rule of thumb of many scripts: memory at the end is more than a tenth above that at the start.

use super::Sample;

/// Compares the first sample with the last.
pub fn grows(samples: &[Sample]) -> bool {
    matches!(samples, [first, .., last] if last.bytes > 1.1 * first.bytes)
}

/// Rule without the first 5 % of the samples.
pub fn grows_after_warm_up(samples: &[Sample]) -> bool {
    grows(&samples[samples.len() / 20..])
}
