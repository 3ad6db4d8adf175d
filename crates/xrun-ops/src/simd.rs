//! Building blocks of vectorised kernels: elementwise functions, and reductions in a fixed order.
//!
//! They are inlined into kernels, which `macerator` compiles once for each instruction set. Reductions accumulate in [`LANES`]
//! lanes on every machine and there is no fused multiply-add, so the bits do not depend on the instruction set.

use std::sync::OnceLock;

use macerator::{Arch, Simd, WithSimd};

/// Returns the best instruction set of this processor among those that kernels are compiled for.
fn arch() -> Arch {
    static DETECTED: OnceLock<Arch> = OnceLock::new();
    #[cfg(test)]
    if let Some(forced) = *FORCED_ARCH.lock().unwrap_or_else(std::sync::PoisonError::into_inner) {
        return forced;
    }
    *DETECTED.get_or_init(Arch::detect)
}

/// Runs a kernel compiled for the instruction set of this processor; it and its callees must be `#[inline(always)]`.
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
    // SAFETY: `arch` returns an instruction set that the processor has.
    unsafe { arch().dispatch(Kernel(kernel)) }
}

/// Instruction set to use in place of the best one, on all threads; the processor must have it.
#[cfg(test)]
pub static FORCED_ARCH: std::sync::Mutex<Option<Arch>> = std::sync::Mutex::new(None);

/// Number of accumulators of a reduction.
pub const LANES: usize = 32;

/// Returns `e^x`, within 2 ulp for x from -87.3 to 88.3; 0 below, and 2.3e38 above. NaN stays NaN.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    const LOWEST: f32 = -87.33;
    const HIGHEST: f32 = 88.3;
    // ln 2 in two parts: the product of the first with a small integer is exact.
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    // 1.5 * 2^23: adding it rounds to the nearest integer, which is then in the lowest bits.
    const ROUND: f32 = 12_582_912.0;
    // Written so that NaN stays NaN.
    let clamped = if x < LOWEST { LOWEST } else { x };
    let clamped = if clamped > HIGHEST { HIGHEST } else { clamped };
    let shifted = clamped * std::f32::consts::LOG2_E + ROUND;
    let power = shifted - ROUND;
    let rest = clamped - power * LN_2_HIGH - power * LN_2_LOW;
    // Polynomial of Cephes' expf.
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

/// Returns the error function of `x`, within 4e-7. NaN stays NaN.
#[inline(always)]
pub fn erf(x: f32) -> f32 {
    let clamped = if x < -4.0 { -4.0 } else { x };
    let clamped = if clamped > 4.0 { 4.0 } else { clamped };
    let square = clamped * clamped;
    // Rational approximation of Eigen and XLA.
    let mut numerator = -2.726_142_3e-10;
    for coefficient in [2.770_681_4e-8, -2.101_024e-6, -5.692_506_5e-5, -7.349_906e-4, -2.954_6e-3, -1.609_603_3e-2] {
        numerator = numerator * square + coefficient;
    }
    let mut denominator = -1.456_607_2e-5;
    for coefficient in [-2.133_740_6e-4, -1.682_826_9e-3, -7.373_329e-3, -1.426_473_9e-2] {
        denominator = denominator * square + coefficient;
    }
    // From 4 on, erf rounds to 1.
    let value = if x >= 4.0 { 1.0 } else { clamped * numerator / denominator };
    if x <= -4.0 { -1.0 } else { value }
}

/// Returns the pairwise sum of the lanes.
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

/// Sum of an elementwise function of one or two slices of the same length.
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

/// Returns the sum of the values.
#[inline(always)]
pub fn sum(values: &[f32]) -> f32 {
    lane_sum!(values; |value| value)
}

/// Returns the dot product of two slices of the same length.
#[inline(always)]
pub fn dot(one: &[f32], other: &[f32]) -> f32 {
    lane_sum!(one, other; |one: f32, other: f32| one * other)
}

/// Returns the minimum and the maximum, ignoring NaN.
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
    let low = low.iter().chain(rest).fold(f32::INFINITY, |low, value| if *value < low { *value } else { low });
    let high = high.iter().chain(rest).fold(f32::NEG_INFINITY, |high, value| if *value > high { *value } else { high });
    (low, high)
}

/// Returns the maximum, ignoring NaN.
#[inline(always)]
pub fn max(values: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let (chunks, rest) = values.as_chunks::<LANES>();
    for chunk in chunks {
        for lane in 0..LANES {
            lanes[lane] = if chunk[lane] > lanes[lane] { chunk[lane] } else { lanes[lane] };
        }
    }
    lanes.iter().chain(rest).fold(f32::NEG_INFINITY, |high, value| if *value > high { *value } else { high })
}

/// Adds `values` to `to`, elementwise.
#[inline(always)]
pub fn add(to: &mut [f32], values: &[f32]) {
    for (to, value) in to.iter_mut().zip(values) {
        *to += value;
    }
}

/// [`add`], outside of kernels.
pub fn accumulate(to: &mut [f32], values: &[f32]) {
    vectorize(
        #[inline(always)]
        || add(to, values),
    )
}

/// Returns the elementwise sum of vectors of one length, from the first to the last.
pub fn sum_in_order(vectors: impl IntoIterator<Item = Vec<f32>>, length: usize) -> Vec<f32> {
    vectors.into_iter().fold(vec![0.0; length], |mut sum, vector| {
        accumulate(&mut sum, &vector);
        sum
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_within_2_ulp() {
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

    /// Taylor series in 64 bits.
    fn exact_erf(x: f64) -> f64 {
        let (mut term, mut sum) = (x, x);
        for n in 1..200 {
            term *= -x * x / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        sum * 2.0 / std::f64::consts::PI.sqrt()
    }

    #[test]
    fn erf_is_within_4e_7() {
        for step in -400..=400 {
            let x = step as f32 / 100.0;
            assert!((f64::from(erf(x)) - exact_erf(f64::from(x))).abs() < 4e-7, "{x}");
        }
        assert!((erf(9.0) - 1.0).abs() < 1e-6 && (erf(-9.0) + 1.0).abs() < 1e-6);
        assert!(erf(f32::NAN).is_nan());
    }

    #[test]
    fn reductions_of_any_length() {
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
