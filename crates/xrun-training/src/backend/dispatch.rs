//! Device of a run in Burn's dispatch backend: the code is instantiated once for all devices.

use burn::backend::{Backend, Dispatch};
use burn::tensor::Device;

use super::{cuda, vulkan};
use xrun_core::bounded::ledger::Ledger;
use xrun_core::device::{DeviceKind, supports_tf32};
use xrun_core::heap;
use xrun_core::panics;
use xrun_core::task::{DeviceMemory, TaskError};

/// Device of tensors, with and without automatic differentiation.
#[derive(Clone, Debug)]
pub struct TensorDevice {
    kind: DeviceKind,
    /// Inner device, without autodiff, for validation and everything that is not trained.
    pub inner: Device,
    /// Autodiff device, for training.
    pub autodiff: Device,
    /// Ledger for the graphs of captured steps; `None` if nothing is captured.
    pub graphs: Option<Ledger>,
}

impl TensorDevice {
    /// Opens a device. With `activation_checkpointing` a graph saves fewer activations and recomputes the others.
    ///
    /// # Errors
    /// The device cannot be opened.
    pub fn open(kind: DeviceKind, activation_checkpointing: bool) -> Result<Self, TaskError> {
        let inner = match kind {
            DeviceKind::Cpu => Device::flex(),
            DeviceKind::Cuda(index) => cuda::dispatch(index).map_err(TaskError::Device)?,
            DeviceKind::Vulkan(index) => vulkan::dispatch(index).map_err(TaskError::Device)?,
        };
        let autodiff = inner.clone().autodiff();
        let autodiff = if activation_checkpointing { autodiff.gradient_checkpointing() } else { autodiff };
        Ok(Self { kind, inner, autodiff, graphs: None })
    }

    /// Returns whether 32-bit operands of matrix products may be rounded to TF32 (ten bits of mantissa).
    pub fn supports_tf32(&self) -> bool {
        match self.kind {
            DeviceKind::Cuda(index) => cuda::capability(index).is_some_and(supports_tf32),
            DeviceKind::Cpu | DeviceKind::Vulkan(_) => false,
        }
    }

    /// Waits until the device has completed all operations.
    ///
    /// # Errors
    /// An operation failed.
    pub fn synchronise(&self) -> Result<(), TaskError> {
        self.inner.sync().map_err(|error| TaskError::Device(format!("{error:?}")))
    }

    /// Usage of the memory pools of all streams; `None` on the CPU, which has none.
    pub fn memory(&self) -> Option<DeviceMemory> {
        let usage = self.inner.memory_pool_usage().filter(|_| self.kind.has_pool())?;
        Some(DeviceMemory {
            in_use: usage.bytes_in_use,
            reserved: usage.bytes_reserved,
            allocations: usage.number_allocs,
        })
    }

    /// Bytes in use in the memory of tensors: the pool, after all operations have completed, or the heap on the CPU.
    pub fn in_use(&self) -> u64 {
        if self.kind.has_pool() {
            let _ = self.synchronise(); // the next step reports a failed device
        }
        self.memory().map_or_else(|| heap::read().bytes, |pool| pool.in_use)
    }

    /// Runs `work` on a new thread, waits for its end, and returns by how many bytes the reserved memory of the pools grew.
    ///
    /// # Errors
    /// The thread cannot be started or panics.
    pub fn on_new_thread(&self, work: impl FnOnce() + Send) -> Result<u64, TaskError> {
        let failed = |reason: String| TaskError::Device(format!("a thread that used it failed: {reason}"));
        let before = self.reserved();
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("xrun device".into()).spawn_scoped(scope, || {
                work();
                self.synchronise()
            });
            let ended = thread.map_err(|error| failed(error.to_string()))?.join();
            ended.map_err(|panic| failed(panics::payload(panic.as_ref())))?
        })?;
        Ok(self.reserved().saturating_sub(before))
    }

    /// Returns whether its tensors lie in memory of its own.
    pub fn is_gpu(&self) -> bool {
        self.kind.has_pool()
    }

    /// Bytes that the pools have reserved.
    pub fn reserved(&self) -> u64 {
        self.memory().map_or(0, |pool| pool.reserved)
    }

    /// Frees unused memory of the pools; returns by how many bytes their reserved memory shrank.
    pub fn clean_pool(&self) -> u64 {
        if !self.kind.has_pool() {
            return 0;
        }
        let before = self.reserved();
        self.inner.memory_cleanup();
        let _ = self.synchronise(); // the next step reports a failed device
        before.saturating_sub(self.reserved())
    }

    /// Name of the CPU as in an experiment's file, or of a GPU's backend in Burn.
    pub fn name(&self) -> String {
        if self.kind == DeviceKind::Cpu {
            return self.kind.to_string();
        }
        let name = Dispatch::name(self.inner.as_dispatch());
        // `dispatch<wgpu>`: the name of the inner backend is the known one.
        name.strip_prefix("dispatch<").and_then(|name| name.strip_suffix('>')).unwrap_or(&name).to_owned()
    }
}
