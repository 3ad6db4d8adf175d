//! Which classes, references and query frames make an episode, and which pictures a triplet batch?
//!
//! Every draw is a pure function of the seed and a number. What is kept is an index over the library, made once; frames
//! are named by numbers, and nothing is decoded here.
//!
//! Training draws from the classes of the training split. Frames and references that also show an object of a held-out
//! class are left out, unless a class has hardly any others: then the object is masked out of the frames, where it is
//! neither found nor background (see `batch`), and may be seen around a reference that was cut from one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use rand::RngExt;
use rand::seq::{SliceRandom, index};
use rand_chacha::ChaCha8Rng;

use super::drawn::enough;
use super::mix::{StepKind, kind_of};
use super::settings::Settings;
use crate::data::error::DataError;
use crate::data::reference_video::library::{Library, Object, Split};
use crate::data::sample::Rectangle;
use crate::data::seed::generator;

/// A frame of the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Query {
    /// Index into [`Library::videos`].
    pub video: usize,
    /// Index into its frames.
    pub frame: usize,
}

/// A picture of one object of a class: one of the class's reference pictures, or cut out of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exemplar {
    /// Index into the references of the class.
    Reference { class: usize, reference: usize },
    /// Index into the objects of the frame.
    Object { class: usize, query: Query, object: usize },
}

impl Exemplar {
    /// Index into [`Library::classes`].
    pub fn class(&self) -> usize {
        match *self {
            Self::Reference { class, .. } | Self::Object { class, .. } => class,
        }
    }

    /// Where the picture is, relative to the root, and which part of it the object is; `None` is all of it.
    pub fn place<'a>(&self, library: &'a Library) -> (&'a Path, Option<&'a Rectangle>) {
        match *self {
            Self::Reference { class, reference } => {
                let reference = &library.classes[class].references[reference];
                (&reference.path, reference.rectangle.as_ref())
            }
            Self::Object { query, object, .. } => {
                let frame = &library.videos[query.video].frames[query.frame];
                (&frame.path, Some(&frame.objects[object].rectangle))
            }
        }
    }
}

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
    pub anchor: Exemplar,
    pub positive: Exemplar,
    pub negative: Exemplar,
}

/// What of the experiment decides about the draws, besides the pipeline's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrawSettings {
    pub seed: u32,
    /// `limits.triplet_batch_size`.
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

/// Where one class is to be seen. Sorted, so that the library's order alone decides.
#[derive(Clone, Debug, Default)]
pub(super) struct ClassIndex {
    /// Frames with an object of the class that is not to be ignored.
    pub(super) frames: Vec<Query>,
    /// Those objects, but for those that are reference pictures.
    pub(super) objects: Vec<Exemplar>,
    /// Reference pictures, none of them twice.
    pub(super) references: Vec<Exemplar>,
    /// For each of the library's references of the class the frame that it is cut from, as far as the library says.
    reference_frames: Vec<Option<Query>>,
}

/// Why frames are not to be asked for: they show the references.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) frames: Vec<Query>,
    videos: Vec<usize>,
}

impl Seen {
    fn frame(&self, query: &Query) -> bool {
        self.frames.contains(query)
    }

    fn video(&self, query: &Query) -> bool {
        self.videos.contains(&query.video) || self.frame(query)
    }
}

pub(super) fn usable(library: &Library, classes: &[ClassIndex], split: Split) -> Vec<usize> {
    let of_split = |&class: &usize| library.classes[class].split == split && classes[class].usable();
    (0..classes.len()).filter(of_split).collect()
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

    pub fn library(&self) -> &Arc<Library> {
        &self.library
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    pub fn draws(&self) -> &DrawSettings {
        &self.draws
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
            let mut frames = self.classes[class].frames_beside(seen, &shown);
            frames.shuffle(&mut generator);
            episode.queries.extend(frames.iter().cycle().take(self.settings.n_query));
        }
        episode
    }

    /// An episode that has no queries yet, what the references of each class show, and the frames that any shows: a
    /// frame with objects of two classes must not be asked for by one of them when it is a reference of the other.
    fn with_references(&self, classes: Vec<usize>, generator: &mut ChaCha8Rng) -> (Episode, Vec<Seen>, Vec<Query>) {
        let (references, seen): (Vec<_>, Vec<_>) =
            classes.iter().map(|&class| self.references(class, generator)).unzip();
        let shown = seen.iter().flat_map(|seen: &Seen| seen.frames.iter().copied()).collect();
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
    fn references(&self, class: usize, generator: &mut ChaCha8Rng) -> (Vec<Exemplar>, Seen) {
        let index = &self.classes[class];
        let mut order: Vec<usize> = (0..index.reference_pool().len()).collect();
        order.shuffle(generator);
        let (chosen, seen) = index.choose_references(&self.library, order.into_iter(), self.settings.n_shot);
        let references = chosen.iter().copied().cycle().take(self.settings.n_shot).collect();
        (references, seen)
    }

    /// Up to `n_query` frames: runs of consecutive frames from sequences first, then stills.
    fn runs(&self, class: usize, seen: &Seen, shown: &[Query], generator: &mut ChaCha8Rng) -> Vec<Query> {
        let frames = self.classes[class].frames_beside(seen, shown);
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

impl ClassIndex {
    pub(super) fn reference_pool(&self) -> &[Exemplar] {
        if self.references.is_empty() { &self.objects } else { &self.references }
    }

    /// The frame that shows an exemplar, if one does.
    fn shown_in(&self, exemplar: &Exemplar) -> Option<Query> {
        match *exemplar {
            Exemplar::Reference { reference, .. } => self.reference_frames[reference],
            Exemplar::Object { query, .. } => Some(query),
        }
    }

    /// The first `most` references of the pool in this order that leave a frame of the class to be asked for, and what they
    /// show.
    pub(super) fn choose_references(
        &self,
        library: &Library,
        order: impl Iterator<Item = usize>,
        most: usize,
    ) -> (Vec<Exemplar>, Seen) {
        let pool = self.reference_pool();
        let mut chosen = Vec::new();
        let mut seen = Seen::default();
        for candidate in order {
            if chosen.len() == most {
                break;
            }
            let frame = self.shown_in(&pool[candidate]);
            if self.frames.iter().all(|query| seen.frame(query) || Some(*query) == frame) {
                continue;
            }
            seen.frames.extend(frame);
            seen.videos.extend(frame.map(|query| query.video).or(video_of(library, &pool[candidate])));
            chosen.push(pool[candidate]);
        }
        (chosen, seen)
    }

    /// Frames of the class from other videos than its references where there are any, else other frames than those that
    /// are references of any class, else other frames than its own references.
    pub(super) fn frames_beside(&self, seen: &Seen, shown: &[Query]) -> Vec<Query> {
        let only = |keep: &dyn Fn(&Query) -> bool| -> Vec<Query> { self.frames.iter().copied().filter(keep).collect() };
        let found = only(&|query| !seen.video(query) && !shown.contains(query));
        let found = if found.is_empty() { only(&|query| !shown.contains(query)) } else { found };
        if found.is_empty() { only(&|query| !seen.frame(query)) } else { found }
    }

    fn usable(&self) -> bool {
        let leaves_a_frame = |exemplar: &Exemplar| {
            let shown = self.shown_in(exemplar);
            self.frames.iter().any(|query| Some(*query) != shown)
        };
        self.reference_pool().iter().any(leaves_a_frame)
    }

    /// `count` pictures of the class, references and objects alike, none twice in a row and none twice at all as far as
    /// there are.
    fn exemplars(&self, count: usize, generator: &mut ChaCha8Rng) -> Vec<Exemplar> {
        let length = self.references.len() + self.objects.len();
        let different = index::sample(generator, length, count.min(length)).into_vec();
        let at = |place: usize| match place.checked_sub(self.references.len()) {
            Some(object) => self.objects[object],
            None => self.references[place],
        };
        different.into_iter().map(at).cycle().take(count).collect()
    }
}

fn video_of(library: &Library, exemplar: &Exemplar) -> Option<usize> {
    match *exemplar {
        Exemplar::Reference { class, reference } => library.classes[class].references[reference].video,
        Exemplar::Object { query, .. } => Some(query.video),
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

/// What tells two pictures of an object apart.
fn place<'a>(path: &'a Path, rectangle: Option<&Rectangle>) -> (&'a Path, Option<[u32; 4]>) {
    (path, rectangle.map(|r| [r.left, r.top, r.right, r.bottom].map(f32::to_bits)))
}

pub(super) fn index_classes(library: &Library) -> Vec<ClassIndex> {
    let mut classes = vec![ClassIndex::default(); library.classes.len()];
    let mut frames_by_path = BTreeMap::new();
    for (video, frames) in library.videos.iter().map(|video| &video.frames).enumerate() {
        for (frame, content) in frames.iter().enumerate() {
            let query = Query { video, frame };
            frames_by_path.insert(content.path.as_path(), query);
            for (object, Object { class, ignored, .. }) in content.objects.iter().enumerate() {
                if ignored.is_some() || !library.serves(&library.videos[video], *class) {
                    continue;
                }
                let index = &mut classes[*class];
                index.objects.push(Exemplar::Object { class: *class, query, object });
                if index.frames.last() != Some(&query) {
                    index.frames.push(query);
                }
            }
        }
    }
    for (class, (index, known)) in classes.iter_mut().zip(&library.classes).enumerate() {
        let mut places = BTreeSet::new();
        for (reference, picture) in known.references.iter().enumerate() {
            if places.insert(place(&picture.path, picture.rectangle.as_ref())) {
                index.references.push(Exemplar::Reference { class, reference });
            }
            index.reference_frames.push(frames_by_path.get(picture.path.as_path()).copied());
        }
        let named = |object: &Exemplar| {
            let (path, rectangle) = object.place(library);
            places.contains(&place(path, rectangle))
        };
        index.objects.retain(|object| !named(object));
    }
    // What validation will ask for is not trained on, not even around the held-out object, as long as a class has more.
    let frames = library.videos.iter().flat_map(|video| &video.frames);
    let held_out = |object: &Object| library.classes[object.class].split == Split::Validation;
    let asked_for: BTreeSet<&Path> =
        frames.filter(|frame| frame.objects.iter().any(held_out)).map(|frame| frame.path.as_path()).collect();
    let is_free = |query: &Query| {
        let frame = &library.videos[query.video].frames[query.frame];
        !asked_for.contains(frame.path.as_path())
    };
    for (index, known) in classes.iter_mut().zip(&library.classes) {
        if known.split == Split::Train && index.frames.iter().filter(|query| is_free(query)).count() > 1 {
            index.frames.retain(is_free);
            index.objects.retain(|object| !asked_for.contains(object.place(library).0));
            index.references.retain(|reference| !asked_for.contains(reference.place(library).0));
        }
    }
    classes
}

#[cfg(test)]
#[path = "episode_tests.rs"]
pub(super) mod tests;
