//! Which cell of the dense head answers for which object?
//!
//! Centre sampling as in FCOS (Tian et al. 2019): the cells whose centre is within 1.5 strides of the object's centre,
//! along each axis, and inside its box. The object's size decides the level. Where two objects want a cell, the
//! smaller one gets it; an object that would get none gets the nearest free cell that its box touches. Sides are positive,
//! so a box that does not hold that cell's centre is asked for with the centre in it. An object that touches no free cell
//! has none, as in FCOS.

use super::batch::{Role, Truth};
use xrun_core::dataset::sample::BoundingBox;

/// The strides of the levels that every pyramid has, in pixels of the square.
const STRIDES: [usize; 2] = [8, 16];
/// The square is no more than this many cells of the coarsest level across, as FCOS's five levels have it.
const COARSEST_CELLS: usize = 16;
/// Objects whose longer side is shorter than this many cells of a level belong to it, if to no finer one.
const LEVEL_CELLS: f32 = 6.0;
/// In strides of the level.
const CENTRE_RADIUS: f32 = 1.5;
/// A cell farther than this from the centre of an object cannot describe its box; in strides.
const NEAREST_RADIUS: f32 = 2.5;
/// Nor one whose own square the box does not touch.
const OUTSIDE_MAX: f32 = 0.5;
/// The shortest side that is asked for, in strides: a seventh of a pixel on the finest level.
const SIDE_MIN: f32 = 0.018;

/// The strides of the levels for a square of side `side`: 8 and 16 up to 256 pixels, then one more with each doubling, to
/// 128 at 2,048.
pub fn strides(side: usize) -> Vec<usize> {
    let mut strides = STRIDES.to_vec();
    let mut coarsest = STRIDES[1];
    while COARSEST_CELLS * coarsest < side {
        coarsest *= 2;
        strides.push(coarsest);
    }
    strides
}

/// A place of the dense head. Centre and stride are in pixels of the square.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    /// The centre, from the left edge.
    pub x: f32,
    /// The centre, from the upper edge.
    pub y: f32,
    /// The distance to the next cell.
    pub stride: f32,
}

/// All cells of a square of side `side`, a multiple of 16: the level of stride 8 row by row, then that of stride 16, and so
/// on. The last cells of a coarse level may reach beyond the square.
pub fn cells(side: usize) -> Vec<Cell> {
    let level = |stride: usize| {
        let count = side.div_ceil(stride);
        let centre = move |index: usize| (index as f32 + 0.5) * stride as f32;
        (0..count * count).map(move |index| Cell {
            x: centre(index % count),
            y: centre(index / count),
            stride: stride as f32,
        })
    };
    strides(side).into_iter().flat_map(level).collect()
}

/// What the head should say in each cell of each frame.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Targets {
    /// `[queries, cells]`: 1 where an object is answered for, else 0.
    pub objectness: Vec<f32>,
    /// `[queries, cells]`: 0 where objectness is neither right nor wrong, else 1.
    pub weight: Vec<f32>,
    /// `[queries, cells]`: the place of the class in the episode, or -1 where there is none to say.
    pub class: Vec<i32>,
    /// `[queries, cells, 4]`: from the cell's centre to the left, top, right and bottom of the box, in pixels of the
    /// square, all positive; 0 where objectness is 0.
    pub boxes: Vec<f32>,
    /// Cells with objectness 1, by which the losses of a step are divided.
    pub positives: usize,
    /// Cells with a class.
    pub classified: usize,
    /// Objects that no cell answers for: others have those that they touch.
    pub unanswered: usize,
}

/// The targets of some frames, whose objects are in pixels of a square of side `side`.
pub fn targets<'a>(frames: impl IntoIterator<Item = &'a [Truth]>, side: usize) -> Targets {
    let (cells, strides) = (cells(side), strides(side));
    let mut targets = Targets::default();
    for truths in frames {
        let (owners, unanswered) = owners(truths, &cells, &strides);
        targets.unanswered += unanswered;
        for (cell, owner) in cells.iter().zip(&owners) {
            let masked = || truths.iter().any(|truth| truth.role == Role::Masked && covers(&truth.rectangle, cell));
            targets.objectness.push(if owner.is_some() { 1.0 } else { 0.0 });
            targets.weight.push(if owner.is_none() && masked() { 0.0 } else { 1.0 });
            let class = match owner.map(|owner| truths[owner].role) {
                Some(Role::Class(place)) => place as i32,
                _ => -1,
            };
            targets.class.push(class);
            targets.positives += usize::from(owner.is_some());
            targets.classified += usize::from(class >= 0);
            let sides = owner.map_or([0.0; 4], |owner| {
                let least = SIDE_MIN * cell.stride;
                sides(&truths[owner].rectangle, cell).map(|side| side.max(least))
            });
            targets.boxes.extend(sides);
        }
    }
    targets
}

/// From the cell's centre to left, top, right and bottom; negative beyond the rectangle.
fn sides(rectangle: &BoundingBox, cell: &Cell) -> [f32; 4] {
    let BoundingBox { left, top, right, bottom } = *rectangle;
    [cell.x - left, cell.y - top, right - cell.x, bottom - cell.y]
}

fn holds(rectangle: &BoundingBox, cell: &Cell) -> bool {
    sides(rectangle, cell).into_iter().all(|side| side > 0.0)
}

fn touches(rectangle: &BoundingBox, cell: &Cell) -> bool {
    sides(rectangle, cell).into_iter().all(|side| side > -OUTSIDE_MAX * cell.stride)
}

/// As [`holds`], but a rectangle smaller than a cell counts as one cell, so that some centre is in it.
fn covers(rectangle: &BoundingBox, cell: &Cell) -> bool {
    let (x, y) = ((rectangle.left + rectangle.right) / 2.0, (rectangle.top + rectangle.bottom) / 2.0);
    (cell.x - x).abs() * 2.0 <= rectangle.width().max(cell.stride)
        && (cell.y - y).abs() * 2.0 <= rectangle.height().max(cell.stride)
}

/// The object that each cell answers for, and how many objects no cell does.
fn owners(truths: &[Truth], cells: &[Cell], strides: &[usize]) -> (Vec<Option<usize>>, usize) {
    let mut owners = vec![None; cells.len()];
    let mut unanswered = 0;
    let mut order: Vec<usize> = (0..truths.len()).filter(|&truth| truths[truth].role != Role::Masked).collect();
    // Smaller ones choose first; the sort keeps the order of equal ones.
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
            if cell.stride != stride || owners[index].is_some() {
                continue;
            }
            let (across, down) = ((cell.x - x).abs(), (cell.y - y).abs());
            if across.max(down) < CENTRE_RADIUS * stride && holds(rectangle, cell) {
                owners[index] = Some(truth);
                found = true;
            }
            let distance = across * across + down * down;
            let near = across.max(down) < NEAREST_RADIUS * stride;
            if near && touches(rectangle, cell) && nearest.is_none_or(|(best, _)| distance < best) {
                nearest = Some((distance, index));
            }
        }
        match nearest {
            _ if found => {}
            Some((_, index)) => owners[index] = Some(truth),
            None => unanswered += 1,
        }
    }
    (owners, unanswered)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn truth(role: Role, left: f32, top: f32, right: f32, bottom: f32) -> Truth {
        Truth { role, rectangle: BoundingBox { left, top, right, bottom } }
    }

    fn places(values: &[f32], wanted: f32) -> Vec<usize> {
        (0..values.len()).filter(|&index| values[index] == wanted).collect()
    }

    #[test]
    fn cells_are_row_by_row_and_the_finer_level_comes_first() {
        let cells = cells(32);
        assert_eq!(cells.len(), 16 + 4);
        assert_eq!(cells[0], Cell { x: 4.0, y: 4.0, stride: 8.0 });
        assert_eq!(cells[1], Cell { x: 12.0, y: 4.0, stride: 8.0 });
        assert_eq!(cells[4], Cell { x: 4.0, y: 12.0, stride: 8.0 });
        assert_eq!(cells[17], Cell { x: 24.0, y: 8.0, stride: 16.0 });
    }

    #[test]
    fn a_small_object_takes_the_cells_around_its_centre() {
        // Centre (12, 12), 16 wide and high: of the cells within 12 pixels, those at 4, 12 and 20, only the one at
        // 12 is strictly inside 4..20.
        let targets = targets([&[truth(Role::Class(1), 4.0, 4.0, 20.0, 20.0)][..]], 32);
        assert_eq!(places(&targets.objectness, 1.0), [5]);
        assert_eq!(targets.class[5], 1);
        assert_eq!(targets.boxes[20..24], [8.0, 8.0, 8.0, 8.0]);
        assert_eq!((targets.positives, targets.classified), (1, 1));
        assert!(targets.weight.iter().all(|&weight| weight == 1.0));
        assert_eq!(targets.class.iter().filter(|&&class| class == -1).count(), 19);
    }

    #[test]
    fn a_large_object_takes_no_more_than_the_middle_of_the_coarser_level() {
        // 96 pixels: 6 x 6 cells of 16. Centre (48, 48), radius 24: centres at 40 and 56 (8 away), not 24 (24 away).
        let targets = targets([&[truth(Role::Class(0), 0.0, 0.0, 96.0, 96.0)][..]], 96);
        let expected: Vec<usize> = [(2, 2), (3, 2), (2, 3), (3, 3)].map(|(x, y)| 144 + y * 6 + x).to_vec();
        assert_eq!(places(&targets.objectness, 1.0), expected);
        assert_eq!(targets.boxes[expected[0] * 4..][..4], [40.0, 40.0, 56.0, 56.0]);
    }

    #[test]
    fn of_two_objects_the_smaller_one_gets_the_cell_and_the_other_the_rest() {
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
    fn an_object_without_a_cell_centre_gets_the_nearest_free_cell_that_it_touches() {
        let tiny = truth(Role::Class(0), 5.0, 5.0, 7.0, 6.0);
        let twin = truth(Role::Class(1), 5.0, 5.0, 9.0, 7.0);
        let hidden = truth(Role::Class(0), 4.5, 4.5, 7.5, 7.5);
        let targets = targets([&[tiny, twin, hidden][..]], 32);
        assert_eq!(targets.class[0], 0);
        // As far as the centre (4, 4), and no farther: sides are positive.
        assert_eq!(targets.boxes[..4], [0.144, 0.144, 3.0, 2.0]);
        // The second reaches into the cell to the right, whose centre is (12, 4). The third has no cell but the first.
        assert_eq!(targets.class[1], 1);
        assert_eq!(targets.boxes[4..8], [7.0, 0.144, 0.144, 3.0]);
        assert_eq!((targets.positives, targets.unanswered), (2, 1));
    }

    #[test]
    fn levels_follow_the_square_and_objects_their_size() {
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
            let answering: Vec<f32> = cells(1024)
                .iter()
                .zip(&targets.objectness)
                .filter(|(_, is)| **is == 1.0)
                .map(|(cell, _)| cell.stride)
                .collect();
            assert!(!answering.is_empty() && answering.iter().all(|found| *found == stride), "{size}: {answering:?}");
        }
    }

    #[test]
    fn every_side_that_is_asked_for_is_positive() {
        for side in [32, 96, 272, 2048] {
            let size = side as f32;
            let places = (0..400).map(|number| {
                let at = |step: usize| ((number * step) % 97) as f32 / 97.0;
                let (left, top) = (at(31) * (size - 1.0), at(17) * (size - 1.0));
                let (width, height) = (1.0 + at(7) * (size - left - 1.0), 1.0 + at(5) * (size - top - 1.0));
                truth(Role::Class(0), left, top, left + width, top + height)
            });
            let crowd: Vec<Truth> = places.collect();
            for objects in crowd.chunks(8) {
                let targets = targets([objects], side);
                let boxes = targets.objectness.iter().zip(targets.boxes.chunks_exact(4));
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
        assert_eq!(places(&targets.weight, 0.0), [1, 4, 5, 16], "centres (12, 4), (4, 12), (12, 12), coarse (8, 8)");
        assert_eq!((targets.positives, targets.classified), (1, 0));
        assert_eq!(targets.objectness.len(), 40);
        assert!(targets.objectness[20..].iter().all(|&value| value == 0.0), "a frame without objects");
        assert_eq!(targets.boxes.len(), 160);
    }

    #[test]
    fn a_masked_object_smaller_than_a_cell_still_masks_its_cell() {
        let targets = targets([&[truth(Role::Masked, 9.0, 9.0, 10.0, 10.0)][..]], 32);
        assert_eq!(places(&targets.weight, 0.0), [5, 16], "centres (12, 12) and (8, 8)");
    }

    #[test]
    fn more_objects_than_cells_do_no_harm() {
        let crowd: Vec<Truth> = (0..32).map(|_| truth(Role::Class(0), 2.0, 2.0, 30.0, 30.0)).collect();
        let targets = targets([&crowd[..]], 32);
        assert_eq!((targets.positives, targets.unanswered), (16, 19), "all cells of the finer level");
    }
}
