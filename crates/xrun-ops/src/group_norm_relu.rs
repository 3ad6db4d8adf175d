//! Group normalisation (Wu and He 2018), scaled and shifted by channel, and the rectifier after it, of one image at a time.
//!
//! The backward pass takes normalised values and the sign of the output from the input again: saved are two numbers of each
//! group.

use crate::simd::{lane_sum, sum, vectorize};

/// The parameters of a group normalisation.
#[derive(Clone, Copy, Debug)]
pub struct Norm<'a> {
    /// The scale of each channel.
    pub gamma: &'a [f32],
    /// The shift of each channel.
    pub beta: &'a [f32],
    /// Groups of channels.
    pub groups: usize,
    /// Added to a variance.
    pub epsilon: f32,
}

/// Mean of a group, and one over its standard deviation.
pub type Moments = [f32; 2];

/// The planes of an image, `stride` values apart.
#[derive(Clone, Copy, Debug)]
pub struct Planes {
    /// The first value of the first plane.
    pub first: usize,
    /// From a plane to the next.
    pub stride: usize,
    /// Values of a plane.
    pub pixels: usize,
}

impl Planes {
    #[inline(always)]
    fn range(self, channel: usize) -> std::ops::Range<usize> {
        let from = self.first + channel * self.stride;
        from..from + self.pixels
    }
}

/// A function `value · slope + offset` for each channel: normalised, scaled and shifted.
#[inline(always)]
fn line(norm: Norm<'_>, channel: usize, [mean, factor]: Moments) -> (f32, f32) {
    let slope = factor * norm.gamma[channel];
    (slope, norm.beta[channel] - mean * slope)
}

/// Normalises the groups of an image, whose planes are `planes` of `input`; writes `[channels, pixels]` and the moments of each
/// group.
pub fn forward(input: &[f32], planes: Planes, norm: Norm<'_>, output: &mut [f32], moments: &mut [Moments]) {
    vectorize(
        #[inline(always)]
        || {
            let channels = norm.gamma.len() / norm.groups;
            let count = (channels * planes.pixels) as f32;
            for (group, moments) in moments.iter_mut().enumerate() {
                let channels = group * channels..(group + 1) * channels;
                let mut total = 0.0;
                for channel in channels.clone() {
                    total += sum(&input[planes.range(channel)]);
                }
                let mean = total / count;
                let mut squares = 0.0;
                for channel in channels.clone() {
                    let plane = &input[planes.range(channel)];
                    squares += lane_sum!(plane; |value: f32| (value - mean) * (value - mean));
                }
                *moments = [mean, 1.0 / (squares / count + norm.epsilon).sqrt()];
                for channel in channels {
                    let (slope, offset) = line(norm, channel, *moments);
                    let output = &mut output[channel * planes.pixels..][..planes.pixels];
                    for (output, value) in output.iter_mut().zip(&input[planes.range(channel)]) {
                        let value = value * slope + offset;
                        // A value that is no number stays so.
                        *output = if value < 0.0 { 0.0 } else { value };
                    }
                }
            }
        },
    )
}

/// Overwrites the input of [`forward`] with its gradient; `gradient` `[channels, pixels]` is that of the output. Adds the
/// gradients of gamma and beta to `by`.
pub fn backward(
    input: &mut [f32],
    planes: Planes,
    norm: Norm<'_>,
    moments: &[Moments],
    gradient: &[f32],
    by: [&mut [f32]; 2],
) {
    vectorize(
        #[inline(always)]
        || {
            let [by_gamma, by_beta] = by;
            let channels = norm.gamma.len() / norm.groups;
            let count = (channels * planes.pixels) as f32;
            for (group, moments) in moments.iter().enumerate() {
                let channels = group * channels..(group + 1) * channels;
                let [mean, factor] = *moments;
                // Of the gradients by the normalised values: their sum, and the sum of each times its value.
                let (mut total, mut along) = (0.0, 0.0);
                for channel in channels.clone() {
                    let (slope, offset) = line(norm, channel, *moments);
                    let (values, gradient) =
                        (&input[planes.range(channel)], &gradient[channel * planes.pixels..][..planes.pixels]);
                    let through = |value: f32, gradient: f32| if value * slope + offset > 0.0 { gradient } else { 0.0 };
                    let sum = lane_sum!(values, gradient; through);
                    let product = lane_sum!(values, gradient; |value, gradient| through(value, gradient) * (value - mean))
                        * factor;
                    by_beta[channel] += sum;
                    by_gamma[channel] += product;
                    total += norm.gamma[channel] * sum;
                    along += norm.gamma[channel] * product;
                }
                // By the input: factor · (gamma · gradient − total / count − normalised · along / count).
                let by_value = -factor * factor * along / count;
                let constant = -factor * total / count - by_value * mean;
                for channel in channels {
                    let (slope, offset) = line(norm, channel, *moments);
                    let gradient = &gradient[channel * planes.pixels..][..planes.pixels];
                    for (value, gradient) in input[planes.range(channel)].iter_mut().zip(gradient) {
                        let through = if *value * slope + offset > 0.0 { *gradient } else { 0.0 };
                        *value = through * slope + *value * by_value + constant;
                    }
                }
            }
        },
    )
}
