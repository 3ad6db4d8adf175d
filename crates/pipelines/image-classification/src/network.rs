//! Residual network or pretrained backbone, global average pooling, a linear layer.

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::Device;

use super::settings::ResNet;
use xrun_core::task::TaskError;
use xrun_training::backbone::Pretrained;
use xrun_training::nn::Tensor;
use xrun_training::nn::backbone::{Backbone, pooled};
use xrun_training::nn::conv_block::ConvBlock;
use xrun_training::nn::parameters::{Deviation, initialise};

/// Convolution, with stride 2 except in the first stage, and residual blocks.
#[derive(Module, Debug)]
pub struct Stage {
    first: ConvBlock,
    residual: Vec<Residual>,
}

/// Two convolutions with a residual connection.
#[derive(Module, Debug)]
pub struct Residual {
    first: ConvBlock,
    second: ConvBlock,
}

/// Classifier. The names of the fields are those of the tensors in `model.safetensors`.
#[derive(Module, Debug)]
pub struct ClassifierNetwork {
    /// Pretrained network, in place of the stages.
    pub backbone: Option<Backbone>,
    stages: Vec<Stage>,
    output: Linear,
}

impl ClassifierNetwork {
    /// Residual network for a number of classes. Initial values depend on the seed alone.
    pub fn new(settings: &ResNet, classes: usize, seed: u32, device: &Device) -> Self {
        let block = |from, to, stride| ConvBlock::new([from, to], stride, settings.norm_groups, device);
        let mut from = 3;
        let stages = settings.channels.iter().enumerate().map(|(number, &to)| {
            let first = block(from, to, if number == 0 { 1 } else { 2 });
            from = to;
            let residual = |_| Residual { first: block(to, to, 1), second: block(to, to, 1) };
            Stage { first, residual: (0..settings.blocks).map(residual).collect() }
        });
        let stages = stages.collect();
        let network = Self { backbone: None, stages, output: LinearConfig::new(from, classes).init(device) };
        initialise(network, seed, Deviation::Inputs)
    }

    /// Linear layer on a backbone. Its initial values depend on the seed alone.
    ///
    /// # Errors
    /// The file of weights cannot be read.
    pub fn linear(pretrained: &Pretrained, classes: usize, seed: u32, device: &Device) -> Result<Self, TaskError> {
        let output = LinearConfig::new(pretrained.architecture.pooled_outputs(), classes).init(device);
        let network = initialise(Self { backbone: None, stages: Vec::new(), output }, seed, Deviation::Inputs);
        Ok(Self { backbone: Some(Backbone::read(pretrained, device)?), ..network })
    }

    /// Logits `[n, classes]` for normalised images `[n, 3, S, S]`.
    pub fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        if let Some(backbone) = &self.backbone {
            return self.output.forward(backbone.pooled(images));
        }
        let value = self.stages.iter().fold(images, |value, stage| {
            stage.residual.iter().fold(stage.first.forward(value), |value, block| {
                value.clone() + block.second.forward(block.first.forward(value))
            })
        });
        self.output.forward(pooled(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use xrun_training::nn::testing::{plain, values};

    #[test]
    fn images_of_any_size_give_a_logit_for_each_class() {
        let settings = ResNet { channels: vec![8, 16], blocks: 1, norm_groups: 8 };
        let network = ClassifierNetwork::new(&settings, 3, 1, &plain());
        // By hand: convolutions, scales and shifts, the linear layer.
        let convolution = |from: usize, to: usize| 9 * from * to + 2 * to;
        let expected =
            convolution(3, 8) + 2 * convolution(8, 8) + convolution(8, 16) + 2 * convolution(16, 16) + 16 * 3 + 3;
        assert_eq!(network.num_params(), expected);
        for side in [8, 11] {
            let scores = network.forward(Tensor::ones([2, 3, side, side], &plain()));
            assert_eq!(scores.dims(), [2, 3]);
            assert!(values(scores).iter().all(|value| value.is_finite()));
        }
        let again = ClassifierNetwork::new(&settings, 3, 1, &plain());
        let scores = |network: &ClassifierNetwork| values(network.forward(Tensor::ones([1, 3, 8, 8], &plain())));
        assert_eq!(scores(&network), scores(&again), "initial values depend on the seed alone");
    }
}
