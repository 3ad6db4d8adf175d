//! Stand-in for `vulkan` in a build without that feature.

#[cfg(feature = "train")]
pub use tensors::dispatch;

use xrun_core::device::unavailable::Unavailable;
use xrun_core::device::{Backend, CpuOnly, DeviceInfo};

/// Finds no device.
///
/// # Errors
/// Always: the feature is missing.
pub fn probe() -> Result<Vec<DeviceInfo>, Unavailable> {
    CpuOnly.vulkan()
}

#[cfg(feature = "train")]
mod tensors {
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
