//! Operations with a backward pass of their own, as Burn's dispatch and its autodiff take them.

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

/// A function of `N` tensors of 32-bit floats, and its gradient.
pub trait Operation<const N: usize>: Clone + Debug + Send + 'static {
    /// Values that the backward pass needs.
    type Saved: Clone + Debug + Send + 'static;

    /// Computes the output; `Some` if `save` is set.
    fn forward(&self, inputs: [FlexTensor; N], save: bool) -> (FlexTensor, Option<Self::Saved>);

    /// Computes the gradients of those inputs that are `wanted`, from the contiguous gradient of the output.
    fn backward(&self, saved: Self::Saved, gradient: FlexTensor, wanted: [bool; N]) -> [Option<FlexTensor>; N];
}

/// Operations by their number of inputs.
#[backend_extension(Flex, Autodiff)]
pub trait Apply: Backend {
    /// Applies an operation to one tensor.
    fn unary<O: Operation<1>>(operation: O, a: FloatTensor<Self>) -> FloatTensor<Self>;
    /// Applies an operation to three tensors.
    fn ternary<O: Operation<3>>(
        operation: O,
        a: FloatTensor<Self>,
        b: FloatTensor<Self>,
        c: FloatTensor<Self>,
    ) -> FloatTensor<Self>;
    /// Applies an operation to four tensors.
    fn quaternary<O: Operation<4>>(
        operation: O,
        a: FloatTensor<Self>,
        b: FloatTensor<Self>,
        c: FloatTensor<Self>,
        d: FloatTensor<Self>,
    ) -> FloatTensor<Self>;
}

impl Apply for Flex {
    fn unary<O: Operation<1>>(operation: O, a: FlexTensor) -> FlexTensor {
        operation.forward([a], false).0
    }

    fn ternary<O: Operation<3>>(operation: O, a: FlexTensor, b: FlexTensor, c: FlexTensor) -> FlexTensor {
        operation.forward([a, b, c], false).0
    }

    fn quaternary<O: Operation<4>>(
        operation: O,
        a: FlexTensor,
        b: FlexTensor,
        c: FlexTensor,
        d: FlexTensor,
    ) -> FlexTensor {
        operation.forward([a, b, c, d], false).0
    }
}

/// A tensor of Burn's graph; the same for each way of checkpointing.
type Tracked = FloatTensor<Autodiff<Flex>>;

impl<C: CheckpointStrategy> Apply for Autodiff<Flex, C> {
    fn unary<O: Operation<1>>(operation: O, a: Tracked) -> Tracked {
        record::<O, C, 1>(operation, [a])
    }

    fn ternary<O: Operation<3>>(operation: O, a: Tracked, b: Tracked, c: Tracked) -> Tracked {
        record::<O, C, 3>(operation, [a, b, c])
    }

    fn quaternary<O: Operation<4>>(operation: O, a: Tracked, b: Tracked, c: Tracked, d: Tracked) -> Tracked {
        record::<O, C, 4>(operation, [a, b, c, d])
    }
}

/// Computes an operation, and records it where an input has a gradient.
fn record<O: Operation<N>, C: CheckpointStrategy, const N: usize>(operation: O, inputs: [Tracked; N]) -> Tracked {
    let nodes = inputs.each_ref().map(|input| input.node());
    let inputs = inputs.map(|input| input.into_primitive());
    match Step(operation.clone()).prepare::<C>(nodes).compute_bound().stateful() {
        OpsKind::Tracked(prepared) => {
            let (output, saved) = operation.forward(inputs, true);
            let saved = saved.unwrap_or_else(|| unreachable!("the operation was asked to save"));
            prepared.finish(saved, output)
        }
        OpsKind::UnTracked(prepared) => prepared.finish(operation.forward(inputs, false).0),
    }
}

/// An operation as a step of Burn's graph.
#[derive(Debug)]
struct Step<O>(O);

impl<O: Operation<N>, const N: usize> Backward<Flex, N> for Step<O> {
    type State = O::Saved;

    fn backward(self, ops: Ops<Self::State, N>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let gradient = contiguous(gradients.consume::<Flex>(&ops.node));
        let wanted = ops.parents.each_ref().map(Option::is_some);
        let found = self.0.backward(ops.state, gradient, wanted);
        for (parent, gradient) in ops.parents.into_iter().zip(found) {
            if let (Some(parent), Some(gradient)) = (parent, gradient) {
                gradients.register::<Flex>(parent.id, gradient);
            }
        }
    }
}

/// Applies an operation whose output has `E` dimensions.
pub fn unary<const D: usize, const E: usize>(operation: impl Operation<1>, a: Tensor<D>) -> Tensor<E> {
    Tensor::from_dispatch(Dispatch::unary(operation, a.into_dispatch()))
}

/// Applies an operation whose output is like its first input.
pub fn ternary<const D: usize, const E: usize, const F: usize>(
    operation: impl Operation<3>,
    (a, b, c): (Tensor<D>, Tensor<E>, Tensor<F>),
) -> Tensor<D> {
    Tensor::from_dispatch(Dispatch::ternary(operation, a.into_dispatch(), b.into_dispatch(), c.into_dispatch()))
}
