//! Stand-in for `cuda` in a build without that feature.

#[cfg(feature = "train")]
pub use tensors::{capability, dispatch};

use std::path::PathBuf;

use super::nvml;
use xrun_core::device::unavailable::Unavailable;
use xrun_core::device::{Backend, CpuOnly, DeviceInfo};

/// Finds no GPU.
///
/// # Errors
/// Always: the feature is missing.
pub fn probe() -> Result<Vec<DeviceInfo>, Unavailable> {
    let device_is_there = nvml::gpus().is_ok_and(|gpus| !gpus.is_empty());
    CpuOnly.cuda().map_err(|missing| Unavailable { device_is_there, ..missing })
}

/// Returns `None`: nothing is compiled for a GPU.
pub fn toolkit() -> Option<PathBuf> {
    None
}

/// Opens nothing.
///
/// # Errors
/// Always: the feature is missing.
pub fn check_context(_: u32) -> Result<(), Unavailable> {
    probe().map(drop)
}

#[cfg(feature = "train")]
mod tensors {
    /// Returns `None`: there is no GPU.
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
