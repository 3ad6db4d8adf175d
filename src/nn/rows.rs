//! Rows of numbers in host memory, such as one for each token: products and sums that all threads share.
//!
//! Work is split into pieces whose size follows from no number of threads, and sums over pieces are taken in their order. So
//! any number of threads gives the same bits.

use burn::tensor::Device;
use burn::tensor::TensorData;
use rayon::prelude::*;
use wide::f32x8;

use super::one_pass::{LANES, own, padded};
use super::planes::add;
use super::product::{Into, Matrix, MatrixMut, multiply};
use super::{Tensor, one_pass};

/// Rows that one thread takes at a time.
pub const PIECE: usize = 128;
/// Columns of the left factor that one thread takes at a time, where a product sums over rows.
const COLUMNS: usize = 32;

/// Numbers `[count, width]`, row by row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rows {
    /// All numbers.
    pub values: Vec<f32>,
    /// Numbers of a row; at least one.
    pub width: usize,
}

impl Rows {
    /// Rows of zeros.
    pub fn zeros(count: usize, width: usize) -> Self {
        Self { values: vec![0.0; count * width], width }
    }

    /// The same row so many times.
    pub fn repeated(row: &[f32], count: usize) -> Self {
        Self { values: row.repeat(count), width: row.len() }
    }

    /// A copy of a tensor of 32-bit floats on the CPU, without a graph.
    pub fn of(plain: Tensor<2>) -> Self {
        let width = plain.dims()[1];
        Self { values: numbers(plain), width }
    }

    /// How many rows there are.
    pub fn count(&self) -> usize {
        self.values.len() / self.width
    }

    /// As a tensor `[count, width]`.
    pub fn tensor(self, plain: &Device) -> Tensor<2> {
        let shape = [self.count(), self.width];
        Tensor::from_data(TensorData::new(self.values, shape), plain)
    }

    /// All of it, for a product.
    pub fn matrix(&self) -> Matrix<'_> {
        Matrix::new(&self.values, self.count(), self.width, self.width)
    }

    /// Some columns of all rows, copied.
    pub fn columns(&self, from: usize, width: usize) -> Self {
        let parts = self.values.chunks_exact(self.width).map(|row| &row[from..from + width]);
        Self { values: parts.collect::<Vec<_>>().concat(), width }
    }

    /// Adds rows of the same sizes.
    pub fn add(&mut self, other: &Self) {
        let pieces = self.values.par_chunks_mut(PIECE * self.width).zip(other.values.par_chunks(PIECE * self.width));
        pieces.for_each(|(values, other)| add(values, other));
    }

    /// Multiplies each number by its own factor.
    pub fn multiply_each(&mut self, factors: &[f32]) {
        let pieces = self.values.par_chunks_mut(PIECE * self.width).zip(factors.par_chunks(PIECE * self.width));
        pieces.for_each(|(values, factors)| change(values, factors, |value, factor| value * factor));
    }

    /// Multiplies all numbers by one factor.
    pub fn scale(&mut self, factor: f32) {
        one_pass::each(&mut self.values, |value| value * f32x8::splat(factor));
    }

    /// Writes or adds `left · right`, some rows at a time.
    ///
    /// # Panics
    /// The sizes do not fit.
    pub fn product(&mut self, left: &Self, right: Matrix<'_>, into: Into) {
        let (width, inner) = (self.width, left.width);
        let pieces = self.values.par_chunks_mut(PIECE * width).zip(left.values.par_chunks(PIECE * inner));
        pieces.for_each(|(to, left)| {
            let count = to.len() / width;
            let left = Matrix::new(left, count, inner, inner);
            multiply(MatrixMut::new(to, count, width, width), left, right, into);
        });
    }

    /// `leftᵀ · right`, `[left's width, right's width]`: how a gradient gets to a weight.
    pub fn crossed(left: &Self, right: &Self) -> Self {
        let mut crossed = Self::zeros(left.width, right.width);
        crossed.values.par_chunks_mut(COLUMNS * right.width).enumerate().for_each(|(number, to)| {
            let columns = to.len() / right.width;
            let left = Matrix::new(&left.values[number * COLUMNS..], left.count(), columns, left.width);
            let to = MatrixMut::new(to, columns, right.width, right.width);
            multiply(to, left.transposed(), right.matrix(), Into::Replaced);
        });
        crossed
    }

    /// The sum of all rows.
    pub fn sum(&self) -> Vec<f32> {
        let pieces = self.values.par_chunks(PIECE * self.width).map(|piece| {
            let mut sum = vec![0.0; self.width];
            piece.chunks_exact(self.width).for_each(|row| add(&mut sum, row));
            sum
        });
        in_order(pieces.collect(), self.width)
    }
}

/// The sum of some vectors of one length, from the first to the last.
pub fn in_order(vectors: Vec<Vec<f32>>, length: usize) -> Vec<f32> {
    vectors.iter().fold(vec![0.0; length], |mut sum, vector| {
        add(&mut sum, vector);
        sum
    })
}

/// Where tensors of such rows are.
pub fn cpu() -> Device {
    Device::flex()
}

/// A copy of the numbers of a tensor of 32-bit floats on the CPU, without a graph.
pub fn numbers<const D: usize>(plain: Tensor<D>) -> Vec<f32> {
    own(plain).try_into_vec().unwrap_or_else(|error| unreachable!("32-bit floats were asked for: {error:?}"))
}

/// Changes each value by another at the same place.
pub fn change(values: &mut [f32], by: &[f32], function: impl Fn(f32x8, f32x8) -> f32x8) {
    let ((eights, rest), (by, by_rest)) = (values.as_chunks_mut::<LANES>(), by.as_chunks::<LANES>());
    for (eight, by) in eights.iter_mut().zip(by) {
        *eight = function(f32x8::new(*eight), f32x8::new(*by)).to_array();
    }
    if !rest.is_empty() {
        let changed = function(f32x8::new(padded(rest, 0.0)), f32x8::new(padded(by_rest, 0.0))).to_array();
        rest.copy_from_slice(&changed[..rest.len()]);
    }
}

/// The sum of products of values at the same place.
pub fn dot(one: &[f32], other: &[f32]) -> f32 {
    let ((eights, rest), (other, other_rest)) = (one.as_chunks::<LANES>(), other.as_chunks::<LANES>());
    let both = eights.iter().zip(other);
    let sum = both.fold(f32x8::ZERO, |sum, (one, other)| sum + f32x8::new(*one) * f32x8::new(*other));
    rest.iter().zip(other_rest).fold(sum.reduce_add(), |sum, (one, other)| sum + one * other)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{close, plain};
    use super::*;

    fn drawn(count: usize, width: usize, seed: f32) -> Rows {
        Rows { values: (0..count * width).map(|at| (at as f32 * 0.731 + seed).sin()).collect(), width }
    }

    /// More rows than a piece has, and widths that do not fill eights.
    #[test]
    fn products_and_sums_are_those_of_burn() {
        let (count, inner, width) = (PIECE * 2 + 3, 37, 11);
        let (left, right, above) = (drawn(count, inner, 0.1), drawn(inner, width, 0.2), drawn(count, width, 0.3));
        let [left_burn, right_burn, above_burn] = [&left, &right, &above].map(|rows| rows.clone().tensor(&plain()));
        let mut found = above.clone();
        found.product(&left, right.matrix(), Into::Added);
        close(&found.values, &numbers(left_burn.clone().matmul(right_burn) + above_burn.clone()), 1e-4);
        let crossed = Rows::crossed(&left, &above);
        close(&crossed.values, &numbers(left_burn.transpose().matmul(above_burn.clone())), 1e-3);
        close(&above.sum(), &numbers(above_burn.sum_dim(0)), 1e-3);
        assert_eq!(crossed.count(), inner);
    }

    #[test]
    fn rows_by_hand() {
        let mut rows = Rows { values: vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0], width: 3 };
        assert_eq!(rows.columns(1, 2).values, [2.0, 3.0, 5.0, 6.0]);
        assert_eq!(rows.sum(), [5.0, 7.0, 9.0]);
        assert_eq!(dot(&rows.values[..3], &rows.values[3..]), 32.0);
        rows.multiply_each(&[0.0, 1.0, 2.0, 1.0, 0.0, 1.0]);
        rows.scale(2.0);
        rows.add(&Rows::repeated(&[1.0, 1.0, 1.0], 2));
        assert_eq!(rows.values, [1.0, 5.0, 13.0, 9.0, 1.0, 13.0]);
    }
}
