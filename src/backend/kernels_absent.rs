//! Choice of the CPU kernels in a build without Burn, which has none.

use crate::settings::sections::CpuKernels;
use crate::task::TaskError;

/// # Errors
/// None.
pub fn choose(_: CpuKernels) -> Result<(), TaskError> {
    Ok(())
}
