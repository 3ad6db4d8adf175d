//! Convolution of 3 x 3, group normalisation and rectifier, in one operation.

use burn::module::{Module, Param};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::{GroupNorm, GroupNormConfig, PaddingConfig2d};
use burn::tensor::{Device, GradientCheckpointingStrategy};
use xrun_ops::{SaveActivations, conv3x3_group_norm_relu};

use super::Tensor;

/// Convolution, group normalisation, rectifier.
#[derive(Module, Debug)]
pub struct Block {
    convolution: Conv2d,
    norm: GroupNorm,
}

impl Block {
    /// From so many channels to so many, which are a multiple of `groups`; every value is drawn by Burn.
    pub fn new(channels: [usize; 2], stride: usize, groups: usize, device: &Device) -> Self {
        let convolution = Conv2dConfig::new(channels, [3, 3])
            .with_stride([stride, stride])
            .with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1))
            .with_bias(false)
            .init(device);
        Self { convolution, norm: GroupNormConfig::new(groups, channels[1]).init(device) }
    }

    /// `[n, from, height, width]` to `[n, to, height / stride, width / stride]`, rounded up.
    pub fn forward(&self, input: Tensor<4>) -> Tensor<4> {
        let weight = self.convolution.weight.val();
        let save = match weight.gradient_checkpointing_strategy() {
            Some(GradientCheckpointingStrategy::Balanced) => SaveActivations::Inputs,
            _ => SaveActivations::All,
        };
        let affine = |parameter: &Option<Param<Tensor<1>>>| {
            parameter.as_ref().map_or_else(|| unreachable!("`Block::new` makes scales and shifts"), Param::val)
        };
        let norm = xrun_ops::GroupNorm {
            gamma: affine(&self.norm.gamma),
            beta: affine(&self.norm.beta),
            groups: self.norm.num_groups,
            epsilon: self.norm.epsilon,
        };
        conv3x3_group_norm_relu(input, weight, norm, self.convolution.stride[0], save)
    }
}
