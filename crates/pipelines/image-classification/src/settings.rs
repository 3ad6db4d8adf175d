//! Settings of image classification and of its network.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use xrun_core::settings;

settings! {
    /// Image classification: the class of an image is that of its largest box, or of its directory.
    pub struct ImageClassification {
        /// Side in pixels of the square that images are scaled to fit, with padding.
        #[schemars(range(min = 8, max = 1024))]
        pub image_size: usize = 64,
        /// Mirror half of the training images horizontally.
        pub flip: bool = true,
        /// Minimum fraction of the area of a training image that a random crop keeps; 1 disables cropping.
        #[schemars(range(min = 0.05, max = 1.0))]
        pub crop: f64 = 0.6,
        /// Fraction of the images of each class that is held out if the data set has no validation part. Frames of a video stay
        /// together.
        #[schemars(range(min = 0.01, max = 0.9))]
        pub validation_fraction: f64 = 0.2,
    }
}

/// Linear layer on the mean of a backbone's feature map, or on the class token of `[backbone.vit]` (beside the mean, of DINOv2), trained
/// with it or alone (a linear probe).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LinearClassifier {}

settings! {
    /// Small residual network (He et al. 2016) with group normalisation: stages of residual blocks, each but the first with a
    /// convolution of stride 2 before them, then global average pooling and a linear layer.
    pub struct ResNet {
        /// Channels of each stage, multiples of `norm_groups`.
        #[schemars(length(min = 1, max = 8), inner(range(min = 1, max = 4096)))]
        pub channels: Vec<usize> = vec![16, 32, 64, 128],
        /// Number of residual blocks of two convolutions in each stage.
        #[schemars(range(min = 0, max = 64))]
        pub blocks: usize = 1,
        /// Number of groups of the group normalisation (Wu and He 2018), which has no running statistics.
        #[schemars(range(min = 1, max = 256))]
        pub norm_groups: usize = 8,
    }
}
