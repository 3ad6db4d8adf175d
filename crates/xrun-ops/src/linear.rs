//! Parts of linear layers and embeddings, with sums over rows as their gradients.

use burn::tensor::{Int, Tensor};

#[cfg(feature = "cube")]
use crate::cube;

/// Adds `bias` `[width]` to each row of `input` `[rows, width]`.
pub fn add_bias(input: Tensor<2>, bias: Tensor<1>) -> Tensor<2> {
    #[cfg(feature = "cube")]
    if cube::is_on_cube(&input) {
        return cube::add_bias(input, bias);
    }
    input + bias.unsqueeze()
}

/// Returns the rows `[count, width]` of `table` `[rows, width]` at `indices` `[count]`, each below the number of rows.
pub fn embedding(table: Tensor<2>, indices: Tensor<1, Int>) -> Tensor<2> {
    #[cfg(feature = "cube")]
    if cube::is_on_cube(&table) {
        return cube::embedding(table, indices);
    }
    table.select(0, indices)
}
