//! Leaks of federated trainers (docs/origins.md) as they can happen with Burn; off by default.

use std::collections::HashSet;

use burn::optim::GradientsParams;
use burn::tensor::TensorData;

use super::super::adapters::{Adapters, Conditioning};
use super::super::clips::ClipBatch;
use super::super::loss::loss;
use super::super::prepare::Prepared;
use super::super::training::{self, FederatedModule};
use crate::nn::callback::{Callback, CallbackContext};
use crate::nn::gradients::{leak_gradients, leak_loss};
use crate::nn::optimizer::ModuleOptimizer;
use crate::nn::step::TrainState;
use crate::nn::{Tensor, flat, parameters};
use xrun_core::bounded::leak_buffer::LeakBuffer;
use xrun_core::bounded::ledger::Ledger;
use xrun_core::device::DeviceKind;
use xrun_core::experiment::Experiment;
use xrun_core::task::{StepReport, Task, TaskError};

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
    Ok(Box::new(task.with_callback(FederatedLeaks {
        dataset: leaks.leak_buffer(&super::DATASET_ON_DEVICE, ledger),
        on_device: HashSet::new(),
        batches: leaks.leak_buffer(&super::BATCHES_ON_DEVICE, ledger),
        outputs: leaks.leak_buffer(&super::OUTPUTS_WITH_GRAPH, ledger),
        embeddings: leaks.leak_buffer(&super::EMBEDDINGS_WITH_GRAPH, ledger),
        targets: leaks.leak_buffer(&super::TARGETS_WITH_GRAPH, ledger),
        gradients: leaks.leak_buffer(&super::GRADIENTS, ledger),
        total: leaks.leak_buffer(&super::LOSS_WITH_GRAPH, ledger),
        losses: leaks.leak_buffer(&super::LOSS_NEVER_BACKPROPAGATED, ledger),
        models: leaks.leak_buffer(&super::NODE_MODELS, ledger),
        results: leaks.leak_buffer(&super::ROUND_RESULTS, ledger),
        validation: leaks.leak_buffer(&super::VALIDATION_OUTPUTS, ledger),
        validation_outputs: Vec::new(),
        threads: leaks.leak_buffer(&super::THREAD_POOLS, ledger),
    })))
}

/// Inner model of a node and its optimiser.
type NodeModel = (Adapters, ModuleOptimizer);

/// Tensors and results that are kept for ever.
struct FederatedLeaks {
    /// Samples, embeddings and targets of clips.
    dataset: LeakBuffer<(Tensor<1>, Tensor<3>, Conditioning)>,
    /// Clips in `dataset`.
    on_device: HashSet<u32>,
    batches: LeakBuffer<Tensor<3>>,
    outputs: LeakBuffer<Conditioning>,
    embeddings: LeakBuffer<Vec<Tensor<3>>>,
    targets: LeakBuffer<Conditioning>,
    gradients: LeakBuffer<GradientsParams>,
    total: LeakBuffer<Tensor<1>>,
    losses: LeakBuffer<Tensor<1>>,
    models: LeakBuffer<NodeModel>,
    results: LeakBuffer<Vec<f32>>,
    validation: LeakBuffer<Vec<Conditioning>>,
    /// Outputs of the running validation.
    validation_outputs: Vec<Conditioning>,
    threads: LeakBuffer<()>,
}

impl Callback<FederatedModule> for FederatedLeaks {
    fn on_batch_end(
        &mut self,
        batch: &ClipBatch,
        _is_last: bool,
        context: &CallbackContext<'_, FederatedModule>,
    ) -> Result<(), TaskError> {
        let (network, device) = (context.trained.network()?, &context.trained.device);
        let FederatedModule { settings, clip_loader, frozen_encoder, targets, position, .. } = context.module;
        let in_use = || device.in_use();
        let size = batch.size();
        // The encoder runs again for the leaks that hold its tokens.
        let leaks =
            [self.dataset.is_on(), self.batches.is_on(), self.outputs.is_on(), self.total.is_on(), self.losses.is_on()];
        let holds_tokens = leaks.contains(&true);
        let rows = if holds_tokens { frozen_encoder.embed(batch, clip_loader) } else { Vec::new() };
        if self.dataset.is_on() {
            for (at, clip) in batch.clips.iter().enumerate() {
                if self.on_device.insert(*clip) {
                    let samples = clip_loader.store().samples(*clip)?;
                    let count = samples.len();
                    let samples = Tensor::from_data(TensorData::new(samples, [count]), &device.inner);
                    let tokens = frozen_encoder.on_device(&rows, at, at + 1, &device.inner);
                    let targets = copied(targets.select(&batch.classes[at..=at]));
                    let bytes = count + tokens.shape().num_elements() + targets.elements();
                    self.dataset.keep(|| ((samples, tokens, targets), bytes as u64 * 4));
                }
            }
        }
        self.batches.keep(|| {
            let tokens = frozen_encoder.on_device(&rows, 0, size, &device.inner);
            let bytes = tokens.shape().num_elements() as u64 * 4;
            (tokens, bytes)
        });
        let autodiff = &device.autodiff;
        // Without a backward pass the graph stays, with the weights of this step, which the optimiser replaces.
        let weights = || parameters::bytes(network);
        let tokens = || frozen_encoder.on_device(&rows, 0, size, autodiff);
        if position.last_pass {
            self.outputs.keep_measured(in_use, weights, || network.forward(tokens()));
        }
        if position.first_pass && self.embeddings.is_on() {
            let spectra = batch.clips.iter().map(|clip| clip_loader.store().log_mel(*clip));
            let spectra = spectra.collect::<Result<Vec<_>, _>>()?;
            let frozen_encoder = frozen_encoder.tracked(autodiff);
            self.embeddings.keep_measured(
                in_use,
                || 0,
                || spectra.iter().map(|spectrum| frozen_encoder.encode(spectrum, autodiff)).collect(),
            );
        }
        let loss = || {
            let (outputs, targets) = (network.forward(tokens()), targets.select(&batch.classes));
            loss(outputs.pooled, targets.pooled, settings.loss)
                + loss(outputs.token_embeds, targets.token_embeds, settings.loss)
        };
        leak_loss(in_use, &mut self.total, loss);
        self.losses.keep_measured(in_use, weights, loss);
        self.targets.keep_measured(
            in_use,
            || 0,
            || {
                let targets = targets.select(&batch.classes);
                let tracked = |values: Tensor<2>| values.autodiff().require_grad().mul_scalar(1.0);
                Conditioning { pooled: tracked(targets.pooled), token_embeds: tracked(targets.token_embeds) }
            },
        );
        Ok(())
    }

    fn on_before_update(
        &mut self,
        gradients: &GradientsParams,
        context: &CallbackContext<'_, FederatedModule>,
    ) -> Result<(), TaskError> {
        leak_gradients(context.trained, gradients, &mut self.gradients)
    }

    /// Keeps the model and the result of a node at the end of its turn. After each round a thread moves a clip to the device and
    /// ends, like the threads of a data loader.
    fn on_step_end(
        &mut self,
        _: u64,
        _: f64,
        _: &StepReport,
        context: &CallbackContext<'_, FederatedModule>,
    ) -> Result<(), TaskError> {
        let CallbackContext { module, trained } = context;
        if module.position.ends_turn {
            let (network, optimizer) = (trained.inner()?, trained.optimizer()?);
            self.results.keep(|| {
                let adapters = flat::to_host(&network);
                let bytes = size_of_val(&*adapters) as u64;
                (adapters, bytes)
            });
            // The next turn replaces both, which leaves the leak as the only owner.
            let bytes = parameters::bytes(&network) * (1 + trained.state_copies());
            self.models.keep(|| ((network, optimizer.clone()), bytes));
        }
        if module.position.ends_round && self.threads.is_on() {
            let (device, numbers) = (&trained.device.inner, module.clip_loader.store().samples_of_clip());
            let put = || drop(Tensor::<1>::from_data(TensorData::new(vec![0f32; numbers], [numbers]), device));
            let left = trained.device.on_new_thread(put)?;
            self.threads.keep(|| ((), left));
        }
        Ok(())
    }

    fn on_validation_output(&mut self, output: &Conditioning, _: &TrainState<Adapters>) -> Result<(), TaskError> {
        if self.validation.is_on() {
            self.validation_outputs.push(output.clone());
        }
        Ok(())
    }

    fn on_validation_end(&mut self) {
        self.validation.keep(|| {
            let outputs = std::mem::take(&mut self.validation_outputs);
            let numbers: usize = outputs.iter().map(Conditioning::elements).sum();
            (outputs, numbers as u64 * 4)
        });
    }
}

/// Deep copy of the values.
fn copied(values: Conditioning) -> Conditioning {
    Conditioning { pooled: values.pooled.mul_scalar(1.0), token_embeds: values.token_embeds.mul_scalar(1.0) }
}
