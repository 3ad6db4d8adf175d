//! Group normalisation (Wu and He 2018), scaled and shifted by channel, and the rectifier after it, in host memory.
//!
//! What [`super::group_normalise`] says in Burn's operations is here two passes over a group that lies in the processor's cache.
//! The way back takes the normalised values from the input again: kept are the input, the output, and two numbers of each group.

use wide::f32x8;

use super::one_pass::{LANES, each_padded, padded};
use super::planes::{Planes, Sizes, sum};

/// What is trained, by channel, and how channels are grouped.
#[derive(Clone, Copy, Debug)]
pub struct Norm<'a> {
    /// What normalised values are multiplied by.
    pub scale: &'a [f32],
    /// What is added then.
    pub shift: &'a [f32],
    /// How many groups of channels there are.
    pub groups: usize,
    /// What is added to a variance.
    pub epsilon: f32,
}

/// Of the values of a group of channels of a picture.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moments {
    mean: f32,
    /// One over the standard deviation.
    factor: f32,
}

impl Norm<'_> {
    /// Which channels belong to a group.
    fn channels(&self, sizes: Sizes, group: usize) -> std::ops::Range<usize> {
        let each = sizes.channels / self.groups;
        group * each..(group + 1) * each
    }

    /// Normalised, scaled, shifted, and zero where that is negative; and the moments `[pictures, groups]`.
    pub fn forward(&self, input: &Planes) -> (Planes, Vec<Moments>) {
        let sizes = input.sizes;
        let mut output = Planes::zeros(sizes);
        let mut all = Vec::with_capacity(sizes.pictures * self.groups);
        for picture in 0..sizes.pictures {
            for group in 0..self.groups {
                let channels = self.channels(sizes, group);
                let moments = self.moments(input, channels.clone(), picture);
                for channel in channels {
                    let slope = moments.factor * self.scale[channel];
                    let offset = self.shift[channel] - moments.mean * slope;
                    let planes = (input.plane(channel, picture), output.plane_mut(channel, picture));
                    let (slope, offset) = (f32x8::splat(slope), f32x8::splat(offset));
                    map(planes.0, planes.1, |value| (value * slope + offset).fast_max(f32x8::ZERO));
                }
                all.push(moments);
            }
        }
        (output, all)
    }

    fn moments(&self, input: &Planes, channels: std::ops::Range<usize>, picture: usize) -> Moments {
        let count = (channels.len() * input.sizes.pixels()) as f32;
        let planes = || channels.clone().map(|channel| input.plane(channel, picture));
        let mean = planes().map(sum).sum::<f32>() / count;
        let at = f32x8::splat(mean);
        let mut squares = f32x8::ZERO;
        for plane in planes() {
            each_padded(plane, at, |value| squares += (value - at) * (value - at));
        }
        Moments { mean, factor: 1.0 / (squares.reduce_add() / count + self.epsilon).sqrt() }
    }

    /// Adds the gradients by scale and shift to `by_scale` and `by_shift`, and gives that by the input, in the memory of the
    /// input. `gradient` is that by the output.
    pub fn back(
        &self,
        mut input: Planes,
        output: &Planes,
        moments: &[Moments],
        gradient: &Planes,
        [by_scale, by_shift]: [&mut [f32]; 2],
    ) -> Planes {
        let sizes = input.sizes;
        let count = (sizes.channels / self.groups * sizes.pixels()) as f32;
        for (number, moments) in moments.iter().enumerate() {
            let (picture, group) = (number / self.groups, number % self.groups);
            // Of the gradients by the normalised values: their sum, and the sum of each times its value.
            let (mut total, mut along) = (0.0, 0.0);
            for channel in self.channels(sizes, group) {
                let planes = [&input, output, gradient].map(|planes| planes.plane(channel, picture));
                let (sum, product) = sums(planes, moments);
                by_shift[channel] += sum;
                by_scale[channel] += product;
                total += self.scale[channel] * sum;
                along += self.scale[channel] * product;
            }
            // By the input: factor · (scale · gradient − total / count − value · along / count).
            let by_value = -moments.factor * moments.factor * along / count;
            let constant = -moments.factor * total / count - by_value * moments.mean;
            let (by_value, constant) = (f32x8::splat(by_value), f32x8::splat(constant));
            for channel in self.channels(sizes, group) {
                let slope = f32x8::splat(moments.factor * self.scale[channel]);
                let others = [output, gradient].map(|planes| planes.plane(channel, picture));
                let apply = |value, output, gradient| rectified(output, gradient) * slope + value * by_value + constant;
                change(input.plane_mut(channel, picture), others, apply);
            }
        }
        input
    }
}

/// The gradient by what the rectifier was given.
fn rectified(output: f32x8, gradient: f32x8) -> f32x8 {
    output.simd_gt(f32x8::ZERO) & gradient
}

/// Of a plane: the sum of the gradients by what the rectifier was given, and the sum of each times its normalised value.
fn sums([input, output, gradient]: [&[f32]; 3], moments: &Moments) -> (f32, f32) {
    let (mean, mut total, mut product) = (f32x8::splat(moments.mean), f32x8::ZERO, f32x8::ZERO);
    let mut take = |input: [f32; LANES], output: [f32; LANES], gradient: [f32; LANES]| {
        let gradient = rectified(f32x8::new(output), f32x8::new(gradient));
        total += gradient;
        product += gradient * (f32x8::new(input) - mean);
    };
    let [(inputs, input), (outputs, output), (gradients, gradient)] =
        [input, output, gradient].map(|plane| plane.as_chunks::<LANES>());
    for ((input, output), gradient) in inputs.iter().zip(outputs).zip(gradients) {
        take(*input, *output, *gradient);
    }
    if !input.is_empty() {
        // An output of zero has no gradient.
        take(padded(input, 0.0), padded(output, 0.0), padded(gradient, 0.0));
    }
    (total.reduce_add(), product.reduce_add() * moments.factor)
}

/// Writes a function of each value.
fn map(from: &[f32], to: &mut [f32], function: impl Fn(f32x8) -> f32x8) {
    let ((eights, rest), (to, to_rest)) = (from.as_chunks::<LANES>(), to.as_chunks_mut::<LANES>());
    for (eight, to) in eights.iter().zip(to) {
        *to = function(f32x8::new(*eight)).to_array();
    }
    if !rest.is_empty() {
        let values = function(f32x8::new(padded(rest, 0.0))).to_array();
        to_rest.copy_from_slice(&values[..to_rest.len()]);
    }
}

/// Replaces each value by a function of it and of two others.
fn change(values: &mut [f32], [one, two]: [&[f32]; 2], function: impl Fn(f32x8, f32x8, f32x8) -> f32x8) {
    let (eights, rest) = values.as_chunks_mut::<LANES>();
    let [(ones, one), (twos, two)] = [one, two].map(|plane| plane.as_chunks::<LANES>());
    for ((eight, one), two) in eights.iter_mut().zip(ones).zip(twos) {
        *eight = function(f32x8::new(*eight), f32x8::new(*one), f32x8::new(*two)).to_array();
    }
    if !rest.is_empty() {
        let [value, one, two] = [&*rest, one, two].map(|rest| f32x8::new(padded(rest, 0.0)));
        let values = function(value, one, two).to_array();
        rest.copy_from_slice(&values[..rest.len()]);
    }
}
