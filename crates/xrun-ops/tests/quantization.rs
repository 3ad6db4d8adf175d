//! Fake quantisation and the loss of a language model beside Burn's operations and PyTorch's numbers.

#![expect(clippy::unwrap_used, reason = "tests stop at what is wrong")]

mod inputs;

use burn::tensor::{Device, Tensor, TensorData};
use inputs::{Case, check, close, drawn, same_bits_on_any_number_of_threads, values};
use serde_json::Value;
use xrun_ops::{CpuKernels, Gelu, LossTargets, Quantizer, Range, Teacher, gelu, layer_norm, next_token_loss};

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

/// `tests/reference/fake_quantise.py` of xrun.
#[test]
fn values_and_gradients_are_those_of_pytorch() {
    let all = reference(include_str!("../../../tests/reference/fake_quantise.json"));
    let device = Device::flex().autodiff();
    let tensor = |value: &Value| Tensor::<2>::from_data(TensorData::new(numbers(value), [4, 3]), &device);
    for (case, kernels) in
        all["cases"].as_array().unwrap().iter().flat_map(|case| KERNELS.map(|kernels| (case, kernels)))
    {
        let edge = |name: &str| Tensor::<1>::from_floats(numbers(&case[name]).as_slice(), &Device::flex());
        let range = Range { low: edge("low"), high: edge("high") };
        let input = tensor(&all["input"]).require_grad();
        let output = kernels.scope(|| quantizer(case).fake_quantize(input.clone(), &range));
        close("values", &values(output.clone()), &numbers(&case["values"]), 2e-6);
        let constant = kernels.scope(|| quantizer(case).quantize_dequantize(&input, &range));
        close("constant", &values(constant), &numbers(&case["values"]), 2e-6);
        let gradients = (output * tensor(&all["upstream"])).sum().backward();
        close("gradient", &values(input.grad(&gradients).unwrap()), &numbers(&case["gradient"]), 2e-6);
    }
}

/// A channel for each row: `tests/reference/fake_quantise_per_token.py` of xrun.
#[test]
fn rows_and_their_gradients_are_those_of_pytorch() {
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
        let range = Range::of(&input.clone().clamp(-6.3, 5.7), per_channel);
        quantizer.fake_quantize(input, &range).reshape([-1])
    })
}

fn on_rows(rows: usize, features: usize, quantizer: Quantizer) -> Case {
    Case::new([rows * features], move |[input]| {
        quantizer.fake_quantize_rows(input.mul_scalar(9.0).reshape([rows, features])).reshape([-1])
    })
}

/// For the same numbers the kernels and Burn's operations have the same levels and the same gradients: to the bit.
#[test]
fn levels_and_gradients_are_those_of_burn_to_the_bit() {
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

/// By hand: three levels of 1 between -1 and 1; four levels of 1 between -1 and 2, zero the second of them.
#[test]
fn two_bits_by_hand() {
    let input = Tensor::<1>::from_floats([-2.0, -0.6, 0.4, 1.2, 9.0], &Device::flex());
    let edge = |value: f32| Tensor::from_floats([value], &Device::flex());
    for (symmetric, low, high, expected) in [
        (true, -1.0, 0.5, [-1.0, -1.0, 0.0, 1.0, 1.0]),
        (false, -1.0, 2.0, [-1.0, -1.0, 0.0, 1.0, 2.0]),
        (false, 0.0, 0.0, [0.0; 5]),
    ] {
        let range = Range { low: edge(low), high: edge(high) };
        let quantized = Quantizer { bits: 2, symmetric }.fake_quantize(input.clone(), &range);
        close("values", &values(quantized), &expected, 1e-6);
    }
}

/// By hand: two bits, so a step is the row's greatest size; the second row does not feel the first one's outlier.
#[test]
fn a_row_does_not_depend_on_those_beside_it() {
    let input = Tensor::<2>::from_floats([[100.0, 1.0, -49.0], [0.3, -0.1, 0.2]], &Device::flex());
    let quantized = Quantizer { bits: 2, symmetric: true }.fake_quantize_rows(input);
    close("values", &values(quantized), &[100.0, 0.0, 0.0, 0.3, 0.0, 0.3], 1e-6);
}

#[test]
fn ranges_are_of_all_values_or_of_each_channel() {
    let input =
        Tensor::<3>::from_floats([[[1.0, -5.0], [2.0, 3.0]], [[-1.0, 0.0], [0.5, 7.0]]], &Device::flex().autodiff());
    let (all, each) = (Range::of(&input, false), Range::of(&input, true));
    assert!(!each.low.device().is_autodiff());
    assert_eq!((values(all.low), values(all.high)), (vec![-5.0], vec![7.0]));
    assert_eq!((values(each.low), values(each.high)), (vec![-1.0, -5.0], vec![2.0, 7.0]));
}

const ROWS: usize = 24;
const WIDTH: usize = 16;
const BITS: u32 = 6;

/// Values before quantisation, as a small network makes them of inputs with this seed.
fn before(seed: f32, kernels: CpuKernels, device: &Device) -> [Tensor<2>; 2] {
    let tensor = |count: usize, seed: f32| Tensor::<1>::from_floats(drawn(count, seed).as_slice(), device);
    let input = tensor(ROWS * WIDTH, seed).reshape([ROWS, WIDTH]).require_grad();
    let weight = tensor(WIDTH * WIDTH, seed + 0.5).reshape([WIDTH, WIDTH]);
    let normal = kernels.scope(|| {
        let normal = layer_norm(input.clone(), tensor(WIDTH, 0.1), tensor(WIDTH, 0.2), 1e-5);
        gelu(normal.matmul(weight), Gelu::Tanh)
    });
    [input, normal]
}

/// The fused kernels and Burn's operations round differently, by some units in the last place. After a grid, such a difference is
/// either nothing or a whole step, and a step only where a value lies at a boundary between two levels. So:
/// 1. levels differ by no more than one, and only where the value is nearer to a boundary than the rounding reaches;
/// 2. where no value is as near as that to a boundary, all levels and masks are the same, and gradients agree as they do
///    without quantisation.
#[test]
fn quantised_networks_agree_but_at_boundaries_between_levels() {
    // More than the two ways of rounding differ, in steps of the grid.
    const REACH: f32 = 1e-3;
    let device = Device::flex().autodiff();
    let quantizer = Quantizer { bits: BITS, symmetric: true };
    let range =
        Range { low: Tensor::from_floats([-0.9], &Device::flex()), high: Tensor::from_floats([0.9], &Device::flex()) };
    let step = 0.9 / 31.0;
    let mut quiet = 0;
    for seed in 0..40 {
        let runs = KERNELS.map(|kernels| {
            let [input, normal] = before(seed as f32 * 3.7, kernels, &device);
            let quantized = kernels.scope(|| quantizer.fake_quantize(normal.clone(), &range));
            let upstream = Tensor::<1>::from_floats(drawn(ROWS * WIDTH, 5.0).as_slice(), &device);
            let gradients = (quantized.clone() * upstream.reshape([ROWS, WIDTH])).sum().backward();
            (values(normal), values(quantized), values(input.grad(&gradients).unwrap()))
        });
        let [fused, plain] = &runs;
        // The distance to the nearest boundary, in steps; the last levels have one on one side.
        let distance = |value: f32| {
            let steps = value / step;
            let between = (steps - steps.floor() - 0.5).abs();
            if steps.abs() > 31.5 + REACH { f32::INFINITY } else { between }
        };
        let mut nearest = f32::INFINITY;
        for ((fused_value, plain_value), (fused, plain)) in
            fused.0.iter().zip(&plain.0).zip(fused.1.iter().zip(&plain.1))
        {
            assert!((fused_value - plain_value).abs() < REACH * step / 2.0, "{fused_value} {plain_value}");
            let away = distance(*plain_value);
            nearest = nearest.min(away);
            let levels = (fused / step).round() - (plain / step).round();
            assert!(
                levels == 0.0 || (levels.abs() == 1.0 && away < REACH),
                "{levels} levels, {away} steps from a boundary"
            );
        }
        if nearest >= REACH {
            quiet += 1;
            close("quantised values", &fused.1, &plain.1, 1e-6);
            close("gradients", &fused.2, &plain.2, 1e-5);
        }
    }
    assert!(quiet >= 5, "{quiet} of 40 networks have no value at a boundary");
}

/// PyTorch's `cross_entropy` and `kl_div`.
#[test]
fn both_parts_of_the_loss_and_the_gradient_are_those_of_pytorch() {
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
                share: number("share"),
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
        let teacher = Tensor::<1>::from_floats(drawn(rows * vocabulary, 3.0).as_slice(), &Device::flex());
        let targets = LossTargets {
            labels: (0..rows as i32).map(|row| row * 5 % vocabulary as i32).collect(),
            weights: (0..rows).map(|row| (row % 3) as f32 / rows as f32).collect(),
            teacher: temperature.map(|temperature| Teacher {
                logits: teacher.mul_scalar(factor * 0.7).reshape([rows, vocabulary]),
                share: 0.3,
                temperature,
            }),
        };
        next_token_loss(logits.mul_scalar(factor).reshape([rows, vocabulary]), targets).total
    })
}

/// A vocabulary that does not fill lanes, more rows than a thread takes, rows that do not count, and logits far apart.
#[test]
fn losses_are_those_of_burns_operations() {
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
fn a_model_that_agrees_with_its_teacher_does_not_diverge() {
    let logits = Tensor::<2>::from_floats([[0.3, -2.0, 1.0]], &Device::flex());
    let teacher = Teacher { logits: logits.clone(), share: 1.0, temperature: 1.0 };
    let targets = LossTargets { labels: vec![2], weights: vec![1.0], teacher: Some(teacher) };
    let before = values(logits.clone());
    let loss = next_token_loss(logits.clone(), targets);
    close("divergence", &values(loss.divergence.unwrap()), &[0.0], 1e-6);
    assert_eq!(values(logits), before, "logits that somebody else holds stay");
}

/// `torch.nn.functional.gelu(x, approximate="tanh")` and its gradient, PyTorch 2.15.
#[test]
fn gelu_with_tanh_is_that_of_pytorch() {
    let input = Tensor::<1>::from_floats([-3.0, -1.0, 0.0, 0.5, 2.0], &Device::flex().autodiff()).require_grad();
    let output = gelu(input.clone(), Gelu::Tanh);
    close("values", &values(output.clone()), &[-0.0036374, -0.158808, 0.0, 0.345714, 1.9545977], 1e-6);
    let gradients = output.sum().backward();
    let expected = [-0.0115842, -0.0829641, 0.5, 0.8673699, 1.0860993];
    close("slopes", &values(input.grad(&gradients).unwrap()), &expected, 1e-6);
}

#[test]
fn values_far_out_are_still_numbers_and_others_stay_none() {
    for form in [Gelu::Tanh, Gelu::Erf] {
        let input = Tensor::<1>::from_floats([-1e30, -60.0, 60.0, 1e30, f32::NAN], &Device::flex().autodiff());
        let input = input.require_grad();
        let output = gelu(input.clone(), form);
        let found = values(output.clone());
        assert!(found[0].abs() < 1e-6 && found[1].abs() < 1e-6 && found[2] == 60.0 && found[3] == 1e30, "{found:?}");
        assert!(found[4].is_nan());
        let gradients = output.sum().backward();
        assert!(values(input.grad(&gradients).unwrap())[..4].iter().all(|slope| slope.is_finite()));
    }
}
