//! Linear layers whose weight and input are quantised, with a LoRA for each precision.
//!
//! ```text
//! y = Q(x) (Q(W) + alpha / r · Q(A) Q(B)) + b      W as GPT-2 has it: [inputs, outputs]
//! ```
//! Hu et al. 2021 (LoRA); a LoRA of its own for each width, quantised as the weight is. `Q(x) Q(A)` comes first:
//! the product of A and B is as large as the weight. Quantised weights live as long as the pass that needs them.

use xrun_ops::QuantRange;

use super::context::QuantContext;
use super::ranges::{KEYS, VALUES};
use crate::nn::gpt2::{ForwardContext, Projection};
use crate::nn::graph::to_inner;
use crate::nn::matmul::MatmulPrecision;
use crate::nn::{Tensor, learned_scale};

impl Projection {
    fn quantised_weight(&self, pass: &QuantContext<'_>) -> Tensor<2> {
        let weight = pass.base(self.weight.val());
        let (Some((precision, _)), Some(bits)) = (pass.at, pass.weight_bits()) else { return weight };
        match self.scale_logarithms.get(precision) {
            Some(logarithm) => learned_scale::quantise(weight, logarithm.val(), bits),
            None => pass.weight(weight, bits),
        }
    }

    fn quantised_lora(&self, pass: &QuantContext<'_>) -> Option<(Tensor<2>, Tensor<2>)> {
        let (precision, _) = pass.at?;
        let lora = self.lora.get(precision)?;
        Some((pass.lora(lora.a.val()), pass.lora(lora.b.val())))
    }

    /// The weight that a pass multiplies by, LoRA included; without a graph.
    pub fn merged_weight(&self, pass: &QuantContext<'_>) -> Tensor<2> {
        let weight = self.grid_weight(pass);
        match self.adapter(pass) {
            Some((a, b)) => weight + a.matmul(b).mul_scalar(pass.rules.lora_scale),
            None => weight,
        }
    }

    /// The weight of the base as a pass has it, without LoRA and without a graph.
    pub fn grid_weight(&self, pass: &QuantContext<'_>) -> Tensor<2> {
        to_inner(&self.quantised_weight(pass))
    }

    /// The matrices of LoRA as a pass has them, `[inputs, rank]` and `[rank, outputs]`, without a graph.
    pub fn adapter(&self, pass: &QuantContext<'_>) -> Option<(Tensor<2>, Tensor<2>)> {
        self.quantised_lora(pass).map(|(a, b)| (to_inner(&a), to_inner(&b)))
    }

    /// Scale and zero point of the weight's grid in a pass, `[1]` or `[outputs]`; `None` where it has no grid.
    pub fn weight_scale(&self, pass: &QuantContext<'_>) -> Option<(Tensor<1>, Tensor<1>)> {
        let (precision, _) = pass.at?;
        let bits = pass.weight_bits()?;
        let weight = to_inner(&self.weight.val());
        match self.scale_logarithms.get(precision) {
            Some(logarithm) => {
                let logarithm = to_inner(&logarithm.val());
                let first = learned_scale::initial_scale(&weight, logarithm.dims()[0] > 1, bits);
                let scale = first * logarithm.exp();
                let zero = scale.zeros_like();
                Some((scale, zero))
            }
            None => {
                let QuantRange { low, high } = QuantRange::min_max(&weight, pass.rules.weights_per_channel);
                Some(pass.rules.weight_grid(bits).scale_and_zero(low, high))
            }
        }
    }
}

impl ForwardContext for QuantContext<'_> {
    fn frozen(&self) -> bool {
        self.frozen
    }

    fn matmul(&self) -> MatmulPrecision {
        self.rules.matmul
    }

    /// The index of the layer is that of its input's range in the block.
    fn project(&mut self, projection: &Projection, input: Tensor<2>, block: usize, layer: usize) -> Tensor<2> {
        let input = self.activation(input, block, layer);
        let bias = self.base(projection.bias.val()).unsqueeze_dim::<2>(0);
        let matmul = self.rules.matmul;
        let input = matmul.operand(input);
        let output = matmul.output(input.clone().matmul(matmul.operand(projection.quantised_weight(self)))) + bias;
        match projection.quantised_lora(self) {
            Some((a, b)) => {
                let middle = input.matmul(matmul.operand(a)).mul_scalar(self.rules.lora_scale);
                output + matmul.output(middle.matmul(matmul.operand(b)))
            }
            None => output,
        }
    }

    fn changes_keys(&self) -> bool {
        self.quantises_keys()
    }

    fn keys_and_values(&mut self, [keys, values]: [Tensor<2>; 2], block: usize) -> [Tensor<2>; 2] {
        [self.key_value(keys, block, KEYS), self.key_value(values, block, VALUES)]
    }
}
