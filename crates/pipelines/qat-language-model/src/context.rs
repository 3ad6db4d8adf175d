//! State of a forward pass: its precision, its ranges, and which parameters have a gradient.

use xrun_ops::{QuantRange, Quantizer};

use super::precision::{FULL_PRECISION, Precision};
use super::ranges::{QUANTIZERS_PER_BLOCK, Ranges};
use super::settings::{self, BaseTraining, Granularity, LoraProduct, QatLanguageModel, Scheme, WeightScale};
use xrun_training::nn::Tensor;
use xrun_training::nn::graph::to_inner;
use xrun_training::nn::matmul::ComputeDtype;
use xrun_training::nn::transformer::Tokens;

/// Quantisation settings of all forward passes.
#[derive(Clone, Debug, PartialEq)]
pub struct QuantConfig {
    weights_symmetric: bool,
    /// True if a weight has a scale for each output of its layer.
    pub weights_per_channel: bool,
    /// True if the scales of weights are trained.
    pub learned_scale: bool,
    activations_symmetric: bool,
    activations_per_channel: bool,
    activations_per_token: bool,
    momentum: f32,
    /// True if the LoRA matrices are quantised to the bits of the weights.
    pub lora_quantised: bool,
    /// Factor of LoRA, `alpha / rank`.
    pub lora_scale: f32,
    /// Order of the products with the LoRA matrices.
    pub lora_product: LoraProduct,
    /// Number of blocks after which a forward pass returns free memory; 0 never does.
    pub clean_every_blocks: usize,
    /// True if the base is a constant while a precision is trained.
    pub base_frozen: bool,
    /// Element type of the operands of matrix products.
    pub matmul: ComputeDtype,
}

impl QuantConfig {
    /// Configuration of the settings, with matrix products in 32-bit floats.
    pub fn new(settings: &QatLanguageModel) -> Self {
        Self {
            weights_symmetric: settings.weight_scheme == Scheme::Symmetric,
            weights_per_channel: settings.weight_granularity == Granularity::PerChannel,
            learned_scale: settings.weight_scale == WeightScale::Learned,
            activations_symmetric: settings.activation_scheme == Scheme::Symmetric,
            activations_per_channel: settings.activation_granularity == Granularity::PerChannel,
            activations_per_token: settings.activation_ranges == settings::RangeSource::PerToken,
            momentum: settings.range_momentum as f32,
            lora_quantised: settings.lora_quantised,
            lora_product: settings.lora_product,
            clean_every_blocks: settings.clean_every_blocks,
            lora_scale: (settings.lora_alpha / settings.lora_rank.max(1) as f64) as f32,
            base_frozen: settings.base == BaseTraining::Frozen,
            matmul: ComputeDtype::Float32,
        }
    }

    /// Replaces the element type of matrix products.
    pub fn with_matmul(self, matmul: ComputeDtype) -> Self {
        Self { matmul, ..self }
    }

    /// Quantizer of a weight of `bits` bits.
    pub fn weight_quantizer(&self, bits: u32) -> Quantizer {
        Quantizer { bits, symmetric: self.weights_symmetric }
    }

    /// Quantizer of an activation of `bits` bits.
    pub fn activation_quantizer(&self, bits: u32) -> Quantizer {
        Quantizer { bits, symmetric: self.activations_symmetric }
    }
}

/// Rule that updates activation ranges. Its tensor has the positions of text tokens in the batch, on the inner (non-autodiff)
/// device.
#[derive(Clone, Debug)]
pub enum RangeObserver {
    /// Calibration: ranges widen to the minimum and maximum of all values.
    MinMax(Tokens<1>),
    /// Training: moving averages.
    MovingAverage(Tokens<1>),
}

/// State of a forward pass.
#[derive(Debug)]
pub struct QuantContext<'a> {
    /// Quantisation settings.
    pub config: &'a QuantConfig,
    /// Index and bits of the precision; `None` for the base in full precision without LoRA.
    pub precision: Option<(usize, Precision)>,
    /// Ranges of activations, by precision and quantizer.
    pub ranges: &'a mut Ranges,
    /// Observer that updates the ranges; `None` leaves them unchanged.
    pub observer: Option<RangeObserver>,
    /// True if the base is a constant.
    pub frozen: bool,
}

impl QuantContext<'_> {
    /// Returns a parameter of the base, detached if the base is frozen.
    pub fn base<const D: usize>(&self, parameter: Tensor<D>) -> Tensor<D> {
        if self.frozen { parameter.detach() } else { parameter }
    }

    /// Bits of the weights; `None` if they are not quantised.
    pub fn weight_bits(&self) -> Option<u32> {
        self.precision.map(|(_, precision)| precision.weights).filter(|bits| *bits != FULL_PRECISION)
    }

    /// Quantises a weight `[inputs, outputs]` of the base.
    pub fn weight(&self, weight: Tensor<2>, bits: u32) -> Tensor<2> {
        let range = QuantRange::min_max(&weight, self.config.weights_per_channel);
        match self.frozen {
            true => self.config.weight_quantizer(bits).quantize_dequantize(&weight, &range),
            false => self.config.weight_quantizer(bits).fake_quantize(weight, &range),
        }
    }

    /// Quantises a LoRA matrix, if LoRA is quantised; it is never detached.
    pub fn lora(&self, matrix: Tensor<2>) -> Tensor<2> {
        match self.weight_bits().filter(|_| self.config.lora_quantised) {
            Some(bits) => {
                let range = QuantRange::min_max(&matrix, self.config.weights_per_channel);
                self.config.weight_quantizer(bits).fake_quantize(matrix, &range)
            }
            None => matrix,
        }
    }

    /// Quantises the input `[tokens, features]` of a linear layer.
    pub fn activation(&mut self, values: Tensor<2>, block: usize, quantizer: usize) -> Tensor<2> {
        let bits = self.precision.map(|(_, precision)| precision.activations);
        self.quantised(values, bits, block, quantizer)
    }

    /// Returns whether keys and values of attention are quantised.
    pub fn quantises_keys(&self) -> bool {
        self.precision.is_some_and(|(_, precision)| precision.key_values != FULL_PRECISION)
    }

    /// Quantises keys or values of attention, `[tokens, features]`.
    pub fn key_value(&mut self, values: Tensor<2>, block: usize, quantizer: usize) -> Tensor<2> {
        let bits = self.precision.map(|(_, precision)| precision.key_values);
        self.quantised(values, bits, block, quantizer)
    }

    /// Quantises `values` `[tokens, features]` by the range of a quantizer, or each token by its own. Values of a quantizer
    /// without a range stay as they are.
    fn quantised(&mut self, values: Tensor<2>, bits: Option<u32>, block: usize, quantizer: usize) -> Tensor<2> {
        let (Some((precision, _)), Some(bits)) = (self.precision, bits.filter(|bits| *bits != FULL_PRECISION)) else {
            return values;
        };
        let grid = self.config.activation_quantizer(bits);
        if self.config.activations_per_token {
            return grid.fake_quantize_rows(values);
        }
        match self.range(&values, precision, block * QUANTIZERS_PER_BLOCK + quantizer) {
            Some(range) => grid.fake_quantize(values, &range),
            None => values,
        }
    }

    /// Range of a quantizer, updated by the text tokens of `values` `[tokens, features]` if there is an observer.
    fn range(&mut self, values: &Tensor<2>, precision: usize, quantizer: usize) -> Option<QuantRange> {
        let range = self.ranges.range_mut(precision, quantizer);
        let per_channel = self.config.activations_per_channel;
        if let Some(observer) = &self.observer {
            let (RangeObserver::MinMax(text) | RangeObserver::MovingAverage(text)) = observer;
            let observed = to_inner(values);
            // Padding would distort the ranges of text.
            let observed =
                if text.dims() == [observed.dims()[0]] { observed } else { observed.select(0, text.clone()) };
            match observer {
                RangeObserver::MinMax(_) => range.update_min_max(&observed, per_channel),
                RangeObserver::MovingAverage(_) => range.update_average(&observed, per_channel, self.config.momentum),
            }
        }
        range.bounds().cloned()
    }
}
