//! Interface to GPU backends and CPU kernels, which a program with Burn registers.

use std::sync::OnceLock;

use super::DeviceInfo;
use super::unavailable::Unavailable;
use crate::settings::sections::CpuKernels;
use crate::task::TaskError;

/// Devices besides the CPU, and the choice of CPU kernels.
pub trait Backend: Send + Sync {
    /// Usable NVIDIA GPUs.
    ///
    /// # Errors
    /// The reason why there are none.
    fn cuda(&self) -> Result<Vec<DeviceInfo>, Unavailable> {
        Err(Unavailable::absent(
            "this program was built without the feature `cuda`",
            "cargo build --release --features cuda",
        ))
    }

    /// Usable Vulkan devices.
    ///
    /// # Errors
    /// The reason why there are none.
    fn vulkan(&self) -> Result<Vec<DeviceInfo>, Unavailable> {
        Err(Unavailable::absent(
            "this program was built without the feature `vulkan`",
            "cargo build --release --features vulkan",
        ))
    }

    /// Opens an NVIDIA GPU, to check that it works.
    ///
    /// # Errors
    /// The reason why it does not open.
    fn check_cuda(&self, _index: u32) -> Result<(), Unavailable> {
        self.cuda().map(drop)
    }

    /// Selects the CPU kernels of this process.
    ///
    /// # Errors
    /// Other kernels are already selected.
    fn select_cpu_kernels(&self, _kernels: CpuKernels) -> Result<(), TaskError> {
        Ok(())
    }
}

/// Backend without GPUs: reports every other device as not built in.
#[derive(Clone, Copy, Debug)]
pub struct CpuOnly;

impl Backend for CpuOnly {}

static BACKEND: OnceLock<&'static dyn Backend> = OnceLock::new();

/// Sets the backend of this process, unless one is set.
pub fn register(backend: &'static dyn Backend) {
    BACKEND.get_or_init(|| backend);
}

/// Backend of this process.
pub fn backend() -> &'static dyn Backend {
    BACKEND.get().copied().unwrap_or(&CpuOnly)
}
