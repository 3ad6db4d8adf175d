//! Where do the encoder's tokens come from? From the host if they are kept there, and else from the encoder, one clip at a time.

use burn::tensor::TensorData;

use super::encoder::{Encoder, statistics};
use super::settings::Model;
use super::sizes;
use super::sounds::{ClipBatch, Sound, Sounds};
use crate::nn::{Tensor, flat};

/// The frozen encoder on the plain device.
#[derive(Debug)]
pub struct Encoding {
    /// `None` takes statistics.
    encoder: Option<Encoder>,
    model: Model,
    plain: burn::tensor::Device,
}

impl Encoding {
    /// Takes over an encoder, which is frozen; `plain` is the device without autodiff.
    pub fn new(encoder: Option<Encoder>, model: &Model, plain: &burn::tensor::Device) -> Self {
        Self { encoder, model: model.clone(), plain: plain.clone() }
    }

    /// Tokens of a batch on the host, `[clips, tokens, width]`, row by row.
    pub fn tokens(&self, batch: &ClipBatch, sounds: &Sounds) -> Vec<f32> {
        let mut row = Vec::with_capacity(batch.size() * sizes::embedding(&self.model) as usize);
        for (clip, sound) in batch.clips.iter().zip(&batch.sounds) {
            match sound {
                Sound::Embedding(embedding) => embedding.extend(&mut row),
                Sound::Spectrum(spectrum) => {
                    let made = self.encode(spectrum, &self.plain).into_data();
                    let made: Vec<f32> = made.iter::<f32>().collect();
                    sounds.keep(*clip, &made).extend(&mut row);
                }
            }
        }
        row
    }

    /// The encoder's tokens of one clip, `[1, tokens, width]`. On a device with autodiff they have no graph as long as the
    /// encoder has none.
    pub fn encode(&self, spectrum: &[f32], device: &burn::tensor::Device) -> Tensor<3> {
        let Model { frames, bands, .. } = self.model;
        let spectrum = Tensor::from_data(TensorData::new(spectrum.to_vec(), [1, frames, bands]), device);
        match &self.encoder {
            Some(encoder) => encoder.forward(spectrum),
            None => statistics(spectrum),
        }
    }

    /// Those rows of a batch that are clips `from` to `to`, on a device.
    pub fn on_device(&self, row: &[f32], from: usize, to: usize, device: &burn::tensor::Device) -> Tensor<3> {
        let (tokens, width) = (self.model.encoder_tokens(), self.model.encoder_width());
        let each = tokens * width;
        let numbers = row[from * each..to * each].to_vec();
        Tensor::from_data(TensorData::new(numbers, [to - from, tokens, width]), device)
    }

    /// The plain device.
    pub fn device(&self) -> &burn::tensor::Device {
        &self.plain
    }

    /// Copies the encoder with weights that are tracked, to a device with autodiff.
    pub fn tracked(&self, autodiff: &burn::tensor::Device) -> Self {
        let encoder = self.encoder.clone().map(|encoder| {
            let weights = flat::to_host(&encoder);
            let tracked: Encoder = Encoder::new(&self.model, 0, autodiff);
            flat::from_host(tracked, &weights)
        });
        Self { encoder, ..Self::new(None, &self.model, &self.plain) }
    }
}
