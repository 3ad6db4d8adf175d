//! NVIDIA GPUs: detection, compute capability, and the LLVM that compiles their kernels.

use std::ffi::c_uint;
use std::path::PathBuf;

use super::driver::Driver;
use super::{kernel_cache, libdevice, nvml, visible};
use xrun_core::device::unavailable::Unavailable;
use xrun_core::device::{DeviceInfo, DeviceKind};

/// Minimum compute capability for CubeCL's kernels, as 60 for 6.0.
const CAPABILITY_MIN: u32 = 60;

/// Usable GPUs.
///
/// # Errors
/// The reason why there is none, and what to do.
pub fn probe() -> Result<Vec<DeviceInfo>, Unavailable> {
    let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
    // The driver would only report that there is no device. The management library does not list parts of GPUs (MIG).
    if let Some(visible) = visible.as_deref().filter(|visible| !visible.contains("MIG-"))
        && let Ok(gpus) = nvml::gpus()
        && !gpus.is_empty()
        && visible::visible_gpus(Some(visible), &uuids(&gpus)).is_empty()
    {
        return Err(Unavailable::unusable(
            format!("CUDA_VISIBLE_DEVICES = \"{visible}\" hides all GPUs"),
            "unset it to use all, or set it to indices from 0 on or to UUIDs as `nvidia-smi -L` lists them",
        ));
    }
    let driver = Driver::start()?;
    let count = driver.count()?;
    if count == 0 {
        return Err(Unavailable::absent("the NVIDIA driver reports no GPU", ""));
    }
    libdevice::check()?;
    let cure = "libnvidia-ml.so.1 is part of the driver; in a container request it with \
                NVIDIA_DRIVER_CAPABILITIES=compute,utility";
    let gpus = nvml::gpus().map_err(|error| Unavailable::unusable(error, cure))?;
    let listed = visible::visible_gpus(visible.as_deref(), &uuids(&gpus));
    // In another order, or with parts of GPUs (MIG), CUDA's device 0 may be any of several GPUs.
    let by_bus = std::env::var(visible::ORDER_VARIABLE).is_ok_and(|order| order == visible::ORDER_BY_BUS);
    let certain = listed.len() == count as usize && (by_bus || gpus.len() == 1);
    let mut unusable = None;
    let mut found = Vec::new();
    for number in 0..count {
        let (name, memory) = driver.name_and_memory(number)?;
        let capability = driver.capability(number)?;
        // Indices are CUDA's: the GPUs before an unusable one are still usable.
        if capability < CAPABILITY_MIN {
            unusable.get_or_insert_with(|| too_old(&name, capability));
            break;
        }
        let gpu = certain.then(|| &gpus[listed[number as usize]]);
        found.push(DeviceInfo {
            kind: DeviceKind::Cuda(number),
            name: gpu.map_or(name, |gpu| gpu.name.clone()),
            driver: gpus.first().map(|gpu| gpu.driver.clone()),
            memory: Some(gpu.map_or(memory, |gpu| gpu.memory)),
            free: gpu.map(|gpu| gpu.free),
            driver_number: gpu.map(|gpu| gpu.index),
            capability: Some(capability),
            llvm: Some(llvm()),
        });
    }
    match unusable {
        Some(missing) if found.is_empty() => Err(missing),
        _ => Ok(found),
    }
}

fn too_old(name: &str, capability: u32) -> Unavailable {
    let version = |capability: u32| format!("{}.{}", capability / 10, capability % 10);
    Unavailable::unusable(
        format!(
            "{name} has compute capability {}, and this program requires {} or newer",
            version(capability),
            version(CAPABILITY_MIN)
        ),
        "use a newer GPU, or the CPU",
    )
}

fn uuids(gpus: &[nvml::Gpu]) -> Vec<String> {
    gpus.iter().map(|gpu| gpu.uuid.clone()).collect()
}

/// Version of the LLVM that is linked into this program and compiles the kernels.
fn llvm() -> String {
    unsafe extern "C" {
        fn LLVMGetVersion(major: *mut c_uint, minor: *mut c_uint, patch: *mut c_uint);
    }
    let (mut major, mut minor, mut patch) = (0, 0, 0);
    // SAFETY: the signature is that of `llvm-c/Core.h`; each pointer is to an unsigned int.
    unsafe { LLVMGetVersion(&raw mut major, &raw mut minor, &raw mut patch) };
    format!("{major}.{minor}.{patch}")
}

/// Checks that a context can be created on a GPU.
///
/// # Errors
/// Its memory is full, or another process uses it exclusively.
pub fn check_context(index: u32) -> Result<(), Unavailable> {
    Driver::start()?.check_context(index)
}

/// Compute capability of a GPU, as 90 for 9.0; `None` if the driver does not report it.
pub fn capability(index: u32) -> Option<u32> {
    Driver::start().ok()?.capability(index).ok()
}

/// Directory for `CUDA_PATH`; `None` if the mathematical functions that kernels need are nowhere.
pub fn toolkit() -> Option<PathBuf> {
    libdevice::toolkit()
}

/// Burn's device for a GPU.
pub fn dispatch(index: u32) -> Result<burn::tensor::Device, String> {
    if let Ok(driver) = Driver::start() {
        kernel_cache::open(driver.capability(index).unwrap_or_default(), driver.version);
    }
    Ok(burn::tensor::Device::cuda(index))
}
