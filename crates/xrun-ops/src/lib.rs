//! Fused operations for [Burn](https://burn.dev) on the CPU.
//!
//! Each operation is a function of Burn tensors: a kernel for 32-bit floats in the memory of burn-flex, a hand-written backward
//! pass, and the same in Burn's own operations for every other device and element type. [`CpuKernels`] chooses between the two
//! on the CPU.
//!
//! Work is split into pieces whose size depends on shapes alone, and sums over pieces are taken in their order: any number of
//! threads gives the same bits. Kernels are compiled for SSE2, SSE4.2, AVX2 and AVX-512 and chosen at run time. They never
//! contract a product and a sum into one rounding, and add up in a fixed number of lanes, so each of them gives the same bits on
//! every x86-64. Matrix products are those of the `gemm` crate, as burn-flex's are: with FMA where the processor has it, in
//! blocks that follow from the size of its caches.

mod attention;
mod choice;
mod convolution;
mod fake_quantize;
mod flex;
mod gelu;
mod group_norm_relu;
mod im2col;
mod layer_norm;
mod matmul;
mod next_token_loss;
mod operation;
mod simd;

pub use attention::{Mask, attention, attention_packed};
pub use choice::CpuKernels;
pub use convolution::{GroupNorm, SaveActivations, conv1x1, conv3x3_group_norm_relu};
pub use fake_quantize::{Quantizer, Range};
pub use gelu::{Gelu, gelu};
pub use layer_norm::layer_norm;
pub use next_token_loss::{LossTargets, NextTokenLoss, Teacher, next_token_loss};
#[cfg(all(test, target_arch = "x86_64"))]
mod instruction_sets;
