//! NVIDIA GPUs: are they usable, and which LLVM makes their kernels?

use std::ffi::c_uint;
use std::path::{Path, PathBuf};
use std::sync::Once;

use cubecl::config::autotune::AutotuneLevel;
use cubecl::config::{CubeClRuntimeConfig, RuntimeConfig};

use super::driver::Driver;
use super::visible;
use xrun_core::device::unavailable::Unavailable;
use xrun_core::device::{AutotuneLevel, DeviceInfo, Kind, machine};

/// The oldest GPUs for which CubeCL's kernels are tried, as 60 for 6.0.
const CAPABILITY_MIN: u32 = 60;

/// Functions such as the exponential, in LLVM's bitcode; CubeCL links them into kernels, and looks for them here alone.
const LIBDEVICE: &str = "nvvm/libdevice/libdevice.10.bc";
const TOOLKITS: [&str; 4] = ["/usr/local/cuda", "/opt/cuda", "/usr/lib/cuda", "/usr"];

/// Whether CubeCL will find what it links into kernels.
fn has_libdevice() -> Result<(), Unavailable> {
    let set = std::env::var("CUDA_PATH").ok();
    let found = match &set {
        Some(folder) => Path::new(folder).join(LIBDEVICE).is_file(),
        None => TOOLKITS.iter().any(|folder| Path::new(folder).join(LIBDEVICE).is_file()),
    };
    let place = set.map_or_else(|| TOOLKITS.join(", "), |folder| format!("CUDA_PATH = \"{folder}\""));
    let cure = "`pip install --no-deps --target DIR nvidia-nvvm`, and set CUDA_PATH to DIR/nvidia/cu13";
    if found { Ok(()) } else { Err(Unavailable::unusable(format!("{LIBDEVICE} is not in {place}"), cure)) }
}

/// The GPUs that can be used, or what is missing.
pub fn probe() -> Result<Vec<DeviceInfo>, Unavailable> {
    let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
    // The driver would say that there is no device. Parts of GPUs (MIG) are not listed by the management library.
    if let Some(visible) = visible.as_deref().filter(|visible| !visible.contains("MIG-"))
        && let Ok(gpus) = machine::gpus()
        && !gpus.is_empty()
        && visible::counted(Some(visible), &uuids(&gpus)).is_empty()
    {
        return Err(Unavailable::unusable(
            format!("CUDA_VISIBLE_DEVICES = \"{visible}\" hides all GPUs"),
            "it takes numbers from 0 on or UUIDs as `nvidia-smi -L` lists them; unset it to see all",
        ));
    }
    let driver = Driver::start()?;
    let count = driver.count()?;
    if count == 0 {
        return Err(Unavailable::absent("the NVIDIA driver counts no GPU", ""));
    }
    has_libdevice()?;
    let cure = "libnvidia-ml.so.1 comes with the driver; in a container ask for it \
                (NVIDIA_DRIVER_CAPABILITIES=compute,utility)";
    let gpus = machine::gpus().map_err(|error| Unavailable::unusable(error, cure))?;
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
        if capability < CAPABILITY_MIN {
            unusable.get_or_insert_with(|| too_old(&name, capability));
            break;
        }
        let gpu = certain.then(|| &gpus[listed[number as usize]]);
        found.push(DeviceInfo {
            kind: Kind::Cuda(number),
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
    let words = |of: u32| format!("{}.{}", of / 10, of % 10);
    Unavailable::unusable(
        format!(
            "{name} has compute capability {}, and this program makes kernels from {} on",
            words(capability),
            words(CAPABILITY_MIN)
        ),
        "use a newer GPU, or the CPU",
    )
}

fn uuids(gpus: &[machine::Gpu]) -> Vec<String> {
    gpus.iter().map(|gpu| gpu.uuid.clone()).collect()
}

/// The version of the LLVM that is linked into this program, and makes the kernels.
fn llvm() -> String {
    unsafe extern "C" {
        fn LLVMGetVersion(major: *mut c_uint, minor: *mut c_uint, patch: *mut c_uint);
    }
    let (mut major, mut minor, mut patch) = (0, 0, 0);
    // SAFETY: the signature of `llvm-c/Core.h`; each points to an unsigned int.
    unsafe { LLVMGetVersion(&raw mut major, &raw mut minor, &raw mut patch) };
    format!("{major}.{minor}.{patch}")
}

/// Whether a GPU that was found opens: it may have no memory left for a context, or be somebody's alone.
pub fn opens(index: u32) -> Result<(), Unavailable> {
    Driver::start()?.opens(index)
}

/// The compute capability of a GPU, as 90 for 9.0.
pub fn capability(index: u32) -> Option<u32> {
    Driver::start().ok()?.capability(index).ok()
}

/// Tells CubeCL how finely to tune. Once in a process, and before the device is opened. A user's own file for CubeCL wins:
/// says whether this is what holds.
pub fn tune(tuning: AutotuneLevel) -> bool {
    static SET: Once = Once::new();
    if has_own_configuration() {
        return false;
    }
    SET.call_once(|| {
        let mut config = CubeClRuntimeConfig::default();
        config.autotune.level = match tuning {
            AutotuneLevel::Minimal => AutotuneLevel::Minimal,
            AutotuneLevel::Balanced => AutotuneLevel::Balanced,
            AutotuneLevel::Full => AutotuneLevel::Full,
        };
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

/// Burn's device of this GPU.
pub fn dispatch(index: u32) -> Result<burn::tensor::Device, String> {
    Ok(burn::tensor::Device::cuda(index))
}
