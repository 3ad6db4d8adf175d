//! Access to burn-flex tensors as slices.

use burn::tensor::{Bytes, DType, Shape};
use burn_flex::{FlexTensor, Layout};

/// Returns the tensor in row-major order, copied if it is strided.
pub fn contiguous(tensor: FlexTensor) -> FlexTensor {
    if tensor.layout().contiguous_offsets().is_some() { tensor } else { tensor.to_contiguous() }
}

/// Returns the values of a contiguous tensor of 32-bit floats.
pub fn values(tensor: &FlexTensor) -> &[f32] {
    tensor.as_slice().unwrap_or_else(|| unreachable!("the tensor is contiguous and of 32-bit floats"))
}

/// Creates a tensor of 32-bit floats.
pub fn tensor(values: Vec<f32>, shape: Shape) -> FlexTensor {
    FlexTensor::new(Bytes::from_elems(values), Layout::contiguous(shape), DType::F32)
}

/// Returns the sizes of the dimensions.
pub fn shape(tensor: &FlexTensor) -> Shape {
    tensor.layout().shape().clone()
}

/// Returns the size of the last dimension, at least 1.
pub fn last_dim(tensor: &FlexTensor) -> usize {
    tensor.layout().shape().last().copied().unwrap_or(1).max(1)
}

/// Returns a tensor that may be overwritten through [`FlexTensor::storage_mut`]: the same one if its storage is not shared, else a copy.
pub fn writable(tensor: FlexTensor) -> FlexTensor {
    let covers_storage = tensor.layout().contiguous_offsets() == Some((0, tensor.storage::<f32>().len()));
    if covers_storage && tensor.is_unique() {
        return tensor;
    }
    let tensor = contiguous(tensor);
    let copy = values(&tensor).to_vec();
    self::tensor(copy, shape(&tensor))
}
