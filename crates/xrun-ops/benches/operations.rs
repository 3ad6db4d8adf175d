//! Time of forward and backward pass of each operation: fused, and in Burn's operations.

use burn::tensor::{Device, Tensor};
use divan::{Bencher, black_box, counter::ItemsCount};
use xrun_ops::{
    AttentionMask, CpuKernels, Gelu, GroupNorm, LossTargets, Quantizer, SaveActivations, attention_packed, conv1x1,
    conv3x3_group_norm_relu, gelu, layer_norm, next_token_loss,
};

fn main() {
    divan::main();
}

const KERNELS: [CpuKernels; 2] = [CpuKernels::Fused, CpuKernels::Plain];

fn tensor<const D: usize>(shape: [usize; D], device: &Device) -> Tensor<D> {
    let count: usize = shape.iter().product();
    let values: Vec<f32> = (0..count).map(|at| ((at as f32 * 0.731).sin() * 43_758.547).fract() + 0.1).collect();
    Tensor::<1>::from_floats(values.as_slice(), device).reshape(shape)
}

/// Measures the forward pass of `function` and the backward pass from a gradient of ones.
fn step<const D: usize, const E: usize>(
    bencher: Bencher<'_, '_>,
    kernels: CpuKernels,
    shape: [usize; D],
    function: impl Fn(Tensor<D>, &Device) -> Tensor<E>,
) {
    let device = Device::flex().autodiff();
    let input = tensor(shape, &device);
    bencher.counter(ItemsCount::new(shape.iter().product::<usize>())).bench_local(|| {
        let leaf = input.clone().require_grad();
        let output = kernels.scope(|| function(leaf.clone(), &device));
        black_box(leaf.grad(&output.sum().backward()))
    });
}

/// Images, channels of the input and of the output, side, stride.
const BLOCKS: [[usize; 5]; 9] = [
    [32, 3, 16, 96, 2],
    [32, 16, 32, 48, 2],
    [32, 32, 64, 24, 2],
    [32, 64, 96, 12, 2],
    [32, 64, 64, 12, 1],
    [8, 3, 32, 320, 2],
    [8, 32, 64, 160, 2],
    [8, 128, 256, 40, 2],
    [8, 64, 64, 40, 1],
];

#[divan::bench(args = BLOCKS, consts = [true, false])]
fn conv3x3_block<const FUSED: bool>(bencher: Bencher<'_, '_>, [images, inputs, outputs, side, stride]: [usize; 5]) {
    let device = Device::flex().autodiff();
    let weight = tensor([outputs, inputs, 3, 3], &device).require_grad();
    let [gamma, beta] = [0, 1].map(|_| tensor([outputs], &device).require_grad());
    step(bencher, KERNELS[usize::from(!FUSED)], [images, inputs, side, side], |input, _| {
        let norm = GroupNorm { gamma: gamma.clone(), beta: beta.clone(), groups: 8, epsilon: 1e-5 };
        conv3x3_group_norm_relu(input, weight.clone(), norm, stride, SaveActivations::All)
    });
}

#[divan::bench(args = [[32, 64, 64, 12], [32, 64, 53, 6], [8, 256, 64, 20]], consts = [true, false])]
fn pointwise<const FUSED: bool>(bencher: Bencher<'_, '_>, [images, inputs, outputs, side]: [usize; 4]) {
    let device = Device::flex().autodiff();
    let weight = tensor([outputs, inputs, 1, 1], &device).require_grad();
    let bias = tensor([outputs], &device).require_grad();
    step(bencher, KERNELS[usize::from(!FUSED)], [images, inputs, side, side], |input, _| {
        conv1x1(input, weight.clone(), bias.clone())
    });
}

#[divan::bench(args = [[1024, 64], [1024, 128], [2048, 384]], consts = [true, false])]
fn norm<const FUSED: bool>(bencher: Bencher<'_, '_>, [rows, width]: [usize; 2]) {
    let device = Device::flex().autodiff();
    let [gamma, beta] = [0, 1].map(|_| tensor([width], &device).require_grad());
    step(bencher, KERNELS[usize::from(!FUSED)], [rows, width], |input, _| {
        layer_norm(input, gamma.clone(), beta.clone(), 1e-5)
    });
}

#[divan::bench(args = [[1024, 256], [2048, 1536]], consts = [true, false])]
fn gelu_tanh<const FUSED: bool>(bencher: Bencher<'_, '_>, shape: [usize; 2]) {
    step(bencher, KERNELS[usize::from(!FUSED)], shape, |input, _| gelu(input, Gelu::Tanh));
}

/// Batch, length, heads, dimension of a head.
const ATTENTIONS: [[usize; 4]; 3] = [[16, 64, 4, 16], [8, 128, 4, 32], [8, 256, 6, 64]];

#[divan::bench(args = ATTENTIONS, consts = [true, false])]
fn causal_attention<const FUSED: bool>(bencher: Bencher<'_, '_>, [batch, length, heads, head_dim]: [usize; 4]) {
    step(bencher, KERNELS[usize::from(!FUSED)], [batch, length, 3 * heads * head_dim], |input, _| {
        attention_packed(input, heads, AttentionMask::Causal)
    });
}

/// Rows, vocabulary, distillation.
#[divan::bench(args = [(1024, 512, false), (1024, 512, true), (2048, 4096, false), (2048, 4096, true)], consts = [true, false])]
fn loss<const FUSED: bool>(bencher: Bencher<'_, '_>, (rows, vocabulary, with_teacher): (usize, usize, bool)) {
    let teacher = with_teacher.then(|| xrun_ops::Teacher {
        logits: tensor([rows, vocabulary], &Device::flex()),
        divergence_fraction: 0.5,
        temperature: 1.0,
    });
    step(bencher, KERNELS[usize::from(!FUSED)], [rows, vocabulary], |logits, _| {
        let labels = (0..rows).map(|row| (row * 7 % vocabulary) as i32).collect();
        let weights = vec![1.0 / rows as f32; rows];
        next_token_loss(logits, LossTargets { labels, weights, teacher: teacher.clone() }).total
    });
}

#[divan::bench(args = [[1024, 64], [2048, 384], [2048, 1536]], consts = [true, false])]
fn quantized_rows<const FUSED: bool>(bencher: Bencher<'_, '_>, shape: [usize; 2]) {
    step(bencher, KERNELS[usize::from(!FUSED)], shape, |input, _| {
        Quantizer { bits: 8, symmetric: true }.fake_quantize_rows(input)
    });
}
