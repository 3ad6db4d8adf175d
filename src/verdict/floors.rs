//! What does a series hold at its emptiest? The least of each window: peaks between two cleanups say nothing.

/// Floors of a series: where each window ends, and the least value in it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Floors {
    /// The last step of each window.
    pub steps: Vec<f64>,
    pub values: Vec<f64>,
    /// The spread of the values inside the windows, from their medians: noise that is no trend.
    pub noise: f64,
}

/// How a series is cut into windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    /// Samples up to and with this step are not looked at.
    pub warm_up: u64,
    /// Steps in a window.
    pub length: u64,
}

/// As many of the newest floors are kept.
pub const FLOORS_MAX: usize = 24;

/// How to cut a run of so many steps: the warm-up is 10 % of the steps but at most 100 and at least `settled` (the first
/// full validation and checkpoint); a window is an epoch, or else a multiple of the declared `cadences`, as long as at
/// least ten windows are left.
pub fn windows(steps: u64, settled: u64, steps_per_epoch: u64, cadences: &[u64]) -> Windows {
    const LENGTH_MIN: u64 = 10;
    const WINDOWS_MIN: u64 = 10;
    let warm_up = (steps / 10).min(100).max(settled).min(steps);
    let left = steps - warm_up;
    if steps_per_epoch >= LENGTH_MIN && left / steps_per_epoch >= WINDOWS_MIN {
        return Windows { warm_up, length: steps_per_epoch };
    }
    // The cadences decide as long as that many windows are left.
    let longest = left / WINDOWS_MIN;
    let multiple = |a: u64, b: u64| a / gcd(a, b) * b;
    let common = cadences.iter().copied().filter(|cadence| *cadence > 0).fold(1, |common, cadence| {
        let next = multiple(common, cadence);
        if next <= longest { next } else { common }
    });
    let least = (left / FLOORS_MAX as u64).max(LENGTH_MIN);
    Windows { warm_up, length: least.next_multiple_of(common) }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Cuts points (step and value, by rising step) into windows; the last incomplete one is left out.
pub fn floors(points: impl Iterator<Item = (u64, f64)>, windows: Windows) -> Floors {
    let mut found = Floors::default();
    let mut inside: Vec<f64> = Vec::new();
    let mut spreads = Vec::new();
    let mut current = None;
    let mut close = |number: u64, inside: &mut Vec<f64>, found: &mut Floors| {
        if !inside.is_empty() {
            let least = inside.iter().copied().fold(f64::INFINITY, f64::min);
            found.steps.push((windows.warm_up + (number + 1) * windows.length) as f64);
            found.values.push(least);
            // Of the differences: a trend inside a window is no noise.
            let differences: Vec<f64> = inside.windows(2).map(|pair| pair[1] - pair[0]).collect();
            spreads.push(super::trend::spread(&differences) / std::f64::consts::SQRT_2);
            inside.clear();
        }
    };
    let mut newest = 0;
    for (step, value) in points.filter(|(step, _)| *step > windows.warm_up) {
        let number = (step - windows.warm_up - 1) / windows.length;
        if current.is_some_and(|current| current != number) {
            close(current.unwrap_or_default(), &mut inside, &mut found);
        }
        current = Some(number);
        newest = step;
        inside.push(value);
    }
    if let Some(number) = current
        && newest == windows.warm_up + (number + 1) * windows.length
    {
        close(number, &mut inside, &mut found);
    }
    found.noise = super::trend::median(&spreads);
    let old = found.values.len().saturating_sub(FLOORS_MAX);
    found.steps.drain(..old);
    found.values.drain(..old);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_saw_has_flat_floors() {
        let saw = (1..=200u64).map(|step| (step, 100.0 + (step % 10) as f64));
        let found = floors(saw, Windows { warm_up: 20, length: 20 });
        assert_eq!(found.values, [100.0; 9]);
        assert_eq!(found.steps[0], 40.0);
    }

    #[test]
    fn warm_up_and_an_incomplete_last_window_are_left_out() {
        let rising = (1..=55u64).map(|step| (step, step as f64));
        let found = floors(rising, Windows { warm_up: 10, length: 10 });
        assert_eq!(found.values, [11.0, 21.0, 31.0, 41.0]);
        assert_eq!(found.steps, [20.0, 30.0, 40.0, 50.0]);
    }

    #[test]
    fn only_the_newest_floors_are_kept() {
        let rising = (1..=1000u64).map(|step| (step, step as f64));
        let found = floors(rising, Windows { warm_up: 0, length: 10 });
        assert_eq!((found.values.len(), found.values[0]), (24, 761.0));
    }

    #[test]
    fn windows_cover_cadences_and_leave_enough_of_them() {
        assert_eq!(windows(1200, 0, 0, &[50]), Windows { warm_up: 100, length: 50 });
        assert_eq!(windows(2400, 100, 0, &[10, 25]), Windows { warm_up: 100, length: 100 });
        assert_eq!(windows(490, 49, 49, &[10, 49]), Windows { warm_up: 49, length: 20 });
        assert_eq!(windows(4900, 49, 49, &[10]), Windows { warm_up: 100, length: 49 });
        assert_eq!(windows(5, 0, 0, &[]), Windows { warm_up: 0, length: 10 });
    }
}
