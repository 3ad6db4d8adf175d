//! Test support: values of tensors, a comparison of fused operations with Burn's own, and tasks of experiments.

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::Device;
use serde_json::Value;
use xrun_ops::CpuKernels;

use super::{Tensor, flat};
use xrun_core::bounded::ledger::Ledger;
use xrun_core::device::DeviceKind;
use xrun_core::experiment::Experiment;
use xrun_core::experiment::pipeline::{Opening, Prepared};
use xrun_core::task::{Phases, TaskError};

/// The CPU.
pub fn plain() -> Device {
    Device::flex()
}

/// The CPU with autodiff.
pub fn autodiff() -> Device {
    plain().autodiff()
}

/// Values of a tensor of floats.
pub fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().try_to_vec().expect("the tensor has 32-bit floats")
}

/// Phases that nobody measures.
pub struct Silent;

impl Phases for Silent {
    fn enter(&mut self, _: &'static str) {}
}

/// Task of an experiment on the CPU, prepared and given to `open` at a step.
pub fn opened<P: Prepared, T>(
    experiment: &Experiment,
    ledger: &Ledger,
    first_step: u64,
    open: impl FnOnce(P, Opening<'_>) -> Result<T, TaskError>,
) -> T {
    let (_, prepared) = experiment.prepare(ledger).expect("the data can be used");
    let prepared = prepared.into_parts().expect("the pipeline is that of the experiment");
    open(prepared, Opening { experiment, device: DeviceKind::Cpu, ledger, first_step }).expect("the CPU can be opened")
}

/// Numbers of a JSON list, nested ones row by row.
pub fn json_numbers(value: &Value) -> Vec<f32> {
    match value.as_array() {
        Some(list) => list.iter().flat_map(json_numbers).collect(),
        None => vec![value.as_f64().expect("a number") as f32],
    }
}

/// Asserts that numbers are as expected, each within `tolerance`.
pub fn close(found: &[f32], expected: &[f32], tolerance: f32) {
    assert_eq!(found.len(), expected.len());
    for (number, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!((found - expected).abs() <= tolerance, "at {number}: {found}, expected {expected}");
    }
}

/// Asserts that fused and plain kernels give the same outputs and gradients of all parameters. `compute` returns outputs and a
/// loss, `[1]`. The tolerance of a number is `tolerance` times the largest of its tensor, or a tenth of that times the largest
/// gradient of the network if that is larger: some gradients are zero but for rounding, for example that of a key's bias, which
/// adds the same to all scores of a softmax.
pub fn assert_kernels_agree<M: Module>(
    network: &M,
    tolerance: f32,
    compute: impl Fn(&M) -> (Vec<Tensor<2>>, Tensor<1>),
) {
    let run = |kernels: CpuKernels| {
        let (outputs, loss) = kernels.scope(|| compute(network));
        let gradients = gradients(network, GradientsParams::from_grads(loss.clone().backward(), network));
        let outputs = outputs.into_iter().chain([loss.unsqueeze()]).map(|output| values(output.inner()));
        (outputs.collect::<Vec<_>>(), gradients)
    };
    let (fused, plain) = (run(CpuKernels::Fused), run(CpuKernels::Plain));
    assert_ne!(fused, plain, "both runs used the same kernels");
    for (number, (found, expected)) in fused.0.iter().zip(&plain.0).enumerate() {
        assert_close(&format!("output {number}"), found, expected, tolerance * largest(expected));
    }
    let floor = 0.1 * plain.1.iter().map(|(_, gradient)| largest(gradient)).fold(0.0, f32::max);
    assert_eq!(fused.1.len(), plain.1.len(), "a parameter has a gradient with one kind of kernels only");
    for ((name, found), (_, expected)) in fused.1.iter().zip(&plain.1) {
        assert_close(name, found, expected, tolerance * largest(expected).max(floor));
    }
}

/// Gradients by the paths of their parameters, without parameters that have none.
pub fn gradients<M: Module>(network: &M, all: GradientsParams) -> Vec<(String, Vec<f32>)> {
    let mut gradients = Gradients { all, found: vec![] };
    network.visit(&mut gradients);
    let names = flat::parameter_ranges(network).into_iter().map(|(name, _)| name);
    names.zip(gradients.found).filter_map(|(name, found)| Some((name, found?))).collect()
}

/// Network with other values in all parameters, including scales and shifts.
pub fn changed<M: Module>(network: M) -> M {
    let mut values = flat::to_host(&network);
    values.iter_mut().enumerate().for_each(|(index, value)| *value += 0.2 * numbers(index));
    flat::from_host(network, &values)
}

/// Test value from -1 to 1 for an index.
pub fn numbers(index: usize) -> f32 {
    (index as f32 * 1.7).sin()
}

fn largest(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |largest, value| value.abs().max(largest))
}

fn assert_close(name: &str, found: &[f32], expected: &[f32], tolerance: f32) {
    assert_eq!(found.len(), expected.len(), "{name}");
    let differences = found.iter().zip(expected).map(|(found, expected)| (found - expected).abs());
    // `f32::max` would ignore NaN.
    let largest = differences.fold(0.0, |one: f32, other| if other <= one { one } else { other });
    assert!(largest <= tolerance, "{name}: difference {largest}, tolerance {tolerance}");
}

struct Gradients {
    all: GradientsParams,
    found: Vec<Option<Vec<f32>>>,
}

impl ModuleVisitor for Gradients {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.found.push(self.all.get::<D>(param.id).map(values));
    }
}
