//! The device of a run as Burn's dispatch backend sees it: one instantiation of the code for all devices.

use burn::backend::{Backend, Dispatch};
use burn::tensor::Device;

use super::{cuda, vulkan};
use xrun_core::device::{Kind, supports_tf32};
use xrun_core::heap;
use xrun_core::panics;
use xrun_core::task::{DeviceMemory, TaskError};

/// Whether tensors of this device lie in the memory of the process.
pub fn is_cpu(device: &Device) -> bool {
    *device == Device::flex()
}

/// Where tensors live, with and without automatic differentiation.
#[derive(Clone, Debug)]
pub struct TensorDevice {
    kind: Kind,
    /// For validation and for everything that is not trained.
    pub plain: Device,
    /// For training.
    pub autodiff: Device,
}

impl TensorDevice {
    /// Opens a device. With `activation_checkpointing` a graph keeps fewer activations and computes the others again.
    ///
    /// # Errors
    /// The device cannot be opened.
    pub fn open(kind: Kind, activation_checkpointing: bool) -> Result<Self, TaskError> {
        let plain = match kind {
            Kind::Cpu => Device::flex(),
            Kind::Cuda(index) => cuda::dispatch(index).map_err(TaskError::Device)?,
            Kind::Vulkan(index) => vulkan::dispatch(index).map_err(TaskError::Device)?,
        };
        let autodiff = plain.clone().autodiff();
        let autodiff = if activation_checkpointing { autodiff.gradient_checkpointing() } else { autodiff };
        Ok(Self { kind, plain, autodiff })
    }

    /// Whether products of 32-bit floats are rounded to ten bits of mantissa where that is faster.
    pub fn supports_tf32(&self) -> bool {
        match self.kind {
            Kind::Cuda(index) => cuda::capability(index).is_some_and(supports_tf32),
            Kind::Cpu | Kind::Vulkan(_) => false,
        }
    }

    /// Waits until the device has done what it was asked.
    pub fn synchronise(&self) -> Result<(), TaskError> {
        self.plain.sync().map_err(|error| TaskError::Device(format!("{error:?}")))
    }

    /// The memory pools of all streams; the CPU has none.
    pub fn memory(&self) -> Option<DeviceMemory> {
        let usage = self.plain.memory_pool_usage().filter(|_| self.kind.has_pool())?;
        Some(DeviceMemory {
            in_use: usage.bytes_in_use,
            reserved: usage.bytes_reserved,
            allocations: usage.number_allocs,
        })
    }

    /// Bytes in use where tensors are: in the pool, after all that was asked for; on the CPU, on the heap.
    pub fn in_use(&self) -> u64 {
        if self.kind.has_pool() {
            let _ = self.synchronise(); // a failed device shows itself at the next step
        }
        self.memory().map_or_else(|| heap::read().bytes, |pool| pool.in_use)
    }

    /// Does `work` on a new thread, waits until it has ended, and returns the bytes that the pools took for it and kept.
    pub fn on_new_thread(&self, work: impl FnOnce() + Send) -> Result<u64, TaskError> {
        let failed = |why: String| TaskError::Device(format!("a thread that used it failed: {why}"));
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

    /// Bytes that the pools have taken from the driver.
    fn reserved(&self) -> u64 {
        self.memory().map_or(0, |pool| pool.reserved)
    }

    /// Asks the pools to free what holds nothing; returns the bytes of reserved memory that went.
    pub fn clean_pool(&self) -> u64 {
        if !self.kind.has_pool() {
            return 0;
        }
        let before = self.reserved();
        self.plain.memory_cleanup();
        let _ = self.synchronise(); // a failed device shows itself at the next step
        before.saturating_sub(self.reserved())
    }

    /// What it is called in an experiment's file, or what Burn calls the backend of a GPU.
    pub fn name(&self) -> String {
        if self.kind == Kind::Cpu {
            return self.kind.to_string();
        }
        let name = Dispatch::name(self.plain.as_dispatch());
        // `dispatch<flex>`: the backend behind it is what people know.
        name.strip_prefix("dispatch<").and_then(|name| name.strip_suffix('>')).unwrap_or(&name).to_owned()
    }
}
