//! Memory of the machine (`/proc/meminfo`) and of its GPUs (NVML).

use nvml_wrapper::Nvml;

/// Total and available memory of the machine, in bytes.
pub fn memory() -> Option<(u64, u64)> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    kibibytes(&text, "MemTotal:").zip(kibibytes(&text, "MemAvailable:"))
}

/// Bytes in a line of `/proc` such as `Rss:   1234 kB`; `None` if the key is missing.
pub fn kibibytes(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with(key))?;
    let number: u64 = line[key.len()..].split_ascii_whitespace().next()?.parse().ok()?;
    Some(number * 1024)
}

/// GPU as the NVIDIA driver reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// Index of the driver.
    pub index: u32,
    /// Identifier that survives restarts, such as `GPU-…`.
    pub uuid: String,
    /// Name of the model.
    pub name: String,
    /// Version of the driver.
    pub driver: String,
    /// Total memory in bytes.
    pub memory: u64,
    /// Free memory in bytes.
    pub free: u64,
}

/// All NVIDIA GPUs.
///
/// # Errors
/// The driver or its management library fails.
pub fn gpus() -> Result<Vec<Gpu>, String> {
    let nvml = Nvml::init().map_err(|error| format!("cannot load the NVIDIA management library: {error}"))?;
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
    fn lines_of_the_kernel_convert_to_bytes() {
        let text = "Rss:                1024 kB\nAnonymous:     512 kB\nSwap: x kB\n";
        assert_eq!(kibibytes(text, "Rss:"), Some(1 << 20));
        assert_eq!(kibibytes(text, "Swap:"), None);
        assert_eq!(kibibytes(text, "Pss:"), None);
    }
}
