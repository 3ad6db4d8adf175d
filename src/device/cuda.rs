//! NVIDIA GPUs: are they usable, and how does their memory pool do?

use burn_cuda::CudaDevice;
use cubecl::Runtime;
use cubecl::cuda::CudaRuntime;

use super::driver::Driver;
use super::missing::Missing;
pub use super::streams::current as stream;
use super::toolkit::Toolkit;
use super::{Found, Kind, streams, visible};
use crate::memory::sources;
use crate::task::DeviceMemory;

/// The GPUs that can be used, or what is missing.
pub fn probe() -> Result<Vec<Found>, Missing> {
    let driver = Driver::start()?;
    let toolkit = Toolkit::find(driver.version)?;
    let count = driver.count()?;
    let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
    if count == 0 {
        return Err(match visible {
            Some(visible) => Missing::unusable(
                format!("CUDA_VISIBLE_DEVICES = \"{visible}\" hides all GPUs"),
                "it takes numbers from 0 on or UUIDs as `nvidia-smi -L` lists them; unset it to see all",
            ),
            None => Missing::absent("the NVIDIA driver counts no GPU", ""),
        });
    }
    let cure = "libnvidia-ml.so.1 comes with the driver; in a container ask for it (NVIDIA_DRIVER_CAPABILITIES=compute,utility)";
    let gpus = sources::gpus().map_err(|error| Missing::unusable(error, cure))?;
    let uuids: Vec<String> = gpus.iter().map(|gpu| gpu.uuid.clone()).collect();
    let listed = visible::counted(visible.as_deref(), &uuids);
    // Counted otherwise, CUDA's number 0 may be any of several. So may it be where parts of GPUs are counted (MIG).
    let by_bus = std::env::var(visible::ORDER_VARIABLE).is_ok_and(|order| order == visible::ORDER_BY_BUS);
    let certain = listed.len() == count as usize && (by_bus || gpus.len() == 1);
    let mut unusable = None;
    let mut found = Vec::new();
    for number in 0..count {
        let (name, memory) = driver.name_and_memory(number)?;
        let capability = driver.capability(number)?;
        // Numbers are CUDA's: one that cannot be used keeps its own, and those before it are still counted.
        if let Err(missing) = toolkit.compiles_for(capability) {
            unusable.get_or_insert(missing);
            break;
        }
        let gpu = certain.then(|| &gpus[listed[number as usize]]);
        found.push(Found {
            kind: Kind::Cuda(number),
            name: gpu.map_or(name, |gpu| gpu.name.clone()),
            driver: gpus.first().map(|gpu| gpu.driver.clone()),
            memory: Some(gpu.map_or(memory, |gpu| gpu.memory)),
            free: gpu.map(|gpu| gpu.free),
            driver_number: gpu.map(|gpu| gpu.index),
            capability: Some(format!("{}.{}", capability / 10, capability % 10)),
            compiler: Some(toolkit.compiler.to_string()),
        });
    }
    match unusable {
        Some(missing) if found.is_empty() => Err(missing),
        _ => Ok(found),
    }
}

/// Whether a GPU that was found opens: it may have no memory left for a context, or be somebody's alone.
pub fn opens(index: u32) -> Result<(), Missing> {
    Driver::start()?.opens(index)
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
