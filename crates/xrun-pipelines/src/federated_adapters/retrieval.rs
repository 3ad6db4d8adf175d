//! How often is a clip's own class the one whose target its output is nearest to? Counted by class, never listed.

/// Answers by class: `[classes, candidates]` counts and those that were a tie.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Answers {
    candidates: usize,
    /// `[class * candidates + answer]`.
    counts: Vec<u64>,
    /// Clips of each class, ties included.
    clips: Vec<u64>,
}

impl Answers {
    /// Of so many classes, each answered by one of `candidates`, the first of which are the classes themselves.
    pub fn new(classes: usize, candidates: usize) -> Self {
        Self { candidates, counts: vec![0; classes * candidates], clips: vec![0; classes] }
    }

    /// Adds the similarity of a clip's output to each candidate's target. A tie is wrong, and so is what is no number.
    pub fn add(&mut self, class: usize, similarities: &[f32]) {
        self.clips[class] += 1;
        if let Some(answer) = nearest(similarities) {
            self.counts[class * self.candidates + answer] += 1;
        }
    }

    /// Per cent of the clips of these classes that were right, where `own` is the candidate of a class; `None` without clips.
    pub fn right(&self, classes: impl Iterator<Item = usize>, own: impl Fn(usize) -> usize) -> Option<f64> {
        let (mut right, mut all) = (0, 0);
        for class in classes {
            right += self.counts[class * self.candidates + own(class)];
            all += self.clips[class];
        }
        (all > 0).then(|| 100.0 * right as f64 / all as f64)
    }

    /// Bytes of the counts.
    pub fn bytes(&self) -> u64 {
        ((self.counts.len() + self.clips.len()) * size_of::<u64>()) as u64
    }
}

/// The only largest.
fn nearest(similarities: &[f32]) -> Option<usize> {
    let largest = similarities.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut at = similarities.iter().enumerate().filter(|(_, value)| **value == largest);
    let first = at.next()?.0;
    at.next().is_none().then_some(first)
}

/// The mean of what is there.
pub fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    (count > 0.0).then(|| sum / count)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cosines with the targets (1, 0) and (0, 1).
    fn cosines([x, y]: [f32; 2]) -> [f32; 2] {
        let length = (x * x + y * y).sqrt();
        [x / length, y / length]
    }

    #[test]
    fn answers_by_hand_where_a_tie_is_wrong() {
        let mut answers = Answers::new(2, 2);
        for (class, output) in [(0, [0.9, 0.1]), (0, [0.2, 0.3]), (1, [0.0, 5.0]), (1, [1.0, 1.0])] {
            answers.add(class, &cosines(output));
        }
        assert_eq!(answers.right(0..2, |class| class), Some(50.0));
        assert_eq!(answers.right(0..1, |class| class), Some(50.0));
        assert_eq!(Answers::new(2, 2).right(0..2, |class| class), None);
        answers.add(0, &[f32::NAN, f32::NAN]);
        assert_eq!(answers.right(0..2, |class| class), Some(40.0), "what is no number is wrong");
    }

    #[test]
    fn unheard_classes_are_found_among_all() {
        let mut answers = Answers::new(1, 3);
        answers.add(0, &[0.1, 0.2, 0.9]);
        answers.add(0, &[0.5, 0.2, 0.1]);
        assert_eq!(answers.right(0..1, |class| class + 2), Some(50.0));
    }
}
