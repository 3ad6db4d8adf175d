//! The judgement on one series: growing, slowing, at rest, bounded, or too short to say.
//!
//! The gates and their numbers were chosen on the tuning set of `benches/verdict` and judged on its other set, which
//! was written before and not looked at.

use crate::findings::{Findings, Judgement};
use crate::floors::Floors;
use crate::rising::{rising, rising_by_now};
use crate::shape::Way;
use crate::trend::{Line, line, median, quantile, rise};

/// The growth of a quantity that counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// The least growth over the floors that is worth a verdict.
    pub growth_min: f64,
    /// The least move between two floors that is one.
    pub move_min: f64,
}

/// Bytes: 16 MiB over the run, half a MiB between floors.
pub const BYTES: Scale = Scale { growth_min: 16.0 * 1024.0 * 1024.0, move_min: 512.0 * 1024.0 };
/// Allocations: 16 over the run, one between floors.
pub const COUNT: Scale = Scale { growth_min: 16.0, move_min: 0.5 };
/// The least number of floors that say something.
pub const FLOORS_NEEDED: usize = 8;
/// The least number of steps that say something, however often they were measured: the first ones are those of a
/// process that still sets itself up.
pub const STEPS_NEEDED: u64 = 90;
/// Standard errors of an interval: 99.9 %, half of the rest at each end.
pub const Z: f64 = 3.29;
/// The share of a rise that may be left of it where it is said to have come to rest.
const RISE_LEFT: f64 = 0.02;
/// Steps in the windows whose evenness gives rise to a suspicion.
const EVEN_WINDOW: u64 = 8;

/// The meaning of growth of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Series {
    /// Memory that was asked for and not given back: heap in use, device in use, a buffer's bytes. Growth is a leak.
    InUse,
    /// A total that a keeper holds, in use or not: resident memory, a pool's pages. Its growth may be that of what is
    /// in use.
    Kept,
    /// Memory that a keeper holds beyond what is in use. Growth is memory that is not given back.
    Beyond,
}

/// Judges the floors of a series at the end of a run.
pub fn judge(floors: &Floors, series: Series, scale: Scale) -> Findings {
    let whole = line(&floors.steps, &floors.values, Z);
    let third = floors.last_part(3);
    let late = line(&third.steps, &third.values, Z);
    let short = floors.values.len() < FLOORS_NEEDED || floors.span() < STEPS_NEEDED;
    let rising = if short { None } else { rising(floors, scale) };
    let verdict = match rising {
        _ if short && even(floors, scale) => Judgement::Suspect,
        _ if short => Judgement::Inconclusive,
        Some(rise) if rise.steady && series == Series::Beyond => Judgement::Retained,
        Some(rise) if rise.steady => Judgement::Growing,
        Some(_) => Judgement::Slowing,
        None => not_rising(floors, whole, late, scale),
    };
    let about = rising.map(|rise| rise.line).or(whole);
    Findings {
        verdict,
        floors: floors.values.len(),
        growth: about.map_or(0.0, |line| line.growth),
        slope: about.map(|line| line.slope.middle),
        slope_low: about.map(|line| line.slope.low),
        slope_high: about.map(|line| line.slope.high),
        rise: rise(&floors.values),
        since: rising.map(|rise| rise.since),
        at_rest: matches!(verdict, Judgement::GrewThenFlat | Judgement::Stepped)
            .then(|| at_rest(floors, scale))
            .flatten(),
        late_slope: late.map(|line| line.slope.middle),
        late_slope_high: late.map(|line| line.slope.high),
        more_steps: more_steps(floors, verdict, short),
    }
}

/// The step of the first floor that is as high as the last ones, but for moves that are none.
fn at_rest(floors: &Floors, scale: Scale) -> Option<u64> {
    let values = &floors.values;
    let last = median(&values[values.len() - values.len() / 3..]);
    let rise = (last - values.first()?).max(0.0);
    let enough = last - scale.move_min.min(RISE_LEFT * rise);
    let at = values.iter().position(|value| *value >= enough)?;
    Some(floors.steps[at] as u64)
}

/// Steps that would make it possible to say more.
fn more_steps(floors: &Floors, verdict: Judgement, short: bool) -> Option<u64> {
    let missing = FLOORS_NEEDED.saturating_sub(floors.values.len()) as u64 * floors.length.max(1);
    match verdict {
        Judgement::Inconclusive | Judgement::Suspect if short => {
            Some(missing.max(STEPS_NEEDED.saturating_sub(floors.span())).max(1))
        }
        // Whatever it does: over twice the time it is told apart from noise.
        Judgement::Suspect => Some(floors.span()),
        _ => None,
    }
}

/// Returns whether the newest floors give reason to look, while the run goes on. Never a verdict.
pub fn suspicious(floors: &Floors, scale: Scale) -> bool {
    even(floors, scale) || rising_by_now(floors, scale)
}

/// Returns whether the last four moves are all upwards, to where it never was, beyond the noise, of about one size, and
/// matter together.
fn even(floors: &Floors, scale: Scale) -> bool {
    let mut cut = floors.clone();
    while cut.length < EVEN_WINDOW && cut.values.len() > 1 {
        cut = cut.coarser();
    }
    let Some(start) = cut.values.len().checked_sub(5) else { return false };
    let (before, newest) = cut.values.split_at(start);
    // A tooth of a saw climbs no higher than those before it.
    if before.iter().any(|value| *value > newest[3]) {
        return false;
    }
    let moves: Vec<f64> = newest.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let least = moves.iter().copied().fold(f64::INFINITY, f64::min);
    let most = moves.iter().copied().fold(0.0, f64::max);
    let sum: f64 = moves.iter().sum();
    least > (4.0 * cut.noise).max(scale.move_min) && least >= 0.5 * most && sum >= scale.growth_min
}

/// The judgement on a series that does not rise up to its end: it may have risen before, at once or slowly.
fn not_rising(floors: &Floors, whole: Option<Line>, late: Option<Line>, scale: Scale) -> Judgement {
    let values = &floors.values;
    let third = values.len() / 3;
    let (first, last) = (&values[..third], &values[values.len() - third..]);
    let (Some(whole), Some(late)) = (whole, late) else { return Judgement::Inconclusive };
    let rose = median(last) - median(first);
    let rises_late = late.growth >= 0.5 * scale.growth_min && late.growth > 2.0 * late.error;
    if even(floors, scale) || (rises_late && rose >= scale.growth_min) {
        return Judgement::Suspect;
    }
    // Thirds that overlap: it moves by as much in both directions.
    let overlap = quantile(last, 0.25) <= quantile(first, 0.75);
    if rose < scale.growth_min || overlap {
        let unclear = whole.growth >= scale.growth_min && whole.growth > Z * whole.error;
        return if unclear { Judgement::Suspect } else { Judgement::Bounded };
    }
    // Rest is claimed only where the last third of the run is shown to be flat: by the interval of its slope, by its
    // pace beside that of what came before, and by its ends.
    let begins = floors.first as f64 + floors.span() as f64 * 2.0 / 3.0 - floors.length as f64;
    let end = floors.from(floors.steps.partition_point(|step| *step < begins)).values;
    let edge = end.len().min(3);
    let moved = median(&end[end.len() - edge..]) - median(&end[..edge]);
    let may_rise = late.growth + 2.0 * late.error >= scale.growth_min || late.growth > 0.2 * rose;
    match Way::of(values) {
        Some(way) if !may_rise && (way.largest() >= 7 || way.moves() <= 2) => Judgement::Stepped,
        _ if may_rise || moved >= 0.6 * scale.growth_min => Judgement::Suspect,
        _ => Judgement::GrewThenFlat,
    }
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;
