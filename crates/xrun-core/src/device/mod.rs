//! Selection of the device that a run uses.
//!
//! `auto` selects the first GPU that works, and otherwise the CPU. Burn's CUDA backend panics in its loader where the driver
//! is missing, so each kind of device is probed first.

mod backend;
pub mod machine;
pub mod unavailable;

use std::fmt;

use crate::invocation;
pub use backend::{Backend, CpuOnly, backend, register};
use unavailable::Unavailable;

/// A kind of device, with its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    /// CPU, with tensors in host memory.
    Cpu,
    /// NVIDIA GPU, by CUDA's index.
    Cuda(u32),
    /// Vulkan device, by its index in the list.
    Vulkan(u32),
}

impl DeviceKind {
    /// `true` if tensors are in a memory pool of the device instead of on the heap.
    pub fn has_pool(self) -> bool {
        self != Self::Cpu
    }
}

impl fmt::Display for DeviceKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => formatter.write_str("cpu"),
            Self::Cuda(index) => write!(formatter, "cuda:{index}"),
            Self::Vulkan(index) => write!(formatter, "vulkan:{index}"),
        }
    }
}

/// Device of a run, and the reason for its selection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectedDevice {
    /// Kind and index.
    pub kind: DeviceKind,
    /// Reason for the selection, human-readable.
    pub because: String,
    /// Properties of the device.
    pub found: DeviceInfo,
    /// Reason why `auto` selected the CPU although the machine has a GPU.
    pub fallback_reason: Option<Unavailable>,
}

impl SelectedDevice {
    /// Text such as `cpu (AMD EPYC 7B13)`.
    pub fn description(&self) -> String {
        format!("{} ({})", self.kind, self.found.name)
    }
}

/// A usable device and its properties.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Kind and index.
    pub kind: DeviceKind,
    /// Model of the processor or GPU.
    pub name: String,
    /// Version of its driver; `None` for the CPU.
    pub driver: Option<String>,
    /// Total memory in bytes.
    pub memory: Option<u64>,
    /// Free memory in bytes.
    pub free: Option<u64>,
    /// Index of the NVIDIA driver, where it is certain.
    pub driver_number: Option<u32>,
    /// NVIDIA compute capability, such as 90 for 9.0.
    pub capability: Option<u32>,
    /// Version of the LLVM that compiles its kernels.
    pub llvm: Option<String>,
}

impl DeviceInfo {
    /// Compute capability as text: `9.0`.
    pub fn capability_text(&self) -> Option<String> {
        self.capability.map(|version| format!("{}.{}", version / 10, version % 10))
    }
}

/// `true` from Ampere on: these GPUs have TF32 units, which CubeCL uses for matrix products.
pub fn supports_tf32(capability: u32) -> bool {
    capability >= 80
}

/// Error of a device that cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("device `{asked}` is not usable: {missing}; `{} check --devices` lists the usable ones", invocation::program())]
pub struct DeviceError {
    /// Value of `experiment.device`.
    pub asked: String,
    /// Reason and cure.
    pub missing: Unavailable,
}

/// Entry of `xrun check --devices`: the devices of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// `cpu`, `cuda` or `vulkan`.
    pub kind: &'static str,
    /// Usable devices, or the reason why there are none.
    pub found: Result<Vec<DeviceInfo>, Unavailable>,
}

/// All kinds of devices in the order in which `auto` tries them. Opens each NVIDIA GPU to check that it works.
pub fn list() -> Vec<Listing> {
    let opened = backend().cuda().and_then(|found| {
        let (opened, failed): (Vec<_>, Vec<_>) =
            found.into_iter().map(|found| opens(found.kind).map(|()| found)).partition(Result::is_ok);
        let opened: Vec<DeviceInfo> = opened.into_iter().flatten().collect();
        match failed.into_iter().find_map(Result::err) {
            Some(missing) if opened.is_empty() => Err(missing),
            _ => Ok(opened),
        }
    });
    vec![
        Listing { kind: "cuda", found: opened },
        Listing { kind: "vulkan", found: backend().vulkan() },
        Listing { kind: "cpu", found: Ok(vec![cpu()]) },
    ]
}

fn opens(kind: DeviceKind) -> Result<(), Unavailable> {
    match kind {
        DeviceKind::Cuda(index) => backend().check_cuda(index),
        DeviceKind::Cpu | DeviceKind::Vulkan(_) => Ok(()),
    }
}

fn cpu() -> DeviceInfo {
    let memory = machine::memory();
    DeviceInfo {
        kind: DeviceKind::Cpu,
        name: processor(),
        driver: None,
        memory: memory.map(|(all, _)| all),
        free: memory.map(|(_, free)| free),
        driver_number: None,
        capability: None,
        llvm: None,
    }
}

/// Model of the processor.
pub fn processor() -> String {
    processor_field("model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

/// Instruction sets that matrix kernels dispatch on. Wider ones sum in another order, which changes the last bits.
const INSTRUCTION_SETS: &[&str] =
    &["fma", "avx2", "avx512f", "avx512vl", "avx512_bf16", "avx512_fp16", "amx_tile", "asimd", "sve"];

/// Those instruction sets that the processor has, separated by spaces.
pub fn instruction_sets() -> String {
    let flags = ["flags", "Features"].into_iter().find_map(processor_field).unwrap_or_default();
    let flags: Vec<&str> = flags.split_whitespace().collect();
    let known: Vec<&str> = INSTRUCTION_SETS.iter().copied().filter(|set| flags.contains(set)).collect();
    known.join(" ")
}

/// Field of the first processor in `/proc/cpuinfo`.
fn processor_field(key: &str) -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let mut fields = text.lines().filter_map(|line| line.split_once(':'));
    fields.find(|(name, _)| name.trim() == key).map(|(_, value)| value.trim().to_owned())
}

/// Selects the device for a value of `experiment.device`. `auto` never selects Vulkan, because a software Vulkan device is
/// slower than the CPU backend.
///
/// # Errors
/// The device cannot be used.
pub fn select(asked: &str) -> Result<SelectedDevice, DeviceError> {
    let (kind, index) = asked.split_once(':').unwrap_or((asked, "0"));
    let index: u32 = index.parse().unwrap_or(u32::MAX);
    let select = |found: Result<Vec<DeviceInfo>, Unavailable>| {
        let missing = |missing: Unavailable| DeviceError { asked: asked.to_owned(), missing };
        let mut all = found.map_err(missing)?;
        let count = all.len();
        if index as usize >= count {
            let last = count.saturating_sub(1);
            return Err(missing(Unavailable::unusable(format!("the last index is {last}"), "")));
        }
        let found = all.swap_remove(index as usize);
        opens(found.kind).map_err(missing)?;
        let because = format!("`experiment.device` is `{asked}`");
        Ok(SelectedDevice { kind: found.kind, because, found, fallback_reason: None })
    };
    match kind {
        "cuda" => select(backend().cuda()),
        "vulkan" => select(backend().vulkan()),
        "cpu" => select(Ok(vec![cpu()])),
        _ => Ok(match backend().cuda().and_then(first_that_opens) {
            Ok(found) => {
                let because = "the first GPU that works".into();
                SelectedDevice { kind: found.kind, because, found, fallback_reason: None }
            }
            Err(missing) => auto_cpu(missing),
        }),
    }
}

/// First GPU that opens, or the reason why the last one does not.
fn first_that_opens(all: Vec<DeviceInfo>) -> Result<DeviceInfo, Unavailable> {
    let mut reason = Unavailable::absent("the driver lists no GPU", "");
    for found in all {
        match opens(found.kind) {
            Ok(()) => return Ok(found),
            Err(missing) => reason = missing,
        }
    }
    Err(reason)
}

fn auto_cpu(missing: Unavailable) -> SelectedDevice {
    SelectedDevice {
        kind: DeviceKind::Cpu,
        because: format!("no GPU is usable: {}", missing.what),
        found: cpu(),
        fallback_reason: missing.device_is_there.then_some(missing),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_is_always_usable() {
        let chosen = super::select("cpu").unwrap();
        assert_eq!(chosen.kind, DeviceKind::Cpu);
        assert!(list().iter().any(|listing| listing.kind == "cpu" && listing.found.is_ok()));
    }

    #[test]
    fn an_index_past_the_last_is_an_error() {
        assert_eq!(super::select("cpu:7").unwrap_err().asked, "cpu:7");
    }
}
