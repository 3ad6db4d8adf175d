//! The memory of the machine and its GPUs, as the kernel and NVML tell them.

use nvml_wrapper::Nvml;

/// Memory of the machine and what of it is free for new work.
pub fn memory() -> Option<(u64, u64)> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    kibibytes(&text, "MemTotal:").zip(kibibytes(&text, "MemAvailable:"))
}

/// The bytes in a line such as `Rss:   1234 kB`.
pub fn kibibytes(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with(key))?;
    let number: u64 = line[key.len()..].split_ascii_whitespace().next()?.parse().ok()?;
    Some(number * 1024)
}

/// A GPU as the driver describes it before any work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// The driver's number of it.
    pub index: u32,
    /// The name that is the same on every start, such as `GPU-…`.
    pub uuid: String,
    /// The name that the GPU gives itself.
    pub name: String,
    /// The driver's version.
    pub driver: String,
    /// Bytes of memory in all.
    pub memory: u64,
    /// Bytes of it that nobody holds.
    pub free: u64,
}

/// All NVIDIA GPUs that the driver tells of; an error says why it tells of none.
pub fn gpus() -> Result<Vec<Gpu>, String> {
    let nvml = Nvml::init().map_err(|error| format!("the NVIDIA management library does not load: {error}"))?;
    let driver = nvml.sys_driver_version().unwrap_or_default();
    let count = nvml.device_count().map_err(|error| error.to_string())?;
    (0..count)
        .map(|index| {
            let device = nvml.device_by_index(index).map_err(|error| error.to_string())?;
            let memory = device.memory_info().map_err(|error| error.to_string())?;
            let name = device.name().map_err(|error| error.to_string())?;
            let uuid = device.uuid().unwrap_or_default();
            Ok(Gpu { index, uuid, name, driver: driver.clone(), memory: memory.total, free: memory.free })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_lines_become_bytes() {
        let text = "Rss:                1024 kB\nAnonymous:     512 kB\nSwap: x kB\n";
        assert_eq!(kibibytes(text, "Rss:"), Some(1 << 20));
        assert_eq!(kibibytes(text, "Swap:"), None);
        assert_eq!(kibibytes(text, "Pss:"), None);
    }
}
