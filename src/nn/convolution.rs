//! Convolutions of 3 x 3 and of 1 x 1 in host memory, forward and backward, on the thread that asks for them.
//!
//! A convolution is a matrix product of its kernels and of what its pixels see ([`super::columns`]), a few pictures at a time, so
//! that the columns stay in the processor's cache. They are not kept: the way back makes them again from the input.

use std::ops::Range;

use super::columns::{Columns, Stride};
use super::planes::{Planes, Sizes, sum};
use super::product::{Into, Matrix, MatrixMut, multiply};

/// Values of columns at once, unless one picture has more: 256 KiB.
const COLUMNS: usize = 1 << 16;

/// Kernels of 3 x 3 without a bias, `[outputs, inputs, 3, 3]`.
#[derive(Clone, Copy, Debug)]
pub struct Kernels<'a> {
    /// In this order.
    pub values: &'a [f32],
    /// Channels that come out.
    pub outputs: usize,
    /// How far pixels are apart.
    pub stride: Stride,
}

impl Kernels<'_> {
    /// Columns for as many pictures as fit, and the ranges of pictures that are computed together.
    fn columns(&self, input: Sizes) -> (Columns, impl Iterator<Item = Range<usize>> + use<>) {
        let [height, width] = self.stride.output(input);
        let each = self.values.len() / self.outputs * height * width;
        let at_once = (COLUMNS / each.max(1)).clamp(1, input.pictures.max(1));
        let ranges = (0..input.pictures).step_by(at_once).map(move |from| from..(from + at_once).min(input.pictures));
        (Columns::new(input, self.stride, at_once), ranges)
    }

    fn matrix(&self, rows: usize) -> Matrix<'_> {
        Matrix::new(self.values, self.outputs, rows, rows)
    }

    /// What comes out.
    pub fn forward(&self, input: &Planes) -> Planes {
        let [height, width] = self.stride.output(input.sizes);
        let mut output = Planes::zeros(Sizes { channels: self.outputs, pictures: input.sizes.pictures, height, width });
        let (pixels, row) = (height * width, output.sizes.row());
        let (mut columns, ranges) = self.columns(input.sizes);
        let rows = columns.rows();
        for pictures in ranges {
            columns.look(input, pictures.clone());
            let (from, count) = (pictures.start * pixels, pictures.len() * pixels);
            let seen = Matrix::new(columns.matrix(pictures.len()), rows, count, count);
            let to = MatrixMut::new(&mut output.values[from..], self.outputs, count, row);
            multiply(to, self.matrix(rows), seen, Into::Replaced);
        }
        output
    }

    /// Adds the gradient by the kernels to `by_kernels`, and gives that by the input if it is wanted; `gradient` is that by
    /// what came out.
    pub fn back(&self, input: &Planes, gradient: &Planes, by_kernels: &mut [f32], wanted: bool) -> Option<Planes> {
        let mut by_input = wanted.then(|| Planes::zeros(input.sizes));
        let (pixels, row) = (gradient.sizes.pixels(), gradient.sizes.row());
        let (mut columns, ranges) = self.columns(input.sizes);
        let rows = columns.rows();
        for pictures in ranges {
            columns.look(input, pictures.clone());
            let (from, count) = (pictures.start * pixels, pictures.len() * pixels);
            let of_output = Matrix::new(&gradient.values[from..], self.outputs, count, row);
            let seen = columns.matrix(pictures.len());
            let to = MatrixMut::new(by_kernels, self.outputs, rows, rows);
            multiply(to, of_output, Matrix::new(seen, rows, count, count).transposed(), Into::Added);
            if let Some(by_input) = &mut by_input {
                let to = MatrixMut::new(seen, rows, count, count);
                multiply(to, self.matrix(rows).transposed(), of_output, Into::Replaced);
                columns.back(by_input, pictures);
            }
        }
        by_input
    }
}

/// A convolution of 1 x 1: what comes out of a pixel depends on this pixel alone.
#[derive(Clone, Copy, Debug)]
pub struct Point<'a> {
    /// `[outputs, inputs]`.
    pub values: &'a [f32],
    /// Channels that come out.
    pub outputs: usize,
}

impl Point<'_> {
    fn matrix(&self, inputs: usize) -> Matrix<'_> {
        Matrix::new(self.values, self.outputs, inputs, inputs)
    }

    /// What comes out, with a bias added to each channel.
    pub fn forward(&self, input: &Planes, bias: &[f32]) -> Planes {
        let mut output = Planes::zeros(input.sizes.with_channels(self.outputs));
        let (inputs, row) = (input.sizes.channels, input.sizes.row());
        for (channel, bias) in output.values.chunks_exact_mut(row).zip(bias) {
            channel.fill(*bias);
        }
        let to = MatrixMut::new(&mut output.values, self.outputs, row, row);
        multiply(to, self.matrix(inputs), Matrix::new(&input.values, inputs, row, row), Into::Added);
        output
    }

    /// Adds the gradient by the kernels to `by_kernels` and that by the bias to `by_bias`, and gives that by the input;
    /// `gradient` is that by what came out.
    pub fn back(&self, input: &Planes, gradient: &Planes, by_kernels: &mut [f32], by_bias: &mut [f32]) -> Planes {
        let (inputs, row) = (input.sizes.channels, input.sizes.row());
        let of_output = Matrix::new(&gradient.values, self.outputs, row, row);
        let to = MatrixMut::new(by_kernels, self.outputs, inputs, inputs);
        multiply(to, of_output, Matrix::new(&input.values, inputs, row, row).transposed(), Into::Added);
        for (by_bias, channel) in by_bias.iter_mut().zip(gradient.values.chunks_exact(row)) {
            *by_bias += sum(channel);
        }
        let mut by_input = Planes::zeros(input.sizes);
        let to = MatrixMut::new(&mut by_input.values, inputs, row, row);
        multiply(to, self.matrix(inputs).transposed(), of_output, Into::Replaced);
        by_input
    }
}
