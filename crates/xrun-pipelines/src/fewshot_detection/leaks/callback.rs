//! Leaks that real trainers had (`docs/origins.md`), as they can happen with Burn. Off unless `[leaks]` says so.

use burn::optim::GradientsParams;

use super::batch::DetectionBatch;
use super::leaks;
use super::model::ReferenceDetector;
use super::settings::Settings;
use crate::backend::dispatch::TensorDevice;
use crate::nn::gradients::shared;
use crate::nn::pixels::pictures;
use crate::nn::{Tensor, parameters};
use xrun_core::bounded::kept::Kept;
use xrun_core::bounded::ledger::Ledger;
use xrun_core::experiment::leaks::Leaks;
use xrun_core::task::TaskError;

/// Query frames in the forward pass whose outputs are kept: of a step, and of a validation, which comes seldom.
const FRAMES_KEPT: usize = 2;
const VALIDATION_FRAMES_KEPT: usize = 6;

/// What the training steps keep.
pub struct StepLeaks {
    gradients: Kept<GradientsParams>,
    outputs: Kept<Tensor<3>>,
    embeddings: Kept<Tensor<2>>,
    batches: Kept<Tensor<4>>,
    log: Kept<String>,
    validation: Kept<Tensor<3>>,
    total: Kept<Tensor<1>>,
    threads: Kept<()>,
}

impl StepLeaks {
    /// What `[leaks]` switches on enters the ledger.
    pub fn new(leaks: &Leaks, ledger: &Ledger) -> Self {
        Self {
            gradients: leaks.kept(&leaks::GRADIENTS, ledger),
            outputs: leaks.kept(&leaks::OUTPUTS_WITH_GRAPH, ledger),
            embeddings: leaks.kept(&leaks::EMBEDDINGS_WITH_GRAPH, ledger),
            batches: leaks.kept(&leaks::BATCHES_ON_DEVICE, ledger),
            log: leaks.kept(&leaks::LOG_HISTORY, ledger),
            validation: leaks.kept(&leaks::VALIDATION_WITH_GRAPH, ledger),
            total: leaks.kept(&leaks::LOSS_WITH_GRAPH, ledger),
            threads: leaks.kept(&leaks::THREAD_POOLS, ledger),
        }
    }

    /// After a detection batch: what a trainer keeps that collects outputs, caches embeddings, or moves all its data.
    pub fn batch(
        &mut self,
        network: &ReferenceDetector,
        batch: &DetectionBatch,
        settings: &Settings,
        device: &TensorDevice,
    ) {
        let in_use = || device.in_use();
        // With a graph, and without the backward pass that would have consumed it: so weights are kept, too, as they were.
        let weights = || parameters::bytes(network);
        let frames = || first_frames(FRAMES_KEPT, batch, settings, &device.autodiff);
        self.outputs.keep_measured(in_use, weights, || network.dense(frames()).embeddings);
        let references = || pictures(&batch.reference_pixels, settings.reference_size, &device.autodiff);
        self.embeddings.keep_measured(in_use, weights, || network.embed(references()));
        self.batches.keep(|| {
            let values = batch.query_pixels.len() as u64;
            (pictures(&batch.query_pixels, settings.image_size, &device.autodiff), values * size_of::<f32>() as u64)
        });
    }

    /// Once an epoch: what a loader leaves behind whose threads put batches on the device and live for an epoch. The frames
    /// of one batch, black, by one thread.
    pub fn epoch(&mut self, settings: &Settings, device: &TensorDevice) -> Result<(), TaskError> {
        let side = settings.image_size;
        let pixels = settings.n_way * settings.n_query * side.pow(2) * 3;
        let put = || drop(pictures(&vec![0; pixels], side, &device.plain));
        if self.threads.is_on() {
            let left = device.on_new_thread(put)?;
            self.threads.keep(|| ((), left));
        }
        Ok(())
    }

    /// Whether losses are added up with their graphs.
    pub fn keeps_losses(&self) -> bool {
        self.total.is_on()
    }

    /// A sum of losses for the progress line, each with its graph.
    pub fn loss(&mut self, loss: Option<Tensor<1>>, device: &TensorDevice) {
        let Some(loss) = loss else { return };
        self.total.keep_measured_with(
            || device.in_use(),
            |before| match before {
                Some(sum) => sum.clone() + loss,
                None => loss,
            },
        );
    }

    /// A validation episode with autodiff, of which nothing is released: there is no backward pass.
    pub fn validation(
        &mut self,
        network: &ReferenceDetector,
        batch: impl FnOnce() -> Result<DetectionBatch, TaskError>,
        settings: &Settings,
        device: &TensorDevice,
    ) -> Result<(), TaskError> {
        if self.validation.is_on() {
            let batch = batch()?;
            let frames = || first_frames(VALIDATION_FRAMES_KEPT, &batch, settings, &device.autodiff);
            let weights = || parameters::bytes(network);
            self.validation.keep_measured(|| device.in_use(), weights, || network.dense(frames()).embeddings);
        }
        Ok(())
    }

    /// Before the optimiser takes them.
    pub fn gradients(&mut self, network: &ReferenceDetector, gradients: &GradientsParams, device: &TensorDevice) {
        // Their containers are new; the values are shared with those that the optimiser takes.
        self.gradients.keep_measured(|| device.in_use(), || parameters::bytes(network), || shared(network, gradients));
    }

    /// A line that was said.
    pub fn said(&mut self, line: impl FnOnce() -> String) {
        self.log.keep(|| {
            let line = line();
            let bytes = line.capacity() as u64;
            (line, bytes)
        });
    }
}

fn first_frames(count: usize, batch: &DetectionBatch, settings: &Settings, device: &burn::tensor::Device) -> Tensor<4> {
    let bytes = count * settings.image_size.pow(2) * 3;
    let frames = &batch.query_pixels[..batch.query_pixels.len().min(bytes)];
    pictures(frames, settings.image_size, device)
}
