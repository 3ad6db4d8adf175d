//! GPU memory in total and by process, utilisation and power, as NVML reports them.

use std::collections::BTreeMap;

use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::{Device, Nvml};

use xrun_results::sample::GpuTelemetry;

/// Cap on the GPUs; further ones are ignored.
const GPUS_MAX: u32 = 32;

/// GPUs of this machine. The driver's library is loaded at run time.
pub struct Gpus {
    nvml: Nvml,
    count: u32,
}

/// Memory of a GPU at one moment, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GpuSample {
    /// Index of the GPU by the driver.
    pub index: u32,
    /// Memory of the GPU.
    pub total: u64,
    /// Memory in use by all processes.
    pub used: u64,
    /// Memory in use by process id. In a container the driver may see other ids, and on some cards it reports none.
    pub processes: BTreeMap<u32, u64>,
    /// Utilisation and power.
    pub load: Option<GpuTelemetry>,
}

impl std::fmt::Debug for Gpus {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Gpus({})", self.count)
    }
}

impl Gpus {
    /// Opens the driver; `None` without a driver or a GPU.
    pub fn open() -> Option<Self> {
        let nvml = Nvml::init().ok()?;
        let count = nvml.device_count().ok()?.min(GPUS_MAX);
        (count > 0).then_some(Self { nvml, count })
    }

    /// Memory of all GPUs that the driver can read.
    pub fn read(&self) -> Vec<GpuSample> {
        (0..self.count).filter_map(|index| self.read_one(index)).collect()
    }

    /// A GPU by its index; `None` where the driver does not know it.
    pub fn device(&self, index: u32) -> Option<Device<'_>> {
        self.nvml.device_by_index(index).ok()
    }

    /// Memory of a GPU; `None` where the driver cannot read it.
    pub fn read_one(&self, index: u32) -> Option<GpuSample> {
        let device = self.device(index)?;
        let memory = device.memory_info().ok()?;
        let mut processes = BTreeMap::new();
        for process in device.running_compute_processes().unwrap_or_default() {
            if let UsedGpuMemory::Used(bytes) = process.used_gpu_memory {
                *processes.entry(process.pid).or_default() += bytes;
            }
        }
        Some(GpuSample { index, total: memory.total, used: memory.used, processes, load: load(&device) })
    }
}

/// Utilisation and power of a GPU now.
fn load(device: &Device<'_>) -> Option<GpuTelemetry> {
    let utilisation = device.utilization_rates().ok().map(|rates| rates.gpu.min(100));
    GpuTelemetry::new(utilisation, device.power_usage().ok())
}

/// Load of several GPUs together: mean utilisation, and total power.
pub fn combined_load(loads: impl Iterator<Item = GpuTelemetry> + Clone) -> Option<GpuTelemetry> {
    let utilisation = loads.clone().filter_map(|load| load.utilisation_percent);
    let count = u32::try_from(utilisation.clone().count()).ok().filter(|count| *count > 0);
    let mean = count.map(|count| utilisation.sum::<u32>() / count);
    GpuTelemetry::new(mean, loads.filter_map(|load| load.power_milliwatts).reduce(u32::saturating_add))
}

/// Mean utilisation and power of the samples that have them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MeanLoad {
    utilisation: Mean,
    watts: Mean,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Mean {
    sum: f64,
    count: u64,
}

impl Mean {
    fn add(&mut self, value: Option<f64>) {
        if let Some(value) = value {
            self.sum += value;
            self.count += 1;
        }
    }

    fn get(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }
}

impl MeanLoad {
    /// Adds a sample.
    pub fn add(&mut self, load: Option<GpuTelemetry>) {
        self.utilisation.add(load.and_then(|load| load.utilisation_percent).map(f64::from));
        self.watts.add(load.and_then(|load| load.power_milliwatts).map(|power| f64::from(power) / 1000.0));
    }

    /// Mean utilisation in percent, and power in watts; `None` where no sample has them.
    pub fn means(&self) -> (Option<f64>, Option<f64>) {
        (self.utilisation.get(), self.watts.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_values_do_not_count_as_zero() {
        let load = |utilisation, power| GpuTelemetry { utilisation_percent: utilisation, power_milliwatts: power };
        assert_eq!(GpuTelemetry::new(None, None), None);
        assert_eq!(combined_load([].into_iter()), None);
        let two = [load(Some(90), Some(300_000)), load(None, Some(100_500)), load(Some(31), None)];
        assert_eq!(combined_load(two.into_iter()), Some(load(Some(60), Some(400_500))));
        let mut mean = MeanLoad::default();
        assert_eq!(mean.means(), (None, None));
        [Some(two[0]), None, Some(two[1]), Some(two[2])].into_iter().for_each(|load| mean.add(load));
        assert_eq!(mean.means(), (Some(60.5), Some(200.25)));
    }
}
