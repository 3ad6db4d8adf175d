//! A linear layer whose weight and input are quantised, with a LoRA for each precision.
//!
//! ```text
//! y = Q(x) (Q(W) + alpha / r · Q(A) Q(B)) + b      W as GPT-2 has it: [inputs, outputs]
//! ```
//! Hu et al. 2021 (LoRA); a LoRA of its own for each width, quantised as the weight is. `Q(x) Q(A)` comes first:
//! the product of A and B is as large as the weight. Quantised weights live as long as the pass that needs them.

use burn::module::{Module, Param};
use burn::tensor::Device;
use xrun_ops::Range;

use super::pass::Pass;
use crate::nn::graph::without_graph;
use crate::nn::transformer::{Lora, parameter};
use crate::nn::{Tensor, learned_scale};

/// See the file's head. The names of the fields are those in the files of weights.
#[derive(Module, Debug)]
pub struct QuantisedLinear {
    /// `[inputs, outputs]`; frozen or trained, as the settings say.
    pub weight: Param<Tensor<2>>,
    /// `[outputs]`
    pub bias: Param<Tensor<1>>,
    /// One a precision, or none.
    pub lora: Vec<Lora>,
    /// Logarithms of the weight's learnt scales over their first values, `[1]` or `[outputs]`; one a precision, or none.
    pub scale_logarithms: Vec<Param<Tensor<1>>>,
}

/// What a layer is made from.
#[derive(Clone, Copy, Debug)]
pub struct LinearShape {
    /// Numbers of a token that go in.
    pub inputs: usize,
    /// Numbers of a token that come out.
    pub outputs: usize,
    /// 0 for none.
    pub rank: usize,
    /// Precisions.
    pub precisions: usize,
    /// Values that a learnt scale has; 0 for none.
    pub scales: usize,
}

impl QuantisedLinear {
    /// Of zeros, to be drawn.
    pub fn new(shape: LinearShape, device: &Device) -> Self {
        let LinearShape { inputs, outputs, rank, precisions, scales } = shape;
        let loras = if rank == 0 { 0 } else { precisions };
        let lora = || Lora::new(inputs, rank, outputs, device);
        let learnt = if scales == 0 { 0 } else { precisions };
        Self {
            weight: parameter([inputs, outputs], 0.0, device),
            bias: parameter([outputs], 0.0, device),
            lora: (0..loras).map(|_| lora()).collect(),
            scale_logarithms: (0..learnt).map(|_| parameter([scales], 0.0, device)).collect(),
        }
    }

    /// `[tokens, inputs]` to `[tokens, outputs]`; `quantiser` is the number of the input's range in the block.
    pub fn forward(&self, input: Tensor<2>, block: usize, quantiser: usize, pass: &mut Pass<'_>) -> Tensor<2> {
        let input = pass.activation(input, block, quantiser);
        let bias = pass.base(self.bias.val()).unsqueeze_dim::<2>(0);
        let factors = pass.rules.factors;
        let input = factors.narrow(input);
        let output = factors.widen(input.clone().matmul(factors.narrow(self.quantised_weight(pass)))) + bias;
        match self.quantised_lora(pass) {
            Some((a, b)) => {
                let middle = input.matmul(factors.narrow(a)).mul_scalar(pass.rules.lora_scale);
                output + factors.widen(middle.matmul(factors.narrow(b)))
            }
            None => output,
        }
    }

    fn quantised_weight(&self, pass: &Pass<'_>) -> Tensor<2> {
        let weight = pass.base(self.weight.val());
        let (Some((precision, _)), Some(bits)) = (pass.at, pass.weight_bits()) else { return weight };
        match self.scale_logarithms.get(precision) {
            Some(logarithm) => learned_scale::quantise(weight, logarithm.val(), bits),
            None => pass.weight(weight, bits),
        }
    }

    fn quantised_lora(&self, pass: &Pass<'_>) -> Option<(Tensor<2>, Tensor<2>)> {
        let (precision, _) = pass.at?;
        let lora = self.lora.get(precision)?;
        Some((pass.lora(lora.a.val()), pass.lora(lora.b.val())))
    }

    /// The weight that a pass multiplies by, LoRA included; without a graph.
    pub fn merged_weight(&self, pass: &Pass<'_>) -> Tensor<2> {
        let weight = self.grid_weight(pass);
        match self.adapter(pass) {
            Some((a, b)) => weight + a.matmul(b).mul_scalar(pass.rules.lora_scale),
            None => weight,
        }
    }

    /// The weight of the base as a pass has it, without LoRA and without a graph.
    pub fn grid_weight(&self, pass: &Pass<'_>) -> Tensor<2> {
        without_graph(&self.quantised_weight(pass))
    }

    /// The matrices of LoRA as a pass has them, `[inputs, rank]` and `[rank, outputs]`, without a graph.
    pub fn adapter(&self, pass: &Pass<'_>) -> Option<(Tensor<2>, Tensor<2>)> {
        self.quantised_lora(pass).map(|(a, b)| (without_graph(&a), without_graph(&b)))
    }

    /// Scale and zero point of the weight's grid in a pass, `[1]` or `[outputs]`; `None` where it has no grid.
    pub fn weight_scale(&self, pass: &Pass<'_>) -> Option<(Tensor<1>, Tensor<1>)> {
        let (precision, _) = pass.at?;
        let bits = pass.weight_bits()?;
        let weight = without_graph(&self.weight.val());
        match self.scale_logarithms.get(precision) {
            Some(logarithm) => {
                let logarithm = without_graph(&logarithm.val());
                let first = learned_scale::first_scale(&weight, logarithm.dims()[0] > 1, bits);
                let scale = first * logarithm.exp();
                let zero = scale.zeros_like();
                Some((scale, zero))
            }
            None => {
                let Range { low, high } = Range::of(&weight, pass.rules.weights_per_channel);
                Some(pass.rules.weight_grid(bits).scale_and_zero(low, high))
            }
        }
    }
}
