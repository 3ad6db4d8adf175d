//! From bytes on the host to a tensor on the device; called on the training thread only.

use burn::tensor::Device;
use burn::tensor::{TensorData, Transaction};

use super::Tensor;

/// About the mean and the spread of photographs, so that inputs are around zero.
const MEAN: f32 = 114.0;
const SPREAD: f32 = 64.0;

/// `count` square pictures `[count, side, side, 3]` of 8 bits to `[count, 3, side, side]`.
pub fn pictures(rgb: &[u8], side: usize, device: &Device) -> Tensor<4> {
    let plane = side * side;
    let count = rgb.len() / (plane * 3);
    let mut values = vec![0.0f32; count * plane * 3];
    for (picture, out) in rgb.chunks_exact(plane * 3).zip(values.chunks_exact_mut(plane * 3)) {
        for (at, pixel) in picture.chunks_exact(3).enumerate() {
            for (channel, value) in pixel.iter().enumerate() {
                out[channel * plane + at] = (f32::from(*value) - MEAN) / SPREAD;
            }
        }
    }
    Tensor::from_data(TensorData::new(values, [count, 3, side, side]), device)
}

/// Numbers to a tensor of a shape.
pub fn tensor<const D: usize>(values: Vec<f32>, shape: [usize; D], device: &Device) -> Tensor<D> {
    Tensor::from_data(TensorData::new(values, shape), device)
}

/// Brings several tensors to the host in one transfer.
pub fn fetch<const D: usize>(tensors: Vec<Tensor<D>>) -> Vec<Vec<f32>> {
    let transaction =
        tensors.into_iter().fold(Transaction::default(), |transaction, tensor| transaction.register(tensor));
    transaction.execute().iter().map(|data| data.iter::<f32>().collect()).collect()
}
