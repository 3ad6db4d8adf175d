//! A function of flat inputs, run with fused kernels and with Burn's operations.

#![allow(dead_code, reason = "each test binary uses some of it")]

use burn::tensor::{Device, Tensor};
use rayon::ThreadPoolBuilder;
use xrun_ops::CpuKernels;

type Function = Box<dyn Fn(Vec<Tensor<1>>) -> Tensor<1> + Send + Sync>;

/// A function of flat inputs of fixed sizes.
pub struct Case {
    sizes: Vec<usize>,
    frozen: Option<usize>,
    function: Function,
}

/// An output and the gradients by the inputs.
pub type Found = (Vec<f32>, Vec<Option<Vec<f32>>>);

/// Values from -1 to 1 that look drawn.
pub fn drawn(count: usize, seed: f32) -> Vec<f32> {
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
            function(inputs.try_into().unwrap_or_else(|_| unreachable!("as many as sizes")))
        });
        Self { sizes: sizes.to_vec(), frozen: None, function }
    }

    /// Gradients where one input is a constant.
    pub fn frozen(self, number: usize) -> Self {
        Self { frozen: Some(number), ..self }
    }

    fn run(&self, kernels: CpuKernels) -> Found {
        let device = Device::flex().autodiff();
        let leaves: Vec<Tensor<1>> = self
            .sizes
            .iter()
            .enumerate()
            .map(|(number, size)| {
                let leaf = Tensor::from_floats(drawn(*size, number as f32).as_slice(), &device);
                if self.frozen == Some(number) { leaf } else { leaf.require_grad() }
            })
            .collect();
        let output = kernels.scope(|| (self.function)(leaves.clone()));
        let upstream = Tensor::<1>::from_floats(drawn(output.dims()[0], 9.0).as_slice(), &device);
        // The backward pass follows the forward pass, whatever the choice is by then.
        let gradients = (output.clone() * upstream).sum().backward();
        (values(output), leaves.iter().map(|leaf| leaf.grad(&gradients).map(values)).collect())
    }

    pub fn fused(&self) -> Found {
        self.run(CpuKernels::Fused)
    }

    pub fn plain(&self) -> Found {
        self.run(CpuKernels::Plain)
    }

    /// The output where nothing is recorded.
    fn inference(&self, kernels: CpuKernels) -> Vec<f32> {
        let device = Device::flex();
        let inputs = self.sizes.iter().enumerate();
        let inputs = inputs.map(|(number, size)| Tensor::from_floats(drawn(*size, number as f32).as_slice(), &device));
        let inputs = inputs.collect();
        values(kernels.scope(|| (self.function)(inputs)))
    }
}

/// Whether values are within a share of the largest of the expected ones.
pub fn close(name: &str, found: &[f32], expected: &[f32], tolerance: f32) {
    assert_eq!(found.len(), expected.len(), "{name}");
    let most = expected.iter().fold(1e-3f32, |most, value| most.max(value.abs()));
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!((found - expected).abs() <= tolerance * most, "{name}: {found} for {expected} at {at}, of {most}");
    }
}

/// Compares output and gradients with fused kernels and with Burn's operations.
pub fn check(name: &str, case: &Case, tolerance: f32) {
    let (fused, plain) = (case.fused(), case.plain());
    close(&format!("{name}: output"), &fused.0, &plain.0, tolerance);
    for (number, (fused, plain)) in fused.1.iter().zip(&plain.1).enumerate() {
        assert_eq!(fused.is_some(), plain.is_some(), "{name}: gradient {number}");
        if let (Some(fused), Some(plain)) = (fused, plain) {
            close(&format!("{name}: gradient {number}"), fused, plain, tolerance);
        }
    }
    let without = case.inference(CpuKernels::Fused);
    close(&format!("{name}: without autodiff"), &without, &fused.0, 1e-6);
}

pub fn same_bits_on_any_number_of_threads(case: &Case) {
    let runs = [1, 2, 3, 8].map(|threads| {
        let pool = ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| case.fused())
    });
    assert!(runs.iter().all(|run| *run == runs[0]), "every number of threads gives the same bits");
}
