//! Ticks of an axis, and formatting of numbers.

use xrun_core::units;
use xrun_core::units::UNITS;

/// Unit of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AxisUnit {
    /// Plain number.
    Number,
    /// Size in bytes.
    Bytes,
    /// Duration in seconds.
    Seconds,
}

/// Maximum number of ticks of an axis.
const TICKS_MAX: usize = 12;

/// Round values within `low..=high`, about `wanted` of them, each with its label.
pub fn ticks(unit: AxisUnit, low: f64, high: f64, wanted: usize) -> Vec<(f64, String)> {
    if !(low.is_finite() && high.is_finite() && high > low) {
        return Vec::new();
    }
    let min_step = (high - low) / wanted.max(1) as f64;
    let step = match unit {
        AxisUnit::Number => decimal_step(min_step),
        AxisUnit::Bytes => binary_step(min_step),
        AxisUnit::Seconds => time_step(min_step),
    };
    let first = (low / step).ceil();
    (0..TICKS_MAX)
        .map(|at| (first + at as f64) * step)
        .take_while(|value| *value <= high + step * 1e-9)
        .map(|value| (value, label(unit, value, step)))
        .collect()
}

/// 1, 2 and 5 times the powers of ten within `low..=high`, or only the powers over a wide range. Both ends must be
/// positive.
pub fn logarithmic_ticks(unit: AxisUnit, low: f64, high: f64) -> Vec<(f64, String)> {
    if !(low > 0.0 && high.is_finite() && high > low) {
        return Vec::new();
    }
    let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    let digits: &[f64] = if high / low > 1e3 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let every = ((last - first) as usize / TICKS_MAX + 1).max(1);
    let powers = (first..=last).step_by(every);
    powers
        .flat_map(|power| digits.iter().map(move |digit| digit * 10f64.powi(power)))
        .filter(|tick| (low..=high).contains(tick))
        .map(|tick| (tick, value(unit, tick)))
        .collect()
}

/// Smallest of 1, 2 and 5 times a power of ten that is at least `min_step`.
fn decimal_step(min_step: f64) -> f64 {
    let power = 10f64.powf(min_step.log10().floor());
    let digit = [1.0, 2.0, 5.0].into_iter().find(|digit| digit * power >= min_step * (1.0 - 1e-9)).unwrap_or(10.0);
    digit * power
}

/// Smallest power of two, in bytes, that is at least `min_step`.
fn binary_step(min_step: f64) -> f64 {
    2f64.powf(min_step.max(1.0).log2().ceil())
}

fn time_step(min_step: f64) -> f64 {
    const DAY: f64 = 86_400.0;
    let round = [1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0];
    let long = [2.0 * 3600.0, 3.0 * 3600.0, 6.0 * 3600.0, 12.0 * 3600.0, DAY];
    if min_step <= 0.5 {
        return decimal_step(min_step);
    }
    round.into_iter().chain(long).find(|&step| step >= min_step).unwrap_or_else(|| decimal_step(min_step / DAY) * DAY)
}

fn label(unit: AxisUnit, value: f64, step: f64) -> String {
    match unit {
        _ if value == 0.0 => "0".into(),
        AxisUnit::Number if value.abs() < 1e-3 || value.abs() >= 1e6 => scientific(value),
        AxisUnit::Number => {
            let decimals = (-step.log10().floor()).clamp(0.0, 6.0) as usize;
            trimmed(value, decimals)
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

/// Formats a number of epochs: `1 epoch`, `2.5 epochs`.
pub fn epochs(count: f64) -> String {
    format!("{} epoch{}", number(count), if count == 1.0 { "" } else { "s" })
}

/// Formats a number with about four significant digits: `0.4312`, `12.5`, `2e-5`.
pub fn number(value: f64) -> String {
    if !value.is_finite() {
        return "not a number".into();
    }
    let size = value.abs();
    if size == 0.0 {
        "0".into()
    } else if !(1e-3..1e6).contains(&size) {
        scientific(value)
    } else {
        let decimals = (3 - size.log10().floor() as i32).clamp(0, 4) as usize;
        trimmed(value, decimals)
    }
}

/// Percentage of a fraction: `0.8 %`, `75.1 %`, `1794 %`; one decimal below 100 %.
pub fn percent(fraction: f64) -> String {
    let percentage = 100.0 * fraction;
    if !percentage.is_finite() {
        return "-".into();
    }
    // -0.04 is 0.0, without a sign.
    let rounded = (10.0 * percentage).round() / 10.0 + 0.0;
    let decimals = usize::from(rounded.abs() < 100.0);
    format!("{rounded:.decimals$} %")
}

/// Percentage of a difference, with its sign: `+3.2 %`, `-12.0 %`, `0.0 %`.
pub fn signed_percent(fraction: f64) -> String {
    let text = percent(fraction);
    let is_positive = (10.0 * 100.0 * fraction).round() > 0.0;
    if is_positive { format!("+{text}") } else { text }
}

fn scientific(value: f64) -> String {
    let text = format!("{value:.2e}");
    match text.split_once('e') {
        Some((digits, power)) => format!("{}e{power}", trim_zeros(digits)),
        None => text,
    }
}

fn trimmed(value: f64, decimals: usize) -> String {
    trim_zeros(&format!("{value:.decimals$}")).to_owned()
}

fn trim_zeros(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

/// Formats a size: `1.5 GiB`, `512 MiB`, `0 B`.
pub fn bytes(value: f64) -> String {
    let (size, at) = scaled(value);
    let decimals = if size >= 100.0 || at == 0 { 0 } else { 1 };
    format!("{} {}", trimmed(size, decimals), UNITS[at])
}

/// Formats a size in the unit of `of`, without the unit: `33.9`. Used for the ends of an interval.
pub fn bytes_as(value: f64, of: f64) -> String {
    let (_, at) = scaled(of);
    let size = value / 1024f64.powi(at as i32);
    trimmed(size, if size >= 100.0 || at == 0 { 0 } else { 1 })
}

/// Formats a size with enough decimals to distinguish it from one that is `step` bytes away.
fn bytes_to(value: f64, step: f64) -> String {
    let (size, at) = scaled(value);
    let relative_step = step / 1024f64.powi(at as i32);
    let decimals = (-relative_step.log10().floor()).clamp(0.0, 6.0) as usize;
    format!("{} {}", trimmed(size, decimals), UNITS[at])
}

/// Value in the largest unit of which it is at least one, and the index of that unit.
fn scaled(value: f64) -> (f64, usize) {
    let mut size = value.max(0.0);
    let mut at = 0;
    // A value that would print as 1024 of a unit is one of the next.
    while size >= 1023.5 && at + 1 < UNITS.len() {
        size /= 1024.0;
        at += 1;
    }
    (size, at)
}

/// Formats a duration like `units::seconds`, below a second in milliseconds or microseconds.
pub fn duration(seconds: f64) -> String {
    match seconds {
        _ if seconds <= 0.0 || !seconds.is_finite() => "0 s".into(),
        _ if seconds < 1e-3 => format!("{:.0} µs", seconds * 1e6),
        _ if seconds < 1.0 => format!("{} ms", trimmed(seconds * 1e3, if seconds < 0.01 { 1 } else { 0 })),
        _ => units::seconds(seconds),
    }
}

/// Formats an RFC 3339 time as `2026-11-21 07:14:35 UTC`; other text is returned unchanged.
pub fn utc_time(text: &str) -> String {
    match chrono::DateTime::parse_from_rfc3339(text) {
        Ok(time) => time.with_timezone(&chrono::Utc).format("%Y-%m-%d %H:%M:%S UTC").to_string(),
        Err(_) => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn labels(unit: AxisUnit, low: f64, high: f64) -> Vec<String> {
        ticks(unit, low, high, 5).into_iter().map(|(_, label)| label).collect()
    }

    #[test]
    fn ticks_are_round_and_carry_units() {
        assert_eq!(labels(AxisUnit::Number, 0.0, 200.0), ["0", "50", "100", "150", "200"]);
        assert_eq!(labels(AxisUnit::Number, 0.0, 0.001), ["0", "2e-4", "4e-4", "6e-4", "8e-4", "0.001"]);
        assert_eq!(labels(AxisUnit::Bytes, 0.0, 1.3e9), ["0", "256 MiB", "512 MiB", "768 MiB", "1 GiB"]);
        assert_eq!(labels(AxisUnit::Seconds, 0.0, 150.0), ["0", "0.5 min", "1 min", "1.5 min", "2 min", "2.5 min"]);
        assert_eq!(labels(AxisUnit::Seconds, 0.0, 0.2), ["0", "50 ms", "100 ms", "150 ms", "200 ms"]);
        assert_eq!(labels(AxisUnit::Seconds, 0.0, 40_000.0), ["0", "3 h", "6 h", "9 h"]);
    }

    #[test]
    fn neighbouring_ticks_far_from_zero_have_different_labels() {
        assert_eq!(labels(AxisUnit::Bytes, 98_340_000.0, 98_400_000.0), ["93.8 MiB", "93.81 MiB", "93.83 MiB"]);
    }

    #[test]
    fn numbers_have_about_four_significant_digits() {
        let shown = [0.0, 0.431_24, 12.5, 2e-5, 1234.6, 1.0, 0.05].map(number);
        assert_eq!(shown, ["0", "0.4312", "12.5", "2e-5", "1235", "1", "0.05"]);
        assert_eq!([1.0, 2.5, 4.0].map(epochs), ["1 epoch", "2.5 epochs", "4 epochs"]);
        assert_eq!([0.0, 1023.0, 1536.0, 3e8].map(bytes), ["0 B", "1023 B", "1.5 KiB", "286 MiB"]);
        assert_eq!([0.000_21, 0.0042, 0.43, 185.0].map(duration), ["210 µs", "4.2 ms", "430 ms", "3 min 05 s"]);
    }

    proptest! {
        #[test]
        fn any_range_has_a_bounded_number_of_ticks_inside(low in -1e12f64..1e12, size in 1e-6f64..1e12) {
            for unit in [AxisUnit::Number, AxisUnit::Bytes, AxisUnit::Seconds] {
                let ticks = ticks(unit, low, low + size, 5);
                prop_assert!(ticks.len() <= TICKS_MAX);
                let slack = size * 1e-3 + low.abs() * 1e-9;
                prop_assert!(ticks.iter().all(|(at, _)| *at >= low - slack && *at <= low + size + slack));
            }
        }
    }
}
