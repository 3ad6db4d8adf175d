//! Gradient checkpointing (Chen et al. 2016): the forward pass saves the input of each block, and the backward pass recomputes
//! the other activations.
//!
//! The forward pass runs on the inner device, without a graph. The backward pass goes from the last block to the first,
//! recomputes each with a graph and consumes it, which limits the memory to the blocks' inputs and the activations of one
//! block. Burn's own checkpointing recomputes single operations, and none with a constant operand, such as a frozen or
//! quantised weight.

use burn::module::Module;
use burn::optim::{GradientsAccumulator, GradientsParams};
use xrun_ops::NextTokenLoss;

use super::context::QuantContext;
use super::network::Gpt2Network;
use xrun_training::nn::Tensor;
use xrun_training::nn::gpt2::AttentionMode;
use xrun_training::nn::transformer::{BatchLayout, Tokens};

/// Adds the gradients of the loss of one micro-batch to `into` and returns the detached loss. `tokens` are on the autodiff device;
/// `loss` returns the loss of logits. `teacher` receives the detached logits. With `recompute` the graph spans one block at a time,
/// otherwise the whole network; the operations are the same.
pub fn backward(
    network: &Gpt2Network,
    tokens: Tokens<2>,
    quant: &mut QuantContext<'_>,
    recompute: bool,
    loss: impl FnOnce(Tensor<2>) -> NextTokenLoss,
    teacher: Option<&mut Option<Tensor<2>>>,
    into: &mut GradientsAccumulator<Gpt2Network>,
) -> NextTokenLoss {
    let loss_of = |logits: Tensor<2>| {
        if let Some(teacher) = teacher {
            *teacher = Some(logits.clone().inner());
        }
        loss(logits)
    };
    if !recompute {
        let loss = loss_of(network.forward(tokens, quant));
        accumulate(network, loss.total.clone(), into);
        return detached(loss);
    }
    let inner = network.valid();
    let [size, length] = tokens.dims();
    let layout = BatchLayout::new(size, length, &network.inner_device());
    let mode = &mut AttentionMode::Causal(&layout, None);
    let mut inputs = Vec::with_capacity(network.blocks() + 1);
    inputs.push(inner.embed(tokens.clone().inner(), quant));
    for number in 0..network.blocks() {
        let input = inputs[number].clone();
        inputs.push(inner.block(number, input, mode, quant));
    }
    drop(inner);
    // The forward pass has updated the ranges; the recomputation must use them unchanged.
    quant.observer = None;
    let leaf = |values: Tensor<2>| Tensor::from_inner(values).require_grad();
    let last = leaf(inputs.pop().unwrap_or_else(|| unreachable!("the embedding was pushed")));
    let loss = loss_of(network.logits(last.clone(), quant));
    let mut gradient = backward_step(network, &last, loss.total.clone(), into);
    for number in (0..network.blocks()).rev() {
        let Some(input) = inputs.pop() else { break };
        let input = leaf(input);
        let output = network.block(number, input.clone(), mode, quant);
        gradient = backward_step(network, &input, (output * gradient).sum(), into);
    }
    if !quant.frozen {
        accumulate(network, (network.embed(tokens, quant) * gradient).sum(), into);
    }
    detached(loss)
}

/// Runs the backward pass of `loss`, adds the gradients of the parameters to `into` and returns the gradient of `input`.
fn backward_step(
    network: &Gpt2Network,
    input: &Tensor<2>,
    loss: Tensor<1>,
    into: &mut GradientsAccumulator<Gpt2Network>,
) -> Tensor<2> {
    let mut gradients = loss.backward();
    let gradient = input.grad_remove(&mut gradients).unwrap_or_else(|| input.clone().inner().zeros_like());
    into.accumulate(network, GradientsParams::from_module(&mut gradients, network));
    gradient
}

fn accumulate(network: &Gpt2Network, loss: Tensor<1>, into: &mut GradientsAccumulator<Gpt2Network>) {
    into.accumulate(network, GradientsParams::from_grads(loss.backward(), network));
}

/// Detaches the loss.
fn detached(loss: NextTokenLoss) -> NextTokenLoss {
    NextTokenLoss {
        total: loss.total.inner(),
        cross_entropy: loss.cross_entropy.inner(),
        divergence: loss.divergence.map(Tensor::inner),
    }
}
