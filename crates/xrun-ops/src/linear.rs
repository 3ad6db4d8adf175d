//! Parts of linear layers and embeddings, with sums over rows as their gradients.

use burn::tensor::{DType, FloatDType, Int, Tensor, module};

use crate::cube::{has_gpu_kernels, on_cube};

/// Adds `bias` `[width]` to each row of a product `[rows, width]`, which may have 16 bits; the sum has 32.
pub fn add_bias(product: Tensor<2>, bias: Tensor<1>) -> Tensor<2> {
    on_cube!(any &product => crate::cube::add_bias(product, bias));
    let product = if product.dtype() == DType::F32 { product } else { product.cast(FloatDType::F32) };
    product + bias.unsqueeze_dim::<2>(0)
}

/// Applies a linear layer to rows, `[rows, inputs]` to `[rows, outputs]`.
pub fn linear(input: Tensor<2>, weight: Tensor<2>, bias: Option<Tensor<1>>) -> Tensor<2> {
    match bias {
        Some(bias) if has_gpu_kernels(&input) => add_bias(input.matmul(weight), bias),
        bias => module::linear(input, weight, bias),
    }
}

/// Returns the rows `[batch, length, width]` of `table` `[rows, width]` at `indices` `[batch, length]`, each below the number of rows.
pub fn embedding(table: Tensor<2>, indices: Tensor<2, Int>) -> Tensor<3> {
    on_cube!(&table => crate::cube::embedding(table, indices));
    module::embedding(table, indices)
}
