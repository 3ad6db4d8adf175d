//! Leaks of vision-language trainers (docs/origins.md) as they can happen with Burn; off by default.

use burn::tensor::TensorData;
use xrun_ops::{LossTargets, next_token_loss};

use super::super::batch::ExampleBatch;
use super::super::network::{ForwardConfig, VisionLanguageNetwork as Network, image_tensor};
use super::super::training::VisionLanguageModule;
use xrun_core::bounded::leak_buffer::LeakBuffer;
use xrun_core::bounded::ledger::Ledger;
use xrun_core::experiment::leaks::Leaks;
use xrun_core::task::StepReport;
use xrun_data::image_text::store::Example;
use xrun_training::backend::dispatch::TensorDevice;
use xrun_training::nn::Tensor;
use xrun_training::nn::callback::{Callback, Event};
use xrun_training::nn::leaks::{AfterBatch, LeakCallbacks, keep_graph};
use xrun_training::nn::transformer::{Tokens, tokens};

/// Callbacks of the leaks that are switched on.
pub fn callbacks(
    config: &ForwardConfig,
    formatted: LeakBuffer<Example>,
    leaks: &Leaks,
    ledger: &Ledger,
) -> Vec<Callback<VisionLanguageModule>> {
    let (logits_config, graph_config) = (config.clone(), config.clone());
    LeakCallbacks::<VisionLanguageModule>::new(leaks, ledger)
        .leak_gradients(&super::GRADIENTS)
        .on_batch(&super::LOSS_WITH_GRAPH, |sum, at| at.add_loss(sum, || loss(at)))
        .leak_graph(&super::LOSS_NEVER_BACKPROPAGATED, loss)
        .on_batch(&super::OUTPUTS_WITH_GRAPH, |kept, at| {
            if let Some(one) = at.batch.micro_batches(1).next() {
                at.keep_graph(kept, || hidden(at.network, &one, &at.module.config, &at.trained.device));
            }
        })
        .on_batch(&super::PROCESSED_BATCHES, |kept, at| kept.keep(|| inputs(at.batch, &at.trained.device)))
        .on_batch(&super::LABELS_AND_LOGITS, |kept, at| {
            if at.is_last {
                let (batch, device) = (at.batch, &at.trained.device);
                kept.keep(|| {
                    let logits = text_logits(at.network, batch, &at.module.config, device).inner();
                    let count = batch.targets.len();
                    let bytes = (logits.shape().num_elements() + count) as u64 * 4;
                    let targets = TensorData::new(batch.targets.clone(), [count]);
                    ((logits, Tokens::<1>::from_data(targets, &device.inner)), bytes)
                });
            }
        })
        .on_event(&super::VALIDATION_LOGITS, move |kept, event, trained| {
            if let Event::ValidationOutput(batch) = event {
                let network = trained.network()?;
                kept.keep(|| {
                    let logits = text_logits(network, batch, &logits_config, &trained.device).inner();
                    let bytes = logits.shape().num_elements() as u64 * 4;
                    (logits, bytes)
                });
            }
            Ok(())
        })
        .on_event(&super::VALIDATION_WITH_GRAPH, move |kept, event, trained| {
            if let Event::ValidationOutput(batch) = event {
                let network = trained.network()?;
                keep_graph(kept, network, trained, || hidden(network, batch, &graph_config, &trained.device));
            }
            Ok(())
        })
        .leak_log_lines(&super::LOG_HISTORY, log_line)
        .keep_alive(formatted)
        .into_callbacks()
}

// A frame of its own in `allocations.json`.
#[inline(never)]
fn log_line(step: u64, learning_rate: f64, report: &StepReport) -> String {
    format!("step {step}: loss {}, learning rate {learning_rate}", report.loss)
}

/// Batch as it goes into the network: images, tokens in and out, weights.
type Inputs = (Tensor<4>, Vec<Tokens<2>>, Tensor<2>);

/// Inputs of a batch, and their bytes.
fn inputs(batch: &ExampleBatch, device: &TensorDevice) -> (Inputs, u64) {
    let numbers = batch.images.len() + 3 * batch.inputs.len();
    let on = |numbers: &[i32]| tokens(numbers, batch.size, batch.length, &device.inner);
    let weights = TensorData::new(batch.weights.clone(), [batch.size, batch.length]);
    let inputs = (
        image_tensor(&batch.images, batch.side, &device.inner),
        vec![on(&batch.inputs), on(&batch.targets)],
        Tensor::from_data(weights, &device.inner),
    );
    (inputs, numbers as u64 * 4)
}

fn hidden(network: &Network, batch: &ExampleBatch, config: &ForwardConfig, device: &TensorDevice) -> Tensor<2> {
    let image = network.image_tokens(image_tensor(&batch.images, batch.side, &device.autodiff), config);
    network.hidden(image, tokens(&batch.inputs, batch.size, batch.length, &device.autodiff), config)
}

/// Logits of all text tokens, `[size * length, vocabulary]`.
fn text_logits(network: &Network, batch: &ExampleBatch, config: &ForwardConfig, device: &TensorDevice) -> Tensor<2> {
    let hidden = hidden(network, batch, config, device);
    let [count, width] = hidden.dims();
    let all = count / batch.size;
    let text = hidden.reshape([batch.size, all, width]).narrow(1, all - batch.length, batch.length);
    network.logits(text.reshape([batch.size * batch.length, width]), config)
}

fn loss(at: &AfterBatch<'_, VisionLanguageModule>) -> Tensor<1> {
    let logits = text_logits(at.network, at.batch, &at.module.config, &at.trained.device);
    let (labels, weights) = (at.batch.targets.clone(), at.batch.weights.clone());
    next_token_loss(logits, LossTargets { labels, weights, teacher: None }).total
}
