//! Number of parameters of the model, and of those that are trained at a time.

use super::precision::FULL_PRECISION;
use super::settings::{BaseTraining, Gpt2, Granularity, Layer, QatLanguageModel, WeightScale};
use xrun_training::gpt2_shape::Gpt2Shape;

/// Numbers of parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParameterCounts {
    /// Embeddings, blocks and normalisation.
    pub base: u64,
    /// LoRA matrices of all precisions.
    pub lora: u64,
    /// Learned scales of the precisions that quantise weights.
    pub scales: u64,
}

impl ParameterCounts {
    /// Counts the parameters for a vocabulary of `vocabulary` tokens.
    pub fn new(settings: &QatLanguageModel, model: &Gpt2, vocabulary: usize) -> Self {
        let shape = model.shape();
        let Gpt2Shape { layers, hidden_size: width, .. } = shape;
        let sides: usize = settings.lora_layers.iter().map(|layer| layer.inputs(width) + layer.outputs(width)).sum();
        let lora = settings.weight_bits.len() * layers * sides * settings.lora_rank;
        let scales = match (settings.weight_scale, settings.weight_granularity) {
            (WeightScale::MinMax, _) => 0,
            (WeightScale::Learned, Granularity::PerTensor) => Layer::ALL.len(),
            (WeightScale::Learned, Granularity::PerChannel) => {
                Layer::ALL.iter().map(|layer| layer.outputs(width)).sum()
            }
        };
        let quantised = settings.weight_bits.iter().filter(|bits| **bits != FULL_PRECISION).count();
        Self { base: shape.parameters(vocabulary), lora: lora as u64, scales: (quantised * layers * scales) as u64 }
    }

    /// Number of trained parameters in the stage that has more of them: pretraining trains the base; the quantised steps train
    /// LoRA, scales, and the base unless it is frozen.
    pub fn trained(&self, settings: &QatLanguageModel) -> u64 {
        let pretrained = if settings.pretraining_steps > 0 { self.base } else { 0 };
        let base = if settings.base == BaseTraining::Trained { self.base } else { 0 };
        pretrained.max(base + self.lora + self.scales)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Preset;

    /// GPT-2 has 124,439,808 parameters in its authors' files; LoRA of rank 8 on the attention input of 12 layers, by hand.
    #[test]
    fn a_frozen_base_is_trained_by_pretraining_alone() {
        let model = Gpt2 { preset: Preset::Small, ..Gpt2::default() };
        let settings = QatLanguageModel { lora_layers: vec![Layer::AttentionInput], ..QatLanguageModel::default() };
        let sizes = ParameterCounts::new(&settings, &model, 50_257);
        let lora = 3 * 12 * 8 * (768 + 3 * 768);
        assert_eq!(sizes, ParameterCounts { base: 124_439_808, lora, scales: 0 });
        assert_eq!(sizes.trained(&settings), lora);
        let all = QatLanguageModel { base: BaseTraining::Trained, ..settings.clone() };
        assert_eq!(sizes.trained(&all), sizes.base + lora);
        let before = QatLanguageModel { pretraining_steps: 1, ..settings.clone() };
        assert_eq!(sizes.trained(&before), sizes.base, "LoRA is not trained in the same stage");
        let learned = QatLanguageModel { weight_scale: WeightScale::Learned, ..settings };
        assert_eq!(
            ParameterCounts::new(&learned, &model, 50_257).scales,
            2 * 12 * (3 + 1 + 4 + 1) * 768,
            "8 and 4 bits"
        );
    }
}
