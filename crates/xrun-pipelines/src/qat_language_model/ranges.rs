//! Where do the ranges of all activations live, and how are they saved? One for each precision, block and quantiser.

use std::path::Path;

use burn::tensor::Device;
use xrun_ops::QuantRange;

use super::ranges_file;
pub use super::ranges_file::FILE;
use crate::nn::Tensor;
use crate::nn::moving_range::MovingRange;

/// What is quantised in a block: what goes into its four linear layers, keys, and values.
pub const QUANTISERS: usize = 6;
/// The quantiser of a block's keys; those before it are of its linear layers.
pub const KEYS: usize = 4;
/// The quantiser of a block's values.
pub const VALUES: usize = 5;

/// As many as precisions times blocks times [`QUANTISERS`], from the beginning.
#[derive(Clone, Debug)]
pub struct Ranges(Vec<Vec<MovingRange>>);

impl Ranges {
    /// Ranges that have seen nothing.
    pub fn new(precisions: usize, blocks: usize) -> Self {
        Self(vec![vec![MovingRange::default(); blocks * QUANTISERS]; precisions])
    }

    /// One of them. `quantiser` counts through all blocks of the precision.
    pub fn of(&mut self, precision: usize, quantiser: usize) -> &mut MovingRange {
        &mut self.0[precision][quantiser]
    }

    /// Copies of all ranges, which share nothing with them: for the leak that keeps them.
    pub fn copies(&self) -> Vec<QuantRange> {
        let copy = |tensor: &Tensor<1>| tensor.clone().mul_scalar(1.0);
        let all = self.0.iter().flatten().filter_map(MovingRange::bounds);
        all.map(|bounds| QuantRange { low: copy(&bounds.low), high: copy(&bounds.high) }).collect()
    }

    /// Numbers that are exact when they are read again.
    pub fn to_json(&self) -> Vec<u8> {
        let numbers = |tensor: &Tensor<1>| -> Vec<f32> { tensor.clone().into_data().iter::<f32>().collect() };
        let saved = |range: &MovingRange| range.bounds().map(|bounds| (numbers(&bounds.low), numbers(&bounds.high)));
        let ranges = self.0.iter().map(|all| all.iter().map(saved).collect()).collect();
        ranges_file::to_json(ranges)
    }

    /// Reads what [`Self::to_json`] wrote; `device` is the plain one.
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
    use crate::nn::tests::plain;

    #[test]
    fn what_is_saved_is_read_to_the_same_bits_and_another_shape_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        let mut ranges = Ranges::new(2, 3);
        let values = Tensor::<2>::from_floats([[0.1, -1.0 / 3.0], [1e-30, 7.7]], &plain());
        ranges.of(1, 4).update_average(&values, true, 0.9);
        xrun_core::files::write::replace(&path, &ranges.to_json()).unwrap();
        let mut read = Ranges::new(2, 3);
        read.read(&path, &plain()).unwrap();
        assert_eq!(read.to_json(), ranges.to_json());
        assert!(read.of(0, 0).bounds().is_none() && read.of(1, 4).bounds().is_some());
        assert!(Ranges::new(2, 2).read(&path, &plain()).unwrap_err().contains("does not fit"));
    }
}
