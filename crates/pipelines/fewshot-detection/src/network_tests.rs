//! Shapes and limits of the network, and its fused kernels against Burn's own operations.

use burn::tensor::TensorData;

use super::super::assignment::cells;
use super::super::sizes::parameters;
use super::*;
use xrun_training::nn::testing::{assert_kernels_agree, autodiff, close, plain, values};

fn tiny() -> ReferenceDetector {
    ReferenceDetector {
        channels: vec![4, 4, 4, 4],
        pyramid_channels: 4,
        norm_groups: 2,
        embedding_size: 2,
        blocks_per_stage: 1,
        ..ReferenceDetector::default()
    }
}

/// Sides up to 1.5 times the image, on the coarsest level of each supported size.
#[test]
fn every_side_at_every_supported_image_size_has_a_gradient() {
    for size in (32..=2048).step_by(16) {
        let coarsest = *strides(size).last().unwrap();
        let wanted = [0.25 * size as f32, size as f32, 1.5 * size as f32];
        let logarithms = wanted.map(|side| (side / coarsest as f32).ln());
        let raw = Tensor::<3>::from_floats([[logarithms]], &autodiff()).require_grad();
        let found = sides(raw.clone(), coarsest);
        close(&values(found.clone()), &wanted, 1e-3 * size as f32);
        let gradients = found.sum().backward();
        close(&values(raw.grad(&gradients).unwrap()), &wanted, 1e-3 * size as f32);
    }
}

#[test]
fn extreme_sides_are_finite_and_have_a_gradient() {
    let raw = Tensor::<3>::from_floats([[[9.0, 60.0, -9.0]]], &autodiff()).require_grad();
    let found = sides(raw.clone(), 16);
    let end = 16.0 * 4.0f32.exp();
    close(&values(found.clone()), &[end * 6.0, end * 57.0, 16.0 * (-9.0f32).exp()], 0.1);
    let gradients = found.sum().backward();
    close(&values(raw.grad(&gradients).unwrap()), &[end, end, 16.0 * (-9.0f32).exp()], 1e-2);
}

#[test]
fn the_scale_of_the_cosine_is_positive_and_initially_eight() {
    let model = DetectorNetwork::new(&tiny(), 96, 1, &autodiff());
    close(&values(softplus(model.similarity_scale.val())), &[8.0], 1e-6);
    let scales = values(softplus(Tensor::from_floats([-30.0, -1.0, 0.0, 100.0], &plain())));
    assert!(scales.iter().all(|scale| *scale > 0.0 && scale.is_finite()), "{scales:?}");
}

#[test]
fn the_head_has_outputs_for_every_cell_of_every_level() {
    for size in [32, 256, 272, 528] {
        let model = DetectorNetwork::with_features(&tiny(), None, Some(3), size, 1, &autodiff());
        assert_eq!(model.coarser.len() + 2, strides(size).len());
        assert_eq!(model.num_params() as u64, parameters(&tiny(), None, 3, size));
        let dense = model.dense(Tensor::zeros([1, 3, size, size], &autodiff()));
        assert_eq!(dense.sides.dims(), [1, cells(size).len(), 4], "{size}");
        assert_eq!(dense.object.dims()[1], cells(size).len());
        assert_eq!(dense.embeddings.dims()[1], cells(size).len());
    }
}

fn numbers<const D: usize>(shape: [usize; D], seed: f32, device: &Device) -> Tensor<D> {
    let numbers = (0..shape.iter().product::<usize>()).map(|at| (at as f32 * 0.731 + seed).sin()).collect();
    Tensor::from_data(TensorData::new::<f32, _>(numbers, shape), device)
}

fn model(image_size: usize, device: &Device) -> DetectorNetwork {
    let settings = ReferenceDetector {
        channels: vec![4, 6, 8, 10],
        blocks_per_stage: 1,
        pyramid_channels: 6,
        head_depth: 2,
        norm_groups: 2,
        embedding_size: 3,
    };
    DetectorNetwork::new(&settings, image_size, 5, device)
}

/// Loss that depends on all outputs, each with a different weight.
fn weighed(dense: Dense) -> Tensor<1> {
    let device = dense.object.device();
    let object = numbers(dense.object.dims(), 1.0, &device);
    let sides = numbers(dense.sides.dims(), 2.0, &device).mul_scalar(0.01);
    let embeddings = numbers(dense.embeddings.dims(), 3.0, &device);
    (dense.object * object).sum() + (dense.sides * sides).sum() + (dense.embeddings * embeddings).sum()
}

/// Two levels, three with a coarser one, and four with feature maps of odd sizes, down to one cell. Images are small: in a large one
/// some value is so near to zero that rounding decides whether ReLU passes its gradient.
#[test]
fn outputs_and_gradients_of_fused_kernels_equal_those_of_burns_operations() {
    for (levels, size, images) in [(2, 32, 3), (3, 64, 1), (4, 48, 3)] {
        let strides: Vec<usize> = strides(528).into_iter().take(levels).collect();
        let network = model(if levels == 2 { 32 } else { 528 }, &autodiff());
        assert_kernels_agree(&network, 1e-4, |network| {
            let input = numbers([images, 3, size, size], 0.5, &autodiff());
            let dense = DetectorNetwork::dense_from(network.head_output(input, levels), &strides);
            let outputs =
                vec![dense.object.clone(), dense.sides.clone().flatten(1, 2), dense.embeddings.clone().flatten(1, 2)];
            (outputs, weighed(dense))
        });
    }
}

#[test]
fn embeddings_of_references_and_their_gradients_equal_those_of_burns_operations() {
    let network = model(64, &autodiff());
    assert_kernels_agree(&network, 1e-4, |network| {
        let embeddings = network.embed(numbers([3, 3, 16, 16], 0.5, &autodiff()));
        let loss = (embeddings.clone() * numbers([3, 3], 1.0, &autodiff())).sum();
        (vec![embeddings], loss)
    });
}
