//! The device of a run as Burn's dispatch backend sees it: one instantiation of the code for all devices.

use burn::tensor::backend::Backend;
use burn::{CheckpointingStrategy, Dispatch, DispatchDevice};
use burn_flex::FlexDevice;

use super::{Kind, cuda, vulkan};
use crate::memory::heap;
use crate::panics;
use crate::task::{DeviceMemory, TaskError};

/// Whether tensors of this plain device lie in the memory of the process.
pub fn is_cpu(plain: &DispatchDevice) -> bool {
    matches!(plain, DispatchDevice::Flex(_))
}

/// Where tensors live, with and without automatic differentiation.
#[derive(Clone, Debug)]
pub struct TensorDevice {
    kind: Kind,
    /// For validation and for everything that is not trained.
    pub plain: DispatchDevice,
    /// For training.
    pub autodiff: DispatchDevice,
}

/// The stream of a thread that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeftStream(u64);

impl TensorDevice {
    /// Opens a device. With `activation_checkpointing` a graph keeps fewer activations and computes the others again.
    ///
    /// # Errors
    /// The device cannot be opened.
    pub fn open(kind: Kind, activation_checkpointing: bool) -> Result<Self, TaskError> {
        let plain = match kind {
            Kind::Cpu => DispatchDevice::Flex(FlexDevice),
            Kind::Cuda(index) => cuda::dispatch(index).map_err(TaskError::Device)?,
            Kind::Vulkan(index) => vulkan::dispatch(index).map_err(TaskError::Device)?,
        };
        let strategy = match activation_checkpointing {
            true => CheckpointingStrategy::Balanced,
            false => CheckpointingStrategy::None,
        };
        let autodiff = DispatchDevice::autodiff_checkpointed(plain.clone(), strategy);
        Ok(Self { kind, plain, autodiff })
    }

    /// Whether products of 32-bit floats are rounded to ten bits of mantissa where that is faster.
    pub fn multiplies_in_tf32(&self) -> bool {
        match self.kind {
            Kind::Cuda(index) => cuda::capability(index).is_some_and(super::multiplies_in_tf32),
            Kind::Cpu | Kind::Vulkan(_) => false,
        }
    }

    /// Waits until the device has done what it was asked.
    pub fn synchronise(&self) -> Result<(), TaskError> {
        Dispatch::sync(&self.plain).map_err(|error| TaskError::Device(format!("{error:?}")))
    }

    /// The memory pool of the calling thread's stream, which is the training thread; the CPU has none.
    pub fn memory(&self) -> Option<DeviceMemory> {
        self.memory_of(None)
    }

    fn memory_of(&self, stream: Option<u64>) -> Option<DeviceMemory> {
        match self.kind {
            Kind::Cpu => None,
            Kind::Cuda(index) => cuda::memory(index, stream),
            Kind::Vulkan(index) => vulkan::memory(index, stream),
        }
    }

    /// Bytes in use where tensors are: in the pool, after all that was asked for; on the CPU, on the heap.
    pub fn in_use(&self) -> u64 {
        if self.kind.has_pool() {
            let _ = self.synchronise(); // a failed device shows itself at the next step
        }
        self.memory().map_or_else(|| heap::read().bytes, |pool| pool.in_use)
    }

    /// Does `work` on a new thread, waits until it has ended, and gives the stream that the device had for it.
    pub fn on_new_thread(&self, work: impl FnOnce() + Send) -> Result<LeftStream, TaskError> {
        let failed = |why: String| TaskError::Device(format!("a thread that used it failed: {why}"));
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("xrun device".into()).spawn_scoped(scope, || {
                work();
                let done = self.synchronise();
                done.map(|()| LeftStream(self.stream()))
            });
            let ended = thread.map_err(|error| failed(error.to_string()))?.join();
            ended.map_err(|panic| failed(panics::payload(panic.as_ref())))?
        })
    }

    /// What the pool of a thread that is gone has taken from the driver; nothing if the calling thread has its stream now.
    pub fn left_behind(&self, stream: &LeftStream) -> u64 {
        if stream.0 == self.stream() {
            return 0;
        }
        self.memory_of(Some(stream.0)).map_or(0, |pool| pool.reserved)
    }

    /// The number of the calling thread's stream.
    fn stream(&self) -> u64 {
        match self.kind {
            Kind::Cpu => 0,
            Kind::Cuda(_) => cuda::stream(),
            Kind::Vulkan(_) => vulkan::stream(),
        }
    }

    /// Asks the pool to free what holds nothing; returns the bytes of reserved memory that went. The pool is asked
    /// here and not through Burn, whose dispatch backend ignores the request in 0.21.
    pub fn clean_pool(&self) -> u64 {
        let before = self.memory().map_or(0, |pool| pool.reserved);
        match self.kind {
            Kind::Cpu => return 0,
            Kind::Cuda(index) => cuda::clean(index),
            Kind::Vulkan(index) => vulkan::clean(index),
        }
        let _ = self.synchronise(); // a failed device shows itself at the next step
        before.saturating_sub(self.memory().map_or(0, |pool| pool.reserved))
    }

    /// What it is called in an experiment's file, or what Burn calls the backend of a GPU.
    pub fn name(&self) -> String {
        if self.kind == Kind::Cpu {
            return self.kind.to_string();
        }
        let name = Dispatch::name(&self.plain);
        // `dispatch<flex>`: the backend behind it is what people know.
        name.strip_prefix("dispatch<").and_then(|name| name.strip_suffix('>')).unwrap_or(&name).to_owned()
    }
}
