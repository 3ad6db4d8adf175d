//! Kernels for GPUs, and their application to tensors of Burn's CubeCL backend.
//!
//! Sums are over a fixed number of units and added in a fixed order, without atomics: the result is the same in every run.

mod adamw;
mod box_loss;
mod convolution;
mod embedding;
mod fake_quantize;
mod gelu;
pub mod in_place;
mod layer_norm;
mod next_token_loss;
mod norm;
mod normalise;
mod softmax;
mod sums;

pub use adamw::adamw;
pub use box_loss::box_loss;
pub use embedding::embedding;
pub use fake_quantize::{fake_quantize, range};
pub use next_token_loss::loss;
pub use norm::global_norm;
pub use normalise::Normalise;
pub use softmax::scaled_softmax;
pub use sums::add_bias;

use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Cube, Dispatch, DispatchDevice, backend_extension};
use burn::tensor::{DType, Int, Shape, Tensor};
use burn_cubecl::CubeBackend;
use burn_cubecl::fusion::FusionCubeRuntime;
use burn_cubecl::kernel::{cast, into_contiguous};
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use burn_cubecl::tensor::CubeTensor;
use burn_fusion::FusionTensor;
use burn_fusion::NoOp;
use burn_fusion::custom::{CustomOpIr, OperationIr, OperationOutput, StreamId, TensorIr};
use cubecl::ir::FloatKind;
use cubecl::prelude::*;

use crate::cpu_kernels::CpuKernels;
use crate::operation::{KernelBackend, Operation, apply_operations, record};

/// Units of a cube.
const UNITS: u32 = 256;

/// Largest number of tensors of a kind that one launch takes. Kernels are compiled for each number of them.
const TENSORS_MAX: usize = 16;

/// Tensor whose value Burn's fusion may not have computed yet.
type Lazy = FusionTensor<FusionCubeRuntime>;

/// Returns `true` if operations on `tensor` use kernels for GPUs: it is on a device of CubeCL and not empty, and they are not switched
/// off on this thread.
pub fn has_gpu_kernels<const D: usize>(tensor: &Tensor<D>) -> bool {
    let device = tensor.device().inner();
    CpuKernels::current() == CpuKernels::Fused
        && tensor.shape().num_elements() > 0
        && matches!(device.as_dispatch(), DispatchDevice::Cube(_))
}

/// Returns `$result` from the calling function if `$tensor` uses the kernels of this module, and is of 32-bit floats or of `any` dtype.
macro_rules! on_cube {
    (any $tensor:expr => $result:expr) => {
        if $crate::cube::has_gpu_kernels($tensor) {
            return $result;
        }
    };
    ($tensor:expr => $result:expr) => {
        if $tensor.dtype() == burn::tensor::DType::F32 && $crate::cube::has_gpu_kernels($tensor) {
            return $result;
        }
    };
}
pub(crate) use on_cube;

impl KernelBackend for Cube {
    type Memory = CubeTensor;

    fn memory(tensor: Lazy) -> CubeTensor {
        tensor.client.clone().resolve_tensor_float::<CubeBackend>(tensor)
    }

    fn tensor(memory: CubeTensor) -> Lazy {
        let client = burn_fusion::client::GlobalFusionClient::<FusionCubeRuntime>::load(&memory.device);
        let (shape, dtype) = (memory.meta.shape().clone(), memory.dtype);
        let output = TensorIr::uninit(client.register_tensor_handle(memory.into()), shape, dtype);
        let operation = OperationIr::Custom(CustomOpIr::new("xrun kernel", &[], &[output]));
        client.register(StreamId::current(), operation, NoOp::<CubeBackend>::new()).output()
    }

    fn contiguous(memory: CubeTensor) -> CubeTensor {
        into_contiguous(memory)
    }
}

apply_operations!(ApplyOnCube for Cube {
    cube_unary, unary: 1 (a A),
    cube_binary, binary: 2 (a A, b B),
    cube_ternary, ternary: 3 (a A, b B, c C),
    cube_quaternary, quaternary: 4 (a A, b B, c C, d D),
});

/// Returns the memory of a tensor without autodiff.
fn memory<const D: usize>(tensor: Tensor<D>) -> CubeTensor {
    let tensor = tensor.try_into_primitive::<Cube>();
    Cube::memory(tensor.unwrap_or_else(|error| panic!("a constant is on an autodiff device: {error:?}")))
}

/// Returns the memory of a tensor without autodiff, in row-major order.
fn inner_memory<const D: usize>(tensor: Tensor<D>) -> CubeTensor {
    into_contiguous(memory(tensor))
}

/// Returns the tensor of a memory.
fn from_memory<const D: usize>(memory: CubeTensor) -> Tensor<D> {
    Tensor::from_primitive::<Cube>(Cube::tensor(memory))
}

/// Returns the memory of a tensor of integers.
fn int_memory<const D: usize>(tensor: Tensor<D, Int>) -> CubeTensor {
    // Indices beside tracked tensors are on their device.
    let tensor = if tensor.device().is_autodiff() { tensor.inner() } else { tensor };
    let tensor = tensor.try_into_primitive::<Cube>();
    let tensor = tensor.unwrap_or_else(|error| panic!("integers are on another device: {error:?}"));
    let memory = tensor.client.clone().resolve_tensor_int::<CubeBackend>(tensor);
    into_contiguous(if memory.dtype == DType::I32 { memory } else { cast(memory, DType::I32) })
}

/// Contiguous memory of 32-bit floats beside `tensor`, not initialised.
fn empty(tensor: &CubeTensor, shape: impl Into<Shape>) -> CubeTensor {
    empty_device_contiguous_dtype(tensor.client.clone(), tensor.device.clone(), shape.into(), DType::F32)
}

/// Returns memory like that of `tensor` that may be overwritten: its own if nobody else holds it.
fn writable(tensor: &CubeTensor) -> CubeTensor {
    if tensor.handle.can_mut() {
        return tensor.clone();
    }
    let (client, device, shape) = (tensor.client.clone(), tensor.device.clone(), tensor.meta.shape().clone());
    empty_device_contiguous_dtype(client, device, shape, tensor.dtype)
}

/// Type of the values of a tensor of floats in a kernel.
fn float_type(tensor: &CubeTensor) -> ElemType {
    ElemType::Float(match tensor.dtype {
        DType::BF16 => FloatKind::BF16,
        DType::F16 => FloatKind::F16,
        DType::F32 => FloatKind::F32,
        other => panic!("a kernel for GPUs has values of {other:?}"),
    })
}

/// Number of rows and their width: the size of the last dimension.
fn rows(tensor: &CubeTensor) -> (usize, usize) {
    let width = tensor.meta.shape().last().copied().unwrap_or(1).max(1);
    (tensor.meta.num_elements() / width, width)
}

/// Launches `$kernel` with cubes of [`UNITS`] units, on the device of the first tensor.
macro_rules! launch {
    ($kernel:ident, $cubes:expr, [$first:expr $(, $tensor:expr)* $(,)?], [$($value:expr),* $(,)?]) => {
        $kernel::launch(
            &$first.client.clone(),
            $cubes,
            $crate::cube::dim(),
            $first.clone().into_buffer_arg(),
            $($tensor.clone().into_buffer_arg(),)*
            $($value,)*
        )
    };
}
use launch;

/// Units of a cube in one dimension.
fn dim() -> CubeDim {
    CubeDim::new_1d(UNITS)
}

/// Buffers of several tensors, as one argument of a kernel.
type Buffers = SequenceArg<Box<[f32]>>;

/// Buffers of tensors of 32-bit floats.
fn buffers(tensors: &[CubeTensor]) -> Buffers {
    tensors.iter().map(|tensor| tensor.clone().into_buffer_arg()).collect()
}

/// Number of tensors for one launch of a kernel that takes `kinds` buffers for each, and a few others.
fn group_size(tensors: &[CubeTensor], kinds: usize) -> usize {
    let bindings = tensors.first().map_or(0, |tensor| tensor.client.properties().hardware.max_bindings as usize);
    (bindings.saturating_sub(4) / kinds).clamp(1, TENSORS_MAX)
}

/// Cubes with a unit for each value of the largest of several tensors.
fn each_of(tensors: &[CubeTensor]) -> CubeCount {
    cubes(tensors.iter().map(|tensor| tensor.meta.num_elements()).max().unwrap_or(0).div_ceil(UNITS as usize))
}

/// Cubes with a unit for each value of a tensor.
fn each(tensor: &CubeTensor) -> CubeCount {
    cubes(tensor.meta.num_elements().div_ceil(UNITS as usize))
}

/// Cubes in two dimensions, of which each is below the limit of all devices. Kernels compare `CUBE_POS` with the number that they need.
fn cubes(count: usize) -> CubeCount {
    let x = count.clamp(1, 1 << 15) as u32;
    CubeCount::Static(x, (count as u32).div_ceil(x).max(1), 1)
}

/// Sum of `value` over the units of a cube, for each of them.
#[cube]
fn cube_sum(value: f32, scratch: &mut Shared<[f32]>) -> f32 {
    cube_reduce(value, scratch, false)
}

/// Sum of the products of two rows that begin at `start`, for each unit of a cube.
#[cube]
fn row_dot<F: Float>(a: &[F], b: &[F], start: usize, width: u32, scratch: &mut Shared<[f32]>) -> f32 {
    let mut dot = 0.0f32;
    let mut i = UNIT_POS;
    while i < width {
        let at = start + i as usize;
        dot += f32::cast_from(a[at]) * f32::cast_from(b[at]);
        i += UNITS;
    }
    cube_sum(dot, scratch)
}

/// Maximum of `value` over the units of a cube, for each of them.
#[cube]
fn cube_max(value: f32, scratch: &mut Shared<[f32]>) -> f32 {
    cube_reduce(value, scratch, true)
}

#[cube]
fn cube_reduce(value: f32, scratch: &mut Shared<[f32]>, #[comptime] is_maximum: bool) -> f32 {
    sync_cube();
    scratch[UNIT_POS as usize] = value;
    sync_cube();
    let mut half = CUBE_DIM / 2;
    while half > 0 {
        if UNIT_POS < half {
            let other = scratch[(UNIT_POS + half) as usize];
            if comptime![is_maximum] {
                scratch[UNIT_POS as usize] = max(scratch[UNIT_POS as usize], other);
            } else {
                scratch[UNIT_POS as usize] += other;
            }
        }
        sync_cube();
        half /= 2;
    }
    scratch[0]
}
