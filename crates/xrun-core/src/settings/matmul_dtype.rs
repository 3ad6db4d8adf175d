//! Floating-point type of matrix products, a setting of several pipelines.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Floating-point type of the operands of matrix products.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MatmulDtype {
    /// `bfloat16` on devices with hardware for it, otherwise `tf32`.
    Auto,
    /// 32-bit floats. An error on GPUs of compute capability 8.0 or more, where the backend does not support it.
    Float32,
    /// TensorFloat-32 on such GPUs (10 bits of mantissa in products), elsewhere the same as `float32`.
    Tf32,
    /// bfloat16 products (8 bits of precision), whose saved activations take half the memory. Slow emulation on the CPU.
    Bfloat16,
}
