//! Vulkan devices, including software implementations: detection.

use super::library::SharedLibrary;
use xrun_core::device::unavailable::Unavailable;
use xrun_core::device::{DeviceInfo, DeviceKind};
use xrun_core::panics;

/// Library that loads Vulkan drivers.
const LOADER: &[&str] = &["libvulkan.so.1", "libvulkan.so"];

/// Environment variable that selects the device in CubeCL, such as `IntegratedGpu(1)`.
const OVERRIDE: &str = "CUBECL_WGPU_DEFAULT_DEVICE";

/// Default device of CubeCL as the only entry: the first in wgpu's order of performance, unless `CUBECL_WGPU_DEFAULT_DEVICE` selects
/// another. `VK_DRIVER_FILES` restricts the drivers.
///
/// # Errors
/// The loader or a driver is missing, or the loader fails.
pub fn probe() -> Result<Vec<DeviceInfo>, Unavailable> {
    if SharedLibrary::open_first(LOADER).is_none() {
        return Err(Unavailable::absent("the Vulkan loader (libvulkan.so.1) is not installed", "Debian: libvulkan1"));
    }
    let found = panics::caught(first)
        .map_err(|panic| Unavailable::unusable(format!("the Vulkan loader failed: {panic}"), ""))?;
    let none = || {
        Unavailable::absent(
            "no Vulkan driver is installed",
            "Debian: mesa-vulkan-drivers, which includes one for the CPU",
        )
    };
    let found = found.ok_or_else(none)?;
    Ok(vec![match std::env::var(OVERRIDE) {
        Ok(device) => DeviceInfo { name: format!("{device} of {OVERRIDE}"), driver: None, ..found },
        Err(_) => found,
    }])
}

/// First device in wgpu's order of performance.
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
        kind: DeviceKind::Vulkan(0),
        name: info.name,
        driver: Some(info.driver_info).filter(|driver| !driver.is_empty()),
        memory: None,
        free: None,
        driver_number: None,
        capability: None,
        llvm: None,
    })
}

/// Burn's default Vulkan device.
pub fn dispatch(_: u32) -> Result<burn::tensor::Device, String> {
    Ok(burn::tensor::Device::wgpu(burn::tensor::DeviceKind::DefaultDevice))
}
