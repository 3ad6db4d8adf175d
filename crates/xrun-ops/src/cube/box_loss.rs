//! Losses of boxes and their gradients: one unit a box. Names of edges with `true_` are those of the true box.

use std::f32::consts::PI;

use burn::tensor::Tensor;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::{UNITS, cubes, empty, inner_memory, launch, unary};
use crate::box_loss::EPSILON;
use crate::operation::Operation;

/// Returns the CIoU loss, or else the GIoU loss, of boxes `[n, 4]`, `[n]`. The true boxes are constants.
pub fn box_loss(predicted: Tensor<2>, truth: Tensor<2>, is_ciou: bool) -> Tensor<1> {
    let truth = if truth.is_autodiff() { truth.inner() } else { truth };
    unary(BoxLoss { truth: inner_memory(truth), is_ciou }, (predicted,))
}

#[derive(Clone, Debug)]
struct BoxLoss {
    truth: CubeTensor,
    is_ciou: bool,
}

impl BoxLoss {
    fn launch(&self, predicted: &CubeTensor, gradient: Option<CubeTensor>, output: CubeTensor) -> CubeTensor {
        let count = predicted.meta.num_elements() / 4;
        let has_gradient = gradient.is_some();
        launch!(
            kernel,
            cubes(count.div_ceil(UNITS as usize)),
            [predicted, self.truth, gradient.unwrap_or_else(|| predicted.clone()), output],
            [count as u32, self.is_ciou, has_gradient]
        );
        output
    }
}

impl Operation<CubeTensor, 1> for BoxLoss {
    /// Boxes.
    type Saved = CubeTensor;

    fn forward(&self, [predicted]: [CubeTensor; 1], save: bool) -> (CubeTensor, Option<CubeTensor>) {
        let predicted = into_contiguous(predicted);
        let output = empty(&predicted, [predicted.meta.num_elements() / 4]);
        (self.launch(&predicted, None, output), save.then_some(predicted))
    }

    fn backward(&self, predicted: CubeTensor, gradient: CubeTensor, _: [bool; 1]) -> [Option<CubeTensor>; 1] {
        let output = empty(&predicted, predicted.meta.shape().clone());
        [Some(self.launch(&predicted, Some(gradient), output))]
    }
}

/// 1 if `condition`, else 0.
#[cube]
fn indicator(condition: bool) -> f32 {
    select(condition, 1.0f32, 0.0f32)
}

#[cube(launch)]
fn kernel(
    predicted: &[f32],
    truth: &[f32],
    gradient: &[f32],
    output: &mut [f32],
    count: u32,
    #[comptime] is_ciou: bool,
    #[comptime] has_gradient: bool,
) {
    if ABSOLUTE_POS < count as usize {
        let at = ABSOLUTE_POS * 4;
        let (left, top) = (predicted[at], predicted[at + 1]);
        let (right, bottom) = (predicted[at + 2], predicted[at + 3]);
        let (true_left, true_top) = (truth[at], truth[at + 1]);
        let (true_right, true_bottom) = (truth[at + 2], truth[at + 3]);
        let (width, height) = (right - left, bottom - top);
        let (true_width, true_height) = (true_right - true_left, true_bottom - true_top);
        let inner_width = min(right, true_right) - max(left, true_left);
        let inner_height = min(bottom, true_bottom) - max(top, true_top);
        let (overlap_width, overlap_height) = (max(inner_width, 0.0f32), max(inner_height, 0.0f32));
        let intersection = overlap_width * overlap_height;
        let both = width * height + true_width * true_height - intersection;
        let divisor = both + EPSILON;
        let iou = intersection / divisor;
        let outer_width = max(right, true_right) - min(left, true_left);
        let outer_height = max(bottom, true_bottom) - min(top, true_top);
        // CIoU.
        let diagonal = outer_width * outer_width + outer_height * outer_height + EPSILON;
        let dx = left + right - true_left - true_right;
        let dy = top + bottom - true_top - true_bottom;
        let distance = (dx * dx + dy * dy) * 0.25f32 / diagonal;
        let tangent = width / (height + EPSILON);
        let angle = (true_width / (true_height + EPSILON)).atan() - tangent.atan();
        let aspect = angle * angle * (4.0f32 / (PI * PI));
        let trade_off = aspect / (1.0f32 - iou + aspect + EPSILON);
        // GIoU.
        let area = outer_width * outer_height;
        if comptime![!has_gradient] {
            let mut loss = 1.0f32 - iou;
            if comptime![is_ciou] {
                loss += distance + trade_off * aspect;
            } else {
                loss += (area - both) / (area + EPSILON);
            }
            output[ABSOLUTE_POS] = loss;
        } else {
            // Derivatives of the loss by intersection and area of the box.
            let mut by_intersection = -(1.0f32 / divisor + iou / divisor);
            let by_area = iou / divisor;
            // Half the derivatives by the sums of opposite edges, and those by the sizes of the enclosing box and of the box.
            let mut by_x = 0.0f32;
            let mut by_y = 0.0f32;
            let by_outer = 1.0f32 / (area + EPSILON) - (area - both) / ((area + EPSILON) * (area + EPSILON));
            let mut by_outer_width = by_outer * outer_height;
            let mut by_outer_height = by_outer * outer_width;
            let mut by_width = by_area * height;
            let mut by_height = by_area * width;
            if comptime![is_ciou] {
                by_x = 0.5f32 * dx / diagonal;
                by_y = 0.5f32 * dy / diagonal;
                by_outer_width = -2.0f32 * distance / diagonal * outer_width;
                by_outer_height = -2.0f32 * distance / diagonal * outer_height;
                let by_tangent = -trade_off * angle * (8.0f32 / (PI * PI)) / (1.0f32 + tangent * tangent);
                by_width += by_tangent / (height + EPSILON);
                by_height -= by_tangent * tangent / (height + EPSILON);
            } else {
                by_intersection += 1.0f32 / (area + EPSILON);
                by_width -= height / (area + EPSILON);
                by_height -= width / (area + EPSILON);
            }
            let by_overlap_width = by_intersection * overlap_height * indicator(inner_width > 0.0f32);
            let by_overlap_height = by_intersection * overlap_width * indicator(inner_height > 0.0f32);
            let upstream = gradient[ABSOLUTE_POS];
            let inner_left = indicator(left > true_left);
            let inner_top = indicator(top > true_top);
            let inner_right = indicator(right < true_right);
            let inner_bottom = indicator(bottom < true_bottom);
            let by_left = by_overlap_width * inner_left + by_outer_width * (1.0f32 - inner_left) + by_width;
            let by_top = by_overlap_height * inner_top + by_outer_height * (1.0f32 - inner_top) + by_height;
            let by_right = by_overlap_width * inner_right + by_outer_width * (1.0f32 - inner_right) + by_width;
            let by_bottom = by_overlap_height * inner_bottom + by_outer_height * (1.0f32 - inner_bottom) + by_height;
            output[at] = upstream * (by_x - by_left);
            output[at + 1] = upstream * (by_y - by_top);
            output[at + 2] = upstream * (by_x + by_right);
            output[at + 3] = upstream * (by_y + by_bottom);
        }
    }
}
