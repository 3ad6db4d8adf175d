//! 3 x 3 convolution, group normalisation and ReLU in one operation.

use burn::module::{Module, Param};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::{GroupNorm, GroupNormConfig, PaddingConfig2d};
use burn::tensor::{Device, GradientCheckpointingStrategy};
use xrun_ops::{SaveActivations, conv3x3_group_norm_relu};

use super::Tensor;

/// 3 x 3 convolution without a bias, group normalisation, ReLU.
#[derive(Module, Debug)]
pub struct ConvBlock {
    convolution: Conv2d,
    norm: GroupNorm,
}

impl ConvBlock {
    /// Block from `channels[0]` to `channels[1]` channels; the latter is a multiple of `groups`. Burn draws the initial weights.
    pub fn new(channels: [usize; 2], stride: usize, groups: usize, device: &Device) -> Self {
        let convolution = Conv2dConfig::new(channels, [3, 3])
            .with_stride([stride, stride])
            .with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1))
            .with_bias(false)
            .init(device);
        Self { convolution, norm: GroupNormConfig::new(groups, channels[1]).init(device) }
    }

    /// Computes `[n, channels[0], height, width]` to `[n, channels[1], height / stride, width / stride]`, rounded up.
    pub fn forward(&self, input: Tensor<4>) -> Tensor<4> {
        let weight = self.convolution.weight.val();
        let save = match weight.gradient_checkpointing_strategy() {
            Some(GradientCheckpointingStrategy::Balanced) => SaveActivations::Inputs,
            _ => SaveActivations::All,
        };
        let affine = |parameter: &Option<Param<Tensor<1>>>| {
            parameter.as_ref().map_or_else(|| unreachable!("`ConvBlock::new` makes scales and shifts"), Param::val)
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
