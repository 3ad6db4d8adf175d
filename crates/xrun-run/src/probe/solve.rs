//! Search for the largest value of a key with which the experiment fits. Each probe is made at a value that the previous ones
//! predict to fit.

/// Result of a search, with all probes.
#[derive(Clone, Debug, PartialEq)]
pub struct Solution {
    /// Largest value that was measured to fit; `None` if even the smallest does not.
    pub value: Option<u64>,
    /// Reason why the search ended.
    pub end: SearchEnd,
    /// Values that were probed, with the bytes left; negative for one that does not fit.
    pub tried: Vec<(u64, i128)>,
}

/// Reason why a search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchEnd {
    /// The next larger value, or one that is 1 % larger, does not fit.
    Found,
    /// The value is the largest that the key allows.
    LargestAllowed,
    /// Much larger values need no more memory.
    DoesNotMatter,
    /// The largest number of probes was made; larger values may fit.
    GaveUp,
}

/// Largest number of probes.
const PROBES_MAX: usize = 10;
/// Growth that counts as noise of the RSS when the value grows by [`FLAT_FACTOR`].
const FLAT_BYTES: i128 = 2 << 20;
const FLAT_FACTOR: u64 = 8;

/// Finds the largest value from `range.0` to `range.1` for which `left` is not negative, starting at `start`. `left` must
/// decrease as the value increases. The result is exact, or within 1 % of the largest value that fits.
pub fn solve<E>(start: u64, range: (u64, u64), mut left: impl FnMut(u64) -> Result<i128, E>) -> Result<Solution, E> {
    let mut tried: Vec<(u64, i128)> = Vec::with_capacity(PROBES_MAX);
    let mut fits: Option<(u64, i128)> = None;
    let mut too_large: Option<(u64, i128)> = None;
    let mut value = start.clamp(range.0, range.1);
    loop {
        let here = left(value)?;
        tried.push((value, here));
        match here >= 0 {
            true => fits = fits.max(Some((value, here))),
            false => too_large = Some(too_large.map_or((value, here), |known| known.min((value, here)))),
        }
        let next = match (fits, too_large) {
            (Some((low, _)), None) if low == range.1 => None,
            (Some(low), None) if flat(&tried) => {
                return Ok(Solution { value: Some(low.0), end: SearchEnd::DoesNotMatter, tried });
            }
            (Some((low, slack)), None) => Some(upwards(&tried, low, slack).clamp(low + 1, range.1)),
            (None, Some((high, _))) if high == range.0 => None,
            (None, Some((high, lack))) => Some(downwards(&tried, high, lack).clamp(range.0, high - 1)),
            (Some((low, slack)), Some((high, lack))) if high - low > 1 && high - low > low / 100 => {
                // Linear interpolation, with a small safety margin.
                let fraction = slack as f64 / (slack - lack) as f64;
                let guess = low + ((high - low) as f64 * fraction * 0.98) as u64;
                Some(guess.clamp(low + 1, high - 1))
            }
            _ => None,
        };
        match next {
            Some(next) if tried.len() < PROBES_MAX => value = next,
            _ => {
                let value = fits.map(|(value, _)| value);
                let end = match next {
                    Some(_) => SearchEnd::GaveUp,
                    None if value == Some(range.1) => SearchEnd::LargestAllowed,
                    None => SearchEnd::Found,
                };
                return Ok(Solution { value, end, tried });
            }
        }
    }
}

/// Extrapolates the last two probes to the limit; doubles the value after a single probe.
fn upwards(tried: &[(u64, i128)], low: u64, slack: i128) -> u64 {
    let guess = slope(tried).map(|slope| low as f64 + slack as f64 / slope * 0.98);
    // Linear extrapolation is unreliable far beyond the probes.
    let most = low.saturating_mul(8).max(8);
    guess.map_or(low.saturating_mul(2).max(low + 1), |guess| guess as u64).min(most)
}

fn downwards(tried: &[(u64, i128)], high: u64, lack: i128) -> u64 {
    let guess = slope(tried).map(|slope| high as f64 + lack as f64 / slope * 1.02);
    guess.map_or(high / 2, |guess| guess.max(0.0) as u64)
}

/// Bytes per unit of the value, by the last two probes; `None` unless positive.
fn slope(tried: &[(u64, i128)]) -> Option<f64> {
    let [.., (a, left_a), (b, left_b)] = tried else { return None };
    let slope = (left_a - left_b) as f64 / (*b as f64 - *a as f64);
    (slope > 0.0).then_some(slope)
}

/// Returns true if the value grew by [`FLAT_FACTOR`] and the memory did not: the key does not matter.
fn flat(tried: &[(u64, i128)]) -> bool {
    let Some(&(value, left)) = tried.last() else { return false };
    let before = tried.iter().rev().find(|(before, _)| *before > 0 && before.saturating_mul(FLAT_FACTOR) <= value);
    before.is_some_and(|(_, left_before)| left_before - left <= FLAT_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn linear(start: u64, range: (u64, u64), budget: i128, base: i128, each: i128) -> Solution {
        let left = |value: u64| Ok::<_, ()>(budget - base - each * i128::from(value));
        solve(start, range, left).unwrap()
    }

    #[test]
    fn there_is_no_value_if_the_smallest_does_not_fit() {
        let solution = linear(32, (1, 4096), 1_000, 2_000, 10);
        assert_eq!(solution.value, None);
        assert_eq!(solution.tried.last().map(|(value, _)| *value), Some(1), "the smallest was tried");
    }

    #[test]
    fn a_key_that_does_not_matter_differs_from_one_at_its_largest_value() {
        let solution = linear(32, (1, 4096), 1_000_000, 1_000, 0);
        assert_eq!((solution.end, solution.value), (SearchEnd::DoesNotMatter, Some(256)), "{solution:?}");
        let solution = linear(32, (1, 100), 1 << 40, 0, 1 << 20);
        assert_eq!((solution.end, solution.value), (SearchEnd::LargestAllowed, Some(100)), "{solution:?}");
    }

    proptest! {
        #[test]
        fn the_value_found_fits_and_is_within_a_hundredth_of_the_largest(
            start in 1u64..5000, base in 0i128..1_000_000, each in 500_000i128..100_000_000, largest in 1i128..5000,
        ) {
            let budget = base + each * largest + each / 2;
            let found = linear(start, (1, 1_000_000), budget, base, each);
            let value = i128::from(found.value.unwrap());
            prop_assert!(value <= largest && value >= largest - 1 - largest / 50, "{found:?} of {largest}");
        }
    }
}
