//! Fused operations for [Burn](https://burn.dev) on the CPU.
//!
//! Each operation is a function of Burn tensors: a kernel for 32-bit floats in the memory of burn-flex, a hand-written backward
//! pass, and the same formula in Burn's own operations for every other device and element type. [`CpuKernels`] chooses between
//! the two on the CPU.
//!
//! Results do not depend on the number of threads: work is split into chunks whose size follows from the shapes alone, or into blocks
//! of a product, which no value depends on, and partial sums are added in order. Nor do they depend on the instruction set: kernels
//! are compiled for SSE2, SSE4.2, AVX2 and AVX-512 and selected at run time, use no fused multiply-add, and accumulate in a fixed
//! number of lanes. Matrix products are the exception: they come from the `gemm` crate, as burn-flex's do, which uses FMA and AVX-512
//! where the processor has them, and blocks that follow from its cache sizes.

mod adamw;
mod attention;
mod box_loss;
mod convolution;
mod cpu_kernels;
#[cfg(feature = "cube")]
mod cube;
#[cfg(not(feature = "cube"))]
#[path = "cube_absent.rs"]
mod cube;
mod fake_quantize;
mod flex;
mod gelu;
mod group_norm_relu;
mod im2col;
#[cfg(not(feature = "cube"))]
#[path = "in_place_absent.rs"]
pub mod in_place;
mod layer_norm;
mod linear;
mod matmul;
mod next_token_loss;
mod norm;
mod normalise;
mod operation;
mod sgd;
mod simd;

pub use adamw::AdamW;
pub use attention::{AttentionMask, attention, attention_packed};
pub use box_loss::{ciou_loss, giou_loss};
pub use convolution::{GroupNorm, SaveActivations, conv1x1, conv3x3_group_norm_relu};
pub use cpu_kernels::CpuKernels;
pub use cube::has_gpu_kernels;
#[cfg(feature = "cube")]
pub use cube::in_place;
pub use fake_quantize::{QuantRange, Quantizer};
pub use gelu::{Gelu, gelu};
pub use layer_norm::layer_norm;
pub use linear::{add_bias, embedding, linear};
pub use next_token_loss::{LossTargets, NextTokenLoss, Teacher, next_token_loss, staged_next_token_loss};
pub use norm::GlobalNorm;
pub use normalise::normalise;
#[cfg(all(test, target_arch = "x86_64"))]
mod instruction_sets;
