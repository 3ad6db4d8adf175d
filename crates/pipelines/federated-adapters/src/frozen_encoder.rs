//! Embeddings of batches: cached ones of the host, and those of the frozen encoder, one clip at a time.

use burn::tensor::TensorData;

use super::clips::{ClipBatch, ClipFeatures, ClipLoader};
use super::encoder::{Encoder, statistics};
use super::settings::AudioAdapters;
use super::sizes;
use xrun_training::nn::{Tensor, flat};

/// Frozen encoder on the inner device.
#[derive(Debug)]
pub struct FrozenEncoder {
    /// Transformer; `None` for statistics.
    encoder: Option<Encoder>,
    model: AudioAdapters,
    device: burn::tensor::Device,
}

impl FrozenEncoder {
    /// Wraps an encoder; `device` is the inner one.
    pub fn new(encoder: Option<Encoder>, model: &AudioAdapters, device: &burn::tensor::Device) -> Self {
        Self { encoder, model: model.clone(), device: device.clone() }
    }

    /// Embeddings of a batch on the host, `[clips, tokens, width]`, row-major.
    pub fn embed(&self, batch: &ClipBatch, clip_loader: &ClipLoader) -> Vec<f32> {
        let mut row = Vec::with_capacity(batch.size() * sizes::embedding(&self.model) as usize);
        for (clip, features) in batch.clips.iter().zip(&batch.features) {
            match features {
                ClipFeatures::Embedding(embedding) => embedding.extend(&mut row),
                ClipFeatures::Spectrum(spectrum) => {
                    let tokens = self.encode(spectrum, &self.device).into_data();
                    let tokens: Vec<f32> = tokens.iter::<f32>().collect();
                    clip_loader.cache(*clip, &tokens).extend(&mut row);
                }
            }
        }
        row
    }

    /// Encodes the spectrogram of one clip as `[1, tokens, width]`. On an autodiff device the result has a graph only if the
    /// encoder has one.
    pub fn encode(&self, spectrum: &[f32], device: &burn::tensor::Device) -> Tensor<3> {
        let AudioAdapters { frames, bands, .. } = self.model;
        let spectrum = Tensor::from_data(TensorData::new(spectrum.to_vec(), [1, frames, bands]), device);
        match &self.encoder {
            Some(encoder) => encoder.forward(spectrum),
            None => statistics(spectrum),
        }
    }

    /// Moves the embeddings of clips `from..to` of a batch to a device.
    pub fn on_device(&self, row: &[f32], from: usize, to: usize, device: &burn::tensor::Device) -> Tensor<3> {
        Tensor::from_data(self.data(row, from, to), device)
    }

    /// Embeddings of clips `from..to` of a batch.
    pub fn data(&self, row: &[f32], from: usize, to: usize) -> TensorData {
        let (tokens, width) = (self.model.encoder_tokens(), self.model.encoder_width());
        let each = tokens * width;
        let numbers = row[from * each..to * each].to_vec();
        TensorData::new(numbers, [to - from, tokens, width])
    }

    /// Inner device of the encoder.
    pub fn device(&self) -> &burn::tensor::Device {
        &self.device
    }

    /// Copies the encoder with tracked weights to an autodiff device.
    pub fn tracked(&self, autodiff: &burn::tensor::Device) -> Self {
        let encoder = self.encoder.clone().map(|encoder| {
            let weights = flat::to_host(&encoder);
            let tracked: Encoder = Encoder::new(&self.model, 0, autodiff);
            flat::from_host(tracked, &weights)
        });
        Self { encoder, ..Self::new(None, &self.model, &self.device) }
    }
}
