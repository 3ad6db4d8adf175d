//! Settings of few-shot reference detection and of its model.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use xrun_core::settings;

settings! {
    /// Few-shot reference detection: detect a class that does not occur in training in the frames of a video, given a few reference
    /// images of it. If the data holds out no class, it is an ordinary detector: all classes are trained on, each with a learned
    /// prototype, and detected in other images. Detection episodes alternate with triplet batches on the embeddings.
    pub struct FewshotDetection {
        /// Classes in one episode.
        #[schemars(range(min = 1, max = 64))]
        pub n_way: usize = 4,
        /// Reference images of each class in one episode.
        #[schemars(range(min = 1, max = 64))]
        pub n_shot: usize = 1,
        /// Query frames of each class in one episode.
        #[schemars(range(min = 1, max = 256))]
        pub n_query: usize = 8,
        /// Augmented views of each reference image whose embeddings are averaged into the prototype.
        #[schemars(range(min = 1, max = 64))]
        pub augmentations: usize = 5,
        /// Derive the number of episodes in an epoch from the data: its training frames over `n_way * n_query`.
        pub auto_episodes: bool = true,
        /// Episodes in an epoch when `auto_episodes = false`.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(range(min = 1, max = 10_000_000))]
        pub episodes: Option<u64> = None,
        /// Fraction of steps that are triplet steps.
        #[schemars(range(min = 0.0, max = 1.0))]
        pub triplet_ratio: f64 = 0.3,
        /// Triplets in one triplet batch, three images each. Images of 640 pixels in batches of 64 need 8 GB of GPU memory.
        #[schemars(range(min = 1, max = 4096))]
        pub triplet_batch_size: usize = 8,
        /// Selection of the triplets of a triplet batch.
        pub triplet_mining: TripletMining = TripletMining::BatchHard,
        /// Margin of the triplet loss, as cosine distance.
        #[schemars(range(min = 0.0, max = 2.0))]
        pub triplet_margin: f64 = 0.3,
        /// Weight of the triplet loss.
        #[schemars(range(min = 0.0, max = 1e3))]
        pub triplet_weight: f64 = 1.0,
        /// Weight of the objectness term of the detection loss.
        #[schemars(range(min = 0.0, max = 1e3))]
        pub objectness_weight: f64 = 1.0,
        /// Weight of the class term of the detection loss.
        #[schemars(range(min = 0.0, max = 1e3))]
        pub similarity_weight: f64 = 1.0,
        /// Weight of the box term of the detection loss.
        #[schemars(range(min = 0.0, max = 1e3))]
        pub box_weight: f64 = 2.0,
        /// Loss of the boxes.
        pub box_loss: BoxLoss = BoxLoss::Ciou,
        /// Exponent of the focal loss on objectness; 0 is cross-entropy (Lin et al. 2017).
        #[schemars(range(min = 0.0, max = 10.0))]
        pub focal_gamma: f64 = 2.0,
        /// Weight of positives in the focal loss; that of negatives is 1 minus this.
        #[schemars(range(min = 0.0, max = 1.0))]
        pub focal_alpha: f64 = 0.25,
        /// Side in pixels of the square that query frames are scaled to fit, with padding; a multiple of 16. The model has
        /// levels of strides 8 and 16 up to 256 pixels, and one more with each doubling.
        #[schemars(range(min = 32, max = 2048))]
        pub image_size: usize = 96,
        /// Side in pixels to which reference crops are scaled; a multiple of 16.
        #[schemars(range(min = 16, max = 1024))]
        pub reference_size: usize = 48,
        /// Minimum score of a detection.
        #[schemars(range(min = 0.0, max = 1.0))]
        pub score_threshold: f64 = 0.05,
        /// Maximum IoU of two detections of a class; of two that overlap more, the one with the lower score is dropped.
        #[schemars(range(min = 0.0, max = 1.0))]
        pub nms_iou: f64 = 0.5,
        /// Maximum number of detections of a class in a frame (100 in COCO).
        #[schemars(range(min = 1, max = 1000))]
        pub detections_per_frame: usize = 100,
        /// Maximum number of detections of one validation, 52 bytes each (100,000 need 5.0 MiB). Those with the lowest scores are
        /// dropped; `validation_predictions_left_out` in the result counts them.
        #[schemars(range(min = 100, max = 100_000_000))]
        pub validation_predictions: usize = 100_000,
        /// Minimum score with which the best detection of a frame counts in ST-IoU.
        #[schemars(range(min = 0.0, max = 1.0))]
        pub presence_threshold: f64 = 0.3,
        /// Fraction of the images of each class that is validated on if no class is held out and the data set has no validation part.
        /// Frames of a video stay together.
        #[schemars(range(min = 0.01, max = 0.9))]
        pub validation_fraction: f64 = 0.2,
        /// Write the detections of the last validation to `detections.json` and the true boxes to `ground_truth.json`, in
        /// COCO's format: about 150 bytes per detection.
        pub save_detections: bool = true,
    }
}

/// Selection of the triplets of a triplet batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TripletMining {
    /// The random triplets: anchor, positive, negative.
    Given,
    /// For each image of the batch the farthest of its class and the nearest of another (Hermans et al. 2017).
    BatchHard,
}

/// Loss of a box against the true one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BoxLoss {
    /// Complete IoU: overlap, distance of centres, aspect ratio (Zheng et al. 2020).
    Ciou,
    /// Generalised IoU (Rezatofighi et al. 2019).
    Giou,
}

settings! {
    /// Convolutional backbone with a feature pyramid (strides 8 and 16, and coarser ones for an `image_size` above 256), a reference
    /// encoder that shares it, and a dense head conditioned on class prototypes.
    pub struct ReferenceDetector {
        /// Channels of each of the four stages of stride 2; multiples of `norm_groups`.
        #[schemars(length(min = 4, max = 4), inner(range(min = 4, max = 4096)))]
        pub channels: Vec<usize> = vec![16, 32, 64, 96],
        /// Residual blocks in each stage after the block of stride 2.
        #[schemars(range(min = 0, max = 64))]
        pub blocks_per_stage: usize = 0,
        /// Channels of the pyramid and of the head; a multiple of `norm_groups`.
        #[schemars(range(min = 4, max = 4096))]
        pub pyramid_channels: usize = 64,
        /// Convolutions in the head's tower.
        #[schemars(range(min = 1, max = 8))]
        pub head_depth: usize = 1,
        /// Length of an embedding.
        #[schemars(range(min = 2, max = 4096))]
        pub embedding_size: usize = 48,
        /// Groups of the group normalisation (Wu and He 2018), which unlike batch normalisation has no running statistics and does
        /// not depend on how a batch is split.
        #[schemars(range(min = 1, max = 256))]
        pub norm_groups: usize = 8,
    }
}
