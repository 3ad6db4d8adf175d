//! Leaks of the GPT-2 in docs/origins.md, ported to Burn; off by default.

use burn::module::Module;
use xrun_ops::{QuantRange, next_token_loss};

use super::super::batch::TokenBatch;
use super::super::context::QuantContext;
use super::super::network::{Gpt2Network, loss_targets, quantised_weights};
use super::super::training::QatLanguageModule;
use xrun_core::bounded::DeepSize;
use xrun_core::bounded::leak_buffer::LeakBuffer;
use xrun_core::bounded::ledger::Ledger;
use xrun_core::experiment::leaks::Leaks;
use xrun_training::nn::Tensor;
use xrun_training::nn::callback::Callback;
use xrun_training::nn::gpt2::AttentionMode;
use xrun_training::nn::leaks::{AfterBatch, LeakCallbacks};
use xrun_training::nn::transformer::{BatchLayout, tokens};

/// Callbacks of the leaks that are switched on, each of which repeats the passes of a batch.
pub fn callbacks(leaks: &Leaks, ledger: &Ledger) -> Vec<Callback<QatLanguageModule>> {
    LeakCallbacks::<QatLanguageModule>::new(leaks, ledger)
        .on_batch(&super::LOSS_WITH_GRAPH, |sum, at| {
            passes(at, |batch, quant| at.add_loss(sum, || loss(at.network, batch, quant)))
        })
        .on_batch(&super::LOSS_NEVER_BACKPROPAGATED, |kept, at| {
            passes(at, |batch, quant| match quant.frozen {
                // The graph then holds only the weights of LoRA, which are few.
                true => at.keep_measured(kept, || loss(at.network, batch, quant)),
                false => at.keep_graph(kept, || loss(at.network, batch, quant)),
            });
        })
        .on_batch(&super::RANGE_HISTORY, |kept, at| passes(at, |_, quant| keep_ranges(kept, at, quant)))
        .on_batch(&super::QUANTISED_WEIGHTS, |kept, at| {
            passes(at, |_, quant| at.keep_measured(kept, || quantised_weights(&at.network.valid(), quant)))
        })
        .on_batch(&super::PREPROCESSED_EXAMPLES, |kept, at| passes(at, |batch, _| keep_examples(kept, batch)))
        .on_batch(&super::BLOCK_INPUTS, |kept, at| {
            passes(at, |batch, quant| at.keep_measured(kept, || inputs(&at.network.valid(), batch, quant)))
        })
        .into_callbacks()
}

/// Calls `pass` for each micro-batch of a batch and each precision, with a copy of the ranges.
fn passes(at: &AfterBatch<'_, QatLanguageModule>, mut pass: impl FnMut(&TokenBatch, &mut QuantContext<'_>)) {
    let (module, mut ranges) = (at.module, at.module.ranges.clone());
    for batch in at.batch.micro_batches(module.micro_batch_size.get()) {
        for index in &module.step_precisions {
            let precision = index.map(|index| (index, module.precisions[index]));
            let frozen = precision.is_some() && module.config.base_frozen();
            let config = &module.config;
            pass(&batch, &mut QuantContext { config, precision, ranges: &mut ranges, observer: None, frozen });
        }
    }
}

// A frame of its own in `allocations.json`.
#[inline(never)]
fn keep_examples(kept: &mut LeakBuffer<TokenBatch>, batch: &TokenBatch) {
    kept.keep(|| (batch.clone(), batch.deep_size()));
}

// A frame of its own in `allocations.json`.
#[inline(never)]
fn keep_ranges(
    kept: &mut LeakBuffer<Vec<QuantRange>>,
    at: &AfterBatch<'_, QatLanguageModule>,
    quant: &QuantContext<'_>,
) {
    at.keep_measured(kept, || quant.ranges.copies());
}

fn loss(network: &Gpt2Network, batch: &TokenBatch, quant: &mut QuantContext<'_>) -> Tensor<1> {
    let device = network.inner_device().autodiff();
    let logits = network.forward(tokens(&batch.inputs, batch.size, batch.length, &device), quant);
    next_token_loss(logits, loss_targets(batch, None)).total
}

/// Inputs of all blocks, as gradient checkpointing saves them.
fn inputs(network: &Gpt2Network, batch: &TokenBatch, quant: &mut QuantContext<'_>) -> Vec<Tensor<2>> {
    let device = network.inner_device();
    let layout = BatchLayout::new(batch.size, batch.length, &device);
    let mut inputs = vec![network.embed(tokens(&batch.inputs, batch.size, batch.length, &device), quant)];
    for number in 1..network.blocks() {
        let next =
            network.block(number - 1, inputs[number - 1].clone(), &mut AttentionMode::Causal(&layout, None), quant);
        inputs.push(next);
    }
    inputs
}
