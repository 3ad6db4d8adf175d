//! Assignment of objects to the cells of the dense head, and the training targets of the cells.
//!
//! Centre sampling as in FCOS (Tian et al. 2019): an object is assigned to the cells whose centre is inside its box and within 1.5
//! strides of its centre along each axis. Its size determines the level. A cell that two objects claim belongs to the smaller one; an
//! object without a cell is assigned to the nearest free cell that its box touches. Sides are positive: a box that does not contain
//! the centre of that cell is extended to it. An object that touches no free cell has none, as in FCOS.

use super::batch::{QueryTruth, Role};
use xrun_core::dataset::sample::BoundingBox;

/// Strides of the levels that every pyramid has, in pixels of the square.
const STRIDES: [usize; 2] = [8, 16];
/// Maximum number of cells along a side of the coarsest level, as in FCOS with its five levels.
const COARSEST_CELLS: usize = 16;
/// An object belongs to the finest level on which its longer side is shorter than this many cells.
const LEVEL_CELLS: f32 = 6.0;
/// Radius of centre sampling in strides.
const CENTRE_RADIUS: f32 = 1.5;
/// Maximum distance in strides, along each axis, of the nearest cell from the centre of an object.
const NEAREST_RADIUS: f32 = 2.5;
/// Maximum distance in strides of the nearest cell's centre from the box: the box touches the cell.
const OUTSIDE_MAX: f32 = 0.5;
/// Minimum side of a target box in strides: a seventh of a pixel on the finest level.
const SIDE_MIN: f32 = 0.018;

/// Strides of the levels for a square of side `side`: 8 and 16 up to 256 pixels, then one more with each doubling, up to 128 at
/// 2,048 pixels.
pub fn strides(side: usize) -> Vec<usize> {
    let mut strides = STRIDES.to_vec();
    let mut coarsest = STRIDES[1];
    while COARSEST_CELLS * coarsest < side {
        coarsest *= 2;
        strides.push(coarsest);
    }
    strides
}

/// Cell of the dense head, in pixels of the square.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GridCell {
    /// Distance of the centre from the left edge.
    pub x: f32,
    /// Distance of the centre from the top edge.
    pub y: f32,
    /// Distance to the next cell.
    pub stride: f32,
}

/// All cells of a square of side `side`, a multiple of 16: levels in the order of their strides, row by row. The last cells of a
/// coarse level may extend beyond the square.
pub fn cells(side: usize) -> Vec<GridCell> {
    let level = |stride: usize| {
        let count = side.div_ceil(stride);
        let centre = move |index: usize| (index as f32 + 0.5) * stride as f32;
        (0..count * count).map(move |index| GridCell {
            x: centre(index % count),
            y: centre(index / count),
            stride: stride as f32,
        })
    };
    strides(side).into_iter().flat_map(level).collect()
}

/// Training targets of the cells of query frames.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Targets {
    /// Objectness, `[queries, cells]`: 1 for cells with an assigned object, else 0.
    pub objectness: Vec<f32>,
    /// Weight of the objectness loss, `[queries, cells]`: 0 for masked cells, else 1.
    pub weight: Vec<f32>,
    /// Way (index of the class in the episode), `[queries, cells]`; -1 for none.
    pub class: Vec<i32>,
    /// Distances from the cell's centre to left, top, right and bottom of the box, `[queries, cells, 4]`, in pixels of the square,
    /// all positive; 0 where objectness is 0.
    pub sides: Vec<f32>,
    /// Number of cells with objectness 1, the divisor of the losses of a step.
    pub positives: usize,
    /// Number of cells with a class.
    pub classified: usize,
    /// Number of objects without a cell.
    pub unassigned: usize,
}

/// Targets of frames whose objects are in pixels of a square of side `side`.
pub fn targets<'a>(frames: impl IntoIterator<Item = &'a [QueryTruth]>, side: usize) -> Targets {
    let (cells, strides) = (cells(side), strides(side));
    let mut targets = Targets::default();
    for truths in frames {
        let (assigned, unassigned) = assign(truths, &cells, &strides);
        targets.unassigned += unassigned;
        for (cell, object) in cells.iter().zip(&assigned) {
            let masked = || truths.iter().any(|truth| truth.role == Role::Masked && covers(&truth.rectangle, cell));
            targets.objectness.push(if object.is_some() { 1.0 } else { 0.0 });
            targets.weight.push(if object.is_none() && masked() { 0.0 } else { 1.0 });
            let class = match object.map(|object| truths[object].role) {
                Some(Role::Class(way)) => way as i32,
                _ => -1,
            };
            targets.class.push(class);
            targets.positives += usize::from(object.is_some());
            targets.classified += usize::from(class >= 0);
            let sides = object.map_or([0.0; 4], |object| {
                let min = SIDE_MIN * cell.stride;
                sides(&truths[object].rectangle, cell).map(|side| side.max(min))
            });
            targets.sides.extend(sides);
        }
    }
    targets
}

/// Distances from the cell's centre to left, top, right and bottom of a box; negative for sides that the centre is beyond.
fn sides(rectangle: &BoundingBox, cell: &GridCell) -> [f32; 4] {
    let BoundingBox { left, top, right, bottom } = *rectangle;
    [cell.x - left, cell.y - top, right - cell.x, bottom - cell.y]
}

/// Returns whether the centre of a cell is inside a box.
fn contains(rectangle: &BoundingBox, cell: &GridCell) -> bool {
    sides(rectangle, cell).into_iter().all(|side| side > 0.0)
}

/// Returns whether a box overlaps a cell.
fn touches(rectangle: &BoundingBox, cell: &GridCell) -> bool {
    sides(rectangle, cell).into_iter().all(|side| side > -OUTSIDE_MAX * cell.stride)
}

/// Returns whether the centre of a cell is inside a box that is enlarged to at least one cell.
fn covers(rectangle: &BoundingBox, cell: &GridCell) -> bool {
    let (x, y) = ((rectangle.left + rectangle.right) / 2.0, (rectangle.top + rectangle.bottom) / 2.0);
    (cell.x - x).abs() * 2.0 <= rectangle.width().max(cell.stride)
        && (cell.y - y).abs() * 2.0 <= rectangle.height().max(cell.stride)
}

/// Object assigned to each cell, and the number of objects without a cell.
fn assign(truths: &[QueryTruth], cells: &[GridCell], strides: &[usize]) -> (Vec<Option<usize>>, usize) {
    let mut assigned = vec![None; cells.len()];
    let mut unassigned = 0;
    let mut order: Vec<usize> = (0..truths.len()).filter(|&truth| truths[truth].role != Role::Masked).collect();
    // Smaller objects come first; the sort is stable.
    order.sort_by(|&a, &b| truths[a].rectangle.area().total_cmp(&truths[b].rectangle.area()));
    for truth in order {
        let rectangle = &truths[truth].rectangle;
        let (x, y) = ((rectangle.left + rectangle.right) / 2.0, (rectangle.top + rectangle.bottom) / 2.0);
        let longer = rectangle.width().max(rectangle.height());
        let coarse = strides.iter().take_while(|stride| longer >= LEVEL_CELLS * **stride as f32).count();
        let stride = strides[coarse.min(strides.len() - 1)] as f32;
        let mut found = false;
        let mut nearest: Option<(f32, usize)> = None;
        for (index, cell) in cells.iter().enumerate() {
            if cell.stride != stride || assigned[index].is_some() {
                continue;
            }
            let (dx, dy) = ((cell.x - x).abs(), (cell.y - y).abs());
            if dx.max(dy) < CENTRE_RADIUS * stride && contains(rectangle, cell) {
                assigned[index] = Some(truth);
                found = true;
            }
            let distance = dx * dx + dy * dy;
            let near = dx.max(dy) < NEAREST_RADIUS * stride;
            if near && touches(rectangle, cell) && nearest.is_none_or(|(best, _)| distance < best) {
                nearest = Some((distance, index));
            }
        }
        match nearest {
            _ if found => {}
            Some((_, index)) => assigned[index] = Some(truth),
            None => unassigned += 1,
        }
    }
    (assigned, unassigned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn truth(role: Role, left: f32, top: f32, right: f32, bottom: f32) -> QueryTruth {
        QueryTruth { role, rectangle: BoundingBox { left, top, right, bottom } }
    }

    /// Indices of a value.
    fn indices(values: &[f32], wanted: f32) -> Vec<usize> {
        (0..values.len()).filter(|&index| values[index] == wanted).collect()
    }

    #[test]
    fn cells_are_row_by_row_and_the_finer_level_comes_first() {
        let cells = cells(32);
        assert_eq!(cells.len(), 16 + 4);
        assert_eq!(cells[0], GridCell { x: 4.0, y: 4.0, stride: 8.0 });
        assert_eq!(cells[1], GridCell { x: 12.0, y: 4.0, stride: 8.0 });
        assert_eq!(cells[4], GridCell { x: 4.0, y: 12.0, stride: 8.0 });
        assert_eq!(cells[17], GridCell { x: 24.0, y: 8.0, stride: 16.0 });
    }

    #[test]
    fn a_small_object_is_assigned_to_the_cells_around_its_centre() {
        // Centre (12, 12), 16 wide and high: of the cells within 12 pixels, those at 4, 12 and 20, only the one at
        // 12 is strictly inside 4..20.
        let targets = targets([&[truth(Role::Class(1), 4.0, 4.0, 20.0, 20.0)][..]], 32);
        assert_eq!(indices(&targets.objectness, 1.0), [5]);
        assert_eq!(targets.class[5], 1);
        assert_eq!(targets.sides[20..24], [8.0, 8.0, 8.0, 8.0]);
        assert_eq!((targets.positives, targets.classified), (1, 1));
        assert!(targets.weight.iter().all(|&weight| weight == 1.0));
        assert_eq!(targets.class.iter().filter(|&&class| class == -1).count(), 19);
    }

    #[test]
    fn a_large_object_is_assigned_to_the_centre_of_the_coarser_level_only() {
        // 96 pixels: 6 x 6 cells of 16. Centre (48, 48), radius 24: centres at 40 and 56 (8 away), not 24 (24 away).
        let targets = targets([&[truth(Role::Class(0), 0.0, 0.0, 96.0, 96.0)][..]], 96);
        let expected: Vec<usize> = [(2, 2), (3, 2), (2, 3), (3, 3)].map(|(x, y)| 144 + y * 6 + x).to_vec();
        assert_eq!(indices(&targets.objectness, 1.0), expected);
        assert_eq!(targets.sides[expected[0] * 4..][..4], [40.0, 40.0, 56.0, 56.0]);
    }

    #[test]
    fn a_cell_of_two_objects_belongs_to_the_smaller_one() {
        let small = truth(Role::Class(0), 8.0, 8.0, 16.0, 16.0);
        let large = truth(Role::Class(1), 1.0, 1.0, 23.0, 23.0);
        let targets = targets([&[large, small][..]], 32);
        // The larger one, centre (12, 12), reaches the cells at 4, 12 and 20 on each axis.
        let class_at = |x: usize, y: usize| targets.class[y * 4 + x];
        assert_eq!(class_at(1, 1), 0);
        for (x, y) in [(0, 0), (1, 0), (2, 0), (0, 1), (2, 1), (0, 2), (1, 2), (2, 2)] {
            assert_eq!(class_at(x, y), 1);
        }
        assert_eq!(targets.positives, 9);
    }

    #[test]
    fn an_object_without_a_cell_centre_is_assigned_to_the_nearest_free_cell_that_it_touches() {
        let first = truth(Role::Class(0), 5.0, 5.0, 7.0, 6.0);
        let second = truth(Role::Class(1), 5.0, 5.0, 9.0, 7.0);
        let third = truth(Role::Class(0), 4.5, 4.5, 7.5, 7.5);
        let targets = targets([&[first, second, third][..]], 32);
        assert_eq!(targets.class[0], 0);
        // The box is extended to the centre (4, 4): sides are positive.
        assert_eq!(targets.sides[..4], [0.144, 0.144, 3.0, 2.0]);
        // The second extends into the cell to the right with the centre (12, 4). The third touches only the first cell.
        assert_eq!(targets.class[1], 1);
        assert_eq!(targets.sides[4..8], [7.0, 0.144, 0.144, 3.0]);
        assert_eq!((targets.positives, targets.unassigned), (2, 1));
    }

    #[test]
    fn levels_depend_on_the_square_and_on_the_size_of_objects() {
        assert_eq!([32, 96, 256].map(|side| strides(side).len()), [2; 3]);
        assert_eq!(strides(272), [8, 16, 32]);
        assert_eq!(strides(448), [8, 16, 32]);
        assert_eq!(strides(1024), [8, 16, 32, 64]);
        assert_eq!(strides(2048), [8, 16, 32, 64, 128]);
        // 17 cells of 16 are 9 of 32, the last of them half outside.
        assert_eq!(cells(272).len(), 34 * 34 + 17 * 17 + 9 * 9);
        for (size, stride) in
            [(47.0, 8.0), (48.0, 16.0), (95.0, 16.0), (96.0, 32.0), (191.0, 32.0), (192.0, 64.0), (1000.0, 64.0)]
        {
            let targets = targets([&[truth(Role::Class(0), 8.0, 8.0, 8.0 + size, 8.0 + size)][..]], 1024);
            let found: Vec<f32> = cells(1024)
                .iter()
                .zip(&targets.objectness)
                .filter(|(_, is)| **is == 1.0)
                .map(|(cell, _)| cell.stride)
                .collect();
            assert!(!found.is_empty() && found.iter().all(|found| *found == stride), "{size}: {found:?}");
        }
    }

    #[test]
    fn sides_of_targets_are_positive() {
        for side in [32, 96, 272, 2048] {
            let size = side as f32;
            let objects = (0..400).map(|number| {
                let at = |step: usize| ((number * step) % 97) as f32 / 97.0;
                let (left, top) = (at(31) * (size - 1.0), at(17) * (size - 1.0));
                let (width, height) = (1.0 + at(7) * (size - left - 1.0), 1.0 + at(5) * (size - top - 1.0));
                truth(Role::Class(0), left, top, left + width, top + height)
            });
            let all: Vec<QueryTruth> = objects.collect();
            for objects in all.chunks(8) {
                let targets = targets([objects], side);
                let boxes = targets.objectness.iter().zip(targets.sides.chunks_exact(4));
                assert!(boxes.filter(|(is, _)| **is == 1.0).all(|(_, sides)| sides.iter().all(|side| *side > 0.0)));
            }
        }
    }

    #[test]
    fn objects_of_other_classes_have_no_class_and_masked_ones_no_weight() {
        let other = truth(Role::Other, 0.0, 0.0, 8.0, 8.0);
        let masked = truth(Role::Masked, 0.0, 0.0, 16.5, 16.5);
        let targets = targets([&[other, masked][..], &[]], 32);
        assert_eq!((targets.objectness[0], targets.class[0], targets.weight[0]), (1.0, -1, 1.0));
        assert_eq!(indices(&targets.weight, 0.0), [1, 4, 5, 16], "centres (12, 4), (4, 12), (12, 12), coarse (8, 8)");
        assert_eq!((targets.positives, targets.classified), (1, 0));
        assert_eq!(targets.objectness.len(), 40);
        assert!(targets.objectness[20..].iter().all(|&value| value == 0.0), "a frame without objects");
        assert_eq!(targets.sides.len(), 160);
    }

    #[test]
    fn a_masked_object_smaller_than_a_cell_masks_its_cell() {
        let targets = targets([&[truth(Role::Masked, 9.0, 9.0, 10.0, 10.0)][..]], 32);
        assert_eq!(indices(&targets.weight, 0.0), [5, 16], "centres (12, 12) and (8, 8)");
    }
}
