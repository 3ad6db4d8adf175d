//! Confusion matrix of a classification or a detection, by rows.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Maximum number of other classes in a [`ClassResult`].
pub const CONFUSED_MAX: usize = 20;

/// Row of a confusion matrix: items of a class, by the class that was predicted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClassResult {
    /// Name of the class.
    pub class: String,
    /// Number of its items.
    pub items: u64,
    /// Number of them that were predicted to be of this class.
    pub correct: u64,
    /// Other classes that were predicted, with the number of times, the most frequent first; at most 20. [`NOT_FOUND`] is among
    /// them for objects without a detection.
    pub taken_for: Vec<(String, u64)>,
    /// Average precision of a detection at IoU 0.5, from 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ap50: Option<f64>,
    /// Average precision of a detection, mean over the ten IoUs from 0.5 to 0.95.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ap: Option<f64>,
}

/// Entry of [`ClassResult::taken_for`] for objects that no detection of any class overlaps.
pub const NOT_FOUND: &str = "(not found)";

impl ClassResult {
    /// Fraction of the items that are correct (recall); `None` without items.
    pub fn accuracy(&self) -> Option<f64> {
        (self.items > 0).then(|| self.correct as f64 / self.items as f64)
    }
}

/// Numbers of items by class and predicted class, both as indices.
#[derive(Clone, Debug, Default)]
pub struct Confusion(BTreeMap<(usize, usize), u64>);

impl Confusion {
    /// Bytes of an entry, in nodes that are half full.
    pub const ENTRY_BYTES: u64 = 2 * size_of::<((usize, usize), u64)>() as u64;

    /// Number of different pairs.
    pub fn pairs(&self) -> usize {
        self.0.len()
    }

    /// Counts an item.
    pub fn add(&mut self, class: usize, predicted: usize) {
        *self.0.entry((class, predicted)).or_default() += 1;
    }

    /// Rows of the matrix, one for each of the `names`. A predicted index beyond them is [`NOT_FOUND`].
    pub fn rows(&self, names: &[String]) -> Vec<ClassResult> {
        let name = |class: usize| names.get(class).cloned().unwrap_or_else(|| NOT_FOUND.to_owned());
        let row = |(class, own): (usize, &String)| {
            let of_class = self.0.range((class, 0)..(class + 1, 0)).map(|((_, predicted), count)| (*predicted, *count));
            let mut others: Vec<(usize, u64)> = of_class.clone().filter(|(predicted, _)| *predicted != class).collect();
            others.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
            others.truncate(CONFUSED_MAX);
            ClassResult {
                class: own.clone(),
                items: of_class.clone().map(|(_, count)| count).sum(),
                correct: self.0.get(&(class, class)).copied().unwrap_or(0),
                taken_for: others.into_iter().map(|(other, count)| (name(other), count)).collect(),
                ..ClassResult::default()
            }
        };
        names.iter().enumerate().map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_the_other_classes_by_frequency() {
        let names = ["cat", "dog", "fox"].map(str::to_owned);
        let mut confusion = Confusion::default();
        for (class, predicted) in [(0, 0), (0, 2), (0, 1), (0, 2), (1, 1)] {
            confusion.add(class, predicted);
        }
        let rows = confusion.rows(&names);
        let expected = [("cat", 4, 1, vec![("fox", 2), ("dog", 1)]), ("dog", 1, 1, vec![]), ("fox", 0, 0, vec![])];
        for (row, (class, items, correct, others)) in rows.iter().zip(expected) {
            let taken_for: Vec<(&str, u64)> = row.taken_for.iter().map(|(name, count)| (&**name, *count)).collect();
            assert_eq!((&*row.class, row.items, row.correct, taken_for), (class, items, correct, others));
        }
        assert_eq!((rows[0].accuracy(), rows[2].accuracy()), (Some(0.25), None));
    }
}
