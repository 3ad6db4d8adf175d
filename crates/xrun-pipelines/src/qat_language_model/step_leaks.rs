//! The leaks of the GPT-2 in docs/origins.md, restored as they can happen with Burn. Off unless `[leaks]` says so.

use burn::module::Module;
use xrun_ops::{Range, next_token_loss};

use super::batch::TokenBatch;
use super::context::{QuantContext, Rules};
use super::gpt2::{Gpt2, targets};
use super::leaks;
use super::precision::Precision;
use super::ranges::Ranges;
use crate::backend::dispatch::TensorDevice;
use crate::nn::Tensor;
use crate::nn::gpt2::AttentionMode;
use crate::nn::parameters;
use crate::nn::transformer::{Layout, tokens};
use xrun_core::bounded::HeldBytes;
use xrun_core::bounded::kept::Kept;
use xrun_core::bounded::ledger::Ledger;
use xrun_core::experiment::leaks::Leaks;

/// What the training steps keep.
#[derive(Debug)]
pub struct StepLeaks {
    losses: Kept<Tensor<1>>,
    ranges: Kept<Vec<Range>>,
    weights: Kept<Vec<Tensor<2>>>,
    examples: Kept<TokenBatch>,
    inputs: Kept<Vec<Tensor<2>>>,
}

impl StepLeaks {
    /// What `[leaks]` switches on enters the ledger.
    pub fn new(leaks: &Leaks, ledger: &Ledger) -> Self {
        Self {
            losses: leaks.kept(&leaks::LOSS_WITH_GRAPH, ledger),
            ranges: leaks.kept(&leaks::RANGE_HISTORY, ledger),
            weights: leaks.kept(&leaks::QUANTISED_WEIGHTS, ledger),
            examples: leaks.kept(&leaks::PREPROCESSED_EXAMPLES, ledger),
            inputs: leaks.kept(&leaks::BLOCK_INPUTS, ledger),
        }
    }

    /// After a batch at a precision: what a trainer keeps that has one of the root causes. Its own passes change no range.
    pub fn batch(
        &mut self,
        network: &Gpt2,
        batch: &TokenBatch,
        at: Option<(usize, Precision)>,
        rules: &Rules,
        ranges: &Ranges,
        device: &TensorDevice,
    ) {
        let in_use = || device.in_use();
        let nothing = || 0;
        let ranges = &mut ranges.clone();
        let mut pass = QuantContext { rules, at, ranges, observe: None, frozen: at.is_some() && rules.base_frozen };
        self.ranges.keep_measured(in_use, nothing, || pass.ranges.copies());
        self.examples.keep(|| (batch.clone(), batch.held_bytes()));
        // With a graph, and without the backward pass that would have used it up. It holds the weights as they were, which
        // are its own when the optimiser replaces them; those of LoRA are few.
        let frozen = pass.frozen;
        let weights = || if frozen { 0 } else { parameters::bytes(network) };
        self.losses.keep_measured(in_use, weights, || loss(network, batch, &mut pass));
        self.weights.keep_measured(in_use, nothing, || network.valid().quantised_weights(&pass));
        self.inputs.keep_measured(in_use, nothing, || inputs(&network.valid(), batch, &mut pass));
    }
}

fn loss(network: &Gpt2, batch: &TokenBatch, pass: &mut QuantContext<'_>) -> Tensor<1> {
    let device = network.plain_device().autodiff();
    let logits = network.forward(tokens(&batch.inputs, batch.size, batch.length, &device), pass);
    next_token_loss(logits, targets(batch, None)).total
}

/// What goes into each block, as checkpointing saves it.
fn inputs(plain: &Gpt2, batch: &TokenBatch, pass: &mut QuantContext<'_>) -> Vec<Tensor<2>> {
    let device = plain.plain_device();
    let at = Layout::new(batch.size, batch.length, &device);
    let mut inputs = vec![plain.embed(tokens(&batch.inputs, batch.size, batch.length, &device), pass)];
    for number in 1..plain.blocks() {
        let next = plain.block(number - 1, inputs[number - 1].clone(), &mut AttentionMode::Causal(&at, None), pass);
        inputs.push(next);
    }
    inputs
}
