//! Which classes, references and query frames make an episode, and which pictures a triplet batch?
//!
//! Every draw is a pure function of the seed and a number. What is kept is an index over the library, made once; frames
//! are named by numbers, and nothing is decoded here.
//!
//! Training draws from the classes of the training split. Frames and references that also show an object of a held-out
//! class are left out, unless a class has hardly any others: then the object is masked out of the frames, where it is
//! neither found nor background (see `batch`), and may be seen around a reference that was cut from one.

use std::sync::Arc;

use rand::RngExt;
use rand::seq::{SliceRandom, index};
use rand_chacha::ChaCha8Rng;

use super::mix::{StepKind, kind_of};
use super::settings::Settings;
use xrun_core::dataset::error::DataError;
use xrun_core::dataset::split::Split;
use xrun_core::seed::generator;
use xrun_data::boxes::classes::{ClassIndex, ReferenceFrames, index_classes, usable};
pub use xrun_data::boxes::classes::{Exemplar, Query};
use xrun_data::boxes::library::Library;

/// What is to be found by which references, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Episode {
    /// `n_way` indices into [`Library::classes`], all different.
    pub classes: Vec<usize>,
    /// `n_way` times `n_shot`.
    pub references: Vec<Vec<Exemplar>>,
    /// In training `n_query` frames for each class, in the order of the classes; a frame comes twice where there are
    /// too few. In validation no frame comes twice, and frames are sorted by video and frame.
    pub queries: Vec<Query>,
}

/// Three pictures: two of one class and one of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Triplet {
    /// A picture of the first class.
    pub anchor: Exemplar,
    /// Another picture of the same class.
    pub positive: Exemplar,
    /// A picture of another class.
    pub negative: Exemplar,
}

/// What of the experiment decides about the draws, besides the pipeline's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrawSettings {
    /// `experiment.seed`.
    pub seed: u32,
    /// `triplet_batch_size` of the settings.
    pub triplet_batch_size: usize,
    /// `training.accumulation`: all batches of one step are of one kind.
    pub accumulation: usize,
}

/// Draws episodes and triplets.
#[derive(Clone, Debug)]
pub struct Episodes {
    library: Arc<Library>,
    settings: Settings,
    draws: DrawSettings,
    /// By class of the library.
    classes: Vec<ClassIndex>,
    train: Vec<usize>,
    held_out: Vec<usize>,
}

/// # Errors
/// There are too few classes to train or to validate.
pub fn enough(train: usize, held_out: usize, settings: &Settings) -> Result<(), DataError> {
    let needed = if settings.triplet_ratio > 0.0 { 2 } else { 1 };
    let (purpose, found, needed) = match (train, held_out) {
        (train, _) if train < needed => ("train on", train, needed),
        (_, 0) => ("validate on", 0, 1),
        _ => return Ok(()),
    };
    Err(DataError::Content(format!(
        "the data set has {found} classes to {purpose}, and at least {needed} are needed; a class counts when it has a \
         reference picture, or an object to cut one from, and a frame with the object that is not the same picture. \
         `train_classes` and `validation_classes` say which classes are for what"
    )))
}

impl Episodes {
    /// Fails when the library has too few classes that can be drawn: a class needs a reference (or an object to cut one
    /// from) and a frame that is not the picture of that reference.
    pub fn new(library: Arc<Library>, settings: Settings, draws: DrawSettings) -> Result<Self, DataError> {
        let classes = index_classes(&library);
        let (train, held_out) =
            (usable(&library, &classes, Split::Train), usable(&library, &classes, Split::Validation));
        enough(train.len(), held_out.len(), &settings)?;
        let mut episodes = Self { library, settings, draws, classes, train, held_out };
        episodes.draws.accumulation = episodes.draws.accumulation.max(1);
        Ok(episodes)
    }

    /// What is drawn from.
    pub fn library(&self) -> &Arc<Library> {
        &self.library
    }

    /// What the settings ask for; the data may have less.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What of the experiment decides, besides the settings.
    pub fn draws(&self) -> &DrawSettings {
        &self.draws
    }

    /// Classes that a validation draws from, in the order of their numbers.
    pub fn held_out(&self) -> &[usize] {
        &self.held_out
    }

    /// Classes in a training episode: `n_way`, or all there are.
    pub fn n_way(&self) -> usize {
        self.settings.n_way.min(self.train.len())
    }

    /// Classes in a validation episode: `n_way`, or all there are.
    pub fn n_way_validation(&self) -> usize {
        self.settings.n_way.min(self.held_out.len())
    }

    /// What batch `number` (from 0) is for: that of its step, `number / accumulation + 1`.
    pub fn kind_of_batch(&self, number: u64) -> StepKind {
        kind_of(number / self.draws.accumulation as u64 + 1, self.settings.triplet_ratio)
    }

    /// Episode `number` of training.
    pub fn draw(&self, number: u64) -> Episode {
        let mut generator = generator(self.draws.seed, "episode", number);
        let classes = choose(&self.train, self.n_way(), &mut generator);
        let (mut episode, seen, shown) = self.with_references(classes, &mut generator);
        for (&class, seen) in episode.classes.iter().zip(&seen) {
            let mut frames = self.classes[class].query_frames(seen, &shown);
            frames.shuffle(&mut generator);
            episode.queries.extend(frames.iter().cycle().take(self.settings.n_query));
        }
        episode
    }

    /// An episode that has no queries yet, what the references of each class show, and the frames that any shows: a
    /// frame with objects of two classes must not be asked for by one of them when it is a reference of the other.
    fn with_references(
        &self,
        classes: Vec<usize>,
        generator: &mut ChaCha8Rng,
    ) -> (Episode, Vec<ReferenceFrames>, Vec<Query>) {
        let (references, seen): (Vec<_>, Vec<_>) =
            classes.iter().map(|&class| self.references(class, generator)).unzip();
        let shown = seen.iter().flat_map(|seen: &ReferenceFrames| seen.frames.iter().copied()).collect();
        (Episode { classes, references, queries: Vec::new() }, seen, shown)
    }

    /// Episode `index` of validation, from held-out classes; the same one each time. Queries are runs of consecutive
    /// frames where the data has sequences, so that a metric over time can be computed; the object is seen in at least
    /// one frame of a run. A class whose videos are few gets fewer than `n_query` frames.
    pub fn draw_validation(&self, index: u64) -> Episode {
        let mut generator = generator(self.draws.seed, "validation episode", index);
        let classes = choose(&self.held_out, self.n_way_validation(), &mut generator);
        let (mut episode, seen, shown) = self.with_references(classes, &mut generator);
        for (&class, seen) in episode.classes.iter().zip(&seen) {
            episode.queries.extend(self.runs(class, seen, &shown, &mut generator));
        }
        episode.queries.sort();
        episode.queries.dedup();
        episode
    }

    /// Triplet batch `number`. All its pictures are of few classes, so that comparing each with each (batch-hard) finds
    /// several of a class: with T triplets P = T / 2 classes (at least 2), about six pictures each.
    pub fn draw_triplets(&self, number: u64) -> Vec<Triplet> {
        let mut generator = generator(self.draws.seed, "triplets", number);
        let count = self.draws.triplet_batch_size;
        let classes = choose(&self.train, (count / 2).max(2), &mut generator);
        // With one class alone `new` failed, or triplets are never asked for.
        let others = classes.len().saturating_sub(1).max(1);
        let chosen: Vec<(usize, usize)> = (0..count)
            .map(|triplet| {
                let anchor = triplet % classes.len();
                (anchor, (anchor + 1 + generator.random_range(0..others)) % classes.len())
            })
            .collect();
        let mut pictures: Vec<Vec<Exemplar>> = Vec::with_capacity(classes.len());
        for (place, &class) in classes.iter().enumerate() {
            let count = chosen.iter().map(|&(a, n)| 2 * usize::from(a == place) + usize::from(n == place)).sum();
            pictures.push(self.classes[class].exemplars(count, &mut generator));
        }
        let mut taken = vec![0; classes.len()];
        let mut take = |place: usize| {
            taken[place] += 1;
            pictures[place][taken[place] - 1]
        };
        chosen
            .into_iter()
            .map(|(anchor, negative)| Triplet {
                anchor: take(anchor),
                positive: take(anchor),
                negative: take(negative),
            })
            .collect()
    }

    /// `n_shot` references of a class, different ones as far as there are, and what they show. They leave at least one
    /// frame of the class to be asked for.
    fn references(&self, class: usize, generator: &mut ChaCha8Rng) -> (Vec<Exemplar>, ReferenceFrames) {
        let index = &self.classes[class];
        let mut order: Vec<usize> = (0..index.reference_pool().len()).collect();
        order.shuffle(generator);
        let (chosen, seen) = index.choose_references(&self.library, order.into_iter(), self.settings.n_shot);
        let references = chosen.iter().copied().cycle().take(self.settings.n_shot).collect();
        (references, seen)
    }

    /// Up to `n_query` frames: runs of consecutive frames from sequences first, then stills.
    fn runs(&self, class: usize, seen: &ReferenceFrames, shown: &[Query], generator: &mut ChaCha8Rng) -> Vec<Query> {
        let frames = self.classes[class].query_frames(seen, shown);
        let mut by_video: Vec<&[Query]> = frames.chunk_by(|a, b| a.video == b.video).collect();
        by_video.shuffle(generator);
        by_video.sort_by_key(|run| !self.library.videos[run[0].video].sequence);
        let mut queries = Vec::new();
        for run_of_video in by_video {
            let room = self.settings.n_query - queries.len();
            if room == 0 {
                break;
            }
            let number = run_of_video[0].video;
            let video = &self.library.videos[number];
            if !video.sequence {
                queries.extend(run_of_video.iter().take(room));
                continue;
            }
            let length = room.min(video.frames.len());
            let start = run_of_video[generator.random_range(0..run_of_video.len())].frame;
            let start = start.min(video.frames.len() - length);
            let run = (start..start + length).map(|frame| Query { video: number, frame });
            queries.extend(run.filter(|query| !shown.contains(query) || frames.contains(query)));
        }
        queries
    }
}

/// `count` of `from`, or all of them, in a drawn order.
fn choose(from: &[usize], count: usize, generator: &mut ChaCha8Rng) -> Vec<usize> {
    let count = count.min(from.len());
    // The iterator does not know its length, and a batch is held to its bytes.
    let mut chosen = Vec::with_capacity(count);
    chosen.extend(index::sample(generator, from.len(), count).into_iter().map(|place| from[place]));
    chosen
}

#[cfg(test)]
#[path = "episode_tests.rs"]
pub(super) mod tests;
