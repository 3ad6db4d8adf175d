//! Triplet losses on embeddings of length one.

use burn::tensor::{Int, TensorData};

use super::Tensor;

/// Cosine distance (0..2) of the rows of `[n, d]` and `[n, d]`: `[n]`.
fn distance(one: Tensor<2>, other: Tensor<2>) -> Tensor<1> {
    (one * other).sum_dim(1).squeeze_dim::<1>(1).neg().add_scalar(1.0)
}

/// Sum of triplet losses and the number of terms: the batches of a step are summed before they are divided.
#[derive(Clone, Debug)]
pub struct TripletLoss {
    /// Sum over all triplets, `[1]`.
    pub sum: Tensor<1>,
    /// Number of triplets, the divisor for a mean.
    pub divisor: usize,
}

/// Loss of given triplets, `[n, d]` each: the sum of `max(0, d(anchor, positive) - d(anchor, negative) + margin)`.
pub fn given(anchors: Tensor<2>, positives: Tensor<2>, negatives: Tensor<2>, margin: f64) -> TripletLoss {
    let divisor = anchors.dims()[0];
    let near = distance(anchors.clone(), positives);
    let far = distance(anchors, negatives);
    TripletLoss { sum: (near - far).add_scalar(margin as f32).clamp_min(0.0).sum(), divisor }
}

/// Batch-hard loss (Hermans et al. 2017, "In Defense of the Triplet Loss"): for each row of `embeddings` `[n, d]` the farthest row of
/// its class and the nearest of another. Rows without a positive or without a negative do not count.
pub fn batch_hard(embeddings: Tensor<2>, classes: &[usize], margin: f64) -> TripletLoss {
    let count = classes.len();
    let device = embeddings.device();
    let distances = embeddings.clone().matmul(embeddings.transpose()).neg().add_scalar(1.0);
    let (positive, negative) = hardest(&distances, classes);
    let rows: Vec<usize> = (0..count).filter(|row| positive[*row].is_some() && negative[*row].is_some()).collect();
    if rows.is_empty() {
        return TripletLoss { sum: distances.sum().mul_scalar(0.0), divisor: 0 };
    }
    let pick = |columns: &[Option<usize>]| {
        let flat: Vec<i64> = rows.iter().map(|row| (row * count + columns[*row].unwrap_or(0)) as i64).collect();
        let length = flat.len();
        let index = burn::tensor::Tensor::<1, Int>::from_data(TensorData::new(flat, [length]), &device);
        distances.clone().reshape([count * count]).select(0, index)
    };
    let sum = (pick(&positive) - pick(&negative)).add_scalar(margin as f32).clamp_min(0.0).sum();
    TripletLoss { sum, divisor: rows.len() }
}

/// Farthest column of the same class and nearest column of another, for each row. Computed on the host: the batch is small.
fn hardest(distances: &Tensor<2>, classes: &[usize]) -> (Vec<Option<usize>>, Vec<Option<usize>>) {
    let count = classes.len();
    let values: Vec<f32> = distances.clone().detach().into_data().iter::<f32>().collect();
    let at = |row: usize, column: usize| values[row * count + column];
    let best = |row: usize, same: bool| {
        let columns = (0..count).filter(move |column| *column != row && (classes[*column] == classes[row]) == same);
        match same {
            true => columns.max_by(|a, b| at(row, *a).total_cmp(&at(row, *b))),
            false => columns.min_by(|a, b| at(row, *a).total_cmp(&at(row, *b))),
        }
    };
    ((0..count).map(|row| best(row, true)).collect(), (0..count).map(|row| best(row, false)).collect())
}

#[cfg(test)]
mod tests {
    use super::super::testing::{autodiff, close, plain, values};
    use super::*;

    /// By hand: unit vectors at 0, 90 and 180 degrees; distances 1 and 2.
    #[test]
    fn the_loss_of_a_given_triplet_is_the_difference_of_its_distances() {
        let vector = |x: f32, y: f32| Tensor::<2>::from_floats([[x, y]], &plain());
        let loss = |positive, negative| given(vector(1.0, 0.0), positive, negative, 0.3);
        close(&values(loss(vector(0.0, 1.0), vector(-1.0, 0.0)).sum), &[0.0], 1e-6);
        close(&values(loss(vector(-1.0, 0.0), vector(0.0, 1.0)).sum), &[1.3], 1e-6);
        assert_eq!(loss(vector(-1.0, 0.0), vector(0.0, 1.0)).divisor, 1);
    }

    /// By hand: rows at 0, 90, 180, 0 degrees, classes a a b b. Row 0: farthest of its class at 1, nearest negative (row 3)
    /// at 0: 1.3. Row 1: 1, nearest negative at 1: 0.3. Row 2: positive row 3 at 2, nearest negative row 1 at 1: 1.3.
    /// Row 3: positive at 2, nearest negative row 0 at 0: 2.3. In all 5.2.
    #[test]
    fn batch_hard_selects_the_hardest_pair_of_each_row() {
        let rows = Tensor::<2>::from_floats([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [1.0, 0.0]], &plain());
        let loss = batch_hard(rows, &[0, 0, 1, 1], 0.3);
        close(&values(loss.sum), &[5.2], 1e-5);
        assert_eq!(loss.divisor, 4);
    }

    #[test]
    fn the_loss_of_a_batch_of_one_class_is_zero_and_has_a_gradient() {
        let rows = Tensor::<2>::from_floats([[1.0, 0.0], [0.0, 1.0]], &autodiff()).require_grad();
        let loss = batch_hard(rows.clone(), &[4, 4], 0.3);
        close(&values(loss.sum.clone()), &[0.0], 0.0);
        assert_eq!(loss.divisor, 0);
        assert!(rows.grad(&loss.sum.backward()).is_some());
    }
}
