//! Buffers of the task and their caps, for the plan and for the code that fills them.

use super::batch::batch_bytes_max;
use super::coco_files;
use super::overlay::image_bytes_max;
use super::prepare::{Pretrained, held_out};
use super::scoring;
use super::settings::{FewshotDetection, ReferenceDetector};
use super::sizes;
use xrun_core::bounded::buffer::Buffer;
use xrun_core::bounded::ledger::{Cap, Policy};
use xrun_core::dataset::sample::HostImage;
use xrun_core::experiment::Experiment;
use xrun_data::boxes::library::Library;
use xrun_data::feed;
use xrun_data::micro_batches;
use xrun_training::metrics::separation;

xrun_core::buffers! {
    /// Buffers of the task, without those of the data set.
    pub struct Buffers {
        /// Prepared batches.
        pub feed: feed::Buffers,
        /// Detections of a validation.
        pub scoring: scoring::Buffers,
        /// Write buffer of the files for pycocotools; `None` if they are not written.
        pub files: Option<Buffer>,
        /// Sums of the embeddings of held-out classes.
        pub embeddings: Buffer,
        /// Current batch of a validation.
        pub validation_batch: Buffer,
        /// Images of a validation for the report.
        pub validation_images: Buffer,
        /// Gradients of concurrent micro-batches.
        pub part_gradients: Buffer,
    }
}

impl Buffers {
    /// Caps for the settings and the data.
    pub fn new(
        settings: &FewshotDetection,
        model: &ReferenceDetector,
        backbone: Option<&Pretrained>,
        library: &Library,
        experiment: &Experiment,
    ) -> Self {
        let limits = &experiment.limits;
        let bytes = batch_bytes_max(settings);
        let images = images_cap(experiment.validation.images, settings.image_size);
        Self {
            feed: feed::Buffers::new(limits, bytes),
            scoring: scoring::Buffers::new(settings),
            files: settings.save_detections.then(coco_files::buffer),
            embeddings: separation::buffer(held_out(library).len(), model.embedding_size),
            validation_batch: Buffer::new("validation_batch", Policy::Refuse, Cap { items: 1, bytes })
                .because("one episode of a validation"),
            validation_images: Buffer::new("validation_images", Policy::Refuse, images)
                .key("validation.images")
                .because("`validation.images`, for the report"),
            part_gradients: micro_batches::gradient_buffer(
                sizes::parameters(model, backbone, settings.image_size),
                limits,
            ),
        }
    }
}

/// Cap for a number of images of query frames with this side.
fn images_cap(count: usize, side: usize) -> Cap {
    let each = image_bytes_max(side) + size_of::<HostImage>() as u64;
    Cap { items: count as u64, bytes: count as u64 * each }
}
