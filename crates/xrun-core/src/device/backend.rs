//! Interface to GPU backends and CPU kernels, which a program with Burn registers.

use std::sync::OnceLock;

use super::missing::Missing;
use super::{Found, Tuning, machine};
use crate::settings::sections::CpuKernels;
use crate::task::TaskError;

/// Devices besides the CPU, and the choice of CPU kernels.
pub trait Backend: Send + Sync {
    /// Usable NVIDIA GPUs.
    ///
    /// # Errors
    /// The reason why there are none.
    fn cuda(&self) -> Result<Vec<Found>, Missing> {
        let (what, cure) =
            ("this program was built without the feature `cuda`", "cargo build --release --features cuda");
        Err(match machine::gpus() {
            Ok(gpus) if !gpus.is_empty() => Missing::unusable(what, cure),
            _ => Missing::absent(what, cure),
        })
    }

    /// Usable Vulkan devices.
    ///
    /// # Errors
    /// The reason why there are none.
    fn vulkan(&self) -> Result<Vec<Found>, Missing> {
        Err(Missing::absent(
            "this program was built without the feature `vulkan`",
            "cargo build --release --features vulkan",
        ))
    }

    /// Opens an NVIDIA GPU, to check that it works.
    ///
    /// # Errors
    /// The reason why it does not open.
    fn opens_cuda(&self, _index: u32) -> Result<(), Missing> {
        self.cuda().map(drop)
    }

    /// Sets the level of autotuning on a GPU; `false` where the user's configuration file sets it.
    fn tune(&self, _tuning: Tuning) -> bool {
        true
    }

    /// Selects the CPU kernels of this process.
    ///
    /// # Errors
    /// Other kernels are already selected.
    fn choose_kernels(&self, _kernels: CpuKernels) -> Result<(), TaskError> {
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
