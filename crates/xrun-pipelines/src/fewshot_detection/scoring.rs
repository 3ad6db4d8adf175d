//! What do the detections of a validation score, over all of it and by episode? No Burn is needed for it.
//!
//! `map50`, `map`, `recall` and what is beside them are over all frames of all episodes together. A mean over episodes is of
//! what each episode scores by itself, as papers on few-shot learning give it, and has a 95 % interval.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::decode::Detection;
use super::episode::Query;
use super::settings::Settings;
use crate::metrics::average_precision;
use crate::metrics::average_precision::AveragePrecision;
use crate::metrics::episodes::EpisodeMean;
use crate::metrics::matching;
use crate::metrics::matching::{DETECTIONS_MAX, matched};
use crate::metrics::st_iou::StIou;
use xrun_core::bounded::buffer::Buffer;
use xrun_core::bounded::ledger::Ledger;
use xrun_core::dataset::sample::BoundingBox;
use xrun_core::task::metric::Interval;
use xrun_data::boxes::library::{Library, Object};

/// What a validation scores.
#[derive(Clone, Debug, PartialEq)]
pub struct Scores {
    /// By name; `None` is what this data cannot measure.
    pub metrics: Vec<(&'static str, Option<f64>)>,
    /// Of the metrics that are means over episodes.
    pub intervals: Vec<(&'static str, Interval)>,
    /// Detections that did not fit.
    pub left_out: u64,
}

/// Takes the frames of a validation one by one. What it keeps does not grow with the episodes.
#[derive(Debug)]
pub struct Scoring {
    library: Arc<Library>,
    presence: f32,
    all: AveragePrecision,
    followed: StIou,
    /// Of the episode at hand.
    classes: Vec<usize>,
    episode: AveragePrecision,
    followed_in_episode: StIou,
    tracks: Tracks,
    /// Over episodes: of map50, map and ST-IoU.
    means: [EpisodeMean; 3],
}

/// Detections of one episode: no more can count, and no more are kept of a whole validation.
fn episode_predictions(settings: &Settings) -> usize {
    let of_a_frame = settings.n_way * settings.detections_per_frame.min(DETECTIONS_MAX);
    (settings.n_way * settings.n_query * of_a_frame).min(settings.validation_predictions)
}

/// The buffers of a [`Scoring`].
#[derive(Clone, Debug)]
pub struct Buffers {
    /// Detections of a whole validation.
    pub all: Buffer,
    /// Detections of one episode.
    pub episode: Buffer,
}

impl Buffers {
    /// Declares them as large as the settings allow.
    pub fn new(settings: &Settings) -> Self {
        let key = "pipeline.fewshot-detection.validation_predictions";
        let of_an_episode = episode_predictions(settings);
        let episode = average_precision::buffer("episode_predictions", of_an_episode)
            .because(format!("those of one episode; at most `{key}`"));
        Self {
            all: average_precision::buffer("validation_predictions", settings.validation_predictions)
                .key(key)
                .because(format!("`{key}`")),
            episode: if of_an_episode == settings.validation_predictions { episode.key(key) } else { episode },
        }
    }

    /// Both of them.
    pub fn all(&self) -> [&Buffer; 2] {
        [&self.all, &self.episode]
    }
}

/// What an episode of these classes asks for in a frame: the class's place in the episode, and the object.
pub fn asked<'a>(
    library: &'a Library,
    classes: &'a [usize],
    query: Query,
) -> impl Iterator<Item = (usize, &'a Object)> {
    let objects = &library.videos[query.video].frames[query.frame].objects;
    objects.iter().filter_map(|object| Some((classes.iter().position(|class| *class == object.class)?, object)))
}

impl Scoring {
    /// An empty score. Detections that are counted enter the ledger.
    pub fn new(library: Arc<Library>, settings: &Settings, buffers: &Buffers, ledger: &Ledger) -> Self {
        Self {
            library,
            presence: settings.presence_threshold as f32,
            all: AveragePrecision::new(ledger, &buffers.all),
            followed: StIou::default(),
            classes: Vec::new(),
            episode: AveragePrecision::new(ledger, &buffers.episode),
            followed_in_episode: StIou::default(),
            tracks: Tracks::default(),
            means: Default::default(),
        }
    }

    /// Begins an episode that asks for these classes.
    pub fn begin_episode(&mut self, classes: &[usize]) {
        self.classes = classes.to_vec();
    }

    /// A frame of the episode, and what was found in it. The frames of an episode come sorted by video and frame.
    pub fn frame(&mut self, query: Query, found: &[Detection]) {
        let asked: Vec<(usize, &Object)> = asked(&self.library, &self.classes, query).collect();
        let truths: Vec<matching::Truth> = asked
            .iter()
            .map(|(_, object)| matching::Truth {
                class: object.class as u32,
                rectangle: object.rectangle,
                area: object.area,
                ignored: object.ignored,
            })
            .collect();
        let detections: Vec<matching::Detection> = found
            .iter()
            .map(|one| matching::Detection {
                class: self.classes[one.class] as u32,
                score: one.score,
                rectangle: one.rectangle,
            })
            .collect();
        let picture = matched(&detections, &truths);
        self.all.add(&picture);
        self.episode.add(&picture);
        let seen = asked.iter().filter(|(_, object)| object.ignored.is_none());
        let seen: Vec<(usize, BoundingBox)> = seen.map(|(way, object)| (*way, object.rectangle)).collect();
        if self.tracks.video != Some(query.video) {
            self.end_video();
            self.tracks.video = Some(query.video);
        }
        if self.library.videos[query.video].sequence {
            self.tracks.frame(self.classes.len(), self.presence, found, &seen);
        }
    }

    /// Ends the episode at hand.
    pub fn end_episode(&mut self) {
        self.end_video();
        let scores = self.episode.finish();
        let followed = std::mem::take(&mut self.followed_in_episode).mean();
        for (mean, value) in self.means.iter_mut().zip([scores.map50, scores.map, followed]) {
            mean.add(value);
        }
    }

    fn end_video(&mut self) {
        self.tracks.video = None;
        for frames in std::mem::take(&mut self.tracks.frames).into_values() {
            // A class that is not in the video does not count.
            if frames.iter().any(|(truth, _)| truth.is_some()) {
                for followed in [&mut self.followed, &mut self.followed_in_episode] {
                    frames.iter().for_each(|(truth, found)| followed.frame(*truth, *found));
                    followed.end_video();
                }
            }
        }
    }

    /// The scores over all episodes; empties itself for the next validation.
    pub fn finish(&mut self) -> Scores {
        let scores = self.all.finish();
        let followed = std::mem::take(&mut self.followed).mean();
        let means = std::mem::take(&mut self.means);
        let names = ["episode_map50", "episode_map", "episode_st_iou"];
        let mut metrics = vec![
            ("map50", scores.map50),
            ("map", scores.map),
            ("recall", scores.recall),
            ("st_iou", followed),
            ("map_small", scores.map_small),
            ("map_medium", scores.map_medium),
            ("map_large", scores.map_large),
            ("ar_1", scores.ar_1),
            ("ar_10", scores.ar_10),
            ("ar_100", scores.ar_100),
        ];
        metrics.extend(names.into_iter().zip(&means).map(|(name, mean)| (name, mean.mean())));
        let intervals = names.into_iter().zip(&means).filter_map(|(name, mean)| Some((name, mean.interval()?)));
        Scores { metrics, intervals: intervals.collect(), left_out: scores.left_out }
    }
}

/// Where the object is in a frame, and where it was found.
type TrueAndFound = (Option<BoundingBox>, Option<BoundingBox>);

/// Follows each class of an episode through its videos, frame after frame; one video at a time.
#[derive(Debug, Default)]
struct Tracks {
    video: Option<usize>,
    /// One a way, of the video at hand.
    frames: BTreeMap<usize, Vec<TrueAndFound>>,
}

impl Tracks {
    fn frame(&mut self, ways: usize, presence: f32, found: &[Detection], truths: &[(usize, BoundingBox)]) {
        for way in 0..ways {
            let best = found.iter().filter(|one| one.class == way && one.score >= presence);
            let best = best.max_by(|a, b| a.score.total_cmp(&b.score)).map(|one| one.rectangle);
            // Of several objects of the class the one that was found.
            let overlap = |place: &BoundingBox| best.map_or(0.0, |best: BoundingBox| best.iou(place));
            let truth = truths.iter().filter(|(of, _)| *of == way).map(|(_, place)| *place);
            let truth = truth.reduce(|one, other| if overlap(&other) > overlap(&one) { other } else { one });
            self.frames.entry(way).or_default().push((truth, best));
        }
    }
}

#[cfg(test)]
#[path = "scoring_tests.rs"]
mod tests;
