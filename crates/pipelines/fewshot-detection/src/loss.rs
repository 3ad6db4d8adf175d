//! Detection loss.
//!
//! Objectness: focal loss over all cells (Lin et al. 2017). Class: cross-entropy of each way over the cells with an object. Box: CIoU
//! or GIoU over the same cells. Each term is a sum; a step divides by the number of such cells in all its batches, so that splitting
//! batches does not change the gradients.

use burn::tensor::Device;

use super::assignment::{GridCell, Targets};
use super::network::Dense;
use super::settings::{BoxLoss, FewshotDetection};
use xrun_training::nn::Tensor;
use xrun_training::nn::box_loss::{ciou_loss, giou_loss};
use xrun_training::nn::focal_loss::{cross_entropy, focal_loss};
use xrun_training::nn::pixels::tensor;

/// Weighted terms of the loss, of objectness, class and box: each a sum over cells, `[1]`.
#[derive(Clone, Debug)]
pub struct DetectionLoss(pub [Tensor<1>; 3]);

/// Centres of the cells as x, y, x, y, `[1, cells, 4]`: the origins of sides.
pub fn centres(cells: &[GridCell], device: &Device) -> Tensor<3> {
    let values: Vec<f32> = cells.iter().flat_map(|cell| [cell.x, cell.y, cell.x, cell.y]).collect();
    tensor(values, [1, cells.len(), 4], device)
}

/// Converts sides `[n, cells, 4]` to boxes `[n * cells, 4]` as left, top, right, bottom.
fn boxes(sides: Tensor<3>, centres: &Tensor<3>) -> Tensor<2> {
    let [count, cells, _] = sides.dims();
    let signs = Tensor::<3>::from_floats([[[-1.0, -1.0, 1.0, 1.0]]], &sides.device());
    (sides * signs + centres.clone()).reshape([count * cells, 4])
}

/// Loss of query frames. `similarity` are logits, `[n, cells, ways]`.
pub fn detection_loss(
    settings: &FewshotDetection,
    dense: Dense,
    similarity: Tensor<3>,
    targets: Targets,
    centres: &Tensor<3>,
) -> DetectionLoss {
    let [count, cells, ways] = similarity.dims();
    let device = similarity.device();
    let mut one_hot = vec![0.0f32; count * cells * ways];
    for (cell, class) in targets.class.iter().enumerate() {
        if let Ok(way) = usize::try_from(*class) {
            one_hot[cell * ways + way] = 1.0;
        }
    }
    let objectness = tensor(targets.objectness, [count, cells], &device);
    let weight = tensor(targets.weight, [count, cells], &device);
    let one_hot = tensor(one_hot, [count, cells, ways], &device);
    let sides = tensor(targets.sides, [count, cells, 4], &device);
    let focal = focal_loss(dense.object, objectness.clone(), settings.focal_gamma, Some(settings.focal_alpha));
    // A cell whose object is of none of the ways is a negative of all.
    let class = cross_entropy(similarity, one_hot) * objectness.clone().unsqueeze_dim::<3>(2);
    let loss_of_boxes = match settings.box_loss {
        BoxLoss::Ciou => ciou_loss,
        BoxLoss::Giou => giou_loss,
    };
    let box_loss =
        loss_of_boxes(boxes(dense.sides, centres), boxes(sides, centres)) * objectness.reshape([count * cells]);
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
