//! Trained model: two adapters from the encoder's tokens to the conditioning of an image generator.
//!
//! ```text
//! each token: linear, norm, GELU, …, linear -> [batch, tokens, D]
//! attention of learned queries over them -> [batch, latents, D]
//! ```
//! Attention pooling as in Lee et al. 2019 (Set Transformer), with one cross-attention.

use burn::module::{Module, Param, ParamId};
use burn::nn::{Linear, LinearConfig};
use burn::tensor::Device;
use xrun_ops::{Gelu, gelu};

use super::settings::{AdapterShape, AudioAdapters};
use xrun_training::nn::Tensor;
use xrun_training::nn::encoder_block::{Attention, Norm, linear};
use xrun_training::nn::parameters::{Deviation, initialise};

/// Added to the variance in layer normalisation.
const EPSILON: f64 = 1e-5;

/// Hidden layer: a linear layer with layer normalisation.
#[derive(Module, Debug)]
pub struct Hidden {
    linear: Linear,
    norm: Norm,
}

/// Attention of a fixed number of learned latents to all tokens.
#[derive(Module, Debug)]
pub struct Pooling {
    latents: Param<Tensor<2>>,
    attention: Attention,
}

/// One of the two adapters: hidden layers, a linear layer and pooling over tokens.
#[derive(Module, Debug)]
pub struct Adapter {
    hidden: Vec<Hidden>,
    output: Linear,
    pooling: Pooling,
}

/// Adapters for the pooled embedding and for the token embeddings; both pool by attention with learned queries (latents). The names
/// of the fields are the names in `model.safetensors`.
#[derive(Module, Debug)]
pub struct Adapters {
    pooled: Adapter,
    tokens: Adapter,
}

/// Outputs of both adapters.
#[derive(Clone, Debug)]
pub struct Conditioning {
    /// Pooled output, `[batch, latents * D]`.
    pub pooled: Tensor<2>,
    /// Tokens, `[batch, latents * D]`.
    pub token_embeds: Tensor<2>,
}

impl Conditioning {
    /// Number of elements of both outputs.
    pub fn elements(&self) -> usize {
        self.pooled.shape().num_elements() + self.token_embeds.shape().num_elements()
    }
}

impl Adapter {
    fn new(inputs: usize, shape: &AdapterShape, heads: usize, device: &Device) -> Self {
        let mut width = inputs;
        let mut hidden = Vec::with_capacity(shape.hidden.len());
        for wide in &shape.hidden {
            let linear = LinearConfig::new(width, *wide).init(device);
            hidden.push(Hidden { linear, norm: Norm::new(*wide, EPSILON, device) });
            width = *wide;
        }
        let latents = Tensor::zeros([shape.latents, shape.output_size], device).set_require_grad(device.is_autodiff());
        let pooling = Pooling {
            latents: Param::initialized(ParamId::new(), latents),
            attention: Attention::new(shape.output_size, heads, device),
        };
        Self { hidden, output: LinearConfig::new(width, shape.output_size).init(device), pooling }
    }

    /// Maps the encoder's tokens `[batch, tokens, width]` to `[batch, latents * D]`.
    fn forward(&self, encoder_tokens: Tensor<3>) -> Tensor<2> {
        let hidden = self
            .hidden
            .iter()
            .fold(encoder_tokens, |input, hidden| gelu(hidden.norm.forward(linear(&hidden.linear, input)), Gelu::Erf));
        let latents = self.pooling.latents.val().unsqueeze();
        self.pooling.attention.forward(latents, linear(&self.output, hidden)).flatten(1, 2)
    }
}

impl Adapters {
    /// Adapters with initial weights drawn from `seed`.
    pub fn new(model: &AudioAdapters, seed: u32, device: &Device) -> Self {
        let adapter = |shape: &AdapterShape| Adapter::new(model.encoder_width(), shape, model.pool_heads, device);
        initialise(Self { pooled: adapter(&model.pooled), tokens: adapter(&model.tokens) }, seed, Deviation::Inputs)
    }

    /// Conditioning of the encoder's tokens `[batch, tokens, width]`.
    pub fn forward(&self, encoder_tokens: Tensor<3>) -> Conditioning {
        Conditioning {
            pooled: self.pooled.forward(encoder_tokens.clone()),
            token_embeds: self.tokens.forward(encoder_tokens),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::settings::Part;
    use super::super::sizes::{parameters, parameters_of, part_of};
    use super::*;
    use burn::tensor::TensorData;

    use super::super::loss::loss;
    use super::super::settings::Loss;
    use xrun_training::nn::flat;
    use xrun_training::nn::testing::autodiff;
    use xrun_training::nn::testing::{assert_kernels_agree, changed, numbers};

    #[test]
    fn sizes_equal_the_parameters_of_each_part() {
        let models = [
            AudioAdapters::default(),
            AudioAdapters {
                pooled: AdapterShape { hidden: vec![], latents: 1, output_size: 8 },
                hidden_size: 12,
                ..AudioAdapters::default()
            },
        ];
        for model in models {
            let network = Adapters::new(&model, 1, &autodiff());
            assert_eq!(network.num_params() as u64, parameters(&model));
            for part in Part::ALL {
                let ranges = flat::parameter_ranges(&network).into_iter().filter(|(path, _)| part_of(path) == part);
                let count: usize = ranges.map(|(_, range)| range.len()).sum();
                assert_eq!(count as u64, parameters_of(part, &model), "{part:?}");
            }
        }
        assert_eq!(parameters(&AudioAdapters::default()), 109_280);
    }

    #[test]
    fn fused_operations_give_the_outputs_and_gradients_of_burns() {
        let shape =
            |hidden: &[usize], latents, width| AdapterShape { hidden: hidden.to_vec(), latents, output_size: width };
        let odd = AudioAdapters {
            pooled: shape(&[7, 5], 1, 9),
            tokens: shape(&[], 3, 6),
            pool_heads: 3,
            ..AudioAdapters::default()
        };
        // More tokens and latents than one tile of the attention kernel.
        let long = AudioAdapters {
            frames: 320,
            tokens: shape(&[16], 70, 8),
            pool_heads: 1,
            hidden_size: 20,
            ..AudioAdapters::default()
        };
        for (model, clips) in [(AudioAdapters::default(), 8), (odd, 1), (long, 3)] {
            let network = changed(Adapters::new(&model, 1, &autodiff()));
            let (count, width) = (model.encoder_tokens(), model.encoder_width());
            let tensor = |from: usize, shape: [usize; 3]| {
                let values = (from..from + shape.iter().product::<usize>()).map(numbers).collect::<Vec<_>>();
                Tensor::<3>::from_data(TensorData::new(values, shape), &autodiff())
            };
            assert_kernels_agree(&network, 1e-5, |network| {
                let outputs = network.forward(tensor(3, [clips, count, width]));
                let part = |from, output: &Tensor<2>| {
                    let [clips, numbers] = output.dims();
                    loss(
                        output.clone(),
                        tensor(from, [1, clips, numbers]).reshape([clips, numbers]),
                        Loss::MseAndCosine,
                    )
                };
                let loss = part(5, &outputs.pooled) + part(11, &outputs.token_embeds);
                (vec![outputs.pooled, outputs.token_embeds], loss)
            });
        }
    }
}
