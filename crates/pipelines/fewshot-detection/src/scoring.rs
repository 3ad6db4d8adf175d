//! Metrics of the detections of a validation, over all episodes and by episode. Independent of Burn.
//!
//! `map50`, `map`, `recall` and similar metrics are over the frames of all episodes together. The means over episodes are of the
//! scores of each episode, as papers on few-shot learning report them, with a 95 % confidence interval.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::decode::FrameDetection;
use super::episode::Query;
use super::settings::FewshotDetection;
use xrun_core::bounded::buffer::Buffer;
use xrun_core::bounded::ledger::{Cap, Ledger, Policy, Registration};
use xrun_core::dataset::sample::BoundingBox;
use xrun_core::task::confusion::{ClassResult, Confusion};
use xrun_core::task::metric::Interval;
use xrun_data::boxes::library::{Library, Object};
use xrun_training::metrics::average_precision;
use xrun_training::metrics::average_precision::AveragePrecision;
use xrun_training::metrics::matching;
use xrun_training::metrics::matching::{DETECTIONS_MAX, MatchedImage, match_image};
use xrun_training::metrics::permuted_precision;
use xrun_training::metrics::permuted_precision::{PermutedPrecision, WAYS_MAX};
use xrun_training::metrics::running_mean::RunningMean;
use xrun_training::metrics::st_iou::StIou;

/// Name of the metric of permuted classes.
pub const PERMUTED: &str = "map50_permuted";

/// Metrics of a validation.
#[derive(Clone, Debug, PartialEq)]
pub struct Scores {
    /// Metrics by name; `None` for those that the data cannot measure.
    pub metrics: Vec<(&'static str, Option<f64>)>,
    /// Confidence intervals of the means over episodes.
    pub intervals: Vec<(&'static str, Interval)>,
    /// Results of each class; empty if classes are held out.
    pub classes: Vec<ClassResult>,
    /// Number of detections dropped at the cap.
    pub left_out: u64,
}

/// Accumulates the frames of a validation one by one, in memory that does not grow with the number of episodes.
#[derive(Debug)]
pub struct Scoring {
    library: Arc<Library>,
    presence: f32,
    all: AveragePrecision,
    permuted: PermutedPrecision,
    st_iou: StIou,
    /// Classes of the current episode.
    classes: Vec<usize>,
    /// Detections of the current episode; `None` if no class is held out, and episodes are but batches.
    episode: Option<AveragePrecision>,
    /// Objects by class and the class of their best detection, if no class is held out.
    confusion: Confusion,
    confusion_size: Option<Registration>,
    episode_st_iou: StIou,
    tracks: Tracks,
    /// Means over episodes of map50, map and ST-IoU.
    means: [RunningMean; 3],
}

/// Maximum number of detections of one episode: those that can count, and at most those of a validation.
fn episode_predictions(settings: &FewshotDetection) -> usize {
    let per_frame = settings.n_way * settings.detections_per_frame.min(DETECTIONS_MAX);
    (settings.n_way * settings.n_query * per_frame).min(settings.validation_predictions)
}

xrun_core::buffers! {
    /// Buffers of a [`Scoring`].
    pub struct Buffers {
        /// Detections of a validation.
        pub all: Buffer,
        /// Detections of a validation with each class of their episodes.
        pub permuted: Buffer,
        /// Detections of one episode; `None` if no class is held out.
        pub episode: Option<Buffer>,
        /// Objects by their class and that of their best detection; `None` if classes are held out.
        pub confusion: Option<Buffer>,
    }
}

impl Buffers {
    /// Caps for the settings, and the number of classes if none is held out.
    pub fn new(settings: &FewshotDetection, fixed_classes: Option<usize>) -> Self {
        let key = "pipeline.fewshot-detection.validation_predictions";
        let per_episode = episode_predictions(settings);
        let episode = average_precision::buffer("episode_predictions", per_episode)
            .because(format!("detections of one episode, at most `{key}`"));
        Self {
            all: average_precision::buffer("validation_predictions", settings.validation_predictions)
                .key(key)
                .because(format!("`{key}`")),
            permuted: permuted_precision::buffer("permuted_predictions", settings.validation_predictions)
                .key(key)
                .because(format!("`{key}`, each with all classes of its episode")),
            episode: match fixed_classes {
                Some(_) => None,
                None if per_episode == settings.validation_predictions => Some(episode.key(key)),
                None => Some(episode),
            },
            confusion: fixed_classes.map(|classes| {
                let items = (classes * (classes + 1)) as u64;
                Buffer::new("confusion_matrix", Policy::Refuse, Cap { items, bytes: items * Confusion::ENTRY_BYTES })
                    .because("objects by their class and that of their best detection")
            }),
        }
    }
}

/// Objects in a frame of the classes of an episode, with their ways.
pub fn objects_of_ways<'a>(
    library: &'a Library,
    classes: &'a [usize],
    query: Query,
) -> impl Iterator<Item = (usize, &'a Object)> {
    let objects = &library.videos[query.video].frames[query.frame].objects;
    objects.iter().filter_map(|object| Some((classes.iter().position(|class| *class == object.class)?, object)))
}

impl Scoring {
    /// Empty accumulator, with its buffers in the ledger.
    pub fn new(library: Arc<Library>, settings: &FewshotDetection, buffers: &Buffers, ledger: &Ledger) -> Self {
        Self {
            library,
            presence: settings.presence_threshold as f32,
            all: AveragePrecision::new(ledger, &buffers.all),
            permuted: PermutedPrecision::new(ledger, &buffers.permuted),
            st_iou: StIou::default(),
            classes: Vec::new(),
            episode: buffers.episode.as_ref().map(|buffer| AveragePrecision::new(ledger, buffer)),
            confusion: Confusion::default(),
            confusion_size: buffers.confusion.as_ref().map(|buffer| buffer.register(ledger)),
            episode_st_iou: StIou::default(),
            tracks: Tracks::default(),
            means: Default::default(),
        }
    }

    /// Begins an episode with these classes.
    pub fn begin_episode(&mut self, classes: &[usize]) {
        self.classes = classes.to_vec();
        self.permuted.begin_episode(classes.iter().map(|class| *class as u32));
    }

    /// Adds a frame of the episode and its detections. Frames must be sorted by video and frame.
    pub fn frame(&mut self, query: Query, found: &[FrameDetection]) {
        let objects: Vec<(usize, &Object)> = objects_of_ways(&self.library, &self.classes, query).collect();
        let truths: Vec<matching::Truth> = objects
            .iter()
            .map(|(_, object)| matching::Truth {
                class: object.class as u32,
                rectangle: object.rectangle,
                area: object.area,
                ignored: object.ignored,
            })
            .collect();
        let ways = self.classes.len();
        let detection = |one: &FrameDetection, shift: usize| matching::Detection {
            class: self.classes[(one.class + shift) % ways] as u32,
            score: one.score,
            rectangle: one.rectangle,
        };
        // More ways are not permuted.
        let shifts = if ways > WAYS_MAX { 1 } else { ways };
        let shifted: Vec<MatchedImage> = (0..shifts)
            .map(|shift| {
                let detections: Vec<_> = found.iter().map(|one| detection(one, shift)).collect();
                match_image(&detections, &truths)
            })
            .collect();
        let Some(matched) = shifted.first() else { return };
        self.all.add(matched);
        if let Some(episode) = &mut self.episode {
            episode.add(matched);
        }
        self.permuted.add(&shifted);
        let counted = objects.iter().filter(|(_, object)| object.ignored.is_none());
        let counted: Vec<(usize, BoundingBox)> = counted.map(|(way, object)| (*way, object.rectangle)).collect();
        if let Some(size) = &self.confusion_size {
            for (way, truth) in &counted {
                let on_it = found.iter().filter(|one| one.score >= self.presence && one.rectangle.iou(truth) >= 0.5);
                let best = on_it.max_by(|a, b| a.score.total_cmp(&b.score));
                self.confusion.add(*way, best.map_or(ways, |one| one.class));
            }
            size.set(self.confusion.pairs() as u64, self.confusion.pairs() as u64 * Confusion::ENTRY_BYTES);
        }
        if self.tracks.video != Some(query.video) {
            self.end_video();
            self.tracks.video = Some(query.video);
        }
        if self.library.videos[query.video].sequence {
            self.tracks.frame(self.classes.len(), self.presence, found, &counted);
        }
    }

    /// Ends the current episode.
    pub fn end_episode(&mut self) {
        // Batches of fixed classes may divide a video.
        let Some(episode) = &mut self.episode else { return };
        let scores = episode.finish();
        self.end_video();
        let st_iou = std::mem::take(&mut self.episode_st_iou).mean();
        for (mean, value) in self.means.iter_mut().zip([scores.map50, scores.map, st_iou]) {
            mean.add(value);
        }
    }

    fn end_video(&mut self) {
        self.tracks.video = None;
        for frames in std::mem::take(&mut self.tracks.frames).into_values() {
            // A class that does not occur in the video does not count.
            if frames.iter().any(|(truth, _)| truth.is_some()) {
                for st_iou in [&mut self.st_iou, &mut self.episode_st_iou] {
                    frames.iter().for_each(|(truth, found)| st_iou.frame(*truth, *found));
                    st_iou.end_video();
                }
            }
        }
    }

    /// Results of the classes of the last episode, which are all if none is held out.
    fn classes(&mut self) -> Vec<ClassResult> {
        let Some(size) = &self.confusion_size else { return Vec::new() };
        size.set(0, 0);
        let names: Vec<String> = self.classes.iter().map(|class| self.library.classes[*class].name.clone()).collect();
        let (mut rows, scores) = (std::mem::take(&mut self.confusion).rows(&names), self.all.classes());
        for (row, class) in rows.iter_mut().zip(&self.classes) {
            let scores = scores.get(&(*class as u32));
            (row.ap50, row.ap) = (scores.and_then(|scores| scores.map50), scores.and_then(|scores| scores.map));
        }
        rows
    }

    /// Returns the metrics over all episodes and resets the accumulator.
    pub fn finish(&mut self) -> Scores {
        self.end_video();
        let classes = self.classes();
        let scores = self.all.finish();
        let permuted = self.permuted.finish();
        let st_iou = std::mem::take(&mut self.st_iou).mean();
        let means = std::mem::take(&mut self.means);
        let names = ["episode_map50", "episode_map", "episode_st_iou"];
        let mut metrics = vec![
            ("map50", scores.map50),
            (PERMUTED, permuted.map(|(mean, _)| mean)),
            ("map", scores.map),
            ("recall", scores.recall),
            ("st_iou", st_iou),
            ("map_small", scores.map_small),
            ("map_medium", scores.map_medium),
            ("map_large", scores.map_large),
            ("ar_1", scores.ar_1),
            ("ar_10", scores.ar_10),
            ("ar_100", scores.ar_100),
        ];
        metrics.extend(names.into_iter().zip(&means).map(|(name, mean)| (name, mean.mean())));
        let intervals = names.into_iter().zip(&means).filter_map(|(name, mean)| Some((name, mean.interval()?)));
        let intervals = intervals.chain(permuted.map(|(_, interval)| (PERMUTED, interval)));
        Scores { metrics, intervals: intervals.collect(), classes, left_out: scores.left_out }
    }
}

/// True and predicted box in a frame.
type TruthAndPrediction = (Option<BoundingBox>, Option<BoundingBox>);

/// Boxes of each way in the frames of the current video.
#[derive(Debug, Default)]
struct Tracks {
    video: Option<usize>,
    frames: BTreeMap<usize, Vec<TruthAndPrediction>>,
}

impl Tracks {
    fn frame(&mut self, ways: usize, presence: f32, found: &[FrameDetection], truths: &[(usize, BoundingBox)]) {
        for way in 0..ways {
            let best = found.iter().filter(|one| one.class == way && one.score >= presence);
            let best = best.max_by(|a, b| a.score.total_cmp(&b.score)).map(|one| one.rectangle);
            // Of several objects of the class, the one with the largest overlap.
            let overlap = |truth: &BoundingBox| best.map_or(0.0, |best: BoundingBox| best.iou(truth));
            let truth = truths.iter().filter(|(other, _)| *other == way).map(|(_, truth)| *truth);
            let truth = truth.reduce(|one, other| if overlap(&other) > overlap(&one) { other } else { one });
            self.frames.entry(way).or_default().push((truth, best));
        }
    }
}

#[cfg(test)]
#[path = "scoring_tests.rs"]
mod tests;
