//! im2col and col2im of a 3 x 3 convolution with zero padding of one pixel.
//!
//! A row of the matrix belongs to one channel and one of the nine kernel taps: it is the plane shifted by a pixel. It is filled by one
//! copy, after which the pixels that wrapped around an edge are cleared. At stride 2 the plane is first split into its four
//! polyphase components (space to depth), and these are shifted.

use std::ops::Range;

use crate::simd::{add, vectorize};

/// Number of taps of a kernel.
pub const TAPS: usize = 9;

/// Stride of the convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stride {
    /// 1: the output has the size of the input.
    One = 1,
    /// 2: the output has half the height and width, rounded up.
    Two = 2,
}

impl Stride {
    /// Returns the stride of this length.
    ///
    /// # Panics
    /// It is neither 1 nor 2.
    pub fn new(length: usize) -> Self {
        match length {
            1 => Self::One,
            2 => Self::Two,
            _ => panic!("the stride is {length}, not 1 or 2"),
        }
    }

    /// Returns height and width of the output.
    pub fn output(self, [height, width]: [usize; 2]) -> [usize; 2] {
        match self {
            Self::One => [height, width],
            Self::Two => [height.div_ceil(2), width.div_ceil(2)],
        }
    }

    /// Returns the source of a tap: the number of the phase at stride 2, and the shift down and to the right.
    fn source(self, tap: usize) -> (Option<usize>, isize, isize) {
        let (down, right) = (tap as isize / 3 - 1, tap as isize % 3 - 1);
        match self {
            Self::One => (None, down, right),
            // The line above is the odd line of the previous pair; the line below is the odd line of the same pair.
            Self::Two => {
                let odd = |shift: isize| usize::from(shift != 0);
                (Some(odd(down) * 2 + odd(right)), down.min(0), right.min(0))
            }
        }
    }
}

/// Buffer for the im2col matrix of several images.
#[derive(Debug)]
pub struct Im2colBuffer {
    channels: usize,
    /// Height and width of the input, and of the output.
    input: [usize; 2],
    output: [usize; 2],
    stride: Stride,
    /// `[channels, taps, images, pixels]`.
    values: Vec<f32>,
    /// Polyphase components of a plane at stride 2, each of the size of the output: (even, odd) lines x (even, odd) columns.
    phases: [Vec<f32>; 4],
}

impl Im2colBuffer {
    /// Allocates the matrix of up to `images` images of height and width `input`.
    pub fn new(channels: usize, input: [usize; 2], stride: Stride, images: usize) -> Self {
        let output = stride.output(input);
        let pixels = output[0] * output[1];
        let phase = if stride == Stride::Two { pixels } else { 0 };
        Self {
            channels,
            input,
            output,
            stride,
            values: vec![0.0; channels * TAPS * images * pixels],
            phases: std::array::from_fn(|_| vec![0.0; phase]),
        }
    }

    /// Returns the matrix `[channels · taps, images · pixels]`.
    pub fn matrix(&mut self, images: usize) -> &mut [f32] {
        let pixels = self.output[0] * self.output[1];
        &mut self.values[..self.channels * TAPS * images * pixels]
    }

    /// Fills the matrix from images `[images, channels, height, width]`.
    pub fn im2col(&mut self, input: &[f32]) {
        let image_values = self.channels * self.input[0] * self.input[1];
        im2col(self, input, input.len() / image_values);
    }

    /// Accumulates the gradients in the matrix into those of images `[images, channels, height, width]`, which must be zero.
    pub fn col2im(&mut self, gradient: &mut [f32]) {
        let image_values = self.channels * self.input[0] * self.input[1];
        let images = gradient.len() / image_values;
        col2im(self, gradient, images);
    }
}

fn im2col(columns: &mut Im2colBuffer, input: &[f32], images: usize) {
    vectorize(
        #[inline(always)]
        || {
            let Im2colBuffer {
                channels,
                input: size,
                output: [output_height, output_width],
                stride,
                ref mut values,
                ref mut phases,
            } = *columns;
            let (plane, pixels) = (size[0] * size[1], output_height * output_width);
            let mut rows = values.chunks_exact_mut(pixels * images);
            for channel in 0..channels {
                let mut rows: [&mut [f32]; TAPS] = std::array::from_fn(|_| rows.next().unwrap_or_default());
                for image in 0..images {
                    let plane = &input[(image * channels + channel) * plane..][..plane];
                    if stride == Stride::Two {
                        space_to_depth(plane, size[1], output_width, phases);
                    }
                    for (tap, row) in rows.iter_mut().enumerate() {
                        let (phase, down, right) = stride.source(tap);
                        let from = phase.map_or(plane, |number| &phases[number]);
                        copy_shifted(from, &mut row[image * pixels..][..pixels], output_width, down, right);
                    }
                }
            }
        },
    )
}

fn col2im(columns: &mut Im2colBuffer, gradient: &mut [f32], images: usize) {
    vectorize(
        #[inline(always)]
        || {
            let Im2colBuffer {
                channels,
                input: size,
                output: [output_height, output_width],
                stride,
                ref mut values,
                ref mut phases,
            } = *columns;
            let (plane, pixels) = (size[0] * size[1], output_height * output_width);
            let mut rows = values.chunks_exact_mut(pixels * images);
            for channel in 0..channels {
                let mut rows: [&mut [f32]; TAPS] = std::array::from_fn(|_| rows.next().unwrap_or_default());
                for image in 0..images {
                    let plane = &mut gradient[(image * channels + channel) * plane..][..plane];
                    phases.iter_mut().for_each(|phase| phase.fill(0.0));
                    for (tap, row) in rows.iter_mut().enumerate() {
                        let (phase, down, right) = stride.source(tap);
                        let to = match phase {
                            Some(number) => &mut phases[number][..],
                            None => &mut *plane,
                        };
                        add_shifted(to, &mut row[image * pixels..][..pixels], output_width, down, right);
                    }
                    if stride == Stride::Two {
                        depth_to_space(plane, size[1], output_width, phases);
                    }
                }
            }
        },
    )
}

/// Returns source and target ranges of a copy within `count` values in which the source is `shift` values behind the target.
#[inline(always)]
fn overlap(count: usize, shift: isize) -> (Range<usize>, Range<usize>) {
    let by = shift.unsigned_abs().min(count);
    if shift < 0 { (0..count - by, by..count) } else { (by..count, 0..count - by) }
}

/// Copies a plane shifted: each value is the one `down` lines below and `right` columns to the right; zero beyond an edge.
#[inline(always)]
fn copy_shifted(from: &[f32], to: &mut [f32], width: usize, down: isize, right: isize) {
    let (source, target) = overlap(to.len(), down * width as isize + right);
    to[..target.start].fill(0.0);
    to[target.end..].fill(0.0);
    to[target].copy_from_slice(&from[source]);
    clear_edge(to, width, right);
}

/// Adds a plane to the positions that [`copy_shifted`] reads; its transpose.
#[inline(always)]
fn add_shifted(to: &mut [f32], gradient: &mut [f32], width: usize, down: isize, right: isize) {
    clear_edge(gradient, width, right);
    let (source, target) = overlap(gradient.len(), down * width as isize + right);
    add(&mut to[source], &gradient[target]);
}

/// Clears the pixels that wrapped around the left or the right edge from a neighbouring line.
#[inline(always)]
fn clear_edge(plane: &mut [f32], width: usize, right: isize) {
    let edge = match right {
        -1 => 0,
        1 => width - 1,
        _ => return,
    };
    for value in plane[edge..].iter_mut().step_by(width) {
        *value = 0.0;
    }
}

/// Splits a plane into its four polyphase components, padded with zeros where the size is odd.
#[inline(always)]
fn space_to_depth(plane: &[f32], width: usize, half: usize, phases: &mut [Vec<f32>; 4]) {
    let [even_even, even_odd, odd_even, odd_odd] = phases;
    let mut lines = plane.chunks_exact(width);
    let targets = [(even_even, even_odd), (odd_even, odd_odd)]
        .map(|(even, odd)| (even.chunks_exact_mut(half), odd.chunks_exact_mut(half)));
    let [(even_even, even_odd), (odd_even, odd_odd)] = targets;
    for ((even_even, even_odd), (odd_even, odd_odd)) in even_even.zip(even_odd).zip(odd_even.zip(odd_odd)) {
        for (even, odd) in [(even_even, even_odd), (odd_even, odd_odd)] {
            let Some(line) = lines.next() else {
                even.fill(0.0);
                odd.fill(0.0);
                continue;
            };
            let (pairs, last) = line.as_chunks::<2>();
            for ((even, odd), pair) in even.iter_mut().zip(&mut *odd).zip(pairs) {
                (*even, *odd) = (pair[0], pair[1]);
            }
            if let [last] = last {
                (even[half - 1], odd[half - 1]) = (*last, 0.0);
            }
        }
    }
}

/// Inverse of [`space_to_depth`].
#[inline(always)]
fn depth_to_space(plane: &mut [f32], width: usize, half: usize, phases: &[Vec<f32>; 4]) {
    for (number, line) in plane.chunks_exact_mut(width).enumerate() {
        let from = number / 2 * half;
        let [even, odd] = [0, 1].map(|odd| &phases[number % 2 * 2 + odd][from..][..half]);
        let (pairs, last) = line.as_chunks_mut::<2>();
        for ((even, odd), pair) in even.iter().zip(odd).zip(pairs) {
            *pair = [*even, *odd];
        }
        if let [last] = last {
            *last = even[half - 1];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the value at a line and a column; zero outside of the plane.
    fn at(plane: &[f32], [height, width]: [usize; 2], line: isize, column: isize) -> f32 {
        let inside = (0..height as isize).contains(&line) && (0..width as isize).contains(&column);
        if inside { plane[line as usize * width + column as usize] } else { 0.0 }
    }

    /// Compared pixel by pixel, for odd and even sizes down to one pixel.
    #[test]
    fn each_tap_reads_its_pixel() {
        for size in [[1, 1], [1, 4], [2, 1], [4, 4], [5, 7], [6, 3]] {
            for stride in [Stride::One, Stride::Two] {
                let (channels, images, plane) = (2, 2, size[0] * size[1]);
                let input: Vec<f32> = (0..images * channels * plane).map(|number| number as f32 + 1.0).collect();
                let mut columns = Im2colBuffer::new(channels, size, stride, images);
                columns.im2col(&input);
                let [output_height, output_width] = stride.output(size);
                let pixels = output_height * output_width;
                let step = if stride == Stride::One { 1 } else { 2 };
                let found = columns.matrix(images).to_vec();
                let mut found = found.iter();
                for (channel, tap) in (0..channels * TAPS).map(|row| (row / TAPS, row % TAPS)) {
                    for (image, pixel) in (0..images * pixels).map(|at| (at / pixels, at % pixels)) {
                        let (y, x) = ((pixel / output_width) as isize, (pixel % output_width) as isize);
                        let (down, right) = (tap as isize / 3 - 1, tap as isize % 3 - 1);
                        let plane = &input[(image * channels + channel) * plane..][..plane];
                        let expected = at(plane, size, y * step + down, x * step + right);
                        assert_eq!(*found.next().unwrap(), expected, "{stride:?} {size:?} {tap} {y} {x}");
                    }
                }
            }
        }
    }

    /// The dot products `im2col(a) · b` and `a · col2im(b)` are equal for all a and b.
    #[test]
    fn col2im_is_the_transpose_of_im2col() {
        for size in [[1, 1], [3, 1], [4, 6], [5, 5]] {
            for stride in [Stride::One, Stride::Two] {
                let count = 2 * 2 * size[0] * size[1];
                let input: Vec<f32> = (0..count).map(|number| (number % 7) as f32 - 3.0).collect();
                let mut columns = Im2colBuffer::new(2, size, stride, 2);
                columns.im2col(&input);
                let unfolded = columns.matrix(2).to_vec();
                let other: Vec<f32> = (0..unfolded.len()).map(|number| (number % 5) as f32 - 2.0).collect();
                columns.matrix(2).copy_from_slice(&other);
                let mut folded = vec![0.0; count];
                columns.col2im(&mut folded);
                let product =
                    |one: &[f32], other: &[f32]| one.iter().zip(other).map(|(one, other)| one * other).sum::<f32>();
                assert_eq!(product(&unfolded, &other), product(&input, &folded), "{stride:?} {size:?}");
            }
        }
    }
}
