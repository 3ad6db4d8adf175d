//! Leaks of tensors and results that real trainers had (`docs/origins.md`). Off unless `[leaks]` switches them on.

use burn::tensor::Device;

use super::super::batch::{DetectionBatch, HostBatch};
use super::super::decode::FrameDetection;
use super::super::network::DetectorNetwork;
use super::super::settings::FewshotDetection;
use super::super::training::FewshotDetectionModule;
use xrun_core::bounded::ledger::Ledger;
use xrun_core::experiment::leaks::Leaks;
use xrun_core::task::StepReport;
use xrun_training::nn::Tensor;
use xrun_training::nn::callback::{Callback, Event};
use xrun_training::nn::captured::Inputs;
use xrun_training::nn::leaks::{LeakCallbacks, keep_graph};
use xrun_training::nn::pixels::images;

/// Number of query frames in the leaked forward pass of a step.
const FRAMES: usize = 2;
/// Number of query frames in the leaked forward pass of a validation, which is rare.
const VALIDATION_FRAMES: usize = 6;

/// Callbacks of the leaks that are switched on. That of `thread_pools` runs a thread each epoch that moves a batch of black frames
/// to the device and ends, like the threads of a data loader.
pub fn callbacks(steps_per_epoch: u64, leaks: &Leaks, ledger: &Ledger) -> Vec<Callback<FewshotDetectionModule>> {
    LeakCallbacks::<FewshotDetectionModule>::new(leaks, ledger)
        .leak_gradients(&super::GRADIENTS)
        .on_batch(&super::OUTPUTS_WITH_GRAPH, |kept, at| {
            if let HostBatch::Detection(batch) = at.batch {
                let frames = || first_frames(FRAMES, batch, &at.module.settings, &at.trained.device.autodiff);
                at.keep_graph(kept, || at.network.dense(frames()).embeddings);
            }
        })
        .on_batch(&super::EMBEDDINGS_WITH_GRAPH, |kept, at| {
            if let HostBatch::Detection(batch) = at.batch
                && !batch.reference_pixels.is_empty()
            {
                let references = || references(batch, &at.module.settings, &at.trained.device.autodiff);
                at.keep_graph(kept, || at.network.embed(references()));
            }
        })
        .on_batch(&super::BATCHES_ON_DEVICE, |kept, at| {
            if let HostBatch::Detection(batch) = at.batch {
                let bytes = (batch.query_pixels.len() * size_of::<f32>()) as u64;
                let side = at.module.settings.image_size;
                kept.keep(|| (images(&batch.query_pixels, side, &at.trained.device.autodiff), bytes));
            }
        })
        .leak_log_lines(&super::LOG_HISTORY, log_line)
        .on_event(&super::VALIDATION_WITH_GRAPH, |kept, event, trained| {
            // Without a backward pass the graph is never released.
            if let Event::ValidationStart(module) = event {
                let (network, settings) = (trained.network()?, &module.settings);
                let batch = module.validation.batches.validation_batch(0)?;
                let frames = || first_frames(VALIDATION_FRAMES, &batch, settings, &trained.device.autodiff);
                keep_graph(kept, network, trained, || network.dense(frames()).embeddings);
            }
            Ok(())
        })
        .on_event(&super::VALIDATION_PREDICTIONS, |kept, event, _| {
            if let Event::ValidationOutput(found) = event {
                kept.keep(|| (copied(found), size_of_val(*found) as u64));
            }
            Ok(())
        })
        .on_batch(&super::LOSS_WITH_GRAPH, |sum, at| {
            if at.is_last {
                at.add_loss(sum, || loss(at.module, at.network, at.batch, &at.trained.device.autodiff));
            }
        })
        .on_event(&super::THREAD_POOLS, move |kept, event, trained| {
            if let Event::StepStart { module, step } = event
                && step.is_multiple_of(steps_per_epoch)
            {
                let (settings, device) = (&module.settings, &trained.device);
                let side = settings.image_size;
                let pixels = settings.n_way * settings.n_query * side.pow(2) * 3;
                let leaked = device.on_new_thread(|| drop(images(&vec![0; pixels], side, &device.inner)))?;
                kept.keep(|| ((), leaked));
            }
            Ok(())
        })
        .into_callbacks()
}

// A frame of its own in `allocations.json`.
#[inline(never)]
fn log_line(step: u64, _: f64, report: &StepReport) -> String {
    format!("step {step}: {} {:?}; {}", report.kind, report.values, report.batch)
}

// A frame of its own in `allocations.json`.
#[inline(never)]
fn copied(found: &[FrameDetection]) -> Vec<FrameDetection> {
    found.to_vec()
}

/// Computes the loss of a batch with its graph, `[1]`; for an episode of its first query frames only.
fn loss(module: &FewshotDetectionModule, network: &DetectorNetwork, batch: &HostBatch, device: &Device) -> Tensor<1> {
    let settings = &module.settings;
    match batch {
        HostBatch::Detection(batch) => {
            let prototypes = (!batch.reference_pixels.is_empty()).then(|| {
                let embeddings = network.embed(references(batch, settings, device));
                DetectorNetwork::prototypes(embeddings, batch.classes.len())
            });
            let (frames, _) = module.query_data(batch, 0..batch.queries.len().min(FRAMES));
            module.query_loss(network, &mut Inputs::on_host(frames, device), prototypes).total()
        }
        HostBatch::Triplet(batch) => {
            let rows = network.embed(images(&batch.pixels, settings.reference_size, device));
            module.triplet_loss(rows, batch).0
        }
    }
}

fn references(batch: &DetectionBatch, settings: &FewshotDetection, device: &Device) -> Tensor<4> {
    images(&batch.reference_pixels, settings.reference_size, device)
}

fn first_frames(count: usize, batch: &DetectionBatch, settings: &FewshotDetection, device: &Device) -> Tensor<4> {
    let bytes = count * settings.image_size.pow(2) * 3;
    let frames = &batch.query_pixels[..batch.query_pixels.len().min(bytes)];
    images(frames, settings.image_size, device)
}
