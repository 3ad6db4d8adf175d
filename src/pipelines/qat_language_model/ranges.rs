//! Where do the ranges of all activations live, and how are they saved? One for each precision, block and quantiser.

use std::path::Path;

use burn::DispatchDevice;
use serde::{Deserialize, Serialize};

use crate::nn::Tensor;
use crate::nn::fake_quantise::Bounds;
use crate::nn::moving_range::MovingRange;
use crate::results::file;

/// What is quantised in a block: what goes into its four linear layers, keys, and values.
pub const QUANTISERS: usize = 6;
/// Inside a checkpoint.
pub const FILE: &str = "ranges.json";

/// As many as precisions times blocks times [`QUANTISERS`], from the beginning.
#[derive(Clone, Debug)]
pub struct Ranges(Vec<Vec<MovingRange>>);

/// Low and high; `None` for a range that saw nothing.
type Saved = Option<(Vec<f32>, Vec<f32>)>;

/// More ranges than a model has.
const FILE_BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// One number for all, or one for each channel.
fn sound(low: &[f32], high: &[f32]) -> bool {
    let ordered = |(low, high): (&f32, &f32)| low.is_finite() && high.is_finite() && low <= high;
    !low.is_empty() && low.len() == high.len() && low.iter().zip(high).all(ordered)
}

#[derive(Serialize, Deserialize)]
struct File {
    version: u32,
    /// By precision, then block and quantiser.
    ranges: Vec<Vec<Saved>>,
}

impl Ranges {
    pub fn new(precisions: usize, blocks: usize) -> Self {
        Self(vec![vec![MovingRange::default(); blocks * QUANTISERS]; precisions])
    }

    pub fn of(&mut self, precision: usize, quantiser: usize) -> &mut MovingRange {
        &mut self.0[precision][quantiser]
    }

    /// Copies of all ranges, which share nothing with them: for the leak that keeps them.
    pub fn copies(&self) -> Vec<Bounds> {
        let copy = |tensor: &Tensor<1>| tensor.clone().mul_scalar(1.0);
        let all = self.0.iter().flatten().filter_map(MovingRange::bounds);
        all.map(|bounds| Bounds { low: copy(&bounds.low), high: copy(&bounds.high) }).collect()
    }

    /// Numbers that are exact when they are read again.
    pub fn to_json(&self) -> Vec<u8> {
        let numbers = |tensor: &Tensor<1>| -> Vec<f32> { tensor.clone().into_data().iter::<f32>().collect() };
        let saved = |range: &MovingRange| range.bounds().map(|bounds| (numbers(&bounds.low), numbers(&bounds.high)));
        let ranges = self.0.iter().map(|all| all.iter().map(saved).collect()).collect();
        serde_json::to_vec(&File { version: 1, ranges }).unwrap_or_default()
    }

    /// Reads what [`Self::to_json`] wrote; `device` is the plain one.
    pub fn read(&mut self, path: &Path, device: &DispatchDevice) -> Result<(), String> {
        let bytes = file::bytes(path, FILE_BYTES_MAX).map_err(|error| error.to_string())?;
        let file: File = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
        let fits = file.version == 1
            && file.ranges.len() == self.0.len()
            && file.ranges.iter().zip(&self.0).all(|(saved, own)| saved.len() == own.len());
        if !fits {
            return Err("does not fit the precisions and the model of this experiment".into());
        }
        let mut all = file.ranges.iter().flatten().flatten();
        if !all.all(|(low, high)| sound(low, high)) {
            return Err("has a range that is empty, that has no end, or whose ends are the wrong way round".into());
        }
        for (own, saved) in self.0.iter_mut().flatten().zip(file.ranges.into_iter().flatten()) {
            own.set(saved.map(|(low, high)| Bounds {
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
        ranges.of(1, 4).observe(&values, true, 0.9);
        crate::results::write::replace(&path, &ranges.to_json()).unwrap();
        let mut read = Ranges::new(2, 3);
        read.read(&path, &plain()).unwrap();
        assert_eq!(read.to_json(), ranges.to_json());
        assert!(read.of(0, 0).bounds().is_none() && read.of(1, 4).bounds().is_some());
        assert!(Ranges::new(2, 2).read(&path, &plain()).unwrap_err().contains("does not fit"));
        for wrong in ["[[],[]]", "[[0.0],[1.0,2.0]]", "[[2.0],[1.0]]", "[[-1e39],[1.0]]"] {
            let nulls = vec!["null"; QUANTISERS - 1].join(",");
            let text = format!("{{\"version\":1,\"ranges\":[[{wrong},{nulls}]]}}");
            crate::results::write::replace(&path, text.as_bytes()).unwrap();
            let message = Ranges::new(1, 1).read(&path, &plain()).unwrap_err();
            assert!(message.contains("wrong way round"), "{wrong}: {message}");
        }
    }
}
