//! AdamW in one pass against burn-optim's.

mod inputs;

use burn::optim::Optimizer;
use burn::tensor::{Device, Tensor};
use inputs::{pseudo_random, values};
use xrun_ops::{AdamW, CpuKernels};

/// Parameters and moments of several steps, among them those of negative zeros, are those of burn-optim to the bit.
#[test]
fn adamw_has_the_bits_of_burn() {
    for (size, decay) in [(1, 0.0), (7, 0.1), (40_000, 0.01)] {
        let run = |kernels: CpuKernels| {
            let rule = AdamW::new(0.9, 0.999, 1e-8, decay);
            let tensor = |seed| Tensor::<1>::from_floats(pseudo_random(size, seed).as_slice(), &Device::flex());
            let (mut parameter, mut state) = (tensor(0.5), None);
            for step in 1..=4 {
                let gradient = if step == 2 { tensor(2.0) * -0.0 } else { tensor(step as f32) };
                (parameter, state) = kernels.scope(|| rule.step(1e-3, parameter, gradient, state));
            }
            let momentum = state.unwrap().momentum;
            let bits = |tensor| values::<1>(tensor).into_iter().map(f32::to_bits).collect::<Vec<_>>();
            (momentum.time, [parameter, momentum.moment_1, momentum.moment_2].map(bits))
        };
        assert!(run(CpuKernels::Fused) == run(CpuKernels::Plain), "{size} {decay}");
    }
}
