//! Affine group normalisation (Wu and He 2018) followed by ReLU, one image at a time.
//!
//! The backward pass recomputes normalised values and the sign of the output from the input; only the mean and the inverse
//! deviation of each group are saved.

use crate::simd::{lane_sum, sum, vectorize};

/// Parameters of a group normalisation.
#[derive(Clone, Copy, Debug)]
pub struct NormParameters<'a> {
    /// Scale of each channel.
    pub gamma: &'a [f32],
    /// Shift of each channel.
    pub beta: &'a [f32],
    /// Number of groups of channels.
    pub groups: usize,
    /// Number added to the variance.
    pub epsilon: f32,
}

/// Mean and inverse standard deviation of a group.
pub type Moments = [f32; 2];

/// Layout of the channel planes of one image.
#[derive(Clone, Copy, Debug)]
pub struct PlaneLayout {
    /// Offset of the first plane.
    pub first: usize,
    /// Distance between planes, in values.
    pub stride: usize,
    /// Values in a plane.
    pub pixels: usize,
}

impl PlaneLayout {
    #[inline(always)]
    fn range(self, channel: usize) -> std::ops::Range<usize> {
        let from = self.first + channel * self.stride;
        from..from + self.pixels
    }
}

/// Returns scale and offset of a channel, so that `value · scale + offset` is the normalised, scaled and shifted value.
#[inline(always)]
fn scale_and_offset(norm: NormParameters<'_>, channel: usize, [mean, factor]: Moments) -> (f32, f32) {
    let scale = factor * norm.gamma[channel];
    (scale, norm.beta[channel] - mean * scale)
}

/// Normalises the image that lies at `planes` of `input`; writes the output `[channels, pixels]` and the moments of each group.
pub fn forward(
    input: &[f32],
    planes: PlaneLayout,
    norm: NormParameters<'_>,
    output: &mut [f32],
    moments: &mut [Moments],
) {
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
                let mut squared_deviations = 0.0;
                for channel in channels.clone() {
                    let plane = &input[planes.range(channel)];
                    squared_deviations += lane_sum!(plane; |value: f32| (value - mean) * (value - mean));
                }
                *moments = [mean, 1.0 / (squared_deviations / count + norm.epsilon).sqrt()];
                for channel in channels {
                    let (scale, offset) = scale_and_offset(norm, channel, *moments);
                    let output = &mut output[channel * planes.pixels..][..planes.pixels];
                    for (output, value) in output.iter_mut().zip(&input[planes.range(channel)]) {
                        let value = value * scale + offset;
                        // Unlike `max`, keeps NaN.
                        *output = if value < 0.0 { 0.0 } else { value };
                    }
                }
            }
        },
    )
}

/// Overwrites the input of [`forward`] with its gradient, given the gradient `[channels, pixels]` of the output. Adds the
/// gradients of gamma and beta to `grad_parameters`.
pub fn backward(
    input: &mut [f32],
    planes: PlaneLayout,
    norm: NormParameters<'_>,
    moments: &[Moments],
    gradient: &[f32],
    grad_parameters: [&mut [f32]; 2],
) {
    vectorize(
        #[inline(always)]
        || {
            let [grad_gamma, grad_beta] = grad_parameters;
            let channels = norm.gamma.len() / norm.groups;
            let count = (channels * planes.pixels) as f32;
            for (group, moments) in moments.iter().enumerate() {
                let channels = group * channels..(group + 1) * channels;
                let [mean, factor] = *moments;
                // Sum of the gradients of the normalised values, and their dot product with these values.
                let (mut total, mut projection) = (0.0, 0.0);
                for channel in channels.clone() {
                    let (scale, offset) = scale_and_offset(norm, channel, *moments);
                    let (values, gradient) =
                        (&input[planes.range(channel)], &gradient[channel * planes.pixels..][..planes.pixels]);
                    let relu_gradient =
                        |value: f32, gradient: f32| if value * scale + offset > 0.0 { gradient } else { 0.0 };
                    let sum = lane_sum!(values, gradient; relu_gradient);
                    let product = lane_sum!(values, gradient; |value, gradient| relu_gradient(value, gradient) * (value - mean))
                        * factor;
                    grad_beta[channel] += sum;
                    grad_gamma[channel] += product;
                    total += norm.gamma[channel] * sum;
                    projection += norm.gamma[channel] * product;
                }
                // Gradient of the input: factor · (gamma · gradient − total / count − normalised · projection / count).
                let slope = -factor * factor * projection / count;
                let constant = -factor * total / count - slope * mean;
                for channel in channels {
                    let (scale, offset) = scale_and_offset(norm, channel, *moments);
                    let gradient = &gradient[channel * planes.pixels..][..planes.pixels];
                    for (value, gradient) in input[planes.range(channel)].iter_mut().zip(gradient) {
                        let relu_gradient = if *value * scale + offset > 0.0 { *gradient } else { 0.0 };
                        *value = relu_gradient * scale + *value * slope + constant;
                    }
                }
            }
        },
    )
}
