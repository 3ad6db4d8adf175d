//! A build without `vulkan`: says so.

#[cfg(feature = "train")]
pub use tensors::{clean, dispatch, memory, stream};

use super::Found;
use super::missing::Missing;

/// No device is looked for.
///
/// # Errors
/// Always: the feature is missing.
pub fn probe() -> Result<Vec<Found>, Missing> {
    Err(Missing::absent(
        "this program was built without the feature `vulkan`",
        "cargo build --release --features vulkan",
    ))
}

#[cfg(feature = "train")]
mod tensors {
    use crate::results::format::DeviceMemory;

    /// `None`: there is no pool.
    pub fn memory(_: u32, _: Option<u64>) -> Option<DeviceMemory> {
        None
    }

    /// 0: there are no streams.
    pub fn stream() -> u64 {
        0
    }

    /// Does nothing.
    pub fn clean(_: u32) {}

    /// Opens nothing.
    ///
    /// # Errors
    /// Always: the feature is missing.
    pub fn dispatch(_: u32) -> Result<burn::DispatchDevice, String> {
        super::probe()
            .map_err(|missing| missing.to_string())
            .map(|_| unreachable!("a device that is absent is never found"))
    }
}
