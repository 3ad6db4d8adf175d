//! Tensors with a graph, and without one.

use super::Tensor;

/// Whether operations on this tensor are recorded.
pub fn has_graph<const D: usize>(tensor: &Tensor<D>) -> bool {
    tensor.is_autodiff()
}

/// A tensor of these values on the plain device.
pub fn without_graph<const D: usize>(tensor: &Tensor<D>) -> Tensor<D> {
    match has_graph(tensor) {
        true => tensor.clone().inner(),
        false => tensor.clone(),
    }
}

/// A tensor of the plain device where `like` is: untracked on the device that records. Operations take plain tensors as
/// constants, too; this is for what is returned or becomes a leaf.
pub fn beside<const D: usize, const E: usize>(plain: Tensor<D>, like: &Tensor<E>) -> Tensor<D> {
    match like.gradient_checkpointing_strategy() {
        // Burn refuses to mix strategies, and what is only made recorded has the one that keeps all.
        Some(strategy) => plain.autodiff().with_gradient_checkpointing_strategy(strategy),
        None => plain,
    }
}
