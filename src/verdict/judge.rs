//! Is one series growing? Floors after the warm-up, an effect that matters, and a shape that is not that of filling up.
//!
//! The gates and their numbers were chosen on simulated runs without and with leaks; a test below repeats the
//! simulation.

use super::floors::Floors;
use super::trend::{rise, slope};
use crate::results::verdict::{Findings, Judgement};

/// What counts as growth of a quantity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// Less growth than this over the floors is not worth a verdict.
    pub growth_min: f64,
    /// A smaller move between two floors is no move.
    pub move_min: f64,
}

/// Bytes: 16 MiB over the run, half a MiB between floors.
pub const BYTES: Scale = Scale { growth_min: 16.0 * 1024.0 * 1024.0, move_min: 512.0 * 1024.0 };
/// Allocations: 16 over the run, one between floors.
pub const COUNT: Scale = Scale { growth_min: 16.0, move_min: 0.5 };
/// Fewer floors say nothing.
pub const FLOORS_NEEDED: usize = 8;
/// Standard deviations for a verdict: 99 % while running, 99.9 % at the end.
const Z_RUNNING: f64 = 2.576;
const Z_FINAL: f64 = 3.09;
/// And for the second half alone, which must not have come to rest.
const Z_SECOND_HALF: f64 = 2.0;

/// Whether growth of a series can be a leak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Series {
    /// What was asked for and not given back: heap in use, device in use, a buffer's bytes.
    InUse,
    /// What a keeper may hold on to: resident memory, a pool's pages.
    Kept,
}

/// Judges the floors of a series at the end of a run.
pub fn judge(floors: &Floors, series: Series, scale: Scale) -> Findings {
    let values = &floors.values;
    let found = slope(&floors.steps, values, Z_FINAL);
    let span = match (floors.steps.first(), floors.steps.last()) {
        (Some(first), Some(last)) => last - first,
        _ => 0.0,
    };
    let growth = found.map_or(0.0, |found| found.middle * span);
    let verdict = match values.len() {
        count if count < FLOORS_NEEDED && suspect(floors, scale) => Judgement::Suspect,
        count if count < FLOORS_NEEDED => Judgement::Inconclusive,
        _ if grows(floors, Z_FINAL, scale) && still_grows(floors, scale) => Judgement::Growing,
        _ if suspect(floors, scale) => Judgement::Suspect,
        _ => at_rest(values, scale),
    };
    let verdict = match (series, verdict) {
        (Series::Kept, Judgement::Growing | Judgement::Suspect) => Judgement::Retained,
        (_, verdict) => verdict,
    };
    Findings {
        verdict,
        floors: values.len(),
        growth,
        slope: found.map(|found| found.middle),
        slope_low: found.map(|found| found.low),
        slope_high: found.map(|found| found.high),
        rise: rise(values),
    }
}

/// Whether the newest floors give reason to look, while the run goes on. Never a verdict.
pub fn suspicious(floors: &Floors, scale: Scale) -> bool {
    suspect(floors, scale) || grows(floors, Z_RUNNING, scale)
}

/// The last four moves are all upwards, beyond the noise, of about one size, and matter together.
fn suspect(floors: &Floors, scale: Scale) -> bool {
    let Some(newest) = floors.values.len().checked_sub(5).map(|start| &floors.values[start..]) else { return false };
    let moves: Vec<f64> = newest.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let least = moves.iter().copied().fold(f64::INFINITY, f64::min);
    let most = moves.iter().copied().fold(0.0, f64::max);
    let sum: f64 = moves.iter().sum();
    least > (4.0 * floors.noise).max(scale.move_min) && least >= 0.5 * most && sum >= scale.growth_min
}

fn grows(floors: &Floors, z: f64, scale: Scale) -> bool {
    let needed = scale.growth_min.max(0.005 * floors.values.first().copied().unwrap_or_default());
    floors.values.len() >= FLOORS_NEEDED
        && rises(&floors.steps, &floors.values, z, needed)
        && moves_up(&floors.values, scale)
        && halves_agree(&floors.steps, &floors.values)
}

/// Slope and rank statistic both say so, and it amounts to `needed`.
fn rises(steps: &[f64], values: &[f64], z: f64, needed: f64) -> bool {
    let span = steps[steps.len() - 1] - steps[0];
    slope(steps, values, z).is_some_and(|found| found.low > 0.0 && found.middle * span >= needed) && rise(values) > z
}

/// Growth is many moves: a step is one.
fn moves_up(values: &[f64], scale: Scale) -> bool {
    let count = |up: f64| values.windows(2).filter(|pair| up * (pair[1] - pair[0]) > scale.move_min).count();
    let (ups, downs) = (count(1.0), count(-1.0));
    ups >= 3 && ups as f64 - downs as f64 >= 0.3 * (values.len() - 1) as f64
}

/// The second half rises at least 0.6 times as fast as the first: what fills up slows down.
fn halves_agree(steps: &[f64], values: &[f64]) -> bool {
    let half = values.len() / 2;
    let early = slope(&steps[..=half], &values[..=half], 0.0).map_or(0.0, |found| found.middle);
    let late = slope(&steps[half..], &values[half..], 0.0).map_or(0.0, |found| found.middle);
    early > 0.0 && late >= 0.6 * early
}

/// The second half alone still grows; asked only where it has enough floors.
fn still_grows(floors: &Floors, scale: Scale) -> bool {
    let count = floors.values.len();
    if count < 16 {
        return true;
    }
    let (steps, values) = (&floors.steps[count / 2..], &floors.values[count / 2..]);
    rises(steps, values, Z_SECOND_HALF, scale.growth_min / 2.0) && halves_agree(steps, values)
}

/// What is not growing: did it rise before it came to rest, at once or slowly?
fn at_rest(values: &[f64], scale: Scale) -> Judgement {
    let (Some(first), Some(last)) = (values.first(), values.last()) else { return Judgement::Inconclusive };
    if last - first < scale.growth_min {
        return Judgement::Bounded;
    }
    let ups: Vec<f64> = values.windows(2).map(|pair| pair[1] - pair[0]).filter(|up| *up > scale.move_min).collect();
    let largest = ups.iter().copied().fold(0.0, f64::max);
    match ups.len() <= 2 || largest >= 0.8 * (last - first) {
        true => Judgement::Stepped,
        false => Judgement::GrewThenFlat,
    }
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;
