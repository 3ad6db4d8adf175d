//! GPT-2 with quantised linear layers. Embeddings, normalisation and the output stay in full precision, as in LLM-QAT (Liu et
//! al. 2023).

use burn::module::ParamId;
use burn::tensor::{Device, TensorData};
use xrun_ops::{LossTargets, Teacher};

use super::batch::TokenBatch;
use super::context::{QuantContext, Rules};
use super::precision::precisions;
use super::settings::{Layer, Model, Settings};
pub use crate::nn::gpt2::Gpt2;
use crate::nn::gpt2::Projection;
use crate::nn::transformer::{INIT_DEVIATION, Tokens};
use crate::nn::{Tensor, parameters};

/// Indices of the tokens of a batch that are text, as [`super::context::Observe`] takes them.
pub fn text(batch: &TokenBatch, plain: &Device) -> Tokens<1> {
    let numbers = batch.text();
    let count = numbers.len();
    Tokens::from_data(TensorData::new(numbers, [count]), plain)
}

/// Next tokens of a batch and their weights in the loss.
pub fn targets(batch: &TokenBatch, teacher: Option<Teacher>) -> LossTargets {
    LossTargets { labels: batch.targets.clone(), weights: batch.weights.clone(), teacher }
}

impl Gpt2 {
    /// Network whose first values follow from the seed.
    pub fn new(settings: &Settings, model: &Model, vocabulary: usize, seed: u32, device: &Device) -> Self {
        let (shape, precisions, rules) = (model.shape(), precisions(settings).len(), Rules::new(settings));
        let projection = |layer: usize, sizes: [usize; 2]| {
            let rank = if settings.lora_layers.contains(&Layer::ALL[layer]) { settings.lora_rank } else { 0 };
            let scales = match (rules.learned_scale, rules.weights_per_channel) {
                (false, _) => 0,
                (true, false) => 1,
                (true, true) => sizes[1],
            };
            Projection::zeros(sizes, precisions, rank, scales, device)
        };
        let network = Self::zeros(shape, vocabulary, projection, device);
        let mut network = parameters::initialise_normal(network, seed, INIT_DEVIATION);
        network.initialise(f64::from(1.0 / (2.0 * shape.layers as f32).sqrt()));
        network
    }

    /// The logarithms of learnt scales, of all precisions.
    pub fn scales(&self) -> Vec<ParamId> {
        let linears = self.h.iter().flat_map(|block| block.projections());
        linears.flat_map(|linear| &linear.scale_logarithms).map(|logarithm| logarithm.id).collect()
    }

    /// The weights that a pass multiplies by; for the leak that keeps them.
    pub fn quantised_weights(&self, pass: &QuantContext<'_>) -> Vec<Tensor<2>> {
        self.h.iter().flat_map(|block| block.projections()).map(|linear| linear.merged_weight(pass)).collect()
    }

    /// With the weights of a pass in the place of its own: LoRA and grids are in them, and no longer beside them.
    pub fn merged(self, pass: &QuantContext<'_>) -> Self {
        self.with_weights(|linear| linear.merged_weight(pass))
    }

    /// With the weights of the base on the grid of a pass, and no LoRA.
    pub fn on_grid(self, pass: &QuantContext<'_>) -> Self {
        self.with_weights(|linear| linear.grid_weight(pass))
    }

    fn with_weights(mut self, weight: impl Fn(&Projection) -> Tensor<2>) -> Self {
        for block in &mut self.h {
            for linear in block.projections_mut() {
                let weight = weight(linear);
                linear.weight = linear.weight.clone().map(|_| weight);
                linear.lora = Vec::new();
                linear.scale_logarithms = Vec::new();
            }
        }
        self
    }

    /// The linear layers of a block, in the order of [`Layer::ALL`].
    pub fn layers(&self, block: usize) -> impl Iterator<Item = (Layer, &Projection)> {
        Layer::ALL.into_iter().zip(self.h[block].projections())
    }
}

#[cfg(test)]
#[path = "gpt2_tests.rs"]
mod tests;
