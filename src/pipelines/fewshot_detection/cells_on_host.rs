//! The network up to what its head says of each cell, in host memory: what [`super::model`] says in Burn's operations, in few
//! that are each written as one ([`crate::nn::tape`]).

use burn::tensor::TensorData;

use super::model::{Block, ReferenceDetector};
use crate::nn::Tensor;
use crate::nn::cut::{Cut, cut};
use crate::nn::fake_quantise::has_graph;
use crate::nn::planes::{Planes, Sizes};
use crate::nn::tape::{Keeps, Tape, Value};

/// What the head says of so many levels of pictures `[n, 3, S, S]`, 32-bit floats on the CPU, as tensors `[n, cells, width]` of
/// these `widths`, with the number of cells of each level; and what lies behind these tensors, if they are leaves of a graph.
pub fn cells(
    network: &ReferenceDetector,
    pictures: Tensor<4>,
    levels: usize,
    widths: &[usize],
) -> (Vec<Tensor<3>>, Vec<usize>, Option<Cut>) {
    let device = pictures.device();
    let keeps = match has_graph(&pictures) {
        false => Keeps::Nothing,
        true if network.recomputes => Keeps::Ends,
        true => Keeps::Everything,
    };
    let (mut tape, pictures) = Tape::new(planes(pictures), keeps);
    let [fine, coarse] = pyramid(network, &mut tape, pictures);
    let mut maps = vec![fine, coarse];
    for coarser in network.coarser.iter().take(levels.saturating_sub(2)) {
        let next = maps.last().map(|map| block(&mut tape, coarser, map));
        maps.extend(next);
    }
    let heads: Vec<Value> = maps.into_iter().map(|map| head(network, &mut tape, map)).collect();
    let counts = heads.iter().map(|head| head.planes.sizes.pixels()).collect();
    let (tensors, behind) = cut(tape, heads, widths, &device);
    (tensors, counts, behind)
}

fn planes(pictures: Tensor<4>) -> Planes {
    let [count, channels, height, width] = pictures.dims();
    let data: TensorData = pictures.into_data();
    let values = data.as_slice().unwrap_or_else(|error| unreachable!("they are 32-bit floats: {error:?}"));
    Planes::of_pictures(values, Sizes { channels, pictures: count, height, width })
}

fn block(tape: &mut Tape, block: &Block, input: &Value) -> Value {
    tape.block(&block.convolution, &block.norm, input)
}

/// Levels of strides 8 and 16.
fn pyramid(network: &ReferenceDetector, tape: &mut Tape, pictures: Value) -> [Value; 2] {
    let mut value = pictures;
    let mut before = value.clone();
    for stage in &network.stages {
        before = value.clone();
        value = block(tape, &stage.halve, &value);
        for residual in &stage.residual {
            let more = block(tape, residual, &value);
            value = tape.sum(&value, &more);
        }
    }
    let coarse = tape.point(&network.lateral_coarse, &value);
    let fine = tape.point(&network.lateral_fine, &before);
    let doubled = tape.doubled(&coarse);
    [tape.sum(&fine, &doubled), coarse]
}

fn head(network: &ReferenceDetector, tape: &mut Tape, level: Value) -> Value {
    let value = network.tower.iter().fold(level, |value, convolution| block(tape, convolution, &value));
    tape.point(&network.outputs, &value)
}

#[cfg(test)]
mod tests {
    use burn::module::{ModuleVisitor, Param};
    use burn::optim::GradientsParams;

    use super::super::assignment::strides;
    use super::super::model::Dense;
    use super::super::settings::Model;
    use super::*;
    use crate::nn::cut::back_through;
    use crate::nn::tests::{autodiff, close, plain, values};

    fn numbers<const D: usize>(shape: [usize; D], seed: f32, device: &burn::tensor::Device) -> Tensor<D> {
        let numbers = (0..shape.iter().product::<usize>()).map(|at| (at as f32 * 0.731 + seed).sin()).collect();
        Tensor::from_data(TensorData::new::<f32, _>(numbers, shape), device)
    }

    fn model(image_size: usize) -> ReferenceDetector {
        let settings = Model {
            channels: vec![4, 6, 8, 10],
            blocks_per_stage: 1,
            pyramid_channels: 6,
            head_depth: 2,
            norm_groups: 2,
            embedding: 3,
        };
        ReferenceDetector::new(&settings, image_size, 5, &autodiff())
    }

    struct Gradients(GradientsParams, Vec<Vec<f32>>);

    impl ModuleVisitor for Gradients {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.1.extend(self.0.get::<D>(param.id).map(values));
        }
    }

    fn gradients(network: &ReferenceDetector, found: GradientsParams) -> Vec<Vec<f32>> {
        let mut gradients = Gradients(found, Vec::new());
        burn::module::Module::visit(network, &mut gradients);
        gradients.1
    }

    fn near(found: &[f32], expected: &[f32]) {
        let most = expected.iter().fold(1e-3f32, |most, value| most.max(value.abs()));
        close(found, expected, 1e-4 * most);
    }

    /// What a loss depends on: all outputs, each with a weight of its own.
    fn weighed(dense: Dense) -> Tensor<1> {
        let device = autodiff();
        let object = numbers(dense.object.dims(), 1.0, &device);
        let sides = numbers(dense.sides.dims(), 2.0, &device).mul_scalar(0.01);
        let embeddings = numbers(dense.embeddings.dims(), 3.0, &device);
        (dense.object * object).sum() + (dense.sides * sides).sum() + (dense.embeddings * embeddings).sum()
    }

    /// Of two levels, of three with a coarser one, and of four whose maps are of odd sizes, down to one cell. Pictures are small:
    /// of a large one, some value is so near to zero that rounding decides whether it has a gradient.
    #[test]
    fn all_outputs_and_gradients_are_those_of_burns_operations() {
        for (levels, size, pictures) in [(2, 32, 3), (3, 64, 1), (4, 48, 3)] {
            let strides: Vec<usize> = strides(528).into_iter().take(levels).collect();
            let network = model(if levels == 2 { 32 } else { 528 });
            let input = numbers([pictures, 3, size, size], 0.5, &autodiff());
            let theirs = ReferenceDetector::dense_of(network.raw_by_burn(input.clone(), levels), &strides);
            let mut ours = ReferenceDetector::dense_of(network.raw(input, levels), &strides);
            near(&values(ours.object.clone()), &values(theirs.object.clone()));
            near(&values(ours.sides.clone()), &values(theirs.sides.clone()));
            near(&values(ours.embeddings.clone()), &values(theirs.embeddings.clone()));
            assert!(theirs.cut.is_none(), "Burn's graph is whole");
            let cut = ours.cut.take();
            let found = gradients(&network, back_through(weighed(ours), cut, &network, |_| ()));
            let expected = GradientsParams::from_grads(weighed(theirs).backward(), &network);
            let expected = gradients(&network, expected);
            assert!(found.len() == expected.len() && found.len() > 25, "{} {}", found.len(), expected.len());
            for (found, expected) in found.iter().zip(&expected) {
                near(found, expected);
            }
        }
    }

    #[test]
    fn activation_checkpointing_changes_no_bit() {
        let input = || numbers([3, 3, 32, 32], 0.5, &autodiff());
        let of = |network: ReferenceDetector| {
            let mut dense = network.dense(input());
            let cut = dense.cut.take();
            gradients(&network, back_through(weighed(dense), cut, &network, |_| ()))
        };
        assert_eq!(of(model(32).recomputing(true)), of(model(32)));
    }

    #[test]
    fn embeddings_of_references_and_their_gradients_are_those_of_burns_operations() {
        let network = model(64);
        let input = numbers([3, 3, 16, 16], 0.5, &autodiff());
        let weights = numbers([3, 3], 1.0, &autodiff());
        let (theirs, _) = ReferenceDetector::embedding_of(network.raw_by_burn(input.clone(), 2));
        let (ours, cut) = network.embed(input.clone());
        near(&values(ours.clone()), &values(theirs.clone()));
        let found = back_through((ours.clone() * weights.clone()).sum(), cut, &network, |_| ());
        let expected = GradientsParams::from_grads((theirs * weights).sum().backward(), &network);
        for (found, expected) in gradients(&network, found).iter().zip(&gradients(&network, expected)) {
            near(found, expected);
        }
        // Without a graph nothing lies behind, and the values are the same.
        let network = burn::module::Module::valid(&network);
        let (plainly, cut) = network.embed(numbers([3, 3, 16, 16], 0.5, &plain()));
        assert!(cut.is_none());
        assert_eq!(values(plainly), values(ours));
    }
}
