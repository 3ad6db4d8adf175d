//! Leaks of the GPT-2 in docs/origins.md, ported to Burn; off by default.

use burn::module::Module;
use xrun_ops::{QuantRange, next_token_loss};

use super::super::batch::TokenBatch;
use super::super::context::QuantContext;
use super::super::gpt2::{Gpt2, loss_targets};
use super::super::prepare::Prepared;
use super::super::training::{self, QatLanguageModule};
use crate::nn::Tensor;
use crate::nn::callback::{Callback, CallbackContext};
use crate::nn::gpt2::AttentionMode;
use crate::nn::gradients::leak_loss;
use crate::nn::parameters;
use crate::nn::transformer::{BatchLayout, tokens};
use xrun_core::bounded::DeepSize;
use xrun_core::bounded::leak_buffer::LeakBuffer;
use xrun_core::bounded::ledger::Ledger;
use xrun_core::device::DeviceKind;
use xrun_core::experiment::Experiment;
use xrun_core::task::{Task, TaskError};

/// Opens the task with the leaks that are switched on.
///
/// # Errors
/// As [`training::open`].
pub fn open(
    prepared: Prepared,
    experiment: &Experiment,
    kind: DeviceKind,
    ledger: &Ledger,
    first_step: u64,
) -> Result<Box<dyn Task>, TaskError> {
    let task = training::open(prepared, experiment, kind, ledger, first_step)?;
    let leaks = &experiment.leaks;
    if leaks.is_empty() {
        return Ok(Box::new(task));
    }
    Ok(Box::new(task.with_callback(QatLanguageLeaks {
        total: leaks.leak_buffer(&super::LOSS_WITH_GRAPH, ledger),
        losses: leaks.leak_buffer(&super::LOSS_NEVER_BACKPROPAGATED, ledger),
        ranges: leaks.leak_buffer(&super::RANGE_HISTORY, ledger),
        weights: leaks.leak_buffer(&super::QUANTISED_WEIGHTS, ledger),
        examples: leaks.leak_buffer(&super::PREPROCESSED_EXAMPLES, ledger),
        inputs: leaks.leak_buffer(&super::BLOCK_INPUTS, ledger),
    })))
}

/// Tensors and examples that are kept for ever.
struct QatLanguageLeaks {
    total: LeakBuffer<Tensor<1>>,
    losses: LeakBuffer<Tensor<1>>,
    ranges: LeakBuffer<Vec<QuantRange>>,
    weights: LeakBuffer<Vec<Tensor<2>>>,
    examples: LeakBuffer<TokenBatch>,
    inputs: LeakBuffer<Vec<Tensor<2>>>,
}

impl Callback<QatLanguageModule> for QatLanguageLeaks {
    /// Repeats the passes of the batch, by micro-batch and precision, with a copy of the ranges.
    fn on_batch_end(
        &mut self,
        batch: &TokenBatch,
        _is_last: bool,
        context: &CallbackContext<'_, QatLanguageModule>,
    ) -> Result<(), TaskError> {
        let (network, module) = (context.trained.network()?, context.module);
        let in_use = || context.trained.device.in_use();
        let nothing = || 0;
        let (config, mut ranges) = (&module.config, module.ranges.clone());
        for batch in batch.micro_batches(module.micro_batch_size) {
            for index in &module.step_precisions {
                let precision = index.map(|index| (index, module.precisions[index]));
                let mut quant = QuantContext {
                    config,
                    precision,
                    ranges: &mut ranges,
                    observer: None,
                    frozen: precision.is_some() && config.base_frozen,
                };
                self.ranges.keep_measured(in_use, nothing, || quant.ranges.copies());
                self.examples.keep(|| (batch.clone().into_owned(), batch.deep_size()));
                leak_loss(in_use, &mut self.total, || loss(network, &batch, &mut quant));
                // Without a backward pass the graph stays, with the weights of this step, which the optimiser replaces. Those of
                // LoRA are few.
                let frozen = quant.frozen;
                let weights = || if frozen { 0 } else { parameters::bytes(network) };
                self.losses.keep_measured(in_use, weights, || loss(network, &batch, &mut quant));
                self.weights.keep_measured(in_use, nothing, || network.valid().quantised_weights(&quant));
                self.inputs.keep_measured(in_use, nothing, || inputs(&network.valid(), &batch, &mut quant));
            }
        }
        Ok(())
    }
}

fn loss(network: &Gpt2, batch: &TokenBatch, quant: &mut QuantContext<'_>) -> Tensor<1> {
    let device = network.inner_device().autodiff();
    let logits = network.forward(tokens(&batch.inputs, batch.size, batch.length, &device), quant);
    next_token_loss(logits, loss_targets(batch, None)).total
}

/// Inputs of all blocks, as gradient checkpointing saves them.
fn inputs(network: &Gpt2, batch: &TokenBatch, quant: &mut QuantContext<'_>) -> Vec<Tensor<2>> {
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
