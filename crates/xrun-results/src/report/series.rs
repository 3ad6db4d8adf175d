//! Thinning of a series of any length to a bounded number of points, with its peaks.
//!
//! Neighbouring points share a bucket that keeps the lowest and the highest; when the buckets are used up, pairs of
//! them merge. Caps: a plain series holds at most [`POINTS_MAX`] points of 24 bytes (48 KB), one of owners as many
//! with 64 sizes each (1.1 MB).

/// Maximum number of points of a series: two per pixel of a wide plot.
pub const POINTS_MAX: usize = 2_000;
const BUCKETS_MAX: usize = POINTS_MAX / 2;
const _: () = assert!(BUCKETS_MAX.is_multiple_of(2), "buckets merge in pairs");

/// A point with data carried along in `extra`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SeriesPoint<T = ()> {
    /// Position, such as a step or a time.
    pub x: f64,
    /// Value.
    pub y: f64,
    /// Data carried along.
    pub extra: T,
}

#[derive(Clone, Copy, Debug)]
struct Bucket<T> {
    low: SeriesPoint<T>,
    high: SeriesPoint<T>,
}

impl<T: Copy> Bucket<T> {
    fn join(&mut self, other: &Self) {
        if other.low.y < self.low.y {
            self.low = other.low;
        }
        if other.high.y > self.high.y {
            self.high = other.high;
        }
    }
}

/// Series that is thinned as points are added.
#[derive(Clone, Debug)]
pub struct ThinnedSeries<T = ()> {
    buckets: Vec<Bucket<T>>,
    /// Number of points per full bucket.
    width: u64,
    in_last: u64,
    /// Number of points added.
    pub count: u64,
    /// First point added.
    pub first: Option<SeriesPoint<T>>,
    /// Last point added.
    pub last: Option<SeriesPoint<T>>,
    /// Point with the minimum y.
    pub lowest: Option<SeriesPoint<T>>,
    /// Point with the maximum y.
    pub highest: Option<SeriesPoint<T>>,
}

impl<T> Default for ThinnedSeries<T> {
    fn default() -> Self {
        Self {
            buckets: Vec::new(),
            width: 1,
            in_last: 0,
            count: 0,
            first: None,
            last: None,
            lowest: None,
            highest: None,
        }
    }
}

impl<T: Copy> ThinnedSeries<T> {
    /// Adds a point; one that is not finite is ignored.
    pub fn add(&mut self, x: f64, y: f64, extra: T) {
        if !x.is_finite() || !y.is_finite() {
            return;
        }
        let point = SeriesPoint { x, y, extra };
        self.count += 1;
        self.first.get_or_insert(point);
        self.last = Some(point);
        if self.lowest.is_none_or(|lowest| y < lowest.y) {
            self.lowest = Some(point);
        }
        if self.highest.is_none_or(|highest| y > highest.y) {
            self.highest = Some(point);
        }
        let bucket = Bucket { low: point, high: point };
        match self.buckets.last_mut() {
            Some(last) if self.in_last < self.width => {
                last.join(&bucket);
                self.in_last += 1;
            }
            _ => {
                if self.buckets.len() == BUCKETS_MAX {
                    self.merge_pairs();
                }
                self.buckets.push(bucket);
                self.in_last = 1;
            }
        }
    }

    fn merge_pairs(&mut self) {
        let pairs = self.buckets.len() / 2;
        for at in 0..pairs {
            let mut bucket = self.buckets[2 * at];
            bucket.join(&self.buckets[2 * at + 1]);
            self.buckets[at] = bucket;
        }
        self.buckets.truncate(pairs);
        self.width *= 2;
    }

    /// At most [`POINTS_MAX`] of the added points, in order, including the lowest and the highest.
    pub fn points(&self) -> Vec<SeriesPoint<T>> {
        let mut points = Vec::with_capacity(2 * self.buckets.len());
        for Bucket { low, high } in &self.buckets {
            match low.x.total_cmp(&high.x) {
                std::cmp::Ordering::Less => points.extend([*low, *high]),
                std::cmp::Ordering::Greater => points.extend([*high, *low]),
                std::cmp::Ordering::Equal if low.y == high.y => points.push(*low),
                std::cmp::Ordering::Equal => points.extend([*low, *high]),
            }
        }
        points
    }

    /// Returns `true` if no point was added.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

/// Marks on a time line, at most [`MARKS_MAX`]: beyond it every second one is dropped, repeatedly.
#[derive(Clone, Debug, Default)]
pub struct TimeMarks<T> {
    marks: Vec<T>,
    /// How often every second mark was dropped.
    halved: u32,
    /// Number of marks added.
    pub count: u64,
}

/// Maximum number of marks.
pub const MARKS_MAX: usize = 400;

impl<T> TimeMarks<T> {
    /// Adds a mark.
    pub fn add(&mut self, mark: T) {
        if self.marks.len() == MARKS_MAX {
            let mut at = 0;
            self.marks.retain(|_| {
                at += 1;
                at % 2 == 1
            });
            self.halved += 1;
        }
        if self.count.is_multiple_of(self.every()) {
            self.marks.push(mark);
        }
        self.count += 1;
    }

    /// Kept marks, in order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.marks.iter()
    }

    /// Interval of the kept marks: 1 if all are kept, 2 for every second.
    pub fn every(&self) -> u64 {
        1 << self.halved
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_thinned_series_keeps_peaks_order_and_cap(
            values in prop::collection::vec(-1e9f64..1e9, 1..200), repeats in 1usize..60
        ) {
            let mut series = ThinnedSeries::default();
            let all: Vec<f64> = values.iter().cycle().take(values.len() * repeats).copied().collect();
            for (x, &y) in all.iter().enumerate() {
                series.add(x as f64, y, ());
            }
            let points = series.points();
            prop_assert!(points.len() <= POINTS_MAX);
            prop_assert!(points.windows(2).all(|pair| pair[0].x < pair[1].x));
            prop_assert!(points.iter().all(|point| all[point.x as usize] == point.y));
            let highest = all.iter().copied().fold(f64::MIN, f64::max);
            let lowest = all.iter().copied().fold(f64::MAX, f64::min);
            prop_assert!(points.iter().any(|point| point.y == highest));
            prop_assert!(points.iter().any(|point| point.y == lowest));
            prop_assert_eq!(series.highest.unwrap().y, highest);
            prop_assert_eq!(series.count, all.len() as u64);
        }

        #[test]
        fn thinned_marks_are_evenly_spaced(count in 0u64..5_000) {
            let mut marks = TimeMarks::default();
            for mark in 0..count {
                marks.add(mark);
            }
            let kept: Vec<u64> = marks.iter().copied().collect();
            prop_assert!(kept.len() <= MARKS_MAX);
            prop_assert_eq!(kept, (0..count).step_by(marks.every() as usize).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_short_series_keeps_all_finite_points() {
        let mut series = ThinnedSeries::default();
        for (x, y) in [(0.0, 3.0), (1.0, f64::NAN), (2.0, f64::INFINITY), (3.0, 1.0)] {
            series.add(x, y, ());
        }
        let points: Vec<(f64, f64)> = series.points().iter().map(|point| (point.x, point.y)).collect();
        assert_eq!(points, [(0.0, 3.0), (3.0, 1.0)]);
    }
}
