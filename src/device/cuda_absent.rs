//! A build without `cuda`: says so.

#[cfg(feature = "train")]
pub use tensors::{capability, dispatch};

use std::path::Path;

use super::missing::Missing;
use super::{Found, Tuning};

/// No GPU is looked for.
///
/// # Errors
/// Always: the feature is missing.
pub fn probe() -> Result<Vec<Found>, Missing> {
    Err(Missing::absent("this program was built without the feature `cuda`", "cargo build --release --features cuda"))
}

/// `true`: nothing is compiled, whatever the headers are.
///
/// # Errors
/// Never.
pub fn choose_headers(_: Tuning, _: &Path) -> std::io::Result<bool> {
    Ok(true)
}

/// `false`: nothing is compiled.
pub fn keep_kernels(_: Option<&Path>, _: Tuning) -> bool {
    false
}

/// Opens nothing.
///
/// # Errors
/// Always: the feature is missing.
pub fn opens(_: u32) -> Result<(), Missing> {
    probe().map(drop)
}

#[cfg(feature = "train")]
mod tensors {
    /// `None`: there is no GPU.
    pub fn capability(_: u32) -> Option<u32> {
        None
    }

    /// Opens nothing.
    ///
    /// # Errors
    /// Always: the feature is missing.
    pub fn dispatch(_: u32) -> Result<burn::tensor::Device, String> {
        super::probe()
            .map_err(|missing| missing.to_string())
            .map(|_| unreachable!("a device that is absent is never found"))
    }
}
