//! Sizes and durations as text.

/// Units of size, each 1,024 times the one before.
pub const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/// Returns a size in the unit in which it prints below 1024, and the index of that unit in [`UNITS`].
fn scaled(mut size: f64) -> (f64, usize) {
    let mut at = 0;
    // 1023.96 KiB are 1.0 MiB.
    while at + 1 < UNITS.len() && size >= if at == 0 { 1023.5 } else { 1023.95 } {
        (size, at) = (size / 1024.0, at + 1);
    }
    (size, at)
}

/// Size as text: `512 B`, `1.0 MiB`.
pub fn bytes(count: u64) -> String {
    let (size, at) = scaled(count as f64);
    format!("{size:.*} {}", usize::from(at > 0), UNITS[at])
}

/// Interval of sizes in the unit of the larger one: `0.9 to 1.1 MiB`. Sizes may be negative.
pub fn interval(low: f64, high: f64) -> String {
    let (_, at) = scaled(low.abs().max(high.abs()));
    format!("{} to {} {}", in_unit(low, at), in_unit(high, at), UNITS[at])
}

/// Size and its interval in one unit, that of the size or of the interval: `434.5 KiB (300.0 to 2150.4 KiB)`.
pub fn with_interval(size: f64, (low, high): (f64, f64), between: &str) -> String {
    let (_, widest) = scaled(low.abs().max(high.abs()));
    let at = scaled(size.abs()).1.max(widest.saturating_sub(1));
    let [size, low, high] = [size, low, high].map(|value| in_unit(value, at));
    let unit = UNITS[at];
    format!("{size} {unit} {between} ({low} to {high} {unit})")
}

/// Number of a size in a unit.
fn in_unit(value: f64, at: usize) -> String {
    let text = format!("{:.*}", usize::from(at > 0), value / 1024f64.powi(at as i32));
    // No `-0.0`.
    if text.starts_with('-') && !text.contains(|c: char| ('1'..='9').contains(&c)) {
        text[1..].to_owned()
    } else {
        text
    }
}

/// Duration as text: `0.4 s`, `12 s`, `3 min 05 s`, `2 h 10 min`.
pub fn seconds(value: f64) -> String {
    let whole = value.max(0.0) as u64;
    match whole {
        0..10 => format!("{value:.1} s"),
        10..60 => format!("{whole} s"),
        60..3600 => format!("{} min {:02} s", whole / 60, whole % 60),
        _ => format!("{} h {:02} min", whole / 3600, whole / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_unit_is_chosen_after_rounding_and_an_interval_has_one() {
        assert_eq!(bytes((1 << 20) - 1), "1.0 MiB");
        assert_eq!(bytes(1000 << 10), "1000.0 KiB");
        assert_eq!(interval(1_048_560.0, 1_048_600.0), "1.0 to 1.0 MiB");
        assert_eq!(interval(943_718.0, 1_153_434.0), "0.9 to 1.1 MiB");
        assert_eq!(interval(-2048.0, 512.0), "-2.0 to 0.5 KiB");
        assert_eq!(interval(-1.0, 4096.0), "0.0 to 4.0 KiB");
        assert_eq!(interval(0.0, 0.0), "0 to 0 B");
        let speed = |size, interval| with_interval(size, interval, "a step");
        assert_eq!(speed(444_928.0, (307_200.0, 2_202_009.0)), "434.5 KiB a step (300.0 to 2150.4 KiB)");
        assert_eq!(speed(20.0, (-5e6, 5e6)), "0.0 KiB a step (-4882.8 to 4882.8 KiB)");
    }

    #[test]
    fn seconds_print_for_people() {
        assert_eq!(seconds(0.43), "0.4 s");
        assert_eq!(seconds(185.0), "3 min 05 s");
        assert_eq!(seconds(7_800.0), "2 h 10 min");
    }

    proptest! {
        #[test]
        fn a_size_has_at_most_four_digits_before_the_point(count in any::<u64>(), shift in 0..64) {
            let text = bytes(count >> shift);
            let number: f64 = text.split(' ').next().unwrap().parse().unwrap();
            prop_assert!(number < 1024.0, "{text}");
        }
    }
}
