//! Batches of images with classes, made on the host on any thread, each a pure function of its number.

use std::sync::Arc;

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::labels::{LabelledImage, Labels};
use super::settings::ImageClassification;
use xrun_core::bounded::DeepSize;
use xrun_core::dataset::error::DataError;
use xrun_core::dataset::sample::{BoundingBox, HostImage, ImageSource};
use xrun_core::seed::generator;
use xrun_data::boxes::library::Library;
use xrun_data::transform;
use xrun_training::epochs::items_of_batch;

/// Images and their classes.
#[derive(Clone, Debug, PartialEq)]
pub struct ImageBatch {
    /// 8-bit RGB images, `[n, S, S, 3]` with S the `image_size`.
    pub pixels: Vec<u8>,
    /// Indices into [`Labels::classes`], `[n]`.
    pub classes: Vec<i64>,
}

impl DeepSize for ImageBatch {
    fn deep_size(&self) -> u64 {
        (size_of::<Self>() + self.pixels.capacity() + self.classes.capacity() * size_of::<i64>()) as u64
    }
}

/// Maximum size in bytes of a batch of `size` images.
pub fn batch_bytes_max(size: usize, side: usize) -> u64 {
    (size_of::<ImageBatch>() + size * (side * side * 3 + size_of::<i64>())) as u64
}

/// Draws and prepares batches; shared by the workers of a feed.
#[derive(Clone)]
pub struct BatchLoader {
    /// Index of the data.
    pub library: Arc<Library>,
    /// Classes of its images.
    pub labels: Arc<Labels>,
    /// Decoder of images.
    pub source: Arc<dyn ImageSource>,
    /// Settings of the size and of augmentation.
    pub settings: ImageClassification,
    /// Number of images in a batch.
    pub size: usize,
    /// `experiment.seed`.
    pub seed: u32,
}

impl BatchLoader {
    /// Training batch `number` (from 0). Each image occurs once in an epoch; a batch may extend into the next epoch.
    ///
    /// # Errors
    /// An image cannot be decoded.
    pub fn training_batch(&self, number: u64) -> Result<ImageBatch, DataError> {
        let (all, size) = (&self.labels.train, self.size as u64);
        // The text seeds the permutation: it is part of committed results.
        let numbers = items_of_batch(self.seed, "training pictures", number, size, all.len() as u64);
        let images: Vec<LabelledImage> = numbers.map(|at| all[at as usize]).collect();
        let generator = &mut generator(self.seed, "augmentation", number);
        self.batch(&images, |image, object| self.augment(image, object, generator))
    }

    /// Batch of the held-out images in `range`, without augmentation.
    ///
    /// # Errors
    /// An image cannot be decoded.
    pub fn held_out(&self, range: std::ops::Range<usize>) -> Result<ImageBatch, DataError> {
        let side = self.settings.image_size;
        self.batch(&self.labels.held_out[range], |image, _| transform::letterbox(image, side).0)
    }

    fn batch(
        &self,
        images: &[LabelledImage],
        mut to_input: impl FnMut(&HostImage, &BoundingBox) -> HostImage,
    ) -> Result<ImageBatch, DataError> {
        let side = self.settings.image_size;
        let mut pixels = Vec::with_capacity(images.len() * side * side * 3);
        let mut classes = Vec::with_capacity(images.len());
        for labelled in images {
            let image = self.source.image(&labelled.frame(&self.library).path)?;
            pixels.extend_from_slice(&to_input(&image, &labelled.rectangle).rgb);
            classes.push(i64::from(labelled.class));
        }
        Ok(ImageBatch { pixels, classes })
    }

    /// Random crop that contains the centre of the object, scaled to the square, and mirrored with probability 0.5.
    fn augment(&self, image: &HostImage, object: &BoundingBox, generator: &mut ChaCha8Rng) -> HostImage {
        let ImageClassification { image_size, flip, crop, .. } = self.settings;
        // All numbers are drawn in any case, so that a setting of one augmentation does not change the other.
        let (area, x, y) = (generator.random_range(crop..=1.0), generator.random::<f32>(), generator.random::<f32>());
        let mirrored = generator.random_bool(0.5) && flip;
        let square = match crop < 1.0 {
            true => {
                let window = window(image, object, (area as f32).sqrt(), [x, y]);
                transform::letterbox(&transform::crop(image, &window, 0.0), image_size).0
            }
            false => transform::letterbox(image, image_size).0,
        };
        if mirrored { transform::flip(&square) } else { square }
    }
}

/// Window of `scale` times the image's sides that contains the centre of the object. `position` in [0, 1] slides it between the
/// two extremes that keep the centre inside.
fn window(image: &HostImage, object: &BoundingBox, scale: f32, position: [f32; 2]) -> BoundingBox {
    let along = |length: usize, centre: f32, position: f32| {
        let (length, extent) = (length as f32, length as f32 * scale);
        let (lowest, highest) = ((centre - extent).max(0.0), centre.min(length - extent).max(0.0));
        let from = lowest.min(highest) + (highest - lowest).max(0.0) * position;
        (from, from + extent)
    };
    let (left, right) = along(image.width, (object.left + object.right) / 2.0, position[0]);
    let (top, bottom) = along(image.height, (object.top + object.bottom) / 2.0, position[1]);
    BoundingBox { left, top, right, bottom }
}

#[cfg(test)]
#[path = "batch_tests.rs"]
mod tests;
