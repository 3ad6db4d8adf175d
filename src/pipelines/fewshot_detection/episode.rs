//! Which classes, references, frames and triplets make up a batch? Drawn from the index; no pictures yet.

use std::sync::Arc;

use rand::Rng;
use rand::seq::{IndexedRandom, SliceRandom};

use super::settings::Settings;
use crate::data::reference_video::library::{Library, Reference, Split};
use crate::data::seed::generator;
use crate::memory::ledger::{Cap, Holding, Ledger, Policy};
use crate::results::format::{Place, PlannedOwner};

const INDEX: &str = "episode_index";

/// A frame of a video, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FrameNumber {
    pub video: u32,
    pub frame: u32,
}

/// What an episode asks: find these classes in these frames.
#[derive(Clone, Debug, PartialEq)]
pub struct Episode {
    /// Numbers of the classes in the library.
    pub classes: Vec<usize>,
    /// For each class its reference pictures: positions in the class's list.
    pub references: Vec<Vec<usize>>,
    /// For each class its query frames.
    pub queries: Vec<Vec<FrameNumber>>,
}

/// One picture of an object: a reference or an object in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sight {
    Reference { class: usize, number: usize },
    Frame { class: usize, at: FrameNumber },
}

/// What kind of step it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepKind {
    Detection,
    Triplet,
}

/// Draws episodes. Every draw is a pure function of the seed and a number.
#[derive(Debug)]
pub struct Episodes {
    library: Arc<Library>,
    settings: Settings,
    seed: u32,
    train: Vec<usize>,
    validation: Vec<usize>,
    /// For each class the frames that show it.
    shown: Vec<Vec<FrameNumber>>,
    _holding: Holding,
}

impl Episodes {
    pub fn new(library: Arc<Library>, settings: &Settings, seed: u32, ledger: &Ledger) -> Self {
        let of = |split: Split| -> Vec<usize> {
            (0..library.classes.len()).filter(|class| library.classes[*class].split == split).collect()
        };
        let mut shown: Vec<Vec<FrameNumber>> = vec![Vec::new(); library.classes.len()];
        for (at, objects) in frames(&library) {
            for object in objects.iter().filter(|object| !object.ignore) {
                if shown[object.class].last() != Some(&at) {
                    shown[object.class].push(at);
                }
            }
        }
        let cap = index_cap(&library);
        let holding = ledger.register(INDEX, cap, Policy::Refuse);
        let items: usize = shown.iter().map(Vec::len).sum();
        holding.set(items as u64, (items * size_of::<FrameNumber>()) as u64);
        let (train, validation) = (of(Split::Train), of(Split::Validation));
        Self { settings: settings.clone(), seed, train, validation, shown, _holding: holding, library }
    }

    /// Classes to train on, and held-out ones.
    pub fn classes(&self) -> (&[usize], &[usize]) {
        (&self.train, &self.validation)
    }

    /// The episode of a training batch.
    pub fn training(&self, number: u64) -> Episode {
        let random = &mut generator(self.seed, "episode", number);
        let classes: Vec<usize> = self.train.sample(random, self.settings.n_way).copied().collect();
        let references = classes.iter().map(|class| self.references(*class, random)).collect();
        let queries = classes
            .iter()
            .zip(&references)
            .map(|(class, references): (&usize, &Vec<usize>)| {
                let free = self.frames_without(*class, references);
                // Again from the start when there are fewer frames than asked for.
                let mut drawn: Vec<FrameNumber> = free.sample(random, self.settings.n_query).copied().collect();
                while drawn.len() < self.settings.n_query {
                    drawn.push(*free.choose(random).unwrap_or(&free[0]));
                }
                drawn
            })
            .collect();
        Episode { classes, references, queries }
    }

    /// One of the episodes of a validation: the same ones each time. Queries are runs of frames where the data has
    /// sequences, frames without the object among them.
    pub fn validation(&self, number: u64) -> Episode {
        let random = &mut generator(self.seed, "validation", number);
        let ways = self.settings.n_way.min(self.validation.len());
        let classes: Vec<usize> = self.validation.sample(random, ways).copied().collect();
        let references: Vec<Vec<usize>> = classes.iter().map(|class| self.references(*class, random)).collect();
        let queries = classes
            .iter()
            .zip(&references)
            .map(|(class, references): (&usize, &Vec<usize>)| self.run_of_frames(*class, references, random))
            .collect();
        Episode { classes, references, queries }
    }

    fn references(&self, class: usize, random: &mut impl Rng) -> Vec<usize> {
        let all: Vec<usize> = (0..self.library.classes[class].references.len()).collect();
        all.sample(random, self.settings.n_shot).copied().collect()
    }

    /// Frames of the class in other videos than those that the references were cut from; all, when there are no others.
    fn frames_without(&self, class: usize, references: &[usize]) -> Vec<FrameNumber> {
        let list: &[Reference] = &self.library.classes[class].references;
        let taken: Vec<u32> =
            references.iter().filter_map(|number| list[*number].video).map(|video| video as u32).collect();
        let free: Vec<FrameNumber> =
            self.shown[class].iter().filter(|at| !taken.contains(&at.video)).copied().collect();
        if free.is_empty() { self.shown[class].clone() } else { free }
    }

    fn run_of_frames(&self, class: usize, references: &[usize], random: &mut impl Rng) -> Vec<FrameNumber> {
        let count = self.settings.n_query;
        let free = self.frames_without(class, references);
        let Some(first) = free.choose(random).copied() else { return Vec::new() };
        let video = &self.library.videos[first.video as usize];
        if !video.sequence {
            return free.sample(random, count).copied().collect();
        }
        let last_start = video.frames.len().saturating_sub(count) as u32;
        let start = first.frame.saturating_sub((count / 2) as u32).min(last_start);
        let end = (start as usize + count).min(video.frames.len()) as u32;
        (start..end).map(|frame| FrameNumber { video: first.video, frame }).collect()
    }

    /// Anchors, positives and negatives, `count` of each, in this order. Neighbours in the list of classes are each
    /// other's negatives, so that a batch holds few classes with several pictures each, as batch-hard mining wants.
    pub fn triplets(&self, number: u64, count: usize) -> Vec<Sight> {
        let random = &mut generator(self.seed, "triplet", number);
        let mut order = self.train.clone();
        order.shuffle(random);
        let mut sights = Vec::with_capacity(3 * count);
        let class_of = |triplet: usize| order[triplet % order.len()];
        for offset in [0, 0, 1] {
            for triplet in 0..count {
                sights.push(self.sight(class_of(triplet + offset), random));
            }
        }
        sights
    }

    fn sight(&self, class: usize, random: &mut impl Rng) -> Sight {
        let references = self.library.classes[class].references.len();
        let frames = self.shown[class].len();
        let number = (random.next_u64() % (references + references.min(frames)).max(1) as u64) as usize;
        if number < references {
            return Sight::Reference { class, number };
        }
        let at = *self.shown[class].choose(random).unwrap_or(&FrameNumber { video: 0, frame: 0 });
        Sight::Frame { class, at }
    }
}

fn frames(
    library: &Library,
) -> impl Iterator<Item = (FrameNumber, &Vec<crate::data::reference_video::library::Object>)> {
    library.videos.iter().enumerate().flat_map(|(video, content)| {
        let video = video as u32;
        content
            .frames
            .iter()
            .enumerate()
            .map(move |(frame, content)| (FrameNumber { video, frame: frame as u32 }, &content.objects))
    })
}

fn index_cap(library: &Library) -> Cap {
    let objects: usize = frames(library).map(|(_, objects)| objects.len()).sum();
    Cap { items: objects as u64, bytes: (objects * size_of::<FrameNumber>()) as u64 }
}

/// The owner that [`Episodes::new`] registers.
pub fn planned_owners(library: &Library) -> Vec<PlannedOwner> {
    let cap = index_cap(library);
    vec![PlannedOwner {
        name: INDEX.into(),
        place: Place::Host,
        policy: Policy::Refuse,
        items: cap.items,
        bytes: cap.bytes,
        because: "which frames show which class".into(),
    }]
}

/// What kind of step this is (from 1). The declared share holds over every stretch of steps, not only on average.
pub fn kind_of(step: u64, triplet_ratio: f64) -> StepKind {
    let until = |step: u64| (step as f64 * triplet_ratio + 1e-9).floor();
    if until(step) > until(step - 1) { StepKind::Triplet } else { StepKind::Detection }
}

/// Batches in one pass: each training frame is asked for about once, and triplet batches come on top.
pub fn batches_per_epoch(library: &Library, settings: &Settings) -> u64 {
    let train = |class: usize| library.classes[class].split == Split::Train;
    let shown = frames(library).filter(|(_, objects)| objects.iter().any(|o| train(o.class) && !o.ignore)).count();
    let automatic = shown.div_ceil(settings.n_way * settings.n_query).max(1) as u64;
    let episodes = if settings.auto_episodes { automatic } else { settings.episodes.unwrap_or(automatic) };
    match settings.triplet_ratio {
        ratio if ratio < 1.0 => (episodes as f64 / (1.0 - ratio)).round() as u64,
        _ => episodes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_declared_share_of_steps_are_triplet_steps() {
        let kinds: Vec<StepKind> = (1..=10).map(|step| kind_of(step, 0.3)).collect();
        let triplets: Vec<usize> = (1..=10).filter(|step| kinds[step - 1] == StepKind::Triplet).collect();
        assert_eq!(triplets, [4, 7, 10]);
        assert!((1..100).all(|step| kind_of(step, 0.0) == StepKind::Detection));
        assert!((1..100).all(|step| kind_of(step, 1.0) == StepKind::Triplet));
        assert_eq!((1..=1000).filter(|step| kind_of(*step, 0.3) == StepKind::Triplet).count(), 300);
    }
}
