//! Comparison of fused operations with Burn's: outputs, gradients, and independence of the number of threads.

#![expect(clippy::unwrap_used, reason = "tests stop at what is wrong")]

mod inputs;

use burn::optim::Optimizer;
use burn::tensor::{Device, Tensor};
use inputs::{Case, check, pseudo_random, same_bits_on_any_number_of_threads, values};
use xrun_ops::{
    AdamW, AttentionMask, CpuKernels, Gelu, GroupNorm, SaveActivations, attention, attention_packed, conv1x1,
    conv3x3_group_norm_relu, gelu, layer_norm, linear,
};

/// Images, channels of the input and of the output, groups, height, width, stride.
const CONVOLUTIONS: [[usize; 7]; 9] = [
    [1, 1, 1, 1, 1, 1, 1],
    [3, 3, 4, 2, 7, 5, 2],
    [2, 4, 6, 3, 8, 8, 1],
    [9, 2, 8, 8, 4, 6, 2],
    [17, 5, 4, 1, 3, 3, 1],
    [20, 16, 16, 4, 5, 9, 2],
    [1, 8, 8, 2, 33, 40, 1],
    [5, 3, 16, 8, 48, 48, 2],
    [2, 1, 2, 1, 1, 4, 2],
];

fn convolution([images, inputs, outputs, groups, height, width, stride]: [usize; 7], save: SaveActivations) -> Case {
    let shapes = [images * inputs * height * width, outputs * inputs * 9, outputs, outputs];
    Case::new(shapes, move |[input, weight, gamma, beta]| {
        let input = input.reshape([images, inputs, height, width]);
        let norm = GroupNorm { gamma, beta, groups, epsilon: 1e-5 };
        flat(conv3x3_group_norm_relu(input, weight.reshape([outputs, inputs, 3, 3]), norm, stride, save))
    })
}

fn flat<const D: usize>(tensor: Tensor<D>) -> Tensor<1> {
    tensor.reshape([-1])
}

/// Normalising a group of 1 or 2 values amplifies rounding errors, so those shapes have a larger tolerance.
#[test]
fn convolutions_with_group_norm_and_relu() {
    for sizes in CONVOLUTIONS {
        let [_, _, outputs, groups, height, width, stride] = sizes;
        let values = outputs / groups * height.div_ceil(stride) * width.div_ceil(stride);
        for save in [SaveActivations::All, SaveActivations::Inputs] {
            check(&format!("{sizes:?} {save:?}"), &convolution(sizes, save), if values < 3 { 5e-2 } else { 2e-4 });
        }
    }
}

#[test]
fn activation_checkpointing_changes_no_bit() {
    for sizes in CONVOLUTIONS {
        let [all, inputs] =
            [SaveActivations::All, SaveActivations::Inputs].map(|save| convolution(sizes, save).fused());
        assert!(all == inputs, "{sizes:?}");
    }
}

#[test]
fn convolutions_1x1() {
    for [images, inputs, outputs, height, width] in
        [[1, 1, 1, 1, 1], [3, 5, 4, 6, 7], [11, 16, 9, 12, 12], [8, 64, 53, 3, 3]]
    {
        let case =
            Case::new([images * inputs * height * width, outputs * inputs, outputs], move |[input, weight, bias]| {
                let input = input.reshape([images, inputs, height, width]);
                flat(conv1x1(input, weight.reshape([outputs, inputs, 1, 1]), bias))
            });
        check(&format!("{images} {inputs} {outputs}"), &case, 1e-5);
    }
}

/// The weight is stored by columns if `transposed` is set.
fn linear_case([rows, inputs, outputs]: [usize; 3], transposed: bool) -> Case {
    Case::new([rows * inputs, inputs * outputs, outputs], move |[input, weight, bias]| {
        let weight = match transposed {
            true => weight.reshape([outputs, inputs]).transpose(),
            false => weight.reshape([inputs, outputs]),
        };
        let input = input.reshape([rows, inputs]);
        Tensor::cat(vec![flat(linear(input.clone(), weight.clone(), None)), flat(linear(input, weight, Some(bias)))], 0)
    })
}

/// Rows, inputs and outputs: blocks for all threads, for some, and for one.
const LINEARS: [[usize; 3]; 7] =
    [[1, 1, 1], [3, 5, 2], [70, 33, 65], [257, 600, 24], [300, 64, 192], [1000, 1040, 16], [97, 1500, 64]];

#[test]
fn linear_layers() {
    for sizes in LINEARS {
        for transposed in [false, true] {
            let case = linear_case(sizes, transposed);
            check(&format!("{sizes:?} {transposed}"), &case, 1e-5);
            same_bits_on_any_number_of_threads(&case);
        }
        for frozen in 0..3 {
            check(&format!("{sizes:?} frozen {frozen}"), &linear_case(sizes, false).frozen(frozen), 1e-5);
        }
    }
    let case = Case::new([40 * 30, 12 * 9], |[input, weight]| {
        let input = input.reshape([40, 30]).narrow(1, 7, 12);
        flat(linear(input, weight.reshape([9, 12]).flip([0]).transpose(), None))
    });
    check("strided", &case, 1e-5);
}

/// Burn's operations accept tensors without autodiff as constants, too.
#[test]
fn a_weight_without_autodiff_is_a_constant() {
    let case = Case::new([5 * 4, 4 * 3], |[input, weight]| {
        flat(linear(
            input.reshape([5, 4]),
            if weight.is_autodiff() { weight.inner() } else { weight }.reshape([4, 3]),
            None,
        ))
    });
    check("constant", &case.frozen(1), 1e-5);
}

fn layer_norm_case(rows: usize, width: usize) -> Case {
    Case::new([rows * width, width, width], move |[input, gamma, beta]| {
        flat(layer_norm(input.reshape([rows, 1, width]), gamma, beta, 1e-5))
    })
}

#[test]
fn layer_norms() {
    for (rows, width) in [(1, 2), (3, 7), (64, 32), (65, 33), (200, 128), (130, 385)] {
        check(&format!("{rows} {width}"), &layer_norm_case(rows, width), if width == 2 { 1e-2 } else { 1e-4 });
    }
}

fn gelu_case(count: usize, form: Gelu) -> Case {
    Case::new([count], move |[input]| gelu(input.mul_scalar(2.5), form))
}

#[test]
fn gelus() {
    for form in [Gelu::Erf, Gelu::Tanh] {
        for count in [1, 31, 33, 1000, 20_000] {
            check(&format!("{form:?} {count}"), &gelu_case(count, form), 4e-6);
        }
    }
}

/// Narrowed and transposed tensors, which are not contiguous.
#[test]
fn operations_accept_strided_views() {
    let case =
        Case::new([12 * 10], |[input]| flat(gelu(input.reshape([12, 10]).narrow(1, 3, 4).transpose(), Gelu::Tanh)));
    check("gelu", &case, 4e-6);
    let case = Case::new([2 * 5 * 24], |[input]| {
        let all = input.reshape([2, 5, 24]);
        let part = |number: usize| all.clone().narrow(2, number * 8, 8);
        flat(attention(part(2), part(0), part(1), 2, AttentionMask::Causal))
    });
    check("attention", &case, 1e-5);
    let case = Case::new([7 * 6, 7, 7], |[input, gamma, beta]| {
        flat(layer_norm(input.reshape([7, 6]).transpose(), gamma, beta, 1e-5))
    });
    check("layer norm", &case, 1e-4);
}

fn attention_case([batch, length, heads, size]: [usize; 4], mask: AttentionMask) -> Case {
    let count = batch * length * heads * size;
    Case::new([count, count, count], move |inputs| {
        let [query, key, value] = inputs.map(|input| input.mul_scalar(1.7).reshape([batch, length, heads * size]));
        flat(attention(query, key, value, heads, mask))
    })
}

/// Batch, length, heads, dimension of a head; lengths around multiples of the block of queries.
const ATTENTIONS: [[usize; 4]; 7] =
    [[1, 1, 1, 1], [2, 2, 1, 3], [3, 11, 2, 5], [1, 64, 2, 8], [2, 65, 3, 4], [1, 130, 1, 16], [2, 200, 2, 7]];

#[test]
fn attentions() {
    for sizes in ATTENTIONS {
        for mask in [AttentionMask::None, AttentionMask::Causal] {
            check(&format!("{sizes:?} {mask:?}"), &attention_case(sizes, mask), 2e-5);
            let [batch, length, heads, size] = sizes;
            let packed = Case::new([batch * length * 3 * heads * size], move |[input]| {
                flat(attention_packed(input.mul_scalar(1.7).reshape([batch, length, 3 * heads * size]), heads, mask))
            });
            check(&format!("packed {sizes:?} {mask:?}"), &packed, 2e-5);
        }
    }
}

/// Fewer or more queries than keys, as in attention pooling; the queries are broadcast over the batch.
#[test]
fn cross_attention() {
    for [batch, length, keys, heads, size] in [[2, 3, 70, 2, 4], [3, 130, 5, 1, 3]] {
        let width = heads * size;
        let case = Case::new([length * width, batch * keys * width], move |[query, key]| {
            let query = query.reshape([1, length, width]).expand([batch, length, width]);
            let key = key.reshape([batch, keys, width]);
            flat(attention(query, key.clone(), key, heads, AttentionMask::None))
        });
        check(&format!("{batch} {length} {keys}"), &case, 2e-5);
    }
}

/// Empty batches fall back to Burn's operations.
#[test]
fn empty_inputs_have_empty_outputs() {
    let input = Tensor::<3>::zeros([0, 5, 12], &burn::tensor::Device::flex());
    assert_eq!(gelu(input, Gelu::Tanh).dims(), [0, 5, 12]);
}

/// The first token attends to itself; the second has scores 0 and ln 3, hence probabilities 1/4 and 3/4.
#[test]
fn causal_attention_of_two_tokens() {
    let tensor = |values: [f32; 2]| Tensor::<3>::from_data([[[values[0]], [values[1]]]], &burn::tensor::Device::flex());
    let output =
        attention(tensor([5.0, 1.0]), tensor([0.0, 3.0f32.ln()]), tensor([4.0, 8.0]), 1, AttentionMask::Causal);
    let output: Vec<f32> = output.into_data().iter().collect();
    assert!((output[0] - 4.0).abs() < 1e-6 && (output[1] - 7.0).abs() < 1e-5, "{output:?}");
}

#[test]
fn a_frozen_input_has_no_gradient_and_does_not_change_the_others() {
    let sizes = [9, 4, 8, 4, 6, 5, 1];
    for frozen in 0..4 {
        check(&format!("frozen {frozen}"), &convolution(sizes, SaveActivations::All).frozen(frozen), 2e-4);
        check(&format!("frozen {frozen}"), &convolution(sizes, SaveActivations::Inputs).frozen(frozen), 2e-4);
    }
    for frozen in 0..3 {
        check(&format!("frozen {frozen}"), &layer_norm_case(70, 9).frozen(frozen), 1e-4);
        check(&format!("frozen {frozen}"), &attention_case([2, 70, 2, 4], AttentionMask::Causal).frozen(frozen), 2e-5);
    }
}

#[test]
fn bits_do_not_depend_on_the_number_of_threads() {
    same_bits_on_any_number_of_threads(&convolution([20, 16, 24, 4, 17, 19, 2], SaveActivations::Inputs));
    same_bits_on_any_number_of_threads(&convolution([19, 16, 24, 4, 12, 12, 1], SaveActivations::All));
    same_bits_on_any_number_of_threads(&layer_norm_case(700, 129));
    same_bits_on_any_number_of_threads(&gelu_case(50_000, Gelu::Erf));
    same_bits_on_any_number_of_threads(&gelu_case(50_000, Gelu::Tanh));
    same_bits_on_any_number_of_threads(&attention_case([3, 130, 4, 16], AttentionMask::Causal));
    same_bits_on_any_number_of_threads(&attention_case([3, 130, 4, 16], AttentionMask::None));
    let pointwise = Case::new([21 * 16 * 100, 24 * 16, 24], |[input, weight, bias]| {
        flat(conv1x1(input.reshape([21, 16, 10, 10]), weight.reshape([24, 16, 1, 1]), bias))
    });
    same_bits_on_any_number_of_threads(&pointwise);
}

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
