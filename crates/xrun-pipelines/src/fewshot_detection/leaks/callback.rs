//! Leaks of tensors and results that real trainers had (`docs/origins.md`). Off unless `[leaks]` switches them on.

use burn::optim::GradientsParams;
use burn::tensor::Device;

use super::super::batch::{DetectionBatch, HostBatch};
use super::super::decode::FrameDetection;
use super::super::model::ReferenceDetector;
use super::super::prepare::Prepared;
use super::super::settings::Settings;
use super::super::step_kind::batches_per_epoch;
use super::super::training::{self, FewshotDetectionModule};
use super::data;
use crate::nn::callback::{Callback, CallbackContext};
use crate::nn::gradients::{leak_gradients, leak_loss};
use crate::nn::pixels::images;
use crate::nn::step::TrainState;
use crate::nn::{Tensor, parameters};
use xrun_core::bounded::leak_buffer::LeakBuffer;
use xrun_core::bounded::ledger::Ledger;
use xrun_core::device::DeviceKind;
use xrun_core::experiment::Experiment;
use xrun_core::task::{StepReport, Task, TaskError};

/// Number of query frames in the leaked forward pass of a step.
const FRAMES: usize = 2;
/// Number of query frames in the leaked forward pass of a validation, which is rare.
const VALIDATION_FRAMES: usize = 6;

type Network = ReferenceDetector;

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
    let leaks = &experiment.leaks;
    let batches = batches_per_epoch(prepared.library(), &prepared.settings);
    let (steps_per_epoch, _) = experiment.training.steps(batches);
    let prepare = data::prepare(prepared.batches.clone(), leaks, ledger);
    let task = training::open(prepared, prepare, experiment, kind, ledger, first_step)?;
    if leaks.is_empty() {
        return Ok(Box::new(task));
    }
    Ok(Box::new(task.with_callback(FewshotDetectionLeaks {
        steps_per_epoch,
        gradients: leaks.leak_buffer(&super::GRADIENTS, ledger),
        outputs: leaks.leak_buffer(&super::OUTPUTS_WITH_GRAPH, ledger),
        embeddings: leaks.leak_buffer(&super::EMBEDDINGS_WITH_GRAPH, ledger),
        batches: leaks.leak_buffer(&super::BATCHES_ON_DEVICE, ledger),
        log: leaks.leak_buffer(&super::LOG_HISTORY, ledger),
        validation: leaks.leak_buffer(&super::VALIDATION_WITH_GRAPH, ledger),
        predictions: leaks.leak_buffer(&super::VALIDATION_PREDICTIONS, ledger),
        total: leaks.leak_buffer(&super::LOSS_WITH_GRAPH, ledger),
        threads: leaks.leak_buffer(&super::THREAD_POOLS, ledger),
    })))
}

/// Tensors, detections and text that are never freed.
struct FewshotDetectionLeaks {
    steps_per_epoch: u64,
    gradients: LeakBuffer<GradientsParams>,
    outputs: LeakBuffer<Tensor<3>>,
    embeddings: LeakBuffer<Tensor<2>>,
    batches: LeakBuffer<Tensor<4>>,
    log: LeakBuffer<String>,
    validation: LeakBuffer<Tensor<3>>,
    predictions: LeakBuffer<Vec<FrameDetection>>,
    total: LeakBuffer<Tensor<1>>,
    threads: LeakBuffer<()>,
}

impl Callback<FewshotDetectionModule> for FewshotDetectionLeaks {
    /// Runs a thread each epoch that moves a batch of black frames to the device and ends, like the threads of a data loader.
    fn on_step_start(
        &mut self,
        step: u64,
        context: &CallbackContext<'_, FewshotDetectionModule>,
    ) -> Result<(), TaskError> {
        if self.threads.is_on() && step.is_multiple_of(self.steps_per_epoch) {
            let (settings, device) = (&context.module.settings, &context.trained.device);
            let side = settings.image_size;
            let pixels = settings.n_way * settings.n_query * side.pow(2) * 3;
            let leaked = device.on_new_thread(|| drop(images(&vec![0; pixels], side, &device.inner)))?;
            self.threads.keep(|| ((), leaked));
        }
        Ok(())
    }

    fn on_batch_end(
        &mut self,
        batch: &HostBatch,
        is_last: bool,
        context: &CallbackContext<'_, FewshotDetectionModule>,
    ) -> Result<(), TaskError> {
        let (network, device, settings) =
            (context.trained.network()?, &context.trained.device, &context.module.settings);
        let in_use = || device.in_use();
        if let HostBatch::Detection(batch) = batch {
            // With a graph, and without the backward pass that would free it: the graph also keeps the current weights.
            let weights = || parameters::bytes(network);
            let frames = || first_frames(FRAMES, batch, settings, &device.autodiff);
            self.outputs.keep_measured(in_use, weights, || network.dense(frames()).embeddings);
            let references = || references(batch, settings, &device.autodiff);
            self.embeddings.keep_measured(in_use, weights, || network.embed(references()));
            self.batches.keep(|| {
                let values = batch.query_pixels.len() as u64;
                (images(&batch.query_pixels, settings.image_size, &device.autodiff), values * size_of::<f32>() as u64)
            });
        }
        if is_last {
            leak_loss(in_use, &mut self.total, || loss(context.module, network, batch, &device.autodiff));
        }
        Ok(())
    }

    fn on_before_update(
        &mut self,
        gradients: &GradientsParams,
        context: &CallbackContext<'_, FewshotDetectionModule>,
    ) -> Result<(), TaskError> {
        leak_gradients(context.trained, gradients, &mut self.gradients)
    }

    fn on_step_end(
        &mut self,
        step: u64,
        _: f64,
        report: &StepReport,
        _: &CallbackContext<'_, FewshotDetectionModule>,
    ) -> Result<(), TaskError> {
        self.log.keep(|| {
            let line = format!("step {step}: {} {:?}; {}", report.kind, report.values, report.batch);
            let bytes = line.capacity() as u64;
            (line, bytes)
        });
        Ok(())
    }

    /// Keeps the outputs of an episode with autodiff; without a backward pass their graph is never released.
    fn on_validation_start(&mut self, context: &CallbackContext<'_, FewshotDetectionModule>) -> Result<(), TaskError> {
        if self.validation.is_on() {
            let (network, device) = (context.trained.network()?, &context.trained.device);
            let batch = context.module.validation.batches.prepare_validation(0)?;
            let frames = || first_frames(VALIDATION_FRAMES, &batch, &context.module.settings, &device.autodiff);
            let weights = || parameters::bytes(network);
            self.validation.keep_measured(|| device.in_use(), weights, || network.dense(frames()).embeddings);
        }
        Ok(())
    }

    fn on_validation_output(&mut self, found: &[FrameDetection], _: &TrainState<Network>) -> Result<(), TaskError> {
        self.predictions.keep(|| (found.to_vec(), size_of_val(found) as u64));
        Ok(())
    }
}

/// Computes the loss of a batch with its graph, `[1]`; for an episode of its first query frames only.
fn loss(module: &FewshotDetectionModule, network: &Network, batch: &HostBatch, device: &Device) -> Tensor<1> {
    let settings = &module.settings;
    match batch {
        HostBatch::Detection(batch) => {
            let embeddings = network.embed(references(batch, settings, device));
            let prototypes = || ReferenceDetector::prototypes(embeddings, batch.classes.len());
            let frames = 0..batch.queries.len().min(FRAMES);
            module.query_loss(network, batch, frames, device, prototypes).loss.total()
        }
        HostBatch::Triplet(batch) => {
            let rows = network.embed(images(&batch.pixels, settings.reference_size, device));
            module.triplet_loss(rows, batch).0
        }
    }
}

fn references(batch: &DetectionBatch, settings: &Settings, device: &Device) -> Tensor<4> {
    images(&batch.reference_pixels, settings.reference_size, device)
}

fn first_frames(count: usize, batch: &DetectionBatch, settings: &Settings, device: &Device) -> Tensor<4> {
    let bytes = count * settings.image_size.pow(2) * 3;
    let frames = &batch.query_pixels[..batch.query_pixels.len().min(bytes)];
    images(frames, settings.image_size, device)
}
