//! Batches of pictures with classes, made on the host on any thread, each a pure function of its number.

use std::sync::Arc;

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::labels::{Labelled, Labels};
use super::settings::Settings;
use xrun_core::bounded::HeldBytes;
use xrun_core::dataset::error::DataError;
use xrun_core::dataset::sample::{BoundingBox, HostImage, ImageSource};
use xrun_core::seed::generator;
use xrun_data::boxes::library::Library;
use xrun_data::order::Order;
use xrun_data::transform;

/// Pictures and their classes.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// 8-bit RGB `[n, S, S, 3]` with S the `image_size`.
    pub pixels: Vec<u8>,
    /// `[n]` indices into [`Labels::classes`].
    pub classes: Vec<i64>,
}

impl HeldBytes for Batch {
    fn held_bytes(&self) -> u64 {
        (size_of::<Self>() + self.pixels.capacity() + self.classes.capacity() * size_of::<i64>()) as u64
    }
}

/// The most that a batch of `size` pictures holds, in bytes.
pub fn batch_bytes(size: usize, side: usize) -> u64 {
    (size_of::<Batch>() + size * (side * side * 3 + size_of::<i64>())) as u64
}

/// Draws and prepares batches; shared by the workers of a feed.
#[derive(Clone)]
pub struct Batches {
    /// Index of the data.
    pub library: Arc<Library>,
    /// Classes of its pictures.
    pub labels: Arc<Labels>,
    /// The decoder of pictures.
    pub source: Arc<dyn ImageSource>,
    /// Side, and how pictures are varied.
    pub settings: Settings,
    /// Pictures in a batch.
    pub size: usize,
    /// `experiment.seed`.
    pub seed: u32,
}

impl Batches {
    /// Batch `number` (from 0) of training: each picture once an epoch, one epoch behind the other.
    ///
    /// # Errors
    /// A picture cannot be decoded.
    pub fn train(&self, number: u64) -> Result<Batch, DataError> {
        let (all, size) = (&self.labels.train, self.size as u64);
        let count = all.len() as u64;
        let generator = &mut generator(self.seed, "augmentation", number);
        let places = number * size..(number + 1) * size;
        let mut order: Option<(u64, Order)> = None;
        let chosen: Vec<Labelled> = places
            .map(|place| {
                let epoch = place / count;
                if order.as_ref().is_none_or(|(of, _)| *of != epoch) {
                    order = Some((epoch, Order::new(self.seed, "training pictures", epoch, count)));
                }
                let at = order.as_ref().map_or(0, |(_, order)| order.at(place % count));
                all[at as usize]
            })
            .collect();
        self.batch(&chosen, |picture, object| self.augmented(picture, object, generator))
    }

    /// Pictures `from` and following of the held-out ones, as they are; the same each time.
    ///
    /// # Errors
    /// A picture cannot be decoded.
    pub fn held_out(&self, range: std::ops::Range<usize>) -> Result<Batch, DataError> {
        let side = self.settings.image_size;
        self.batch(&self.labels.held_out[range], |picture, _| transform::letterbox(picture, side).0)
    }

    fn batch(
        &self,
        chosen: &[Labelled],
        mut view: impl FnMut(&HostImage, &BoundingBox) -> HostImage,
    ) -> Result<Batch, DataError> {
        let side = self.settings.image_size;
        let mut pixels = Vec::with_capacity(chosen.len() * side * side * 3);
        let mut classes = Vec::with_capacity(chosen.len());
        for labelled in chosen {
            let picture = self.source.picture(&labelled.frame(&self.library).path)?;
            pixels.extend_from_slice(&view(&picture, &labelled.rectangle).rgb);
            classes.push(i64::from(labelled.class));
        }
        Ok(Batch { pixels, classes })
    }

    /// A part of the picture that holds the middle of the object, scaled into the square, and mirrored half of the time.
    fn augmented(&self, picture: &HostImage, object: &BoundingBox, generator: &mut ChaCha8Rng) -> HostImage {
        let Settings { image_size, flip, crop, .. } = self.settings;
        // Drawn in any case: whether one thing is varied does not move what else is drawn.
        let (share, x, y) = (generator.random_range(crop..=1.0), generator.random::<f32>(), generator.random::<f32>());
        let mirrored = generator.random_bool(0.5) && flip;
        let square = match crop < 1.0 {
            true => {
                let window = window(picture, object, (share as f32).sqrt(), [x, y]);
                transform::letterbox(&transform::crop(picture, &window, 0.0), image_size).0
            }
            false => transform::letterbox(picture, image_size).0,
        };
        if mirrored { transform::flip(&square) } else { square }
    }
}

/// A window of `scale` times the picture's sides that holds the middle of the object; `drawn` from 0 to 1 says where.
fn window(picture: &HostImage, object: &BoundingBox, scale: f32, drawn: [f32; 2]) -> BoundingBox {
    let along = |length: usize, middle: f32, drawn: f32| {
        let (length, extent) = (length as f32, length as f32 * scale);
        let (lowest, highest) = ((middle - extent).max(0.0), middle.min(length - extent).max(0.0));
        let from = lowest.min(highest) + (highest - lowest).max(0.0) * drawn;
        (from, from + extent)
    };
    let (left, right) = along(picture.width, (object.left + object.right) / 2.0, drawn[0]);
    let (top, bottom) = along(picture.height, (object.top + object.bottom) / 2.0, drawn[1]);
    BoundingBox { left, top, right, bottom }
}

#[cfg(test)]
#[path = "batch_tests.rs"]
mod tests;
