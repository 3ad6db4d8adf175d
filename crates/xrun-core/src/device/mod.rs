//! Which device is used, and why?
//!
//! `auto` takes the first GPU that works and the CPU otherwise. Burn's CUDA backend loads the driver at run time and
//! panics inside the loader where it is missing, so each kind is probed first, and what is missing is said.

mod backend;
pub mod machine;
pub mod missing;

use std::fmt;

use crate::invocation;
pub use backend::{Backend, CpuOnly, backend, register};
use missing::Missing;

/// A kind of device, and which of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The processor, with tensors in host memory.
    Cpu,
    /// An NVIDIA GPU, by CUDA's number of it.
    Cuda(u32),
    /// A Vulkan device, by the number that it is listed under.
    Vulkan(u32),
}

impl Kind {
    /// Whether tensors are in a memory pool of the device, and not on the heap.
    pub fn has_pool(self) -> bool {
        self != Self::Cpu
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => formatter.write_str("cpu"),
            Self::Cuda(index) => write!(formatter, "cuda:{index}"),
            Self::Vulkan(index) => write!(formatter, "vulkan:{index}"),
        }
    }
}

/// The device of a run, and the reason for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// Which device it is.
    pub kind: Kind,
    /// Why it was chosen, for people.
    pub because: String,
    /// What is known of it.
    pub found: Found,
    /// Why not the GPU that is there, where `auto` had to take the CPU.
    pub instead_of: Option<Missing>,
}

impl Chosen {
    /// `cpu (AMD EPYC 7B13)`.
    pub fn words(&self) -> String {
        format!("{} ({})", self.kind, self.found.name)
    }
}

/// A device that works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Which device it is.
    pub kind: Kind,
    /// What the device calls itself: the processor's model, the GPU's name.
    pub name: String,
    /// The version of its driver; `None` on the CPU.
    pub driver: Option<String>,
    /// Bytes in all, and free at this moment.
    pub memory: Option<u64>,
    /// Bytes that nobody holds at this moment.
    pub free: Option<u64>,
    /// The number under which the NVIDIA driver lists it, where that is certain.
    pub driver_number: Option<u32>,
    /// NVIDIA's compute capability, as 90 for 9.0.
    pub capability: Option<u32>,
    /// The version of the LLVM that makes its kernels.
    pub llvm: Option<String>,
}

impl Found {
    /// The compute capability as people write it: `9.0`.
    pub fn capability_words(&self) -> Option<String> {
        self.capability.map(|of| format!("{}.{}", of / 10, of % 10))
    }
}

/// From Ampere on there are units for TF32, and CubeCL uses them wherever tuning finds them fastest.
pub fn multiplies_in_tf32(capability: u32) -> bool {
    capability >= 80
}

/// How finely a device's operations are tuned to the sizes that they meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tuning {
    /// The fewest sizes: tunes fastest.
    Minimal,
    /// More sizes.
    Balanced,
    /// Every size that it meets: steps fastest in the end.
    Full,
}

/// A device that was asked for cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("the device `{asked}` cannot be used: {missing}; `{} devices` lists what can", invocation::program())]
pub struct DeviceError {
    /// The device, as it was typed.
    pub asked: String,
    /// What is missing for it.
    pub missing: Missing,
}

/// One line of `xrun devices`: what was found of a kind, or what is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// `cpu`, `cuda` or `vulkan`.
    pub kind: &'static str,
    /// The devices of the kind that work; an error says why there are none.
    pub found: Result<Vec<Found>, Missing>,
}

/// All kinds, in the order in which `auto` tries them. Of each GPU it is tried whether it opens.
pub fn list() -> Vec<Listing> {
    let opened = backend().cuda().and_then(|found| {
        let (opened, failed): (Vec<_>, Vec<_>) =
            found.into_iter().map(|found| opens(found.kind).map(|()| found)).partition(Result::is_ok);
        let opened: Vec<Found> = opened.into_iter().flatten().collect();
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

fn opens(kind: Kind) -> Result<(), Missing> {
    match kind {
        Kind::Cuda(index) => backend().opens_cuda(index),
        Kind::Cpu | Kind::Vulkan(_) => Ok(()),
    }
}

fn cpu() -> Found {
    let memory = machine::memory();
    Found {
        kind: Kind::Cpu,
        name: processor(),
        driver: None,
        memory: memory.map(|(all, _)| all),
        free: memory.map(|(_, free)| free),
        driver_number: None,
        capability: None,
        llvm: None,
    }
}

/// What the processor calls itself.
pub fn processor() -> String {
    of_processor("model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

/// By which matrix products are chosen: with wider instructions a sum has other parts, and so other last bits.
const INSTRUCTION_SETS: &[&str] =
    &["fma", "avx2", "avx512f", "avx512vl", "avx512_bf16", "avx512_fp16", "amx_tile", "asimd", "sve"];

/// Which of them the processor has, as the system says it.
pub fn instruction_sets() -> String {
    let has = ["flags", "Features"].into_iter().find_map(of_processor).unwrap_or_default();
    let has: Vec<&str> = has.split_whitespace().collect();
    let known: Vec<&str> = INSTRUCTION_SETS.iter().copied().filter(|set| has.contains(set)).collect();
    known.join(" ")
}

/// A line of what Linux says of its first processor.
fn of_processor(key: &str) -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    lines.into_iter().find(|(name, _)| name.trim() == key).map(|(_, value)| value.trim().to_owned())
}

/// The device that `experiment.device` asks for. A software Vulkan device is never chosen by `auto`: it is slower than
/// the CPU backend.
pub fn choose(asked: &str) -> Result<Chosen, DeviceError> {
    let (kind, index) = asked.split_once(':').unwrap_or((asked, "0"));
    let index: u32 = index.parse().unwrap_or(u32::MAX);
    let of = |found: Result<Vec<Found>, Missing>| {
        let missing = |missing: Missing| DeviceError { asked: asked.to_owned(), missing };
        let mut all = found.map_err(missing)?;
        let count = all.len();
        if index as usize >= count {
            return Err(missing(Missing::unusable(format!("there are {count} of them, counted from 0"), "")));
        }
        let found = all.swap_remove(index as usize);
        opens(found.kind).map_err(missing)?;
        let because = format!("`experiment.device` is `{asked}`");
        Ok(Chosen { kind: found.kind, because, found, instead_of: None })
    };
    match kind {
        "cuda" => of(backend().cuda()),
        "vulkan" => of(backend().vulkan()),
        "cpu" => of(Ok(vec![cpu()])),
        _ => Ok(match backend().cuda().and_then(first_that_opens) {
            Ok(found) => {
                let because = "the first GPU that works".into();
                Chosen { kind: found.kind, because, found, instead_of: None }
            }
            Err(missing) => auto_cpu(missing),
        }),
    }
}

/// The first GPU that opens, or why the last of them does not.
fn first_that_opens(all: Vec<Found>) -> Result<Found, Missing> {
    let mut why = Missing::absent("the driver lists no GPU", "");
    for found in all {
        match opens(found.kind) {
            Ok(()) => return Ok(found),
            Err(missing) => why = missing,
        }
    }
    Err(why)
}

fn auto_cpu(missing: Missing) -> Chosen {
    Chosen {
        kind: Kind::Cpu,
        because: format!("no GPU can be used, {}", missing.what),
        found: cpu(),
        instead_of: missing.device_is_there.then_some(missing),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_is_always_there() {
        let chosen = choose("cpu").unwrap();
        assert_eq!(chosen.kind, Kind::Cpu);
        assert!(list().iter().any(|listing| listing.kind == "cpu" && listing.found.is_ok()));
    }

    #[test]
    fn a_number_past_the_last_says_how_many_there_are() {
        let error = choose("cpu:7").unwrap_err();
        assert!(error.to_string().contains("there are 1 of them"), "{error}");
    }
}
