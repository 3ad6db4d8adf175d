//! Stand-in for `vulkan` in a build without that feature.

use xrun_core::device::unavailable::Unavailable;
use xrun_core::device::{Backend, CpuOnly, DeviceInfo};

/// Finds no device.
///
/// # Errors
/// Always: the feature is missing.
pub fn probe() -> Result<Vec<DeviceInfo>, Unavailable> {
    CpuOnly.vulkan()
}
