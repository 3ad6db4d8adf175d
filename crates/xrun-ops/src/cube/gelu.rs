//! GELU and its derivative in one kernel each; only the input is kept.

use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::{each, empty, launch, writable};
use crate::gelu::Gelu;
use crate::operation::Operation;

impl Gelu {
    /// Applies GELU, or multiplies a gradient by the derivative.
    fn launch(self, input: &CubeTensor, gradient: Option<CubeTensor>) -> CubeTensor {
        let output = match &gradient {
            Some(gradient) => writable(gradient),
            None => empty(input, input.meta.shape().clone()),
        };
        let has_gradient = gradient.is_some();
        launch!(
            kernel,
            each(&input),
            [input, gradient.unwrap_or_else(|| input.clone()), output],
            [self == Self::Tanh, has_gradient]
        );
        output
    }
}

impl Operation<CubeTensor, 1> for Gelu {
    /// Input.
    type Saved = CubeTensor;

    fn forward(&self, [input]: [CubeTensor; 1], save: bool) -> (CubeTensor, Option<CubeTensor>) {
        let input = into_contiguous(input);
        (self.launch(&input, None), save.then_some(input))
    }

    fn backward(&self, input: CubeTensor, gradient: CubeTensor, _: [bool; 1]) -> [Option<CubeTensor>; 1] {
        [Some(self.launch(&input, Some(gradient)))]
    }
}

/// `x Φ(x)`, or the derivative of it times the gradient; `Φ` is the normal CDF or, with `tanh`, `σ(2u)` (see [`Gelu`]).
#[cube(launch)]
fn kernel(input: &[f32], gradient: &[f32], output: &mut [f32], #[comptime] tanh: bool, #[comptime] has_gradient: bool) {
    if ABSOLUTE_POS < output.len() {
        let x = input[ABSOLUTE_POS];
        let square = x * x;
        // √(2/π) · 2.
        let slope = 1.595_769_1f32;
        let mut cdf = 1.0f32 / (1.0f32 + (-slope * (x + 0.044_715f32 * x * square)).exp());
        if comptime![!tanh] {
            cdf = 0.5f32 * (1.0f32 + Erf::erf(x * 0.707_106_77f32));
        }
        let mut result = x * cdf;
        if comptime![has_gradient] {
            let mut derivative = cdf;
            if comptime![tanh] {
                derivative += x * cdf * (1.0f32 - cdf) * slope * (1.0f32 + 0.134_145f32 * square);
            } else {
                derivative += x * 0.398_942_28f32 * (-0.5f32 * square).exp();
            }
            result = gradient[ABSOLUTE_POS] * derivative;
        }
        output[ABSOLUTE_POS] = result;
    }
}
