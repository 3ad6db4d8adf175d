//! Rises that go on to the end of a series, and their beginning.

use crate::floors::Floors;
use crate::judge::{FLOORS_NEEDED, STEPS_NEEDED, Scale, Z};
use crate::shape::{Way, bend, rests};
use crate::trend::{Line, line, quantile, rise};

/// A rise that goes on to the end.
#[derive(Clone, Copy, Debug)]
pub struct Rise {
    /// Through the part that was looked at.
    pub line: Line,
    /// The step at which it began.
    pub since: u64,
    /// It is as fast at its end as it was before.
    pub steady: bool,
}

/// The least growth, in its standard errors.
const ERRORS: f64 = 4.0;
/// The number of places from which on a rise is looked for.
const STARTS: usize = 10;
/// The most floors that are looked at while a run goes on.
const FLOORS_BY_NOW: usize = 32;
/// The share of the pace of what came before below which it is slower.
const SLOWER: f64 = 0.75;

/// Looks for a rise that goes on to the end: in all floors, and in those after each of some places; as they are, and
/// made coarser, since the teeth of a slow saw need long windows. The first steady one counts, of the longest part of
/// the finest windows; or else one that slows down.
pub fn rising(floors: &Floors, scale: Scale) -> Option<Rise> {
    let mut slowing: Option<Rise> = None;
    let mut cut = floors.clone();
    while cut.values.len() >= FLOORS_NEEDED && cut.reach() >= scale.growth_min / 2.0 {
        for part in 0..STARTS {
            match rises_from(&cut, cut.values.len() * part / STARTS, scale) {
                Some(rise) if rise.steady => return Some(rise),
                found => slowing = slowing.or(found),
            }
        }
        cut = cut.coarser();
    }
    slowing
}

/// The same while a run goes on: a look at fewer floors, since it is taken often.
pub fn rising_by_now(floors: &Floors, scale: Scale) -> bool {
    let mut cut = floors.clone();
    while cut.values.len() > FLOORS_BY_NOW {
        cut = cut.coarser();
    }
    cut.span() >= STEPS_NEEDED && rising(&cut, scale).is_some_and(|rise| rise.steady)
}

fn rises_from(floors: &Floors, start: usize, scale: Scale) -> Option<Rise> {
    let part = floors.from(start);
    let (steps, values) = (&part.steps, &part.values);
    let count = values.len();
    if count < FLOORS_NEEDED {
        return None;
    }
    let line = line(steps, values, Z)?;
    // What rises from the end of the warm-up on rose in it, too.
    let in_warm_up = if start == 0 { line.slope.middle * floors.warm_up as f64 } else { 0.0 };
    let matters = line.growth + in_warm_up >= scale.growth_min;
    if !matters || line.growth <= ERRORS * line.error || rise(values) <= Z {
        return None;
    }
    // It is higher than before: its last third than its first one, and than all that came before it.
    let third = count / 3;
    let low_end = quantile(&values[count - third..], 0.25);
    let new = start == 0 || low_end > quantile(&floors.values[..start], 0.98);
    if !new || low_end <= quantile(&values[..third], 0.75) {
        return None;
    }
    // In several moves, without so long a stay that it may have stopped.
    let way = Way::of(values)?;
    let stay = way.longest_stay();
    if way.moves() < 4 || way.largest() > 5 || 10 * stay > 3 * count {
        return None;
    }
    // The last third rises as the whole does, or is too noisy to say that it does not.
    let end = part.last_part(3);
    let late = self::line(&end.steps, &end.values, 0.0)?;
    let expected = line.slope.middle * (end.steps[end.steps.len() - 1] - end.steps[0]);
    if late.growth < 0.3 * expected || (late.growth < 0.4 * expected && expected - late.growth > 2.0 * late.error) {
        return None;
    }
    let rested = rests(steps, values, line.slope.middle, stay);
    if rested && rests(&end.steps, &end.values, late.slope.middle, stay) {
        return None;
    }
    let steady = !rested && !slows(&part) && !faster_before(floors, start, &line);
    Some(Rise { line, since: since(floors, start), steady })
}

/// The step at which the rise began that lasts from `start` on: at its bend, or where a slower rise began that led to
/// it.
fn since(floors: &Floors, start: usize) -> u64 {
    let part = floors.from(start);
    let mut at = start + bend(&part.steps, &part.values);
    while let Some(earlier) = rise_before(floors, at) {
        at = earlier;
    }
    // The warm-up is not looked at: what rises from its end on may have begun in it.
    match at {
        0 => floors.first,
        at => (floors.steps[at] as u64 + 1).saturating_sub(floors.length),
    }
}

/// Returns where a rise began that led up to `at` without a rest.
fn rise_before(floors: &Floors, at: usize) -> Option<usize> {
    let lengths = [1, 2, 4].into_iter().map(|part| at / part).filter(|length| *length >= FLOORS_NEEDED);
    lengths.map(|length| at - length).find_map(|begin| {
        let (steps, values) = (&floors.steps[begin..=at], &floors.values[begin..=at]);
        let whole = line(steps, values, 0.0)?;
        let half = values.len() / 2;
        let late = line(&steps[half..], &values[half..], 0.0)?;
        let rises = whole.growth > 3.0 * whole.error && rise(values) > Z && late.growth > 0.25 * whole.growth;
        let earlier = begin + bend(steps, values);
        (rises && earlier < at).then_some(earlier)
    })
}

/// Returns whether the second half rises clearly slower than the first.
fn slows(floors: &Floors) -> bool {
    let half = floors.values.len() / 2;
    let early = line(&floors.steps[..=half], &floors.values[..=half], 0.0);
    let late = line(&floors.steps[half..], &floors.values[half..], 0.0);
    let (Some(early), Some(late)) = (early, late) else { return false };
    late.growth < SLOWER * early.growth && early.growth - late.growth > 2.0 * early.error.hypot(late.error)
}

/// Returns whether what lies before a part rose faster, and did not rest between.
fn faster_before(floors: &Floors, start: usize, part: &Line) -> bool {
    let (steps, values) = (&floors.steps[..start], &floors.values[..start]);
    let Some(whole) = (start >= 2).then(|| line(steps, values, 0.0)).flatten() else { return false };
    if whole.slope.middle <= part.slope.middle / SLOWER {
        return false;
    }
    let near = start.saturating_sub((start / 3).max(6));
    let rested =
        line(&steps[near..], &values[near..], 0.0).is_some_and(|line| line.slope.middle < 0.5 * part.slope.middle);
    !rested
}
