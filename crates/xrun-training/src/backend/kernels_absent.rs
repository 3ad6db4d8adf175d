//! Choice of the CPU kernels in a build without Burn, which has none.

use xrun_core::settings::sections::CpuKernels;
use xrun_core::task::TaskError;

/// Does nothing.
///
/// # Errors
/// None.
pub fn choose(_: CpuKernels) -> Result<(), TaskError> {
    Ok(())
}
