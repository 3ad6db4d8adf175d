//! Convolutions: 3 x 3 followed by group normalisation and ReLU, and 1 x 1 with a bias.
//!
//! The 3 x 3 convolution is a matrix product of the weight with im2col matrices ([`crate::im2col`]) of a few images at a time, so that
//! a matrix stays in the processor's cache. Matrices are not saved: the backward pass recomputes them from the input. Images are
//! distributed over threads; gradients of parameters are summed over [`CHUNKS`] chunks of images, which are then added in order.

use burn::tensor::activation::relu;
use burn::tensor::ops::ConvOptions;
use burn::tensor::{Shape, Tensor, module};
use burn_flex::FlexTensor;
use rayon::prelude::*;

use crate::cpu_kernels::is_fused;
use crate::cube::on_cube;
use crate::flex::{contiguous, shape, tensor, values};
use crate::group_norm_relu::{self, Moments, NormParameters, PlaneLayout};
use crate::im2col::{Im2colBuffer, Stride, TAPS};
use crate::matmul::Accumulate::{Add, Overwrite};
use crate::matmul::{Matrix, MatrixMut, multiply};
use crate::operation::{Operation, quaternary, ternary};
use crate::simd::{accumulate, sum, sum_in_order, vectorize};

/// Values of an im2col matrix (256 KiB), unless one image has more.
const IM2COL_VALUES: usize = 1 << 16;
/// Number of chunks that a sum over images is split into.
const CHUNKS: usize = 8;

/// Affine group normalisation.
#[derive(Clone, Debug)]
pub struct GroupNorm {
    /// Scale of each channel, `[channels]`.
    pub gamma: Tensor<1>,
    /// Shift of each channel, `[channels]`.
    pub beta: Tensor<1>,
    /// Number of groups of channels.
    pub groups: usize,
    /// Number added to the variance.
    pub epsilon: f64,
}

/// Activations saved for the backward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaveActivations {
    /// The input and the output of the convolution.
    All,
    /// The input alone: the convolution is recomputed, with the same bits.
    Inputs,
}

/// 3 x 3 convolution with zero padding of one pixel and no bias, followed by group normalisation and ReLU.
///
/// `input` `[images, inputs, height, width]` and `weight` `[outputs, inputs, 3, 3]` give `[images, outputs, ceil(height / stride),
/// ceil(width / stride)]`. `save` concerns the fused kernel only.
///
/// # Panics
/// The stride is neither 1 nor 2, or shapes do not match.
pub fn conv3x3_group_norm_relu(
    input: Tensor<4>,
    weight: Tensor<4>,
    norm: GroupNorm,
    stride: usize,
    save: SaveActivations,
) -> Tensor<4> {
    let [outputs, inputs, height, width] = weight.dims();
    assert!(
        [height, width] == [3, 3] && inputs == input.dims()[1],
        "the weight is not [outputs, {}, 3, 3]",
        input.dims()[1]
    );
    assert!(
        norm.groups > 0 && outputs.is_multiple_of(norm.groups),
        "{outputs} channels do not divide into {} groups",
        norm.groups
    );
    assert!(norm.gamma.dims() == [outputs] && norm.beta.dims() == [outputs], "gamma or beta is not [{outputs}]");
    let GroupNorm { gamma, beta, groups, epsilon } = norm;
    let operation = || Conv3x3GroupNormRelu { stride: Stride::new(stride), groups, epsilon: epsilon as f32, save };
    on_cube!(&input => crate::cube::quaternary(operation(), (input, weight, gamma, beta)));
    if !is_fused(&input) {
        let options = ConvOptions::new([stride, stride], [1, 1], [1, 1], 1);
        let convolved = module::conv2d(input, weight, None, options);
        return relu(plain_group_norm(convolved, [gamma, beta], groups, epsilon as f32));
    }
    quaternary(operation(), (input, weight, gamma, beta))
}

/// 1 x 1 convolution with a bias: `input` `[images, inputs, height, width]`, `weight` `[outputs, inputs, 1, 1]` and `bias`
/// `[outputs]` give `[images, outputs, height, width]`.
///
/// # Panics
/// Shapes do not match.
pub fn conv1x1(input: Tensor<4>, weight: Tensor<4>, bias: Tensor<1>) -> Tensor<4> {
    let [outputs, inputs, height, width] = weight.dims();
    assert!(
        [height, width] == [1, 1] && inputs == input.dims()[1],
        "the weight is not [outputs, {}, 1, 1]",
        input.dims()[1]
    );
    assert!(bias.dims() == [outputs], "the bias is not [{outputs}]");
    on_cube!(&input => {
        let [images, _, height, width] = input.dims();
        let pixels = input.reshape([images, inputs, height * width]);
        let product = weight.reshape([1, outputs, inputs]).matmul(pixels);
        (product + bias.reshape([1, outputs, 1])).reshape([images, outputs, height, width])
    });
    match is_fused(&input) {
        true => ternary(Conv1x1, (input, weight, bias)),
        false => module::conv2d(input, weight, Some(bias), ConvOptions::new([1, 1], [0, 0], [1, 1], 1)),
    }
}

/// Group normalisation in Burn's operations. All of them broadcast `[rows, 1]` to `[rows, values]`, which is fast in burn-flex.
fn plain_group_norm(input: Tensor<4>, [gamma, beta]: [Tensor<1>; 2], groups: usize, epsilon: f32) -> Tensor<4> {
    let [count, channels, height, width] = input.dims();
    let rows = input.reshape([count * groups, channels / groups * height * width]);
    let centered = rows.clone() - rows.mean_dim(1);
    let variance = (centered.clone() * centered.clone()).mean_dim(1);
    let factor = variance.add_scalar(epsilon).sqrt().recip();
    let factor = factor.expand([count * groups, channels / groups]).reshape([count, channels]);
    let factor = factor * gamma.reshape([1, channels]);
    let normalized = centered.reshape([count * channels, height * width]) * factor.reshape([count * channels, 1]);
    let shift = beta.reshape([1, channels]).expand([count, channels]).reshape([count * channels, 1]);
    (normalized + shift).reshape([count, channels, height, width])
}

/// Sizes of a convolution.
#[derive(Clone, Copy, Debug)]
struct ConvSizes {
    images: usize,
    inputs: usize,
    /// Height and width of the input.
    size: [usize; 2],
    outputs: usize,
    /// Number of pixels of an output plane.
    pixels: usize,
}

impl ConvSizes {
    fn new(input: &Shape, outputs: usize, pixels: impl Fn([usize; 2]) -> [usize; 2]) -> Self {
        let size = [input[2], input[3]];
        let [height, width] = pixels(size);
        Self { images: input[0], inputs: input[1], size, outputs, pixels: height * width }
    }

    /// Returns the number of values of an image of the input, and of the output.
    fn image_values(self) -> [usize; 2] {
        [self.inputs * self.size[0] * self.size[1], self.outputs * self.pixels]
    }

    /// Returns the number of images of a chunk of a sum.
    fn chunk_images(self) -> usize {
        self.images.div_ceil(CHUNKS).max(1)
    }

    /// Returns the number of images of an im2col matrix.
    fn im2col_images(self) -> usize {
        (IM2COL_VALUES / (self.inputs * TAPS * self.pixels).max(1)).clamp(1, self.chunk_images())
    }

    /// Splits values, `each` of an image, into those of each chunk, then of each im2col matrix.
    fn pieces<T>(self, values: &[T], each: usize) -> impl Iterator<Item = &[T]> {
        let chunks = values.chunks(self.chunk_images() * each);
        chunks.flat_map(move |chunk| chunk.chunks(self.im2col_images() * each))
    }

    /// As [`Self::pieces`]; empty slices follow.
    fn pieces_mut<T>(self, values: &mut [T], each: usize) -> impl Iterator<Item = &mut [T]> {
        let chunks = values.chunks_mut(self.chunk_images() * each);
        let pieces = chunks.flat_map(move |chunk| chunk.chunks_mut(self.im2col_images() * each));
        pieces.chain(std::iter::repeat_with(Default::default))
    }
}

/// Operation on input, weight, gamma and beta.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Conv3x3GroupNormRelu {
    pub stride: Stride,
    pub groups: usize,
    pub epsilon: f32,
    pub save: SaveActivations,
}

/// Values saved for the backward pass.
#[derive(Clone, Debug)]
pub(crate) struct Conv3x3Saved {
    input: FlexTensor,
    weight: FlexTensor,
    gamma: FlexTensor,
    beta: FlexTensor,
    /// `[images, groups]`.
    moments: Vec<Moments>,
    /// Convolved images of each im2col matrix, `[outputs, images, pixels]`; empty if they are recomputed.
    convolved: Vec<f32>,
}

/// Images of a chunk of the backward pass.
struct Chunk<'a> {
    gradient: &'a [f32],
    input: &'a [f32],
    moments: &'a [Moments],
    /// Gradient of the input; empty if it is not needed.
    grad_input: &'a mut [f32],
    /// Convolved images, which are overwritten; empty if they are recomputed.
    saved: &'a mut [f32],
}

impl Conv3x3GroupNormRelu {
    fn norm<'a>(&self, gamma: &'a FlexTensor, beta: &'a FlexTensor) -> NormParameters<'a> {
        NormParameters { gamma: values(gamma), beta: values(beta), groups: self.groups, epsilon: self.epsilon }
    }

    fn sizes(&self, input: &FlexTensor, weight: &FlexTensor) -> ConvSizes {
        ConvSizes::new(&shape(input), shape(weight)[0], |size| self.stride.output(size))
    }

    /// Allocates the im2col matrix of one thread, and its convolved images unless they are `saved`.
    fn scratch(&self, sizes: ConvSizes, saved: bool) -> (Im2colBuffer, Vec<f32>) {
        let images = sizes.im2col_images();
        let columns = Im2colBuffer::new(sizes.inputs, sizes.size, self.stride, images);
        (columns, vec![0.0; if saved { 0 } else { images * sizes.image_values()[1] }])
    }
}

/// Convolves a few images into `convolved` `[outputs, images · pixels]`; their im2col matrix stays in `columns`.
fn convolve(columns: &mut Im2colBuffer, input: &[f32], weight: Matrix<'_>, convolved: &mut [f32], sizes: ConvSizes) {
    let images = input.len() / sizes.image_values()[0];
    let count = images * sizes.pixels;
    columns.im2col(input);
    let rows = sizes.inputs * TAPS;
    let columns = Matrix::new(columns.matrix(images), rows, count, count);
    multiply(MatrixMut::new(convolved, sizes.outputs, count, count), weight, columns, Overwrite);
}

impl Operation<FlexTensor, 4> for Conv3x3GroupNormRelu {
    type Saved = Conv3x3Saved;

    fn forward(&self, inputs: [FlexTensor; 4], save: bool) -> (FlexTensor, Option<Conv3x3Saved>) {
        let [input, weight, gamma, beta] = inputs.map(contiguous);
        let (sizes, norm) = (self.sizes(&input, &weight), self.norm(&gamma, &beta));
        let [input_values, output_values] = sizes.image_values();
        let [height, width] = self.stride.output(sizes.size);
        let rows = sizes.inputs * TAPS;
        let kernels = Matrix::new(values(&weight), sizes.outputs, rows, rows);
        let mut output = vec![0.0; sizes.images * output_values];
        let mut moments = vec![[0.0; 2]; sizes.images * self.groups];
        let save_convolved = save && self.save == SaveActivations::All;
        let mut all_convolved = vec![0.0; if save_convolved { output.len() } else { 0 }];
        let parts = sizes.pieces(values(&input), input_values).zip(sizes.pieces_mut(&mut output, output_values));
        let parts = parts.zip(sizes.pieces_mut(&mut moments, self.groups));
        let parts: Vec<_> = parts.zip(sizes.pieces_mut(&mut all_convolved, output_values)).collect();
        let scratch = || self.scratch(sizes, save_convolved);
        parts.into_par_iter().for_each_init(scratch, |(columns, convolved), (((input, output), moments), saved)| {
            let stride = input.len() / input_values * sizes.pixels;
            let convolved = if save_convolved { saved } else { &mut convolved[..sizes.outputs * stride] };
            convolve(columns, input, kernels, convolved, sizes);
            let images = output.chunks_exact_mut(output_values).zip(moments.chunks_exact_mut(self.groups)).enumerate();
            for (image, (output, moments)) in images {
                let planes = PlaneLayout { first: image * sizes.pixels, stride, pixels: sizes.pixels };
                group_norm_relu::forward(convolved, planes, norm, output, moments);
            }
        });
        let output = tensor(output, Shape::new([sizes.images, sizes.outputs, height, width]));
        let saved = || Conv3x3Saved { input, weight, gamma, beta, moments, convolved: all_convolved };
        (output, save.then(saved))
    }

    fn backward(&self, saved: Conv3x3Saved, gradient: FlexTensor, needs_grad: [bool; 4]) -> [Option<FlexTensor>; 4] {
        let Conv3x3Saved { input, weight, gamma, beta, moments, convolved: mut saved } = saved;
        let (sizes, norm) = (self.sizes(&input, &weight), self.norm(&gamma, &beta));
        let ([input_values, output_values], chunk_images) = (sizes.image_values(), sizes.chunk_images());
        let rows = sizes.inputs * TAPS;
        let kernels = Matrix::new(values(&weight), sizes.outputs, rows, rows);
        let mut grad_input = vec![0.0; if needs_grad[0] { sizes.images * input_values } else { 0 }];
        let is_saved = !saved.is_empty();
        let parts = values(&gradient).chunks(chunk_images * output_values);
        let parts = parts.zip(values(&input).chunks(chunk_images * input_values));
        let parts = parts.zip(moments.chunks(chunk_images * self.groups));
        let parts = parts.zip(chunks_or_empty(&mut grad_input, chunk_images * input_values));
        let parts = parts.zip(chunks_or_empty(&mut saved, chunk_images * output_values));
        let chunk =
            |((((gradient, input), moments), grad_input), saved)| Chunk { gradient, input, moments, grad_input, saved };
        let mut chunks: Vec<_> = parts.map(chunk).collect();
        let backward = |((columns, convolved), sums): &mut ((Im2colBuffer, Vec<f32>), [Vec<f32>; 3]),
                        chunk: &mut Chunk<'_>| {
            let [grad_weight, grad_gamma, grad_beta] = sums;
            grad_gamma.fill(0.0);
            grad_beta.fill(0.0);
            let pieces = sizes.pieces(chunk.gradient, output_values).zip(sizes.pieces(chunk.input, input_values));
            let pieces = pieces.zip(sizes.pieces(chunk.moments, self.groups));
            let pieces = pieces.zip(sizes.pieces_mut(chunk.grad_input, input_values));
            let pieces = pieces.zip(sizes.pieces_mut(chunk.saved, output_values)).enumerate();
            for (number, ((((gradient, input), moments), grad_input), saved)) in pieces {
                let images = gradient.len() / output_values;
                let stride = images * sizes.pixels;
                let convolved = if is_saved { saved } else { &mut convolved[..sizes.outputs * stride] };
                match is_saved {
                    false => convolve(columns, input, kernels, convolved, sizes),
                    true if needs_grad[1] => columns.im2col(input),
                    true => {}
                }
                let by_image = gradient.chunks_exact(output_values).zip(moments.chunks_exact(self.groups)).enumerate();
                for (image, (gradient, moments)) in by_image {
                    let planes = PlaneLayout { first: image * sizes.pixels, stride, pixels: sizes.pixels };
                    group_norm_relu::backward(convolved, planes, norm, moments, gradient, [grad_gamma, grad_beta]);
                }
                let gradient = Matrix::new(convolved, sizes.outputs, stride, stride);
                let matrix = columns.matrix(images);
                if needs_grad[1] {
                    let to = MatrixMut::new(grad_weight, sizes.outputs, rows, rows);
                    let accumulate = if number == 0 { Overwrite } else { Add };
                    multiply(to, gradient, Matrix::new(matrix, rows, stride, stride).transposed(), accumulate);
                }
                if needs_grad[0] {
                    multiply(MatrixMut::new(matrix, rows, stride, stride), kernels.transposed(), gradient, Overwrite);
                    columns.col2im(grad_input);
                }
            }
        };
        // As many chunks at a time as there are threads, so that there are as few buffers.
        let mut sums = [sizes.outputs * rows, sizes.outputs, sizes.outputs].map(|length| vec![0.0; length]);
        let threads = rayon::current_num_threads().min(chunks.len());
        let mut scratch: Vec<_> = (0..threads).map(|_| (self.scratch(sizes, is_saved), sums.clone())).collect();
        for wave in chunks.chunks_mut(threads.max(1)) {
            scratch.par_iter_mut().zip(wave.par_iter_mut()).for_each(|(scratch, chunk)| backward(scratch, chunk));
            for (_, chunk) in &scratch[..wave.len()] {
                sums.iter_mut().zip(chunk).for_each(|(sum, chunk)| accumulate(sum, chunk));
            }
        }
        let [grad_weight, grad_gamma, grad_beta] = sums;
        let parameter = |needed: bool, sum, like| needed.then(|| tensor(sum, shape(like)));
        [
            needs_grad[0].then(|| tensor(grad_input, shape(&input))),
            parameter(needs_grad[1], grad_weight, &weight),
            parameter(needs_grad[2], grad_gamma, &gamma),
            parameter(needs_grad[3], grad_beta, &beta),
        ]
    }
}

/// Returns chunks of values; empty ones follow.
fn chunks_or_empty(values: &mut [f32], size: usize) -> impl Iterator<Item = &mut [f32]> {
    values.chunks_mut(size).chain(std::iter::repeat_with(Default::default))
}

/// Adds the gradients of parameters over all chunks, in order; `None` for parameters without a gradient.
fn sum_gradients<const N: usize>(
    chunks: Vec<[Vec<f32>; N]>,
    parameters: [&FlexTensor; N],
    needs_grad: [bool; N],
) -> [Option<FlexTensor>; N] {
    let mut by_parameter: [Vec<Vec<f32>>; N] = std::array::from_fn(|_| Vec::with_capacity(chunks.len()));
    for chunk in chunks {
        by_parameter.iter_mut().zip(chunk).for_each(|(gradients, gradient)| gradients.push(gradient));
    }
    let mut sums =
        by_parameter.into_iter().zip(parameters).zip(needs_grad).map(|((gradients, parameter), needs_grad)| {
            needs_grad.then(|| tensor(sum_in_order(gradients, shape(parameter).num_elements()), shape(parameter)))
        });
    std::array::from_fn(|_| sums.next().flatten())
}

/// 1 x 1 convolution with a bias.
#[derive(Clone, Copy, Debug)]
struct Conv1x1;

impl Operation<FlexTensor, 3> for Conv1x1 {
    /// Input, weight and bias.
    type Saved = [FlexTensor; 3];

    fn forward(&self, inputs: [FlexTensor; 3], save: bool) -> (FlexTensor, Option<Self::Saved>) {
        let inputs = inputs.map(contiguous);
        let [input, weight, bias] = &inputs;
        let mut shape = shape(input);
        let sizes = ConvSizes::new(&shape, crate::flex::shape(weight)[0], |size| size);
        let ([input_values, output_values], pixels) = (sizes.image_values(), sizes.pixels);
        let (kernels, bias) = (Matrix::new(values(weight), sizes.outputs, sizes.inputs, sizes.inputs), values(bias));
        let mut output = vec![0.0; sizes.images * output_values];
        let images = output.par_chunks_mut(output_values).zip(values(input).par_chunks(input_values));
        images.for_each(|(output, input)| {
            output.chunks_exact_mut(pixels).zip(bias).for_each(|(plane, bias)| plane.fill(*bias));
            let input = Matrix::new(input, sizes.inputs, pixels, pixels);
            multiply(MatrixMut::new(output, sizes.outputs, pixels, pixels), kernels, input, Add);
        });
        shape[1] = sizes.outputs;
        (tensor(output, shape), save.then_some(inputs))
    }

    fn backward(&self, saved: Self::Saved, gradient: FlexTensor, needs_grad: [bool; 3]) -> [Option<FlexTensor>; 3] {
        let [input, weight, bias] = &saved;
        let sizes = ConvSizes::new(&shape(input), shape(weight)[0], |size| size);
        let ([input_values, output_values], pixels, chunk_images) =
            (sizes.image_values(), sizes.pixels, sizes.chunk_images());
        let kernels = Matrix::new(values(weight), sizes.outputs, sizes.inputs, sizes.inputs);
        let mut grad_input = vec![0.0; if needs_grad[0] { sizes.images * input_values } else { 0 }];
        let parts = values(&gradient).chunks(chunk_images * output_values);
        let parts = parts.zip(values(input).chunks(chunk_images * input_values));
        let parts: Vec<_> = parts.zip(chunks_or_empty(&mut grad_input, chunk_images * input_values)).collect();
        let sums = parts.into_par_iter().map(|((gradient, input), grad_input)| {
            let mut sums = [sizes.outputs * sizes.inputs, sizes.outputs].map(|length| vec![0.0; length]);
            let [grad_weight, grad_bias] = &mut sums;
            for (image, (gradient, input)) in
                gradient.chunks_exact(output_values).zip(input.chunks_exact(input_values)).enumerate()
            {
                grad_bias
                    .iter_mut()
                    .zip(gradient.chunks_exact(pixels))
                    .for_each(|(sum, plane)| *sum += vectorized_sum(plane));
                let gradient = Matrix::new(gradient, sizes.outputs, pixels, pixels);
                if needs_grad[1] {
                    let to = MatrixMut::new(grad_weight, sizes.outputs, sizes.inputs, sizes.inputs);
                    multiply(to, gradient, Matrix::new(input, sizes.inputs, pixels, pixels).transposed(), Add);
                }
                if needs_grad[0] {
                    let to = MatrixMut::new(&mut grad_input[image * input_values..], sizes.inputs, pixels, pixels);
                    multiply(to, kernels.transposed(), gradient, Overwrite);
                }
            }
            sums
        });
        let sums: Vec<[Vec<f32>; 2]> = sums.collect();
        let [grad_weight, grad_bias] = sum_gradients(sums, [weight, bias], [needs_grad[1], needs_grad[2]]);
        [needs_grad[0].then(|| tensor(grad_input, shape(input))), grad_weight, grad_bias]
    }
}

fn vectorized_sum(values: &[f32]) -> f32 {
    vectorize(
        #[inline(always)]
        || sum(values),
    )
}
