//! Linear layers whose weight and input are quantised, with a LoRA for each precision.
//!
//! ```text
//! y = Q(x) (Q(W) + alpha / r · Q(A) Q(B)) + b      W as GPT-2 has it: [inputs, outputs]
//! ```
//! Hu et al. 2021 (LoRA). Each precision has its own LoRA, quantised like the weight. `Q(x) Q(A)` is computed first by default,
//! because `Q(A) Q(B)` is as large as the weight. Quantised weights live for one forward pass.

use xrun_ops::QuantRange;

use super::context::QuantContext;
use super::ranges::{KEYS, VALUES};
use super::settings::LoraProduct;
use xrun_core::heap;
use xrun_training::nn::gpt2::{ForwardContext, Projection};
use xrun_training::nn::graph::to_inner;
use xrun_training::nn::matmul::ComputeDtype;
use xrun_training::nn::{Tensor, learned_scale};

impl QuantContext<'_> {
    fn quantised_weight(&self, projection: &Projection) -> Tensor<2> {
        let weight = self.base(projection.weight.val());
        let (Some((precision, _)), Some(bits)) = (self.precision, self.weight_bits()) else { return weight };
        match projection.scale_logarithms.get(precision) {
            Some(logarithm) => learned_scale::quantise(weight, logarithm.val(), bits),
            None => self.weight(weight, bits),
        }
    }

    fn quantised_lora(&self, projection: &Projection) -> Option<(Tensor<2>, Tensor<2>)> {
        let (precision, _) = self.precision?;
        let lora = projection.lora.get(precision)?;
        Some((self.lora(lora.a.val()), self.lora(lora.b.val())))
    }

    /// Detached weight of a forward pass, LoRA included, `[inputs, outputs]`.
    pub fn merged_weight(&self, projection: &Projection) -> Tensor<2> {
        let weight = self.quantised_base(projection);
        match self.adapter(projection) {
            Some((a, b)) => weight + a.matmul(b).mul_scalar(self.config.lora_scale()),
            None => weight,
        }
    }

    /// Detached quantised weight of the base, without LoRA, `[inputs, outputs]`.
    pub fn quantised_base(&self, projection: &Projection) -> Tensor<2> {
        to_inner(&self.quantised_weight(projection))
    }

    /// Detached quantised LoRA matrices, `[inputs, rank]` and `[rank, outputs]`; `None` without LoRA.
    pub fn adapter(&self, projection: &Projection) -> Option<(Tensor<2>, Tensor<2>)> {
        self.quantised_lora(projection).map(|(a, b)| (to_inner(&a), to_inner(&b)))
    }

    /// Scale and zero point of the quantised weight, each `[1]` or `[outputs]`; `None` if it is not quantised.
    pub fn weight_scale(&self, projection: &Projection) -> Option<(Tensor<1>, Tensor<1>)> {
        let (precision, _) = self.precision?;
        let bits = self.weight_bits()?;
        let weight = to_inner(&projection.weight.val());
        match projection.scale_logarithms.get(precision) {
            Some(logarithm) => {
                let logarithm = to_inner(&logarithm.val());
                let first = learned_scale::initial_scale(&weight, logarithm.dims()[0] > 1, bits);
                let scale = first * logarithm.exp();
                let zero = scale.zeros_like();
                Some((scale, zero))
            }
            None => {
                let QuantRange { low, high } = QuantRange::min_max(&weight, self.config.weights_per_channel());
                Some(self.config.weight_quantizer(bits).scale_and_zero(low, high))
            }
        }
    }
}

impl ForwardContext for QuantContext<'_> {
    fn frozen(&self) -> bool {
        self.frozen
    }

    fn matmul(&self) -> ComputeDtype {
        self.config.matmul
    }

    /// The index of a layer in its block is also that of the quantizer of its input.
    fn project(&mut self, projection: &Projection, input: Tensor<2>, block: usize, layer: usize) -> Tensor<2> {
        let every = self.config.settings.clean_every_blocks;
        if layer == 0 && block > 0 && every > 0 && block.is_multiple_of(every) {
            heap::return_free_pages();
            input.device().memory_cleanup();
        }
        let input = self.activation(input, block, layer);
        let bias = self.base(projection.bias.val());
        let matmul = self.config.matmul;
        let input = matmul.operand(input);
        let output = matmul.linear(input.clone(), self.quantised_weight(projection), Some(bias));
        match self.quantised_lora(projection) {
            Some((a, b)) if self.config.settings.lora_product == LoraProduct::MatricesFirst => {
                let product = matmul.operand(matmul.output(matmul.operand(a).matmul(matmul.operand(b))));
                output + matmul.output(input.matmul(product)).mul_scalar(self.config.lora_scale())
            }
            Some((a, b)) => {
                let middle = input.matmul(matmul.operand(a)).mul_scalar(self.config.lora_scale());
                output + matmul.linear(middle, b, None)
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
