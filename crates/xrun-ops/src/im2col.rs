//! The columns of a convolution of 3 x 3 with a border of one pixel of zeros, and the way of gradients back from them.
//!
//! A row of the matrix is one of the nine kernel positions of one channel: the whole plane, shifted by a pixel. So a row is one
//! copy, after which the pixels are cleared that were shifted over an edge. At stride two, planes of even and odd lines and
//! columns are made first (space to depth), and these are shifted.

use std::ops::Range;

use crate::simd::{add, vectorize};

/// Positions of a kernel.
pub const POSITIONS: usize = 9;

/// The distance between pixels that come out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stride {
    /// The output is as large as the input.
    One,
    /// The output is half as high and wide, rounded up.
    Two,
}

impl Stride {
    /// Height and width of the output.
    pub fn output(self, [height, width]: [usize; 2]) -> [usize; 2] {
        match self {
            Self::One => [height, width],
            Self::Two => [height.div_ceil(2), width.div_ceil(2)],
        }
    }

    /// The plane that a kernel position reads, if it is not the whole one, and the shift down and to the right in it.
    fn read(self, position: usize) -> (Option<usize>, isize, isize) {
        let (down, right) = (position as isize / 3 - 1, position as isize % 3 - 1);
        match self {
            Self::One => (None, down, right),
            // The line above is the odd line of the pair above; the line below is the odd line of the same pair.
            Self::Two => {
                let odd = |shift: isize| usize::from(shift != 0);
                (Some(odd(down) * 2 + odd(right)), down.min(0), right.min(0))
            }
        }
    }
}

/// Memory for the columns of a few images at a time.
#[derive(Debug)]
pub struct Columns {
    channels: usize,
    /// Height and width of the input, and of the output.
    input: [usize; 2],
    output: [usize; 2],
    stride: Stride,
    /// `[channels, positions, images, pixels]`.
    values: Vec<f32>,
    /// Even and odd lines and columns of a plane, each as large as an output.
    quarters: [Vec<f32>; 4],
}

impl Columns {
    /// Memory for so many images at once, of this height and width.
    pub fn new(channels: usize, input: [usize; 2], stride: Stride, at_once: usize) -> Self {
        let output = stride.output(input);
        let pixels = output[0] * output[1];
        let quarter = if stride == Stride::Two { pixels } else { 0 };
        Self {
            channels,
            input,
            output,
            stride,
            values: vec![0.0; channels * POSITIONS * at_once * pixels],
            quarters: std::array::from_fn(|_| vec![0.0; quarter]),
        }
    }

    /// The matrix `[channels · positions, images · pixels]` of so many images.
    pub fn matrix(&mut self, images: usize) -> &mut [f32] {
        let pixels = self.output[0] * self.output[1];
        &mut self.values[..self.channels * POSITIONS * images * pixels]
    }

    /// Fills the matrix from images `[images, channels, height, width]`.
    pub fn im2col(&mut self, input: &[f32]) {
        let each = self.channels * self.input[0] * self.input[1];
        im2col(self, input, input.len() / each);
    }

    /// Adds the gradients in the matrix to those of images `[images, channels, height, width]`, which are zero so far.
    pub fn col2im(&mut self, gradient: &mut [f32]) {
        let each = self.channels * self.input[0] * self.input[1];
        let images = gradient.len() / each;
        col2im(self, gradient, images);
    }
}

fn im2col(columns: &mut Columns, input: &[f32], images: usize) {
    vectorize(
        #[inline(always)]
        || {
            let Columns { channels, input: size, output: [high, wide], stride, ref mut values, ref mut quarters } =
                *columns;
            let (plane, pixels) = (size[0] * size[1], high * wide);
            let mut rows = values.chunks_exact_mut(pixels * images);
            for channel in 0..channels {
                let mut rows: [&mut [f32]; POSITIONS] = std::array::from_fn(|_| rows.next().unwrap_or_default());
                for image in 0..images {
                    let plane = &input[(image * channels + channel) * plane..][..plane];
                    if stride == Stride::Two {
                        space_to_depth(plane, size[1], wide, quarters);
                    }
                    for (position, row) in rows.iter_mut().enumerate() {
                        let (quarter, down, right) = stride.read(position);
                        let from = quarter.map_or(plane, |number| &quarters[number]);
                        copy_shifted(from, &mut row[image * pixels..][..pixels], wide, down, right);
                    }
                }
            }
        },
    )
}

fn col2im(columns: &mut Columns, gradient: &mut [f32], images: usize) {
    vectorize(
        #[inline(always)]
        || {
            let Columns { channels, input: size, output: [high, wide], stride, ref mut values, ref mut quarters } =
                *columns;
            let (plane, pixels) = (size[0] * size[1], high * wide);
            let mut rows = values.chunks_exact_mut(pixels * images);
            for channel in 0..channels {
                let mut rows: [&mut [f32]; POSITIONS] = std::array::from_fn(|_| rows.next().unwrap_or_default());
                for image in 0..images {
                    let plane = &mut gradient[(image * channels + channel) * plane..][..plane];
                    quarters.iter_mut().for_each(|quarter| quarter.fill(0.0));
                    for (position, row) in rows.iter_mut().enumerate() {
                        let (quarter, down, right) = stride.read(position);
                        let to = match quarter {
                            Some(number) => &mut quarters[number][..],
                            None => &mut *plane,
                        };
                        add_shifted(to, &mut row[image * pixels..][..pixels], wide, down, right);
                    }
                    if stride == Stride::Two {
                        depth_to_space(plane, size[1], wide, quarters);
                    }
                }
            }
        },
    )
}

/// The values of a plane of `count` that are copied, and their targets, if each is taken from so far behind it.
#[inline(always)]
fn overlap(count: usize, shift: isize) -> (Range<usize>, Range<usize>) {
    let by = shift.unsigned_abs().min(count);
    if shift < 0 { (0..count - by, by..count) } else { (by..count, 0..count - by) }
}

/// Copies a plane of lines of `width` so that each value is the one so far below and to the right; zero beyond an edge.
#[inline(always)]
fn copy_shifted(from: &[f32], to: &mut [f32], width: usize, down: isize, right: isize) {
    let (source, target) = overlap(to.len(), down * width as isize + right);
    to[..target.start].fill(0.0);
    to[target.end..].fill(0.0);
    to[target].copy_from_slice(&from[source]);
    clear_edge(to, width, right);
}

/// Adds a plane to where [`copy_shifted`] took it from.
#[inline(always)]
fn add_shifted(to: &mut [f32], gradient: &mut [f32], width: usize, down: isize, right: isize) {
    clear_edge(gradient, width, right);
    let (source, target) = overlap(gradient.len(), down * width as isize + right);
    add(&mut to[source], &gradient[target]);
}

/// Clears the pixels that were shifted over the left or the right edge: they come from the line beside.
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

/// Even and odd lines, each in its even and odd columns; zero where there is no odd one any more.
#[inline(always)]
fn space_to_depth(plane: &[f32], width: usize, half: usize, quarters: &mut [Vec<f32>; 4]) {
    let [even_even, even_odd, odd_even, odd_odd] = quarters;
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

/// The inverse of [`space_to_depth`].
#[inline(always)]
fn depth_to_space(plane: &mut [f32], width: usize, half: usize, quarters: &[Vec<f32>; 4]) {
    for (number, line) in plane.chunks_exact_mut(width).enumerate() {
        let from = number / 2 * half;
        let [even, odd] = [0, 1].map(|odd| &quarters[number % 2 * 2 + odd][from..][..half]);
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

    /// The value at a line and a column, zero outside.
    fn at(plane: &[f32], [height, width]: [usize; 2], line: isize, column: isize) -> f32 {
        let inside = (0..height as isize).contains(&line) && (0..width as isize).contains(&column);
        if inside { plane[line as usize * width + column as usize] } else { 0.0 }
    }

    /// Counted pixel by pixel, of odd and even sizes, down to one pixel.
    #[test]
    fn each_position_reads_its_pixel() {
        for size in [[1, 1], [1, 4], [2, 1], [4, 4], [5, 7], [6, 3]] {
            for stride in [Stride::One, Stride::Two] {
                let (channels, images, plane) = (2, 2, size[0] * size[1]);
                let input: Vec<f32> = (0..images * channels * plane).map(|number| number as f32 + 1.0).collect();
                let mut columns = Columns::new(channels, size, stride, images);
                columns.im2col(&input);
                let [high, wide] = stride.output(size);
                let step = if stride == Stride::One { 1 } else { 2 };
                let found = columns.matrix(images).to_vec();
                let mut found = found.iter();
                for (channel, position) in (0..channels * POSITIONS).map(|row| (row / POSITIONS, row % POSITIONS)) {
                    for (image, pixel) in (0..images * high * wide).map(|at| (at / (high * wide), at % (high * wide))) {
                        let (y, x) = ((pixel / wide) as isize, (pixel % wide) as isize);
                        let (down, right) = (position as isize / 3 - 1, position as isize % 3 - 1);
                        let plane = &input[(image * channels + channel) * plane..][..plane];
                        let expected = at(plane, size, y * step + down, x * step + right);
                        assert_eq!(*found.next().unwrap(), expected, "{stride:?} {size:?} {position} {y} {x}");
                    }
                }
            }
        }
    }

    /// For all a and b, the sum of `im2col(a) · b` is that of `a · col2im(b)`: one is the transpose of the other.
    #[test]
    fn col2im_is_the_transpose_of_im2col() {
        for size in [[1, 1], [3, 1], [4, 6], [5, 5]] {
            for stride in [Stride::One, Stride::Two] {
                let count = 2 * 2 * size[0] * size[1];
                let input: Vec<f32> = (0..count).map(|number| (number % 7) as f32 - 3.0).collect();
                let mut columns = Columns::new(2, size, stride, 2);
                columns.im2col(&input);
                let read = columns.matrix(2).to_vec();
                let other: Vec<f32> = (0..read.len()).map(|number| (number % 5) as f32 - 2.0).collect();
                columns.matrix(2).copy_from_slice(&other);
                let mut back = vec![0.0; count];
                columns.col2im(&mut back);
                let product =
                    |one: &[f32], other: &[f32]| one.iter().zip(other).map(|(one, other)| one * other).sum::<f32>();
                assert_eq!(product(&read, &other), product(&input, &back), "{stride:?} {size:?}");
            }
        }
    }
}
