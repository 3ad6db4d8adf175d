//! Are values and gradients those of Burn's own operations?

use burn::module::{Module, ModuleVisitor};
use burn::nn::conv::Conv2dConfig;
use burn::nn::{GroupNormConfig, PaddingConfig2d};
use burn::tensor::activation::relu;

use super::super::cut::{back_through, cut};
use super::super::parameters::initialise;
use super::super::tests::{autodiff, close, values};
use super::*;

/// Every operation once: a point, a block that keeps the size, a sum, a block of either stride, doubling.
#[derive(Module, Debug)]
struct Network {
    point: Conv2d,
    same: Conv2d,
    same_norm: GroupNorm,
    last: Conv2d,
    last_norm: GroupNorm,
}

#[derive(Clone, Copy, Debug)]
struct Case {
    pictures: usize,
    channels: usize,
    groups: usize,
    stride: usize,
    height: usize,
    width: usize,
}

const OUTPUTS: usize = 12;

impl Network {
    fn new(case: Case) -> Self {
        let device = autodiff();
        let convolution = |from: usize, to: usize, stride: usize| {
            Conv2dConfig::new([from, to], [3, 3])
                .with_stride([stride, stride])
                .with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1))
                .with_bias(false)
                .init(&device)
        };
        let network = Self {
            point: Conv2dConfig::new([3, case.channels], [1, 1]).init(&device),
            same: convolution(case.channels, case.channels, 1),
            same_norm: GroupNormConfig::new(case.groups, case.channels).init(&device),
            last: convolution(case.channels, OUTPUTS, case.stride),
            last_norm: GroupNormConfig::new(case.groups, OUTPUTS).init(&device),
        };
        let mut network = initialise(network, 7);
        // Not the ones and zeros that they begin with.
        let vector = |param: Param<Tensor<1>>, seed: f32| param.map(|old| tensor(old.dims(), seed).require_grad());
        network.point.bias = network.point.bias.map(|bias| vector(bias, 0.3));
        for (norm, seed) in [(&mut network.same_norm, 1.0), (&mut network.last_norm, 2.0)] {
            norm.gamma = norm.gamma.take().map(|scale| vector(scale, seed));
            norm.beta = norm.beta.take().map(|shift| vector(shift, seed + 0.5));
        }
        network
    }

    fn by_burn(&self, pictures: Tensor<4>) -> Tensor<4> {
        let value = self.point.forward(pictures);
        let same = relu(self.same_norm.forward(self.same.forward(value.clone())));
        let last = relu(self.last_norm.forward(self.last.forward(value + same)));
        let [count, channels, height, width] = last.dims();
        let wide =
            last.reshape([count * channels, height, 1, width, 1]).expand([count * channels, height, 2, width, 2]);
        wide.reshape([count, channels, height * 2, width * 2])
    }

    fn on_tape(&self, tape: &mut Tape, pictures: &Value) -> Value {
        let value = tape.point(&self.point, pictures);
        let same = tape.block(&self.same, &self.same_norm, &value);
        let sum = tape.sum(&value, &same);
        let last = tape.block(&self.last, &self.last_norm, &sum);
        tape.doubled(&last)
    }
}

fn tensor<const D: usize>(shape: [usize; D], seed: f32) -> Tensor<D> {
    let numbers = (0..shape.iter().product::<usize>()).map(|at| (at as f32 * 0.731 + seed).sin() + 0.3).collect();
    Tensor::from_data(TensorData::new::<f32, _>(numbers, shape), &autodiff())
}

fn on_host(pictures: &Tensor<4>) -> Planes {
    let [count, channels, height, width] = pictures.dims();
    Planes::of_pictures(&values(pictures.clone()), Sizes { channels, pictures: count, height, width })
}

/// The gradients of all parameters.
fn all(network: &Network, gradients: GradientsParams) -> Vec<Vec<f32>> {
    struct All(GradientsParams, Vec<Vec<f32>>);
    impl ModuleVisitor for All {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.1.push(values(self.0.get::<D>(param.id).expect("every parameter has a gradient")));
        }
    }
    let mut all = All(gradients, Vec::new());
    network.visit(&mut all);
    all.1
}

/// As close as sums of another order come to each other.
fn near(found: &[f32], expected: &[f32]) {
    let most = expected.iter().fold(1.0f32, |most, value| most.max(value.abs()));
    close(found, expected, 3e-5 * most);
}

const CASES: [Case; 5] = [
    Case { pictures: 3, channels: 8, groups: 4, stride: 2, height: 6, width: 10 },
    Case { pictures: 1, channels: 4, groups: 1, stride: 1, height: 5, width: 5 },
    Case { pictures: 3, channels: 6, groups: 2, stride: 2, height: 7, width: 9 },
    Case { pictures: 1, channels: 12, groups: 12, stride: 2, height: 3, width: 4 },
    // More columns than are made at once, and a picture beyond the last full block.
    Case { pictures: 5, channels: 8, groups: 2, stride: 1, height: 20, width: 20 },
];

#[test]
fn values_and_gradients_are_those_of_burn() {
    for case in CASES {
        let network = Network::new(case);
        let pictures = tensor([case.pictures, 3, case.height, case.width], 0.1);
        let expected = network.by_burn(pictures.clone());
        let [count, channels, height, width] = expected.dims();
        let weights = tensor([count, height * width, channels], 4.0);
        let rows = expected.flatten::<3>(2, 3).swap_dims(1, 2);
        let expected_rows = values(rows.clone());
        let loss = (rows * weights.clone()).sum();
        let expected = all(&network, GradientsParams::from_grads(loss.backward(), &network));

        let (mut tape, input) = Tape::new(on_host(&pictures), Keeps::Everything);
        let output = network.on_tape(&mut tape, &input);
        // Two leaves, of the channels before and after the fifth.
        let (leaves, behind) = cut(tape, vec![output], &[5, OUTPUTS - 5], &autodiff());
        let rows = Tensor::cat(leaves, 2);
        near(&values(rows.clone()), &expected_rows);
        let found = all(&network, back_through((rows * weights).sum(), behind, &network, |_| ()));
        assert_eq!(found.len(), 8);
        for (found, expected) in found.iter().zip(&expected) {
            near(found, expected);
        }
    }
}

#[test]
fn without_a_way_back_values_are_the_same_and_nothing_is_kept() {
    let network = Network::new(CASES[0]);
    let pictures = tensor([3, 3, 6, 10], 0.1);
    let [recorded, not_recorded] = [true, false].map(|records| {
        let (mut tape, input) = Tape::new(on_host(&pictures), if records { Keeps::Everything } else { Keeps::Nothing });
        let output = network.on_tape(&mut tape, &input);
        assert_eq!(tape.entries.len(), if records { 5 } else { 0 });
        let (leaves, behind) = cut(tape, vec![output], &[OUTPUTS], &autodiff());
        assert_eq!(behind.is_some(), records);
        leaves.into_iter().map(values).collect::<Vec<_>>()
    });
    assert_eq!(recorded, not_recorded);
}

/// A parameter that is used twice has the sum of both gradients, and a leaf that no loss uses has none.
#[test]
fn gradients_of_what_is_used_twice_are_added() {
    let network = Network::new(Case { channels: 3, ..CASES[1] });
    let pictures = tensor([1, 3, 5, 5], 0.1);
    let (mut tape, input) = Tape::new(on_host(&pictures), Keeps::Everything);
    let once = tape.point(&network.point, &input);
    let twice = tape.point(&network.point, &once);
    let (leaves, behind) = cut(tape, vec![twice], &[2, 1], &autodiff());
    let gradients = back_through(leaves[0].clone().sum(), behind, &network, |_| ());
    let direct = network.point.forward(network.point.forward(pictures)).narrow(1, 0, 2).sum();
    let expected = GradientsParams::from_grads(direct.backward(), &network);
    let of = |gradients: &GradientsParams| values(gradients.get::<4>(network.point.weight.id).unwrap());
    near(&of(&gradients), &of(&expected));
}

/// By hand: a kernel of ones over a picture of ones counts the neighbours, and normalised by one group of a mean and a deviation
/// that are known, what is below the mean is zero.
#[test]
fn a_block_is_as_by_hand() {
    let device = autodiff();
    let ones = |shape: [usize; 4]| Tensor::<4>::ones(shape, &device).require_grad();
    let mut convolution: Conv2d = Conv2dConfig::new([1, 1], [3, 3])
        .with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1))
        .with_bias(false)
        .init(&device);
    convolution.weight = convolution.weight.map(|_| ones([1, 1, 3, 3]));
    let norm: GroupNorm = GroupNormConfig::new(1, 1).with_epsilon(0.0).init(&device);
    let (mut tape, input) = Tape::new(on_host(&ones([1, 1, 3, 3])), Keeps::Nothing);
    let output = tape.block(&convolution, &norm, &input);
    // Neighbours: 4 6 4, 6 9 6, 4 6 4. Their mean is 49 / 9, that of their squares 289 / 9.
    let mean = 49.0f32 / 9.0;
    let deviation = (289.0 / 9.0 - mean * mean).sqrt();
    let [edge, middle] = [6.0, 9.0].map(|count| (count - mean) / deviation);
    close(&output.planes.values, &[0.0, edge, 0.0, edge, middle, edge, 0.0, edge, 0.0], 1e-5);
}
