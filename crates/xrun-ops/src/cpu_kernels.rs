//! Choice between fused kernels and Burn's own operations.

use std::cell::Cell;
use std::sync::OnceLock;

use burn::backend::DispatchDevice;
use burn::tensor::{DType, Tensor};

/// Implementation of operations on 32-bit floats on the CPU.
///
/// A process has one default, which can be set once. [`CpuKernels::scope`] overrides it on one thread while a closure runs, so
/// that tests of both can run concurrently. The choice is made in the forward pass; the backward pass follows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CpuKernels {
    /// The kernels of this crate.
    #[default]
    Fused,
    /// Burn's own operations.
    Plain,
}

static DEFAULT: OnceLock<CpuKernels> = OnceLock::new();

thread_local! {
    static SCOPE: Cell<Option<CpuKernels>> = const { Cell::new(None) };
}

impl CpuKernels {
    /// Sets the default of the process.
    ///
    /// # Errors
    /// The other choice has been set before; it is returned.
    pub fn set_default(self) -> Result<(), Self> {
        let set = *DEFAULT.get_or_init(|| self);
        if set == self { Ok(()) } else { Err(set) }
    }

    /// Returns the choice in effect on this thread.
    pub fn current() -> Self {
        SCOPE.get().unwrap_or_else(|| DEFAULT.get().copied().unwrap_or_default())
    }

    /// Runs `body` with this choice on this thread.
    pub fn scope<R>(self, body: impl FnOnce() -> R) -> R {
        struct Restore(Option<CpuKernels>);
        impl Drop for Restore {
            fn drop(&mut self) {
                SCOPE.set(self.0);
            }
        }
        let _restore = Restore(SCOPE.replace(Some(self)));
        body()
    }
}

/// Returns `true` if operations on `tensor` use a fused kernel: on the CPU, of 32-bit floats, not empty, and chosen on this thread.
pub(crate) fn is_fused<const D: usize>(tensor: &Tensor<D>) -> bool {
    let device = tensor.device().inner();
    CpuKernels::current() == CpuKernels::Fused
        && tensor.dtype() == DType::F32
        && tensor.shape().num_elements() > 0
        && matches!(device.as_dispatch(), DispatchDevice::Flex(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_ends_with_its_closure_even_on_panic() {
        assert_eq!(CpuKernels::current(), CpuKernels::Fused);
        let inner = CpuKernels::Plain.scope(|| CpuKernels::Fused.scope(CpuKernels::current));
        assert_eq!(inner, CpuKernels::Fused);
        let caught = std::panic::catch_unwind(|| CpuKernels::Plain.scope(|| panic!("on purpose")));
        assert!(caught.is_err());
        assert_eq!(CpuKernels::current(), CpuKernels::Fused);
    }
}
