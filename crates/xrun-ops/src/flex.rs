//! Values of burn-flex tensors as slices.

use burn::tensor::{Bytes, DType, Shape};
use burn_flex::{FlexTensor, Layout};

/// Returns the tensor with its values in order, copied where they are not.
pub fn contiguous(tensor: FlexTensor) -> FlexTensor {
    if tensor.layout().contiguous_offsets().is_some() { tensor } else { tensor.to_contiguous() }
}

/// The values of a contiguous tensor of 32-bit floats.
pub fn values(tensor: &FlexTensor) -> &[f32] {
    tensor.as_slice().unwrap_or_else(|| unreachable!("the tensor is contiguous and of 32-bit floats"))
}

/// A tensor of 32-bit floats.
pub fn tensor(values: Vec<f32>, shape: Shape) -> FlexTensor {
    FlexTensor::new(Bytes::from_elems(values), Layout::contiguous(shape), DType::F32)
}

/// The sizes of the dimensions.
pub fn shape(tensor: &FlexTensor) -> Shape {
    tensor.layout().shape().clone()
}

/// The length of the last dimension; at least one.
pub fn width(tensor: &FlexTensor) -> usize {
    tensor.layout().shape().last().copied().unwrap_or(1).max(1)
}

/// A tensor whose values may be overwritten through [`FlexTensor::storage_mut`]: the same if nobody else holds them.
pub fn writable(tensor: FlexTensor) -> FlexTensor {
    let whole = tensor.layout().contiguous_offsets() == Some((0, tensor.storage::<f32>().len()));
    if whole && tensor.is_unique() {
        return tensor;
    }
    let tensor = contiguous(tensor);
    let copy = values(&tensor).to_vec();
    self::tensor(copy, shape(&tensor))
}
