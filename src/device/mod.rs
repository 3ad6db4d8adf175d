//! Which device is used, and why? The only folder that names a backend.
//!
//! `auto` takes the first GPU that works and the CPU otherwise. Burn's CUDA backend loads the driver at run time and
//! panics inside the loader where it is missing, so each kind is probed first, and what is missing is said.

#[cfg(not(feature = "cuda"))]
#[path = "cuda_absent.rs"]
pub mod cuda;
#[cfg(feature = "cuda")]
pub mod cuda;
#[cfg(feature = "train")]
pub mod dispatch;
mod library;
#[cfg(any(feature = "cuda", feature = "vulkan"))]
mod streams;
pub mod visible;
#[cfg(not(feature = "vulkan"))]
#[path = "vulkan_absent.rs"]
pub mod vulkan;
#[cfg(feature = "vulkan")]
pub mod vulkan;

use std::fmt;

/// A kind of device, and which of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Cpu,
    Cuda(u32),
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
    pub kind: Kind,
    pub because: String,
    pub found: Found,
}

/// A device that works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub kind: Kind,
    pub name: String,
    pub driver: Option<String>,
    /// Bytes in all, and free at this moment.
    pub memory: Option<u64>,
    pub free: Option<u64>,
    /// The number under which the NVIDIA driver lists it, where that is certain.
    pub driver_number: Option<u32>,
}

/// A device that was asked for cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("the device `{asked}` cannot be used: {missing}; `xrun devices` lists what can")]
pub struct DeviceError {
    pub asked: String,
    pub missing: String,
}

/// One line of `xrun devices`: what was found of a kind, or what is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    pub kind: &'static str,
    pub found: Result<Vec<Found>, String>,
}

/// All kinds, in the order in which `auto` tries them.
pub fn list() -> Vec<Listing> {
    vec![
        Listing { kind: "cuda", found: cuda::probe() },
        Listing { kind: "vulkan", found: vulkan::probe() },
        Listing { kind: "cpu", found: Ok(vec![cpu()]) },
    ]
}

fn cpu() -> Found {
    let memory = crate::memory::sources::machine();
    Found {
        kind: Kind::Cpu,
        name: processor(),
        driver: None,
        memory: memory.map(|(all, _)| all),
        free: memory.map(|(_, free)| free),
        driver_number: None,
    }
}

/// What the processor calls itself.
pub fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("model name"));
    let name = line.and_then(|line| line.split_once(':')).map_or(std::env::consts::ARCH, |(_, name)| name.trim());
    name.to_owned()
}

/// The device that `experiment.device` asks for. A software Vulkan device is never chosen by `auto`: it is slower than
/// the CPU backend.
pub fn choose(asked: &str) -> Result<Chosen, DeviceError> {
    let (kind, index) = asked.split_once(':').unwrap_or((asked, "0"));
    let index: u32 = index.parse().unwrap_or(u32::MAX);
    let of = |found: Result<Vec<Found>, String>| {
        let missing = |missing: String| DeviceError { asked: asked.to_owned(), missing };
        let mut all = found.map_err(missing)?;
        let count = all.len();
        if index as usize >= count {
            return Err(missing(format!("there are {count} of them, counted from 0")));
        }
        let found = all.swap_remove(index as usize);
        Ok(Chosen { kind: found.kind, because: format!("`experiment.device` is `{asked}`"), found })
    };
    match kind {
        "cuda" => of(cuda::probe()),
        "vulkan" => of(vulkan::probe()),
        "cpu" => of(Ok(vec![cpu()])),
        _ => Ok(match cuda::probe() {
            Ok(mut found) if !found.is_empty() => {
                let found = found.swap_remove(0);
                Chosen { kind: found.kind, because: "auto: the first GPU that works".into(), found }
            }
            Ok(_) => auto_cpu("the driver lists no GPU"),
            Err(missing) => auto_cpu(&missing),
        }),
    }
}

fn auto_cpu(missing: &str) -> Chosen {
    Chosen { kind: Kind::Cpu, because: format!("auto: no GPU can be used, {missing}"), found: cpu() }
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
