//! Mean cosine similarity of embeddings within a class and between classes.
//!
//! Computed from the sum of each class, since the sum of the products of all pairs is the square of a sum: the memory depends on the
//! number of classes, not of embeddings.

use std::collections::BTreeMap;

use xrun_core::bounded::buffer::Buffer;
use xrun_core::bounded::ledger::{Cap, Ledger, Policy, Registration};

/// Sums of embeddings by class. Policy at the cap: further classes are ignored.
#[derive(Debug)]
pub struct Separation {
    sums: BTreeMap<u32, (u64, Vec<f64>)>,
    classes_max: usize,
    dimension: usize,
    registration: Registration,
}

/// Buffer of a [`Separation`] for a number of classes and embeddings `[dimension]`.
pub fn buffer(classes: usize, dimension: usize) -> Buffer {
    let cap = Cap { items: classes as u64, bytes: (classes * dimension * 8) as u64 };
    Buffer::new("validation_embeddings", Policy::Reduce, cap).because("a sum for each class of a validation")
}

impl Separation {
    /// Empty sums with a buffer made by [`buffer`] for the same `dimension`.
    pub fn new(ledger: &Ledger, buffer: &Buffer, dimension: usize) -> Self {
        let classes_max = buffer.cap.items as usize;
        Self { sums: BTreeMap::new(), classes_max, dimension, registration: buffer.register(ledger) }
    }

    /// Adds an embedding of length one.
    pub fn add(&mut self, class: u32, embedding: &[f32]) {
        if embedding.len() != self.dimension || (self.sums.len() >= self.classes_max && !self.sums.contains_key(&class))
        {
            return;
        }
        let (count, sum) = self.sums.entry(class).or_insert_with(|| (0, vec![0.0; embedding.len()]));
        *count += 1;
        sum.iter_mut().zip(embedding).for_each(|(sum, value)| *sum += f64::from(*value));
        let held = self.sums.len();
        self.registration.set(held as u64, (held * self.dimension * 8) as u64);
    }

    /// Returns the mean similarity of pairs within a class and of pairs of two classes, `None` without pairs, and resets the sums.
    pub fn finish(&mut self) -> (Option<f64>, Option<f64>) {
        let (mut within, mut within_pairs) = (0.0, 0.0);
        let mut total = vec![0.0; self.dimension];
        let (mut squares, mut count_all, mut count_squares) = (0.0, 0.0, 0.0);
        for (count, sum) in self.sums.values() {
            let count = *count as f64;
            let square: f64 = sum.iter().map(|value| value * value).sum();
            // The product of an embedding of length one with itself is one.
            within += square - count;
            within_pairs += count * (count - 1.0);
            squares += square;
            count_all += count;
            count_squares += count * count;
            total.iter_mut().zip(sum).for_each(|(total, value)| *total += value);
        }
        let all: f64 = total.iter().map(|value| value * value).sum();
        let between_pairs = count_all * count_all - count_squares;
        self.sums.clear();
        self.registration.set(0, 0);
        let mean = |sum: f64, pairs: f64| (pairs > 0.0).then(|| sum / pairs);
        (mean(within, within_pairs), mean(all - squares, between_pairs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn means_equal_those_over_all_pairs(
            rows in prop::collection::vec((0u32..4, -1f32..1.0, -1f32..1.0, 0.1f32..1.0), 2..30),
        ) {
            let ledger = Ledger::default();
            let mut separation = Separation::new(&ledger, &buffer(4, 3), 3);
            let rows: Vec<(u32, [f32; 3])> = rows
                .into_iter()
                .map(|(class, x, y, z)| {
                    let length = (x * x + y * y + z * z).sqrt();
                    (class, [x / length, y / length, z / length])
                })
                .collect();
            rows.iter().for_each(|(class, row)| separation.add(*class, row));
            let mut sums = [(0.0, 0.0); 2];
            for (i, (class, one)) in rows.iter().enumerate() {
                for (other_class, other) in &rows[i + 1..] {
                    let dot: f64 = one.iter().zip(other).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
                    let entry = &mut sums[usize::from(class != other_class)];
                    *entry = (entry.0 + dot, entry.1 + 1.0);
                }
            }
            let expected = sums.map(|(sum, pairs)| (pairs > 0.0).then(|| sum / pairs));
            let (within, between) = separation.finish();
            for (found, expected) in [(within, expected[0]), (between, expected[1])] {
                prop_assert_eq!(found.is_some(), expected.is_some());
                prop_assert!((found.unwrap_or(0.0) - expected.unwrap_or(0.0)).abs() < 1e-5);
            }
            prop_assert!(!ledger.read()[0].exceeds_cap());
        }
    }
}
