//! Stand-in for `cuda` in a build without that feature.

use xrun_core::device::unavailable::Unavailable;
use xrun_core::device::{Backend, CpuOnly, DeviceInfo};
use xrun_core::settings::sections::Autotune;

/// Finds no GPU.
///
/// # Errors
/// Always: the feature is missing.
pub fn probe() -> Result<Vec<DeviceInfo>, Unavailable> {
    CpuOnly.cuda()
}

/// Returns `None`: without a GPU there is no level to report on.
pub fn tune(_: Autotune) -> Option<&'static str> {
    None
}

/// Opens nothing.
///
/// # Errors
/// Always: the feature is missing.
pub fn check_context(_: u32) -> Result<(), Unavailable> {
    probe().map(drop)
}

/// Returns `None`: there is no GPU.
#[cfg(feature = "train")]
pub fn capability(_: u32) -> Option<u32> {
    None
}
