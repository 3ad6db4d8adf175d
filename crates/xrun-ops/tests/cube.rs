//! Comparison of the kernels for GPUs with those for the CPU, on a Vulkan device: outputs and gradients.
//!
//! `cargo test -p xrun-ops --features vulkan`; Mesa's lavapipe is enough.

#![cfg(feature = "vulkan")]

mod inputs;

use burn::optim::decay::WeightDecayConfig;
use burn::optim::momentum::MomentumConfig;
use burn::optim::{Optimizer, SgdConfig};
use burn::tensor::{Device, DeviceKind, Int, Tensor, TensorData};
use inputs::{Case, close, compare, pseudo_random, values};
use xrun_ops::{
    AdamW, AttentionMask, CpuKernels, Gelu, GlobalNorm, GroupNorm, LossTargets, QuantRange, Quantizer, SaveActivations,
    Teacher, add_bias, attention, attention_packed, ciou_loss, conv1x1, conv3x3_group_norm_relu, embedding, gelu,
    giou_loss, in_place, layer_norm, linear, next_token_loss, normalise,
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
fn normalised_vectors() {
    for (rows, width) in [(1, 1), (37, 100), (7, 1025)] {
        let case = Case::new([rows * width], move |[input]| normalise(input.reshape([rows, width])).reshape([-1]));
        check(&format!("{rows} x {width}"), &case, if width < 2 { 1e-2 } else { 1e-5 });
    }
}

/// Boxes that overlap, that lie apart, and one inside the other.
#[test]
fn box_losses() {
    for (loss, name) in [(ciou_loss as fn(_, _) -> _, "CIoU"), (giou_loss, "GIoU")] {
        for (count, shift) in [(1, 0.1), (3, 5.0), (700, 0.3)] {
            let case = Case::new([count * 4], move |[input]| {
                let device = input.device();
                let boxes = |sides: Tensor<1>, shift: f32| {
                    let signs = Tensor::<2>::from_floats([[-1.0, -1.0, 1.0, 1.0]], &device);
                    (sides.mul_scalar(0.4).add_scalar(0.6).reshape([count, 4]) * signs).add_scalar(shift)
                };
                let truth = Tensor::from_floats(pseudo_random(count * 4, 5.0).as_slice(), &device);
                loss(boxes(input, 0.0), boxes(truth, shift))
            });
            check(&format!("{name} {count} {shift}"), &case, 1e-4);
        }
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
    for (table, width, count, same) in [(1, 1, 2, 1), (7, 5, 20, 3), (50, 300, 700, 11), (1000, 16, 300, 1000)] {
        let case = Case::new([table * width], move |[rows]| {
            let ids: Vec<i32> = (0..count).map(|at| ((at * at + 3 * at) % same.min(table)) as i32).collect();
            let ids = Tensor::<2, Int>::from_data(TensorData::new(ids, [2, count / 2]), &rows.device().inner());
            embedding(rows.reshape([table, width]), ids).reshape([-1])
        });
        check(&format!("{table} x {width}, {count}"), &case, 1e-4);
    }
}

#[test]
fn gelus() {
    for (size, form) in [(1, Gelu::Erf), (1001, Gelu::Erf), (1, Gelu::Tanh), (70_001, Gelu::Tanh)] {
        let case = Case::new([size], move |[input]| gelu(input.mul_scalar(6.0), form));
        // Burn's derivative of the exact form is that of the approximation, so that both are compared with the CPU's kernel.
        let found = case.run(CpuKernels::Fused, &Device::wgpu(DeviceKind::DefaultDevice).autodiff());
        compare(&format!("{size} {form:?}"), &found, &case.fused(), 1e-5);
    }
    let far = |device: &Device| values(gelu(Tensor::<1>::from_floats([-300.0, 300.0], device), Gelu::Tanh));
    assert_eq!(far(&Device::wgpu(DeviceKind::DefaultDevice)), [0.0, 300.0]);
}

/// Values of a grid that does not have all of them, with one grid, one for each channel, and one for each row.
#[test]
fn fake_quantisations() {
    for (rows, width, bits, symmetric) in
        [(1, 1, 8, true), (3, 5, 4, false), (37, 100, 8, false), (300, 70, 3, true), (2, 1025, 8, true)]
    {
        let quantizer = Quantizer { bits, symmetric };
        for per_channel in [false, true] {
            let case = Case::new([rows * width], move |[input]| {
                let values = input.reshape([rows, width]);
                let range = QuantRange::min_max(&values.clone().mul_scalar(0.7), per_channel);
                quantizer.fake_quantize(values, &range).reshape([-1])
            });
            check(&format!("{rows} x {width} {quantizer:?} {per_channel}"), &case, 1e-5);
        }
        let case = Case::new([rows * width], move |[input]| {
            quantizer.fake_quantize_rows(input.reshape([rows, width])).reshape([-1])
        });
        check(&format!("{rows} x {width} {quantizer:?} rows"), &case, 1e-5);
    }
}

/// Ranges of up to 256 chunks and cubes, and norms of tensors of different sizes, are those of the CPU.
#[test]
fn ranges_and_norms() {
    let run = |device: &Device| {
        let mut found = Vec::new();
        let mut norm = GlobalNorm::default();
        for (rows, width) in [(1, 1), (5, 3), (700, 100), (70_000, 3)] {
            let tensor = Tensor::<1>::from_floats(pseudo_random(rows * width, 1.0).as_slice(), device);
            let tensor = tensor.reshape([rows, width]);
            for per_channel in [false, true] {
                let QuantRange { low, high } = QuantRange::min_max(&tensor, per_channel);
                found.extend([low, high].map(values));
            }
            norm.add(tensor);
        }
        (found, values(norm.root().unwrap())[0])
    };
    let ((found, norm), (expected, expected_norm)) =
        (run(&Device::wgpu(DeviceKind::DefaultDevice)), run(&Device::flex()));
    assert_eq!(found, expected);
    assert!((norm / expected_norm - 1.0).abs() < 1e-5, "{norm} {expected_norm}");
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
fn pointwise_convolutions_and_linear_layers() {
    for [images, inputs, outputs, side] in [[1, 1, 1, 1], [3, 5, 7, 6], [2, 33, 13, 9]] {
        let shapes = [images * inputs * side * side, outputs * inputs, outputs];
        let case = Case::new(shapes, move |[input, weight, bias]| {
            let input = input.reshape([images, inputs, side, side]);
            conv1x1(input, weight.reshape([outputs, inputs, 1, 1]), bias).reshape([-1])
        });
        check(&format!("{images} {inputs} {outputs} {side}"), &case, 1e-4);
        let case = Case::new(shapes, move |[input, weight, bias]| {
            let input = input.reshape([images * side * side, inputs]);
            linear(input, weight.reshape([inputs, outputs]), Some(bias)).reshape([-1])
        });
        check(&format!("linear {images} {inputs} {outputs} {side}"), &case, 1e-4);
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

/// Five updates of more tensors than a launch takes, by two halves of their gradients that are added on the device, against the updates of
/// Burn's optimisers.
#[test]
fn updates_in_place() {
    let device = Device::wgpu(DeviceKind::DefaultDevice);
    let sizes: Vec<usize> = (0..20).map(|number| [1, 257, 1001, 40][number % 4] + number).collect();
    let tensor = |number: usize, step: usize| {
        Tensor::<1>::from_floats(pseudo_random(sizes[number], (number + 31 * step) as f32).as_slice(), &device)
    };
    let all = |make: &dyn Fn(usize) -> Tensor<1>| -> Vec<Tensor<1>> { (0..sizes.len()).map(make).collect() };
    let start = |value| all(&|number| in_place::fixed(Tensor::full([sizes[number]], value, &device)));
    let fixed = |values: &[f32]| in_place::fixed(Tensor::<1>::from_floats(values, &device));
    let adamw = AdamW::new(0.9, 0.999, 1e-8, 0.1);
    let run = |states: usize, update: &dyn Fn(&[in_place::Update], &Tensor<1>, &Tensor<1>)| {
        let parameters = all(&|number| in_place::fixed(tensor(number, 0)));
        let (sums, state) = (start(0.0), [start(0.0), start(0.0)]);
        for step in 1..=5 {
            for _ in 0..2 {
                in_place::add(sums.iter().cloned().zip(all(&|number| tensor(number, step))).collect());
            }
            let updates = (0..sizes.len()).map(|number| {
                let state: Vec<_> = state[..states].iter().map(|state| &state[number]).collect();
                in_place::Update::new(&parameters[number], sums[number].clone(), &state)
            });
            update(&updates.collect::<Vec<_>>(), &fixed(&adamw.scalars(0.01, step)), &fixed(&[0.5]));
            in_place::clear(&sums);
        }
        assert!(sums.into_iter().all(|sum| values(sum).iter().all(|value| *value == 0.0)));
        parameters.into_iter().map(values).collect::<Vec<_>>()
    };
    fn expected<O: Optimizer>(rule: &O, gradient: impl Fn(usize) -> Tensor<1>) -> Vec<f32> {
        let (mut parameter, mut state) = (gradient(0), None);
        for step in 1..=5 {
            (parameter, state) = rule.step(0.01, parameter, gradient(step), state);
        }
        values(parameter)
    }
    let found = run(2, &|updates, scalars, factor| adamw.step_in_place(updates, scalars, factor));
    for (number, found) in found.iter().enumerate() {
        assert_eq!(found, &expected(&adamw, |step| tensor(number, step)), "AdamW has other bits in place: {number}");
    }
    for (momentum, nesterov, weight_decay) in [(0.0, false, 0.0), (0.9, false, 0.1), (0.8, true, 0.0)] {
        let rule = in_place::Sgd { momentum, nesterov, weight_decay };
        let found = run(usize::from(momentum > 0.0), &|updates, scalars, factor| {
            rule.step_in_place(updates, scalars, factor);
        });
        let config = MomentumConfig::new().with_momentum(f64::from(momentum)).with_dampening(0.0);
        let plain = SgdConfig::new()
            .with_momentum((momentum > 0.0).then(|| config.with_nesterov(nesterov)))
            .with_weight_decay((weight_decay > 0.0).then(|| WeightDecayConfig::new(weight_decay)))
            .build();
        for (number, found) in found.iter().enumerate() {
            close(&format!("{rule:?} {number}"), found, &expected(&plain, |step| tensor(number, step)), 1e-6);
        }
    }
}

/// Assignments to more tensors than a launch takes.
#[test]
fn assignments_in_place() {
    let device = Device::wgpu(DeviceKind::DefaultDevice);
    let value = |number: usize| vec![number as f32; 3 * number + 1];
    let pairs: Vec<_> = (0..40)
        .map(|number| {
            let value = Tensor::<1>::from_floats(value(number).as_slice(), &device);
            (in_place::fixed(value.zeros_like()), value)
        })
        .collect();
    in_place::assign(pairs.clone());
    for (number, (assigned, _)) in pairs.into_iter().enumerate() {
        assert_eq!(values(assigned), value(number));
    }
}
