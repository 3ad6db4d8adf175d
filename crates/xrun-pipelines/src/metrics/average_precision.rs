//! Average precision and recall as COCO defines them, from 32 bytes a detection.
//!
//! IoU 0.50:0.05:0.95, 101 recall points, best detections first (pycocotools, `COCOeval`, bounding boxes), for objects of
//! all sizes and of each. Each picture is matched at once (see `matching`), so that neither boxes nor truths are kept.

use std::collections::BTreeMap;

use super::matching::{Marked, Matched, SIZES, THRESHOLDS};
use xrun_core::bounded::HeldBytes;
use xrun_core::bounded::buffer::Buffer;
use xrun_core::bounded::ledger::{Cap, Holding, Ledger, Policy};

const RECALL_POINTS: usize = 101;

/// What is kept of a detection.
#[derive(Clone, Copy, Debug)]
struct Kept {
    detection: Marked,
    /// Order of arrival, which decides between equal scores.
    number: u32,
}

impl HeldBytes for Kept {
    fn held_bytes(&self) -> u64 {
        size_of::<Self>() as u64
    }
}

/// Scores over all pictures that were added. Each is a mean over the classes of which there was something to find;
/// `None` when there was nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DetectionScores {
    /// Average precision at IoU 0.5.
    pub map50: Option<f64>,
    /// Mean over IoU 0.50:0.05:0.95.
    pub map: Option<f64>,
    /// The same for objects of up to 32² square pixels, from there to 96², and above.
    pub map_small: Option<f64>,
    /// For objects above 32² and up to 96² square pixels.
    pub map_medium: Option<f64>,
    /// For objects above 96² square pixels.
    pub map_large: Option<f64>,
    /// The share found at IoU 0.5, whatever the score.
    pub recall: Option<f64>,
    /// The share found by the best detection of a class in each picture, by the ten best, and by the hundred best; mean
    /// over IoU 0.50:0.05:0.95.
    pub ar_1: Option<f64>,
    /// By the ten best detections of a class in each picture.
    pub ar_10: Option<f64>,
    /// By the hundred best detections of a class in each picture.
    pub ar_100: Option<f64>,
    /// Detections that were left out because the cap was reached.
    pub left_out: u64,
}

/// Takes pictures one by one. Policy at the cap: the detections with the lowest scores go.
#[derive(Debug)]
pub struct AveragePrecision {
    kept: Vec<Kept>,
    /// Things to find, by class and size; as many entries as there are classes.
    truths: BTreeMap<u32, [u64; SIZES.len()]>,
    next: u32,
    left_out: u64,
    /// The best score that was left out: no worse one may take its place.
    left_out_best: Option<f32>,
    capacity: usize,
    holding: Holding,
}

/// The buffer of an [`AveragePrecision`] that keeps at most so many predictions.
pub fn buffer(name: &'static str, predictions: usize) -> Buffer {
    let cap = Cap { items: predictions as u64, bytes: (predictions * size_of::<Kept>()) as u64 };
    Buffer::new(name, Policy::Reduce, cap)
}

impl AveragePrecision {
    /// [`buffer`] makes the buffer.
    pub fn new(ledger: &Ledger, buffer: &Buffer) -> Self {
        Self {
            kept: Vec::new(),
            truths: BTreeMap::new(),
            next: 0,
            left_out: 0,
            left_out_best: None,
            capacity: buffer.cap.items as usize,
            holding: buffer.register(ledger),
        }
    }

    /// Adds one picture.
    pub fn add(&mut self, picture: &Matched) {
        for (class, asked) in &picture.truths {
            if asked[0] {
                let counts = self.truths.entry(*class).or_default();
                counts.iter_mut().zip(asked).for_each(|(count, asked)| *count += u64::from(*asked));
            }
        }
        for detection in &picture.detections {
            self.keep(Kept { detection: *detection, number: self.next });
            self.next = self.next.wrapping_add(1);
        }
        let held = self.kept.len();
        self.holding.set(held as u64, (held * size_of::<Kept>()) as u64);
    }

    fn keep(&mut self, kept: Kept) {
        if self.left_out_best.is_some_and(|best| kept.detection.score <= best) {
            self.left_out += 1;
            return;
        }
        if self.kept.len() == self.kept.capacity() {
            // By halves up to the cap and not beyond it.
            let more = (self.kept.len() / 2).max(64).min(self.capacity - self.kept.len());
            self.kept.reserve_exact(more);
        }
        if self.kept.len() >= self.capacity {
            // An eighth goes at a time, so that the cost is spread.
            self.kept.sort_unstable_by(best_first);
            let rest = (self.capacity - (self.capacity / 8).max(1)).min(self.kept.len());
            self.left_out += (self.kept.len() - rest) as u64;
            self.left_out_best = self.kept.get(rest).map(|best| best.detection.score);
            self.kept.truncate(rest);
        }
        self.kept.push(kept);
    }

    /// The scores over everything added; empties itself for the next validation.
    pub fn finish(&mut self) -> DetectionScores {
        self.kept.sort_unstable_by(|a, b| a.detection.class.cmp(&b.detection.class).then_with(|| best_first(a, b)));
        let mut scores = Sums::default();
        let mut curve = Vec::new();
        for (class, counts) in &self.truths {
            let from = self.kept.partition_point(|kept| kept.detection.class < *class);
            let to = self.kept.partition_point(|kept| kept.detection.class <= *class);
            scores.class(&self.kept[from..to], counts, &mut curve);
        }
        let scores = DetectionScores { left_out: self.left_out, ..scores.means() };
        self.kept = Vec::new();
        self.truths.clear();
        (self.next, self.left_out, self.left_out_best) = (0, 0, None);
        self.holding.set(0, 0);
        scores
    }
}

/// The earlier one of two with the same score first, as a stable sort has it.
fn best_first(a: &Kept, b: &Kept) -> std::cmp::Ordering {
    b.detection.score.total_cmp(&a.detection.score).then(a.number.cmp(&b.number))
}

/// Sums over classes.
#[derive(Default)]
struct Sums {
    classes: [u64; SIZES.len()],
    precision: [[f64; THRESHOLDS]; SIZES.len()],
    /// Of all sizes.
    recall: [f64; THRESHOLDS],
    /// With the best and the ten best of each picture, mean over thresholds.
    recall_of_few: [f64; 2],
}

impl Sums {
    /// Adds a class. `own` is sorted, best first; `counts` is how many there are to find of each size. `curve` is room to
    /// work in.
    fn class(&mut self, own: &[Kept], counts: &[u64; SIZES.len()], curve: &mut Vec<(f64, f64)>) {
        for (size, &count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            self.classes[size] += 1;
            for threshold in 0..THRESHOLDS {
                let (precision, recall) = average(own, size, threshold, count, curve);
                self.precision[size][threshold] += precision;
                if size == 0 {
                    self.recall[threshold] += recall;
                }
            }
        }
        for (sum, most) in self.recall_of_few.iter_mut().zip([1, 10]) {
            let found = own.iter().filter(|kept| usize::from(kept.detection.rank) < most);
            let found: u32 = found.map(|kept| kept.detection.marks.found[0].count_ones()).sum();
            *sum += f64::from(found) / (counts[0].max(1) as f64 * THRESHOLDS as f64);
        }
    }

    fn means(&self) -> DetectionScores {
        let mean = |sum: f64, size: usize| (self.classes[size] > 0).then(|| sum / self.classes[size] as f64);
        let over_thresholds = |sums: &[f64; THRESHOLDS]| sums.iter().sum::<f64>() / THRESHOLDS as f64;
        let precision = |size: usize| mean(over_thresholds(&self.precision[size]), size);
        DetectionScores {
            map50: mean(self.precision[0][0], 0),
            map: precision(0),
            map_small: precision(1),
            map_medium: precision(2),
            map_large: precision(3),
            recall: mean(self.recall[0], 0),
            ar_1: mean(self.recall_of_few[0], 0),
            ar_10: mean(self.recall_of_few[1], 0),
            ar_100: mean(over_thresholds(&self.recall), 0),
            left_out: 0,
        }
    }
}

/// Mean precision over 101 recall points, and the recall reached. `own` is sorted, best first.
fn average(own: &[Kept], size: usize, threshold: usize, truths: u64, curve: &mut Vec<(f64, f64)>) -> (f64, f64) {
    let bit = 1u16 << threshold;
    let (mut right, mut wrong) = (0u64, 0u64);
    curve.clear();
    for kept in own.iter().filter(|kept| kept.detection.marks.ignored[size] & bit == 0) {
        if kept.detection.marks.found[size] & bit != 0 {
            right += 1
        } else {
            wrong += 1
        }
        curve.push((right as f64 / truths as f64, right as f64 / (right + wrong) as f64));
    }
    // Precision never rises again: the best that is reached at this recall or a higher one.
    for at in (1..curve.len()).rev() {
        curve[at - 1].1 = curve[at - 1].1.max(curve[at].1);
    }
    let mut sum = 0.0;
    for point in 0..RECALL_POINTS {
        // As numpy's linspace computes them for pycocotools.
        let recall = if point + 1 == RECALL_POINTS { 1.0 } else { point as f64 * 0.01 };
        let at = curve.partition_point(|(reached, _)| *reached < recall);
        sum += curve.get(at).map_or(0.0, |(_, precision)| *precision);
    }
    (sum / RECALL_POINTS as f64, right as f64 / truths as f64)
}

#[cfg(test)]
#[path = "average_precision_tests.rs"]
mod tests;
