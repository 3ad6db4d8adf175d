//! In which floats are matrices multiplied? Weights, sums and everything else are in 32 bits.
//!
//! As PyTorch's autocast: factors are rounded to 16 bits, and so is their product, which then goes on in 32; inside a product
//! sums are wider. The gradient takes the same way back. What the graph keeps of a product is half as large.

use burn::tensor::{DType, Device, FloatDType};

use super::Tensor;
use crate::backend::dispatch::TensorDevice;
use xrun_core::settings::matmul_dtype::MatmulDtype;
use xrun_core::task::TaskError;

/// The floats of the two factors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Factors {
    /// As they are.
    Float32,
    /// Eight bits of precision, with the range of 32-bit floats.
    Bfloat16,
}

impl Factors {
    /// What the file asks for, as far as the device has it.
    ///
    /// # Errors
    /// It has no such floats, or 32 bits are asked for where products are of less.
    pub fn asked(asked: MatmulDtype, device: &TensorDevice) -> Result<Self, TaskError> {
        if asked == MatmulDtype::Float32 && device.supports_tf32() {
            return Err(TaskError::Device(
                "`matmul_dtype = \"float32\"` cannot be had: from compute capability 8.0 on CubeCL multiplies 32-bit floats \
                 in TF32, with ten bits of mantissa, wherever that is fastest; write \"tf32\" or \"bfloat16\", or use the CPU"
                    .into(),
            ));
        }
        Self::of(asked, &device.plain)
    }

    /// As [`Self::asked`], of a device whose 32-bit products are of 32 bits.
    pub fn of(asked: MatmulDtype, plain: &Device) -> Result<Self, TaskError> {
        match asked {
            MatmulDtype::Auto => Ok(Self::fastest(plain)),
            MatmulDtype::Float32 | MatmulDtype::Tf32 => Ok(Self::Float32),
            MatmulDtype::Bfloat16 => Self::bfloat16(plain),
        }
    }

    /// bfloat16 where the device has units for it, which a GPU of today has and the CPU backend has not.
    pub fn fastest(plain: &Device) -> Self {
        if fits(plain, true) { Self::Bfloat16 } else { Self::Float32 }
    }

    /// bfloat16, or the reason against it.
    pub fn bfloat16(plain: &Device) -> Result<Self, TaskError> {
        match fits(plain, false) {
            true => Ok(Self::Bfloat16),
            false => Err(TaskError::Device("it cannot multiply in bfloat16; write \"float32\", or \"auto\"".into())),
        }
    }

    /// The name of the device, with what its products are of where that is not 32 bits.
    pub fn beside(self, device: String) -> String {
        match self {
            Self::Float32 => device,
            Self::Bfloat16 => format!("{device}, matrix products in bfloat16"),
        }
    }

    /// A factor, ready for products with others that are.
    pub fn narrow<const D: usize>(self, factor: Tensor<D>) -> Tensor<D> {
        match self {
            Self::Float32 => factor,
            Self::Bfloat16 => factor.cast(FloatDType::BF16),
        }
    }

    /// A product of such factors, as it is used.
    pub fn widen<const D: usize>(self, product: Tensor<D>) -> Tensor<D> {
        match self {
            Self::Float32 => product,
            Self::Bfloat16 => product.cast(FloatDType::F32),
        }
    }

    /// `[…, n, k]` times `[…, k, m]`.
    pub fn product<const D: usize>(self, left: Tensor<D>, right: Tensor<D>) -> Tensor<D> {
        self.widen(self.narrow(left).matmul(self.narrow(right)))
    }
}

/// Whether the device computes in bfloat16, and with units made for it.
fn fits(plain: &Device, fast: bool) -> bool {
    use burn::backend::{Backend, DTypeUsage, Dispatch};
    let usage = Dispatch::dtype_usage(plain.as_dispatch(), DType::BF16);
    plain.supports_dtype(DType::BF16) && (!fast || usage.contains(DTypeUsage::Accelerated))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{close, plain, values};
    use super::*;

    /// Eight bits, half to even: 1 + 2^-8 lies halfway between 1 and 1 + 2^-7.
    #[test]
    fn factors_and_products_are_rounded_to_eight_bits() {
        let product = |left: f32, right: f32| {
            let one = |value| Tensor::<2>::from_floats([[value]], &plain());
            values(Factors::Bfloat16.product(one(left), one(right)))[0]
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
        let run = |factors: Factors| {
            let input = |seed, shape: [usize; 2]| {
                let flat = Tensor::<1>::from_floats(numbers(seed).as_slice(), &plain());
                Tensor::from_inner(flat.reshape(shape)).require_grad()
            };
            let (left, right) = (input(5, [3, 4]), input(7, [4, 3]));
            let output = factors.product(left.clone(), right.clone());
            let gradients = (output.clone() * output.clone()).sum().backward();
            let (left, right) = (left.grad(&gradients).unwrap(), right.grad(&gradients).unwrap());
            assert_eq!((output.dtype(), left.dtype(), right.dtype()), (DType::F32, DType::F32, DType::F32));
            (values(output.inner()), values(left), values(right))
        };
        let (narrow, wide) = (run(Factors::Bfloat16), run(Factors::Float32));
        close(&narrow.0, &wide.0, 2e-2);
        close(&narrow.1, &wide.1, 4e-2);
        close(&narrow.2, &wide.2, 4e-2);
        assert_ne!(narrow.0, wide.0);
    }

    #[test]
    fn the_cpu_computes_in_bfloat16_and_has_no_units_for_it() {
        assert_eq!(Factors::fastest(&plain()), Factors::Float32);
        assert_eq!(Factors::bfloat16(&plain()).unwrap(), Factors::Bfloat16);
    }
}
