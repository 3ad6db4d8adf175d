//! NVIDIA GPUs: are they usable, and how does their memory pool do?

use std::path::{Path, PathBuf};
use std::sync::Once;

use burn_cuda::CudaDevice;
use cubecl::Runtime;
use cubecl::config::autotune::AutotuneLevel;
use cubecl::config::cache::CacheConfig;
use cubecl::config::{CubeClRuntimeConfig, RuntimeConfig};
use cubecl::cuda::CudaRuntime;

use super::driver::Driver;
use super::missing::Missing;
pub use super::streams::current as stream;
use super::toolkit::Toolkit;
use super::{Found, Kind, Tuning, headers, streams, visible};
use crate::memory::sources;
use crate::results::format::DeviceMemory;

/// The GPUs that can be used, or what is missing.
pub fn probe() -> Result<Vec<Found>, Missing> {
    let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
    // The driver would say that there is no device. Parts of GPUs (MIG) are not listed by the management library.
    if let Some(visible) = visible.as_deref().filter(|visible| !visible.contains("MIG-"))
        && let Ok(gpus) = sources::gpus()
        && !gpus.is_empty()
        && visible::counted(Some(visible), &uuids(&gpus)).is_empty()
    {
        return Err(Missing::unusable(
            format!("CUDA_VISIBLE_DEVICES = \"{visible}\" hides all GPUs"),
            "it takes numbers from 0 on or UUIDs as `nvidia-smi -L` lists them; unset it to see all",
        ));
    }
    let driver = Driver::start()?;
    let toolkit = Toolkit::find(driver.version)?;
    let count = driver.count()?;
    if count == 0 {
        return Err(Missing::absent("the NVIDIA driver counts no GPU", ""));
    }
    let cure = "libnvidia-ml.so.1 comes with the driver; in a container ask for it \
                (NVIDIA_DRIVER_CAPABILITIES=compute,utility)";
    let gpus = sources::gpus().map_err(|error| Missing::unusable(error, cure))?;
    let listed = visible::counted(visible.as_deref(), &uuids(&gpus));
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
            capability: Some(capability),
            compiler: Some(toolkit.compiler.to_string()),
        });
    }
    match unusable {
        Some(missing) if found.is_empty() => Err(missing),
        _ => Ok(found),
    }
}

fn uuids(gpus: &[sources::Gpu]) -> Vec<String> {
    gpus.iter().map(|gpu| gpu.uuid.clone()).collect()
}

/// Whether a GPU that was found opens: it may have no memory left for a context, or be somebody's alone.
pub fn opens(index: u32) -> Result<(), Missing> {
    Driver::start()?.opens(index)
}

/// The compute capability of a GPU, as 90 for 9.0.
pub fn capability(index: u32) -> Option<u32> {
    Driver::start().ok()?.capability(index).ok()
}

/// How finely CubeCL tunes: it wins over the experiment.
const LEVEL_VARIABLE: &str = "CUBECL_AUTOTUNE_LEVEL";

/// Which headers kernels are compiled with: the least tuning leaves asynchronous copies out, unless the environment asks for
/// more. Says whether it is so now. See [`headers::choose`].
///
/// # Errors
/// The folder of headers cannot be made.
pub fn choose_headers(tuning: Tuning, cache: &Path) -> std::io::Result<bool> {
    let more = std::env::var(LEVEL_VARIABLE).is_ok_and(|level| !level.eq_ignore_ascii_case("minimal"));
    headers::choose(tuning != Tuning::Minimal || more, cache)
}

/// Tells CubeCL where to keep compiled kernels and what it tuned; nowhere without a folder. Once in a process, and before
/// the device is opened. A user's own file for CubeCL wins: says whether ours is used.
pub fn keep_kernels(folder: Option<&Path>, tuning: Tuning) -> bool {
    static SET: Once = Once::new();
    if has_own_configuration() {
        return false;
    }
    SET.call_once(|| {
        let mut config = CubeClRuntimeConfig::default();
        config.autotune.level = match tuning {
            Tuning::Minimal => AutotuneLevel::Minimal,
            Tuning::Balanced => AutotuneLevel::Balanced,
            Tuning::Full => AutotuneLevel::Full,
        };
        config.compilation.cache = folder.map(|folder| CacheConfig::File(folder.to_owned()));
        // What was tuned among fewer ways is not what is fastest of all.
        // Where nothing can be made, CubeCL keeps what it tuned in memory only. Its own folder does not tell GPUs apart.
        let nowhere = || CacheConfig::File("/dev/null".into());
        let place = match tuning {
            Tuning::Minimal => "tuning/minimal",
            Tuning::Balanced | Tuning::Full => "tuning/more",
        };
        config.autotune.cache = folder.map_or_else(nowhere, |folder| CacheConfig::File(folder.join(place)));
        CubeClRuntimeConfig::set(config.override_from_env());
    });
    true
}

/// Whether CubeCL would find a file of the user's, from the current folder upwards.
fn has_own_configuration() -> bool {
    let here = std::env::current_dir().unwrap_or_default();
    let section = |path: PathBuf| {
        std::fs::read_to_string(path)
            .is_ok_and(|text| text.lines().any(|line| line.trim_start().starts_with("[cubecl")))
    };
    here.ancestors().any(|folder| {
        let own = CubeClRuntimeConfig::file_names().iter().any(|name| folder.join(name).is_file());
        own || CubeClRuntimeConfig::section_file_names().iter().any(|(name, _)| section(folder.join(name)))
    })
}

/// The pool of a stream, or of the calling thread's own.
pub fn memory(index: u32, stream: Option<u64>) -> Option<DeviceMemory> {
    streams::memory(&CudaRuntime::client(&CudaDevice::new(index as usize)), stream)
}

/// Frees the pages of the pool that hold nothing. Burn's dispatch backend would ignore the request.
pub fn clean(index: u32) {
    CudaRuntime::client(&CudaDevice::new(index as usize)).memory_cleanup();
}

/// Burn's device of this GPU.
pub fn dispatch(index: u32) -> Result<burn::DispatchDevice, String> {
    Ok(burn::DispatchDevice::Cuda(CudaDevice::new(index as usize)))
}
