//! In which floats does a model multiply matrices? A setting that several pipelines have.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The floats of what is multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MatmulDtype {
    /// bfloat16 where the device has units for it, tf32 elsewhere.
    Auto,
    /// 32-bit floats throughout. Refused on a GPU of compute capability 8.0 or more, where the backend does not support
    /// it.
    Float32,
    /// 32-bit floats, of which such a GPU multiplies the first ten bits of the mantissa. Elsewhere the same as `float32`.
    Tf32,
    /// Products are rounded to eight bits of precision, and what is kept of them takes half the memory. The CPU only
    /// emulates it, slowly.
    Bfloat16,
}
