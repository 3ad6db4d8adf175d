//! Settings of image classification and of its network.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Image classification: the class of a picture is that of its largest box, or the folder that it is in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Pictures are scaled to fit a square of this side, in pixels, and padded.
    #[schemars(range(min = 8, max = 1024))]
    pub image_size: usize,
    /// Mirror half of the training pictures left to right.
    pub flip: bool,
    /// The smallest share of a training picture's area that is cut out of it, at another place each time; 1 leaves pictures
    /// whole.
    #[schemars(range(min = 0.05, max = 1.0))]
    pub crop: f64,
    /// The share of each class's pictures that is held out, where the data set has no part of its own to validate on. Frames of
    /// a video stay together.
    #[schemars(range(min = 0.01, max = 0.9))]
    pub validation_share: f64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { image_size: 64, flip: true, crop: 0.6, validation_share: 0.2 }
    }
}

/// A small residual network (He et al. 2016) with group normalisation: stages of residual blocks, each but the first begun by a
/// convolution that halves, then the mean over the picture and a linear layer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Model {
    /// Channels of each stage, multiples of `norm_groups`.
    #[schemars(length(min = 1, max = 8), inner(range(min = 1, max = 4096)))]
    pub channels: Vec<usize>,
    /// Residual blocks of two convolutions in each stage.
    #[schemars(range(min = 0, max = 64))]
    pub blocks: usize,
    /// Groups of the group normalisation (Wu and He 2018), which keeps no statistics between steps.
    #[schemars(range(min = 1, max = 256))]
    pub norm_groups: usize,
}

impl Default for Model {
    fn default() -> Self {
        Self { channels: vec![16, 32, 64, 128], blocks: 1, norm_groups: 8 }
    }
}
