//! GPT-2 with quantised linear layers. Embeddings, normalisation and the output stay in full precision, as in LLM-QAT (Liu et
//! al. 2023).

use burn::module::ParamId;
use burn::tensor::{Device, TensorData};
use xrun_ops::{LossTargets, Teacher};

use super::batch::TokenBatch;
use super::context::QuantContext;
use super::precision::precisions;
use super::settings::{Gpt2, Granularity, Layer, QatLanguageModel, WeightScale};
use xrun_training::nn::Tensor;
pub use xrun_training::nn::gpt2::Gpt2Network;
use xrun_training::nn::gpt2::Projection;
use xrun_training::nn::parameters::{Deviation, initialise};
use xrun_training::nn::transformer::{INIT_DEVIATION, Tokens};

/// Positions of the text tokens of a batch, as [`super::context::RangeObserver`] takes them.
pub fn text_positions(batch: &TokenBatch, device: &Device) -> Tokens<1> {
    let numbers = batch.text_positions();
    let count = numbers.len();
    Tokens::from_data(TensorData::new(numbers, [count]), device)
}

/// Values of the inputs of a pass: tokens, labels, weights, and positions of text. The positions are one more than there are
/// tokens, however short the text: repeated, which changes no minimum and no maximum.
pub fn input_data(batch: &TokenBatch) -> Vec<TensorData> {
    let count = batch.size * batch.length;
    let mut text = batch.text_positions();
    text.resize(count + 1, text.first().copied().unwrap_or(0));
    vec![
        TensorData::new(batch.inputs.clone(), [batch.size, batch.length]),
        TensorData::new(batch.targets.clone(), [count]),
        TensorData::new(batch.loss_mask.clone(), [count]),
        TensorData::new(text, [count + 1]),
    ]
}

/// Loss targets of a batch, with the logits of a teacher if there is one.
pub fn loss_targets(batch: &TokenBatch, teacher: Option<Teacher>) -> LossTargets {
    LossTargets { labels: batch.targets.clone(), weights: batch.loss_mask.clone(), teacher }
}

/// Network with initial weights drawn from `seed`.
pub fn new(settings: &QatLanguageModel, model: &Gpt2, vocabulary: usize, seed: u32, device: &Device) -> Gpt2Network {
    let (shape, precisions) = (model.shape(), precisions(settings).len());
    let projection = |layer: usize, sizes: [usize; 2]| {
        let rank = if settings.lora_layers.contains(&Layer::ALL[layer]) { settings.lora_rank } else { 0 };
        let scales = match (settings.weight_scale, settings.weight_granularity) {
            (WeightScale::MinMax, _) => 0,
            (WeightScale::Learned, Granularity::PerTensor) => 1,
            (WeightScale::Learned, Granularity::PerChannel) => sizes[1],
        };
        Projection::zeros(sizes, precisions, rank, scales, device)
    };
    let network = Gpt2Network::zeros(shape, vocabulary, projection, device);
    let mut network = initialise(network, seed, Deviation::Fixed(INIT_DEVIATION));
    network.initialise(f64::from(1.0 / (2.0 * shape.layers as f32).sqrt()));
    network
}

/// Ids of the logarithms of learned scales, of all precisions.
pub fn scales(network: &Gpt2Network) -> Vec<ParamId> {
    let linears = network.h.iter().flat_map(|block| block.projections());
    linears.flat_map(|linear| &linear.scale_logarithms).map(|logarithm| logarithm.id).collect()
}

/// Detached weights of all linear layers in a forward pass, for the leak that keeps them.
pub fn quantised_weights(network: &Gpt2Network, quant: &QuantContext<'_>) -> Vec<Tensor<2>> {
    network.h.iter().flat_map(|block| block.projections()).map(|linear| quant.merged_weight(linear)).collect()
}

/// Replaces the weights of all linear layers, and removes LoRA and scales.
pub fn with_weights(mut network: Gpt2Network, weight: impl Fn(&Projection) -> Tensor<2>) -> Gpt2Network {
    for block in &mut network.h {
        for linear in block.projections_mut() {
            let weight = weight(linear);
            linear.weight = linear.weight.clone().map(|_| weight);
            linear.lora = Vec::new();
            linear.scale_logarithms = Vec::new();
        }
    }
    network
}

/// Linear layers of a block, in the order of [`Layer::ALL`].
pub fn layers(network: &Gpt2Network, block: usize) -> impl Iterator<Item = (Layer, &Projection)> {
    Layer::ALL.into_iter().zip(network.h[block].projections())
}

#[cfg(test)]
#[path = "network_tests.rs"]
mod tests;
