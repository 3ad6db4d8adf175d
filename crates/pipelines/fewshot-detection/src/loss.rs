//! Detection loss.
//!
//! Objectness: focal loss over all cells (Lin et al. 2017). Class: cross-entropy of each way over the cells with an object. Box: CIoU
//! or GIoU over the same cells. Each term is a sum; a step divides by the number of such cells in all its batches, so that splitting
//! batches does not change the gradients.

use burn::tensor::{Device, TensorData};

use super::assignment::{GridCell, Targets};
use super::network::Dense;
use super::settings::{BoxLoss, FewshotDetection};
use xrun_ops::{ciou_loss, giou_loss};
use xrun_training::nn::Tensor;
use xrun_training::nn::captured::Inputs;
use xrun_training::nn::focal_loss::{cross_entropy, focal_loss};
use xrun_training::nn::pixels::tensor;

/// Weighted terms of the loss, of objectness, class and box: each a sum over cells, `[1]`.
#[derive(Clone, Debug)]
pub struct DetectionLoss(pub [Tensor<1>; 3]);

/// Constants that convert sides to boxes.
#[derive(Clone, Debug)]
pub struct Origins {
    /// Centres of the cells as x, y, x, y, `[1, cells, 4]`: the origins of sides.
    centres: Tensor<3>,
    /// Directions of the sides, `[1, 1, 4]`.
    signs: Tensor<3>,
}

impl Origins {
    /// Constants on a device.
    pub fn new(cells: &[GridCell], device: &Device) -> Self {
        let centres: Vec<f32> = cells.iter().flat_map(|cell| [cell.x, cell.y, cell.x, cell.y]).collect();
        let centres = tensor(centres, [1, cells.len(), 4], device);
        Self { centres, signs: Tensor::from_floats([[[-1.0, -1.0, 1.0, 1.0]]], device) }
    }

    /// Converts sides `[n, cells, 4]` to boxes `[n * cells, 4]` as left, top, right, bottom.
    fn boxes(&self, sides: Tensor<3>) -> Tensor<2> {
        let [count, cells, _] = sides.dims();
        (sides * self.signs.clone() + self.centres.clone()).reshape([count * cells, 4])
    }
}

/// Number of [`target_data`].
pub const TARGETS: usize = 4;

/// Values of the targets of `count` frames with `ways` classes: objectness, weights, one-hot classes, sides.
pub fn target_data(targets: Targets, count: usize, ways: usize) -> [TensorData; TARGETS] {
    let cells = targets.objectness.len() / count;
    let mut one_hot = vec![0.0f32; count * cells * ways];
    for (cell, class) in targets.class.iter().enumerate() {
        if let Ok(way) = usize::try_from(*class) {
            one_hot[cell * ways + way] = 1.0;
        }
    }
    [
        TensorData::new(targets.objectness, [count, cells]),
        TensorData::new(targets.weight, [count, cells]),
        TensorData::new(one_hot, [count, cells, ways]),
        TensorData::new(targets.sides, [count, cells, 4]),
    ]
}

/// Loss of query frames. `similarity` are logits, `[n, cells, ways]`; `targets` are those of [`target_data`].
pub fn detection_loss(
    settings: &FewshotDetection,
    dense: Dense,
    similarity: Tensor<3>,
    targets: &mut Inputs<'_>,
    origins: &Origins,
) -> DetectionLoss {
    let [count, cells, _] = similarity.dims();
    let (objectness, weight) = (targets.floats::<2>(), targets.floats::<2>());
    let (one_hot, sides) = (targets.floats::<3>(), targets.floats::<3>());
    let focal = focal_loss(dense.object, objectness.clone(), settings.focal_gamma, Some(settings.focal_alpha));
    // A cell whose object is of none of the ways is a negative of all.
    let class = cross_entropy(similarity, one_hot) * objectness.clone().unsqueeze_dim::<3>(2);
    let loss_of_boxes = match settings.box_loss {
        BoxLoss::Ciou => ciou_loss,
        BoxLoss::Giou => giou_loss,
    };
    let box_loss =
        loss_of_boxes(origins.boxes(dense.sides), origins.boxes(sides)) * objectness.reshape([count * cells]);
    let weighted = |sum: Tensor<1>, weight: f64| sum.mul_scalar(weight as f32);
    DetectionLoss([
        weighted((focal * weight).sum(), settings.objectness_weight),
        weighted(class.sum(), settings.similarity_weight),
        weighted(box_loss.sum(), settings.box_weight),
    ])
}

impl DetectionLoss {
    /// Sum of the terms, with its graph.
    pub fn total(&self) -> Tensor<1> {
        let [objectness, class, sides] = self.0.clone();
        objectness + class + sides
    }
}
