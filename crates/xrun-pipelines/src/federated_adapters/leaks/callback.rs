//! The leaks of federated trainers (docs/origins.md), as they can happen with Burn. Off unless `[leaks]` says so.

use std::collections::HashSet;

use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::TensorData;

use super::adapters::{Adapters, Conditioning};
use super::encoding::Encoding;
use super::leaks;
use super::loss::loss;
use super::rounds::Place;
use super::settings::Loss;
use super::sounds::{ClipBatch, Sounds};
use super::target_tensors::TargetTensors;
use crate::backend::dispatch::TensorDevice;
use crate::nn::gradients::shared;
use crate::nn::optimizer::ModuleOptimizer;
use crate::nn::{Tensor, parameters};
use xrun_core::bounded::kept::Kept;
use xrun_core::bounded::ledger::Ledger;
use xrun_core::experiment::leaks::Leaks;
use xrun_core::task::TaskError;

/// A node's plain model and its optimiser.
type NodeModel = (Adapters, ModuleOptimizer);

/// What the training steps keep.
pub struct StepLeaks {
    dataset: Kept<(Tensor<1>, Tensor<3>, Conditioning)>,
    on_device: HashSet<u32>,
    batches: Kept<Tensor<3>>,
    outputs: Kept<Conditioning>,
    embeddings: Kept<Vec<Tensor<3>>>,
    targets: Kept<Conditioning>,
    gradients: Kept<GradientsParams>,
    losses: Kept<Tensor<1>>,
    models: Kept<NodeModel>,
    results: Kept<Vec<f32>>,
    validation: Kept<Vec<Conditioning>>,
    threads: Kept<()>,
}

/// A step as leaks see it.
pub struct Step<'a> {
    /// Where the step is among the rounds.
    pub place: &'a Place,
    /// The clips, on the host.
    pub batch: &'a ClipBatch,
    /// The encoder's tokens on the host.
    pub tokens: &'a [f32],
    /// The adapters, with autodiff.
    pub network: &'a Adapters,
    /// What makes tokens of clips.
    pub encoding: &'a Encoding,
    /// The clips of the data set.
    pub sounds: &'a Sounds,
    /// The targets of all classes.
    pub targets: &'a TargetTensors,
    /// How outputs are compared with targets.
    pub loss: Loss,
    /// The device, with autodiff and without it.
    pub device: &'a TensorDevice,
}

impl StepLeaks {
    /// What `[leaks]` switches on enters the ledger.
    pub fn new(leaks: &Leaks, ledger: &Ledger) -> Self {
        Self {
            dataset: leaks.kept(&leaks::DATASET_ON_DEVICE, ledger),
            on_device: HashSet::new(),
            batches: leaks.kept(&leaks::BATCHES_ON_DEVICE, ledger),
            outputs: leaks.kept(&leaks::OUTPUTS_WITH_GRAPH, ledger),
            embeddings: leaks.kept(&leaks::EMBEDDINGS_WITH_GRAPH, ledger),
            targets: leaks.kept(&leaks::TARGETS_WITH_GRAPH, ledger),
            gradients: leaks.kept(&leaks::GRADIENTS, ledger),
            losses: leaks.kept(&leaks::LOSS_WITH_GRAPH, ledger),
            models: leaks.kept(&leaks::NODE_MODELS, ledger),
            results: leaks.kept(&leaks::ROUND_RESULTS, ledger),
            validation: leaks.kept(&leaks::VALIDATION_OUTPUTS, ledger),
            threads: leaks.kept(&leaks::THREAD_POOLS, ledger),
        }
    }

    /// After a batch: what a trainer keeps that has one of the root causes.
    pub fn batch(&mut self, step: &Step<'_>) -> Result<(), TaskError> {
        let in_use = || step.device.in_use();
        let size = step.batch.size();
        if self.dataset.is_on() {
            for (at, clip) in step.batch.clips.iter().enumerate() {
                if self.on_device.insert(*clip) {
                    let samples = step.sounds.store().samples(*clip)?;
                    let count = samples.len();
                    let samples = Tensor::from_data(TensorData::new(samples, [count]), &step.device.plain);
                    let tokens = step.encoding.on_device(step.tokens, at, at + 1, &step.device.plain);
                    let targets = copied(step.targets.of(&step.batch.classes[at..=at]));
                    let bytes = count + tokens.shape().num_elements() + targets.numbers();
                    self.dataset.keep(|| ((samples, tokens, targets), bytes as u64 * 4));
                }
            }
        }
        self.batches.keep(|| {
            let tokens = step.encoding.on_device(step.tokens, 0, size, &step.device.plain);
            let bytes = tokens.shape().num_elements() as u64 * 4;
            (tokens, bytes)
        });
        let autodiff = &step.device.autodiff;
        // With a graph, and without the backward pass that would have used it up. It holds the weights as they were, which are
        // its own when the optimiser replaces them.
        let weights = || parameters::bytes(step.network);
        let tokens = || step.encoding.on_device(step.tokens, 0, size, autodiff);
        if step.place.last_pass {
            self.outputs.keep_measured(in_use, weights, || step.network.forward(tokens()));
        }
        if step.place.first_pass && self.embeddings.is_on() {
            let spectra = step.batch.clips.iter().map(|clip| step.sounds.store().log_mel(*clip));
            let spectra = spectra.collect::<Result<Vec<_>, _>>()?;
            let encoding = step.encoding.tracked(autodiff);
            self.embeddings.keep_measured(
                in_use,
                || 0,
                || spectra.iter().map(|spectrum| encoding.encode(spectrum, autodiff)).collect(),
            );
        }
        self.losses.keep_measured(in_use, weights, || {
            let (outputs, targets) = (step.network.forward(tokens()), step.targets.of(&step.batch.classes));
            loss(outputs.pooled, targets.pooled, step.loss) + loss(outputs.tokens, targets.tokens, step.loss)
        });
        self.targets.keep_measured(
            in_use,
            || 0,
            || {
                let targets = step.targets.of(&step.batch.classes);
                let tracked = |values: Tensor<2>| values.autodiff().require_grad().mul_scalar(1.0);
                Conditioning { pooled: tracked(targets.pooled), tokens: tracked(targets.tokens) }
            },
        );
        Ok(())
    }

    /// Before the optimiser takes them.
    pub fn gradients(&mut self, network: &Adapters, gradients: &GradientsParams, device: &TensorDevice) {
        // Their containers are new; the values are shared with those that the optimiser takes.
        let bytes = || parameters::bytes(network);
        self.gradients.keep_measured(|| device.in_use(), bytes, || shared(network, gradients));
    }

    /// Whether models of nodes are kept.
    pub fn keeps_models(&self) -> bool {
        self.models.is_on()
    }

    /// When a node's turn has ended: its model, and its optimiser's running values, of so many copies of the parameters.
    pub fn model(&mut self, network: &Adapters, optimizer: ModuleOptimizer, copies: u64) {
        self.models.keep(|| {
            let bytes = parameters::bytes(network) * (1 + copies);
            ((network.valid(), optimizer), bytes)
        });
    }

    /// When a node's result has reached the server.
    pub fn result(&mut self, result: &[f32]) {
        self.results.keep(|| (result.to_vec(), size_of_val(result) as u64));
    }

    /// Whether outputs of validations are kept.
    pub fn keeps_outputs_of_validations(&self) -> bool {
        self.validation.is_on()
    }

    /// The outputs of all batches of a validation.
    pub fn validated(&mut self, outputs: Vec<Conditioning>) {
        self.validation.keep(|| {
            let numbers: usize = outputs.iter().map(Conditioning::numbers).sum();
            (outputs, numbers as u64 * 4)
        });
    }

    /// Once a round: what a loader leaves behind whose threads put batches on the device and live for a round.
    pub fn round(&mut self, numbers: usize, device: &TensorDevice) -> Result<(), TaskError> {
        let put = || drop(Tensor::<1>::from_data(TensorData::new(vec![0f32; numbers], [numbers]), &device.plain));
        if self.threads.is_on() {
            let left = device.on_new_thread(put)?;
            self.threads.keep(|| ((), left));
        }
        Ok(())
    }
}

/// Values that are shared with nobody.
fn copied(of: Conditioning) -> Conditioning {
    Conditioning { pooled: of.pooled.mul_scalar(1.0), tokens: of.tokens.mul_scalar(1.0) }
}
