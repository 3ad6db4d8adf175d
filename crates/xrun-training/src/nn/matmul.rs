//! Precision of matrix products. Weights and all other operations are in 32-bit floats.
//!
//! As in PyTorch's autocast, operands are rounded to 16 bits, and so is their product, which is then converted to 32 bits; the sums
//! inside a product are wider. The backward pass does the same. Saved activations of a product take half the memory.

use burn::tensor::{DType, Device, FloatDType};
use xrun_ops::add_bias;

use super::Tensor;
use crate::backend::dispatch::TensorDevice;
use xrun_core::settings::matmul_dtype::MatmulDtype;
use xrun_core::task::TaskError;

/// Element type of the operands of a matrix product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComputeDtype {
    /// 32-bit floats.
    Float32,
    /// 16-bit floats with eight bits of precision and the range of 32-bit floats.
    Bfloat16,
}

impl ComputeDtype {
    /// Precision that the experiment sets, on a device.
    ///
    /// # Errors
    /// The device does not support it, or multiplies 32-bit floats in TF32 although `float32` is set.
    pub fn new(dtype: MatmulDtype, device: &TensorDevice) -> Result<Self, TaskError> {
        if dtype == MatmulDtype::Float32 && device.supports_tf32() {
            return Err(TaskError::Device(
                "`matmul_dtype = \"float32\"` is not supported by this GPU: from compute capability 8.0 on, CubeCL multiplies 32-bit \
                 floats in TF32 (ten bits of mantissa) where that is fastest; write \"tf32\" or \"bfloat16\", or use the CPU"
                    .into(),
            ));
        }
        Self::for_device(dtype, &device.inner)
    }

    /// Precision as by [`Self::new`], on a device whose 32-bit products are exact.
    ///
    /// # Errors
    /// As [`Self::bfloat16`].
    pub fn for_device(dtype: MatmulDtype, inner: &Device) -> Result<Self, TaskError> {
        match dtype {
            MatmulDtype::Auto => Ok(Self::fastest(inner)),
            MatmulDtype::Float32 | MatmulDtype::Tf32 => Ok(Self::Float32),
            MatmulDtype::Bfloat16 => Self::bfloat16(inner),
        }
    }

    /// bfloat16 where the device has hardware for it, as current GPUs do; else 32 bits, as on the CPU backend.
    pub fn fastest(inner: &Device) -> Self {
        if supports_bfloat16(inner, true) { Self::Bfloat16 } else { Self::Float32 }
    }

    /// bfloat16, also where the device emulates it.
    ///
    /// # Errors
    /// The device does not support it.
    pub fn bfloat16(inner: &Device) -> Result<Self, TaskError> {
        match supports_bfloat16(inner, false) {
            true => Ok(Self::Bfloat16),
            false => Err(TaskError::Device(
                "bfloat16 matrix products are not supported; write `matmul_dtype = \"float32\"` or \"auto\"".into(),
            )),
        }
    }

    /// Name of the device, with the precision of its matrix products if that is not 32 bits.
    pub fn device_label(self, device: String) -> String {
        match self {
            Self::Float32 => device,
            Self::Bfloat16 => format!("{device}, matrix products in bfloat16"),
        }
    }

    /// Converts a tensor to the element type of operands.
    pub fn operand<const D: usize>(self, operand: Tensor<D>) -> Tensor<D> {
        match self {
            Self::Float32 => operand,
            Self::Bfloat16 => operand.cast(FloatDType::BF16),
        }
    }

    /// Converts a product of converted operands to 32 bits.
    pub fn output<const D: usize>(self, product: Tensor<D>) -> Tensor<D> {
        match self {
            Self::Float32 => product,
            Self::Bfloat16 => product.cast(FloatDType::F32),
        }
    }

    /// Matrix product of `[…, n, k]` and `[…, k, m]` in this precision, as 32-bit floats.
    pub fn product<const D: usize>(self, left: Tensor<D>, right: Tensor<D>) -> Tensor<D> {
        self.output(self.operand(left).matmul(self.operand(right)))
    }

    /// Linear layer: an [operand](Self::operand) `[rows, inputs]`, a weight `[inputs, outputs]` and a bias `[outputs]`, as 32-bit floats.
    pub fn linear(self, operand: Tensor<2>, weight: Tensor<2>, bias: Option<Tensor<1>>) -> Tensor<2> {
        let weight = self.operand(weight);
        match (self, bias) {
            (Self::Float32, bias) => xrun_ops::linear(operand, weight, bias),
            (Self::Bfloat16, Some(bias)) => add_bias(operand.matmul(weight), bias),
            (Self::Bfloat16, None) => self.output(operand.matmul(weight)),
        }
    }
}

/// Returns whether the device computes in bfloat16; with `accelerated`, in hardware.
fn supports_bfloat16(inner: &Device, accelerated: bool) -> bool {
    use burn::backend::{Backend, DTypeUsage, Dispatch};
    let usage = Dispatch::dtype_usage(inner.as_dispatch(), DType::BF16);
    inner.supports_dtype(DType::BF16) && (!accelerated || usage.contains(DTypeUsage::Accelerated))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{close, plain, values};
    use super::*;

    /// Eight bits, half to even: 1 + 2^-8 is halfway between 1 and 1 + 2^-7.
    #[test]
    fn operands_and_products_are_rounded_to_eight_bits() {
        let product = |left: f32, right: f32| {
            let one = |value| Tensor::<2>::from_floats([[value]], &plain());
            values(ComputeDtype::Bfloat16.product(one(left), one(right)))[0]
        };
        assert_eq!(product(1.5, -3.0), -4.5);
        assert_eq!(product(1.0 + 1.0 / 256.0, 1.0), 1.0);
        assert_eq!(product(1.0 + 3.0 / 256.0, 1.0), 1.0 + 4.0 / 256.0);
        assert_eq!(product(1.25, 1.0 + 1.0 / 128.0), 161.0 / 128.0, "161.25 of 128");
        assert!((product(1e-30, 1.0) / 1e-30 - 1.0).abs() < 1.0 / 256.0, "as small as a 32-bit float");
    }

    #[test]
    fn gradients_are_32_bits_wide_and_near_those_of_32_bit_products() {
        let numbers = |seed: usize| -> Vec<f32> { (0..12).map(|at| ((at * seed) % 17) as f32 / 16.0 - 0.4).collect() };
        let run = |matmul: ComputeDtype| {
            let input = |seed, shape: [usize; 2]| {
                let flat = Tensor::<1>::from_floats(numbers(seed).as_slice(), &plain());
                Tensor::from_inner(flat.reshape(shape)).require_grad()
            };
            let (left, right) = (input(5, [3, 4]), input(7, [4, 3]));
            let output = matmul.product(left.clone(), right.clone());
            let gradients = (output.clone() * output.clone()).sum().backward();
            let (left, right) = (left.grad(&gradients).unwrap(), right.grad(&gradients).unwrap());
            assert_eq!((output.dtype(), left.dtype(), right.dtype()), (DType::F32, DType::F32, DType::F32));
            (values(output.inner()), values(left), values(right))
        };
        let (narrow, wide) = (run(ComputeDtype::Bfloat16), run(ComputeDtype::Float32));
        close(&narrow.0, &wide.0, 2e-2);
        close(&narrow.1, &wide.1, 4e-2);
        close(&narrow.2, &wide.2, 4e-2);
        assert_ne!(narrow.0, wide.0);
    }

    #[test]
    fn the_cpu_emulates_bfloat16_and_is_faster_in_32_bits() {
        assert_eq!(ComputeDtype::fastest(&plain()), ComputeDtype::Float32);
        assert_eq!(ComputeDtype::bfloat16(&plain()).unwrap(), ComputeDtype::Bfloat16);
    }
}
