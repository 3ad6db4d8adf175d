//! Settings of few-shot reference detection and of its model.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Few-shot reference detection: detect a class that does not occur in training in the frames of a video, given a few reference
/// images of it. If the data holds out no class, it is an ordinary detector: all classes are trained on, each with a learned
/// prototype, and detected in other images. Detection episodes alternate with triplet batches on the embeddings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FewshotDetection {
    /// Classes in one episode.
    #[schemars(range(min = 1, max = 64))]
    pub n_way: usize,
    /// Reference images of each class in one episode.
    #[schemars(range(min = 1, max = 64))]
    pub n_shot: usize,
    /// Query frames of each class in one episode.
    #[schemars(range(min = 1, max = 256))]
    pub n_query: usize,
    /// Augmented views of each reference image whose embeddings are averaged into the prototype.
    #[schemars(range(min = 1, max = 64))]
    pub augmentations: usize,
    /// Derive the number of episodes in an epoch from the data: its training frames over `n_way * n_query`.
    pub auto_episodes: bool,
    /// Episodes in an epoch when `auto_episodes = false`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000_000))]
    pub episodes: Option<u64>,
    /// Fraction of steps that are triplet steps.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub triplet_ratio: f64,
    /// Triplets in one triplet batch, three images each. Images of 640 pixels in batches of 64 need 8 GB of GPU memory.
    #[schemars(range(min = 1, max = 4096))]
    pub triplet_batch_size: usize,
    /// Selection of the triplets of a triplet batch.
    pub triplet_mining: TripletMining,
    /// Margin of the triplet loss, as cosine distance.
    #[schemars(range(min = 0.0, max = 2.0))]
    pub triplet_margin: f64,
    /// Weight of the triplet loss.
    #[schemars(range(min = 0.0, max = 1e3))]
    pub triplet_weight: f64,
    /// Weight of the objectness term of the detection loss.
    #[schemars(range(min = 0.0, max = 1e3))]
    pub objectness_weight: f64,
    /// Weight of the class term of the detection loss.
    #[schemars(range(min = 0.0, max = 1e3))]
    pub similarity_weight: f64,
    /// Weight of the box term of the detection loss.
    #[schemars(range(min = 0.0, max = 1e3))]
    pub box_weight: f64,
    /// Loss of the boxes.
    pub box_loss: BoxLoss,
    /// Exponent of the focal loss on objectness; 0 is cross-entropy (Lin et al. 2017).
    #[schemars(range(min = 0.0, max = 10.0))]
    pub focal_gamma: f64,
    /// Weight of positives in the focal loss; that of negatives is 1 minus this.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub focal_alpha: f64,
    /// Side in pixels of the square that query frames are scaled to fit, with padding; a multiple of 16. The model has
    /// levels of strides 8 and 16 up to 256 pixels, and one more with each doubling.
    #[schemars(range(min = 32, max = 2048))]
    pub image_size: usize,
    /// Side in pixels to which reference crops are scaled; a multiple of 16.
    #[schemars(range(min = 16, max = 1024))]
    pub reference_size: usize,
    /// Minimum score of a detection.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub score_threshold: f64,
    /// Maximum IoU of two detections of a class; of two that overlap more, the one with the lower score is dropped.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub nms_iou: f64,
    /// Maximum number of detections of a class in a frame (100 in COCO).
    #[schemars(range(min = 1, max = 1000))]
    pub detections_per_frame: usize,
    /// Maximum number of detections of one validation, 52 bytes each (100,000 need 5.0 MiB). Those with the lowest scores are
    /// dropped; `validation_predictions_left_out` in the result counts them.
    #[schemars(range(min = 100, max = 100_000_000))]
    pub validation_predictions: usize,
    /// Minimum score with which the best detection of a frame counts in ST-IoU.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub presence_threshold: f64,
    /// Fraction of the images of each class that is validated on if no class is held out and the data set has no validation part.
    /// Frames of a video stay together.
    #[schemars(range(min = 0.01, max = 0.9))]
    pub validation_fraction: f64,
    /// Write the detections of the last validation to `detections.json` and the true boxes to `ground_truth.json`, in
    /// COCO's format: about 150 bytes per detection.
    pub save_detections: bool,
}

impl Default for FewshotDetection {
    fn default() -> Self {
        Self {
            n_way: 4,
            n_shot: 1,
            n_query: 8,
            augmentations: 5,
            auto_episodes: true,
            episodes: None,
            triplet_ratio: 0.3,
            triplet_batch_size: 8,
            triplet_mining: TripletMining::BatchHard,
            triplet_margin: 0.3,
            triplet_weight: 1.0,
            objectness_weight: 1.0,
            similarity_weight: 1.0,
            box_weight: 2.0,
            box_loss: BoxLoss::Ciou,
            focal_gamma: 2.0,
            focal_alpha: 0.25,
            image_size: 96,
            reference_size: 48,
            score_threshold: 0.05,
            nms_iou: 0.5,
            detections_per_frame: 100,
            validation_predictions: 100_000,
            presence_threshold: 0.3,
            validation_fraction: 0.2,
            save_detections: true,
        }
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

/// Convolutional backbone with a feature pyramid (strides 8 and 16, and coarser ones for an `image_size` above 256), a reference
/// encoder that shares it, and a dense head conditioned on class prototypes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ReferenceDetector {
    /// Channels of each of the four stages of stride 2; multiples of `norm_groups`.
    #[schemars(length(min = 4, max = 4), inner(range(min = 4, max = 4096)))]
    pub channels: Vec<usize>,
    /// Residual blocks in each stage after the block of stride 2.
    #[schemars(range(min = 0, max = 64))]
    pub blocks_per_stage: usize,
    /// Channels of the pyramid and of the head; a multiple of `norm_groups`.
    #[schemars(range(min = 4, max = 4096))]
    pub pyramid_channels: usize,
    /// Convolutions in the head's tower.
    #[schemars(range(min = 1, max = 8))]
    pub head_depth: usize,
    /// Length of an embedding.
    #[schemars(range(min = 2, max = 4096))]
    pub embedding_size: usize,
    /// Groups of the group normalisation (Wu and He 2018), which unlike batch normalisation has no running statistics and does
    /// not depend on how a batch is split.
    #[schemars(range(min = 1, max = 256))]
    pub norm_groups: usize,
}

impl Default for ReferenceDetector {
    fn default() -> Self {
        Self {
            channels: vec![16, 32, 64, 96],
            blocks_per_stage: 0,
            pyramid_channels: 64,
            head_depth: 1,
            embedding_size: 48,
            norm_groups: 8,
        }
    }
}
