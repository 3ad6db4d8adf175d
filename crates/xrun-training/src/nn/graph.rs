//! Conversion of tensors between a device and its autodiff device.

use super::Tensor;

/// Returns whether operations on this tensor are recorded for a backward pass.
pub fn has_graph<const D: usize>(tensor: &Tensor<D>) -> bool {
    tensor.is_autodiff()
}

/// Values of a tensor on the inner (non-autodiff) device, whether or not it has a graph.
pub fn to_inner<const D: usize>(tensor: &Tensor<D>) -> Tensor<D> {
    match has_graph(tensor) {
        true => tensor.clone().inner(),
        false => tensor.clone(),
    }
}

/// Moves a tensor of the inner device to the device of `like`, without gradient if that is an autodiff device. Operations accept
/// inner tensors as constants; this is for tensors that are returned or become leaves.
pub fn autodiff_like<const D: usize, const E: usize>(inner: Tensor<D>, like: &Tensor<E>) -> Tensor<D> {
    match like.gradient_checkpointing_strategy() {
        // Burn refuses to mix strategies, and `autodiff` alone selects the one that saves all activations.
        Some(strategy) => inner.autodiff().with_gradient_checkpointing_strategy(strategy),
        None => inner,
    }
}
