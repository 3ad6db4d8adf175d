//! Choice of the CPU kernels.

use xrun_core::settings::sections::CpuKernels;
use xrun_core::task::TaskError;

/// Chooses the CPU kernels of this process.
///
/// # Errors
/// The other kernels have been chosen before.
pub fn choose(kernels: CpuKernels) -> Result<(), TaskError> {
    let chosen = match kernels {
        CpuKernels::Fused => xrun_ops::CpuKernels::Fused,
        CpuKernels::Plain => xrun_ops::CpuKernels::Plain,
    };
    chosen.set_default().map_err(|_| {
        let word = kernels.as_str();
        TaskError::Device(format!(
            "`device.cpu_kernels = \"{word}\"`: this process runs with the other kernels already"
        ))
    })
}
