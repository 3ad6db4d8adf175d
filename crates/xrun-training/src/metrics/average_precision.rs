//! COCO's average precision and average recall, in 32 bytes per detection.
//!
//! IoU 0.50:0.05:0.95, 101 recall points, detections in descending order of score (pycocotools, `COCOeval`, bounding boxes), for
//! objects of all sizes and of each size. Images are matched one by one (see `matching`), so that boxes and truths are not entry.

use std::collections::BTreeMap;

use super::matching::{AREA_RANGES, IOU_THRESHOLD_COUNT, MatchedDetection, MatchedImage};
use xrun_core::bounded::DeepSize;
use xrun_core::bounded::buffer::Buffer;
use xrun_core::bounded::ledger::{Cap, Ledger, Policy, Registration};

const RECALL_POINTS: usize = 101;

/// Detection until the end of a validation.
#[derive(Clone, Copy, Debug)]
struct Entry {
    detection: MatchedDetection,
    /// Order of insertion, which decides between equal scores.
    number: u32,
}

impl DeepSize for Entry {
    fn deep_size(&self) -> u64 {
        size_of::<Self>() as u64
    }
}

/// Scores over all images. Each is a mean over the classes that have objects; `None` without objects.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DetectionScores {
    /// Average precision at IoU 0.5.
    pub map50: Option<f64>,
    /// Average precision, mean over IoU 0.50:0.05:0.95.
    pub map: Option<f64>,
    /// `map` of objects up to 32² square pixels.
    pub map_small: Option<f64>,
    /// `map` of objects above 32² and up to 96² square pixels.
    pub map_medium: Option<f64>,
    /// `map` of objects above 96² square pixels.
    pub map_large: Option<f64>,
    /// Fraction of objects found at IoU 0.5, with any score.
    pub recall: Option<f64>,
    /// Fraction of objects found by the best detection of a class in each image, mean over IoU 0.50:0.05:0.95.
    pub ar_1: Option<f64>,
    /// Fraction of objects found by the 10 best detections of a class in each image.
    pub ar_10: Option<f64>,
    /// Fraction of objects found by the 100 best detections of a class in each image.
    pub ar_100: Option<f64>,
    /// Number of detections dropped at the cap.
    pub left_out: u64,
}

/// Accumulates images one by one. Policy at the cap: detections with the lowest scores are dropped.
#[derive(Debug)]
pub struct AveragePrecision {
    entries: Vec<Entry>,
    /// Number of objects by class and size.
    truths: BTreeMap<u32, [u64; AREA_RANGES.len()]>,
    next: u32,
    left_out: u64,
    /// Best score that was dropped: detections with a lower one are dropped, too.
    left_out_best: Option<f32>,
    capacity: usize,
    registration: Registration,
}

/// Buffer of an [`AveragePrecision`] for at most this many predictions.
pub fn buffer(name: &'static str, predictions: usize) -> Buffer {
    let cap = Cap { items: predictions as u64, bytes: (predictions * size_of::<Entry>()) as u64 };
    Buffer::new(name, Policy::Reduce, cap)
}

impl AveragePrecision {
    /// Empty accumulator with a buffer made by [`buffer`].
    pub fn new(ledger: &Ledger, buffer: &Buffer) -> Self {
        Self {
            entries: Vec::new(),
            truths: BTreeMap::new(),
            next: 0,
            left_out: 0,
            left_out_best: None,
            capacity: buffer.cap.items as usize,
            registration: buffer.register(ledger),
        }
    }

    /// Adds an image.
    pub fn add(&mut self, image: &MatchedImage) {
        for (class, counts) in &image.truths {
            if counts[0] {
                let sums = self.truths.entry(*class).or_default();
                sums.iter_mut().zip(counts).for_each(|(sum, counts)| *sum += u64::from(*counts));
            }
        }
        for detection in &image.detections {
            self.insert(Entry { detection: *detection, number: self.next });
            self.next = self.next.wrapping_add(1);
        }
        let held = self.entries.len();
        self.registration.set(held as u64, (held * size_of::<Entry>()) as u64);
    }

    fn insert(&mut self, entry: Entry) {
        if self.left_out_best.is_some_and(|best| entry.detection.score <= best) {
            self.left_out += 1;
            return;
        }
        if self.entries.len() == self.entries.capacity() {
            // Grow by half, at most to the cap.
            let more = (self.entries.len() / 2).max(64).min(self.capacity - self.entries.len());
            self.entries.reserve_exact(more);
        }
        if self.entries.len() >= self.capacity {
            // An eighth is dropped at once, which amortises the sort.
            self.entries.sort_unstable_by(best_first);
            let rest = (self.capacity - (self.capacity / 8).max(1)).min(self.entries.len());
            self.left_out += (self.entries.len() - rest) as u64;
            self.left_out_best = self.entries.get(rest).map(|best| best.detection.score);
            self.entries.truncate(rest);
        }
        self.entries.push(entry);
    }

    /// Calls `add` with each class that has objects, its detections, best first, and the number of objects of each size.
    fn by_class(&mut self, mut add: impl FnMut(u32, &[Entry], &[u64; AREA_RANGES.len()])) {
        self.entries.sort_unstable_by(|a, b| a.detection.class.cmp(&b.detection.class).then_with(|| best_first(a, b)));
        for (class, counts) in &self.truths {
            let from = self.entries.partition_point(|entry| entry.detection.class < *class);
            let to = self.entries.partition_point(|entry| entry.detection.class <= *class);
            add(*class, &self.entries[from..to], counts);
        }
    }

    /// Returns the scores of each class with objects.
    pub fn classes(&mut self) -> BTreeMap<u32, DetectionScores> {
        let (mut scores, mut curve) = (BTreeMap::new(), Vec::new());
        self.by_class(|class, own, counts| {
            let mut sums = Sums::default();
            sums.class(own, counts, &mut curve);
            scores.insert(class, sums.means());
        });
        scores
    }

    /// Returns the scores over all images and resets the accumulator.
    pub fn finish(&mut self) -> DetectionScores {
        let (mut scores, mut curve) = (Sums::default(), Vec::new());
        self.by_class(|_, own, counts| scores.class(own, counts, &mut curve));
        let scores = DetectionScores { left_out: self.left_out, ..scores.means() };
        self.entries = Vec::new();
        self.truths.clear();
        (self.next, self.left_out, self.left_out_best) = (0, 0, None);
        self.registration.set(0, 0);
        scores
    }
}

/// Order by descending score; equal scores in the order of insertion, as a stable sort gives.
fn best_first(a: &Entry, b: &Entry) -> std::cmp::Ordering {
    b.detection.score.total_cmp(&a.detection.score).then(a.number.cmp(&b.number))
}

/// Sums over classes.
#[derive(Default)]
struct Sums {
    classes: [u64; AREA_RANGES.len()],
    precision: [[f64; IOU_THRESHOLD_COUNT]; AREA_RANGES.len()],
    /// Recall of objects of all sizes.
    recall: [f64; IOU_THRESHOLD_COUNT],
    /// Recall of the best and of the 10 best detections of each image, mean over thresholds.
    recall_of_few: [f64; 2],
}

impl Sums {
    /// Adds a class. `own` are its detections, best first; `counts` the number of objects of each size. `curve` is scratch memory.
    fn class(&mut self, own: &[Entry], counts: &[u64; AREA_RANGES.len()], curve: &mut Vec<(f64, f64)>) {
        for (size, &count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            self.classes[size] += 1;
            for threshold in 0..IOU_THRESHOLD_COUNT {
                let bit = 1u16 << threshold;
                let counted = own.iter().map(|entry| &entry.detection.outcomes);
                let counted = counted.filter(|outcomes| outcomes.ignored[size] & bit == 0);
                let (precision, recall) = average(counted.map(|one| one.matched[size] & bit != 0), count, curve);
                self.precision[size][threshold] += precision;
                if size == 0 {
                    self.recall[threshold] += recall;
                }
            }
        }
        for (sum, max) in self.recall_of_few.iter_mut().zip([1, 10]) {
            let found = own.iter().filter(|entry| usize::from(entry.detection.rank) < max);
            let found: u32 = found.map(|entry| entry.detection.outcomes.matched[0].count_ones()).sum();
            *sum += f64::from(found) / (counts[0].max(1) as f64 * IOU_THRESHOLD_COUNT as f64);
        }
    }

    fn means(&self) -> DetectionScores {
        let mean = |sum: f64, size: usize| (self.classes[size] > 0).then(|| sum / self.classes[size] as f64);
        let over_thresholds = |sums: &[f64; IOU_THRESHOLD_COUNT]| sums.iter().sum::<f64>() / IOU_THRESHOLD_COUNT as f64;
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

/// Mean precision over 101 recall points, and the final recall. `matched`: whether each detection is correct, best first.
pub fn average(matched: impl Iterator<Item = bool>, truths: u64, curve: &mut Vec<(f64, f64)>) -> (f64, f64) {
    let (mut true_positives, mut false_positives) = (0u64, 0u64);
    curve.clear();
    for is_match in matched {
        if is_match {
            true_positives += 1
        } else {
            false_positives += 1
        }
        let precision = true_positives as f64 / (true_positives + false_positives) as f64;
        curve.push((true_positives as f64 / truths as f64, precision));
    }
    // Interpolated precision: the maximum at this recall or a higher one.
    for index in (1..curve.len()).rev() {
        curve[index - 1].1 = curve[index - 1].1.max(curve[index].1);
    }
    let mut sum = 0.0;
    for point in 0..RECALL_POINTS {
        // As numpy's linspace computes them for pycocotools.
        let recall = if point + 1 == RECALL_POINTS { 1.0 } else { point as f64 * 0.01 };
        let index = curve.partition_point(|(reached, _)| *reached < recall);
        sum += curve.get(index).map_or(0.0, |(_, precision)| *precision);
    }
    (sum / RECALL_POINTS as f64, true_positives as f64 / truths as f64)
}

#[cfg(test)]
#[path = "average_precision_tests.rs"]
mod tests;
