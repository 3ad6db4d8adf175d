//! How large are gradients usually? The last N norms and their median.

use xrun_core::bounded::buffer::Buffer;
use xrun_core::bounded::ledger::Ledger;
use xrun_core::bounded::ring::Ring;

/// A window over gradient norms, carried through checkpoints.
#[derive(Debug)]
pub struct Norms(Ring<f64>);

impl Norms {
    /// `before` are those of a checkpoint, oldest first.
    pub fn new(ledger: &Ledger, buffer: &Buffer, before: &[f64]) -> Self {
        let mut ring = Ring::new(ledger, buffer);
        before.iter().for_each(|norm| ring.push(*norm));
        Self(ring)
    }

    /// Adds the norm of a step that has one.
    pub fn push(&mut self, norm: Option<f64>) {
        if let Some(norm) = norm {
            self.0.push(norm);
        }
    }

    /// Oldest first.
    pub fn values(&self) -> Vec<f64> {
        self.0.iter().copied().collect()
    }

    /// Of those that are kept; `None` of none.
    pub fn median(&self) -> Option<f64> {
        let mut sorted = self.values();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        match sorted.len() {
            0 => None,
            odd if odd % 2 == 1 => Some(sorted[middle]),
            _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Buffers;
    use xrun_core::settings::sections::Limits;

    #[test]
    fn the_median_is_of_the_window_and_survives_a_checkpoint() {
        let ledger = Ledger::default();
        let buffer = Buffers::new(&Limits { gradient_norm_window: 3, ..Limits::default() }).gradient_norms;
        let mut norms = Norms::new(&ledger, &buffer, &[]);
        assert_eq!(norms.median(), None);
        for norm in [9.0, 1.0, 2.0, 5.0] {
            norms.push(Some(norm));
        }
        assert_eq!(norms.median(), Some(2.0), "of 1, 2, 5");
        let kept = norms.values();
        drop(norms);
        let again = Norms::new(&ledger, &buffer, &kept);
        assert_eq!(again.median(), Some(2.0));
    }
}
