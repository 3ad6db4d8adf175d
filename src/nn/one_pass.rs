//! How is a value computed in one pass over a tensor on the CPU, with a gradient that is known rather than derived?
//!
//! Flex 0.22 computes each operation of a formula by itself, on one thread, and the graph keeps what goes into each; its
//! exp and tanh take one value at a time. Here a formula is one pass over eight values at a time, by all threads. Pieces
//! have a fixed size and each value depends on its own piece alone, so the bits do not depend on the threads.
//!
//! These are no operations of Burn's dispatch backend, which takes some from outside since 0.22. So the graph sees `values + slopes · (x − x₀)`, where x₀ is
//! x without its graph: `values` to the bit, and `slopes` are all that is kept for the backward pass.

use burn::tensor::{DType, TensorData};
use rayon::prelude::*;
use wide::f32x8;

use super::Tensor;
use super::graph::without_graph;
use crate::device::dispatch::is_cpu;

/// Eight values.
pub const LANES: usize = 8;
/// Values that one thread takes at a time; a multiple of [`LANES`].
const PIECE: usize = 1 << 14;

/// Whether this tensor is computed here: 32-bit floats on the CPU. On a GPU, Burn's operations are used.
pub fn is_for<const D: usize>(tensor: &Tensor<D>) -> bool {
    tensor.dtype() == DType::F32 && is_cpu(&without_graph(tensor).device())
}

/// Copies a tensor without autodiff into data of its own, contiguous and in order.
pub fn own<const D: usize>(plain: Tensor<D>) -> TensorData {
    // Where the tensor is shared or a view, this copies once; taking the data of such a tensor copies twice.
    plain.mul_scalar(1.0).into_data()
}

/// The floats of [`own`].
pub fn floats(data: &mut TensorData) -> &mut [f32] {
    data.as_mut_slice().unwrap_or_else(|error| unreachable!("32-bit floats were asked for: {error:?}"))
}

/// What the graph sees: `values`, whose gradient by each value of `input` is its slope.
pub fn with_slopes<const D: usize>(input: Tensor<D>, values: Tensor<D>, slopes: Tensor<D>) -> Tensor<D> {
    let fixed = input.clone().inner();
    (input - fixed) * slopes + values
}

/// A function of each value of a plain tensor.
pub fn map<const D: usize>(plain: Tensor<D>, function: impl Fn(f32x8) -> f32x8 + Sync) -> Tensor<D> {
    let device = plain.device();
    let mut data = own(plain);
    floats(&mut data).par_chunks_mut(PIECE).for_each(|piece| each(piece, &function));
    Tensor::from_data(data, &device)
}

/// Two functions of each value of a plain tensor, computed together.
pub fn map_to_two<const D: usize>(
    plain: Tensor<D>,
    function: impl Fn(f32x8) -> (f32x8, f32x8) + Sync,
) -> (Tensor<D>, Tensor<D>) {
    let (device, shape) = (plain.device(), plain.shape());
    let mut data = own(plain);
    let second = change_to_two(floats(&mut data), function);
    (Tensor::from_data(data, &device), Tensor::from_data(TensorData::new(second, shape), &device))
}

/// Changes each value, and returns another for each.
pub fn change_to_two(values: &mut [f32], function: impl Fn(f32x8) -> (f32x8, f32x8) + Sync) -> Vec<f32> {
    let mut second = vec![0.0; values.len()];
    let pieces = values.par_chunks_mut(PIECE).zip(second.par_chunks_mut(PIECE));
    pieces.for_each(|(first, second)| each_to_two(first, second, &function));
    second
}

/// Changes each value.
pub fn each(values: &mut [f32], function: impl Fn(f32x8) -> f32x8) {
    let (eights, rest) = values.as_chunks_mut::<LANES>();
    for eight in eights {
        *eight = function(f32x8::new(*eight)).to_array();
    }
    if !rest.is_empty() {
        let changed = function(f32x8::new(padded(rest, 0.0))).to_array();
        rest.copy_from_slice(&changed[..rest.len()]);
    }
}

/// Changes each value, and writes another beside it.
pub fn each_to_two(values: &mut [f32], second: &mut [f32], function: impl Fn(f32x8) -> (f32x8, f32x8)) {
    let ((eights, rest), (second, second_rest)) = (values.as_chunks_mut::<LANES>(), second.as_chunks_mut::<LANES>());
    for (eight, second) in eights.iter_mut().zip(second) {
        let (one, two) = function(f32x8::new(*eight));
        (*eight, *second) = (one.to_array(), two.to_array());
    }
    if !rest.is_empty() {
        let (one, two) = function(f32x8::new(padded(rest, 0.0)));
        rest.copy_from_slice(&one.to_array()[..rest.len()]);
        second_rest.copy_from_slice(&two.to_array()[..second_rest.len()]);
    }
}

/// Looks at each value; `padding` stands where the last eight are not full.
pub fn each_padded(values: &[f32], padding: f32x8, mut look: impl FnMut(f32x8)) {
    let (eights, rest) = values.as_chunks::<LANES>();
    eights.iter().for_each(|eight| look(f32x8::new(*eight)));
    if !rest.is_empty() {
        look(f32x8::new(padded(rest, padding.to_array()[0])));
    }
}

/// Fewer than eight values, filled up.
pub fn padded(values: &[f32], padding: f32) -> [f32; LANES] {
    let mut all = [padding; LANES];
    all[..values.len()].copy_from_slice(values);
    all
}

#[cfg(test)]
mod tests {
    use super::super::tests::{autodiff, plain, values};
    use super::*;

    fn ramp(count: usize) -> Tensor<1> {
        let numbers: Vec<f32> = (0..count).map(|number| (number as f32 * 0.37).sin() * 3.0).collect();
        Tensor::from_floats(numbers.as_slice(), &plain())
    }

    /// Lengths that do and do not fill eights and pieces.
    #[test]
    fn every_value_is_computed_whatever_their_number() {
        for count in [1, 7, 8, 9, 100, PIECE + 3] {
            let input = ramp(count);
            let (twice, squares) = map_to_two(input.clone(), |x| (x + x, x * x));
            assert_eq!(values(twice), values(input.clone() * 2.0));
            assert_eq!(values(squares), values(input.clone() * input.clone()));
            assert_eq!(values(map(input.clone(), |x| -x)), values(input.neg()));
        }
    }

    #[test]
    fn a_view_is_computed_and_what_it_looks_at_stays() {
        let whole = ramp(60).reshape([10, 6]);
        let part = whole.clone().narrow(1, 2, 3);
        assert_eq!(values(map(part.clone(), |x| x + x)), values(part * 2.0));
        assert_eq!(values(whole), values(ramp(60)));
    }

    #[test]
    fn the_graph_sees_the_values_to_the_bit_and_the_slopes_as_gradient() {
        let input = Tensor::from_inner(ramp(11)).require_grad();
        let (new, slopes) = map_to_two(input.clone().inner(), |x| (x * x * x, x * x * f32x8::splat(3.0)));
        let output = with_slopes(input.clone(), new.clone(), slopes.clone());
        assert_eq!(values(output.clone().inner()), values(new));
        let upstream = Tensor::<1>::from_floats([2.0; 11], &autodiff());
        let gradients = (output * upstream).sum().backward();
        assert_eq!(values(input.grad(&gradients).unwrap()), values(slopes * 2.0));
    }
}
