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

/// Differentiable function of `N` tensors of 32-bit floats.
pub trait Operation<const N: usize>: Clone + Debug + Send + 'static {
    /// Values saved for the backward pass.
    type Saved: Clone + Debug + Send + 'static;

    /// Computes the output, and the saved values if `save` is set.
    fn forward(&self, inputs: [FlexTensor; N], save: bool) -> (FlexTensor, Option<Self::Saved>);

    /// Computes the gradients of the inputs in `needs_grad` from the contiguous gradient of the output.
    fn backward(&self, saved: Self::Saved, gradient: FlexTensor, needs_grad: [bool; N]) -> [Option<FlexTensor>; N];

    /// Returns the saved values that the gradients of the inputs in `needs_grad` need.
    fn needed(saved: Self::Saved, _needs_grad: [bool; N]) -> Self::Saved {
        saved
    }
}

/// Backends that can apply an [`Operation`], by its number of inputs.
#[backend_extension(Flex, Autodiff)]
pub trait Apply: Backend {
    /// Applies an operation to one tensor.
    fn unary<O: Operation<1>>(operation: O, a: FloatTensor<Self>) -> FloatTensor<Self>;
    /// Applies an operation to two tensors.
    fn binary<O: Operation<2>>(operation: O, a: FloatTensor<Self>, b: FloatTensor<Self>) -> FloatTensor<Self>;
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

    fn binary<O: Operation<2>>(operation: O, a: FlexTensor, b: FlexTensor) -> FlexTensor {
        operation.forward([a, b], false).0
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

/// Tensor of Burn's autodiff graph, of the same type for each checkpointing strategy.
type Tracked = FloatTensor<Autodiff<Flex>>;

impl<C: CheckpointStrategy> Apply for Autodiff<Flex, C> {
    fn unary<O: Operation<1>>(operation: O, a: Tracked) -> Tracked {
        record::<O, C, 1>(operation, [a])
    }

    fn binary<O: Operation<2>>(operation: O, a: Tracked, b: Tracked) -> Tracked {
        record::<O, C, 2>(operation, [a, b])
    }

    fn ternary<O: Operation<3>>(operation: O, a: Tracked, b: Tracked, c: Tracked) -> Tracked {
        record::<O, C, 3>(operation, [a, b, c])
    }

    fn quaternary<O: Operation<4>>(operation: O, a: Tracked, b: Tracked, c: Tracked, d: Tracked) -> Tracked {
        record::<O, C, 4>(operation, [a, b, c, d])
    }
}

/// Applies an operation and records it in the graph if an input requires a gradient.
fn record<O: Operation<N>, C: CheckpointStrategy, const N: usize>(operation: O, inputs: [Tracked; N]) -> Tracked {
    let nodes = inputs.each_ref().map(|input| input.node());
    // A node does not tell whether it is tracked; an operation on it alone does.
    let needs_grad = std::array::from_fn(|at| {
        let nodes = std::array::from_fn(|_| inputs[at].node());
        let prepared = BackwardStep(operation.clone()).prepare::<C>(nodes).compute_bound().stateful();
        matches!(prepared, OpsKind::Tracked(_))
    });
    let inputs = inputs.map(|input| input.into_primitive());
    match BackwardStep(operation.clone()).prepare::<C>(nodes).compute_bound().stateful() {
        OpsKind::Tracked(prepared) => {
            let (output, saved) = operation.forward(inputs, true);
            let saved = saved.unwrap_or_else(|| unreachable!("`save` is set"));
            prepared.finish(O::needed(saved, needs_grad), output)
        }
        OpsKind::UnTracked(prepared) => prepared.finish(operation.forward(inputs, false).0),
    }
}

/// Node of Burn's graph that runs the backward pass of an operation.
#[derive(Debug)]
struct BackwardStep<O>(O);

impl<O: Operation<N>, const N: usize> Backward<Flex, N> for BackwardStep<O> {
    type State = O::Saved;

    fn backward(self, ops: Ops<Self::State, N>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let gradient = contiguous(gradients.consume::<Flex>(&ops.node));
        let needs_grad = ops.parents.each_ref().map(Option::is_some);
        let input_gradients = self.0.backward(ops.state, gradient, needs_grad);
        for (parent, gradient) in ops.parents.into_iter().zip(input_gradients) {
            if let (Some(parent), Some(gradient)) = (parent, gradient) {
                gradients.register::<Flex>(parent.id, gradient);
            }
        }
    }
}

/// Applies an operation to a tensor; the output has `E` dimensions.
pub fn unary<const D: usize, const E: usize>(operation: impl Operation<1>, a: Tensor<D>) -> Tensor<E> {
    Tensor::from_dispatch(Dispatch::unary(operation, a.into_dispatch()))
}

/// Applies an operation to two tensors; the output has as many dimensions as the first.
pub fn binary<const D: usize, const E: usize>(
    operation: impl Operation<2>,
    (a, b): (Tensor<D>, Tensor<E>),
) -> Tensor<D> {
    Tensor::from_dispatch(Dispatch::binary(operation, a.into_dispatch(), b.into_dispatch()))
}

/// Applies an operation to three tensors; the output has as many dimensions as the first.
pub fn ternary<const D: usize, const E: usize, const F: usize>(
    operation: impl Operation<3>,
    (a, b, c): (Tensor<D>, Tensor<E>, Tensor<F>),
) -> Tensor<D> {
    Tensor::from_dispatch(Dispatch::ternary(operation, a.into_dispatch(), b.into_dispatch(), c.into_dispatch()))
}
