//! State of a forward pass: its precision, its ranges, and which parameters have a gradient.

use xrun_ops::{QuantRange, Quantizer};

use super::precision::{FULL, Precision};
use super::ranges::{QUANTISERS, Ranges};
use super::settings::{self, Base, Granularity, Scheme, Settings, WeightScale};
use crate::nn::Tensor;
use crate::nn::graph::to_inner;
use crate::nn::matmul::MatmulPrecision;
use crate::nn::transformer::Tokens;

/// Quantisation settings of all forward passes.
#[derive(Clone, Debug, PartialEq)]
pub struct Rules {
    weights_symmetric: bool,
    /// Weights have a scale for each output of their layer.
    pub weights_per_channel: bool,
    /// The scales of weights are trained.
    pub learned_scale: bool,
    activations_symmetric: bool,
    activations_per_channel: bool,
    activations_per_token: bool,
    momentum: f32,
    /// The LoRA matrices are quantised to the bits of the weights.
    pub lora_quantised: bool,
    /// Factor of LoRA, `alpha / rank`.
    pub lora_scale: f32,
    /// The base is a constant while a precision is trained.
    pub base_frozen: bool,
    /// The element type of the operands of matrix products.
    pub matmul: MatmulPrecision,
}

impl Rules {
    /// Takes the rules from the settings; products are of 32-bit floats.
    pub fn new(settings: &Settings) -> Self {
        Self {
            weights_symmetric: settings.weight_scheme == Scheme::Symmetric,
            weights_per_channel: settings.weight_granularity == Granularity::PerChannel,
            learned_scale: settings.weight_scale == WeightScale::Learned,
            activations_symmetric: settings.activation_scheme == Scheme::Symmetric,
            activations_per_channel: settings.activation_granularity == Granularity::PerChannel,
            activations_per_token: settings.ranges == settings::Ranges::PerToken,
            momentum: settings.range_momentum as f32,
            lora_quantised: settings.lora_quantised,
            lora_scale: (settings.lora_alpha / settings.lora_rank.max(1) as f64) as f32,
            base_frozen: settings.base == Base::Frozen,
            matmul: MatmulPrecision::Float32,
        }
    }

    /// With products of these floats.
    pub fn with(self, matmul: MatmulPrecision) -> Self {
        Self { matmul, ..self }
    }

    /// The grid of a weight of this number of bits.
    pub fn weight_grid(&self, bits: u32) -> Quantizer {
        Quantizer { bits, symmetric: self.weights_symmetric }
    }

    /// The grid of an activation of this number of bits.
    pub fn activation_grid(&self, bits: u32) -> Quantizer {
        Quantizer { bits, symmetric: self.activations_symmetric }
    }
}

/// Update of the ranges by the activations of the tokens that are text: their indices in the batch, on the plain device.
#[derive(Clone, Debug)]
pub enum Observe {
    /// Calibration: the ranges widen to hold all values.
    Widen(Tokens<1>),
    /// Training: moving averages.
    Move(Tokens<1>),
}

/// State of a forward pass.
#[derive(Debug)]
pub struct QuantContext<'a> {
    /// Quantisation settings.
    pub rules: &'a Rules,
    /// Index and bits of the precision; `None` is the base alone, without LoRA, in full precision.
    pub at: Option<(usize, Precision)>,
    /// Ranges of activations, by precision and place.
    pub ranges: &'a mut Ranges,
    /// `None` leaves ranges as they are.
    pub observe: Option<Observe>,
    /// The base is a constant.
    pub frozen: bool,
}

impl QuantContext<'_> {
    /// A parameter of the base: a constant when it is frozen.
    pub fn base<const D: usize>(&self, parameter: Tensor<D>) -> Tensor<D> {
        if self.frozen { parameter.detach() } else { parameter }
    }

    /// Bits of the weights in this pass, if they are quantised.
    pub fn weight_bits(&self) -> Option<u32> {
        self.at.map(|(_, precision)| precision.weights).filter(|bits| *bits != FULL)
    }

    /// A weight `[inputs, outputs]` of the base on its grid.
    pub fn weight(&self, weight: Tensor<2>, bits: u32) -> Tensor<2> {
        let range = QuantRange::min_max(&weight, self.rules.weights_per_channel);
        match self.frozen {
            true => self.rules.weight_grid(bits).quantize_dequantize(&weight, &range),
            false => self.rules.weight_grid(bits).fake_quantize(weight, &range),
        }
    }

    /// A matrix of LoRA on its grid; always trained.
    pub fn lora(&self, matrix: Tensor<2>) -> Tensor<2> {
        match self.weight_bits().filter(|_| self.rules.lora_quantised) {
            Some(bits) => {
                let range = QuantRange::min_max(&matrix, self.rules.weights_per_channel);
                self.rules.weight_grid(bits).fake_quantize(matrix, &range)
            }
            None => matrix,
        }
    }

    /// Input of a linear layer, quantised.
    pub fn activation(&mut self, values: Tensor<2>, block: usize, quantiser: usize) -> Tensor<2> {
        let bits = self.at.map(|(_, precision)| precision.activations);
        self.quantised(values, bits, block, quantiser)
    }

    /// Returns whether keys and values of the attention are quantised.
    pub fn quantises_keys(&self) -> bool {
        self.at.is_some_and(|(_, precision)| precision.key_values != FULL)
    }

    /// Keys or values of the attention, quantised.
    pub fn key_value(&mut self, values: Tensor<2>, block: usize, quantiser: usize) -> Tensor<2> {
        let bits = self.at.map(|(_, precision)| precision.key_values);
        self.quantised(values, bits, block, quantiser)
    }

    /// `values` `[tokens, features]` on the grid of a range, or each token on its own. A range that saw nothing quantises
    /// nothing.
    fn quantised(&mut self, values: Tensor<2>, bits: Option<u32>, block: usize, quantiser: usize) -> Tensor<2> {
        let (Some((precision, _)), Some(bits)) = (self.at, bits.filter(|bits| *bits != FULL)) else { return values };
        let grid = self.rules.activation_grid(bits);
        if self.rules.activations_per_token {
            return grid.fake_quantize_rows(values);
        }
        match self.range(&values, precision, block * QUANTISERS + quantiser) {
            Some(range) => grid.fake_quantize(values, &range),
            None => values,
        }
    }

    /// The range of a quantiser, after it took in the text among `values` `[tokens, features]`, if this pass observes.
    fn range(&mut self, values: &Tensor<2>, precision: usize, quantiser: usize) -> Option<QuantRange> {
        let range = self.ranges.of(precision, quantiser);
        let per_channel = self.rules.activations_per_channel;
        if let Some(observe) = &self.observe {
            let (Observe::Widen(text) | Observe::Move(text)) = observe;
            let seen = to_inner(values);
            // What fills a batch up is no text, and would widen or narrow what is known of it.
            let seen = if text.dims() == [seen.dims()[0]] { seen } else { seen.select(0, text.clone()) };
            match observe {
                Observe::Widen(_) => range.update_min_max(&seen, per_channel),
                Observe::Move(_) => range.update_average(&seen, per_channel, self.rules.momentum),
            }
        }
        range.bounds().cloned()
    }
}
