//! Real leaks, restored: what the post-mortems found, as it can happen with Burn. Off unless `[leaks]` says so.

use burn::module::Module;
use burn::module::ModuleVisitor;
use burn::module::Param;
use burn::optim::GradientsParams;

use super::batch::DetectionBatch;
use super::model::ReferenceDetector;
use super::pixels::pictures;
use super::settings::Settings;
use crate::experiment::leaks::{Leak, Leaks};
use crate::memory::heap;
use crate::memory::ledger::{Holding, Ledger, NO_CAP, Policy};
use crate::nn::{Backend, Tensor};

/// Query frames in the forward pass whose outputs are kept.
const FRAMES_KEPT: usize = 2;

/// Things that are kept for ever. A vector that grows is against the rules of this code; here it is the purpose.
pub struct Kept<T>(Option<(Holding, Vec<T>)>);

impl<T> std::fmt::Debug for Kept<T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Kept({})", self.0.as_ref().map_or(0, |(_, list)| list.len()))
    }
}

impl<T> Kept<T> {
    /// Keeps nothing unless the leak is switched on.
    pub fn new(leak: Leak, leaks: &Leaks, ledger: &Ledger) -> Self {
        let on = leaks.on().contains(&leak);
        Self(on.then(|| (ledger.register(leak.owner(), NO_CAP, Policy::Leak), Vec::new())))
    }

    /// Keeps what `make` makes, whose bytes are known.
    pub fn keep(&mut self, make: impl FnOnce() -> (T, u64)) {
        let Some((holding, list)) = &mut self.0 else { return };
        let (value, bytes) = make();
        list.push(value);
        holding.set(list.len() as u64, holding.bytes() + bytes);
    }

    /// Keeps what `make` makes, and counts what the heap in use grows by. On the CPU, and exact with `limits.workers = 0`:
    /// other threads use the heap, too.
    pub fn keep_measured(&mut self, make: impl FnOnce() -> T) {
        self.keep(|| {
            let before = heap::read().bytes;
            let value = make();
            (value, heap::read().bytes.saturating_sub(before))
        });
    }
}

/// What the training steps keep.
pub struct StepLeaks {
    gradients: Kept<GradientsParams>,
    outputs: Kept<Tensor<3>>,
    embeddings: Kept<Tensor<2>>,
    batches: Kept<Tensor<4>>,
    log: Kept<String>,
}

impl StepLeaks {
    pub fn new(leaks: &Leaks, ledger: &Ledger) -> Self {
        Self {
            gradients: Kept::new(Leak::Gradients, leaks, ledger),
            outputs: Kept::new(Leak::OutputsWithGraph, leaks, ledger),
            embeddings: Kept::new(Leak::EmbeddingsWithGraph, leaks, ledger),
            batches: Kept::new(Leak::BatchesOnDevice, leaks, ledger),
            log: Kept::new(Leak::LogHistory, leaks, ledger),
        }
    }

    /// After a detection batch: what a trainer keeps that collects outputs, caches embeddings, or moves all its data.
    pub fn batch(
        &mut self,
        network: &ReferenceDetector<Backend>,
        batch: &DetectionBatch,
        settings: &Settings,
        device: &burn::DispatchDevice,
    ) {
        let frame_bytes = settings.image_size.pow(2) * 3;
        let frames = &batch.query_pixels[..batch.query_pixels.len().min(FRAMES_KEPT * frame_bytes)];
        // With a graph, and without the backward pass that would have consumed it.
        self.outputs.keep_measured(|| network.dense(pictures(frames, settings.image_size, device)).embeddings);
        let references = || pictures(&batch.reference_pixels, settings.reference_size, device);
        self.embeddings.keep_measured(|| network.embed(references()));
        self.batches.keep(|| {
            let values = batch.query_pixels.len() as u64;
            (pictures(&batch.query_pixels, settings.image_size, device), values * size_of::<f32>() as u64)
        });
    }

    /// Before the optimiser takes them.
    pub fn gradients(&mut self, network: &ReferenceDetector<Backend>, gradients: &GradientsParams) {
        self.gradients.keep(|| {
            let mut copy = Copy { of: gradients, copy: GradientsParams::new(), values: 0 };
            network.visit(&mut copy);
            (copy.copy, copy.values * size_of::<f32>() as u64)
        });
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

/// Gradients that share their values with others.
struct Copy<'a> {
    of: &'a GradientsParams,
    copy: GradientsParams,
    values: u64,
}

impl ModuleVisitor<Backend> for Copy<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if let Some(gradient) = self.of.get::<Backend, D>(param.id) {
            self.values += gradient.shape().num_elements() as u64;
            self.copy.register::<Backend, D>(param.id, gradient);
        }
    }
}
