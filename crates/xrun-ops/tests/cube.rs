//! Comparison of the kernels for GPUs with those for the CPU, on a Vulkan device: outputs and gradients.
//!
//! `cargo test -p xrun-ops --features vulkan`; Mesa's lavapipe is enough.

#![cfg(feature = "vulkan")]

mod inputs;

use burn::optim::Optimizer;
use burn::tensor::{Device, DeviceKind, Int, Tensor, TensorData};
use inputs::{Case, close, compare, pseudo_random};
use xrun_ops::{
    AdamW, AttentionMask, CpuKernels, GroupNorm, LossTargets, SaveActivations, Teacher, add_bias, attention,
    attention_packed, conv3x3_group_norm_relu, embedding, layer_norm, next_token_loss,
};

/// Asserts that the kernels of the device agree with those of the CPU and with Burn's own operations on the device.
fn check(name: &str, case: &Case, tolerance: f32) {
    let device = Device::wgpu(DeviceKind::DefaultDevice).autodiff();
    let found = case.run(CpuKernels::Fused, &device);
    assert_eq!(found, case.run(CpuKernels::Fused, &device), "{name}: two runs differ");
    compare(name, &found, &case.fused(), tolerance);
    compare(&format!("{name}, plain"), &found, &case.run(CpuKernels::Plain, &device), tolerance);
}

#[test]
fn layer_norms() {
    for (rows, width) in [(1, 1), (3, 5), (37, 100), (200, 768), (7, 1025)] {
        let case = Case::new([rows * width, width, width], move |[input, gamma, beta]| {
            layer_norm(input.reshape([rows, 1, width]), gamma, beta, 1e-5).reshape([-1])
        });
        check(&format!("{rows} x {width}"), &case, if width < 3 { 5e-2 } else { 1e-4 });
        check(&format!("{rows} x {width}, frozen"), &case.frozen(1), if width < 3 { 5e-2 } else { 1e-4 });
    }
}

#[test]
fn attentions() {
    for (batch, length, heads, width, mask) in [
        (1, 1, 1, 1, AttentionMask::None),
        (2, 7, 3, 12, AttentionMask::Causal),
        (3, 33, 2, 8, AttentionMask::None),
        (1, 300, 2, 4, AttentionMask::Causal),
    ] {
        let size = batch * length * width;
        let case = Case::new([size, size, size], move |inputs| {
            let [query, key, value] = inputs.map(|input| input.reshape([batch, length, width]));
            attention(query, key, value, heads, mask).reshape([-1])
        });
        check(&format!("{batch} {length} {heads} {mask:?}"), &case, 1e-4);
        let case = Case::new([3 * size], move |[input]| {
            attention_packed(input.reshape([batch, length, 3 * width]), heads, mask).reshape([-1])
        });
        check(&format!("{batch} {length} {heads} {mask:?}, packed"), &case, 1e-4);
    }
}

#[test]
fn next_token_losses() {
    for (rows, vocabulary) in [(1, 2), (5, 11), (20, 300), (3, 5000), (300, 17)] {
        for (teacher, fraction, temperature) in
            [(false, 0.0, 1.0), (true, 0.3, 1.0), (true, 1.0, 1.0), (true, 0.6, 2.5)]
        {
            let case = Case::new([rows * vocabulary], move |[logits]| {
                let labels = (0..rows).map(|row| ((row * 7) % vocabulary) as i32).collect();
                let weights = (0..rows).map(|row| (row % 3) as f32 * 0.5).collect();
                let device = logits.device().inner();
                let teacher = teacher.then(|| {
                    let values = TensorData::new(pseudo_random(rows * vocabulary, 5.0), [rows, vocabulary]);
                    let logits = Tensor::<2>::from_data(values, &device).mul_scalar(3.0);
                    Teacher { logits, divergence_fraction: fraction, temperature }
                });
                let logits = logits.mul_scalar(4.0).reshape([rows, vocabulary]);
                next_token_loss(logits, LossTargets { labels, weights, teacher }).total
            });
            check(&format!("{rows} x {vocabulary} {teacher} {fraction} {temperature}"), &case, 1e-4);
        }
    }
}

#[test]
fn biases() {
    for (rows, width) in [(1, 1), (5, 3), (300, 70), (1000, 513)] {
        let case = Case::new([rows * width, width], move |[input, bias]| {
            add_bias(input.reshape([rows, width]), bias).reshape([-1])
        });
        check(&format!("{rows} x {width}"), &case, 1e-4);
    }
}

#[test]
fn embeddings() {
    for (table, width, count, same) in [(1, 1, 1, 1), (7, 5, 20, 3), (50, 300, 700, 11), (1000, 16, 300, 1000)] {
        let case = Case::new([table * width], move |[rows]| {
            let ids: Vec<i32> = (0..count).map(|at| ((at * at + 3 * at) % same.min(table)) as i32).collect();
            let ids = Tensor::<1, Int>::from_data(TensorData::new(ids, [count]), &rows.device().inner());
            embedding(rows.reshape([table, width]), ids).reshape([-1])
        });
        check(&format!("{table} x {width}, {count}"), &case, 1e-4);
    }
}

#[test]
fn convolutions() {
    for [images, inputs, outputs, groups, height, width, stride] in [
        [1, 1, 1, 1, 3, 3, 1],
        [3, 3, 4, 2, 7, 5, 2],
        [2, 4, 6, 3, 8, 8, 1],
        [9, 2, 8, 8, 4, 6, 2],
        [2, 16, 32, 4, 33, 20, 2],
    ] {
        for save in [SaveActivations::All, SaveActivations::Inputs] {
            let shapes = [images * inputs * height * width, outputs * inputs * 9, outputs, outputs];
            let case = Case::new(shapes, move |[input, weight, gamma, beta]| {
                let input = input.reshape([images, inputs, height, width]);
                let norm = GroupNorm { gamma, beta, groups, epsilon: 1e-5 };
                conv3x3_group_norm_relu(input, weight.reshape([outputs, inputs, 3, 3]), norm, stride, save)
                    .reshape([-1])
            });
            check(&format!("{images} {inputs} {outputs} {groups} {height} {width} {stride} {save:?}"), &case, 1e-3);
        }
    }
}

#[test]
fn adamw_updates() {
    let run = |device: &Device, kernels: CpuKernels| {
        let rule = AdamW::new(0.9, 0.999, 1e-8, 0.1);
        let tensor = |seed| Tensor::<1>::from_floats(pseudo_random(1000, seed).as_slice(), device);
        let (mut parameter, mut state) = (tensor(0.0), None);
        for step in 1..=5 {
            (parameter, state) = kernels.scope(|| rule.step(0.01, parameter, tensor(step as f32), state));
        }
        parameter.into_data().iter::<f32>().collect::<Vec<_>>()
    };
    let vulkan = Device::wgpu(DeviceKind::DefaultDevice);
    let found = run(&vulkan, CpuKernels::Fused);
    close("parameter", &found, &run(&Device::flex(), CpuKernels::Fused), 1e-6);
    close("parameter", &found, &run(&vulkan, CpuKernels::Plain), 1e-6);
}
