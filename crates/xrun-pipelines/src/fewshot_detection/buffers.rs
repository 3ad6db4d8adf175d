//! Which buffers does the task have, and how much may each hold? Declared once, for the plan and for whoever fills them.

use super::batch::batch_bytes_max;
use super::coco_files;
use super::pictures::picture_bytes_max;
use super::prepare::held_out;
use super::scoring;
use super::settings::{Model, Settings};
use super::sizes;
use crate::metrics::separation;
use xrun_core::bounded::buffer::Buffer;
use xrun_core::bounded::ledger::{Cap, Policy};
use xrun_core::dataset::sample::Picture;
use xrun_core::experiment::Experiment;
use xrun_data::boxes::library::Library;
use xrun_data::feed;
use xrun_data::micro_batches;

/// All but those of the data set, which has its own.
#[derive(Clone, Debug)]
pub struct Buffers {
    /// Batches on their way to the trainer.
    pub feed: feed::Buffers,
    /// Detections of a validation.
    pub scoring: scoring::Buffers,
    /// Files for pycocotools on their way to the disk; `None` where they are not asked for.
    pub files: Option<Buffer>,
    /// Embeddings of held-out classes, summed up by class.
    pub embeddings: Buffer,
    /// The batch that a validation is looking at.
    pub validation_batch: Buffer,
    /// Pictures of a validation for the report.
    pub validation_pictures: Buffer,
    /// Gradients of the parts of a batch.
    pub part_gradients: Buffer,
}

impl Buffers {
    /// Declares them from the settings and from what the data says.
    pub fn new(settings: &Settings, model: &Model, library: &Library, experiment: &Experiment) -> Self {
        let limits = &experiment.limits;
        let bytes = batch_bytes_max(settings);
        let pictures = pictures_cap(experiment.validation.pictures, settings.image_size);
        Self {
            feed: feed::Buffers::new(limits, bytes),
            scoring: scoring::Buffers::new(settings),
            files: settings.save_detections.then(coco_files::buffer),
            embeddings: separation::buffer(held_out(library).len(), model.embedding),
            validation_batch: Buffer::new("validation_batch", Policy::Refuse, Cap { items: 1, bytes })
                .because("one episode of a validation"),
            validation_pictures: Buffer::new("validation_pictures", Policy::Refuse, pictures)
                .key("validation.pictures")
                .because("`validation.pictures`, for the report"),
            part_gradients: micro_batches::gradient_buffer(sizes::parameters(model, settings.image_size), limits),
        }
    }

    /// All of them that this experiment has.
    pub fn all(&self) -> impl Iterator<Item = &Buffer> {
        let validation = [&self.embeddings, &self.validation_batch, &self.validation_pictures, &self.part_gradients];
        self.feed.all().into_iter().chain(self.scoring.all()).chain(&self.files).chain(validation)
    }
}

/// Of so many pictures; `side` is that of a query frame.
fn pictures_cap(count: usize, side: usize) -> Cap {
    // A pixel's bytes and the picture itself.
    let each = picture_bytes_max(side) + size_of::<Picture>() as u64;
    Cap { items: count as u64, bytes: count as u64 * each }
}
