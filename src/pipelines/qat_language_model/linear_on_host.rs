//! A quantised linear layer in host memory, and its gradient: what [`super::linear`] says in Burn's operations.
//!
//! ```text
//! back, with g of y, h = alpha / r · Q(x) Q(A), and 1 inside a grid and 0 beyond:
//! B' = hᵀ g · inside,   h' = alpha / r · g Q(B)ᵀ,   A' = Q(x)ᵀ h' · inside,   W' = Q(x)ᵀ g · inside,   b' = Σ g
//! x' = (g Q(W)ᵀ + h' Q(A)ᵀ) · inside
//! ```

use super::linear::QuantisedLinear;
use super::pass::Pass;
use crate::nn::fake_quantise::without_graph;
use crate::nn::host_gradients::HostGradients;
use crate::nn::product::Into;
use crate::nn::rows::{Rows, numbers};

/// Numbers on a grid, and where it reaches; or as they are.
#[derive(Debug)]
pub struct OnGrid {
    /// The numbers.
    pub rows: Rows,
    /// 1 for each number where the grid reaches, and 0 beyond; `None` where the gradient passes through everywhere.
    pub inside: Option<Vec<f32>>,
}

/// What the way back through a layer needs.
#[derive(Debug)]
pub struct LinearKept {
    input: OnGrid,
    weight: OnGrid,
    lora: Option<LoraKept>,
}

#[derive(Debug)]
struct LoraKept {
    a: OnGrid,
    b: OnGrid,
    /// Between them, times what LoRA is multiplied by.
    middle: Rows,
}

impl OnGrid {
    /// The gradient of the numbers before they came on the grid.
    pub fn through(&self, mut gradient: Rows) -> Rows {
        if let Some(inside) = &self.inside {
            gradient.multiply_each(inside);
        }
        gradient
    }

    /// A product with all these rows, turned round.
    fn back(&self, gradient: &Rows) -> Rows {
        let mut found = Rows::zeros(gradient.count(), self.rows.count());
        found.product(gradient, self.rows.matrix().transposed(), Into::Replaced);
        found
    }
}

/// `[tokens, inputs]` to `[tokens, outputs]`; `quantiser` is the number of the input's range in the block.
pub fn forward(
    linear: &QuantisedLinear,
    mut input: Rows,
    block: usize,
    quantiser: usize,
    pass: &mut Pass<'_>,
) -> (Rows, LinearKept) {
    let bits = pass.at.map(|(_, precision)| precision.activations);
    let inside = pass.on_host(&mut input, bits, block, quantiser);
    let on_grid = |(rows, inside)| OnGrid { rows, inside };
    let weight = on_grid(pass.weight_on_host(&linear.weight.val(), true));
    let mut output = Rows::repeated(&numbers(without_graph(&linear.bias.val())), input.count());
    output.product(&input, weight.rows.matrix(), Into::Added);
    let lora = pass.at.and_then(|(precision, _)| linear.lora.get(precision)).map(|lora| {
        let matrix = |matrix| on_grid(pass.weight_on_host(matrix, pass.rules.lora_quantised));
        let (a, b) = (matrix(&lora.a.val()), matrix(&lora.b.val()));
        let mut middle = Rows::zeros(input.count(), a.rows.width);
        middle.product(&input, a.rows.matrix(), Into::Replaced);
        middle.scale(pass.rules.lora_scale);
        output.product(&middle, b.rows.matrix(), Into::Added);
        LoraKept { a, b, middle }
    });
    (output, LinearKept { input: OnGrid { rows: input, inside }, weight, lora })
}

/// The gradient of the input, from that of the output; those of the parameters are added to `into`.
pub fn back(
    linear: &QuantisedLinear,
    kept: LinearKept,
    gradient: &Rows,
    pass: &Pass<'_>,
    into: &mut HostGradients,
) -> Rows {
    let LinearKept { input, weight, lora } = kept;
    let mut found = weight.back(gradient);
    if !pass.frozen {
        into.add(linear.weight.id, weight.through(Rows::crossed(&input.rows, gradient)));
        into.add_vector(linear.bias.id, gradient.sum());
    }
    let parameters = pass.at.and_then(|(precision, _)| linear.lora.get(precision));
    if let (Some(LoraKept { a, b, middle }), Some(lora)) = (lora, parameters) {
        into.add(lora.b.id, b.through(Rows::crossed(&middle, gradient)));
        let mut of_middle = b.back(gradient);
        of_middle.scale(pass.rules.lora_scale);
        into.add(lora.a.id, a.through(Rows::crossed(&input.rows, &of_middle)));
        found.product(&of_middle, a.rows.matrix().transposed(), Into::Added);
    }
    input.through(found)
}
