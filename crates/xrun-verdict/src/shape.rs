//! The way of a series to where it is: evenly, in stairs or at once, and since when.

use crate::trend::{line, median};

/// The number of equal parts into which the way is cut.
const PARTS: usize = 10;

/// The positions at which a series passed each tenth of its way for good.
#[derive(Clone, Debug, PartialEq)]
pub struct Way {
    /// Positions, from the first tenth to the ninth.
    passed: Vec<usize>,
    /// The number of positions.
    count: usize,
}

impl Way {
    /// The way of a series without single outliers: each value the median of its neighbourhood, and what it never falls
    /// below again. `None` where it ends no higher than it began.
    pub fn of(values: &[f64]) -> Option<Self> {
        let kept = kept(values);
        let (first, last) = (*kept.first()?, *kept.last()?);
        let way = last - first;
        let passed = |part: usize| kept.partition_point(|value| *value < first + way * part as f64 / PARTS as f64);
        (way > 0.0).then(|| Self { passed: (1..PARTS).map(passed).collect(), count: values.len() })
    }

    /// The number of different positions at which it was passed on.
    pub fn moves(&self) -> usize {
        let mut places = self.passed.clone();
        places.dedup();
        places.len()
    }

    /// The most tenths that were passed at one position, or at its neighbour.
    pub fn largest(&self) -> usize {
        let near = |at: usize| self.passed.iter().filter(|place| (at..=at + 1).contains(place)).count();
        self.passed.iter().map(|place| near(*place)).max().unwrap_or_default()
    }

    /// The longest stay between two moves.
    pub fn longest_stay(&self) -> usize {
        self.passed.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_default()
    }
}

/// The value below which a series never falls again, at each position.
fn kept(values: &[f64]) -> Vec<f64> {
    let reach = (values.len() / 20).max(1);
    let around = |at: usize| &values[at.saturating_sub(reach)..(at + reach + 1).min(values.len())];
    let mut kept: Vec<f64> = (0..values.len()).map(|at| median(around(at))).collect();
    for at in (1..kept.len()).rev() {
        kept[at - 1] = kept[at - 1].min(kept[at]);
    }
    kept
}

/// The position where a series that rises at its end began to: the bend of the level line and the rising one through it
/// that fit best. 0 where a bend fits no better than one line.
pub fn bend(places: &[f64], values: &[f64]) -> usize {
    let Some(straight) = fit(places, values, 0) else { return 0 };
    let candidates = (1..values.len().saturating_sub(3)).filter_map(|at| Some((at, fit(places, values, at)?)));
    match candidates.min_by(|a, b| a.1.total_cmp(&b.1)) {
        // A level begin must explain a third of what the line does not.
        Some((at, bent)) if bent < 0.67 * straight => at,
        _ => 0,
    }
}

/// The squares that are left by the best line that is level until `at`.
fn fit(places: &[f64], values: &[f64], at: usize) -> Option<f64> {
    let begin = *places.get(at)?;
    let beyond = |place: f64| (place - begin).max(0.0);
    let count = values.len() as f64;
    let mean_x = places.iter().map(|place| beyond(*place)).sum::<f64>() / count;
    let mean_y = values.iter().sum::<f64>() / count;
    let (mut across, mut together) = (0.0, 0.0);
    for (place, value) in places.iter().zip(values) {
        across += (beyond(*place) - mean_x).powi(2);
        together += (beyond(*place) - mean_x) * (value - mean_y);
    }
    let slope = if across > 0.0 { together / across } else { 0.0 };
    let left = |(place, value): (&f64, &f64)| (value - mean_y - slope * (beyond(*place) - mean_x)).powi(2);
    Some(places.iter().zip(values).map(left).sum())
}

/// Returns whether the end of a series stays behind a line of this `slope`: for its last quarter, sixth or tenth,
/// beyond doubt and by more than half. A series in stairs stays for as long as it stayed before.
pub fn rests(places: &[f64], values: &[f64], slope: f64, longest_stay: usize) -> bool {
    [4, 6, 10].iter().any(|part| {
        let start = values.len() - (values.len() / part).max(5).min(values.len());
        let (places, values) = (&places[start..], &values[start..]);
        let Some(end) = line(places, values, 0.0) else { return false };
        let expected = slope * (places[places.len() - 1] - places[0]);
        end.growth < 0.4 * expected && expected - end.growth > 3.0 * end.error && values.len() > longest_stay + 1
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(count: usize) -> Vec<f64> {
        (0..count).map(|at| at as f64).collect()
    }

    #[test]
    fn a_way_tells_one_step_from_stairs_and_from_a_line() {
        let of = |value: &dyn Fn(usize) -> f64| Way::of(&(0..60).map(value).collect::<Vec<_>>());
        let step = of(&|at| if at < 30 { 0.0 } else { 100.0 }).unwrap();
        assert_eq!((step.moves(), step.largest()), (1, 9));
        let stairs = of(&|at| (at / 12) as f64).unwrap();
        assert_eq!((stairs.moves(), stairs.longest_stay()), (4, 12));
        assert_eq!(of(&|at| at as f64).unwrap().moves(), 9);
        assert_eq!(of(&|_| 7.0), None);
        assert_eq!(of(&|at| -(at as f64)), None);
    }

    #[test]
    fn a_bend_is_found_where_the_rise_begins_and_not_in_a_line() {
        let late: Vec<f64> = places(50).iter().map(|x| 100.0 + (x - 30.0).max(0.0)).collect();
        assert_eq!(bend(&places(50), &late), 30);
        let line: Vec<f64> = places(50).iter().map(|x| 3.0 * x).collect();
        assert_eq!(bend(&places(50), &line), 0);
    }

    #[test]
    fn a_series_that_stopped_rests_and_one_in_stairs_does_not() {
        let full: Vec<f64> = places(60).iter().map(|x| x.min(50.0)).collect();
        assert!(rests(&places(60), &full, 1.0, 1));
        assert!(!rests(&places(60), &places(60), 1.0, 1));
        let stairs: Vec<f64> = places(60).iter().map(|x| (x / 15.0).floor() * 15.0).collect();
        assert!(!rests(&places(60), &stairs, 1.0, 15));
    }
}
