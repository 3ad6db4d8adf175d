//! What each pixel of a convolution of 3 x 3 sees, as the columns of a matrix, and how gradients go back from there.
//!
//! A row of the matrix has what one of the nine places of one channel sees: the whole plane, shifted by a pixel. So a row is one
//! copy, after which the pixels are cleared that were shifted over an edge. Where a convolution halves a picture, planes of its
//! even and odd lines and columns are made first, and these are shifted.

use std::ops::Range;

use super::planes::{Planes, Sizes, add};

/// Places of a kernel.
pub const PLACES: usize = 9;

/// A convolution of 3 x 3 with a border of one pixel of zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stride {
    /// As large as before.
    One,
    /// Half as high and wide, rounded up.
    Two,
}

impl Stride {
    /// Height and width of what comes out.
    pub fn output(self, input: Sizes) -> [usize; 2] {
        match self {
            Self::One => [input.height, input.width],
            Self::Two => [input.height.div_ceil(2), input.width.div_ceil(2)],
        }
    }
}

/// The columns of some pictures, made anew for each few of them in the same memory.
#[derive(Debug)]
pub struct Columns {
    input: Sizes,
    stride: Stride,
    /// Height and width of what comes out.
    output: [usize; 2],
    /// `[channels, places, pictures, pixels]`.
    values: Vec<f32>,
    /// Even and odd lines and columns of a plane, each of which is as large as what comes out.
    quarters: [Vec<f32>; 4],
}

impl Columns {
    /// Memory for so many pictures at once.
    pub fn new(input: Sizes, stride: Stride, at_once: usize) -> Self {
        let output = stride.output(input);
        let pixels = output[0] * output[1];
        let quarter = if stride == Stride::Two { pixels } else { 0 };
        Self {
            input,
            stride,
            output,
            values: vec![0.0; input.channels * PLACES * at_once * pixels],
            quarters: std::array::from_fn(|_| vec![0.0; quarter]),
        }
    }

    /// How many rows the matrix has.
    pub fn rows(&self) -> usize {
        self.input.channels * PLACES
    }

    /// The matrix `[channels · places, pictures · pixels]` of so many pictures.
    pub fn matrix(&mut self, pictures: usize) -> &mut [f32] {
        let pixels = self.output[0] * self.output[1];
        &mut self.values[..self.input.channels * PLACES * pictures * pixels]
    }

    /// Writes what the pixels of these pictures see.
    pub fn look(&mut self, input: &Planes, pictures: Range<usize>) {
        let [height, width] = self.output;
        let pixels = height * width;
        let mut columns = self.values.chunks_exact_mut(pixels * pictures.len());
        for channel in 0..self.input.channels {
            let mut rows: [&mut [f32]; PLACES] = std::array::from_fn(|_| columns.next().unwrap_or_default());
            for (at, picture) in pictures.clone().enumerate() {
                let plane = input.plane(channel, picture);
                if self.stride == Stride::Two {
                    quarter(plane, self.input.width, width, &mut self.quarters);
                }
                for (place, row) in rows.iter_mut().enumerate() {
                    let (seen, down, right) = seen(self.stride, place);
                    let from = seen.map_or(plane, |number| &self.quarters[number]);
                    copy_shifted(from, &mut row[at * pixels..][..pixels], width, down, right);
                }
            }
        }
    }

    /// Adds the gradients of what the pixels of these pictures see, which are in the matrix, to those of the input, which are
    /// zero so far.
    pub fn back(&mut self, gradient: &mut Planes, pictures: Range<usize>) {
        let [height, width] = self.output;
        let pixels = height * width;
        let mut columns = self.values.chunks_exact_mut(pixels * pictures.len());
        for channel in 0..self.input.channels {
            let mut rows: [&mut [f32]; PLACES] = std::array::from_fn(|_| columns.next().unwrap_or_default());
            for (at, picture) in pictures.clone().enumerate() {
                let plane = gradient.plane_mut(channel, picture);
                self.quarters.iter_mut().for_each(|quarter| quarter.fill(0.0));
                for (place, row) in rows.iter_mut().enumerate() {
                    let (seen, down, right) = seen(self.stride, place);
                    let to = match seen {
                        Some(number) => &mut self.quarters[number][..],
                        None => &mut *plane,
                    };
                    add_shifted(to, &mut row[at * pixels..][..pixels], width, down, right);
                }
                if self.stride == Stride::Two {
                    join(plane, self.input.width, width, &self.quarters);
                }
            }
        }
    }
}

/// What a place of the kernel sees: a quarter of the plane, or the plane itself, and how far below and to the right.
fn seen(stride: Stride, place: usize) -> (Option<usize>, isize, isize) {
    let (down, right) = (place as isize / 3 - 1, place as isize % 3 - 1);
    match stride {
        Stride::One => (None, down, right),
        // The line above is the odd line of the pair above; the line below is the odd line of the same pair.
        Stride::Two => {
            let odd = |shift: isize| (shift != 0) as usize;
            (Some(odd(down) * 2 + odd(right)), down.min(0), right.min(0))
        }
    }
}

/// Which values of a plane of `count` are copied to which, if each is taken from so far behind it.
fn overlap(count: usize, shift: isize) -> (Range<usize>, Range<usize>) {
    let by = shift.unsigned_abs().min(count);
    if shift < 0 { (0..count - by, by..count) } else { (by..count, 0..count - by) }
}

/// Copies a plane of lines of `width` so that each value is the one so far below and to the right; zero beyond an edge.
fn copy_shifted(from: &[f32], to: &mut [f32], width: usize, down: isize, right: isize) {
    let (source, target) = overlap(to.len(), down * width as isize + right);
    to[..target.start].fill(0.0);
    to[target.end..].fill(0.0);
    to[target].copy_from_slice(&from[source]);
    clear_edge(to, width, right);
}

/// Adds a plane to where [`copy_shifted`] took it from.
fn add_shifted(to: &mut [f32], gradient: &mut [f32], width: usize, down: isize, right: isize) {
    clear_edge(gradient, width, right);
    let (source, target) = overlap(gradient.len(), down * width as isize + right);
    add(&mut to[source], &gradient[target]);
}

/// Clears what was shifted over the left or the right edge: it comes from the line beside.
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
fn quarter(plane: &[f32], width: usize, half: usize, quarters: &mut [Vec<f32>; 4]) {
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

/// Puts together what [`quarter`] took apart.
fn join(plane: &mut [f32], width: usize, half: usize, quarters: &[Vec<f32>; 4]) {
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
    fn at(plane: &[f32], sizes: Sizes, line: isize, column: isize) -> f32 {
        let inside = (0..sizes.height as isize).contains(&line) && (0..sizes.width as isize).contains(&column);
        if inside { plane[line as usize * sizes.width + column as usize] } else { 0.0 }
    }

    /// Counted pixel by pixel, of odd and even sizes, down to one pixel.
    #[test]
    fn each_place_sees_its_pixel() {
        for (height, width) in [(1, 1), (1, 4), (2, 1), (4, 4), (5, 7), (6, 3)] {
            for stride in [Stride::One, Stride::Two] {
                let input = Sizes { channels: 2, pictures: 3, height, width };
                let values = (0..input.values()).map(|number| number as f32 + 1.0).collect();
                let planes = Planes { sizes: input, values };
                let mut columns = Columns::new(input, stride, 2);
                columns.look(&planes, 1..3);
                let [high, wide] = stride.output(input);
                let step = if stride == Stride::One { 1 } else { 2 };
                let found = columns.matrix(2).to_vec();
                let mut found = found.iter();
                for channel in 0..2 {
                    for place in 0..PLACES as isize {
                        for picture in 1..3 {
                            for (y, x) in
                                (0..high * wide).map(|pixel| ((pixel / wide) as isize, (pixel % wide) as isize))
                            {
                                let (line, column) = (y * step + place / 3 - 1, x * step + place % 3 - 1);
                                let expected = at(planes.plane(channel, picture), input, line, column);
                                assert_eq!(*found.next().unwrap(), expected, "{stride:?} {input:?} {place} {y} {x}");
                            }
                        }
                    }
                }
            }
        }
    }

    /// For all a and b, the sum of `look(a) · b` is that of `a · back(b)`: the way back is the transpose.
    #[test]
    fn gradients_go_back_to_what_was_seen() {
        for (height, width) in [(1, 1), (3, 1), (4, 6), (5, 5)] {
            for stride in [Stride::One, Stride::Two] {
                let input = Sizes { channels: 2, pictures: 2, height, width };
                let values = (0..input.values()).map(|number| (number % 7) as f32 - 3.0).collect();
                let planes = Planes { sizes: input, values };
                let mut columns = Columns::new(input, stride, 2);
                columns.look(&planes, 0..2);
                let seen = columns.matrix(2).to_vec();
                let other: Vec<f32> = (0..seen.len()).map(|number| (number % 5) as f32 - 2.0).collect();
                columns.matrix(2).copy_from_slice(&other);
                let mut back = Planes::zeros(input);
                columns.back(&mut back, 0..2);
                let product =
                    |one: &[f32], other: &[f32]| one.iter().zip(other).map(|(one, other)| one * other).sum::<f32>();
                assert_eq!(
                    product(&seen, &other),
                    product(&planes.values, &back.values),
                    "{stride:?} {height} {width}"
                );
            }
        }
    }
}
