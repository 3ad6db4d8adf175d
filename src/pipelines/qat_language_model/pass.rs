//! How does one pass through the model go: at which precision, with which ranges, and what has a gradient?

use super::precision::{FULL, Precision};
use super::ranges::{QUANTISERS, Ranges};
use super::settings::{self, Base, Granularity, Scheme, Settings, WeightScale};
use crate::nn::Tensor;
use crate::nn::fake_quantise::{Bounds, Grid, without_graph};
use crate::nn::matmul::Factors;
use crate::nn::rows::{self, Rows};
use crate::nn::transformer::Tokens;

/// How things are quantised, from the file.
#[derive(Clone, Debug, PartialEq)]
pub struct Rules {
    weights_symmetric: bool,
    /// Whether each output of a layer has a scale of its own.
    pub weights_per_channel: bool,
    /// Whether the scales of weights are trained.
    pub learned_scale: bool,
    activations_symmetric: bool,
    activations_per_channel: bool,
    activations_per_token: bool,
    momentum: f32,
    /// Whether the LoRA matrices are quantised to the bits of the weights.
    pub lora_quantised: bool,
    /// What LoRA is multiplied by.
    pub lora_scale: f32,
    /// Whether the base is a constant while a precision is trained.
    pub base_frozen: bool,
    /// The element type of the operands of matrix products.
    pub factors: Factors,
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
            factors: Factors::Float32,
        }
    }

    /// With products of these floats.
    pub fn with(self, factors: Factors) -> Self {
        Self { factors, ..self }
    }

    /// The grid of a weight of so many bits.
    pub fn weight_grid(&self, bits: u32) -> Grid {
        Grid { bits, symmetric: self.weights_symmetric }
    }

    /// The grid of an activation of so many bits.
    pub fn activation_grid(&self, bits: u32) -> Grid {
        Grid { bits, symmetric: self.activations_symmetric }
    }
}

/// What ranges do with what a pass sees: of the tokens that are text, by their number in the batch, on the plain device.
#[derive(Clone, Debug)]
pub enum Observe {
    /// Calibration: they come to hold all of it.
    Widen(Tokens<1>),
    /// Training: they move towards it.
    Move(Tokens<1>),
}

/// One pass.
#[derive(Debug)]
pub struct Pass<'a> {
    /// How things are quantised.
    pub rules: &'a Rules,
    /// Which precision, and its bits; `None` is the base alone, without LoRA, in full precision.
    pub at: Option<(usize, Precision)>,
    /// Ranges of activations, by precision and place.
    pub ranges: &'a mut Ranges,
    /// `None` leaves ranges as they are.
    pub observe: Option<Observe>,
    /// Whether the base is a constant.
    pub frozen: bool,
}

impl Pass<'_> {
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
        let bounds = Bounds::of(&weight, self.rules.weights_per_channel);
        match self.frozen {
            true => self.rules.weight_grid(bits).quantise(&weight, &bounds),
            false => self.rules.weight_grid(bits).fake_quantise(weight, &bounds),
        }
    }

    /// A matrix of LoRA on its grid; always trained.
    pub fn lora(&self, matrix: Tensor<2>) -> Tensor<2> {
        match self.weight_bits().filter(|_| self.rules.lora_quantised) {
            Some(bits) => {
                let bounds = Bounds::of(&matrix, self.rules.weights_per_channel);
                self.rules.weight_grid(bits).fake_quantise(matrix, &bounds)
            }
            None => matrix,
        }
    }

    /// A weight of the base, or a matrix of LoRA, in host memory and on its grid, if this pass has one for it; with 1 for each
    /// value where the grid reaches, and 0 beyond.
    pub fn weight_on_host(&self, weight: &Tensor<2>, quantised: bool) -> (Rows, Option<Vec<f32>>) {
        let weight = without_graph(weight);
        let mut rows = Rows::of(weight.clone());
        let inside = self.weight_bits().filter(|_| quantised).map(|bits| {
            let bounds = Bounds::of(&weight, self.rules.weights_per_channel);
            self.rules.weight_grid(bits).in_place(&mut rows.values, &bounds)
        });
        (rows, inside)
    }

    /// What goes into a linear layer.
    pub fn activation(&mut self, values: Tensor<2>, block: usize, quantiser: usize) -> Tensor<2> {
        let bits = self.at.map(|(_, precision)| precision.activations);
        self.quantised(values, bits, block, quantiser)
    }

    /// Keys or values of the attention.
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
            return grid.fake_quantise_rows(values);
        }
        match self.bounds(|| without_graph(&values), precision, block * QUANTISERS + quantiser) {
            Some(bounds) => grid.fake_quantise(values, &bounds),
            None => values,
        }
    }

    /// The same of rows in host memory, in their place: activations of `bits`. Returns 1 for each value where its grid reaches,
    /// and 0 beyond; nothing where all values are inside.
    pub fn on_host(
        &mut self,
        values: &mut Rows,
        bits: Option<u32>,
        block: usize,
        quantiser: usize,
    ) -> Option<Vec<f32>> {
        let (precision, _) = self.at?;
        let grid = self.rules.activation_grid(bits.filter(|bits| *bits != FULL)?);
        if self.rules.activations_per_token {
            let inside = grid.rows_in_place(&mut values.values, values.width);
            // What has just been measured, as many levels below zero as above, is all inside.
            return (!grid.symmetric).then_some(inside);
        }
        let seen = || values.clone().tensor(&rows::cpu());
        let bounds = self.bounds(seen, precision, block * QUANTISERS + quantiser)?;
        Some(grid.in_place(&mut values.values, &bounds))
    }

    /// The range of a quantiser, after it took in the text among `values` `[tokens, features]`, if this pass observes.
    fn bounds(&mut self, values: impl FnOnce() -> Tensor<2>, precision: usize, quantiser: usize) -> Option<Bounds> {
        let range = self.ranges.of(precision, quantiser);
        let per_channel = self.rules.activations_per_channel;
        if let Some(observe) = &self.observe {
            let (Observe::Widen(text) | Observe::Move(text)) = observe;
            let seen = values();
            // What fills a batch up is no text, and would widen or narrow what is known of it.
            let seen = if text.dims() == [seen.dims()[0]] { seen } else { seen.select(0, text.clone()) };
            match observe {
                Observe::Widen(_) => range.widen(&seen, per_channel),
                Observe::Move(_) => range.observe(&seen, per_channel, self.rules.momentum),
            }
        }
        range.bounds().cloned()
    }
}
