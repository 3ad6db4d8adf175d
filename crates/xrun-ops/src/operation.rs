//! Custom operations with a backward pass, registered with Burn's dispatch and autodiff.

use std::fmt::Debug;

use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, backend_extension};
use burn::tensor::Tensor;
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::checkpoint::strategy::CheckpointStrategy;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind};
use burn_flex::{Flex, FlexTensor};

use crate::flex::contiguous;

/// Differentiable function of `N` tensors of 32-bit floats, with kernels for tensors of type `T`: burn-flex's or CubeCL's.
pub trait Operation<T, const N: usize>: Clone + Debug + Send + 'static {
    /// Values saved for the backward pass.
    type Saved: Clone + Debug + Send + 'static;

    /// Computes the output, and the saved values if `save` is set.
    fn forward(&self, inputs: [T; N], save: bool) -> (T, Option<Self::Saved>);

    /// Computes the gradients of the inputs in `needs_grad` from the contiguous gradient of the output.
    fn backward(&self, saved: Self::Saved, gradient: T, needs_grad: [bool; N]) -> [Option<T>; N];

    /// Returns the saved values that the gradients of the inputs in `needs_grad` need.
    fn needed(saved: Self::Saved, _needs_grad: [bool; N]) -> Self::Saved {
        saved
    }
}

/// Backend whose tensors the kernels of this crate read and write in memory.
pub trait KernelBackend: Backend {
    /// Tensor in memory.
    type Memory: Clone + Debug + Send + 'static;
    /// Returns the tensor in memory, after everything that is queued for it.
    fn memory(tensor: FloatTensor<Self>) -> Self::Memory;
    /// Returns the backend's tensor for one in memory.
    fn tensor(memory: Self::Memory) -> FloatTensor<Self>;
    /// Returns the tensor in row-major order, copied if it is strided.
    fn contiguous(memory: Self::Memory) -> Self::Memory;
}

impl KernelBackend for Flex {
    type Memory = FlexTensor;

    fn memory(tensor: FlexTensor) -> FlexTensor {
        tensor
    }

    fn tensor(memory: FlexTensor) -> FlexTensor {
        memory
    }

    fn contiguous(memory: FlexTensor) -> FlexTensor {
        contiguous(memory)
    }
}

/// Declares a trait that applies operations of a backend by their number of inputs, implements it with and without a graph, and functions
/// that call it.
macro_rules! apply_operations {
    ($trait:ident for $backend:ident { $($name:ident, $function:ident: $count:tt ($($input:ident $size:ident),+),)+ }) => {
        /// Application of an operation to its inputs.
        #[backend_extension($backend, Autodiff)]
        pub trait $trait: Backend {
            $(/// Returns the output.
            fn $name<O: Operation<<$backend as KernelBackend>::Memory, $count>>(
                operation: O,
                $($input: FloatTensor<Self>),+
            ) -> FloatTensor<Self>;)+
        }

        impl $trait for $backend {
            $(fn $name<O: Operation<<$backend as KernelBackend>::Memory, $count>>(
                operation: O,
                $($input: FloatTensor<Self>),+
            ) -> FloatTensor<Self> {
                Self::tensor(operation.forward([$($input),+].map(Self::memory), false).0)
            })+
        }

        impl<C: CheckpointStrategy> $trait for Autodiff<$backend, C> {
            $(fn $name<O: Operation<<$backend as KernelBackend>::Memory, $count>>(
                operation: O,
                $($input: FloatTensor<Self>),+
            ) -> FloatTensor<Self> {
                record::<$backend, O, C, $count>(operation, [$($input),+])
            })+
        }

        $(/// Applies an operation to its inputs.
        pub fn $function<$(const $size: usize,)+ const OUTPUT: usize>(
            operation: impl Operation<<$backend as KernelBackend>::Memory, $count>,
            ($($input,)+): ($(Tensor<$size>,)+),
        ) -> Tensor<OUTPUT> {
            Tensor::from_dispatch(Dispatch::$name(operation, $($input.into_dispatch()),+))
        })+
    };
}
#[allow(unused_imports, reason = "the kernels for GPUs use it")]
pub(crate) use apply_operations;

apply_operations!(Apply for Flex {
    flex_unary, unary: 1 (a A),
    flex_binary, binary: 2 (a A, b B),
    flex_ternary, ternary: 3 (a A, b B, c C),
    flex_quaternary, quaternary: 4 (a A, b B, c C, d D),
});

/// Tensor of Burn's autodiff graph, of the same type for each checkpointing strategy.
type Tracked<B> = FloatTensor<Autodiff<B>>;

/// Applies an operation and records it in the graph if an input requires a gradient.
pub fn record<B: KernelBackend, O: Operation<B::Memory, N>, C: CheckpointStrategy, const N: usize>(
    operation: O,
    inputs: [Tracked<B>; N],
) -> Tracked<B> {
    let nodes = inputs.each_ref().map(|input| input.node());
    // A node does not tell whether it is tracked; an operation on it alone does.
    let needs_grad = std::array::from_fn(|at| {
        let nodes = std::array::from_fn(|_| inputs[at].node());
        let prepared: OpsKind<_, B, _, _, N> =
            BackwardStep(operation.clone()).prepare::<C>(nodes).compute_bound().stateful();
        matches!(prepared, OpsKind::Tracked(_))
    });
    let inputs = inputs.map(|input| B::memory(input.into_primitive()));
    match BackwardStep(operation.clone()).prepare::<C>(nodes).compute_bound().stateful() {
        OpsKind::Tracked(prepared) => {
            let (output, saved) = operation.forward(inputs, true);
            let saved = saved.unwrap_or_else(|| unreachable!("`save` is set"));
            prepared.finish(O::needed(saved, needs_grad), B::tensor(output))
        }
        OpsKind::UnTracked(prepared) => prepared.finish(B::tensor(operation.forward(inputs, false).0)),
    }
}

/// Node of Burn's graph that runs the backward pass of an operation.
#[derive(Debug)]
struct BackwardStep<O>(O);

impl<B: KernelBackend, O: Operation<B::Memory, N>, const N: usize> Backward<B, N> for BackwardStep<O> {
    type State = O::Saved;

    fn backward(self, ops: Ops<Self::State, N>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let gradient = B::contiguous(B::memory(gradients.consume::<B>(&ops.node)));
        let needs_grad = ops.parents.each_ref().map(Option::is_some);
        let input_gradients = self.0.backward(ops.state, gradient, needs_grad);
        for (parent, gradient) in ops.parents.into_iter().zip(input_gradients) {
            if let (Some(parent), Some(gradient)) = (parent, gradient) {
                gradients.register::<B>(parent.id, B::tensor(gradient));
            }
        }
    }
}
