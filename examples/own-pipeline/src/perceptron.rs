//! `[model.perceptron]`: perceptron with one hidden layer.

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::activation::relu;
use burn::tensor::{Device, Tensor};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use xrun::experiment::pipeline::ModelKind;
use xrun::settings::backbone::BackboneUse;
use xrun::settings::variant::Kind;

/// Name of the model.
pub const NAME: &str = "perceptron";

/// Perceptron with one hidden layer and ReLU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Perceptron {
    /// Width of the hidden layer.
    #[schemars(range(min = 1, max = 65536))]
    pub hidden: usize,
}

impl Default for Perceptron {
    fn default() -> Self {
        Self { hidden: 16 }
    }
}

impl ModelKind for Perceptron {
    fn kind() -> &'static Kind<dyn ModelKind> {
        const { &Kind::<dyn ModelKind>::new::<Self>(NAME, BackboneUse::None) }
    }
}

/// Network with one output.
#[derive(Module, Debug)]
pub struct Network {
    hidden: Linear,
    output: Linear,
}

impl Network {
    /// Creates the network for a number of inputs.
    pub fn new(inputs: usize, settings: &Perceptron, device: &Device) -> Self {
        Self {
            hidden: LinearConfig::new(inputs, settings.hidden).init(device),
            output: LinearConfig::new(settings.hidden, 1).init(device),
        }
    }

    /// Predicts the target `[rows]` from inputs `[rows, inputs]`.
    pub fn forward(&self, inputs: Tensor<2>) -> Tensor<1> {
        let rows = inputs.dims()[0];
        self.output.forward(relu(self.hidden.forward(inputs))).reshape([rows])
    }
}
