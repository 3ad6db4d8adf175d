//! Interface to GPU backends and CPU kernels, which a program with Burn registers.

use std::path::Path;
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
        Err(not_built("cuda"))
    }

    /// Usable Vulkan devices.
    ///
    /// # Errors
    /// The reason why there are none.
    fn vulkan(&self) -> Result<Vec<DeviceInfo>, Unavailable> {
        Err(not_built("vulkan"))
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

/// Message about a feature that is not in this program, with the way to it for this kind of installation.
fn not_built(feature: &str) -> Unavailable {
    let program = std::env::current_exe().unwrap_or_default();
    let prefix = program.parent().and_then(Path::parent).unwrap_or(Path::new("/"));
    let libraries = std::fs::read_dir(prefix.join("lib")).into_iter().flatten().flatten();
    let mut packages =
        libraries.flat_map(|library| ["site-packages", "dist-packages"].map(|name| library.path().join(name)));
    let cure = if feature == "cuda" && packages.any(|packages| packages.join("xrun/__init__.py").is_file()) {
        "pip uninstall xrun && pip install xrun-cuda".to_owned()
    } else if program.components().any(|part| part.as_os_str() == "target") {
        format!("cargo build --release --features {feature}")
    } else {
        format!("cargo install --path CHECKOUT --features {feature}")
    };
    Unavailable::absent(format!("this program was built without the feature `{feature}`"), cure)
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
