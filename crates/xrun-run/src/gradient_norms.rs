//! Window of the last gradient norms and its median.

use xrun_core::bounded::buffer::Buffer;
use xrun_core::bounded::ledger::Ledger;
use xrun_core::bounded::ring::Ring;

/// Window of gradient norms, which checkpoints store.
#[derive(Debug)]
pub struct GradientNorms(Ring<f64>);

impl GradientNorms {
    /// Creates the window with the norms of a checkpoint, oldest first.
    pub fn new(ledger: &Ledger, buffer: &Buffer, before: &[f64]) -> Self {
        let mut ring = Ring::new(ledger, buffer);
        before.iter().for_each(|norm| ring.push(*norm));
        Self(ring)
    }

    /// Adds the norm of a step, if it has one.
    pub fn push(&mut self, norm: Option<f64>) {
        if let Some(norm) = norm {
            self.0.push(norm);
        }
    }

    /// Norms in the window, oldest first.
    pub fn values(&self) -> Vec<f64> {
        self.0.iter().copied().collect()
    }

    /// Median of the window; `None` if it is empty.
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
        let mut norms = GradientNorms::new(&ledger, &buffer, &[]);
        assert_eq!(norms.median(), None);
        for norm in [9.0, 1.0, 2.0, 5.0] {
            norms.push(Some(norm));
        }
        assert_eq!(norms.median(), Some(2.0), "of 1, 2, 5");
        let saved = norms.values();
        drop(norms);
        let restored = GradientNorms::new(&ledger, &buffer, &saved);
        assert_eq!(restored.median(), Some(2.0));
    }
}
