//! What does the data say before anything is on a device? Opened once, for the plan and then for the task.

use std::sync::Arc;

use super::batch::Batches;
use super::buffers::Buffers;
use super::episode::{DrawSettings, Episodes};
use super::mix::batches_per_epoch;
use super::settings::{Model, Settings};
use xrun_core::bounded::ledger::Ledger;
use xrun_core::bounded::planned::PlannedOwner;
use xrun_core::dataset::split::Split;
use xrun_core::experiment::Experiment;
use xrun_core::task::clamped::ClampedSetting;
use xrun_core::task::{Metric, TaskError, TaskFacts};
use xrun_core::units::counted;
use xrun_data::boxes::drawn::{Drawn, Fewest, drawn_classes};
use xrun_data::boxes::few_shot;
use xrun_data::boxes::frames;
use xrun_data::boxes::frames::FrameStore;
use xrun_data::boxes::library::Library;
use xrun_data::reading::decoding;

/// Validation metrics, in the order in which they are shown. The first chooses the best checkpoint unless the file names
/// another.
pub const METRICS: &[Metric] = &[
    Metric::higher("map50", SHARE)
        .within(PRECISION, "map50")
        .about("Mean average precision at IoU 0.5 over the held-out classes, as pycocotools computes it."),
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
        .about("The share of objects found at IoU 0.5, whatever the score."),
    Metric::higher("ar_1", SHARE)
        .within(RECALL, "ar_1")
        .about("The share found by the best detection of a class in a picture, mean over the ten IoUs."),
    Metric::higher("ar_10", SHARE).within(RECALL, "ar_10").about("The same of the 10 best detections."),
    Metric::higher("ar_100", SHARE).within(RECALL, "ar_100").about("The same of the 100 best detections."),
    Metric::higher("st_iou", SHARE)
        .within(IN_VIDEOS, "st_iou")
        .about("How well an object is followed through a video: IoU summed over frames, over the frames in which it is or is found."),
    Metric::higher("episode_map50", SHARE)
        .within(EPISODES, "map50")
        .about("The mean over episodes of the `map50` of each by itself."),
    Metric::higher("episode_map", SHARE)
        .within(EPISODES, "map")
        .about("The mean over episodes of the `map` of each by itself."),
    Metric::higher("episode_st_iou", SHARE)
        .within(EPISODES, "st_iou")
        .about("The mean over episodes of the `st_iou` of each by itself."),
    Metric::higher("embedding_within", COSINE)
        .within(EMBEDDINGS, "within a class")
        .about("Mean cosine of the embeddings of two reference pictures of one held-out class."),
    Metric::lower("embedding_between", COSINE)
        .within(EMBEDDINGS, "between classes")
        .about("Mean cosine of the embeddings of reference pictures of two held-out classes."),
];

/// Figures of a report.
const PRECISION: &str = "Average precision";
const RECALL: &str = "Recall";
const IN_VIDEOS: &str = "Objects followed through videos";
const EPISODES: &str = "Means over episodes";
const EMBEDDINGS: &str = "Similarity of embeddings";

/// What the pictures of a validation show.
const PICTURES: &str = "Thin white boxes: the objects that were asked for, where they are. Coloured boxes: what the model \
                        found; the colour is that of the frame of the class's reference picture on the right. ✓: every \
                        object was found with its class at an IoU of 0.5 or more, and nothing else was. ✗: an object was \
                        missed, or something is wrong. Behind a class: the scores of what was found as it.";

/// From 0 to 1.
const SHARE: &str = "share";
/// From -1 to 1.
const COSINE: &str = "cosine";

/// Opened data, and what the task needs of the experiment.
#[derive(Debug)]
pub struct Prepared {
    /// What may be set of the task.
    pub settings: Settings,
    /// What may be set of the model.
    pub model: Model,
    /// What draws and decodes batches.
    pub batches: Batches,
    /// What decodes pictures, and keeps some.
    pub store: Arc<FrameStore>,
    /// The buffers of the task.
    pub buffers: Buffers,
}

impl Prepared {
    /// What the data set has.
    pub fn library(&self) -> &Library {
        self.batches.episodes().library()
    }
}

/// Classes held out for validation, in the order of their numbers.
pub fn held_out(library: &Library) -> Vec<usize> {
    (0..library.classes.len()).filter(|class| library.classes[*class].split == Some(Split::Validation)).collect()
}

/// Steps that have both kinds of batch twice, and then some, as allocators settle.
fn probe_steps(settings: &Settings, accumulation: usize) -> u64 {
    const LEAST: u64 = 8;
    let rarer = settings.triplet_ratio.min(1.0 - settings.triplet_ratio);
    let batches = if rarer > 0.0 { (2.0 / rarer).ceil() as u64 } else { LEAST };
    batches.clamp(LEAST, 64).div_ceil(accumulation as u64).max(2)
}

const N_WAY: &str = "pipeline.fewshot-detection.n_way";
const N_SHOT: &str = "pipeline.fewshot-detection.n_shot";
const TRIPLET_BATCH_SIZE: &str = "pipeline.fewshot-detection.triplet_batch_size";
const N_QUERY: &str = "pipeline.fewshot-detection.n_query";

/// Episodes of fewer classes, references or frames than the settings ask for, and triplets of fewer pictures.
pub fn smaller(settings: &Settings, drawn: &Drawn) -> Vec<ClampedSetting> {
    let mut all = Vec::new();
    let mut cut = |key: &str, asked: usize, used: usize, because: String| {
        all.extend(ClampedSetting::detect(key, asked as u64, used as u64, because));
    };
    for (classes, classes_words, purpose) in [
        (&drawn.train, "classes to train on", "to train on"),
        (&drawn.held_out, "held-out classes for an episode of a validation", "to validate with"),
    ] {
        cut(N_WAY, settings.n_way, classes.count, format!("the data has {} {classes_words}", classes.count));
        if let Some(Fewest { class, count }) = &classes.references {
            let references = counted(*count as u64, "different reference");
            cut(N_SHOT, settings.n_shot, *count, format!("the class \"{class}\" has {references} {purpose}"));
        }
        if let Some(Fewest { class, count }) = &classes.frames {
            let frames = counted(*count as u64, "different frame");
            let because = format!("the class \"{class}\" has {frames} {purpose} beside a reference");
            cut(N_QUERY, settings.n_query, *count, because);
        }
    }
    if settings.triplet_ratio > 0.0 {
        let because = format!(
            "the data has {} of objects to train on, and a triplet is three",
            counted(drawn.train.pictures as u64, "picture")
        );
        cut(TRIPLET_BATCH_SIZE, settings.triplet_batch_size, drawn.train.pictures / 3, because);
    }
    all
}

/// Opens the data. The frame cache and the index enter the ledger here.
pub fn prepare(
    settings: &Settings,
    model: &Model,
    experiment: &Experiment,
    ledger: &Ledger,
) -> Result<(TaskFacts, Prepared), TaskError> {
    let library: Arc<Library> = Arc::new(experiment.open_dataset()?);
    few_shot::check(&library)?;
    let limits = &experiment.limits;
    decoding::fits(library.largest.as_ref(), limits)?;
    let batches_per_epoch = batches_per_epoch(&library, settings);
    let drawn = drawn_classes(&library);
    let smaller = smaller(settings, &drawn);
    // Buffers are as large as episodes will be.
    let settings =
        &Settings { n_way: settings.n_way.min(drawn.train.count.max(drawn.held_out.count)).max(1), ..settings.clone() };
    let validation_frames = (experiment.validation.episodes * settings.n_way * settings.n_query) as u64;
    let of_data = frames::Buffers::new(&library, limits, validation_frames);
    let store = Arc::new(FrameStore::new(&library, ledger, &of_data));
    let draws = DrawSettings {
        seed: experiment.experiment.seed,
        triplet_batch_size: settings.triplet_batch_size,
        accumulation: experiment.training.accumulation,
    };
    let buffers = Buffers::new(settings, model, &library, experiment);
    let owners: Vec<PlannedOwner> = of_data.all().into_iter().chain(buffers.all()).map(PlannedOwner::from).collect();
    let episodes = Episodes::new(library.clone(), settings.clone(), draws)?;
    let facts = TaskFacts {
        owners,
        data_digests: vec![(experiment.dataset_name().into(), library.digest.clone())],
        data_left_out: library.left_out.clone(),
        smaller,
        batch_items: (settings.n_way * settings.n_query) as u64,
        batch_keys: &[N_WAY, N_QUERY],
        probe_steps: probe_steps(settings, experiment.training.accumulation),
        pictures: PICTURES,
        ..TaskFacts::new(batches_per_epoch, METRICS)
    };
    let batches = Batches::new(episodes, store.clone());
    Ok((facts, Prepared { settings: settings.clone(), model: model.clone(), batches, store, buffers }))
}
