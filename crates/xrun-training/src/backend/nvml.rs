//! GPUs of the machine, as the NVIDIA management library lists them.

use nvml_wrapper::Nvml;

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
