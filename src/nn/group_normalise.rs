//! Group normalisation (Wu and He 2018) in rows: what `burn::nn::GroupNorm` computes, in operations that the CPU backend is
//! quick at.
//!
//! Burn's own multiplies `[n, c, h, w]` by a scale `[1, c, 1, 1]`. The CPU backend has quick ways where one operand is a row of
//! the other or has one number for each row, and walks through all other shapes element by element: a third of a step of the
//! detector. Here every product is of `[rows, numbers]` and `[rows, 1]`.

use burn::nn::GroupNorm;

use super::Tensor;

/// `input` `[n, c, h, w]` with mean 0 and variance 1 over each group of channels, scaled and shifted by channel if `norm` does
/// that.
pub fn group_normalise(norm: &GroupNorm, input: Tensor<4>) -> Tensor<4> {
    let [count, channels, height, width] = input.dims();
    let (groups, pixels) = (norm.num_groups, height * width);
    let each = (channels / groups * pixels) as f32;
    let rows = input.reshape([count * groups, channels / groups * pixels]);
    let mean = rows.clone().sum_dim(1).div_scalar(each);
    let centred = rows - mean;
    let variance = (centred.clone() * centred.clone()).sum_dim(1).div_scalar(each);
    let factor = variance.add_scalar(norm.epsilon as f32).sqrt().recip();
    // Of each channel of each picture: the group's factor times the channel's scale.
    let mut factor = factor.expand([count * groups, channels / groups]).reshape([count, channels]);
    if let Some(scale) = &norm.gamma {
        factor = factor * scale.val().reshape([1, channels]);
    }
    let mut output = centred.reshape([count * channels, pixels]) * factor.reshape([count * channels, 1]);
    if let Some(shift) = &norm.beta {
        let shift = shift.val().reshape([1, channels]).expand([count, channels]);
        output = output + shift.reshape([count * channels, 1]);
    }
    output.reshape([count, channels, height, width])
}

#[cfg(test)]
mod tests {
    use burn::module::{Param, ParamId};
    use burn::nn::GroupNormConfig;
    use burn::tensor::TensorData;

    use super::super::tests::{autodiff, close, values};
    use super::*;

    fn numbers(count: usize, seed: f32) -> Vec<f32> {
        (0..count).map(|at| ((at as f32 * 0.731 + seed).sin() * 3.0) + 0.5).collect()
    }

    fn tensor<const D: usize>(shape: [usize; D], seed: f32) -> Tensor<D> {
        let data = TensorData::new(numbers(shape.iter().product(), seed), shape);
        Tensor::from_data(data, &autodiff()).require_grad()
    }

    /// Values and gradients by input, scale and shift.
    fn found(
        forward: impl Fn(&GroupNorm, Tensor<4>) -> Tensor<4>,
        [count, channels, groups]: [usize; 3],
    ) -> [Vec<f32>; 4] {
        let mut norm: GroupNorm = GroupNormConfig::new(groups, channels).init(&autodiff());
        let (scale, shift) = (tensor([channels], 1.0), tensor([channels], 2.0));
        norm.gamma = Some(Param::initialized(ParamId::new(), scale.clone()));
        norm.beta = Some(Param::initialized(ParamId::new(), shift.clone()));
        let input = tensor([count, channels, 3, 5], 3.0);
        let output = forward(&norm, input.clone());
        let gradients = (output.clone() * tensor([count, channels, 3, 5], 4.0)).sum().backward();
        let by = |gradient: Option<Vec<f32>>| gradient.unwrap();
        [
            values(output),
            by(input.grad(&gradients).map(values)),
            by(scale.grad(&gradients).map(values)),
            by(shift.grad(&gradients).map(values)),
        ]
    }

    #[test]
    fn values_and_gradients_are_those_of_burn() {
        for sizes in [[2, 6, 3], [1, 4, 1], [3, 4, 4]] {
            let ours = found(group_normalise, sizes);
            let theirs = found(|norm, input| norm.forward(input), sizes);
            for (ours, theirs) in ours.iter().zip(&theirs) {
                close(ours, theirs, 2e-4);
            }
        }
    }

    /// By hand: of 1, 2, 3 and 4 the mean is 2.5 and the variance 1.25.
    #[test]
    fn a_group_has_mean_0_and_variance_1() {
        let norm: GroupNorm = GroupNormConfig::new(1, 2).with_epsilon(0.0).init(&autodiff());
        let input = Tensor::from_floats([[[[1.0, 2.0]], [[3.0, 4.0]]]], &autodiff());
        let at = |value: f32| (value - 2.5) / 1.25f32.sqrt();
        close(&values(group_normalise(&norm, input)), &[at(1.0), at(2.0), at(3.0), at(4.0)], 1e-6);
    }
}
