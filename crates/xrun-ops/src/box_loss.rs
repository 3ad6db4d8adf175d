//! Bounding box losses from intersection over union, independent of the size of the image.

use std::f32::consts::PI;

use burn::tensor::Tensor;

use crate::cube::on_cube;

/// Keeps divisions finite for boxes without area.
pub(crate) const EPSILON: f32 = 1e-7;

/// Edges of boxes, each `[n]`.
#[derive(Clone, Debug)]
struct Edges {
    left: Tensor<1>,
    top: Tensor<1>,
    right: Tensor<1>,
    bottom: Tensor<1>,
}

impl Edges {
    fn new(boxes: Tensor<2>) -> Self {
        let column = |number: usize| boxes.clone().narrow(1, number, 1).squeeze_dim::<1>(1);
        Self { left: column(0), top: column(1), right: column(2), bottom: column(3) }
    }

    fn width(&self) -> Tensor<1> {
        self.right.clone() - self.left.clone()
    }

    fn height(&self) -> Tensor<1> {
        self.bottom.clone() - self.top.clone()
    }

    fn area(&self) -> Tensor<1> {
        self.width() * self.height()
    }
}

/// IoU, area of the union, and smallest enclosing box.
fn iou_and_enclosing(one: &Edges, other: &Edges) -> (Tensor<1>, Tensor<1>, Edges) {
    let max = |a: &Tensor<1>, b: &Tensor<1>| a.clone().max_pair(b.clone());
    let min = |a: &Tensor<1>, b: &Tensor<1>| a.clone().min_pair(b.clone());
    let width = min(&one.right, &other.right) - max(&one.left, &other.left);
    let height = min(&one.bottom, &other.bottom) - max(&one.top, &other.top);
    let intersection = width.clamp_min(0.0) * height.clamp_min(0.0);
    let union = one.area() + other.area() - intersection.clone();
    let enclosing = Edges {
        left: min(&one.left, &other.left),
        top: min(&one.top, &other.top),
        right: max(&one.right, &other.right),
        bottom: max(&one.bottom, &other.bottom),
    };
    (intersection / union.clone().add_scalar(EPSILON), union, enclosing)
}

/// Loss 1 - GIoU (Rezatofighi et al. 2019) of boxes `[n, 4]` as left, top, right, bottom; returns `[n]`.
/// On a GPU the true boxes are constants.
pub fn giou_loss(predicted: Tensor<2>, truth: Tensor<2>) -> Tensor<1> {
    on_cube!(&predicted => crate::cube::box_loss(predicted, truth, false));
    let (iou, union, enclosing) = iou_and_enclosing(&Edges::new(predicted), &Edges::new(truth));
    let area = enclosing.area();
    let enclosing_penalty = (area.clone() - union) / area.add_scalar(EPSILON);
    iou.neg().add_scalar(1.0) + enclosing_penalty
}

/// Loss 1 - CIoU (Zheng et al. 2020), from overlap, distance of the centres and aspect ratio, of boxes `[n, 4]`; returns `[n]`.
/// The trade-off factor of the aspect ratio has no gradient, as in the paper. On a GPU the true boxes are constants.
pub fn ciou_loss(predicted: Tensor<2>, truth: Tensor<2>) -> Tensor<1> {
    on_cube!(&predicted => crate::cube::box_loss(predicted, truth, true));
    let (predicted, truth) = (Edges::new(predicted), Edges::new(truth));
    let (iou, _, enclosing) = iou_and_enclosing(&predicted, &truth);
    let square = |tensor: Tensor<1>| tensor.clone() * tensor;
    let diagonal = square(enclosing.width()) + square(enclosing.height());
    // Twice the distances of the centres. The names `alpha` and `v` are the paper's.
    let dx2 = predicted.left.clone() + predicted.right.clone() - truth.left.clone() - truth.right.clone();
    let dy2 = predicted.top.clone() + predicted.bottom.clone() - truth.top.clone() - truth.bottom.clone();
    let distance = (square(dx2) + square(dy2)).mul_scalar(0.25) / diagonal.add_scalar(EPSILON);
    let angle = |corners: &Edges| (corners.width() / corners.height().add_scalar(EPSILON)).atan();
    let v = square(angle(&truth) - angle(&predicted)).mul_scalar(4.0 / (PI * PI));
    let iou_loss = iou.neg().add_scalar(1.0);
    let alpha = (v.clone() / (iou_loss.clone() + v.clone()).add_scalar(EPSILON)).detach();
    iou_loss + distance + alpha * v
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;

    fn boxes<const N: usize>(values: [[f32; 4]; N]) -> Tensor<2> {
        Tensor::from_floats(values, &Device::flex())
    }

    fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
        tensor.into_data().iter().collect()
    }

    fn close(found: &[f32], expected: &[f32], tolerance: f32) {
        assert_eq!(found.len(), expected.len());
        assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() <= tolerance), "{found:?} {expected:?}");
    }

    /// By hand. Boxes 0,0..2,2 and 1,1..3,3: overlap 1, union 7, enclosing box 9: GIoU = 1/7 - 2/9. Centres 1,1 and 2,2:
    /// squared distance 2, squared diagonal 18, same aspect ratio: CIoU = 1/7 - 2/18. Boxes 0,0..1,1 and 2,0..3,1: no overlap,
    /// union 2, enclosing box 3.
    #[test]
    fn losses_match_hand_computed_cases() {
        let one = || boxes([[0.0, 0.0, 2.0, 2.0], [0.0, 0.0, 1.0, 1.0]]);
        let two = || boxes([[1.0, 1.0, 3.0, 3.0], [2.0, 0.0, 3.0, 1.0]]);
        let expected = [1.0 - (1.0 / 7.0 - 2.0 / 9.0), 1.0 + 1.0 / 3.0];
        close(&values(giou_loss(one(), two())), &expected, 1e-5);
        let expected = [1.0 - (1.0 / 7.0 - 1.0 / 9.0), 1.0 + 4.0 / 10.0];
        close(&values(ciou_loss(one(), two())), &expected, 1e-5);
        close(&values(giou_loss(one(), one()) + ciou_loss(one(), one())), &[0.0, 0.0], 1e-5);
    }

    #[test]
    fn boxes_without_area_have_finite_losses_and_gradients() {
        let flat = Tensor::<2>::from_floats([[1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 5.0]], &Device::flex().autodiff())
            .require_grad();
        let truth = Tensor::<2>::from_floats([[1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 4.0, 4.0]], &Device::flex().autodiff());
        let loss = ciou_loss(flat.clone(), truth.clone()) + giou_loss(flat.clone(), truth);
        assert!(values(loss.clone()).iter().all(|value| value.is_finite()));
        let gradients = loss.sum().backward();
        assert!(values(flat.grad(&gradients).unwrap()).iter().all(|value| value.is_finite()));
    }
}
