//! Leaks that `[leaks]` can switch on, and the growth that the forecast expects of each. They are separate from the training module: a
//! callback, a wrapper of the source of images, and a wrapper of the function that the workers of the feed call.
//!
//! The images of a run are a pure function of its seed, and can be counted before any is decoded.

#[cfg(feature = "train")]
pub mod callbacks;
pub mod data;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::episode::{Episode, Episodes, Exemplar};
use super::prepare::Prepared;
use super::step_kind::StepKind;
use xrun_core::bounded::leak_growth::{GrowthEvent, LeakGrowth, LinearGrowth};
use xrun_core::bounded::ledger::Ledger;
use xrun_core::dataset::sample::HostImage;
use xrun_core::experiment::Experiment;
use xrun_core::experiment::leaks::Leak;
use xrun_core::leaks;
use xrun_core::settings::sections::Limits;
use xrun_core::task::TaskFacts;
use xrun_data::boxes::library::Library;
use xrun_training::leaks::copies;
pub use xrun_training::leaks::{
    BATCHES_ON_DEVICE, DATA_PER_WORKER, EMBEDDINGS_WITH_GRAPH, GRADIENTS, LOG_HISTORY, LOSS_WITH_GRAPH,
    OUTPUTS_WITH_GRAPH, THREAD_POOLS, VALIDATION_WITH_GRAPH,
};

leaks! {
    /// Detections of all validations.
    VALIDATION_PREDICTIONS = "validation_predictions", on_host, "Keep every detection of every validation.";
    /// Decoded frames that are never evicted.
    FRAME_CACHE = "frame_cache", on_host, "Keep each decoded frame: a cache bounded by a count that is never reached.";
    /// Copies of batches in addition to the queue of the workers.
    WORKER_QUEUE = "worker_queue", on_host, "Keep a copy of each prepared batch in a second queue without a bound.";
}

/// Leaks of this pipeline.
pub const LEAKS: &[&Leak] = &[
    &GRADIENTS,
    &OUTPUTS_WITH_GRAPH,
    &EMBEDDINGS_WITH_GRAPH,
    &BATCHES_ON_DEVICE,
    &LOSS_WITH_GRAPH,
    &VALIDATION_PREDICTIONS,
    &VALIDATION_WITH_GRAPH,
    &FRAME_CACHE,
    &DATA_PER_WORKER,
    &WORKER_QUEUE,
    &LOG_HISTORY,
    &THREAD_POOLS,
];

/// Maximum number of batches that are drawn to count images, which takes about a second; the counts of longer runs are extrapolated.
const BATCHES_DRAWN_MAX: u64 = 50_000;

/// Adds the buffers of the leaks that are switched on to the plan, and wraps the source of images.
pub fn inject(facts: &mut TaskFacts, prepared: &mut Prepared, experiment: &Experiment, ledger: &Ledger) {
    let (leaks, episodes) = (&experiment.leaks, &prepared.batches.episodes);
    let growth_of = |leak: &Leak| leak_growth(leak, episodes, experiment, facts.batches_per_epoch);
    let owners = leaks.planned_buffers(LEAKS, growth_of);
    facts.owners.extend(owners);
    prepared.batches.wrap_source(|source| data::source(source, leaks, ledger));
}

/// Growth of `leak` over the run.
pub fn leak_growth(leak: &Leak, episodes: &Episodes, experiment: &Experiment, batches_per_epoch: u64) -> LeakGrowth {
    let training = &experiment.training;
    let accumulation = training.gradient_accumulation as f64;
    match *leak {
        OUTPUTS_WITH_GRAPH | EMBEDDINGS_WITH_GRAPH | BATCHES_ON_DEVICE => {
            LeakGrowth::with(GrowthEvent::Step, accumulation * (1.0 - episodes.settings.triplet_ratio))
        }
        VALIDATION_WITH_GRAPH => LeakGrowth::with(GrowthEvent::Validation, 1.0),
        VALIDATION_PREDICTIONS => LeakGrowth::with(GrowthEvent::Episode, 1.0),
        THREAD_POOLS => LeakGrowth::with(GrowthEvent::Epoch, 1.0),
        WORKER_QUEUE => {
            let at_start = batches_ahead(&experiment.limits);
            LeakGrowth::Linear(LinearGrowth { with: GrowthEvent::Step, each: accumulation, at_start })
        }
        FRAME_CACHE | DATA_PER_WORKER => {
            let steps = training.steps(batches_per_epoch).1;
            let batches = steps.saturating_mul(training.gradient_accumulation as u64);
            let reads =
                ImageReads::count(episodes, batches.saturating_add(batches_ahead(&experiment.limits)), experiment);
            let copies = if *leak == DATA_PER_WORKER { experiment.limits.workers.max(1) } else { 1 };
            let with_training = experiment.limits.workers == 0 || *leak == FRAME_CACHE;
            LeakGrowth::Total(reads.bytes(&episodes.library, copies as f64, with_training))
        }
        _ => LeakGrowth::with(GrowthEvent::Step, 1.0),
    }
}

/// Number of batches that are prepared in advance; 0 without workers.
fn batches_ahead(limits: &Limits) -> u64 {
    if limits.workers == 0 { 0 } else { limits.batches_ahead() }
}

/// Images that a run reads.
#[derive(Debug, Default, PartialEq)]
struct ImageReads<'a> {
    /// Number of training batches that read an image, by its path.
    training: BTreeMap<&'a Path, f64>,
    validation: BTreeSet<&'a Path>,
}

impl<'a> ImageReads<'a> {
    fn count(episodes: &'a Episodes, batches: u64, experiment: &Experiment) -> Self {
        let mut reads = Self::default();
        let drawn = batches.min(BATCHES_DRAWN_MAX);
        for number in 0..drawn {
            let images = match episodes.kind_of_batch(number) {
                StepKind::Detection => episode_paths(&episodes.draw(number), &episodes.library),
                StepKind::Triplet => {
                    let triplets = episodes.draw_triplets(number);
                    let exemplars =
                        triplets.iter().flat_map(|triplet| [triplet.anchor, triplet.positive, triplet.negative]);
                    exemplars.map(|exemplar| exemplar_path(&exemplar, &episodes.library)).collect()
                }
            };
            for path in images {
                *reads.training.entry(path).or_default() += batches as f64 / drawn as f64;
            }
        }
        let cadence = &experiment.validation;
        if cadence.at_start || cadence.every_steps > 0 || cadence.every_epochs > 0 {
            for number in 0..episodes.validation_episodes(cadence.batches) {
                reads.validation.extend(episode_paths(&episodes.draw_validation(number), &episodes.library));
            }
        }
        reads
    }

    /// Size of the decoded images in bytes. Each of `workers` keeps a copy of the training images that it reads; the training thread
    /// keeps the validation images, and `shared` is whether training and validation images have one cache.
    fn bytes(&self, library: &Library, workers: f64, shared: bool) -> u64 {
        let sizes = DecodedSizes::new(library);
        let kept = |(path, batches): (&&Path, &f64)| copies(workers, *batches) * sizes.bytes(path);
        let training: f64 = self.training.iter().map(kept).sum();
        let validation = self.validation.iter().filter(|path| !(shared && self.training.contains_key(*path)));
        (training + validation.map(|path| sizes.bytes(path)).sum::<f64>()) as u64
    }
}

fn episode_paths<'a>(episode: &Episode, library: &'a Library) -> BTreeSet<&'a Path> {
    let references = episode.references.iter().flatten().map(|exemplar| exemplar_path(exemplar, library));
    let queries = episode.queries.iter().map(|query| &*library.videos[query.video].frames[query.frame].path);
    references.chain(queries).collect()
}

fn exemplar_path<'a>(exemplar: &Exemplar, library: &'a Library) -> &'a Path {
    exemplar.place(library).0
}

/// Sizes of decoded images in bytes.
struct DecodedSizes<'a> {
    root: &'a Path,
    frames: BTreeMap<&'a Path, f64>,
    /// Mean over all frames.
    average: f64,
}

impl<'a> DecodedSizes<'a> {
    fn new(library: &'a Library) -> Self {
        let frames = library.videos.iter().flat_map(|video| &video.frames);
        let frames: BTreeMap<&Path, f64> =
            frames.map(|frame| (&*frame.path, decoded_bytes(frame.width, frame.height))).collect();
        let average = frames.values().sum::<f64>() / frames.len().max(1) as f64;
        Self { root: &library.root, frames, average }
    }

    /// Size of an image. That of a reference image is read from its file; the mean of the frames is used if that fails.
    fn bytes(&self, path: &Path) -> f64 {
        let from_file = || image::image_dimensions(self.root.join(path)).ok();
        let from_file = || from_file().map(|(width, height)| decoded_bytes(width as usize, height as usize));
        self.frames.get(path).copied().or_else(from_file).unwrap_or(self.average)
    }
}

fn decoded_bytes(width: usize, height: usize) -> f64 {
    HostImage::bytes(width, height) as f64
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::batch::BatchLoader;
    use super::super::episode::tests::{GreyFrames, SHAPE, episodes, library};
    use super::super::settings::FewshotDetection;
    use super::*;
    use xrun_core::experiment::leaks::Leaks;

    pub(super) fn small() -> FewshotDetection {
        FewshotDetection { n_way: 2, n_query: 1, image_size: 32, reference_size: 32, ..FewshotDetection::default() }
    }

    fn drawn() -> Episodes {
        episodes(library(SHAPE), small(), 7).unwrap()
    }

    fn experiment(leak: &str, steps: u64, workers: usize) -> Experiment {
        let text = format!(
            "[pipeline.fewshot-detection]\n[training]\nepochs = 1000\nmax_steps = {steps}\n[limits]\nworkers = {workers}\n\
             prefetch = 1\n[validation]\nbatches = 3\n[leaks]\n{leak} = true\n"
        );
        toml::from_str(&text).unwrap()
    }

    /// Bytes that the leak holds after a number of batches, prepared by `workers` threads in turn, and a validation.
    fn held(leaks: &Leaks, batches: u64, workers: u64) -> u64 {
        let ledger = Ledger::default();
        let all = BatchLoader::new(drawn(), data::source(Arc::new(GreyFrames), leaks, &ledger));
        let prepare = |worker: u64| {
            for number in (0..batches).filter(|number| number % workers == worker) {
                all.training_batch(number).unwrap();
            }
        };
        match workers {
            1 => prepare(0),
            _ => std::thread::scope(|scope| (0..workers).for_each(|worker| drop(scope.spawn(move || prepare(worker))))),
        }
        (0..3).for_each(|number| drop(all.validation_batch(number).unwrap()));
        ledger.read()[0].bytes
    }

    #[test]
    fn the_forecast_of_kept_images_is_exact_without_workers() {
        for (leak, key) in [(&FRAME_CACHE, "frame_cache"), (&DATA_PER_WORKER, "data_per_worker")] {
            for steps in [1, 5, 40] {
                let experiment = experiment(key, steps, 0);
                let counted = leak_growth(leak, &drawn(), &experiment, 10);
                assert_eq!(counted, LeakGrowth::Total(held(&experiment.leaks, steps, 1)), "{key}, {steps} steps");
            }
        }
    }

    #[test]
    fn each_worker_keeps_a_copy_of_the_images_that_it_reads() {
        let experiment = experiment("data_per_worker", 20, 3);
        let LeakGrowth::Total(counted) = leak_growth(&DATA_PER_WORKER, &drawn(), &experiment, 10) else {
            panic!("the growth is limited by the data");
        };
        // The workers are three batches ahead of the last step.
        let held = held(&experiment.leaks, 23, 3);
        assert!((counted as f64 / held as f64 - 1.0).abs() < 0.1, "forecast {counted}, held {held}");
        let alone = leak_growth(&FRAME_CACHE, &drawn(), &experiment, 10);
        assert!(matches!(alone, LeakGrowth::Total(bytes) if bytes * 3 / 2 < counted), "{alone:?}, {counted}");
    }

    #[test]
    fn the_leaked_queue_has_all_prepared_batches() {
        let grown =
            |workers, steps| match leak_growth(&WORKER_QUEUE, &drawn(), &experiment("worker_queue", 9, workers), 10) {
                LeakGrowth::Linear(growth) => growth.given(steps),
                _ => panic!("the growth is unlimited"),
            };
        assert_eq!([grown(0, 8), grown(0, 80)], [8, 80]);
        assert_eq!([grown(2, 8), grown(2, 80)], [10, 82], "two batches are prepared in advance");
    }

    #[test]
    fn leaks_of_detection_batches_do_not_grow_with_triplet_batches() {
        let LeakGrowth::Linear(growth) =
            leak_growth(&BATCHES_ON_DEVICE, &drawn(), &experiment("batches_on_device", 9, 0), 10)
        else {
            panic!("the growth is unlimited");
        };
        assert_eq!([0, 1, 8, 10, 400].map(|steps| growth.given(steps)), [0, 1, 6, 7, 280], "three of ten are triplets");
    }
}
