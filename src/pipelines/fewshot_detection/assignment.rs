//! Which cell of the head is to find which object? Centre sampling as in FCOS (Tian et al. 2019), on the host.

use crate::bounded::HeldBytes;
use crate::data::sample::Rectangle;

/// Strides of the pyramid's levels, in pixels.
pub const STRIDES: [usize; 2] = [8, 16];
/// Objects whose longer side is above this many pixels belong to the coarse level.
const COARSE_FROM: f32 = 40.0;
/// Cells within this many strides of an object's centre are to find it.
const RADIUS: f32 = 1.5;

/// A cell of the head: the middle of its field, in pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    pub x: f32,
    pub y: f32,
    pub stride: usize,
}

/// All cells of a square picture: the fine level row by row, then the coarse one.
pub fn cells(side: usize) -> Vec<Cell> {
    let level = |stride: usize| {
        let count = side / stride;
        let middle = move |at: usize| (at as f32 + 0.5) * stride as f32;
        (0..count).flat_map(move |row| (0..count).map(move |column| Cell { x: middle(column), y: middle(row), stride }))
    };
    STRIDES.into_iter().flat_map(level).collect()
}

pub fn cell_count(side: usize) -> usize {
    STRIDES.iter().map(|stride| (side / stride).pow(2)).sum()
}

/// An object in a query frame, in pixels of the square.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Truth {
    /// In the library.
    pub class: usize,
    /// In the episode, if it is asked for.
    pub way: Option<usize>,
    pub rectangle: Rectangle,
    /// Neither right nor wrong to find.
    pub ignore: bool,
}

/// What the head should say, for `pictures * cells`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Targets {
    /// 1 where there is an object.
    pub object: Vec<f32>,
    /// 0 where it does not matter.
    pub weight: Vec<f32>,
    /// The object's class in the episode; -1 when it has none there, or no object is.
    pub way: Vec<i32>,
    /// Distances from the cell's middle to the left, top, right and bottom, in pixels; four a cell.
    pub sides: Vec<f32>,
    /// Cells with an object.
    pub positives: usize,
}

impl HeldBytes for Targets {
    fn held_bytes(&self) -> u64 {
        4 * (self.object.len() + self.weight.len() + self.way.len() + self.sides.len()) as u64
    }
}

/// Bytes of the targets of so many pictures.
pub fn target_bytes(pictures: usize, side: usize) -> u64 {
    (pictures * cell_count(side) * 7 * 4) as u64
}

/// Adds one picture's targets.
pub fn assign(targets: &mut Targets, cells: &[Cell], truths: &[Truth]) {
    let start = targets.object.len();
    targets.object.resize(start + cells.len(), 0.0);
    targets.weight.resize(start + cells.len(), 1.0);
    targets.way.resize(start + cells.len(), -1);
    targets.sides.resize((start + cells.len()) * 4, 0.0);
    // Larger ones first: where two claim a cell, the smaller one has it.
    let mut order: Vec<&Truth> = truths.iter().collect();
    order.sort_by(|a, b| b.rectangle.area().total_cmp(&a.rectangle.area()));
    for truth in order {
        for cell in responsible(cells, &truth.rectangle) {
            let at = start + cell;
            if truth.ignore {
                targets.weight[at] = 0.0;
                continue;
            }
            let (middle, place) = (cells[cell], truth.rectangle);
            targets.object[at] = 1.0;
            targets.weight[at] = 1.0;
            targets.way[at] = truth.way.map_or(-1, |way| way as i32);
            let sides = [middle.x - place.left, middle.y - place.top, place.right - middle.x, place.bottom - middle.y];
            targets.sides[at * 4..at * 4 + 4].copy_from_slice(&sides);
        }
    }
    targets.positives += targets.object[start..].iter().filter(|object| **object > 0.0).count();
}

/// The cells that are to find a box: those inside it and near its centre, at least the nearest one.
fn responsible(cells: &[Cell], place: &Rectangle) -> Vec<usize> {
    let stride = if place.width().max(place.height()) > COARSE_FROM { STRIDES[1] } else { STRIDES[0] };
    let (x, y) = ((place.left + place.right) / 2.0, (place.top + place.bottom) / 2.0);
    let away = |cell: &Cell| (cell.x - x).abs().max((cell.y - y).abs());
    let inside =
        |cell: &Cell| cell.x > place.left && cell.x < place.right && cell.y > place.top && cell.y < place.bottom;
    let level = || cells.iter().enumerate().filter(move |(_, cell)| cell.stride == stride);
    let near: Vec<usize> = level()
        .filter(|(_, cell)| inside(cell) && away(cell) < RADIUS * stride as f32)
        .map(|(number, _)| number)
        .collect();
    if !near.is_empty() {
        return near;
    }
    level().min_by(|a, b| away(a.1).total_cmp(&away(b.1))).map(|(number, _)| number).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn truth(left: f32, top: f32, right: f32, bottom: f32, way: Option<usize>) -> Truth {
        Truth { class: 0, way, rectangle: Rectangle { left, top, right, bottom }, ignore: false }
    }

    fn targets(truths: &[Truth]) -> Targets {
        let mut targets = Targets::default();
        assign(&mut targets, &cells(32), truths);
        targets
    }

    #[test]
    fn cells_lie_in_the_middle_of_their_fields() {
        let cells = cells(32);
        assert_eq!(cells.len(), 16 + 4);
        assert_eq!(cells.len(), cell_count(32));
        assert_eq!(cells[5], Cell { x: 12.0, y: 12.0, stride: 8 });
        assert_eq!(cells[17], Cell { x: 24.0, y: 8.0, stride: 16 });
    }

    #[test]
    fn an_object_is_for_the_cells_around_its_centre() {
        // Centre 12, 12; cells of stride 8 at 4, 12, 20: all within 12 pixels of the centre, inside the box.
        let targets = targets(&[truth(2.0, 2.0, 22.0, 22.0, Some(3))]);
        let at: Vec<usize> = (0..20).filter(|cell| targets.object[*cell] > 0.0).collect();
        assert_eq!(at, [0, 1, 2, 4, 5, 6, 8, 9, 10]);
        assert_eq!(targets.way[5], 3);
        assert_eq!(targets.sides[20..24], [10.0, 10.0, 10.0, 10.0]);
        assert_eq!(targets.positives, 9);
    }

    #[test]
    fn a_small_object_between_cells_has_the_nearest_one() {
        let targets = targets(&[truth(7.0, 7.0, 9.0, 9.0, None)]);
        assert_eq!(targets.positives, 1);
        assert_eq!(targets.way.iter().filter(|way| **way >= 0).count(), 0);
    }

    #[test]
    fn where_two_claim_a_cell_the_smaller_has_it_and_ignored_ones_do_not_count() {
        let mut crowd = truth(24.0, 24.0, 32.0, 32.0, None);
        crowd.ignore = true;
        let targets = targets(&[truth(8.0, 8.0, 16.0, 16.0, Some(1)), truth(2.0, 2.0, 22.0, 22.0, Some(0)), crowd]);
        assert_eq!(targets.way[5], 1);
        assert_eq!((targets.object[15], targets.weight[15]), (0.0, 0.0));
    }
}
