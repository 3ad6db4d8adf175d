//! The devices that a program which trains adds to the CPU, and the kernels of the CPU.

use std::sync::OnceLock;

use super::missing::Missing;
use super::{Found, Tuning, machine};
use crate::settings::sections::CpuKernels;
use crate::task::TaskError;

/// The devices besides the CPU.
pub trait Backend: Send + Sync {
    /// The NVIDIA GPUs that can be used.
    ///
    /// # Errors
    /// Why there are none.
    fn cuda(&self) -> Result<Vec<Found>, Missing> {
        let (what, cure) =
            ("this program was built without the feature `cuda`", "cargo build --release --features cuda");
        Err(match machine::gpus() {
            Ok(gpus) if !gpus.is_empty() => Missing::unusable(what, cure),
            _ => Missing::absent(what, cure),
        })
    }

    /// The Vulkan devices that can be used.
    ///
    /// # Errors
    /// Why there are none.
    fn vulkan(&self) -> Result<Vec<Found>, Missing> {
        Err(Missing::absent(
            "this program was built without the feature `vulkan`",
            "cargo build --release --features vulkan",
        ))
    }

    /// Opens an NVIDIA GPU.
    ///
    /// # Errors
    /// Why it does not open.
    fn opens_cuda(&self, _index: u32) -> Result<(), Missing> {
        self.cuda().map(drop)
    }

    /// Sets how finely operations are tuned on a GPU; `false` where a file of the user's decides.
    fn tune(&self, _tuning: Tuning) -> bool {
        true
    }

    /// Chooses the CPU kernels of this process.
    ///
    /// # Errors
    /// The other kernels have been chosen before.
    fn choose_kernels(&self, _kernels: CpuKernels) -> Result<(), TaskError> {
        Ok(())
    }
}

/// The CPU alone: it says of every other device that the program was built without it.
#[derive(Clone, Copy, Debug)]
pub struct CpuOnly;

impl Backend for CpuOnly {}

static BACKEND: OnceLock<&'static dyn Backend> = OnceLock::new();

/// Makes a backend the one of this process, unless there is one.
pub fn register(backend: &'static dyn Backend) {
    BACKEND.get_or_init(|| backend);
}

/// The backend of this process.
pub fn backend() -> &'static dyn Backend {
    BACKEND.get().copied().unwrap_or(&CpuOnly)
}
