//! Retrieval: counts of the nearest targets of clips, by class.

use xrun_core::task::metric::Interval;
use xrun_training::metrics::running_mean::RunningMean;

/// Retrieval counts by class and nearest target.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct ConfusionMatrix {
    candidates: usize,
    /// Number of clips by class and nearest target, `[classes, candidates]`; ties are not counted.
    counts: Vec<u64>,
    /// Number of clips by class, ties included.
    clips: Vec<u64>,
}

impl ConfusionMatrix {
    /// Empty counts of `classes` classes and `candidates` targets.
    pub fn new(classes: usize, candidates: usize) -> Self {
        Self { candidates, counts: vec![0; classes * candidates], clips: vec![0; classes] }
    }

    /// Adds a clip by the similarities of its output to all targets. A tie and NaN count as wrong.
    pub fn add(&mut self, class: usize, similarities: &[f32]) {
        self.clips[class] += 1;
        if let Some(answer) = nearest(similarities) {
            self.counts[class * self.candidates + answer] += 1;
        }
    }

    /// Percentage of the clips of `classes` whose nearest target is that of their class, `own(class)`; `None` without clips.
    pub fn accuracy(&self, classes: impl Iterator<Item = usize>, own: impl Fn(usize) -> usize) -> Option<f64> {
        let (mut correct, mut all) = (0, 0);
        for class in classes {
            correct += self.counts[class * self.candidates + own(class)];
            all += self.clips[class];
        }
        (all > 0).then(|| 100.0 * correct as f64 / all as f64)
    }

    /// 95 % interval of the accuracy over all classes, whose targets are the first ones; `None` for fewer than two clips.
    pub fn interval(&self) -> Option<Interval> {
        let correct: u64 = (0..self.clips.len()).map(|class| self.counts[class * self.candidates + class]).sum();
        let mut accuracy = RunningMean::default();
        (0..self.clips.iter().sum()).for_each(|clip| accuracy.add(Some(if clip < correct { 100.0 } else { 0.0 })));
        accuracy.interval()
    }

    /// Bytes of the counts.
    pub fn bytes(&self) -> u64 {
        ((self.counts.len() + self.clips.len()) * size_of::<u64>()) as u64
    }
}

/// Index of the unique maximum; `None` for a tie or NaN alone.
fn nearest(similarities: &[f32]) -> Option<usize> {
    let largest = similarities.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut at = similarities.iter().enumerate().filter(|(_, value)| **value == largest);
    let first = at.next()?.0;
    at.next().is_none().then_some(first)
}

/// Mean of the values; `None` without values.
pub fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    (count > 0.0).then(|| sum / count)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cosine similarities with the targets (1, 0) and (0, 1).
    fn cosines([x, y]: [f32; 2]) -> [f32; 2] {
        let length = (x * x + y * y).sqrt();
        [x / length, y / length]
    }

    #[test]
    fn accuracy_by_hand_with_a_tie_and_nan() {
        let mut answers = ConfusionMatrix::new(2, 2);
        for (class, output) in [(0, [0.9, 0.1]), (0, [0.2, 0.3]), (1, [0.0, 5.0]), (1, [1.0, 1.0])] {
            answers.add(class, &cosines(output));
        }
        assert_eq!(answers.accuracy(0..2, |class| class), Some(50.0));
        assert_eq!(answers.accuracy(0..1, |class| class), Some(50.0));
        assert_eq!(ConfusionMatrix::new(2, 2).accuracy(0..2, |class| class), None);
        answers.add(0, &[f32::NAN, f32::NAN]);
        assert_eq!(answers.accuracy(0..2, |class| class), Some(40.0), "NaN is wrong");
    }

    #[test]
    fn the_target_of_a_class_may_have_another_index() {
        let mut answers = ConfusionMatrix::new(1, 3);
        answers.add(0, &[0.1, 0.2, 0.9]);
        answers.add(0, &[0.5, 0.2, 0.1]);
        assert_eq!(answers.accuracy(0..1, |class| class + 2), Some(50.0));
    }
}
