//! The device of a run as Burn's dispatch backend sees it: one instantiation of the code for all devices.

use burn::tensor::backend::Backend;
use burn::{CheckpointingStrategy, Dispatch, DispatchDevice};
use burn_flex::FlexDevice;

use super::{Kind, cuda, vulkan};
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

impl TensorDevice {
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

    /// Waits until the device has done what it was asked.
    pub fn synchronise(&self) -> Result<(), TaskError> {
        Dispatch::sync(&self.plain).map_err(|error| TaskError::Device(format!("{error:?}")))
    }

    /// The memory pool of the training thread's stream; the CPU has none.
    pub fn memory(&self) -> Option<DeviceMemory> {
        match self.kind {
            Kind::Cpu => None,
            Kind::Cuda(index) => cuda::memory(index),
            Kind::Vulkan(index) => vulkan::memory(index),
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

    /// What Burn calls the backend.
    pub fn name(&self) -> String {
        let name = Dispatch::name(&self.plain);
        // `dispatch<flex>`: the backend behind it is what people know.
        name.strip_prefix("dispatch<").and_then(|name| name.strip_suffix('>')).unwrap_or(&name).to_owned()
    }
}
