//! Leaks of vision-language trainers (docs/origins.md), as they can happen with Burn. Off unless `[leaks]` switches them on.

use burn::optim::GradientsParams;
use burn::tensor::TensorData;
use xrun_ops::{LossTargets, next_token_loss};

use super::super::batch::ExampleBatch;
use super::super::network::{Rules, VisionLanguage, pictures};
use super::super::prepare::Prepared;
use super::super::training::{self, VisionLanguageModule};
use super::data;
use crate::backend::dispatch::TensorDevice;
use crate::nn::callback::{Callback, Context};
use crate::nn::gradients::copy_gradients;
use crate::nn::step::TrainState;
use crate::nn::transformer::{Tokens, tokens};
use crate::nn::{Tensor, parameters};
use xrun_core::bounded::leak_buffer::LeakBuffer;
use xrun_core::bounded::ledger::Ledger;
use xrun_core::device::Kind;
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
    kind: Kind,
    ledger: &Ledger,
    first_step: u64,
) -> Result<Box<dyn Task>, TaskError> {
    let formatted = data::formatted(&prepared.batches, &experiment.leaks, ledger)?;
    let prepare = data::prepare(prepared.batches.clone(), &experiment.leaks, ledger);
    let task = training::open(prepared, prepare, experiment, kind, ledger, first_step)?;
    if experiment.leaks.are_off() {
        return Ok(Box::new(task));
    }
    let leaks = &experiment.leaks;
    let callback = VisionLanguageLeaks {
        rules: task.module.rules.clone(),
        gradients: leaks.kept(&super::GRADIENTS, ledger),
        losses: leaks.kept(&super::LOSS_WITH_GRAPH, ledger),
        outputs: leaks.kept(&super::OUTPUTS_WITH_GRAPH, ledger),
        batches: leaks.kept(&super::PROCESSED_BATCHES, ledger),
        logits: leaks.kept(&super::LABELS_AND_LOGITS, ledger),
        validation_logits: leaks.kept(&super::VALIDATION_LOGITS, ledger),
        validation: leaks.kept(&super::VALIDATION_WITH_GRAPH, ledger),
        log: leaks.kept(&super::LOG_HISTORY, ledger),
        _formatted: formatted,
    };
    Ok(Box::new(task.with_callback(callback)))
}

/// Batch as it goes into the network: images, tokens in and out, weights.
type Inputs = (Tensor<4>, Vec<Tokens<2>>, Tensor<2>);

/// Tensors and text that are kept for ever.
struct VisionLanguageLeaks {
    rules: Rules,
    gradients: LeakBuffer<GradientsParams>,
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
        context: &Context<'_, VisionLanguageModule>,
    ) -> Result<(), TaskError> {
        let (network, device, rules) = (context.trained.network()?, &context.trained.device, &self.rules);
        let in_use = || device.in_use();
        // A graph holds the weights of its step, which are its own when the optimiser replaces them.
        let weights = || parameters::bytes(network);
        self.losses.keep_measured(in_use, weights, || loss(network, batch, rules, device));
        let one = batch.parts(1).next();
        if let Some(one) = &one {
            self.outputs.keep_measured(in_use, weights, || hidden(network, one, rules, device));
        }
        self.batches.keep(|| {
            let numbers = batch.pictures.len() + 3 * batch.inputs.len();
            let on = |numbers: &[i32]| tokens(numbers, batch.size, batch.length, &device.inner);
            let weights = TensorData::new(batch.weights.clone(), [batch.size, batch.length]);
            let inputs = (
                pictures(&batch.pictures, batch.side, &device.inner),
                vec![on(&batch.inputs), on(&batch.targets)],
                Tensor::from_data(weights, &device.inner),
            );
            (inputs, numbers as u64 * 4)
        });
        if is_last {
            self.logits.keep(|| {
                let logits = network.logits(text_rows(network, batch, rules, device), rules).inner();
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
        context: &Context<'_, VisionLanguageModule>,
    ) -> Result<(), TaskError> {
        let (network, device) = (context.trained.network()?, &context.trained.device);
        // Their containers are new; the values are shared with those that the optimiser takes.
        let bytes = || parameters::bytes(network);
        self.gradients.keep_measured(|| device.in_use(), bytes, || copy_gradients(network, gradients));
        Ok(())
    }

    fn on_step_end(
        &mut self,
        step: u64,
        learning_rate: f64,
        report: &StepReport,
        _: &Context<'_, VisionLanguageModule>,
    ) -> Result<(), TaskError> {
        self.log.keep(|| {
            let line = format!("step {step}: loss {}, learning rate {learning_rate}", report.loss);
            let bytes = (size_of::<String>() + line.capacity()) as u64;
            (line, bytes)
        });
        Ok(())
    }

    fn on_validation_output(&mut self, batch: &ExampleBatch, trained: &TrainState<Network>) -> Result<(), TaskError> {
        let (network, device, rules) = (trained.network()?, &trained.device, &self.rules);
        self.validation_logits.keep(|| {
            let logits = network.logits(text_rows(network, batch, rules, device), rules).inner();
            let bytes = logits.shape().num_elements() as u64 * 4;
            (logits, bytes)
        });
        // The weights that its graph holds are replaced by the next step.
        let weights = || parameters::bytes(network);
        self.validation.keep_measured(|| device.in_use(), weights, || hidden(network, batch, rules, device));
        Ok(())
    }
}

fn hidden(network: &Network, batch: &ExampleBatch, rules: &Rules, device: &TensorDevice) -> Tensor<2> {
    let image = network.image_tokens(pictures(&batch.pictures, batch.side, &device.autodiff), rules);
    network.hidden(image, tokens(&batch.inputs, batch.size, batch.length, &device.autodiff), rules)
}

/// What comes out of the blocks for text, without image tokens: `[size * length, width]`.
fn text_rows(network: &Network, batch: &ExampleBatch, rules: &Rules, device: &TensorDevice) -> Tensor<2> {
    let hidden = hidden(network, batch, rules, device);
    let [count, width] = hidden.dims();
    let all = count / batch.size;
    let text = hidden.reshape([batch.size, all, width]).narrow(1, all - batch.length, batch.length);
    text.reshape([batch.size * batch.length, width])
}

fn loss(network: &Network, batch: &ExampleBatch, rules: &Rules, device: &TensorDevice) -> Tensor<1> {
    let logits = network.logits(text_rows(network, batch, rules, device), rules);
    let (labels, weights) = (batch.targets.clone(), batch.weights.clone());
    next_token_loss(logits, LossTargets { labels, weights, teacher: None }).total
}
