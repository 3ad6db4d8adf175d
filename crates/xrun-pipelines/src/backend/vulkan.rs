//! Vulkan devices, software ones among them: is one usable?

use super::library::Library;
use xrun_core::device::unavailable::Unavailable;
use xrun_core::device::{DeviceInfo, Kind};
use xrun_core::panics;

/// The loader of Vulkan drivers.
const LOADER: &[&str] = &["libvulkan.so.1", "libvulkan.so"];

/// Names another device than the first in CubeCL, as in `IntegratedGpu(1)`.
const OVERRIDE: &str = "CUBECL_WGPU_DEFAULT_DEVICE";

/// One entry: the device that CubeCL takes by default, which is the fastest by wgpu's order unless
/// `CUBECL_WGPU_DEFAULT_DEVICE` says otherwise. `VK_DRIVER_FILES` says which drivers there are at all.
pub fn probe() -> Result<Vec<DeviceInfo>, Unavailable> {
    if Library::first(LOADER).is_none() {
        return Err(Unavailable::absent("the Vulkan loader (libvulkan.so.1) is not installed", "Debian: libvulkan1"));
    }
    let found = panics::caught(first)
        .map_err(|panic| Unavailable::unusable(format!("the Vulkan loader fails: {panic}"), ""))?;
    let none =
        || Unavailable::absent("there is no Vulkan driver", "Debian has one that uses the CPU: mesa-vulkan-drivers");
    let found = found.ok_or_else(none)?;
    Ok(vec![match std::env::var(OVERRIDE) {
        Ok(device) => DeviceInfo { name: format!("{device} of {OVERRIDE}"), driver: None, ..found },
        Err(_) => found,
    }])
}

/// The device that wgpu puts first.
fn first() -> Option<DeviceInfo> {
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor {
        backends: wgpu::Backends::VULKAN,
        ..wgpu::InstanceDescriptor::new_without_display_handle()
    });
    let fastest = wgpu::RequestAdapterOptions {
        power_preference: wgpu::PowerPreference::HighPerformance,
        ..wgpu::RequestAdapterOptions::default()
    };
    let info = burn::tensor::read_sync(instance.request_adapter(&fastest)).ok()?.get_info();
    Some(DeviceInfo {
        kind: Kind::Vulkan(0),
        name: info.name,
        driver: Some(info.driver_info).filter(|driver| !driver.is_empty()),
        memory: None,
        free: None,
        driver_number: None,
        capability: None,
        llvm: None,
    })
}

/// Burn's device of the Vulkan device that it chooses by itself.
pub fn dispatch(_: u32) -> Result<burn::tensor::Device, String> {
    Ok(burn::tensor::Device::vulkan(burn::tensor::DeviceKind::DefaultDevice))
}
