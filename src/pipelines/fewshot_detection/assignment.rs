//! Which cell of the dense head answers for which object?
//!
//! Centre sampling as in FCOS (Tian et al. 2019): the cells whose centre is within 1.5 strides of the object's centre,
//! along each axis, and inside its box. The object's size decides the level. Where two objects want a cell, the
//! smaller one gets it; an object that would get none gets the nearest cell that is free.

use super::batch::{Role, Truth};
use crate::data::sample::Rectangle;

/// The strides of the pyramid's levels, in pixels of the square.
pub const STRIDES: [usize; 2] = [8, 16];
/// Objects whose longer side is shorter than this many pixels, six cells of the finer level, belong to the finer level.
const SMALL_SIDE: f32 = 48.0;
/// In strides of the level.
const CENTRE_RADIUS: f32 = 1.5;
/// A cell farther than this from the centre of an object cannot describe its box; in strides.
const NEAREST_RADIUS: f32 = 2.5;

/// A place of the dense head. Centre and stride are in pixels of the square.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    pub x: f32,
    pub y: f32,
    pub stride: f32,
}

/// All cells of a square of side `side`, a multiple of 16: the level of stride 8 row by row, then that of stride 16;
/// `(side / 8)^2 + (side / 16)^2` of them.
pub fn cells(side: usize) -> Vec<Cell> {
    let level = |stride: usize| {
        let count = side / stride;
        let centre = move |index: usize| (index as f32 + 0.5) * stride as f32;
        (0..count * count).map(move |index| Cell {
            x: centre(index % count),
            y: centre(index / count),
            stride: stride as f32,
        })
    };
    STRIDES.into_iter().flat_map(level).collect()
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
    /// square; 0 where objectness is 0. Negative where a box smaller than a cell does not hold the centre.
    pub boxes: Vec<f32>,
    /// Cells with objectness 1, by which the loss of the boxes is divided.
    pub positives: usize,
    /// Cells with a class.
    pub classified: usize,
}

/// The targets of some frames, whose objects are in pixels of a square of side `side`.
pub fn targets<'a>(frames: impl IntoIterator<Item = &'a [Truth]>, side: usize) -> Targets {
    let cells = cells(side);
    let mut targets = Targets::default();
    for truths in frames {
        let owners = owners(truths, &cells);
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
                let Rectangle { left, top, right, bottom } = truths[owner].rectangle;
                [cell.x - left, cell.y - top, right - cell.x, bottom - cell.y]
            });
            targets.boxes.extend(sides);
        }
    }
    targets
}

fn holds(rectangle: &Rectangle, cell: &Cell) -> bool {
    rectangle.left < cell.x && cell.x < rectangle.right && rectangle.top < cell.y && cell.y < rectangle.bottom
}

/// As [`holds`], but a rectangle smaller than a cell counts as one cell, so that some centre is in it.
fn covers(rectangle: &Rectangle, cell: &Cell) -> bool {
    let (x, y) = ((rectangle.left + rectangle.right) / 2.0, (rectangle.top + rectangle.bottom) / 2.0);
    (cell.x - x).abs() * 2.0 <= rectangle.width().max(cell.stride)
        && (cell.y - y).abs() * 2.0 <= rectangle.height().max(cell.stride)
}

/// The object that each cell answers for.
fn owners(truths: &[Truth], cells: &[Cell]) -> Vec<Option<usize>> {
    let mut owners = vec![None; cells.len()];
    let mut order: Vec<usize> = (0..truths.len()).filter(|&truth| truths[truth].role != Role::Masked).collect();
    // Smaller ones choose first; the sort keeps the order of equal ones.
    order.sort_by(|&a, &b| truths[a].rectangle.area().total_cmp(&truths[b].rectangle.area()));
    for truth in order {
        let rectangle = &truths[truth].rectangle;
        let (x, y) = ((rectangle.left + rectangle.right) / 2.0, (rectangle.top + rectangle.bottom) / 2.0);
        let stride = match rectangle.width().max(rectangle.height()) < SMALL_SIDE {
            true => STRIDES[0] as f32,
            false => STRIDES[1] as f32,
        };
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
            if near && nearest.is_none_or(|(best, _)| distance < best) {
                nearest = Some((distance, index));
            }
        }
        if let Some((_, index)) = nearest
            && !found
        {
            owners[index] = Some(truth);
        }
    }
    owners
}

#[cfg(test)]
mod tests {
    use super::*;

    fn truth(role: Role, left: f32, top: f32, right: f32, bottom: f32) -> Truth {
        Truth { role, rectangle: Rectangle { left, top, right, bottom } }
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
    fn an_object_without_a_cell_centre_gets_the_nearest_one_that_is_free() {
        let tiny = truth(Role::Class(0), 5.0, 5.0, 7.0, 6.0);
        let twin = truth(Role::Class(1), 5.0, 5.0, 7.0, 7.0);
        let targets = targets([&[tiny, twin][..]], 32);
        assert_eq!(targets.class[0], 0);
        assert_eq!(targets.boxes[..4], [-1.0, -1.0, 3.0, 2.0]);
        // The centre of the second, (6, 6), is as near to the cell to the right as to the one below: the first counts.
        assert_eq!(targets.class[1], 1);
        assert_eq!(targets.positives, 2);
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
        let crowd: Vec<Truth> = (0..32).map(|_| truth(Role::Class(0), 10.0, 10.0, 12.0, 12.0)).collect();
        assert_eq!(targets([&crowd[..]], 32).positives, 16, "all cells of the finer level");
    }
}
