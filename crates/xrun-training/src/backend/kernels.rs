//! Choice of the CPU kernels.

use xrun_core::settings::sections::CpuKernels;
use xrun_core::task::TaskError;

/// Selects the CPU kernels of this process.
///
/// # Errors
/// Other kernels have been selected before.
pub fn choose(kernels: CpuKernels) -> Result<(), TaskError> {
    let chosen = match kernels {
        CpuKernels::Fused => xrun_ops::CpuKernels::Fused,
        CpuKernels::Plain => xrun_ops::CpuKernels::Plain,
    };
    chosen.set_default().map_err(|_| {
        let word = kernels.as_str();
        TaskError::Device(format!(
            "cannot apply `device.cpu_kernels = \"{word}\"`: this process already uses the other kernels"
        ))
    })
}
