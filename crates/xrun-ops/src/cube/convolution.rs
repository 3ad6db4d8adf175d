//! 3 x 3 convolution, group normalisation and ReLU as matrix products of im2col matrices, with one cube for each group of an image.
//!
//! Between the kernels the convolved image has the layout `[images, pixels, channels]`. Im2col matrices are not saved.

use burn::tensor::{DType, Shape};
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::kernel::matmul::{MatmulStrategy, matmul};
use burn_cubecl::ops::{permute, reshape};
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::sums::column_sums;
use super::{UNITS, cube_sum, cubes, each, empty, launch};
use crate::convolution::{Conv3x3GroupNormRelu, SaveActivations};
use crate::im2col::{Stride, TAPS};
use crate::operation::Operation;

/// Values saved for the backward pass.
#[derive(Clone, Debug)]
pub struct Saved {
    input: CubeTensor,
    weight: CubeTensor,
    gamma: CubeTensor,
    beta: CubeTensor,
    /// `[images, pixels, channels]`; `None` if it is computed again.
    convolved: Option<CubeTensor>,
    /// Mean and inverse standard deviation, `[images, groups, 2]`.
    moments: CubeTensor,
}

/// Sizes of a convolution.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    images: usize,
    inputs: usize,
    height: usize,
    width: usize,
    outputs: usize,
    output_height: usize,
    output_width: usize,
}

impl Sizes {
    fn new(input: &Shape, outputs: usize, stride: Stride) -> Self {
        let [images, inputs, height, width] = [input[0], input[1], input[2], input[3]];
        let [output_height, output_width] = stride.output([height, width]);
        Self { images, inputs, height, width, outputs, output_height, output_width }
    }

    fn pixels(self) -> usize {
        self.output_height * self.output_width
    }

    /// Width of the im2col matrix.
    fn columns(self) -> usize {
        self.inputs * TAPS
    }
}

fn product(left: CubeTensor, right: CubeTensor) -> CubeTensor {
    matmul(left, right, None, MatmulStrategy::default(), DType::F32)
        .unwrap_or_else(|error| panic!("a matrix product cannot be launched: {error:?}"))
}

impl Conv3x3GroupNormRelu {
    /// Returns the im2col matrices `[images · pixels, inputs · 9]`.
    fn im2col(&self, input: &CubeTensor, sizes: Sizes) -> CubeTensor {
        let matrix = empty(input, [sizes.images * sizes.pixels(), sizes.columns()]);
        launch!(
            im2col_kernel,
            each(&matrix),
            [input, matrix],
            [
                sizes.inputs as u32,
                sizes.height as u32,
                sizes.width as u32,
                sizes.output_height as u32,
                sizes.output_width as u32,
                self.stride as u32
            ]
        );
        matrix
    }

    /// Returns the convolved images `[images · pixels, outputs]`.
    fn convolve(matrix: CubeTensor, weight: &CubeTensor, sizes: Sizes) -> CubeTensor {
        let weight = reshape(weight.clone(), [sizes.outputs, sizes.columns()].into());
        product(matrix, permute(weight, &[1, 0]))
    }
}

impl Operation<CubeTensor, 4> for Conv3x3GroupNormRelu {
    type Saved = Saved;

    fn forward(&self, inputs: [CubeTensor; 4], save: bool) -> (CubeTensor, Option<Saved>) {
        let [input, weight, gamma, beta] = inputs.map(into_contiguous);
        let sizes = Sizes::new(input.meta.shape(), weight.meta.shape()[0], self.stride);
        let convolved = into_contiguous(Self::convolve(self.im2col(&input, sizes), &weight, sizes));
        let output = empty(&input, [sizes.images, sizes.outputs, sizes.output_height, sizes.output_width]);
        let moments = empty(&input, [sizes.images, self.groups, 2]);
        let cube_count = sizes.images * self.groups;
        launch!(
            normalize,
            cubes(cube_count),
            [convolved, gamma, beta, output, moments],
            [self.epsilon, cube_count as u32, self.groups as u32, sizes.outputs as u32, sizes.pixels() as u32]
        );
        let convolved = (self.save == SaveActivations::All).then_some(convolved);
        (output, save.then_some(Saved { input, weight, gamma, beta, convolved, moments }))
    }

    fn backward(&self, saved: Saved, gradient: CubeTensor, needs_grad: [bool; 4]) -> [Option<CubeTensor>; 4] {
        let Saved { input, weight, gamma, beta, convolved, moments } = saved;
        let sizes = Sizes::new(input.meta.shape(), weight.meta.shape()[0], self.stride);
        let (images, outputs, pixels) = (sizes.images, sizes.outputs, sizes.pixels());
        let matrix = (needs_grad[1] || convolved.is_none()).then(|| self.im2col(&input, sizes));
        let convolved = convolved.or_else(|| Some(into_contiguous(Self::convolve(matrix.clone()?, &weight, sizes))));
        let convolved = convolved.unwrap_or_else(|| unreachable!("it is saved or the matrix is there"));
        let [gammas, betas] = [0, 1].map(|_| empty(&input, [images, outputs]));
        let input_gradient = empty(&input, [images * pixels, outputs]);
        let cube_count = images * self.groups;
        launch!(
            normalize_backward,
            cubes(cube_count),
            [gradient, convolved, gamma, beta, moments, input_gradient, gammas, betas],
            [cube_count as u32, self.groups as u32, outputs as u32, pixels as u32]
        );
        let products = matrix.filter(|_| needs_grad[1]).map(|matrix| {
            // One product for each image: more cubes than one long product would have.
            let gradient = reshape(input_gradient.clone(), [images, pixels, outputs].into());
            let matrix = reshape(matrix, [images, pixels, sizes.columns()].into());
            into_contiguous(product(permute(gradient, &[0, 2, 1]), matrix))
        });
        let (weight_gradient, [gamma, beta]) = match products {
            Some(products) => {
                let [weights, gamma, beta] = column_sums([&products, &gammas, &betas], images);
                (Some(reshape(weights, weight.meta.shape().clone())), [gamma, beta])
            }
            None => (None, column_sums([&gammas, &betas], images)),
        };
        let data_gradient = needs_grad[0].then(|| {
            let weight = reshape(weight.clone(), [outputs, sizes.columns()].into());
            let columns = into_contiguous(product(input_gradient, weight));
            let output = empty(&input, input.meta.shape().clone());
            launch!(
                col2im_kernel,
                each(&input),
                [columns, output],
                [
                    sizes.inputs as u32,
                    sizes.height as u32,
                    sizes.width as u32,
                    sizes.output_height as u32,
                    sizes.output_width as u32,
                    self.stride as u32
                ]
            );
            output
        });
        [data_gradient, weight_gradient, needs_grad[2].then_some(gamma), needs_grad[3].then_some(beta)]
    }
}

/// One unit for each value of the matrices.
#[cube(launch)]
fn im2col_kernel(
    input: &[f32],
    matrix: &mut [f32],
    inputs: u32,
    height: u32,
    width: u32,
    output_height: u32,
    output_width: u32,
    stride: u32,
) {
    if ABSOLUTE_POS < matrix.len() {
        let at = ABSOLUTE_POS as u32;
        let column = at % (inputs * 9);
        let row = at / (inputs * 9);
        let (channel, tap) = (column / 9, column % 9);
        let pixels = output_height * output_width;
        let (image, pixel) = (row / pixels, row % pixels);
        // One more than the position in the input, which may be -1.
        let y = pixel / output_width * stride + tap / 3;
        let x = pixel % output_width * stride + tap % 3;
        let mut value = 0.0f32;
        if y > 0 && y <= height && x > 0 && x <= width {
            value = input[(((image * inputs + channel) * height + y - 1) * width + x - 1) as usize];
        }
        matrix[ABSOLUTE_POS] = value;
    }
}

/// One unit for each value of the input, which adds the at most nine values of the matrices that were copied from it.
#[cube(launch)]
fn col2im_kernel(
    columns: &[f32],
    output: &mut [f32],
    inputs: u32,
    height: u32,
    width: u32,
    output_height: u32,
    output_width: u32,
    stride: u32,
) {
    if ABSOLUTE_POS < output.len() {
        let at = ABSOLUTE_POS as u32;
        let x = at % width;
        let y = at / width % height;
        let channel = at / (width * height) % inputs;
        let image = at / (width * height * inputs);
        let mut sum = 0.0f32;
        let mut tap = 0u32;
        while tap < 9 {
            let (from_y, from_x) = (y + 1, x + 1);
            let (tap_y, tap_x) = (tap / 3, tap % 3);
            if from_y >= tap_y && from_x >= tap_x {
                let (distance_y, distance_x) = (from_y - tap_y, from_x - tap_x);
                let (row, column) = (distance_y / stride, distance_x / stride);
                if distance_y % stride == 0 && distance_x % stride == 0 && row < output_height && column < output_width
                {
                    let pixel = (image * output_height + row) * output_width + column;
                    sum += columns[((pixel * inputs + channel) * 9 + tap) as usize];
                }
            }
            tap += 1;
        }
        output[ABSOLUTE_POS] = sum;
    }
}

/// One cube for each group of an image: `[images, pixels, channels]` to `[images, channels, pixels]`.
#[cube(launch)]
fn normalize(
    convolved: &[f32],
    gamma: &[f32],
    beta: &[f32],
    output: &mut [f32],
    moments: &mut [f32],
    epsilon: f32,
    count: u32,
    groups: u32,
    channels: u32,
    pixels: u32,
) {
    let mut scratch = Shared::<[f32]>::new_slice(UNITS as usize);
    if CUBE_POS < count as usize {
        let position = CUBE_POS as u32;
        let image = position / groups;
        let group_channels = channels / groups;
        let first = position % groups * group_channels;
        let length = group_channels * pixels;
        let start = image * pixels * channels + first;
        let mut sum = 0.0f32;
        let mut i = UNIT_POS;
        while i < length {
            sum += convolved[(start + i / group_channels * channels + i % group_channels) as usize];
            i += UNITS;
        }
        let mean = cube_sum(sum, &mut scratch) / length as f32;
        let mut squares = 0.0f32;
        i = UNIT_POS;
        while i < length {
            let centered = convolved[(start + i / group_channels * channels + i % group_channels) as usize] - mean;
            squares += centered * centered;
            i += UNITS;
        }
        let factor = 1.0f32 / (cube_sum(squares, &mut scratch) / length as f32 + epsilon).sqrt();
        i = UNIT_POS;
        while i < length {
            let (channel, pixel) = (first + i / pixels, i % pixels);
            let value = convolved[((image * pixels + pixel) * channels + channel) as usize];
            let result = (value - mean) * factor * gamma[channel as usize] + beta[channel as usize];
            output[((image * channels + channel) * pixels + pixel) as usize] = max(result, 0.0f32);
            i += UNITS;
        }
        if UNIT_POS == 0 {
            moments[CUBE_POS * 2] = mean;
            moments[CUBE_POS * 2 + 1] = factor;
        }
    }
}

/// Gradient of the convolved images, `[images, pixels, channels]`, and of gamma and beta for each image, each `[images, channels]`. `gradient` is
/// `[images, channels, pixels]`.
#[cube(launch)]
fn normalize_backward(
    gradient: &[f32],
    convolved: &[f32],
    gamma: &[f32],
    beta: &[f32],
    moments: &[f32],
    output: &mut [f32],
    gammas: &mut [f32],
    betas: &mut [f32],
    count: u32,
    groups: u32,
    channels: u32,
    pixels: u32,
) {
    let mut scratch = Shared::<[f32]>::new_slice(UNITS as usize);
    if CUBE_POS < count as usize {
        let position = CUBE_POS as u32;
        let image = position / groups;
        let group_channels = channels / groups;
        let first = position % groups * group_channels;
        let length = group_channels * pixels;
        let mean = moments[CUBE_POS * 2];
        let factor = moments[CUBE_POS * 2 + 1];
        let mut sum = 0.0f32;
        let mut dot = 0.0f32;
        let mut channel = first;
        while channel < first + group_channels {
            let (scale, shift) = (gamma[channel as usize], beta[channel as usize]);
            let mut channel_sum = 0.0f32;
            let mut channel_dot = 0.0f32;
            let mut pixel = UNIT_POS;
            while pixel < pixels {
                let value = convolved[((image * pixels + pixel) * channels + channel) as usize];
                let normalized = (value - mean) * factor;
                if normalized * scale + shift > 0.0 {
                    let upstream = gradient[((image * channels + channel) * pixels + pixel) as usize];
                    channel_sum += upstream;
                    channel_dot += upstream * normalized;
                }
                pixel += UNITS;
            }
            let grad_beta = cube_sum(channel_sum, &mut scratch);
            let grad_gamma = cube_sum(channel_dot, &mut scratch);
            if UNIT_POS == 0 {
                gammas[(image * channels + channel) as usize] = grad_gamma;
                betas[(image * channels + channel) as usize] = grad_beta;
            }
            sum += grad_beta * scale;
            dot += grad_gamma * scale;
            channel += 1;
        }
        let mean_scaled = sum / length as f32;
        let projection = dot / length as f32;
        let mut i = UNIT_POS;
        while i < length {
            let (own_channel, pixel) = (first + i / pixels, i % pixels);
            let at = (image * pixels + pixel) * channels + own_channel;
            let normalized = (convolved[at as usize] - mean) * factor;
            let scale = gamma[own_channel as usize];
            let mut scaled = 0.0f32;
            if normalized * scale + beta[own_channel as usize] > 0.0 {
                scaled = gradient[((image * channels + own_channel) * pixels + pixel) as usize] * scale;
            }
            output[at as usize] = (scaled - mean_scaled - normalized * projection) * factor;
            i += UNITS;
        }
    }
}
