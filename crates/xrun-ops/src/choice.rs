//! Choice between fused kernels and Burn's own operations.

use std::cell::Cell;
use std::sync::OnceLock;

use burn::backend::DispatchDevice;
use burn::tensor::{DType, Tensor};

/// The implementation of operations on 32-bit floats on the CPU.
///
/// A process has one default, which can be set once. A thread may choose otherwise for as long as a closure runs
/// ([`CpuKernels::scope`]), so tests of both never meet. The choice is made in the forward pass; the backward pass follows it.
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
    /// Makes this the choice of the process.
    ///
    /// # Errors
    /// The process has made the other choice before, which is returned.
    pub fn set_default(self) -> Result<(), Self> {
        let set = *DEFAULT.get_or_init(|| self);
        if set == self { Ok(()) } else { Err(set) }
    }

    /// Returns the choice of this thread.
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

/// Whether an operation on `tensor` has a fused kernel, and this thread wants it.
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
