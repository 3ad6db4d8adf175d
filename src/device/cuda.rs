//! NVIDIA GPUs: are they usable, and how does their memory pool do?

use burn_cuda::CudaDevice;
use cubecl::Runtime;
use cubecl::cuda::CudaRuntime;

use super::library::first_that_loads;
pub use super::streams::current as stream;
use super::{Found, Kind, streams, visible};
use crate::memory::sources;
use crate::task::DeviceMemory;

const DRIVER: &[&str] = &["libcuda.so.1", "libcuda.so"];
/// Kernels are compiled on the machine, so the run-time compiler must be there, too.
const COMPILER: &[&str] = &["libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2"];

/// The GPUs that can be used, or what is missing.
pub fn probe() -> Result<Vec<Found>, String> {
    if first_that_loads(DRIVER).is_none() {
        return Err("the NVIDIA driver (libcuda.so.1) is not installed or not visible here".into());
    }
    if first_that_loads(COMPILER).is_none() {
        return Err("the driver is there, but CUDA's run-time compiler (libnvrtc.so) is not; install the CUDA \
                    toolkit, or put its lib64 folder on LD_LIBRARY_PATH"
            .into());
    }
    let gpus = sources::gpus()?;
    if gpus.is_empty() {
        return Err("the NVIDIA driver lists no GPU".into());
    }
    let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
    let uuids: Vec<String> = gpus.iter().map(|gpu| gpu.uuid.clone()).collect();
    let counted = visible::counted(visible.as_deref(), &uuids);
    if counted.is_empty() {
        return Err(format!("CUDA_VISIBLE_DEVICES = \"{}\" hides all GPUs", visible.unwrap_or_default()));
    }
    // Counted otherwise, CUDA's number 0 may be any of several.
    let by_bus = std::env::var(visible::ORDER_VARIABLE).is_ok_and(|order| order == visible::ORDER_BY_BUS);
    let found = counted.into_iter().enumerate().map(|(number, position)| {
        let gpu = &gpus[position];
        Found {
            kind: Kind::Cuda(u32::try_from(number).unwrap_or(u32::MAX)),
            name: gpu.name.clone(),
            driver: Some(gpu.driver.clone()),
            memory: Some(gpu.memory),
            free: Some(gpu.free),
            driver_number: (by_bus || gpus.len() == 1).then_some(gpu.index),
        }
    });
    Ok(found.collect())
}

/// The pool of a stream, or of the calling thread's own.
pub fn memory(index: u32, stream: Option<u64>) -> Option<DeviceMemory> {
    streams::memory(&CudaRuntime::client(&CudaDevice::new(index as usize)), stream)
}

/// Frees the pages of the pool that hold nothing. Burn's dispatch backend would ignore the request.
pub fn clean(index: u32) {
    CudaRuntime::client(&CudaDevice::new(index as usize)).memory_cleanup();
}

pub fn dispatch(index: u32) -> Result<burn::DispatchDevice, String> {
    Ok(burn::DispatchDevice::Cuda(CudaDevice::new(index as usize)))
}
