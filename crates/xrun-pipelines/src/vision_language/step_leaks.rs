//! The leaks of vision-language trainers (docs/origins.md), as they can happen with Burn. Off unless `[leaks]` says so.

use burn::optim::GradientsParams;
use burn::tensor::TensorData;
use xrun_ops::{LossTargets, next_token_loss};

use super::batch::ExampleBatch;
use super::leaks;
use super::network::{Rules, VisionLanguage, pictures};
use crate::backend::dispatch::TensorDevice;
use crate::nn::gradients::shared;
use crate::nn::transformer::{Tokens, tokens};
use crate::nn::{Tensor, parameters};
use xrun_core::bounded::kept::Kept;
use xrun_core::bounded::ledger::Ledger;
use xrun_core::experiment::leaks::Leaks;

type Network = VisionLanguage;

/// A batch as it goes into the network.
type Inputs = (Tensor<4>, Vec<Tokens<2>>, Tensor<2>);

/// What the training steps keep.
pub struct StepLeaks {
    gradients: Kept<GradientsParams>,
    losses: Kept<Tensor<1>>,
    outputs: Kept<Tensor<2>>,
    batches: Kept<Inputs>,
    logits: Kept<(Tensor<2>, Tokens<1>)>,
    validation_logits: Kept<Tensor<2>>,
    validation: Kept<Tensor<2>>,
    log: Kept<String>,
}

impl StepLeaks {
    /// What `[leaks]` switches on enters the ledger.
    pub fn new(leaks: &Leaks, ledger: &Ledger) -> Self {
        Self {
            gradients: leaks.kept(&leaks::GRADIENTS, ledger),
            losses: leaks.kept(&leaks::LOSS_WITH_GRAPH, ledger),
            outputs: leaks.kept(&leaks::OUTPUTS_WITH_GRAPH, ledger),
            batches: leaks.kept(&leaks::PROCESSED_BATCHES, ledger),
            logits: leaks.kept(&leaks::LABELS_AND_LOGITS, ledger),
            validation_logits: leaks.kept(&leaks::VALIDATION_LOGITS, ledger),
            validation: leaks.kept(&leaks::VALIDATION_WITH_GRAPH, ledger),
            log: leaks.kept(&leaks::LOG_HISTORY, ledger),
        }
    }

    /// After a batch: what a trainer keeps that has one of the root causes.
    pub fn batch(&mut self, network: &Network, batch: &ExampleBatch, rules: &Rules, device: &TensorDevice) {
        let in_use = || device.in_use();
        // A graph holds the weights as they were, which are its own when the optimiser replaces them.
        let weights = || parameters::bytes(network);
        self.losses.keep_measured(in_use, weights, || loss(network, batch, rules, device));
        let one = batch.parts(1).next();
        if let Some(one) = &one {
            self.outputs.keep_measured(in_use, weights, || hidden(network, one, rules, device));
        }
        self.batches.keep(|| {
            let numbers = batch.pictures.len() + 3 * batch.inputs.len();
            let on = |numbers: &[i32]| tokens(numbers, batch.size, batch.length, &device.plain);
            let weights = TensorData::new(batch.weights.clone(), [batch.size, batch.length]);
            let inputs = (
                pictures(&batch.pictures, batch.side, &device.plain),
                vec![on(&batch.inputs), on(&batch.targets)],
                Tensor::from_data(weights, &device.plain),
            );
            (inputs, numbers as u64 * 4)
        });
    }

    /// After a step: the logits of all positions of its last batch, and what they should say.
    pub fn step(&mut self, network: &Network, batch: &ExampleBatch, rules: &Rules, device: &TensorDevice) {
        let logits = || {
            let logits = network.logits(text_rows(network, batch, rules, device), rules).inner();
            let count = batch.targets.len();
            let bytes = (logits.shape().num_elements() + count) as u64 * 4;
            let targets = Tokens::<1>::from_data(TensorData::new(batch.targets.clone(), [count]), &device.plain);
            ((logits, targets), bytes)
        };
        self.logits.keep(logits);
    }

    /// Before the optimiser takes them.
    pub fn gradients(&mut self, network: &Network, gradients: &GradientsParams, device: &TensorDevice) {
        // Their containers are new; the values are shared with those that the optimiser takes.
        let bytes = || parameters::bytes(network);
        self.gradients.keep_measured(|| device.in_use(), bytes, || shared(network, gradients));
    }

    /// A line for a step.
    pub fn log(&mut self, line: impl FnOnce() -> String) {
        self.log.keep(|| {
            let line = line();
            let bytes = (size_of::<String>() + line.capacity()) as u64;
            (line, bytes)
        });
    }

    /// In a validation: a batch of it. `trained` is the network with autodiff.
    pub fn validated(&mut self, trained: &Network, batch: &ExampleBatch, rules: &Rules, device: &TensorDevice) {
        self.validation_logits.keep(|| {
            let logits = trained.logits(text_rows(trained, batch, rules, device), rules).inner();
            let bytes = logits.shape().num_elements() as u64 * 4;
            (logits, bytes)
        });
        // The weights that its graph holds are replaced by the next step.
        let weights = || parameters::bytes(trained);
        self.validation.keep_measured(|| device.in_use(), weights, || hidden(trained, batch, rules, device));
    }

    /// Whether a validation keeps something.
    pub fn keeps_of_validations(&self) -> bool {
        self.validation_logits.is_on() || self.validation.is_on()
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
