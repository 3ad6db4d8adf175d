//! Kernels on each instruction set that this processor has: they give the same bits.

use burn::tensor::{Device, Tensor};
use macerator::Arch;

use crate::simd::LOWER;
use crate::{
    Gelu, GroupNorm, LossTargets, Mask, Quantizer, Range, SaveActivations, attention_packed, conv1x1,
    conv3x3_group_norm_relu, gelu, layer_norm, next_token_loss,
};

fn drawn<const D: usize>(shape: [usize; D], seed: f32) -> Tensor<D> {
    let count: usize = shape.iter().product();
    let values: Vec<f32> = (0..count).map(|at| ((at as f32 * 0.731 + seed).sin() * 43_758.547).fract()).collect();
    Tensor::<1>::from_floats(values.as_slice(), &Device::flex().autodiff()).reshape(shape).detach().require_grad()
}

/// Outputs of all operations, and the gradients of all their inputs.
fn all() -> Vec<Vec<f32>> {
    let mut found = Vec::new();
    let mut note = |output: Tensor<1>, leaves: &[&dyn Fn(&burn::tensor::Gradients) -> Vec<f32>]| {
        let upstream = drawn(output.dims(), 0.5).detach();
        let gradients = (output.clone() * upstream).sum().backward();
        found.push(output.into_data().iter().collect());
        found.extend(leaves.iter().map(|leaf| leaf(&gradients)));
    };
    macro_rules! run {
        ([$($leaf:ident = $shape:expr),+], $output:expr) => {{
            $(let $leaf = drawn($shape, 0.25);)+
            let output: Tensor<1> = $output.reshape([-1]);
            note(output, &[$(&|gradients| $leaf.grad(gradients).unwrap().into_data().iter().collect()),+]);
        }};
    }
    for (stride, save) in [(1, SaveActivations::All), (2, SaveActivations::Inputs)] {
        run!([x = [3, 4, 13, 11], w = [8, 4, 3, 3], gamma = [8], beta = [8]], {
            let norm = GroupNorm { gamma: gamma.clone(), beta: beta.clone(), groups: 2, epsilon: 1e-5 };
            conv3x3_group_norm_relu(x.clone(), w.clone(), norm, stride, save)
        });
    }
    run!([x = [2, 4, 9, 9], w = [5, 4, 1, 1], bias = [5]], conv1x1(x.clone(), w.clone(), bias.clone()));
    run!([x = [70, 77], gamma = [77], beta = [77]], layer_norm(x.clone(), gamma.clone(), beta.clone(), 1e-5));
    for form in [Gelu::Erf, Gelu::Tanh] {
        run!([x = [1003]], gelu(x.clone().mul_scalar(3.0), form));
    }
    for mask in [Mask::None, Mask::Causal] {
        run!([x = [2, 75, 3 * 2 * 5]], attention_packed(x.clone(), 2, mask));
    }
    run!([x = [40, 101]], {
        let labels = (0..40).collect();
        next_token_loss(x.clone(), LossTargets { labels, weights: vec![0.1; 40], teacher: None }).total
    });
    run!([x = [40, 101]], {
        let logits = drawn([40, 101], 3.0).inner();
        let teacher = Some(crate::Teacher { logits, share: 0.5, temperature: 1.5 });
        next_token_loss(x.clone(), LossTargets { labels: vec![7; 40], weights: vec![0.1; 40], teacher }).total
    });
    for symmetric in [true, false] {
        let quantizer = Quantizer { bits: 4, symmetric };
        run!([x = [33, 65]], quantizer.fake_quantize_rows(x.clone()));
        run!([x = [33, 65]], quantizer.fake_quantize(x.clone(), &Range::of(&x.clone().mul_scalar(0.8), true)));
        run!([x = [33, 65]], quantizer.fake_quantize(x.clone(), &Range::of(&x.clone().mul_scalar(0.8), false)));
    }
    found
}

#[test]
fn every_instruction_set_gives_the_same_bits() {
    let best = all();
    for arch in [Arch::Scalar, Arch::V2, Arch::V3].into_iter().filter(|arch| *arch as u8 <= Arch::detect() as u8) {
        *LOWER.lock().unwrap() = Some(arch);
        let lower = all();
        *LOWER.lock().unwrap() = None;
        for (number, (lower, best)) in lower.iter().zip(&best).enumerate() {
            let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<u32>>();
            assert!(bits(lower) == bits(best), "{arch:?}: number {number}");
        }
    }
}
