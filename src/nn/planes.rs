//! Pictures and feature maps in host memory, as what is computed without Burn's operations sees them.
//!
//! All pictures of one channel lie together. So a convolution of 1 x 1 over all pictures is one matrix product, and so is one of
//! 3 x 3 over as many pictures as fit the processor's cache.

use std::ops::Range;

use wide::f32x8;

use super::one_pass::LANES;

/// How large feature maps are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Channels of each picture.
    pub channels: usize,
    /// How many pictures.
    pub pictures: usize,
    /// Of a picture, in pixels.
    pub height: usize,
    /// Of a picture, in pixels.
    pub width: usize,
}

impl Sizes {
    /// Pixels of one picture.
    pub fn pixels(&self) -> usize {
        self.height * self.width
    }

    /// Values of one channel of all pictures.
    pub fn row(&self) -> usize {
        self.pictures * self.pixels()
    }

    /// All values.
    pub fn values(&self) -> usize {
        self.channels * self.row()
    }

    /// The same pictures with other channels.
    pub fn with_channels(self, channels: usize) -> Self {
        Self { channels, ..self }
    }
}

/// Values `[channels, pictures, height, width]`, in this order.
#[derive(Clone, Debug, PartialEq)]
pub struct Planes {
    /// How many of each.
    pub sizes: Sizes,
    /// All values.
    pub values: Vec<f32>,
}

impl Planes {
    /// Values of zero.
    pub fn zeros(sizes: Sizes) -> Self {
        Self { sizes, values: vec![0.0; sizes.values()] }
    }

    /// From values `[pictures, channels, height, width]`, as Burn has them.
    pub fn of_pictures(values: &[f32], sizes: Sizes) -> Self {
        let mut planes = Self::zeros(sizes);
        for (number, plane) in values.chunks_exact(sizes.pixels()).enumerate() {
            planes.plane_mut(number % sizes.channels, number / sizes.channels).copy_from_slice(plane);
        }
        planes
    }

    /// One channel of one picture.
    pub fn plane(&self, channel: usize, picture: usize) -> &[f32] {
        &self.values[self.place(channel, picture)]
    }

    /// One channel of one picture.
    pub fn plane_mut(&mut self, channel: usize, picture: usize) -> &mut [f32] {
        let place = self.place(channel, picture);
        &mut self.values[place]
    }

    fn place(&self, channel: usize, picture: usize) -> Range<usize> {
        let pixels = self.sizes.pixels();
        let from = (channel * self.sizes.pictures + picture) * pixels;
        from..from + pixels
    }

    /// Adds other values of the same sizes.
    pub fn add(&mut self, other: &Self) {
        add(&mut self.values, &other.values);
    }

    /// Twice as high and wide, each value four times.
    pub fn doubled(&self) -> Self {
        let Sizes { height, width, .. } = self.sizes;
        let mut doubled = Self::zeros(Sizes { height: height * 2, width: width * 2, ..self.sizes });
        let lines = doubled.values.chunks_exact_mut(width * 4).zip(self.values.chunks_exact(width));
        for (two_lines, line) in lines {
            let (first, second) = two_lines.split_at_mut(width * 2);
            for (pair, value) in first.as_chunks_mut::<2>().0.iter_mut().zip(line) {
                *pair = [*value; 2];
            }
            second.copy_from_slice(first);
        }
        doubled
    }

    /// Half as high and wide, each value the sum of four: how a gradient goes back through [`Planes::doubled`].
    pub fn sums_of_four(&self) -> Self {
        let Sizes { height, width, .. } = self.sizes;
        let mut halved = Self::zeros(Sizes { height: height / 2, width: width / 2, ..self.sizes });
        let lines = halved.values.chunks_exact_mut(width / 2).zip(self.values.chunks_exact(width * 2));
        for (line, two_lines) in lines {
            let (first, second) = two_lines.split_at(width);
            let pairs = first.as_chunks::<2>().0.iter().zip(second.as_chunks::<2>().0);
            for (value, (first, second)) in line.iter_mut().zip(pairs) {
                *value = (first[0] + first[1]) + (second[0] + second[1]);
            }
        }
        halved
    }
}

/// Adds value by value. Both are of one length.
pub fn add(to: &mut [f32], values: &[f32]) {
    let ((eights, rest), (more, more_rest)) = (to.as_chunks_mut::<LANES>(), values.as_chunks::<LANES>());
    for (eight, more) in eights.iter_mut().zip(more) {
        *eight = (f32x8::new(*eight) + f32x8::new(*more)).to_array();
    }
    for (value, more) in rest.iter_mut().zip(more_rest) {
        *value += more;
    }
}

/// The sum of all values, in an order that depends on their number alone.
pub fn sum(values: &[f32]) -> f32 {
    let (eights, rest) = values.as_chunks::<LANES>();
    let eights = eights.iter().fold(f32x8::ZERO, |sum, eight| sum + f32x8::new(*eight));
    rest.iter().fold(eights.reduce_add(), |sum, value| sum + value)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: Sizes = Sizes { channels: 2, pictures: 3, height: 1, width: 2 };

    #[test]
    fn pictures_of_one_channel_lie_together() {
        let values: Vec<f32> = (0..12).map(|number| number as f32).collect();
        let planes = Planes::of_pictures(&values, SIZES);
        assert_eq!(planes.values, [0.0, 1.0, 4.0, 5.0, 8.0, 9.0, 2.0, 3.0, 6.0, 7.0, 10.0, 11.0]);
        assert_eq!(planes.plane(1, 2), [10.0, 11.0]);
    }

    #[test]
    fn doubling_and_its_gradient_are_as_by_hand() {
        let planes =
            Planes { sizes: Sizes { channels: 1, pictures: 2, height: 1, width: 2 }, values: vec![1.0, 2.0, 3.0, 4.0] };
        let doubled = planes.doubled();
        assert_eq!((doubled.sizes.height, doubled.sizes.width), (2, 4));
        assert_eq!(doubled.plane(0, 1), [3.0, 3.0, 4.0, 4.0, 3.0, 3.0, 4.0, 4.0]);
        assert_eq!(doubled.sums_of_four().values, [4.0, 8.0, 12.0, 16.0]);
    }

    #[test]
    fn values_that_do_not_fill_eights_are_added_too() {
        for count in [1, 7, 8, 9, 33] {
            let mut values: Vec<f32> = (0..count).map(|number| number as f32).collect();
            let twice: Vec<f32> = values.iter().map(|value| value * 2.0).collect();
            assert_eq!(sum(&values), (count * (count - 1) / 2) as f32);
            let same = values.clone();
            add(&mut values, &same);
            assert_eq!(values, twice);
        }
    }
}
