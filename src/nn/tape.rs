//! What a network computes in host memory, and how gradients go back through it: what Burn's graph does, for few operations that
//! are each written as one.
//!
//! Burn 0.22 computes a block of a convolution, a normalisation and a rectifier in some twenty operations, forward and backward,
//! each with a result of its own. Here such a block is one operation. Its way back is written by hand, and what it needs is kept on
//! a tape. A tape is used by one thread, and every sum has a fixed order.

use std::sync::Arc;

use burn::module::{Param, ParamId};
use burn::nn::GroupNorm;
use burn::nn::conv::Conv2d;
use burn::optim::GradientsParams;
use burn::tensor::TensorData;

use super::Tensor;
use super::columns::Stride;
use super::convolution::{Kernels, Point};
use super::fake_quantise::without_graph;
use super::one_pass::own;
use super::planes::{Planes, Sizes};
use super::rectified_norm::{Moments, Norm};

/// A result on the tape.
#[derive(Clone, Debug)]
pub struct Value {
    /// Its place among all results.
    number: usize,
    /// The result itself.
    pub planes: Arc<Planes>,
}

/// Which result a gradient is of, without the result itself.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    number: usize,
    /// Of the result, and so of its gradient.
    pub sizes: Sizes,
}

impl Value {
    /// Its place on the tape.
    pub fn place(&self) -> Place {
        Place { number: self.number, sizes: self.planes.sizes }
    }
}

/// How much a tape keeps for the way back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeps {
    /// Nothing goes back.
    Nothing,
    /// What goes into each block and what comes out. Its convolution is computed again on the way back, to the same bits.
    Ends,
    /// What was convolved, too.
    Everything,
}

/// What was computed, in its order.
#[derive(Debug)]
pub struct Tape {
    keeps: Keeps,
    results: usize,
    entries: Vec<Entry>,
}

/// A parameter as it was: it shares its values with the network until the optimiser replaces them there.
#[derive(Clone, Debug)]
struct Weight<const D: usize> {
    id: ParamId,
    value: Tensor<D>,
}

/// An operation: what it was given, what came out, and what the way back needs.
#[derive(Debug)]
struct Entry {
    output: usize,
    operation: Operation,
}

#[derive(Debug)]
enum Operation {
    Block(Box<BlockKept>),
    Point(Box<PointKept>),
    Sum(usize, usize),
    Doubled(usize),
}

/// What the way back through a block needs.
#[derive(Debug)]
struct BlockKept {
    input: Value,
    kernels: Weight<4>,
    stride: Stride,
    norm: NormWeights,
    /// `None` where it is computed again.
    convolved: Option<Planes>,
    moments: Vec<Moments>,
    output: Arc<Planes>,
}

/// What the way back through a convolution of 1 x 1 needs.
#[derive(Debug)]
struct PointKept {
    input: Value,
    kernels: Weight<4>,
    bias: Weight<1>,
}

#[derive(Clone, Debug)]
struct NormWeights {
    scale: Weight<1>,
    shift: Weight<1>,
    groups: usize,
    epsilon: f32,
}

/// The result that needs no gradient.
const INPUT: usize = 0;

impl Tape {
    /// For pictures that nothing goes back to.
    pub fn new(pictures: Planes, keeps: Keeps) -> (Self, Value) {
        let tape = Self { keeps, results: INPUT + 1, entries: Vec::new() };
        (tape, Value { number: INPUT, planes: Arc::new(pictures) })
    }

    /// Whether anything will go back.
    pub fn records(&self) -> bool {
        self.keeps != Keeps::Nothing
    }

    /// A convolution of 3 x 3 with a border of zeros and without a bias, a group normalisation that scales and shifts, and a
    /// rectifier.
    pub fn block(&mut self, convolution: &Conv2d, norm: &GroupNorm, input: &Value) -> Value {
        let stride = if convolution.stride == [1, 1] { Stride::One } else { Stride::Two };
        let kernels = Weight::of(&convolution.weight);
        let data = kernels.data();
        let convolved = kernels.kernels(floats(&data), stride).forward(&input.planes);
        let norm = NormWeights::of(norm);
        let weights = norm.data();
        let (output, moments) = norm.norm(&weights).forward(&convolved);
        let output = Arc::new(output);
        let convolved = (self.keeps == Keeps::Everything).then_some(convolved);
        let kept = || {
            let (input, output) = (input.clone(), output.clone());
            Operation::Block(Box::new(BlockKept { input, kernels, stride, norm, convolved, moments, output }))
        };
        self.result(output.clone(), kept)
    }

    /// A convolution of 1 x 1 with a bias.
    pub fn point(&mut self, convolution: &Conv2d, input: &Value) -> Value {
        let (kernels, bias) = (Weight::of(&convolution.weight), Weight::of(trained(&convolution.bias)));
        let (data, bias_data) = (kernels.data(), bias.data());
        let output = kernels.point(floats(&data)).forward(&input.planes, floats(&bias_data));
        self.result(Arc::new(output), || Operation::Point(Box::new(PointKept { input: input.clone(), kernels, bias })))
    }

    /// The sum of two results of the same sizes.
    pub fn sum(&mut self, left: &Value, right: &Value) -> Value {
        let mut sum = Planes::clone(&left.planes);
        sum.add(&right.planes);
        self.result(Arc::new(sum), || Operation::Sum(left.number, right.number))
    }

    /// Twice as high and wide.
    pub fn doubled(&mut self, input: &Value) -> Value {
        self.result(Arc::new(input.planes.doubled()), || Operation::Doubled(input.number))
    }

    fn result(&mut self, planes: Arc<Planes>, operation: impl FnOnce() -> Operation) -> Value {
        let output = self.results;
        self.results += 1;
        if self.records() {
            self.entries.push(Entry { output, operation: operation() });
        }
        Value { number: output, planes }
    }

    /// Goes back from results whose gradients are given. What is kept goes as it is used.
    pub fn back(mut self, from: Vec<(Place, Planes)>) -> Gradients {
        let mut waiting: Vec<Option<Planes>> = (0..self.results).map(|_| None).collect();
        let mut found = Gradients::default();
        for (place, gradient) in from {
            add(&mut waiting, place.number, gradient);
        }
        while let Some(Entry { output, operation }) = self.entries.pop() {
            if let Some(gradient) = waiting[output].take() {
                operation.back(gradient, &mut waiting, &mut found);
            }
        }
        found
    }
}

impl Operation {
    fn back(self, gradient: Planes, waiting: &mut [Option<Planes>], found: &mut Gradients) {
        match self {
            Self::Block(kept) => {
                let BlockKept { input, kernels, stride, norm, convolved, moments, output } = *kept;
                let data = kernels.data();
                let convolution = kernels.kernels(floats(&data), stride);
                let convolved = convolved.unwrap_or_else(|| convolution.forward(&input.planes));
                let weights = norm.data();
                let [by_scale, by_shift] = found.of_two(&norm.scale, &norm.shift);
                let by = [by_scale, by_shift];
                let gradient = norm.norm(&weights).back(convolved, &output, &moments, &gradient, by);
                let wanted = input.number != INPUT;
                let by_kernels = found.of(&kernels);
                if let Some(by_input) = convolution.back(&input.planes, &gradient, by_kernels, wanted) {
                    add(waiting, input.number, by_input);
                }
            }
            Self::Point(kept) => {
                let PointKept { input, kernels, bias } = *kept;
                let data = kernels.data();
                let [by_kernels, by_bias] = found.of_two(&kernels, &bias);
                let by_input = kernels.point(floats(&data)).back(&input.planes, &gradient, by_kernels, by_bias);
                add(waiting, input.number, by_input);
            }
            Self::Sum(left, right) => {
                add(waiting, left, gradient.clone());
                add(waiting, right, gradient);
            }
            Self::Doubled(input) => add(waiting, input, gradient.sums_of_four()),
        }
    }
}

/// Adds a gradient to what a result has.
fn add(waiting: &mut [Option<Planes>], number: usize, gradient: Planes) {
    match &mut waiting[number] {
        Some(sum) => sum.add(&gradient),
        none => *none = Some(gradient),
    }
}

impl<const D: usize> Weight<D> {
    fn of(param: &Param<Tensor<D>>) -> Self {
        Self { id: param.id, value: without_graph(&param.val()) }
    }

    /// The values, copied for as long as they are used.
    fn data(&self) -> TensorData {
        own(self.value.clone())
    }
}

impl Weight<4> {
    fn kernels<'a>(&self, values: &'a [f32], stride: Stride) -> Kernels<'a> {
        Kernels { values, outputs: self.value.dims()[0], stride }
    }

    fn point<'a>(&self, values: &'a [f32]) -> Point<'a> {
        Point { values, outputs: self.value.dims()[0] }
    }
}

impl NormWeights {
    fn of(norm: &GroupNorm) -> Self {
        let (scale, shift) = (Weight::of(trained(&norm.gamma)), Weight::of(trained(&norm.beta)));
        Self { scale, shift, groups: norm.num_groups, epsilon: norm.epsilon as f32 }
    }

    fn data(&self) -> [TensorData; 2] {
        [self.scale.data(), self.shift.data()]
    }

    fn norm<'a>(&self, [scale, shift]: &'a [TensorData; 2]) -> Norm<'a> {
        Norm { scale: floats(scale), shift: floats(shift), groups: self.groups, epsilon: self.epsilon }
    }
}

fn floats(data: &TensorData) -> &[f32] {
    data.as_slice().unwrap_or_else(|error| unreachable!("weights are 32-bit floats here: {error:?}"))
}

/// A parameter that layers of another kind lack.
fn trained<T>(parameter: &Option<T>) -> &T {
    parameter.as_ref().unwrap_or_else(|| unreachable!("such a layer has this parameter"))
}

/// Sums of gradients by parameters, in the order in which they were met.
#[derive(Debug, Default)]
pub struct Gradients(Vec<(ParamId, Vec<usize>, Vec<f32>)>);

impl Gradients {
    /// The place of a parameter's gradient, which is zero at first.
    fn place<const D: usize>(&mut self, weight: &Weight<D>) -> usize {
        if let Some(place) = self.0.iter().position(|(id, ..)| *id == weight.id) {
            return place;
        }
        let shape = weight.value.dims();
        self.0.push((weight.id, shape.to_vec(), vec![0.0; shape.iter().product()]));
        self.0.len() - 1
    }

    fn of<const D: usize>(&mut self, weight: &Weight<D>) -> &mut [f32] {
        let place = self.place(weight);
        &mut self.0[place].2
    }

    /// Those of two parameters.
    fn of_two<const D: usize, const E: usize>(&mut self, one: &Weight<D>, two: &Weight<E>) -> [&mut [f32]; 2] {
        let places = [self.place(one), self.place(two)];
        let gradients = self.0.get_disjoint_mut(places);
        gradients.unwrap_or_else(|_| unreachable!("these are two parameters")).map(|(.., values)| &mut values[..])
    }

    /// Adds them to those of other parameters.
    pub fn register(self, into: &mut GradientsParams) {
        for (id, shape, values) in self.0 {
            let data = TensorData::new(values, shape.clone());
            let device = burn::tensor::Device::flex();
            match shape.len() {
                1 => into.register(id, Tensor::<1>::from_data(data, &device)),
                _ => into.register(id, Tensor::<4>::from_data(data, &device)),
            }
        }
    }
}

#[cfg(test)]
#[path = "tape_tests.rs"]
mod tests;
