//! Comparison of functions with fused kernels and with Burn's operations.

#![allow(dead_code, reason = "each test binary uses some of it")]

use burn::tensor::{Device, Tensor};
use rayon::ThreadPoolBuilder;
use xrun_ops::CpuKernels;

type Function = Box<dyn Fn(Vec<Tensor<1>>) -> Tensor<1> + Send + Sync>;

/// Function of flat inputs of fixed sizes.
pub struct Case {
    sizes: Vec<usize>,
    frozen: Option<usize>,
    function: Function,
}

/// Output, and gradient of each input that has one.
pub type Results = (Vec<f32>, Vec<Option<Vec<f32>>>);

/// Reproducible values from -1 to 1.
pub fn pseudo_random(count: usize, seed: f32) -> Vec<f32> {
    (0..count).map(|at| ((at as f32 * 0.731 + seed).sin() * 43_758.547).fract()).collect()
}

pub fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().iter().collect()
}

impl Case {
    pub fn new<const N: usize>(
        sizes: [usize; N],
        function: impl Fn([Tensor<1>; N]) -> Tensor<1> + Send + Sync + 'static,
    ) -> Self {
        let function = Box::new(move |inputs: Vec<Tensor<1>>| {
            function(inputs.try_into().unwrap_or_else(|_| unreachable!("one input for each size")))
        });
        Self { sizes: sizes.to_vec(), frozen: None, function }
    }

    /// Makes one input a constant.
    pub fn frozen(self, number: usize) -> Self {
        Self { frozen: Some(number), ..self }
    }

    /// Results on an autodiff device.
    pub fn run(&self, kernels: CpuKernels, device: &Device) -> Results {
        let leaves: Vec<Tensor<1>> = self
            .sizes
            .iter()
            .enumerate()
            .map(|(number, size)| {
                let leaf = Tensor::from_floats(pseudo_random(*size, number as f32).as_slice(), device);
                if self.frozen == Some(number) { leaf } else { leaf.require_grad() }
            })
            .collect();
        let output = kernels.scope(|| (self.function)(leaves.clone()));
        let upstream = Tensor::<1>::from_floats(pseudo_random(output.dims()[0], 9.0).as_slice(), device);
        // Outside of the scope: the backward pass must follow the choice of the forward pass.
        let gradients = (output.clone() * upstream).sum().backward();
        (values(output), leaves.iter().map(|leaf| leaf.grad(&gradients).map(values)).collect())
    }

    pub fn fused(&self) -> Results {
        self.run(CpuKernels::Fused, &Device::flex().autodiff())
    }

    pub fn plain(&self) -> Results {
        self.run(CpuKernels::Plain, &Device::flex().autodiff())
    }

    /// Returns the output without autodiff.
    fn inference(&self, kernels: CpuKernels) -> Vec<f32> {
        let device = Device::flex();
        let inputs = self.sizes.iter().enumerate();
        let inputs =
            inputs.map(|(number, size)| Tensor::from_floats(pseudo_random(*size, number as f32).as_slice(), &device));
        let inputs = inputs.collect();
        values(kernels.scope(|| (self.function)(inputs)))
    }
}

/// Asserts that values differ by at most `tolerance` times the largest expected magnitude.
pub fn close(name: &str, actual: &[f32], expected: &[f32], tolerance: f32) {
    assert_eq!(actual.len(), expected.len(), "{name}");
    let largest = expected.iter().fold(1e-3f32, |largest, value| largest.max(value.abs()));
    for (at, (actual, expected)) in actual.iter().zip(expected).enumerate() {
        assert!((actual - expected).abs() <= tolerance * largest, "{name}[{at}]: {actual}, expected {expected}");
    }
}

/// Asserts that outputs and gradients agree between fused kernels and Burn's operations.
pub fn check(name: &str, case: &Case, tolerance: f32) {
    compare(name, &case.fused(), &case.plain(), tolerance);
    let inference = case.inference(CpuKernels::Fused);
    close(&format!("{name}: without autodiff"), &inference, &case.fused().0, 1e-6);
}

/// Asserts that outputs and gradients agree.
pub fn compare(name: &str, fused: &Results, plain: &Results, tolerance: f32) {
    close(&format!("{name}: output"), &fused.0, &plain.0, tolerance);
    for (number, (fused, plain)) in fused.1.iter().zip(&plain.1).enumerate() {
        assert_eq!(fused.is_some(), plain.is_some(), "{name}: gradient {number}");
        if let (Some(fused), Some(plain)) = (fused, plain) {
            close(&format!("{name}: gradient {number}"), fused, plain, tolerance);
        }
    }
}

/// Asserts that outputs and gradients have the same bits on 1, 2, 3 and 8 threads.
pub fn same_bits_on_any_number_of_threads(case: &Case) {
    let runs = [1, 2, 3, 8].map(|threads| {
        let pool = ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| case.fused())
    });
    assert!(runs.iter().all(|run| *run == runs[0]), "bits depend on the number of threads");
}
