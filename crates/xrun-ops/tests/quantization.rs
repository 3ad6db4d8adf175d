//! Comparison of fake quantisation and of the next-token loss with Burn's operations and with PyTorch.

#![expect(clippy::unwrap_used, reason = "tests stop at what is wrong")]

mod inputs;

use burn::tensor::{Device, Tensor, TensorData};
use inputs::{Case, check, close, pseudo_random, same_bits_on_any_number_of_threads, values};
use serde_json::Value;
use xrun_ops::{CpuKernels, Gelu, LossTargets, QuantRange, Quantizer, Teacher, gelu, next_token_loss};

fn numbers(value: &Value) -> Vec<f32> {
    match value.as_array() {
        Some(list) => list.iter().flat_map(numbers).collect(),
        None => vec![value.as_f64().unwrap() as f32],
    }
}

fn reference(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

const KERNELS: [CpuKernels; 2] = [CpuKernels::Fused, CpuKernels::Plain];

fn quantizer(case: &Value) -> Quantizer {
    Quantizer { bits: case["bits"].as_u64().unwrap() as u32, symmetric: case["scheme"] == "symmetric" }
}

/// Reference: `tests/reference/fake_quantise.py`.
#[test]
fn fake_quantization_agrees_with_pytorch() {
    let all = reference(include_str!("../../../tests/reference/fake_quantise.json"));
    let device = Device::flex().autodiff();
    let tensor = |value: &Value| Tensor::<2>::from_data(TensorData::new(numbers(value), [4, 3]), &device);
    for (case, kernels) in
        all["cases"].as_array().unwrap().iter().flat_map(|case| KERNELS.map(|kernels| (case, kernels)))
    {
        let edge = |name: &str| Tensor::<1>::from_floats(numbers(&case[name]).as_slice(), &Device::flex());
        let range = QuantRange { low: edge("low"), high: edge("high") };
        let input = tensor(&all["input"]).require_grad();
        let output = kernels.scope(|| quantizer(case).fake_quantize(input.clone(), &range));
        close("values", &values(output.clone()), &numbers(&case["values"]), 2e-6);
        let constant = kernels.scope(|| quantizer(case).quantize_dequantize(&input, &range));
        close("constant", &values(constant), &numbers(&case["values"]), 2e-6);
        let gradients = (output * tensor(&all["upstream"])).sum().backward();
        close("gradient", &values(input.grad(&gradients).unwrap()), &numbers(&case["gradient"]), 2e-6);
    }
}

/// Reference: `tests/reference/fake_quantise_per_token.py`.
#[test]
fn fake_quantization_of_rows_agrees_with_pytorch() {
    let all = reference(include_str!("../../../tests/reference/fake_quantise_per_token.json"));
    let device = Device::flex().autodiff();
    let tensor = |value: &Value| Tensor::<2>::from_data(TensorData::new(numbers(value), [6, 11]), &device);
    for (case, kernels) in
        all["cases"].as_array().unwrap().iter().flat_map(|case| KERNELS.map(|kernels| (case, kernels)))
    {
        let input = tensor(&all["input"]).require_grad();
        let output = kernels.scope(|| quantizer(case).fake_quantize_rows(input.clone()));
        close("values", &values(output.clone()), &numbers(&case["values"]), 2e-6);
        let gradients = (output * tensor(&all["upstream"])).sum().backward();
        close("gradient", &values(input.grad(&gradients).unwrap()), &numbers(&case["gradient"]), 2e-6);
    }
}

fn on_range(rows: usize, channels: usize, quantizer: Quantizer, per_channel: bool) -> Case {
    Case::new([rows * channels], move |[input]| {
        let input = input.mul_scalar(9.0).reshape([rows, channels]);
        let range = QuantRange::min_max(&input.clone().clamp(-6.3, 5.7), per_channel);
        quantizer.fake_quantize(input, &range).reshape([-1])
    })
}

fn on_rows(rows: usize, features: usize, quantizer: Quantizer) -> Case {
    Case::new([rows * features], move |[input]| {
        quantizer.fake_quantize_rows(input.mul_scalar(9.0).reshape([rows, features])).reshape([-1])
    })
}

#[test]
fn kernels_and_burns_operations_give_the_same_bits() {
    for (rows, features) in [(1, 1), (3, 8), (70, 13), (40, 100), (9, 2000), (300, 33)] {
        for (bits, symmetric) in [(2, true), (2, false), (5, false), (8, true), (16, false), (16, true)] {
            let quantizer = Quantizer { bits, symmetric };
            let cases = [
                on_rows(rows, features, quantizer),
                on_range(rows, features, quantizer, true),
                on_range(rows, features, quantizer, false),
            ];
            for case in cases {
                assert!(case.fused() == case.plain(), "{rows} {features} {quantizer:?}");
            }
        }
    }
}

#[test]
fn bits_do_not_depend_on_the_number_of_threads() {
    same_bits_on_any_number_of_threads(&on_rows(300, 130, Quantizer { bits: 4, symmetric: false }));
    same_bits_on_any_number_of_threads(&on_range(300, 130, Quantizer { bits: 4, symmetric: true }, true));
    same_bits_on_any_number_of_threads(&on_range(300, 130, Quantizer { bits: 4, symmetric: true }, false));
    same_bits_on_any_number_of_threads(&loss_case(100, 130, 3.0, Some(2.5)));
}

/// Symmetric: levels -1, 0, 1. Asymmetric: levels -1, 0, 1, 2.
#[test]
fn two_bits() {
    let input = Tensor::<1>::from_floats([-2.0, -0.6, 0.4, 1.2, 9.0], &Device::flex());
    let edge = |value: f32| Tensor::from_floats([value], &Device::flex());
    for (symmetric, low, high, expected) in [
        (true, -1.0, 0.5, [-1.0, -1.0, 0.0, 1.0, 1.0]),
        (false, -1.0, 2.0, [-1.0, -1.0, 0.0, 1.0, 2.0]),
        (false, 0.0, 0.0, [0.0; 5]),
    ] {
        let range = QuantRange { low: edge(low), high: edge(high) };
        let quantized = Quantizer { bits: 2, symmetric }.fake_quantize(input.clone(), &range);
        close("values", &values(quantized), &expected, 1e-6);
    }
}

/// With two bits the scale is the largest magnitude of a row.
#[test]
fn an_outlier_does_not_affect_other_rows() {
    let input = Tensor::<2>::from_floats([[100.0, 1.0, -49.0], [0.3, -0.1, 0.2]], &Device::flex());
    let quantized = Quantizer { bits: 2, symmetric: true }.fake_quantize_rows(input);
    close("values", &values(quantized), &[100.0, 0.0, 0.0, 0.3, 0.0, 0.3], 1e-6);
}

#[test]
fn ranges_per_tensor_and_per_channel() {
    let input =
        Tensor::<3>::from_floats([[[1.0, -5.0], [2.0, 3.0]], [[-1.0, 0.0], [0.5, 7.0]]], &Device::flex().autodiff());
    let (all, each) = (QuantRange::min_max(&input, false), QuantRange::min_max(&input, true));
    assert!(!each.low.device().is_autodiff());
    assert_eq!((values(all.low), values(all.high)), (vec![-5.0], vec![7.0]));
    assert_eq!((values(each.low), values(each.high)), (vec![-1.0, -5.0], vec![2.0, 7.0]));
}

/// Reference: PyTorch's `cross_entropy` and `kl_div`.
#[test]
fn loss_and_gradient_agree_with_pytorch() {
    let all = reference(include_str!("../../../tests/reference/fake_quantise.json"));
    for (case, kernels) in
        all["distillation"].as_array().unwrap().iter().flat_map(|case| KERNELS.map(|kernels| (case, kernels)))
    {
        let tensor =
            |name: &str, device: &Device| Tensor::<2>::from_data(TensorData::new(numbers(&all[name]), [5, 7]), device);
        let number = |name: &str| case[name].as_f64().unwrap();
        let logits = tensor("logits", &Device::flex().autodiff()).require_grad();
        let targets = LossTargets {
            labels: numbers(&all["targets"]).into_iter().map(|label| label as i32).collect(),
            weights: numbers(&all["weights"]).into_iter().map(|weight| weight / 4.0).collect(),
            teacher: Some(Teacher {
                logits: tensor("teacher", &Device::flex()),
                divergence_fraction: number("share"),
                temperature: number("temperature"),
            }),
        };
        let loss = kernels.scope(|| next_token_loss(logits.clone(), targets));
        close("cross-entropy", &values(loss.cross_entropy), &[number("cross_entropy") as f32], 1e-5);
        close("divergence", &values(loss.divergence.unwrap()), &[number("divergence") as f32], 1e-5);
        close("total", &values(loss.total.clone()), &[number("total") as f32], 1e-5);
        let gradients = loss.total.backward();
        close("gradient", &values(logits.grad(&gradients).unwrap()), &numbers(&case["gradient"]), 1e-5);
    }
}

fn loss_case(rows: usize, vocabulary: usize, factor: f32, temperature: Option<f64>) -> Case {
    Case::new([rows * vocabulary], move |[logits]| {
        let teacher = Tensor::<1>::from_floats(pseudo_random(rows * vocabulary, 3.0).as_slice(), &Device::flex());
        let targets = LossTargets {
            labels: (0..rows as i32).map(|row| row * 5 % vocabulary as i32).collect(),
            weights: (0..rows).map(|row| (row % 3) as f32 / rows as f32).collect(),
            teacher: temperature.map(|temperature| Teacher {
                logits: teacher.mul_scalar(factor * 0.7).reshape([rows, vocabulary]),
                divergence_fraction: 0.3,
                temperature,
            }),
        };
        next_token_loss(logits.mul_scalar(factor).reshape([rows, vocabulary]), targets).total
    })
}

/// Vocabularies that do not fill the lanes, several chunks of rows, weights of zero, and large logits.
#[test]
fn losses_agree_with_burns_operations() {
    for (rows, vocabulary) in [(1, 2), (70, 37), (33, 512), (20, 1001)] {
        for (factor, temperature) in
            [(5.0, Some(1.0)), (5.0, None), (150.0, Some(1.0)), (150.0, None), (150.0, Some(2.5))]
        {
            let case = loss_case(rows, vocabulary, factor, temperature);
            check(&format!("{rows} {vocabulary} {factor} {temperature:?}"), &case, 2e-5);
        }
    }
}

#[test]
fn the_divergence_from_an_equal_teacher_is_zero() {
    let logits = Tensor::<2>::from_floats([[0.3, -2.0, 1.0]], &Device::flex());
    let teacher = Teacher { logits: logits.clone(), divergence_fraction: 1.0, temperature: 1.0 };
    let targets = LossTargets { labels: vec![2], weights: vec![1.0], teacher: Some(teacher) };
    let original = values(logits.clone());
    let loss = next_token_loss(logits.clone(), targets);
    close("divergence", &values(loss.divergence.unwrap()), &[0.0], 1e-6);
    assert_eq!(values(logits), original, "shared logits were overwritten");
}

/// Reference: `torch.nn.functional.gelu(x, approximate="tanh")` and its gradient, PyTorch 2.15.
#[test]
fn gelu_with_tanh_agrees_with_pytorch() {
    let input = Tensor::<1>::from_floats([-3.0, -1.0, 0.0, 0.5, 2.0], &Device::flex().autodiff()).require_grad();
    let output = gelu(input.clone(), Gelu::Tanh);
    close("values", &values(output.clone()), &[-0.0036374, -0.158808, 0.0, 0.345714, 1.9545977], 1e-6);
    let gradients = output.sum().backward();
    let expected = [-0.0115842, -0.0829641, 0.5, 0.8673699, 1.0860993];
    close("gradient", &values(input.grad(&gradients).unwrap()), &expected, 1e-6);
}

#[test]
fn gelu_of_large_values_is_finite_and_keeps_nan() {
    for form in [Gelu::Tanh, Gelu::Erf] {
        let input = Tensor::<1>::from_floats([-1e30, -60.0, 60.0, 1e30, f32::NAN], &Device::flex().autodiff());
        let input = input.require_grad();
        let output = gelu(input.clone(), form);
        let found = values(output.clone());
        assert!(found[0].abs() < 1e-6 && found[1].abs() < 1e-6 && found[2] == 60.0 && found[3] == 1e30, "{found:?}");
        assert!(found[4].is_nan());
        let gradients = output.sum().backward();
        assert!(values(input.grad(&gradients).unwrap())[..4].iter().all(|gradient| gradient.is_finite()));
    }
}
