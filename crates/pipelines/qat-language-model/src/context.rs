//! State of a forward pass: its precision, its ranges, and which parameters have a gradient.

use xrun_ops::{QuantRange, Quantizer};

use super::precision::{FULL_PRECISION, Precision};
use super::ranges::{QUANTIZERS_PER_BLOCK, Ranges};
use super::settings::{BaseTraining, Granularity, QatLanguageModel, RangeSource, Scheme};
use xrun_training::nn::Tensor;
use xrun_training::nn::graph::to_inner;
use xrun_training::nn::matmul::ComputeDtype;
use xrun_training::nn::transformer::Tokens;

/// Settings of all forward passes.
#[derive(Clone, Debug, PartialEq)]
pub struct QuantConfig {
    /// Settings of the task.
    pub settings: QatLanguageModel,
    /// Element type of the operands of matrix products.
    pub matmul: ComputeDtype,
}

impl QuantConfig {
    /// Returns whether a weight has a scale for each output of its layer.
    pub fn weights_per_channel(&self) -> bool {
        self.settings.weight_granularity == Granularity::PerChannel
    }

    /// Factor of LoRA, `alpha / rank`.
    pub fn lora_scale(&self) -> f32 {
        (self.settings.lora_alpha / self.settings.lora_rank.max(1) as f64) as f32
    }

    /// Returns whether the base is a constant while a precision is trained.
    pub fn base_frozen(&self) -> bool {
        self.settings.base == BaseTraining::Frozen
    }

    /// Quantizer of a weight of `bits` bits.
    pub fn weight_quantizer(&self, bits: u32) -> Quantizer {
        Quantizer { bits, symmetric: self.settings.weight_scheme == Scheme::Symmetric }
    }

    /// Quantizer of an activation of `bits` bits.
    pub fn activation_quantizer(&self, bits: u32) -> Quantizer {
        Quantizer { bits, symmetric: self.settings.activation_scheme == Scheme::Symmetric }
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

impl<'a> QuantContext<'a> {
    /// State of a forward pass that trains nothing and leaves the ranges as they are.
    pub fn new(config: &'a QuantConfig, precision: Option<(usize, Precision)>, ranges: &'a mut Ranges) -> Self {
        Self { config, precision, ranges, observer: None, frozen: true }
    }

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
        let range = QuantRange::min_max(&weight, self.config.weights_per_channel());
        match self.frozen {
            true => self.config.weight_quantizer(bits).quantize_dequantize(&weight, &range),
            false => self.config.weight_quantizer(bits).fake_quantize(weight, &range),
        }
    }

    /// Quantises a LoRA matrix, if LoRA is quantised; it is never detached.
    pub fn lora(&self, matrix: Tensor<2>) -> Tensor<2> {
        match self.weight_bits().filter(|_| self.config.settings.lora_quantised) {
            Some(bits) => {
                let range = QuantRange::min_max(&matrix, self.config.weights_per_channel());
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
        if self.config.settings.activation_ranges == RangeSource::PerToken {
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
        let settings = &self.config.settings;
        let per_channel = settings.activation_granularity == Granularity::PerChannel;
        if let Some(observer) = &self.observer {
            let (RangeObserver::MinMax(text) | RangeObserver::MovingAverage(text)) = observer;
            let observed = to_inner(values);
            // Padding would distort the ranges of text.
            let observed =
                if text.dims() == [observed.dims()[0]] { observed } else { observed.select(0, text.clone()) };
            match observer {
                RangeObserver::MinMax(_) => range.update_min_max(&observed, per_channel),
                RangeObserver::MovingAverage(_) => {
                    range.update_average(&observed, per_channel, settings.range_momentum as f32)
                }
            }
        }
        range.bounds().cloned()
    }
}
