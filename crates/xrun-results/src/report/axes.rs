//! Ticks of an axis, and values in its unit.

use super::formatting::{bytes, bytes_to, duration, number, scientific, trimmed};

/// Unit of an axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AxisUnit {
    /// Plain number.
    #[default]
    Number,
    /// Size in bytes.
    Bytes,
    /// Duration in seconds.
    Seconds,
}

/// Maximum number of ticks of an axis.
const TICKS_MAX: usize = 16;
/// Minimum number of ticks from which values can be read.
const TICKS_MIN: usize = 4;

/// Round values within `low..=high`, at least `ticks_min` of them with the largest step that has as many, each with its
/// label.
pub fn ticks(unit: AxisUnit, low: f64, high: f64, ticks_min: usize) -> Vec<(f64, String)> {
    if !(low.is_finite() && high.is_finite() && high > low) {
        return Vec::new();
    }
    let with_step = |step: f64| -> Vec<(f64, String)> {
        let first = (low / step).ceil();
        (0..TICKS_MAX)
            .map(|at| (first + at as f64) * step)
            .take_while(|value| *value <= high + step * 1e-9)
            .map(|value| (value, label(unit, value, step)))
            .collect()
    };
    let mut step = round_step(unit, (high - low) / ticks_min.saturating_sub(1).max(1) as f64);
    let mut found = with_step(step);
    while found.len() < ticks_min {
        let smaller = round_step(unit, step * (1.0 - 1e-6));
        // A byte has no parts, and a float has no smaller differences at some point.
        if smaller >= step || smaller * 1e12 < high.abs().max(low.abs()) {
            break;
        }
        step = smaller;
        found = with_step(step);
    }
    found
}

/// Largest step at which values are easily read that is at most `most`.
fn round_step(unit: AxisUnit, most: f64) -> f64 {
    match unit {
        AxisUnit::Number => decimal_step(most),
        AxisUnit::Bytes => 2f64.powf(most.max(1.0).log2().floor()),
        AxisUnit::Seconds => time_step(most),
    }
}

/// Powers of ten within `low..=high`, with one or two values between them where they are few. Over less than a decade,
/// round values as on a linear axis. Both ends must be positive.
pub fn logarithmic_ticks(unit: AxisUnit, low: f64, high: f64) -> Vec<(f64, String)> {
    if !(low > 0.0 && high.is_finite() && high > low) {
        return Vec::new();
    }
    let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    let every = ((last - first) as usize / 8 + 1).max(1);
    let with_digits = |digits: &'static [f64]| -> Vec<(f64, String)> {
        (first..=last)
            .step_by(every)
            .flat_map(|power| digits.iter().map(move |digit| digit * 10f64.powi(power)))
            .filter(|tick| (low..=high).contains(tick))
            .map(|tick| (tick, value(unit, tick)))
            .collect()
    };
    let sets: [&[f64]; 3] = [&[1.0], &[1.0, 3.0], &[1.0, 2.0, 5.0]];
    let enough = sets.into_iter().map(with_digits).find(|ticks| ticks.len() >= TICKS_MIN);
    let mut found = enough.unwrap_or_else(|| ticks(unit, low, high, TICKS_MIN));
    // Equal steps are narrow at the upper end, where labels would overlap.
    let apart = (high / low).powf(LABELS_APART);
    let mut last = 0.0;
    found.retain(|(tick, _)| {
        let fits = *tick >= last * apart;
        last = if fits { *tick } else { last };
        fits
    });
    found
}

/// Minimum distance between labels as a fraction of a logarithmic axis.
const LABELS_APART: f64 = 0.11;

/// Largest of 1, 2, 2.5 and 5 times a power of ten that is at most `most`.
fn decimal_step(most: f64) -> f64 {
    let power = 10f64.powf(most.log10().floor());
    let digit = [5.0, 2.5, 2.0].into_iter().find(|digit| digit * power <= most * (1.0 + 1e-9)).unwrap_or(1.0);
    digit * power
}

fn time_step(most: f64) -> f64 {
    const DAY: f64 = 86_400.0;
    let round = [1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0];
    let long = [2.0 * 3600.0, 3.0 * 3600.0, 6.0 * 3600.0, 12.0 * 3600.0];
    match most {
        short if short < 1.0 => decimal_step(short),
        days if days >= DAY => decimal_step(days / DAY).max(1.0) * DAY,
        _ => round.into_iter().chain(long).rfind(|step| *step <= most * (1.0 + 1e-9)).unwrap_or(1.0),
    }
}

fn label(unit: AxisUnit, value: f64, step: f64) -> String {
    match unit {
        _ if value == 0.0 => "0".into(),
        AxisUnit::Number if value.abs() < 1e-3 || value.abs() >= 1e6 => scientific(value),
        AxisUnit::Number => {
            // A step such as 0.25 has one decimal more than its power of ten.
            let power = -step.log10().floor();
            let whole = step * 10f64.powf(power);
            let decimals = power + if (whole - whole.round()).abs() > 1e-6 { 1.0 } else { 0.0 };
            trimmed(value, decimals.clamp(0.0, 6.0) as usize)
        }
        AxisUnit::Bytes => bytes_to(value, step),
        AxisUnit::Seconds if step < 0.1 => format!("{} ms", trimmed(value * 1e3, 1)),
        AxisUnit::Seconds if step < 30.0 => format!("{} s", trimmed(value, 1)),
        AxisUnit::Seconds if step < 1_800.0 => format!("{} min", trimmed(value / 60.0, 1)),
        AxisUnit::Seconds if step < 86_400.0 => format!("{} h", trimmed(value / 3_600.0, 1)),
        AxisUnit::Seconds => format!("{} d", trimmed(value / 86_400.0, 1)),
    }
}

/// Formats a value: numbers with four digits, bytes in IEC units, durations with their unit.
pub fn value(unit: AxisUnit, value: f64) -> String {
    match unit {
        AxisUnit::Number => number(value),
        AxisUnit::Bytes => bytes(value),
        AxisUnit::Seconds => duration(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn labels(unit: AxisUnit, low: f64, high: f64) -> Vec<String> {
        ticks(unit, low, high, 4).into_iter().map(|(_, label)| label).collect()
    }

    #[test]
    fn ticks_are_round_carry_units_and_are_four_or_more() {
        assert_eq!(labels(AxisUnit::Number, 0.0, 200.0), ["0", "50", "100", "150", "200"]);
        assert_eq!(labels(AxisUnit::Number, 0.0, 0.56), ["0", "0.1", "0.2", "0.3", "0.4", "0.5"]);
        assert_eq!(labels(AxisUnit::Number, 0.0, 0.9), ["0", "0.25", "0.5", "0.75"]);
        assert_eq!(labels(AxisUnit::Number, 0.0, 0.001), ["0", "2.5e-4", "5e-4", "7.5e-4", "0.001"]);
        assert_eq!(labels(AxisUnit::Bytes, 0.0, 1.3e9), ["0", "256 MiB", "512 MiB", "768 MiB", "1 GiB"]);
        assert_eq!(labels(AxisUnit::Seconds, 0.0, 150.0), ["0", "0.5 min", "1 min", "1.5 min", "2 min", "2.5 min"]);
        assert_eq!(labels(AxisUnit::Seconds, 0.0, 0.2), ["0", "50 ms", "100 ms", "150 ms", "200 ms"]);
        assert_eq!(labels(AxisUnit::Seconds, 0.0, 40_000.0), ["0", "3 h", "6 h", "9 h"]);
    }

    #[test]
    fn a_logarithmic_axis_has_four_ticks_or_more_over_any_range() {
        let labels = |low: f64, high: f64| -> Vec<String> {
            logarithmic_ticks(AxisUnit::Number, low, high).into_iter().map(|(_, label)| label).collect()
        };
        assert_eq!(labels(0.008, 9.0), ["0.01", "0.03", "0.1", "0.3", "1", "3"]);
        assert_eq!(labels(1e-5, 10.0), ["1e-5", "1e-4", "0.001", "0.01", "0.1", "1", "10"]);
        assert_eq!(labels(4.0, 60.0), ["5", "10", "20", "50"]);
        assert_eq!(labels(2.0, 3.6), ["2", "2.5", "3", "3.5"]);
        assert_eq!(labels(3e-4, 3e-3), ["5e-4", "0.001", "0.0015", "0.002", "0.003"]);
    }

    #[test]
    fn neighbouring_ticks_far_from_zero_have_different_labels() {
        assert_eq!(
            labels(AxisUnit::Bytes, 98_340_000.0, 98_400_000.0),
            ["93.789 MiB", "93.797 MiB", "93.805 MiB", "93.812 MiB", "93.82 MiB", "93.828 MiB", "93.836 MiB"]
        );
    }

    proptest! {
        #[test]
        fn any_range_has_a_bounded_number_of_ticks_inside(low in -1e12f64..1e12, size in 1e-6f64..1e12) {
            for unit in [AxisUnit::Number, AxisUnit::Bytes, AxisUnit::Seconds] {
                let ticks = ticks(unit, low, low + size, 4);
                prop_assert!(ticks.len() <= TICKS_MAX);
                let slack = size * 1e-3 + low.abs() * 1e-9;
                prop_assert!(ticks.iter().all(|(at, _)| *at >= low - slack && *at <= low + size + slack));
            }
        }
    }
}
