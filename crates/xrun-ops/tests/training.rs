//! Training of two small networks for 50 steps: fused kernels and Burn's operations give the same losses and parameters.

#![expect(clippy::unwrap_used, reason = "tests stop at what is wrong")]

mod inputs;

use burn::tensor::{Device, Int, Tensor, TensorData, module};
use inputs::{close, pseudo_random, values};
use xrun_ops::{
    AttentionMask, CpuKernels, Gelu, GroupNorm, LossTargets, SaveActivations, attention_packed, conv1x1,
    conv3x3_group_norm_relu, gelu, layer_norm, next_token_loss,
};

const STEPS: usize = 50;

/// Flat parameters, by number.
struct Parameters(Vec<Tensor<1>>);

impl Parameters {
    fn new(sizes: &[(usize, f32)]) -> Self {
        let device = Device::flex().autodiff();
        let parameter = |(number, (size, factor)): (usize, &(usize, f32))| {
            let values = Tensor::<1>::from_floats(pseudo_random(*size, number as f32).as_slice(), &device);
            // A factor of 0 marks a scale, which is initialised to 1.
            let values = if *factor == 0.0 { values.ones_like() } else { values.mul_scalar(*factor) };
            values.require_grad()
        };
        Self(sizes.iter().enumerate().map(parameter).collect())
    }

    fn get<const D: usize>(&self, number: usize, shape: [usize; D]) -> Tensor<D> {
        self.0[number].clone().reshape(shape)
    }

    /// One step of gradient descent.
    fn descend(self, loss: Tensor<1>, rate: f32) -> Self {
        let gradients = loss.backward();
        let step = |parameter: Tensor<1>| {
            let gradient = parameter.grad(&gradients).unwrap();
            Tensor::from_inner(parameter.inner() - gradient.mul_scalar(rate)).require_grad()
        };
        Self(self.0.into_iter().map(step).collect())
    }
}

/// Returns the losses of all steps and the final parameters.
fn train(
    kernels: CpuKernels,
    sizes: &[(usize, f32)],
    rate: f32,
    loss: impl Fn(&Parameters, usize) -> Tensor<1>,
) -> (Vec<f32>, Vec<f32>) {
    let mut parameters = Parameters::new(sizes);
    let mut losses = Vec::new();
    for step in 0..STEPS {
        let loss = kernels.scope(|| loss(&parameters, step));
        losses.extend(values(loss.clone()));
        parameters = parameters.descend(loss, rate);
    }
    (losses, parameters.0.into_iter().flat_map(values).collect())
}

fn check(sizes: &[(usize, f32)], rate: f32, loss: impl Fn(&Parameters, usize) -> Tensor<1>) {
    let [fused, plain] = [CpuKernels::Fused, CpuKernels::Plain].map(|kernels| train(kernels, sizes, rate, &loss));
    close("losses", &fused.0, &plain.0, 1e-3);
    close("parameters", &fused.1, &plain.1, 1e-3);
    assert!(fused.0[STEPS - 1] < 0.9 * fused.0[0], "the loss did not fall: {} to {}", fused.0[0], fused.0[STEPS - 1]);
}

/// One GPT-2 block: 3 sequences of 20 tokens, width 16, 2 heads, vocabulary of 11.
#[test]
fn a_language_model() {
    const BATCH: usize = 3;
    const LENGTH: usize = 20;
    const WIDTH: usize = 16;
    const VOCABULARY: usize = 11;
    let sizes = [
        (VOCABULARY * WIDTH, 0.3),
        (WIDTH, 0.0),
        (WIDTH, 0.1),
        (WIDTH * 3 * WIDTH, 0.3),
        (WIDTH * WIDTH, 0.3),
        (WIDTH, 0.0),
        (WIDTH, 0.1),
        (WIDTH * 4 * WIDTH, 0.3),
        (4 * WIDTH * WIDTH, 0.2),
    ];
    check(&sizes, 0.05, |parameters, step| {
        let tokens: Vec<i32> = (0..BATCH * LENGTH).map(|at| ((at * at + step % 3) % VOCABULARY) as i32).collect();
        let labels = tokens.iter().skip(1).chain(&tokens[..1]).copied().collect();
        let embedding = parameters.get(0, [VOCABULARY, WIDTH]);
        let tokens = Tensor::<2, Int>::from_data(TensorData::new(tokens, [BATCH, LENGTH]), &embedding.device());
        let input = module::embedding(embedding.clone(), tokens);
        let normal = layer_norm(input.clone(), parameters.get(1, [WIDTH]), parameters.get(2, [WIDTH]), 1e-5);
        let query_key_value = module::linear(normal, parameters.get(3, [WIDTH, 3 * WIDTH]), None);
        let attended = attention_packed(query_key_value, 2, AttentionMask::Causal);
        let middle = input + module::linear(attended, parameters.get(4, [WIDTH, WIDTH]), None);
        let normal = layer_norm(middle.clone(), parameters.get(5, [WIDTH]), parameters.get(6, [WIDTH]), 1e-5);
        let wide = gelu(module::linear(normal, parameters.get(7, [WIDTH, 4 * WIDTH]), None), Gelu::Tanh);
        let output = middle + module::linear(wide, parameters.get(8, [4 * WIDTH, WIDTH]), None);
        let logits = output.reshape([BATCH * LENGTH, WIDTH]).matmul(embedding.transpose());
        let weights = vec![1.0 / (BATCH * LENGTH) as f32; BATCH * LENGTH];
        next_token_loss(logits, LossTargets { labels, weights, teacher: None }).total
    });
}

/// Three blocks and a 1 x 1 convolution: 4 images of 12 x 12 pixels to feature maps of 3 x 3.
#[test]
fn a_convolutional_network() {
    let sizes = [
        (8 * 3 * 9, 0.3),
        (8, 0.0),
        (8, 0.1),
        (8 * 8 * 9, 0.2),
        (8, 0.0),
        (8, 0.1),
        (8 * 8 * 9, 0.2),
        (8, 0.0),
        (8, 0.1),
        (5 * 8, 0.3),
        (5, 0.1),
    ];
    check(&sizes, 0.02, |parameters, step| {
        let block = |input: Tensor<4>, number: usize, inputs: usize, stride: usize| {
            let weight = parameters.get(number, [8, inputs, 3, 3]);
            let [gamma, beta] = [number + 1, number + 2].map(|number| parameters.get(number, [8]));
            let save = if number == 0 { SaveActivations::All } else { SaveActivations::Inputs };
            conv3x3_group_norm_relu(input, weight, GroupNorm { gamma, beta, groups: 2, epsilon: 1e-5 }, stride, save)
        };
        let device = parameters.0[0].device();
        let random_tensor =
            |count: usize, seed: usize| Tensor::<1>::from_floats(pseudo_random(count, seed as f32).as_slice(), &device);
        let images = random_tensor(4 * 3 * 12 * 12, step % 2).reshape([4, 3, 12, 12]);
        let first = block(images, 0, 3, 2);
        let second = first.clone() + block(first, 3, 8, 1);
        let output = conv1x1(block(second, 6, 8, 2), parameters.get(9, [5, 8, 1, 1]), parameters.get(10, [5]));
        let target = random_tensor(4 * 5 * 9, 2 + step % 2).reshape([4, 5, 3, 3]);
        let error = output - target;
        (error.clone() * error).mean()
    });
}
