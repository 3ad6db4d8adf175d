//! Transfers between host and device; called on the training thread only, or on threads of micro-batches on the CPU.

use burn::tensor::Device;
use burn::tensor::{TensorData, Transaction};

use super::Tensor;
use xrun_data::transform::{PIXEL_DEVIATION, PIXEL_MEAN};

/// Converts square 8-bit images `[count, side, side, 3]` to a normalised tensor `[count, 3, side, side]`.
pub fn images(rgb: &[u8], side: usize, device: &Device) -> Tensor<4> {
    Tensor::from_data(image_data(rgb, side), device)
}

/// Values of [`images`].
pub fn image_data(rgb: &[u8], side: usize) -> TensorData {
    plane_data(rgb, side, |value| (value - PIXEL_MEAN) / PIXEL_DEVIATION)
}

/// As [`image_data`], with values from 0 to 255 changed by `change`.
pub fn plane_data(rgb: &[u8], side: usize, change: impl Fn(f32) -> f32) -> TensorData {
    let plane = side * side;
    let table: [f32; 256] = std::array::from_fn(|value| change(value as f32));
    let mut values = vec![0.0f32; rgb.len()];
    for (image, out) in rgb.chunks_exact(plane * 3).zip(values.chunks_exact_mut(plane * 3)) {
        for (channel, out) in out.chunks_exact_mut(plane).enumerate() {
            for (value, pixel) in out.iter_mut().zip(image.chunks_exact(3)) {
                *value = table[usize::from(pixel[channel])];
            }
        }
    }
    TensorData::new(values, [rgb.len() / (plane * 3), 3, side, side])
}

/// Tensor of a shape from values on the host.
pub fn tensor<const D: usize>(values: Vec<f32>, shape: [usize; D], device: &Device) -> Tensor<D> {
    Tensor::from_data(TensorData::new(values, shape), device)
}

/// Copies several tensors to the host in one transfer.
pub fn fetch<const D: usize>(tensors: Vec<Tensor<D>>) -> Vec<Vec<f32>> {
    if tensors.is_empty() {
        return Vec::new();
    }
    let transaction =
        tensors.into_iter().fold(Transaction::default(), |transaction, tensor| transaction.register(tensor));
    transaction.execute().iter().map(|data| data.iter::<f32>().collect()).collect()
}
