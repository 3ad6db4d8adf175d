//! Random episodes (classes, references, query frames) and triplet batches.
//!
//! Every draw is a pure function of the seed and a number. The state is an index of the library, made once; frames are given by their
//! indices, and nothing is decoded here.
//!
//! Training draws from the classes of the training split. Frames and references that also show an object of a held-out class are
//! excluded, unless a class has hardly any others: then the object is masked in the frames (see `batch`), but may be visible around a
//! reference that is a crop of one.
//!
//! If no class is held out, an episode has all classes and no references, in training the frames of `n_way` of them. Validation is on
//! other images of the same classes, in one fixed order.

use std::sync::Arc;

use rand::RngExt;
use rand::seq::{SliceRandom, index};
use rand_chacha::ChaCha8Rng;

use super::settings::FewshotDetection;
use super::step_kind::{StepKind, step_kind};
use xrun_core::dataset::error::DataError;
use xrun_core::dataset::split::Split;
use xrun_core::seed::generator;
use xrun_data::boxes::classes::{ClassIndex, ReferenceFrames, index_classes, usable};
pub use xrun_data::boxes::classes::{Exemplar, Query};
use xrun_data::boxes::library::Library;
use xrun_data::order::permuted;

/// Classes to detect, with their references and query frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Episode {
    /// Different indices into [`Library::classes`]: `n_way`, or all fixed classes.
    pub classes: Vec<usize>,
    /// References, `[n_way][n_shot]`; none of fixed classes.
    pub references: Vec<Vec<Exemplar>>,
    /// Query frames: in training `n_query` for each class, in the order of the classes, repeated if there are too few; in validation
    /// without repetition, with the frames of a video in their order.
    pub queries: Vec<Query>,
}

/// Three images: two of one class and one of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Triplet {
    /// Image of the first class.
    pub anchor: Exemplar,
    /// Another image of the same class.
    pub positive: Exemplar,
    /// Image of another class.
    pub negative: Exemplar,
}

/// Source of random episodes and triplets.
#[derive(Clone, Debug)]
pub struct Episodes {
    /// Data that is drawn from.
    pub library: Arc<Library>,
    /// Settings as requested; the data may have fewer classes and images.
    pub settings: FewshotDetection,
    /// `experiment.seed`.
    pub seed: u32,
    /// `training.gradient_accumulation`: all batches of one step are of one kind.
    accumulation: usize,
    /// Index of each class of the library.
    classes: Vec<ClassIndex>,
    train: Vec<usize>,
    /// Classes of validation episodes, in ascending order: held-out ones, or all if none is.
    pub validated: Vec<usize>,
    /// Frames to validate on if no class is held out, video by video in random order.
    frames: Option<Vec<Query>>,
}

/// Checks that there are enough classes for training and validation; `held_out` is `None` if validation is on the training classes.
///
/// # Errors
/// There are too few classes.
pub fn check_class_counts(train: usize, held_out: Option<usize>, settings: &FewshotDetection) -> Result<(), DataError> {
    let needed = if settings.triplet_ratio > 0.0 { 2 } else { 1 };
    let (purpose, found, needed) = match (train, held_out) {
        (train, _) if train < needed => ("train on", train, needed),
        (_, Some(0)) => ("validate on", 0, 1),
        _ => return Ok(()),
    };
    let classes = if needed == 1 { "class is" } else { "classes are" };
    let one = if (found, needed) == (1, 2) { " for triplets (`triplet_ratio = 0` needs one)" } else { "" };
    Err(DataError::Content(format!(
        "at least {needed} {classes} needed to {purpose}{one}, found {found}; a class needs a reference image (or an object to crop one \
         from) and another image that shows it. `train_classes` and `validation_classes` select the classes"
    )))
}

impl Episodes {
    /// Indexes a library.
    ///
    /// # Errors
    /// The library has too few usable classes: a class needs a reference (or an object to crop one from) and a frame that is not the
    /// image of that reference.
    pub fn new(
        library: Arc<Library>,
        settings: FewshotDetection,
        seed: u32,
        accumulation: usize,
    ) -> Result<Self, DataError> {
        let classes = index_classes(&library);
        let train = usable(&library, &classes, Split::Train);
        let is_few_shot = library.holds_out_classes();
        let validated = if is_few_shot { usable(&library, &classes, Split::Validation) } else { train.clone() };
        check_class_counts(train.len(), is_few_shot.then_some(validated.len()), &settings)?;
        let frames = (!is_few_shot).then(|| frames_to_validate_on(&library, seed));
        if frames.as_ref().is_some_and(Vec::is_empty) {
            return Err(DataError::content(
                "no image can be held out for validation; the images are of too few videos",
            ));
        }
        Ok(Self { library, settings, seed, accumulation: accumulation.max(1), classes, train, validated, frames })
    }

    /// Number of classes if none is held out; `None` if validation episodes draw from held-out ones.
    pub fn fixed_classes(&self) -> Option<usize> {
        self.frames.as_ref().map(|_| self.validated.len())
    }

    /// Number of frames to validate on if no class is held out, all and those of a validation of at most `batches` batches.
    pub fn validation_frames(&self, batches: usize) -> Option<(usize, usize)> {
        let all = self.frames.as_ref()?.len();
        Some((all, all.min(batches.saturating_mul(self.settings.n_way * self.settings.n_query))))
    }

    /// Number of episodes of a validation of at most `batches`.
    pub fn validation_episodes(&self, batches: usize) -> u64 {
        let size = self.settings.n_way * self.settings.n_query;
        self.validation_frames(batches).map_or(batches, |(_, frames)| frames.div_ceil(size)) as u64
    }

    /// Bytes of the index of the classes.
    pub fn index_bytes(&self) -> u64 {
        let frames = self.frames.as_ref().map_or(0, |frames| frames.capacity() * size_of::<Query>()) as u64;
        self.classes.iter().map(ClassIndex::bytes).sum::<u64>() + frames
    }

    /// Number of classes in a training episode: `n_way`, or all that the data has.
    pub fn n_way(&self) -> usize {
        self.settings.n_way.min(self.train.len())
    }

    /// Number of classes in a validation episode: `n_way`, or all that the data has.
    pub fn n_way_validation(&self) -> usize {
        self.settings.n_way.min(self.validated.len())
    }

    /// Kind of batch `number` (from 0), which is that of its step, `number / accumulation + 1`.
    pub fn kind_of_batch(&self, number: u64) -> StepKind {
        step_kind(number / self.accumulation as u64 + 1, self.settings.triplet_ratio)
    }

    /// Draws episode `number` of training.
    pub fn draw(&self, number: u64) -> Episode {
        let mut generator = generator(self.seed, "episode", number);
        let classes = choose(&self.train, self.n_way(), &mut generator);
        let (mut episode, reference_frames, all_reference_frames) = match self.fixed_classes() {
            None => self.with_references(classes, &mut generator),
            Some(_) => (Episode { classes, references: Vec::new(), queries: Vec::new() }, Vec::new(), Vec::new()),
        };
        let (mut reference_frames, none) = (reference_frames.iter(), ReferenceFrames::default());
        for class in &episode.classes {
            let reference_frames = reference_frames.next().unwrap_or(&none);
            let mut frames = self.classes[*class].query_frames(reference_frames, &all_reference_frames);
            frames.shuffle(&mut generator);
            episode.queries.extend(frames.iter().cycle().take(self.settings.n_query));
        }
        if self.fixed_classes().is_some() {
            episode.classes = self.validated.clone();
        }
        episode
    }

    /// Draws the references of an episode. Returns the episode without queries, the frames of the references of each class, and those
    /// of all: a frame with objects of two classes must not be a query for one of them if it is a reference of the other.
    fn with_references(
        &self,
        classes: Vec<usize>,
        generator: &mut ChaCha8Rng,
    ) -> (Episode, Vec<ReferenceFrames>, Vec<Query>) {
        let (references, reference_frames): (Vec<_>, Vec<_>) =
            classes.iter().map(|&class| self.references(class, generator)).unzip();
        let all_reference_frames = reference_frames
            .iter()
            .flat_map(|reference_frames: &ReferenceFrames| reference_frames.frames.iter().copied())
            .collect();
        (Episode { classes, references, queries: Vec::new() }, reference_frames, all_reference_frames)
    }

    /// Draws episode `index` of validation, from held-out classes; the same one each time. If the data has sequences, queries are runs
    /// of consecutive frames, for metrics over time; at least one frame of a run shows the object. A class with few videos has fewer
    /// than `n_query` frames.
    /// If no class is held out, it has all classes and the next frames.
    pub fn draw_validation(&self, index: u64) -> Episode {
        if let Some(frames) = &self.frames {
            let queries = frames.chunks(self.settings.n_way * self.settings.n_query).nth(index as usize);
            let queries = queries.unwrap_or_default().to_vec();
            return Episode { classes: self.validated.clone(), references: Vec::new(), queries };
        }
        let mut generator = generator(self.seed, "validation episode", index);
        let classes = choose(&self.validated, self.n_way_validation(), &mut generator);
        let (mut episode, reference_frames, all_reference_frames) = self.with_references(classes, &mut generator);
        for (&class, reference_frames) in episode.classes.iter().zip(&reference_frames) {
            episode.queries.extend(self.runs(class, reference_frames, &all_reference_frames, &mut generator));
        }
        episode.queries.sort();
        episode.queries.dedup();
        episode
    }

    /// First reference of a class, for images of a validation.
    pub fn first_reference(&self, class: usize) -> Exemplar {
        self.classes[class].reference_pool()[0]
    }

    /// Draws triplet batch `number`. Its images are of few classes, so that batch-hard mining has several of each: T triplets have
    /// P = T / 2 classes (at least 2) with about six images each.
    pub fn draw_triplets(&self, number: u64) -> Vec<Triplet> {
        let mut generator = generator(self.seed, "triplets", number);
        let count = self.settings.triplet_batch_size;
        let classes = choose(&self.train, (count / 2).max(2), &mut generator);
        // With a single class `new` has failed, or there are no triplet batches.
        let others = classes.len().saturating_sub(1).max(1);
        let chosen: Vec<(usize, usize)> = (0..count)
            .map(|triplet| {
                let anchor = triplet % classes.len();
                (anchor, (anchor + 1 + generator.random_range(0..others)) % classes.len())
            })
            .collect();
        let mut images: Vec<Vec<Exemplar>> = Vec::with_capacity(classes.len());
        for (index, &class) in classes.iter().enumerate() {
            let count = chosen.iter().map(|&(a, n)| 2 * usize::from(a == index) + usize::from(n == index)).sum();
            images.push(self.classes[class].exemplars(count, &mut generator));
        }
        let mut taken = vec![0; classes.len()];
        let mut take = |index: usize| {
            taken[index] += 1;
            images[index][taken[index] - 1]
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

    /// Draws `n_shot` references of a class, repeated if there are too few, and returns them with their frames. At least one other
    /// frame of the class remains for a query.
    fn references(&self, class: usize, generator: &mut ChaCha8Rng) -> (Vec<Exemplar>, ReferenceFrames) {
        let index = &self.classes[class];
        let mut order: Vec<usize> = (0..index.reference_pool().len()).collect();
        order.shuffle(generator);
        let (chosen, reference_frames) =
            index.choose_references(&self.library, order.into_iter(), self.settings.n_shot);
        let references = chosen.iter().copied().cycle().take(self.settings.n_shot).collect();
        (references, reference_frames)
    }

    /// Draws up to `n_query` frames: runs of consecutive frames from sequences first, then stills.
    fn runs(
        &self,
        class: usize,
        reference_frames: &ReferenceFrames,
        all_reference_frames: &[Query],
        generator: &mut ChaCha8Rng,
    ) -> Vec<Query> {
        let frames = self.classes[class].query_frames(reference_frames, all_reference_frames);
        let mut by_video: Vec<&[Query]> = frames.chunk_by(|a, b| a.video == b.video).collect();
        by_video.shuffle(generator);
        by_video.sort_by_key(|run| !self.library.videos[run[0].video].sequence);
        let mut queries = Vec::new();
        for run_of_video in by_video {
            let missing = self.settings.n_query - queries.len();
            if missing == 0 {
                break;
            }
            let number = run_of_video[0].video;
            let video = &self.library.videos[number];
            if !video.sequence {
                queries.extend(run_of_video.iter().take(missing));
                continue;
            }
            let length = missing.min(video.frames.len());
            let start = run_of_video[generator.random_range(0..run_of_video.len())].frame;
            let start = start.min(video.frames.len() - length);
            let run = (start..start + length).map(|frame| Query { video: number, frame });
            queries.extend(run.filter(|query| !all_reference_frames.contains(query) || frames.contains(query)));
        }
        queries
    }
}

/// Frames of the videos to validate on. The order of the videos is random, so that the first frames are a sample.
fn frames_to_validate_on(library: &Library, seed: u32) -> Vec<Query> {
    let videos = (0..library.videos.len()).filter(|video| library.videos[*video].part == Some(Split::Validation));
    let videos: Vec<usize> = videos.collect();
    let mut all: Vec<Query> = permuted(&videos, seed, "validation pictures", 0)
        .flat_map(|video| (0..library.videos[video].frames.len()).map(move |frame| Query { video, frame }))
        .collect();
    all.shrink_to_fit();
    all
}

/// Random sample of `count` elements, or of all, in random order.
fn choose(from: &[usize], count: usize, generator: &mut ChaCha8Rng) -> Vec<usize> {
    let count = count.min(from.len());
    // The iterator has no size hint, and the capacity counts towards the size of a batch.
    let mut chosen = Vec::with_capacity(count);
    chosen.extend(index::sample(generator, from.len(), count).into_iter().map(|index| from[index]));
    chosen
}

#[cfg(test)]
#[path = "episode_tests.rs"]
pub(super) mod tests;
