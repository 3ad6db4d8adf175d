//! Preparation of a run: opens the data and plans the buffers, before a device is used.

use std::sync::Arc;

use super::batch::BatchLoader;
use super::buffers::Buffers;
use super::episode::Episodes;
use super::leaks;
use super::scoring::PERMUTED;
use super::settings::{FewshotDetection, ReferenceDetector};
use super::sizes;
use super::step_kind::batches_per_epoch;
use xrun_core::bounded::ledger::Ledger;
use xrun_core::bounded::planned::PlannedBuffer;
use xrun_core::dataset::error::DataError;
use xrun_core::experiment::Experiment;
use xrun_core::task::lowered::LoweredSetting;
use xrun_core::task::{Metric, TaskError, TaskFacts};
use xrun_core::units::pluralize;
use xrun_data::boxes::drawn::{Drawn, Fewest, drawn_classes};
use xrun_data::boxes::few_shot;
use xrun_data::boxes::frames;
use xrun_data::boxes::frames::FrameStore;
use xrun_data::boxes::library::Library;
use xrun_data::boxes::validation_split;
use xrun_data::describe::names;
use xrun_data::reading::decoding;
use xrun_training::backbone::Pretrained;

/// Validation metrics in the order of display. The first selects the best checkpoint unless the experiment names another.
pub const METRICS: &[Metric] = &[
    Metric::higher("map50", SHARE)
        .within(PRECISION, "map50")
        .baseline(PERMUTED)
        .about("Mean average precision at IoU 0.5 over the classes of the validation, as pycocotools computes it."),
    Metric::constant(PERMUTED, SHARE)
        .within(PRECISION, "map50 by chance")
        .about("`map50` of the same detections with permuted classes: the chance of a detector with these boxes and scores."),
    Metric::higher("map", SHARE)
        .within(PRECISION, "map")
        .about("Mean average precision over the ten IoUs from 0.5 to 0.95."),
    Metric::higher("map_small", SHARE).within(PRECISION, "map_small").about("`map` of objects up to 32² square pixels."),
    Metric::higher("map_medium", SHARE)
        .within(PRECISION, "map_medium")
        .about("`map` of objects from 32² to 96² square pixels."),
    Metric::higher("map_large", SHARE).within(PRECISION, "map_large").about("`map` of objects above 96² square pixels."),
    Metric::higher("recall", SHARE)
        .within(RECALL, "recall")
        .about("Fraction of objects found at IoU 0.5, with any score."),
    Metric::higher("ar_1", SHARE)
        .within(RECALL, "ar_1")
        .about("Fraction of objects found by the best detection of a class in an image, mean over the ten IoUs."),
    Metric::higher("ar_10", SHARE).within(RECALL, "ar_10").about("`ar_1` with the 10 best detections."),
    Metric::higher("ar_100", SHARE).within(RECALL, "ar_100").about("`ar_1` with the 100 best detections."),
    Metric::higher("st_iou", SHARE)
        .within(IN_VIDEOS, "st_iou")
        .about("Spatio-temporal IoU: IoU summed over the frames of a video, over the number of frames where the object is present or found."),
    Metric::higher("episode_map50", SHARE)
        .within(EPISODES, "map50")
        .about("Mean over episodes of the `map50` of each episode."),
    Metric::higher("episode_map", SHARE)
        .within(EPISODES, "map")
        .about("Mean over episodes of the `map` of each episode."),
    Metric::higher("episode_st_iou", SHARE)
        .within(EPISODES, "st_iou")
        .about("Mean over episodes of the `st_iou` of each episode."),
    Metric::higher("embedding_within", COSINE)
        .within(EMBEDDINGS, "within a class")
        .about("Mean cosine of the embeddings of two reference images of one class."),
    Metric::lower("embedding_between", COSINE)
        .within(EMBEDDINGS, "between classes")
        .about("Mean cosine of the embeddings of reference images of two classes."),
];

/// Figures of the report.
const PRECISION: &str = "Average precision";
const RECALL: &str = "Recall";
const IN_VIDEOS: &str = "Objects followed through videos";
const EPISODES: &str = "Means over episodes";
const EMBEDDINGS: &str = "Similarity of embeddings";

/// Legend of the images of a validation.
const LEGEND: &str = "Thin white boxes: the true objects. Coloured boxes: detections, in the colour of the frame around the \
                      reference image of their class on the right. ✓: all objects were found with their class at an IoU of 0.5 \
                      or more, and there are no other detections. ✗: an object was missed, or a detection is wrong. After a \
                      class: the scores of its detections.";

/// Unit of metrics from 0 to 1.
const SHARE: &str = "share";
/// Unit of metrics from -1 to 1.
const COSINE: &str = "cosine";

/// Parts of a step that are captured, as in [`TaskFacts::captures`].
pub const CAPTURES: &str = "an episode for each shape, the updates, and validation; triplets, which the host mines, are launched \
                            operation by operation";

/// Strides of the feature maps of a backbone.
pub const MAPS: [usize; 2] = [8, 16];

/// Opened data and settings of a task.
#[derive(Debug)]
pub struct Prepared {
    /// Pretrained backbone up to the feature maps of the pyramid, if the experiment has one.
    pub backbone: Option<Pretrained>,
    /// Settings of the task.
    pub settings: FewshotDetection,
    /// Settings of the model.
    pub model: ReferenceDetector,
    /// Source of batches.
    pub batches: BatchLoader,
    /// Decoder of images, with a cache.
    pub store: Arc<FrameStore>,
    /// Buffers of the task.
    pub buffers: Buffers,
}

/// Number of steps of a probe: enough for two batches of each kind, and for allocators to reach a steady state.
fn probe_steps(settings: &FewshotDetection, accumulation: usize) -> u64 {
    const MIN: u64 = 8;
    let rarer = settings.triplet_ratio.min(1.0 - settings.triplet_ratio);
    let batches = if rarer > 0.0 { (2.0 / rarer).ceil() as u64 } else { MIN };
    batches.clamp(MIN, 64).div_ceil(accumulation as u64).max(2)
}

const N_WAY: &str = "pipeline.fewshot-detection.n_way";
const N_SHOT: &str = "pipeline.fewshot-detection.n_shot";
const TRIPLET_BATCH_SIZE: &str = "pipeline.fewshot-detection.triplet_batch_size";
const N_QUERY: &str = "pipeline.fewshot-detection.n_query";

/// Settings that the data limits: classes, references and frames of an episode, and triplets of a batch.
pub fn lowered_settings(settings: &FewshotDetection, drawn: &Drawn) -> Vec<LoweredSetting> {
    let mut all = Vec::new();
    let mut clamp = |key: &str, requested: usize, used: usize, because: String| {
        all.extend(LoweredSetting::detect(key, requested as u64, used as u64, because));
    };
    // Without held-out classes none of theirs is drawn.
    let held_out = Some((&drawn.held_out, "held-out")).filter(|(classes, _)| classes.count > 0);
    for (classes, part) in std::iter::once((&drawn.train, "training")).chain(held_out) {
        let plural = if classes.count == 1 { "class" } else { "classes" };
        clamp(N_WAY, settings.n_way, classes.count, format!("the data has {} {part} {plural}", classes.count));
        if let Some(Fewest { class, count }) = &classes.references {
            let references = pluralize(*count as u64, "reference");
            clamp(N_SHOT, settings.n_shot, *count, format!("the {part} class \"{class}\" has only {references}"));
        }
        if let Some(Fewest { class, count }) = &classes.frames {
            let frames = pluralize(*count as u64, "frame");
            let because = format!("the {part} class \"{class}\" has only {frames} in addition to a reference");
            clamp(N_QUERY, settings.n_query, *count, because);
        }
    }
    if settings.triplet_ratio > 0.0 {
        let because = format!(
            "the data has {} of objects, and a triplet needs three",
            pluralize(drawn.train.images as u64, "training image")
        );
        clamp(TRIPLET_BATCH_SIZE, settings.triplet_batch_size, drawn.train.images / 3, because);
    }
    all
}

/// Divides the data if no class is held out, and indexes it. Settings of the episodes are those of the data.
///
/// # Errors
/// The data has too few classes or images.
pub fn draw_from(
    mut library: Library,
    settings: &FewshotDetection,
    experiment: &Experiment,
) -> Result<(Episodes, Drawn), DataError> {
    few_shot::check(&library)?;
    let (seed, accumulation) = (experiment.experiment.seed, experiment.training.gradient_accumulation);
    if !library.holds_out_classes() {
        validation_split::divide(&mut library, settings.validation_fraction, seed);
    }
    let drawn = drawn_classes(&library);
    // Buffers are planned for the actual size of episodes.
    let n_way = settings.n_way.min(drawn.train.count.max(drawn.held_out.count)).max(1);
    let settings = FewshotDetection { n_way, ..settings.clone() };
    Ok((Episodes::new(Arc::new(library), settings, seed, accumulation)?, drawn))
}

/// Note on an ordinary detector, of data without held-out classes; `None` if classes are held out.
pub fn fixed_classes_note(episodes: &Episodes, experiment: &Experiment) -> Option<String> {
    let (all, validated) = episodes.validation_frames(experiment.validation.batches)?;
    let library = &episodes.library;
    let images = library.videos.iter().map(|video| video.frames.len()).sum::<usize>() - all;
    Some(format!(
        "no class is held out: an ordinary detector of {} ({}), trained on {}, validated on {validated} of {all} others; \
         `n_shot` and `augmentations` have no effect; `validation_classes` would hold classes out for few-shot detection",
        pluralize(episodes.validated.len() as u64, "class"),
        names(episodes.validated.iter().map(|class| library.classes[*class].name.as_str())),
        pluralize(images as u64, "image"),
    ))
}

/// Opens the data, and registers the frame cache and the index in the ledger.
///
/// # Errors
/// The data cannot be used.
pub fn prepare(
    settings: &FewshotDetection,
    experiment: &Experiment,
    ledger: &Ledger,
) -> Result<(TaskFacts, Prepared), TaskError> {
    let model: &ReferenceDetector = experiment.model_settings()?;
    let (episodes, drawn) = draw_from(experiment.open_dataset()?, settings, experiment)?;
    let library = episodes.library.clone();
    let limits = &experiment.limits;
    decoding::fits(library.largest.as_ref(), limits)?;
    let batches_per_epoch = batches_per_epoch(&library, settings);
    let lowered = lowered_settings(settings, &drawn);
    let settings = &episodes.settings.clone();
    let (batches, accumulation) = (experiment.validation.batches, experiment.training.gradient_accumulation);
    let validation_frames = match episodes.validation_frames(batches) {
        Some((_, frames)) => frames as u64,
        None => (batches * settings.n_way * settings.n_query) as u64,
    };
    let data_buffers = frames::Buffers::new(&library, limits, validation_frames);
    let data_buffers = data_buffers.with_class_index(&library, episodes.index_bytes());
    let store = Arc::new(FrameStore::new(&library, ledger, &data_buffers));
    let backbone = Pretrained::of(experiment, settings.image_size)?;
    let backbone = backbone.map(|of| Pretrained { architecture: of.architecture.until(MAPS[1]), ..of });
    let buffers = Buffers::new(settings, model, backbone.as_ref(), &episodes, experiment);
    let owners = PlannedBuffer::all(&[&data_buffers, &buffers]);
    let images = settings.n_way * settings.n_query;
    let note = |of: &Pretrained| of.note(images.min(limits.batch_size), settings.image_size);
    let mut facts = TaskFacts {
        trained_parameters: backbone
            .as_ref()
            .map(|of| sizes::parameters(model, Some(of), episodes.fixed_classes().unwrap_or(0), settings.image_size)),
        owners,
        data_digests: vec![(experiment.dataset_name().into(), library.digest.clone())],
        data_skipped: library.skipped.clone(),
        lowered,
        batch_items: (settings.n_way * settings.n_query) as u64,
        batch_keys: &[N_WAY, N_QUERY],
        probe_steps: probe_steps(settings, accumulation),
        captures: CAPTURES,
        images: LEGEND,
        notes: fixed_classes_note(&episodes, experiment).into_iter().chain(backbone.iter().map(note)).collect(),
        validation_batches: episodes.validation_episodes(batches),
        ..TaskFacts::new(batches_per_epoch, METRICS)
    };
    let batches = BatchLoader::new(episodes, store.clone());
    let mut prepared = Prepared { backbone, settings: settings.clone(), model: model.clone(), batches, store, buffers };
    leaks::inject(&mut facts, &mut prepared, experiment, ledger);
    Ok((facts, prepared))
}
