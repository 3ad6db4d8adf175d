//! Tests that kernels give the same bits on each instruction set of this processor.

use burn::tensor::{Device, Tensor};
use macerator::Arch;

use crate::simd::FORCED_ARCH;
use crate::{
    AttentionMask, Gelu, GroupNorm, LossTargets, QuantRange, Quantizer, SaveActivations, Teacher, attention_packed,
    conv1x1, conv3x3_group_norm_relu, gelu, layer_norm, next_token_loss,
};

/// Values from -1 to 1.
fn pseudo_random(count: usize, seed: f32) -> Tensor<1> {
    let values: Vec<f32> = (0..count).map(|at| ((at as f32 * 0.731 + seed).sin() * 43_758.547).fract()).collect();
    Tensor::from_floats(values.as_slice(), &Device::flex().autodiff())
}

/// Appends output and input gradients of a function of flat inputs.
fn run<const N: usize>(results: &mut Vec<Vec<f32>>, sizes: [usize; N], function: impl Fn([Tensor<1>; N]) -> Tensor<1>) {
    let leaves = sizes.map(|size| pseudo_random(size, 0.25).require_grad());
    let output = function(leaves.clone());
    let upstream = pseudo_random(output.dims()[0], 0.5);
    let gradients = (output.clone() * upstream).sum().backward();
    results.push(output.into_data().iter().collect());
    results.extend(
        leaves.map(|leaf| leaf.grad(&gradients).expect("each leaf has a gradient").into_data().iter().collect()),
    );
}

/// Returns outputs and input gradients of all operations.
fn run_all() -> Vec<Vec<f32>> {
    let results = &mut Vec::new();
    for (stride, save) in [(1, SaveActivations::All), (2, SaveActivations::Inputs)] {
        run(results, [3 * 4 * 13 * 11, 8 * 4 * 9, 8, 8], |[input, weight, gamma, beta]| {
            let norm = GroupNorm { gamma, beta, groups: 2, epsilon: 1e-5 };
            let (input, weight) = (input.reshape([3, 4, 13, 11]), weight.reshape([8, 4, 3, 3]));
            conv3x3_group_norm_relu(input, weight, norm, stride, save).reshape([-1])
        });
    }
    run(results, [2 * 4 * 81, 5 * 4, 5], |[input, weight, bias]| {
        conv1x1(input.reshape([2, 4, 9, 9]), weight.reshape([5, 4, 1, 1]), bias).reshape([-1])
    });
    run(results, [70 * 77, 77, 77], |[input, gamma, beta]| {
        layer_norm(input.reshape([70, 77]), gamma, beta, 1e-5).reshape([-1])
    });
    for form in [Gelu::Erf, Gelu::Tanh] {
        run(results, [1003], |[input]| gelu(input.mul_scalar(3.0), form));
    }
    for mask in [AttentionMask::None, AttentionMask::Causal] {
        run(results, [2 * 75 * 30], |[input]| attention_packed(input.reshape([2, 75, 30]), 2, mask).reshape([-1]));
    }
    for temperature in [None, Some(1.0), Some(1.5)] {
        run(results, [40 * 101], |[logits]| {
            let teacher = temperature.map(|temperature| {
                let logits = pseudo_random(40 * 101, 3.0).inner().reshape([40, 101]);
                Teacher { logits, divergence_fraction: 0.5, temperature }
            });
            let targets = LossTargets { labels: (0..40).collect(), weights: vec![0.1; 40], teacher };
            next_token_loss(logits.reshape([40, 101]), targets).total
        });
    }
    for symmetric in [true, false] {
        let quantizer = Quantizer { bits: 4, symmetric };
        run(results, [33 * 65], |[input]| quantizer.fake_quantize_rows(input.reshape([33, 65])).reshape([-1]));
        for per_channel in [true, false] {
            run(results, [33 * 65], |[input]| {
                let input = input.reshape([33, 65]);
                let range = QuantRange::min_max(&input.clone().mul_scalar(0.8), per_channel);
                quantizer.fake_quantize(input, &range).reshape([-1])
            });
        }
    }
    std::mem::take(results)
}

#[test]
fn every_instruction_set_gives_the_same_bits() {
    let best = run_all();
    for arch in [Arch::Scalar, Arch::V2, Arch::V3].into_iter().filter(|arch| *arch as u8 <= Arch::detect() as u8) {
        *FORCED_ARCH.lock().unwrap() = Some(arch);
        let forced = run_all();
        *FORCED_ARCH.lock().unwrap() = None;
        for (number, (forced, best)) in forced.iter().zip(&best).enumerate() {
            let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<u32>>();
            assert!(bits(forced) == bits(best), "{arch:?}: result {number}");
        }
    }
}
