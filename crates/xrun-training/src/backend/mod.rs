//! Devices of Burn: the CPU, NVIDIA GPUs with the feature `cuda`, Vulkan devices with `vulkan`.

#[cfg(not(feature = "cuda"))]
#[path = "cuda_absent.rs"]
pub mod cuda;
#[cfg(feature = "cuda")]
pub mod cuda;
#[cfg(feature = "train")]
pub mod dispatch;
pub mod driver;
#[cfg(feature = "cuda")]
pub mod kernel_cache;
#[cfg(not(feature = "train"))]
#[path = "kernels_absent.rs"]
pub mod kernels;
#[cfg(feature = "train")]
pub mod kernels;
#[cfg(feature = "cuda")]
pub mod libdevice;
pub mod library;
pub mod nvml;
#[cfg(feature = "train")]
pub mod threads;
pub mod visible;
#[cfg(not(feature = "vulkan"))]
#[path = "vulkan_absent.rs"]
pub mod vulkan;
#[cfg(feature = "vulkan")]
pub mod vulkan;

use xrun_core::device::unavailable::Unavailable;
use xrun_core::device::{Backend, DeviceInfo};
use xrun_core::settings::sections::CpuKernels;
use xrun_core::task::TaskError;

/// Environment variable that names a CUDA toolkit, of which kernels need the mathematical functions.
pub const TOOLKIT_VARIABLE: &str = "CUDA_PATH";

/// Burn, with the features of this build.
#[derive(Clone, Copy, Debug)]
pub struct Burn;

impl Backend for Burn {
    fn cuda(&self) -> Result<Vec<DeviceInfo>, Unavailable> {
        cuda::probe()
    }

    fn vulkan(&self) -> Result<Vec<DeviceInfo>, Unavailable> {
        vulkan::probe()
    }

    fn check_cuda(&self, index: u32) -> Result<(), Unavailable> {
        cuda::check_context(index)
    }

    fn select_cpu_kernels(&self, kernels: CpuKernels) -> Result<(), TaskError> {
        kernels::choose(kernels)
    }
}
