//! Vulkan devices, software ones among them: is one usable, and how does its memory pool do?

use burn::backend::wgpu::WgpuDevice;
use cubecl::Runtime;
use cubecl::wgpu::WgpuRuntime;

use super::{Found, Kind};
use crate::task::DeviceMemory;

/// The loader of Vulkan drivers.
const LOADER: &[&str] = &["libvulkan.so.1", "libvulkan.so"];

/// One entry, the default device: which it is, wgpu decides (`WGPU_ADAPTER_NAME`, `VK_DRIVER_FILES`).
pub fn probe() -> Result<Vec<Found>, String> {
    if super::library::first_that_loads(LOADER).is_none() {
        return Err("the Vulkan loader (libvulkan.so.1) is not installed (Debian: mesa-vulkan-drivers)".into());
    }
    Ok(vec![Found {
        kind: Kind::Vulkan(0),
        name: "default Vulkan device".into(),
        driver: None,
        memory: None,
        free: None,
        driver_number: None,
    }])
}

/// See [`super::cuda::memory`].
pub fn memory(_: u32) -> Option<DeviceMemory> {
    let usage = WgpuRuntime::client(&WgpuDevice::DefaultDevice).memory_usage().ok()?;
    Some(DeviceMemory { in_use: usage.bytes_in_use, reserved: usage.bytes_reserved, allocations: usage.number_allocs })
}

/// See [`super::cuda::clean`].
pub fn clean(_: u32) {
    WgpuRuntime::client(&WgpuDevice::DefaultDevice).memory_cleanup();
}

pub fn dispatch(_: u32) -> Result<burn::DispatchDevice, String> {
    Ok(burn::DispatchDevice::Vulkan(WgpuDevice::DefaultDevice))
}
