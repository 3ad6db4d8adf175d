//! Source of the encoder: a file, or a pretraining on public classes whose result is cached.
//!
//! Pretraining is separate from the steps of the run: epochs stay rounds, and a sweep over nodes or local epochs uses one
//! encoder. It runs on the CPU, whatever the run's device.

use std::path::{Path, PathBuf};

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::TensorData;
use burn_store::{ModuleSnapshot, SafetensorsStore};
use rand::seq::SliceRandom;
use xrun_ops::{LossTargets, next_token_loss};

use super::clips::ClipLoader;
use super::encoder::Encoder;
use super::prepare::Prepared;
use super::settings::{AudioAdapters, EncoderKind, FederatedAdapters};
use super::trained_encoder;
use xrun_core::dataset::digest::digest_of_numbers;
use xrun_core::dataset::split::Split;
use xrun_core::dataset::{cache, generated};
use xrun_core::device::DeviceKind;
use xrun_core::seed::generator;
use xrun_core::settings::sections::{AdamW, Optimizer, Training};
use xrun_core::task::TaskError;
use xrun_data::sound_clips::library::ClassSplit;
use xrun_training::backend::dispatch::TensorDevice;
use xrun_training::nn::parameters::{Deviation, initialise};
use xrun_training::nn::step::{StepAccumulator, TrainState};
use xrun_training::nn::{Tensor, checkpoint_weights, flat};

/// Number of clips in a batch.
const BATCH: usize = 32;
/// Maximum number of cached encoders, each of the size of a model.
const ENCODERS_MAX: usize = 16;

/// Encoder with a classification head.
#[derive(Module, Debug)]
struct Classifier {
    encoder: Encoder,
    head: Linear,
}

impl Classifier {
    /// Sum of the cross-entropy over clips, `[1]`, for spectrograms `[clips, frames, bands]`.
    fn loss(&self, spectra: Tensor<3>, classes: Vec<i32>) -> Tensor<1> {
        let clips = classes.len();
        let tokens = self.encoder.forward(spectra);
        // The mean over all tokens also trains those of patches.
        let logits = self.head.forward(tokens.mean_dim(1).flatten::<2>(1, 2));
        next_token_loss(logits, LossTargets { labels: classes, weights: vec![1.0; clips], teacher: None }).total
    }
}

/// Returns the encoder on the inner device and the digest of its weights; `None` for statistics.
///
/// # Errors
/// A file cannot be read or the device fails.
pub fn encoder(prepared: &Prepared, seed: u32, device: &TensorDevice) -> Result<Option<(Encoder, String)>, TaskError> {
    let model = &prepared.model;
    if model.encoder == EncoderKind::Statistics {
        return Ok(None);
    }
    let mut encoder = Encoder::new(model, seed, &device.inner);
    match &model.weights {
        Some(weights) => encoder.read(Path::new(weights))?,
        None => {
            let path = cached_encoder(&prepared.settings, model, &prepared.clip_loader, seed)?;
            load(&mut encoder, &path)?;
        }
    }
    let digest = digest_of_numbers(&flat::to_host(&encoder));
    Ok(Some((encoder.no_grad(), digest)))
}

/// Returns the file of the cached encoder, which is trained first if it is missing.
fn cached_encoder(
    settings: &FederatedAdapters,
    model: &AudioAdapters,
    clip_loader: &ClipLoader,
    seed: u32,
) -> Result<PathBuf, TaskError> {
    let path = trained_encoder::path(settings, model, &clip_loader.store.library.digest, seed);
    generated::file(&path, |at| {
        let trained = train(settings, model, clip_loader, seed)?;
        checkpoint_weights::write(&trained, at, "model", "spectrogram-transformer")?;
        path.parent().iter().for_each(|directory| cache::remove_oldest(directory, ENCODERS_MAX - 1));
        Ok::<(), TaskError>(())
    })?;
    Ok(path)
}

fn load(encoder: &mut Encoder, path: &Path) -> Result<(), TaskError> {
    generated::digest(path)?;
    let applied = encoder.load_from(&mut SafetensorsStore::from_file(path));
    let applied = applied.map_err(|error| TaskError::file(path, error))?;
    match applied.missing.is_empty() && applied.errors.is_empty() {
        true => Ok(()),
        false => Err(TaskError::file(path, "does not fit the model; remove the file to train the encoder again")),
    }
}

/// Trains the encoder to classify public classes.
fn train(
    settings: &FederatedAdapters,
    model: &AudioAdapters,
    clip_loader: &ClipLoader,
    seed: u32,
) -> Result<Encoder, TaskError> {
    let device = TensorDevice::open(DeviceKind::Cpu, false)?;
    let store = &clip_loader.store;
    let (clips, classes) = (
        store.library.clips_of(ClassSplit::Pretraining, Split::Train),
        store.library.classes_of(ClassSplit::Pretraining),
    );
    let head = LinearConfig::new(model.hidden_size, classes.len().max(1)).init(&device.autodiff);
    let classifier = Classifier { encoder: Encoder::new(model, seed, &device.autodiff), head };
    let classifier = initialise(classifier, seed, Deviation::Inputs);
    let training = Training { clip_norm: Some(1.0), ..Training::default() };
    let mut trained = TrainState::new(classifier, device.clone(), &Optimizer::AdamW(AdamW::default()), &training);
    let per_pass = clips.len().div_ceil(BATCH).max(1) as u64;
    for step in 0..settings.pretraining_steps {
        let mut order = clips.clone();
        order.shuffle(&mut generator(seed, "pretraining", step / per_pass));
        let first = (step % per_pass) as usize * BATCH;
        let batch = &order[first..(first + BATCH).min(order.len())];
        let mut spectra: Vec<f32> = Vec::with_capacity(batch.len() * model.frames * model.bands);
        let mut answers = Vec::with_capacity(batch.len());
        for clip in batch {
            spectra.extend(store.log_mel(*clip)?.iter());
            answers.push((store.library.clips[*clip as usize].class as usize - classes.start) as i32);
        }
        let spectra = TensorData::new(spectra, [batch.len(), model.frames, model.bands]);
        let mut accumulator = StepAccumulator::new(1);
        accumulator.divisor += batch.len() as f64;
        let network = trained.network()?;
        accumulator.backward(network, network.loss(Tensor::from_data(spectra, &device.autodiff), answers));
        let (gradients, _) = trained.mean_and_clip(&mut accumulator)?;
        trained.update(learning_rate(step, settings.pretraining_steps), gradients)?;
    }
    Ok(trained.network()?.valid().encoder)
}

/// Learning rate with a short warm-up and a cosine decay to a tenth.
fn learning_rate(step: u64, steps: u64) -> f64 {
    const PEAK: f64 = 2e-3;
    const WARM_UP: f64 = 20.0;
    let cosine = 0.5 * (1.0 + (std::f64::consts::PI * step as f64 / steps.max(1) as f64).cos());
    PEAK * ((step as f64 + 1.0) / WARM_UP).min(1.0) * (0.1 + 0.9 * cosine)
}
