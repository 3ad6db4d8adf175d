//! Buffers of the task and their caps, for the plan and for the code that fills them.

use super::batch::batch_bytes_max;
use super::coco_files;
use super::episode::Episodes;
use super::overlay::image_bytes_max;
use super::scoring;
use super::settings::{FewshotDetection, ReferenceDetector};
use super::sizes;
use xrun_core::bounded::buffer::Buffer;
use xrun_core::bounded::ledger::{Cap, Policy};
use xrun_core::experiment::Experiment;
use xrun_data::feed;
use xrun_data::micro_batches;
use xrun_training::backbone::Pretrained;
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
        /// Sums of the embeddings of the classes of a validation.
        pub embeddings: Buffer,
        /// First references of fixed classes; `None` if classes are held out.
        pub references: Option<Buffer>,
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
        episodes: &Episodes,
        experiment: &Experiment,
    ) -> Self {
        let limits = &experiment.limits;
        let shown = experiment.validation.images as u64;
        let images = Cap { items: shown, bytes: shown * image_bytes_max(settings.image_size) };
        let classes = episodes.validated.len();
        let fixed_classes = episodes.fixed_classes();
        let bytes = batch_bytes_max(settings, fixed_classes);
        let references = (classes * settings.reference_size.pow(2) * 3) as u64;
        let validation_bytes = bytes + fixed_classes.map_or(0, |_| references);
        Self {
            feed: feed::Buffers::new(limits, bytes),
            scoring: scoring::Buffers::new(settings, fixed_classes),
            files: settings.save_detections.then(coco_files::buffer),
            embeddings: separation::buffer(classes, model.embedding_size),
            references: fixed_classes.map(|classes| {
                let cap = Cap { items: classes as u64, bytes: references };
                Buffer::new("reference_crops", Policy::Refuse, cap).because("the first reference of each class")
            }),
            validation_batch: Buffer::new(
                "validation_batch",
                Policy::Refuse,
                Cap { items: 1, bytes: validation_bytes },
            )
            .because("one episode of a validation"),
            validation_images: Buffer::new("validation_images", Policy::Refuse, images)
                .key("validation.images")
                .because("`validation.images`, for the report"),
            part_gradients: micro_batches::gradient_buffer(
                sizes::parameters(model, backbone, fixed_classes.unwrap_or(0), settings.image_size),
                limits,
            ),
        }
    }
}
