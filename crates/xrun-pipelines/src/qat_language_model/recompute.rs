//! Gradient checkpointing (Chen et al. 2016): a pass that keeps what goes into each block, and computes the rest again.
//!
//! Forward on the plain device, where nothing is recorded. Backward from the last block to the first: each is computed
//! again with a graph, which the backward pass through it uses up. So one block's activations are held at a time, and the
//! blocks' inputs. Burn's own checkpointing recomputes single operations, and none whose other operand is a constant,
//! as frozen and quantised weights are.

use burn::module::Module;
use burn::optim::{GradientsAccumulator, GradientsParams};
use burn::tensor::Device;
use xrun_ops::{LossTargets, NextTokenLoss, next_token_loss};

use super::batch::TokenBatch;
use super::context::QuantContext;
use super::gpt2::Gpt2;
use crate::nn::Tensor;
use crate::nn::gpt2::AttentionMode;
use crate::nn::transformer::{Layout, tokens};

/// Adds the gradients of one batch's loss to `into`. Returns the loss as it was in the pass, and leaves the logits in `teaches`,
/// without a graph. `recompute` chooses between a graph of the whole pass and one of a block at a time, of the same operations.
pub fn backward(
    network: &Gpt2,
    batch: &TokenBatch,
    pass: &mut QuantContext<'_>,
    recompute: bool,
    targets: LossTargets,
    teaches: Option<&mut Option<Tensor<2>>>,
    into: &mut GradientsAccumulator<Gpt2>,
) -> NextTokenLoss {
    let loss_of = |logits: Tensor<2>| {
        if let Some(teaches) = teaches {
            *teaches = Some(logits.clone().inner());
        }
        next_token_loss(logits, targets)
    };
    let inner_device = network.inner_device();
    let on = |device: &Device| tokens(&batch.inputs, batch.size, batch.length, device);
    let recorded = inner_device.clone().autodiff();
    if !recompute {
        let loss = loss_of(network.forward(on(&recorded), pass));
        add(network, loss.total.clone(), into);
        return numbers(loss);
    }
    let plain = network.valid();
    let layout = Layout::new(batch.size, batch.length, &inner_device);
    let mode = &mut AttentionMode::Causal(&layout, None);
    let mut inputs = Vec::with_capacity(network.blocks() + 1);
    inputs.push(plain.embed(on(&inner_device), pass));
    for number in 0..network.blocks() {
        let input = inputs[number].clone();
        inputs.push(plain.block(number, input, mode, pass));
    }
    drop(plain);
    // Ranges have seen this batch; computed again, they are as they were.
    pass.observe = None;
    let leaf = |values: Tensor<2>| Tensor::from_inner(values).require_grad();
    let last = leaf(inputs.pop().unwrap_or_else(|| unreachable!("the embedding is there")));
    let loss = loss_of(network.logits(last.clone(), pass));
    let mut gradient = step(network, &last, loss.total.clone(), into);
    for number in (0..network.blocks()).rev() {
        let Some(input) = inputs.pop() else { break };
        let input = leaf(input);
        let output = network.block(number, input.clone(), mode, pass);
        gradient = step(network, &input, (output * gradient).sum(), into);
    }
    if !pass.frozen {
        add(network, (network.embed(on(&recorded), pass) * gradient).sum(), into);
    }
    numbers(loss)
}

/// Goes back from `loss`; returns the gradient of `input`, and adds those of the parameters.
fn step(network: &Gpt2, input: &Tensor<2>, loss: Tensor<1>, into: &mut GradientsAccumulator<Gpt2>) -> Tensor<2> {
    let mut gradients = loss.backward();
    let gradient = input.grad_remove(&mut gradients).unwrap_or_else(|| input.clone().inner().zeros_like());
    into.accumulate(network, GradientsParams::from_module(&mut gradients, network));
    gradient
}

fn add(network: &Gpt2, loss: Tensor<1>, into: &mut GradientsAccumulator<Gpt2>) {
    into.accumulate(network, GradientsParams::from_grads(loss.backward(), network));
}

/// Without the graph.
fn numbers(loss: NextTokenLoss) -> NextTokenLoss {
    NextTokenLoss {
        total: loss.total.inner(),
        cross_entropy: loss.cross_entropy.inner(),
        divergence: loss.divergence.map(Tensor::inner),
    }
}
