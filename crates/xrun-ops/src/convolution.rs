//! Convolutions: 3 x 3 with group normalisation and a rectifier, and 1 x 1 with a bias.
//!
//! A convolution of 3 x 3 is a matrix product of its kernels and of columns ([`crate::im2col`]), a few images at a time, so that
//! columns stay in the processor's cache. They are not saved: the backward pass makes them again from the input. Images are
//! shared among threads; sums over images are taken in [`CHUNKS`] parts and then in order.

use burn::backend::Dispatch;
use burn::tensor::activation::relu;
use burn::tensor::ops::ConvOptions;
use burn::tensor::{Shape, Tensor, module};
use burn_flex::FlexTensor;
use rayon::prelude::*;

use crate::choice::is_fused;
use crate::flex::{contiguous, shape, tensor, values};
use crate::group_norm_relu::{self, Moments, Norm, Planes};
use crate::im2col::{Columns, POSITIONS, Stride};
use crate::matmul::Accumulate::{Add, Overwrite};
use crate::matmul::{Matrix, MatrixMut, multiply};
use crate::operation::{Apply, Operation, ternary};
use crate::simd::{lane_sum, sum_in_order, vectorize};

/// Values of columns at once, unless one image has more: 256 KiB.
const COLUMNS: usize = 1 << 16;
/// Parts of a sum over images.
const CHUNKS: usize = 8;

/// A group normalisation that scales and shifts by channel.
#[derive(Clone, Debug)]
pub struct GroupNorm {
    /// The scale of each channel, `[channels]`.
    pub gamma: Tensor<1>,
    /// The shift of each channel, `[channels]`.
    pub beta: Tensor<1>,
    /// Groups of channels.
    pub groups: usize,
    /// Added to a variance.
    pub epsilon: f64,
}

/// The activations that are saved for the backward pass, besides the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaveActivations {
    /// The output of the convolution.
    All,
    /// None: the convolution is computed again, to the same bits.
    Inputs,
}

/// A convolution of 3 x 3 with a border of one pixel of zeros and no bias, group normalisation, and a rectifier.
///
/// `input` `[images, inputs, height, width]` and `weight` `[outputs, inputs, 3, 3]` to `[images, outputs, height / stride, width /
/// stride]`, rounded up. `save` matters to the fused kernel alone.
///
/// # Panics
/// The stride is neither 1 nor 2, or shapes do not fit.
pub fn conv3x3_group_norm_relu(
    input: Tensor<4>,
    weight: Tensor<4>,
    norm: GroupNorm,
    stride: usize,
    save: SaveActivations,
) -> Tensor<4> {
    let [outputs, inputs, height, width] = weight.dims();
    assert!([height, width] == [3, 3] && inputs == input.dims()[1], "kernels of 3 x 3 for the channels of the input");
    assert!(norm.groups > 0 && outputs.is_multiple_of(norm.groups), "groups have the same number of channels");
    let GroupNorm { gamma, beta, groups, epsilon } = norm;
    assert!(gamma.dims() == [outputs] && beta.dims() == [outputs], "each channel has a scale and a shift");
    if !is_fused(&input) {
        let options = ConvOptions::new([stride, stride], [1, 1], [1, 1], 1);
        let convolved = module::conv2d(input, weight, None, options);
        return relu(plain_group_norm(convolved, [gamma, beta], groups, epsilon as f32));
    }
    let stride = match stride {
        1 => Stride::One,
        2 => Stride::Two,
        _ => panic!("the stride is 1 or 2, and not {stride}"),
    };
    let operation = Block { stride, groups, epsilon: epsilon as f32, save };
    let [input, weight] = [input, weight].map(Tensor::into_dispatch);
    let [gamma, beta] = [gamma, beta].map(Tensor::into_dispatch);
    Tensor::from_dispatch(Dispatch::quaternary(operation, input, weight, gamma, beta))
}

/// A convolution of 1 x 1 with a bias: `input` `[images, inputs, height, width]`, `weight` `[outputs, inputs, 1, 1]`, `bias`
/// `[outputs]` to `[images, outputs, height, width]`.
///
/// # Panics
/// Shapes do not fit.
pub fn conv1x1(input: Tensor<4>, weight: Tensor<4>, bias: Tensor<1>) -> Tensor<4> {
    let [outputs, inputs, height, width] = weight.dims();
    assert!([height, width] == [1, 1] && inputs == input.dims()[1], "kernels of 1 x 1 for the channels of the input");
    assert!(bias.dims() == [outputs], "each channel has a bias");
    match is_fused(&input) {
        true => ternary(Pointwise, (input, weight, bias)),
        false => module::conv2d(input, weight, Some(bias), ConvOptions::new([1, 1], [0, 0], [1, 1], 1)),
    }
}

/// Group normalisation in Burn's operations, each of which is of `[rows, values]` and `[rows, 1]`.
fn plain_group_norm(input: Tensor<4>, [gamma, beta]: [Tensor<1>; 2], groups: usize, epsilon: f32) -> Tensor<4> {
    let [count, channels, height, width] = input.dims();
    let rows = input.reshape([count * groups, channels / groups * height * width]);
    let centred = rows.clone() - rows.mean_dim(1);
    let variance = (centred.clone() * centred.clone()).mean_dim(1);
    let factor = variance.add_scalar(epsilon).sqrt().recip();
    let factor = factor.expand([count * groups, channels / groups]).reshape([count, channels]);
    let factor = factor * gamma.reshape([1, channels]);
    let normal = centred.reshape([count * channels, height * width]) * factor.reshape([count * channels, 1]);
    let shift = beta.reshape([1, channels]).expand([count, channels]).reshape([count * channels, 1]);
    (normal + shift).reshape([count, channels, height, width])
}

/// The sizes of a convolution.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    images: usize,
    inputs: usize,
    /// Height and width of the input.
    size: [usize; 2],
    outputs: usize,
    /// Pixels of an output plane.
    pixels: usize,
}

impl Sizes {
    fn new(input: &Shape, outputs: usize, pixels: impl Fn([usize; 2]) -> [usize; 2]) -> Self {
        let size = [input[2], input[3]];
        let [height, width] = pixels(size);
        Self { images: input[0], inputs: input[1], size, outputs, pixels: height * width }
    }

    /// Values of an image of the input, and of the output.
    fn each(self) -> [usize; 2] {
        [self.inputs * self.size[0] * self.size[1], self.outputs * self.pixels]
    }

    /// Images of one part of a sum.
    fn chunk(self) -> usize {
        self.images.div_ceil(CHUNKS).max(1)
    }

    /// Images whose columns are made at once.
    fn at_once(self) -> usize {
        (COLUMNS / (self.inputs * POSITIONS * self.pixels).max(1)).clamp(1, self.chunk())
    }
}

#[derive(Clone, Copy, Debug)]
struct Block {
    stride: Stride,
    groups: usize,
    epsilon: f32,
    save: SaveActivations,
}

#[derive(Clone, Debug)]
struct BlockSaved {
    input: FlexTensor,
    weight: FlexTensor,
    gamma: FlexTensor,
    beta: FlexTensor,
    /// `[images, groups]`.
    moments: Vec<Moments>,
    /// `None` where it is computed again.
    convolved: Option<Vec<f32>>,
}

/// Gradients of a weight and of two vectors.
type Sums = [Vec<f32>; 3];

impl Block {
    fn norm<'a>(&self, gamma: &'a FlexTensor, beta: &'a FlexTensor) -> Norm<'a> {
        Norm { gamma: values(gamma), beta: values(beta), groups: self.groups, epsilon: self.epsilon }
    }

    fn sizes(&self, input: &FlexTensor, weight: &FlexTensor) -> Sizes {
        Sizes::new(&shape(input), shape(weight)[0], |size| self.stride.output(size))
    }

    /// Columns and convolved values of a few images: memory of one thread.
    fn memory(&self, sizes: Sizes) -> (Columns, Vec<f32>) {
        let at_once = sizes.at_once();
        let columns = Columns::new(sizes.inputs, sizes.size, self.stride, at_once);
        (columns, vec![0.0; sizes.outputs * at_once * sizes.pixels])
    }
}

/// Convolves a few images: `convolved` becomes `[outputs, images · pixels]`, and `columns` stay.
fn convolve(columns: &mut Columns, input: &[f32], weight: Matrix<'_>, convolved: &mut [f32], sizes: Sizes) {
    let images = input.len() / sizes.each()[0];
    let count = images * sizes.pixels;
    columns.im2col(input);
    let rows = sizes.inputs * POSITIONS;
    let columns = Matrix::new(columns.matrix(images), rows, count, count);
    multiply(MatrixMut::new(convolved, sizes.outputs, count, count), weight, columns, Overwrite);
}

impl Operation<4> for Block {
    type Saved = BlockSaved;

    fn forward(&self, inputs: [FlexTensor; 4], save: bool) -> (FlexTensor, Option<BlockSaved>) {
        let [input, weight, gamma, beta] = inputs.map(contiguous);
        let (sizes, norm) = (self.sizes(&input, &weight), self.norm(&gamma, &beta));
        let ([each_input, each], at_once) = (sizes.each(), sizes.at_once());
        let [height, width] = self.stride.output(sizes.size);
        let rows = sizes.inputs * POSITIONS;
        let kernels = Matrix::new(values(&weight), sizes.outputs, rows, rows);
        let mut output = vec![0.0; sizes.images * each];
        let mut moments = vec![[0.0; 2]; sizes.images * self.groups];
        let keep = save && self.save == SaveActivations::All;
        let mut all_convolved = vec![0.0; if keep { output.len() } else { 0 }];
        // Where nothing is kept, pieces are empty.
        let mut pieces: Vec<&mut [f32]> = match keep {
            true => all_convolved.chunks_mut(at_once * each).collect(),
            false => (0..sizes.images.div_ceil(at_once)).map(|_| Default::default()).collect(),
        };
        let outputs = output.par_chunks_mut(at_once * each).zip(values(&input).par_chunks(at_once * each_input));
        let parts = outputs.zip(moments.par_chunks_mut(at_once * self.groups)).zip(&mut pieces);
        let memory = || self.memory(sizes);
        parts.for_each_init(memory, |(columns, convolved), (((output, input), moments), kept)| {
            let images = output.len() / each;
            let stride = images * sizes.pixels;
            let convolved = &mut convolved[..sizes.outputs * stride];
            convolve(columns, input, kernels, convolved, sizes);
            let images = output.chunks_exact_mut(each).zip(moments.chunks_exact_mut(self.groups)).enumerate();
            for (image, (output, moments)) in images {
                let planes = Planes { first: image * sizes.pixels, stride, pixels: sizes.pixels };
                group_norm_relu::forward(convolved, planes, norm, output, moments);
            }
            for (image, kept) in kept.chunks_exact_mut(each).enumerate() {
                copy_image(convolved, image, kept, sizes.pixels);
            }
        });
        let output = tensor(output, Shape::new([sizes.images, sizes.outputs, height, width]));
        let saved = || BlockSaved { input, weight, gamma, beta, moments, convolved: keep.then_some(all_convolved) };
        (output, save.then(saved))
    }

    fn backward(&self, saved: BlockSaved, gradient: FlexTensor, wanted: [bool; 4]) -> [Option<FlexTensor>; 4] {
        let BlockSaved { input, weight, gamma, beta, moments, convolved: saved } = saved;
        let (sizes, norm) = (self.sizes(&input, &weight), self.norm(&gamma, &beta));
        let ([each_input, each], chunk, at_once) = (sizes.each(), sizes.chunk(), sizes.at_once());
        let rows = sizes.inputs * POSITIONS;
        let kernels = Matrix::new(values(&weight), sizes.outputs, rows, rows);
        let mut by_input = vec![0.0; if wanted[0] { sizes.images * each_input } else { 0 }];
        let mut by_inputs = chunks_or_empty(&mut by_input, chunk * each_input, sizes.images.div_ceil(chunk));
        let parts = values(&gradient).par_chunks(chunk * each).zip(values(&input).par_chunks(chunk * each_input));
        let parts = parts.zip(moments.par_chunks(chunk * self.groups)).zip(&mut by_inputs).enumerate();
        let sums = parts.map(|(number, (((gradient, input), moments), by_input))| {
            let (mut columns, mut convolved) = self.memory(sizes);
            let mut sums = [sizes.outputs * rows, sizes.outputs, sizes.outputs].map(|length| vec![0.0; length]);
            let pieces = gradient.chunks(at_once * each).zip(input.chunks(at_once * each_input));
            let pieces = pieces.zip(moments.chunks(at_once * self.groups)).enumerate();
            for (piece, ((gradient, input), moments)) in pieces {
                let images = gradient.len() / each;
                let stride = images * sizes.pixels;
                let convolved = &mut convolved[..sizes.outputs * stride];
                match &saved {
                    None => convolve(&mut columns, input, kernels, convolved, sizes),
                    Some(saved) => {
                        let from = (number * chunk + piece * at_once) * each;
                        for (image, saved) in saved[from..][..images * each].chunks_exact(each).enumerate() {
                            restore_image(convolved, image, saved, sizes.pixels);
                        }
                        if wanted[1] {
                            columns.im2col(input);
                        }
                    }
                }
                let [by_weight, by_gamma, by_beta] = &mut sums;
                let images_of = gradient.chunks_exact(each).zip(moments.chunks_exact(self.groups)).enumerate();
                for (image, (gradient, moments)) in images_of {
                    let planes = Planes { first: image * sizes.pixels, stride, pixels: sizes.pixels };
                    group_norm_relu::backward(convolved, planes, norm, moments, gradient, [by_gamma, by_beta]);
                }
                let gradient = Matrix::new(convolved, sizes.outputs, stride, stride);
                let matrix = columns.matrix(images);
                if wanted[1] {
                    let to = MatrixMut::new(by_weight, sizes.outputs, rows, rows);
                    multiply(to, gradient, Matrix::new(matrix, rows, stride, stride).transposed(), Add);
                }
                if wanted[0] {
                    multiply(MatrixMut::new(matrix, rows, stride, stride), kernels.transposed(), gradient, Overwrite);
                    columns.col2im(&mut by_input[piece * at_once * each_input..][..images * each_input]);
                }
            }
            sums
        });
        let sums: Vec<Sums> = sums.collect();
        let [by_weight, by_gamma, by_beta] =
            parameters(sums, [&weight, &gamma, &beta], [wanted[1], wanted[2], wanted[3]]);
        [wanted[0].then(|| tensor(by_input, shape(&input))), by_weight, by_gamma, by_beta]
    }
}

/// Chunks of values, or as many empty ones if there are no values.
fn chunks_or_empty(values: &mut [f32], each: usize, count: usize) -> Vec<&mut [f32]> {
    match values.is_empty() {
        true => (0..count).map(|_| Default::default()).collect(),
        false => values.chunks_mut(each).collect(),
    }
}

/// The sums of parts, in their order, of those parameters that are wanted.
fn parameters<const N: usize>(
    parts: Vec<[Vec<f32>; N]>,
    like: [&FlexTensor; N],
    wanted: [bool; N],
) -> [Option<FlexTensor>; N] {
    let mut by_parameter: [Vec<Vec<f32>>; N] = std::array::from_fn(|_| Vec::with_capacity(parts.len()));
    for part in parts {
        by_parameter.iter_mut().zip(part).for_each(|(all, part)| all.push(part));
    }
    let mut found = by_parameter.into_iter().zip(like).zip(wanted).map(|((parts, like), wanted)| {
        wanted.then(|| tensor(sum_in_order(parts, shape(like).num_elements()), shape(like)))
    });
    std::array::from_fn(|_| found.next().flatten())
}

/// Copies one image out of `[channels, images, pixels]`.
fn copy_image(from: &[f32], image: usize, to: &mut [f32], pixels: usize) {
    let stride = from.len() / (to.len() / pixels);
    for (to, from) in to.chunks_exact_mut(pixels).zip(from.chunks_exact(stride)) {
        to.copy_from_slice(&from[image * pixels..][..pixels]);
    }
}

/// The inverse of [`copy_image`].
fn restore_image(to: &mut [f32], image: usize, from: &[f32], pixels: usize) {
    let stride = to.len() / (from.len() / pixels);
    for (to, from) in to.chunks_exact_mut(stride).zip(from.chunks_exact(pixels)) {
        to[image * pixels..][..pixels].copy_from_slice(from);
    }
}

/// A convolution of 1 x 1 with a bias.
#[derive(Clone, Copy, Debug)]
struct Pointwise;

impl Operation<3> for Pointwise {
    /// Input, weight and bias.
    type Saved = [FlexTensor; 3];

    fn forward(&self, inputs: [FlexTensor; 3], save: bool) -> (FlexTensor, Option<Self::Saved>) {
        let inputs = inputs.map(contiguous);
        let [input, weight, bias] = &inputs;
        let mut shape = shape(input);
        let sizes = Sizes::new(&shape, crate::flex::shape(weight)[0], |size| size);
        let ([each_input, each], pixels) = (sizes.each(), sizes.pixels);
        let (kernels, bias) = (Matrix::new(values(weight), sizes.outputs, sizes.inputs, sizes.inputs), values(bias));
        let mut output = vec![0.0; sizes.images * each];
        let images = output.par_chunks_mut(each).zip(values(input).par_chunks(each_input));
        images.for_each(|(output, input)| {
            output.chunks_exact_mut(pixels).zip(bias).for_each(|(plane, bias)| plane.fill(*bias));
            let input = Matrix::new(input, sizes.inputs, pixels, pixels);
            multiply(MatrixMut::new(output, sizes.outputs, pixels, pixels), kernels, input, Add);
        });
        shape[1] = sizes.outputs;
        (tensor(output, shape), save.then_some(inputs))
    }

    fn backward(&self, saved: Self::Saved, gradient: FlexTensor, wanted: [bool; 3]) -> [Option<FlexTensor>; 3] {
        let [input, weight, bias] = &saved;
        let sizes = Sizes::new(&shape(input), shape(weight)[0], |size| size);
        let ([each_input, each], pixels, chunk) = (sizes.each(), sizes.pixels, sizes.chunk());
        let kernels = Matrix::new(values(weight), sizes.outputs, sizes.inputs, sizes.inputs);
        let mut by_input = vec![0.0; if wanted[0] { sizes.images * each_input } else { 0 }];
        let mut by_inputs = chunks_or_empty(&mut by_input, chunk * each_input, sizes.images.div_ceil(chunk));
        let parts = values(&gradient).par_chunks(chunk * each).zip(values(input).par_chunks(chunk * each_input));
        let sums = parts.zip(&mut by_inputs).map(|((gradient, input), by_input)| {
            let mut sums = [sizes.outputs * sizes.inputs, sizes.outputs].map(|length| vec![0.0; length]);
            let [by_weight, by_bias] = &mut sums;
            for (image, (gradient, input)) in
                gradient.chunks_exact(each).zip(input.chunks_exact(each_input)).enumerate()
            {
                by_bias.iter_mut().zip(gradient.chunks_exact(pixels)).for_each(|(sum, plane)| *sum += plane_sum(plane));
                let gradient = Matrix::new(gradient, sizes.outputs, pixels, pixels);
                if wanted[1] {
                    let to = MatrixMut::new(by_weight, sizes.outputs, sizes.inputs, sizes.inputs);
                    multiply(to, gradient, Matrix::new(input, sizes.inputs, pixels, pixels).transposed(), Add);
                }
                if wanted[0] {
                    let to = MatrixMut::new(&mut by_input[image * each_input..], sizes.inputs, pixels, pixels);
                    multiply(to, kernels.transposed(), gradient, Overwrite);
                }
            }
            sums
        });
        let sums: Vec<[Vec<f32>; 2]> = sums.collect();
        let [by_weight, by_bias] = parameters(sums, [weight, bias], [wanted[1], wanted[2]]);
        [wanted[0].then(|| tensor(by_input, shape(input))), by_weight, by_bias]
    }
}

fn plane_sum(plane: &[f32]) -> f32 {
    vectorize(
        #[inline(always)]
        || lane_sum!(plane; |value| value),
    )
}
