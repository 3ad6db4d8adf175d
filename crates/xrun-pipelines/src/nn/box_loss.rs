//! How wrong is a box? Losses from intersection over union, which do not depend on the size of the picture.

use std::f32::consts::PI;

use super::Tensor;

const TINY: f32 = 1e-7;

/// Left, top, right, bottom; each `[n]`.
#[derive(Clone, Debug)]
struct Corners {
    left: Tensor<1>,
    top: Tensor<1>,
    right: Tensor<1>,
    bottom: Tensor<1>,
}

impl Corners {
    fn of(boxes: Tensor<2>) -> Self {
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

/// What both losses need: overlap over union, the union, and the smallest box around both.
fn compare(one: &Corners, other: &Corners) -> (Tensor<1>, Tensor<1>, Corners) {
    let inner = |a: &Tensor<1>, b: &Tensor<1>| a.clone().max_pair(b.clone());
    let outer = |a: &Tensor<1>, b: &Tensor<1>| a.clone().min_pair(b.clone());
    let width = outer(&one.right, &other.right) - inner(&one.left, &other.left);
    let height = outer(&one.bottom, &other.bottom) - inner(&one.top, &other.top);
    let overlap = width.clamp_min(0.0) * height.clamp_min(0.0);
    let union = one.area() + other.area() - overlap.clone();
    let around = Corners {
        left: outer(&one.left, &other.left),
        top: outer(&one.top, &other.top),
        right: inner(&one.right, &other.right),
        bottom: inner(&one.bottom, &other.bottom),
    };
    (overlap / union.clone().add_scalar(TINY), union, around)
}

/// 1 - GIoU (Rezatofighi et al. 2019). Boxes `[n, 4]` as left, top, right, bottom; returns `[n]`.
pub fn giou_loss(predicted: Tensor<2>, truth: Tensor<2>) -> Tensor<1> {
    let (iou, union, around) = compare(&Corners::of(predicted), &Corners::of(truth));
    let area = around.area();
    let waste = (area.clone() - union) / area.add_scalar(TINY);
    iou.neg().add_scalar(1.0) + waste
}

/// 1 - CIoU (Zheng et al. 2020): overlap, distance of the centres, aspect ratio. `[n, 4]` to `[n]`. The trade-off factor
/// of the aspect ratio has no gradient, as in the paper.
pub fn ciou_loss(predicted: Tensor<2>, truth: Tensor<2>) -> Tensor<1> {
    let (predicted, truth) = (Corners::of(predicted), Corners::of(truth));
    let (iou, _, around) = compare(&predicted, &truth);
    let square = |tensor: Tensor<1>| tensor.clone() * tensor;
    let diagonal = square(around.width()) + square(around.height());
    // Twice the distance of the centres, in each direction.
    let across = predicted.left.clone() + predicted.right.clone() - truth.left.clone() - truth.right.clone();
    let down = predicted.top.clone() + predicted.bottom.clone() - truth.top.clone() - truth.bottom.clone();
    let distance = (square(across) + square(down)).mul_scalar(0.25) / diagonal.add_scalar(TINY);
    let angle = |corners: &Corners| (corners.width() / corners.height().add_scalar(TINY)).atan();
    let aspect = square(angle(&truth) - angle(&predicted)).mul_scalar(4.0 / (PI * PI));
    let miss = iou.clone().neg().add_scalar(1.0);
    let factor = (aspect.clone() / (miss.clone() + aspect.clone()).add_scalar(TINY)).detach();
    miss + distance + aspect * factor
}

#[cfg(test)]
mod tests {
    use super::super::tests::{autodiff, close, plain, values};
    use super::*;

    fn boxes<const N: usize>(values: [[f32; 4]; N]) -> Tensor<2> {
        Tensor::from_floats(values, &plain())
    }

    #[test]
    fn the_same_box_costs_nothing() {
        let one = || boxes([[1.0, 2.0, 5.0, 9.0]]);
        close(&values(giou_loss(one(), one())), &[0.0], 1e-5);
        close(&values(ciou_loss(one(), one())), &[0.0], 1e-5);
    }

    /// By hand. Boxes 0,0..2,2 and 1,1..3,3: overlap 1, union 7, around 9: GIoU = 1/7 - 2/9. Centres 1,1 and 2,2:
    /// distance 2, diagonal 18, same aspect: CIoU = 1/7 - 2/18. Boxes 0,0..1,1 and 2,0..3,1: no overlap, union 2, around 3.
    #[test]
    fn hand_computed_cases() {
        let one = || boxes([[0.0, 0.0, 2.0, 2.0], [0.0, 0.0, 1.0, 1.0]]);
        let two = || boxes([[1.0, 1.0, 3.0, 3.0], [2.0, 0.0, 3.0, 1.0]]);
        let expected = [1.0 - (1.0 / 7.0 - 2.0 / 9.0), 1.0 + 1.0 / 3.0];
        close(&values(giou_loss(one(), two())), &expected, 1e-5);
        let expected = [1.0 - (1.0 / 7.0 - 1.0 / 9.0), 1.0 + 4.0 / 10.0];
        close(&values(ciou_loss(one(), two())), &expected, 1e-5);
    }

    #[test]
    fn boxes_without_area_have_finite_losses_and_gradients() {
        let flat = Tensor::<2>::from_floats([[1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 5.0]], &autodiff()).require_grad();
        let truth = Tensor::<2>::from_floats([[1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 4.0, 4.0]], &autodiff());
        let loss = ciou_loss(flat.clone(), truth.clone()) + giou_loss(flat.clone(), truth);
        assert!(values(loss.clone()).iter().all(|value| value.is_finite()));
        let gradients = loss.sum().backward();
        assert!(values(flat.grad(&gradients).unwrap()).iter().all(|value| value.is_finite()));
    }
}
