//! Neural network building blocks that Burn lacks, and the training step. Each is checked against an independent source.

pub mod box_loss;
pub mod callback;
pub mod checkpoint_weights;
pub mod conv_block;
pub mod encoder_block;
pub mod flat;
pub mod focal_loss;
pub mod generate;
pub mod gpt2;
pub mod gpt2_file;
pub mod gradients;
pub mod graph;
pub mod hugging_face;
#[cfg(test)]
pub mod kernel_parity;
pub mod leaks;
pub mod learned_scale;
pub mod matmul;
pub mod micro_batches;
pub mod module_task;
pub mod moving_range;
pub mod normalise;
pub mod opening;
pub mod optimizer;
pub mod parameters;
pub mod pixels;
pub mod proximal;
pub mod step;
pub mod training_module;
pub mod transformer;
pub mod triplet_loss;

pub use burn::tensor::Tensor;

#[cfg(test)]
pub(crate) mod tests {
    use super::Tensor;
    use burn::tensor::Device;

    pub fn plain() -> Device {
        Device::flex()
    }

    pub fn autodiff() -> Device {
        plain().autodiff()
    }

    pub fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
        tensor.into_data().try_to_vec().unwrap()
    }

    pub fn close(found: &[f32], expected: &[f32], tolerance: f32) {
        assert_eq!(found.len(), expected.len());
        for (number, (found, expected)) in found.iter().zip(expected).enumerate() {
            assert!((found - expected).abs() <= tolerance, "at {number}: {found}, expected {expected}");
        }
    }
}
