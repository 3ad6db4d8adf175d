//! Ranges of activations, one for each precision, block and quantizer, and their file in a checkpoint.

use std::path::Path;

use burn::tensor::Device;
use xrun_ops::QuantRange;

use super::ranges_file;
pub use super::ranges_file::FILE;
use xrun_training::nn::Tensor;
use xrun_training::nn::moving_range::MovingRange;

/// Quantizers of a block: the inputs of its four linear layers, keys, and values.
pub const QUANTIZERS_PER_BLOCK: usize = 6;
/// Index of the quantizer of a block's keys; the ones before it belong to the linear layers.
pub const KEYS: usize = 4;
/// Index of the quantizer of a block's values.
pub const VALUES: usize = 5;

/// Ranges by precision, then block and quantizer.
#[derive(Clone, Debug)]
pub struct Ranges(Vec<Vec<MovingRange>>);

impl Ranges {
    /// Ranges without bounds.
    pub fn new(precisions: usize, blocks: usize) -> Self {
        Self(vec![vec![MovingRange::default(); blocks * QUANTIZERS_PER_BLOCK]; precisions])
    }

    /// Range of a quantizer; `quantizer` is `block * QUANTIZERS_PER_BLOCK + index`.
    pub fn range_mut(&mut self, precision: usize, quantizer: usize) -> &mut MovingRange {
        &mut self.0[precision][quantizer]
    }

    /// Bounds of these precisions.
    pub fn tensors(&self, precisions: impl Iterator<Item = usize>) -> Vec<Tensor<1>> {
        let ranges = precisions.flat_map(|precision| &self.0[precision]).filter_map(MovingRange::bounds);
        ranges.flat_map(|bounds| [bounds.low.clone(), bounds.high.clone()]).collect()
    }

    /// Deep copies of all bounds, for the leak that keeps them.
    pub fn copies(&self) -> Vec<QuantRange> {
        let copy = |tensor: &Tensor<1>| tensor.clone().mul_scalar(1.0);
        let all = self.0.iter().flatten().filter_map(MovingRange::bounds);
        all.map(|bounds| QuantRange { low: copy(&bounds.low), high: copy(&bounds.high) }).collect()
    }

    /// Serialises the bounds without loss.
    pub fn to_json(&self) -> Vec<u8> {
        let numbers = |tensor: &Tensor<1>| -> Vec<f32> { tensor.clone().into_data().iter::<f32>().collect() };
        let saved = |range: &MovingRange| range.bounds().map(|bounds| (numbers(&bounds.low), numbers(&bounds.high)));
        let ranges = self.0.iter().map(|all| all.iter().map(saved).collect()).collect();
        ranges_file::to_json(ranges)
    }

    /// Reads the output of [`Self::to_json`] to `device`, the inner one.
    ///
    /// # Errors
    /// As [`ranges_file::read`].
    pub fn read(&mut self, path: &Path, device: &Device) -> Result<(), String> {
        let saved = ranges_file::read(path, self.0.len(), self.0.first().map_or(0, Vec::len))?;
        for (own, saved) in self.0.iter_mut().flatten().zip(saved.into_iter().flatten()) {
            own.set(saved.map(|(low, high)| QuantRange {
                low: Tensor::from_floats(low.as_slice(), device),
                high: Tensor::from_floats(high.as_slice(), device),
            }));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use xrun_training::nn::testing::plain;

    #[test]
    fn ranges_are_saved_bit_for_bit_and_another_shape_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE);
        let mut ranges = Ranges::new(2, 3);
        let values = Tensor::<2>::from_floats([[0.1, -1.0 / 3.0], [1e-30, 7.7]], &plain());
        ranges.range_mut(1, 4).update_average(&values, true, 0.9);
        xrun_core::files::write::replace(&path, &ranges.to_json()).unwrap();
        let mut read = Ranges::new(2, 3);
        read.read(&path, &plain()).unwrap();
        assert_eq!(read.to_json(), ranges.to_json());
        assert!(read.range_mut(0, 0).bounds().is_none() && read.range_mut(1, 4).bounds().is_some());
        assert_eq!(Ranges::new(2, 2).read(&path, &plain()), Err(ranges_file::MISMATCH.into()));
    }
}
