//! Range of activations for quantisation: minimum and maximum of a calibration, or an exponential moving average over batches.
//!
//! The GPT-2 of docs/origins.md has a momentum of 0.9. The state is two tensors on the inner device, without a graph, independent of
//! the number of batches.

use xrun_ops::{QuantRange, in_place};

use super::Tensor;

/// Running range of values; empty before the first batch.
#[derive(Clone, Debug, Default)]
pub struct MovingRange(Option<QuantRange>);

impl MovingRange {
    /// Extends the range to include all values of a batch (min-max calibration).
    pub fn update_min_max<const D: usize>(&mut self, values: &Tensor<D>, per_channel: bool) {
        let batch = QuantRange::min_max(values, per_channel);
        self.0 = Some(match self.0.take() {
            None => batch,
            Some(old) => QuantRange { low: old.low.min_pair(batch.low), high: old.high.max_pair(batch.high) },
        });
    }

    /// Updates the moving average with the range of a batch. `momentum` is the weight of the old range; the first batch is copied.
    pub fn update_average<const D: usize>(&mut self, values: &Tensor<D>, per_channel: bool, momentum: f32) {
        let batch = QuantRange::min_max(values, per_channel);
        // The old tensors are consumed: a backend may update them in place.
        let average = |old: QuantRange| QuantRange {
            low: old.low.mul_scalar(momentum) + batch.low.clone().mul_scalar(1.0 - momentum),
            high: old.high.mul_scalar(momentum) + batch.high.clone().mul_scalar(1.0 - momentum),
        };
        self.0 = Some(match self.0.take() {
            None => batch,
            // A captured step reads and writes them where they are.
            Some(old) if in_place::is_possible(&old.low) => {
                let new = average(old.clone());
                in_place::assign(vec![(old.low.clone(), new.low), (old.high.clone(), new.high)]);
                old
            }
            Some(old) => average(old),
        });
    }

    /// Current range; `None` before the first batch.
    pub fn bounds(&self) -> Option<&QuantRange> {
        self.0.as_ref()
    }

    /// Restores a saved range.
    pub fn set(&mut self, bounds: Option<QuantRange>) {
        self.0 = bounds;
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{autodiff, close, values};
    use super::*;

    /// By hand: -1..3; then 0.9 (-1) + 0.1 (-11) = -2 and 0.9 (3) + 0.1 (13) = 4.
    #[test]
    fn the_first_batch_is_copied_and_later_ones_are_averaged() {
        let mut range = MovingRange::default();
        assert!(range.bounds().is_none());
        let batch =
            |low: f32, high: f32| Tensor::<2>::from_floats([[low, 0.0], [0.5, high]], &autodiff()).require_grad();
        range.update_average(&batch(-1.0, 3.0), false, 0.9);
        range.update_average(&batch(-11.0, 13.0), false, 0.9);
        let bounds = range.bounds().unwrap().clone();
        close(&values(bounds.low), &[-2.0], 1e-6);
        close(&values(bounds.high), &[4.0], 1e-6);
    }

    #[test]
    fn a_calibration_gives_minimum_and_maximum_of_all_batches() {
        let batch = |low: f32, high: f32| Tensor::<2>::from_floats([[low, 0.0], [0.5, high]], &autodiff());
        for order in [[(-1.0, 3.0), (-11.0, 2.0), (-4.0, 13.0)], [(-4.0, 13.0), (-11.0, 2.0), (-1.0, 3.0)]] {
            let mut range = MovingRange::default();
            order.into_iter().for_each(|(low, high)| range.update_min_max(&batch(low, high), false));
            let bounds = range.bounds().unwrap().clone();
            close(&values(bounds.low), &[-11.0], 0.0);
            close(&values(bounds.high), &[13.0], 0.0);
        }
        let mut range = MovingRange::default();
        range.update_min_max(&batch(-1.0, 3.0), true);
        range.update_min_max(&batch(-2.0, 1.0), true);
        let bounds = range.bounds().unwrap().clone();
        close(&values(bounds.low), &[-2.0, 0.0], 0.0);
        close(&values(bounds.high), &[0.5, 3.0], 0.0);
    }

    /// Statistics that kept a tensor of each batch leaked 3 GB in a hundred steps of GPT-2 (docs/origins.md).
    #[test]
    fn memory_does_not_grow_over_a_thousand_batches() {
        const CHANNELS: usize = 65_536;
        let batch = Tensor::<2>::ones([2, CHANNELS], &autodiff()).require_grad();
        let mut range = MovingRange::default();
        range.update_average(&batch, true, 0.9);
        let before = xrun_core::heap::read().bytes as i64;
        for _ in 0..1000 {
            range.update_average(&batch, true, 0.9);
        }
        let grown = xrun_core::heap::read().bytes as i64 - before;
        // A range of each batch would be 524 MB. Other tests use the heap at the same time.
        assert!(grown < 300_000_000, "{grown}");
        assert_eq!(range.bounds().unwrap().low.dims(), [CHANNELS]);
    }
}
