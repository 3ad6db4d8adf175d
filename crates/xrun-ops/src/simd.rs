//! Functions of single values that compilers vectorise, and sums in a fixed order.
//!
//! They are inlined into kernels, which `macerator` compiles once for each instruction set. A sum is taken in [`LANES`] lanes on
//! every machine, and no product is contracted with a sum, so the bits do not depend on the instruction set.

use std::sync::OnceLock;

use macerator::{Arch, Simd, WithSimd};

/// The best instruction set that this processor has, as kernels are compiled for it.
fn arch() -> Arch {
    static DETECTED: OnceLock<Arch> = OnceLock::new();
    #[cfg(test)]
    if let Some(lower) = *LOWER.lock().unwrap_or_else(std::sync::PoisonError::into_inner) {
        return lower;
    }
    *DETECTED.get_or_init(Arch::detect)
}

/// Runs a kernel that is compiled for each instruction set, as far as it and all it calls is `#[inline(always)]`.
#[inline]
pub fn vectorize<R>(kernel: impl FnOnce() -> R) -> R {
    struct Kernel<F>(F);
    impl<R, F: FnOnce() -> R> WithSimd for Kernel<F> {
        type Output = R;

        #[inline(always)]
        fn with_simd<S: Simd>(self) -> R {
            (self.0)()
        }
    }
    // SAFETY: the processor has this instruction set.
    unsafe { arch().dispatch(Kernel(kernel)) }
}

/// An instruction set that this processor has, to be taken in place of the best, by all threads.
#[cfg(test)]
pub static LOWER: std::sync::Mutex<Option<Arch>> = std::sync::Mutex::new(None);

/// Lanes of a sum.
pub const LANES: usize = 32;

/// `e` to the power of `x`: within two units in the last place from -87.3 to 88.3, 0 below, and 2.3e38 above.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    const LOWEST: f32 = -87.33;
    const HIGHEST: f32 = 88.3;
    // The logarithm of two, in two parts: the first times a small integer is exact.
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    // Adding this leaves an integer in the lowest bits, rounded to even.
    const ROUND: f32 = 12_582_912.0;
    // Comparisons are written so that a value that is no number stays so.
    let near = if x < LOWEST { LOWEST } else { x };
    let near = if near > HIGHEST { HIGHEST } else { near };
    let shifted = near * std::f32::consts::LOG2_E + ROUND;
    let power = shifted - ROUND;
    let rest = near - power * LN_2_HIGH - power * LN_2_LOW;
    // Cephes, expf.
    let mut series = 1.987_569_1e-4;
    series = series * rest + 1.398_2e-3;
    series = series * rest + 8.333_452e-3;
    series = series * rest + 4.166_579_6e-2;
    series = series * rest + 1.666_666_5e-1;
    series = series * rest + 0.5;
    let fraction = series * rest * rest + rest + 1.0;
    let exponent = shifted.to_bits().wrapping_sub(ROUND.to_bits()).wrapping_add(127) << 23;
    let value = fraction * f32::from_bits(exponent);
    if x < LOWEST { 0.0 } else { value }
}

/// The error function, within 4e-7.
#[inline(always)]
pub fn erf(x: f32) -> f32 {
    let near = if x < -4.0 { -4.0 } else { x };
    let near = if near > 4.0 { 4.0 } else { near };
    let square = near * near;
    // The rational approximation of Eigen and XLA.
    let mut above = -2.726_142_3e-10;
    for coefficient in [2.770_681_4e-8, -2.101_024e-6, -5.692_506_5e-5, -7.349_906e-4, -2.954_6e-3, -1.609_603_3e-2] {
        above = above * square + coefficient;
    }
    let mut below = -1.456_607_2e-5;
    for coefficient in [-2.133_740_6e-4, -1.682_826_9e-3, -7.373_329e-3, -1.426_473_9e-2] {
        below = below * square + coefficient;
    }
    // From 4 on it is one to the last bit.
    let value = if x >= 4.0 { 1.0 } else { near * above / below };
    if x <= -4.0 { -1.0 } else { value }
}

/// The sum of lanes, by halves.
#[inline(always)]
pub fn reduce(mut lanes: [f32; LANES]) -> f32 {
    let mut half = LANES / 2;
    while half > 0 {
        for lane in 0..half {
            lanes[lane] += lanes[lane + half];
        }
        half /= 2;
    }
    lanes[0]
}

/// The sum of `function` over places `0..length`, which it takes from slices of this length.
macro_rules! lane_sum {
    ($($slice:ident),+; $function:expr) => {{
        let mut lanes = [0.0f32; $crate::simd::LANES];
        $crate::simd::lane_sum!(@chunks lanes, $function; $($slice),+);
        $crate::simd::reduce(lanes)
    }};
    (@chunks $lanes:ident, $function:expr; $a:ident) => {
        let (chunks, rest) = $a.as_chunks::<{ $crate::simd::LANES }>();
        for chunk in chunks {
            for lane in 0..$crate::simd::LANES {
                $lanes[lane] += $function(chunk[lane]);
            }
        }
        for (lane, value) in $lanes.iter_mut().zip(rest) {
            *lane += $function(*value);
        }
    };
    (@chunks $lanes:ident, $function:expr; $a:ident, $b:ident) => {
        let ((a, a_rest), (b, b_rest)) =
            ($a.as_chunks::<{ $crate::simd::LANES }>(), $b.as_chunks::<{ $crate::simd::LANES }>());
        for (a, b) in a.iter().zip(b) {
            for lane in 0..$crate::simd::LANES {
                $lanes[lane] += $function(a[lane], b[lane]);
            }
        }
        for ((lane, a), b) in $lanes.iter_mut().zip(a_rest).zip(b_rest) {
            *lane += $function(*a, *b);
        }
    };
}
pub(crate) use lane_sum;

/// The sum of all values.
#[inline(always)]
pub fn sum(values: &[f32]) -> f32 {
    lane_sum!(values; |value| value)
}

/// The sum of products of values at the same place.
#[inline(always)]
pub fn dot(one: &[f32], other: &[f32]) -> f32 {
    lane_sum!(one, other; |one: f32, other: f32| one * other)
}

/// The least and the greatest value. Those that are no numbers are passed over.
#[inline(always)]
pub fn range(values: &[f32]) -> (f32, f32) {
    let (mut low, mut high) = ([f32::INFINITY; LANES], [f32::NEG_INFINITY; LANES]);
    let (chunks, rest) = values.as_chunks::<LANES>();
    for chunk in chunks {
        for lane in 0..LANES {
            low[lane] = if chunk[lane] < low[lane] { chunk[lane] } else { low[lane] };
            high[lane] = if chunk[lane] > high[lane] { chunk[lane] } else { high[lane] };
        }
    }
    let least = low.iter().chain(rest).fold(f32::INFINITY, |least, value| if *value < least { *value } else { least });
    let most = high.iter().chain(rest).fold(f32::NEG_INFINITY, |most, value| if *value > most { *value } else { most });
    (least, most)
}

/// The greatest value.
#[inline(always)]
pub fn max(values: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let (chunks, rest) = values.as_chunks::<LANES>();
    for chunk in chunks {
        for lane in 0..LANES {
            lanes[lane] = if chunk[lane] > lanes[lane] { chunk[lane] } else { lanes[lane] };
        }
    }
    lanes.iter().chain(rest).fold(f32::NEG_INFINITY, |most, value| if *value > most { *value } else { most })
}

/// Adds values to those at the same place.
#[inline(always)]
pub fn add(to: &mut [f32], values: &[f32]) {
    for (to, value) in to.iter_mut().zip(values) {
        *to += value;
    }
}

/// The sum of vectors of one length, from the first to the last.
pub fn sum_in_order(vectors: impl IntoIterator<Item = Vec<f32>>, length: usize) -> Vec<f32> {
    vectors.into_iter().fold(vec![0.0; length], |mut sum, vector| {
        add(&mut sum, &vector);
        sum
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponentials_are_within_two_units_in_the_last_place() {
        for step in -8733..=8830 {
            let x = step as f32 / 100.0;
            let exact = f64::from(x).exp();
            let relative = (f64::from(exp(x)) - exact).abs() / exact;
            assert!(relative < 2.0 * f64::from(f32::EPSILON), "{x}: {relative}");
        }
        assert_eq!([exp(0.0), exp(-88.0), exp(f32::NEG_INFINITY)], [1.0, 0.0, 0.0]);
        assert!(exp(f32::NAN).is_nan());
        assert!(exp(f32::INFINITY) > 2e38);
    }

    /// The series of Taylor, in 64 bits.
    fn exact_erf(x: f64) -> f64 {
        let (mut term, mut sum) = (x, x);
        for n in 1..200 {
            term *= -x * x / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        sum * 2.0 / std::f64::consts::PI.sqrt()
    }

    #[test]
    fn the_error_function_is_exact_to_4e_7() {
        for step in -400..=400 {
            let x = step as f32 / 100.0;
            assert!((f64::from(erf(x)) - exact_erf(f64::from(x))).abs() < 4e-7, "{x}");
        }
        assert!((erf(9.0) - 1.0).abs() < 1e-6 && (erf(-9.0) + 1.0).abs() < 1e-6);
        assert!(erf(f32::NAN).is_nan());
    }

    #[test]
    fn sums_and_ranges_of_any_length() {
        for count in [1, 7, 31, 32, 33, 100, 1000] {
            let values: Vec<f32> = (0..count).map(|number| number as f32 - 3.0).collect();
            let exact: f32 = values.iter().sum();
            assert_eq!(sum(&values), exact);
            assert_eq!(range(&values), (-3.0, count as f32 - 4.0));
            assert_eq!(max(&values), count as f32 - 4.0);
            assert_eq!(dot(&values, &vec![2.0; count]), 2.0 * exact);
        }
        assert_eq!(range(&[f32::NEG_INFINITY, 1.0, f32::INFINITY]), (f32::NEG_INFINITY, f32::INFINITY));
        assert_eq!(range(&[f32::NAN, 1.0]), (1.0, 1.0));
    }
}
