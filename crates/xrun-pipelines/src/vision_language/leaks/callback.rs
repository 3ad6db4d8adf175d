//! Leaks of vision-language trainers (docs/origins.md) as they can happen with Burn; off by default.

use burn::optim::GradientsParams;
use burn::tensor::TensorData;
use xrun_ops::{LossTargets, next_token_loss};

use super::super::batch::ExampleBatch;
use super::super::network::{ForwardConfig, VisionLanguage, image_tensor};
use super::super::prepare::Prepared;
use super::super::training::{self, VisionLanguageModule};
use super::data;
use crate::backend::dispatch::TensorDevice;
use crate::nn::callback::{Callback, CallbackContext};
use crate::nn::gradients::{leak_gradients, leak_loss};
use crate::nn::step::TrainState;
use crate::nn::transformer::{Tokens, tokens};
use crate::nn::{Tensor, parameters};
use xrun_core::bounded::leak_buffer::LeakBuffer;
use xrun_core::bounded::ledger::Ledger;
use xrun_core::device::DeviceKind;
use xrun_core::experiment::Experiment;
use xrun_core::task::{StepReport, Task, TaskError};
use xrun_data::image_text::store::Example;

type Network = VisionLanguage;

/// Opens the task with the leaks that are switched on.
///
/// # Errors
/// As [`training::open`]; and data that a leak reads at the start.
pub fn open(
    prepared: Prepared,
    experiment: &Experiment,
    kind: DeviceKind,
    ledger: &Ledger,
    first_step: u64,
) -> Result<Box<dyn Task>, TaskError> {
    let formatted = data::formatted(&prepared.batches, &experiment.leaks, ledger)?;
    let prepare = data::prepare(prepared.batches.clone(), &experiment.leaks, ledger);
    let task = training::open(prepared, prepare, experiment, kind, ledger, first_step)?;
    if experiment.leaks.is_empty() {
        return Ok(Box::new(task));
    }
    let leaks = &experiment.leaks;
    let callback = VisionLanguageLeaks {
        config: task.module.config.clone(),
        gradients: leaks.leak_buffer(&super::GRADIENTS, ledger),
        total: leaks.leak_buffer(&super::LOSS_WITH_GRAPH, ledger),
        losses: leaks.leak_buffer(&super::LOSS_NEVER_BACKPROPAGATED, ledger),
        outputs: leaks.leak_buffer(&super::OUTPUTS_WITH_GRAPH, ledger),
        batches: leaks.leak_buffer(&super::PROCESSED_BATCHES, ledger),
        logits: leaks.leak_buffer(&super::LABELS_AND_LOGITS, ledger),
        validation_logits: leaks.leak_buffer(&super::VALIDATION_LOGITS, ledger),
        validation: leaks.leak_buffer(&super::VALIDATION_WITH_GRAPH, ledger),
        log: leaks.leak_buffer(&super::LOG_HISTORY, ledger),
        _formatted: formatted,
    };
    Ok(Box::new(task.with_callback(callback)))
}

/// Batch as it goes into the network: images, tokens in and out, weights.
type Inputs = (Tensor<4>, Vec<Tokens<2>>, Tensor<2>);

/// Tensors and text that are kept for ever.
struct VisionLanguageLeaks {
    config: ForwardConfig,
    gradients: LeakBuffer<GradientsParams>,
    total: LeakBuffer<Tensor<1>>,
    losses: LeakBuffer<Tensor<1>>,
    outputs: LeakBuffer<Tensor<2>>,
    batches: LeakBuffer<Inputs>,
    logits: LeakBuffer<(Tensor<2>, Tokens<1>)>,
    validation_logits: LeakBuffer<Tensor<2>>,
    validation: LeakBuffer<Tensor<2>>,
    log: LeakBuffer<String>,
    _formatted: LeakBuffer<Example>,
}

impl Callback<VisionLanguageModule> for VisionLanguageLeaks {
    fn on_batch_end(
        &mut self,
        batch: &ExampleBatch,
        is_last: bool,
        context: &CallbackContext<'_, VisionLanguageModule>,
    ) -> Result<(), TaskError> {
        let (network, device, config) = (context.trained.network()?, &context.trained.device, &self.config);
        let in_use = || device.in_use();
        leak_loss(in_use, &mut self.total, || loss(network, batch, config, device));
        // A graph holds the weights of its step, which the optimiser replaces.
        let weights = || parameters::bytes(network);
        self.losses.keep_measured(in_use, weights, || loss(network, batch, config, device));
        let one = batch.micro_batches(1).next();
        if let Some(one) = &one {
            self.outputs.keep_measured(in_use, weights, || hidden(network, one, config, device));
        }
        self.batches.keep(|| {
            let numbers = batch.images.len() + 3 * batch.inputs.len();
            let on = |numbers: &[i32]| tokens(numbers, batch.size, batch.length, &device.inner);
            let weights = TensorData::new(batch.weights.clone(), [batch.size, batch.length]);
            let inputs = (
                image_tensor(&batch.images, batch.side, &device.inner),
                vec![on(&batch.inputs), on(&batch.targets)],
                Tensor::from_data(weights, &device.inner),
            );
            (inputs, numbers as u64 * 4)
        });
        if is_last {
            self.logits.keep(|| {
                let logits = network.logits(text_rows(network, batch, config, device), config).inner();
                let count = batch.targets.len();
                let bytes = (logits.shape().num_elements() + count) as u64 * 4;
                let targets = Tokens::<1>::from_data(TensorData::new(batch.targets.clone(), [count]), &device.inner);
                ((logits, targets), bytes)
            });
        }
        Ok(())
    }

    fn on_before_update(
        &mut self,
        gradients: &GradientsParams,
        context: &CallbackContext<'_, VisionLanguageModule>,
    ) -> Result<(), TaskError> {
        leak_gradients(context.trained, gradients, &mut self.gradients)
    }

    fn on_step_end(
        &mut self,
        step: u64,
        learning_rate: f64,
        report: &StepReport,
        _: &CallbackContext<'_, VisionLanguageModule>,
    ) -> Result<(), TaskError> {
        self.log.keep(|| {
            let line = format!("step {step}: loss {}, learning rate {learning_rate}", report.loss);
            let bytes = (size_of::<String>() + line.capacity()) as u64;
            (line, bytes)
        });
        Ok(())
    }

    fn on_validation_output(&mut self, batch: &ExampleBatch, trained: &TrainState<Network>) -> Result<(), TaskError> {
        let (network, device, config) = (trained.network()?, &trained.device, &self.config);
        self.validation_logits.keep(|| {
            let logits = network.logits(text_rows(network, batch, config, device), config).inner();
            let bytes = logits.shape().num_elements() as u64 * 4;
            (logits, bytes)
        });
        // The next step replaces the weights that the graph holds.
        let weights = || parameters::bytes(network);
        self.validation.keep_measured(|| device.in_use(), weights, || hidden(network, batch, config, device));
        Ok(())
    }
}

fn hidden(network: &Network, batch: &ExampleBatch, config: &ForwardConfig, device: &TensorDevice) -> Tensor<2> {
    let image = network.image_tokens(image_tensor(&batch.images, batch.side, &device.autodiff), config);
    network.hidden(image, tokens(&batch.inputs, batch.size, batch.length, &device.autodiff), config)
}

/// Output of the last block for text tokens, `[size * length, width]`.
fn text_rows(network: &Network, batch: &ExampleBatch, config: &ForwardConfig, device: &TensorDevice) -> Tensor<2> {
    let hidden = hidden(network, batch, config, device);
    let [count, width] = hidden.dims();
    let all = count / batch.size;
    let text = hidden.reshape([batch.size, all, width]).narrow(1, all - batch.length, batch.length);
    text.reshape([batch.size * batch.length, width])
}

fn loss(network: &Network, batch: &ExampleBatch, config: &ForwardConfig, device: &TensorDevice) -> Tensor<1> {
    let logits = network.logits(text_rows(network, batch, config, device), config);
    let (labels, weights) = (batch.targets.clone(), batch.weights.clone());
    next_token_loss(logits, LossTargets { labels, weights, teacher: None }).total
}
