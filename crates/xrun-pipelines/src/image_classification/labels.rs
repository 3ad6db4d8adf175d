//! Classes of pictures: which picture shows what, and which pictures are held out.

use std::collections::BTreeMap;

use xrun_core::bounded::buffer::Buffer;
use xrun_core::bounded::ledger::{Cap, Policy};
use xrun_core::dataset::error::DataError;
use xrun_core::dataset::sample::BoundingBox;
use xrun_core::dataset::split::Split;
use xrun_core::printable;
use xrun_data::boxes::library::{Frame, Library};
use xrun_data::order::Order;

/// A picture with its class.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Labelled {
    /// Index into [`Library::videos`].
    pub video: u32,
    /// Index into its frames.
    pub frame: u32,
    /// Index into [`Labels::classes`].
    pub class: u32,
    /// The object that the class is of.
    pub rectangle: BoundingBox,
}

impl Labelled {
    /// The frame of the library that it is.
    pub fn frame<'a>(&self, library: &'a Library) -> &'a Frame {
        &library.videos[self.video as usize].frames[self.frame as usize]
    }
}

/// All pictures that show something.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Labels {
    /// Names, in the order of the data set's.
    pub classes: Vec<String>,
    /// Pictures to train on.
    pub train: Vec<Labelled>,
    /// Pictures to validate with, in an order that is drawn once.
    pub held_out: Vec<Labelled>,
}

impl Labels {
    /// Labels of all pictures of a data set. The seed draws which are held out where the data set has no part for that.
    ///
    /// # Errors
    /// There are fewer than two classes, or nothing to train on or to validate with.
    pub fn new(library: &Library, validation_share: f64, seed: u32) -> Result<Self, DataError> {
        let mut found: Vec<(Labelled, Option<Split>)> = Vec::new();
        for (number, video) in library.videos.iter().enumerate() {
            for (at, frame) in video.frames.iter().enumerate() {
                let Some((class, rectangle)) = shown(library, frame) else { continue };
                let labelled = Labelled { video: number as u32, frame: at as u32, class: class as u32, rectangle };
                found.push((labelled, video.part));
            }
        }
        let (mut train, mut held_out): (Vec<Labelled>, Vec<Labelled>) = (Vec::new(), Vec::new());
        if found.iter().any(|(_, part)| part.is_some()) {
            for (labelled, part) in found {
                if part == Some(Split::Validation) { held_out.push(labelled) } else { train.push(labelled) }
            }
        } else {
            let out = videos_held_out(&found, validation_share, seed);
            let all = found.into_iter().map(|(labelled, _)| labelled);
            (held_out, train) = all.partition(|labelled| out.contains(&labelled.video));
        }
        let order = Order::new(seed, "validation pictures", 0, held_out.len() as u64);
        held_out = (0..held_out.len() as u64).map(|at| held_out[order.at(at) as usize]).collect();
        Self { classes: Vec::new(), train, held_out }.numbered(library)
    }

    /// Numbers the classes that are trained on from 0.
    fn numbered(mut self, library: &Library) -> Result<Self, DataError> {
        let mut number: BTreeMap<u32, u32> = self.train.iter().map(|labelled| (labelled.class, 0)).collect();
        self.classes = number.keys().map(|class| library.classes[*class as usize].name.clone()).collect();
        number.values_mut().zip(0..).for_each(|(number, next)| *number = next);
        if let Some(only) = self.held_out.iter().find(|labelled| !number.contains_key(&labelled.class)) {
            let name = printable::line(&library.classes[only.class as usize].name, 60);
            let message = format!(
                "the class \"{name}\" is shown in the part to validate on and not in the one to train on; add pictures of it, \
                 or name the classes to use in `train_classes`"
            );
            return Err(DataError::value(format!("{}.train_classes", library.section), message));
        }
        let all = self.train.iter_mut().chain(&mut self.held_out);
        all.for_each(|labelled| labelled.class = number[&labelled.class]);
        let (train, held_out, classes) = (self.train.len(), self.held_out.len(), self.classes.len());
        match (classes, held_out) {
            (0 | 1, _) => Err(DataError::content(format!(
                "{train} pictures to train on show {classes} classes, and at least 2 are needed; the class of a picture is that \
                 of its largest box"
            ))),
            (_, 0) => Err(DataError::content(format!(
                "no picture is held out: each class has one picture alone, or video; a class needs two ({train} pictures of \
                 {classes} classes)"
            ))),
            _ => Ok(self),
        }
    }

    /// The place of it in the ledger.
    pub fn buffer(&self) -> Buffer {
        let items = (self.train.capacity() + self.held_out.capacity()) as u64;
        let names: usize = self.classes.iter().map(|name| size_of::<String>() + name.capacity()).sum();
        let cap = Cap { items, bytes: items * size_of::<Labelled>() as u64 + names as u64 };
        Buffer::new("labels", Policy::Refuse, cap).because("the class of each picture")
    }

    /// The share of the first `count` held-out pictures that show the class that most of them show.
    pub fn largest_share(&self, count: usize) -> f64 {
        let mut counts = vec![0_usize; self.classes.len()];
        self.held_out.iter().take(count).for_each(|labelled| counts[labelled.class as usize] += 1);
        counts.into_iter().max().unwrap_or(0) as f64 / count.max(1) as f64
    }
}

/// Class and box of the largest object that counts; of two of a size the first.
fn shown(library: &Library, frame: &Frame) -> Option<(usize, BoundingBox)> {
    let counts = |class: usize| library.classes[class].split.is_some();
    let objects = frame.objects.iter().filter(|object| object.ignored.is_none() && counts(object.class));
    let largest = objects.rev().max_by(|one, other| one.rectangle.area().total_cmp(&other.rectangle.area()));
    largest.map(|object| (object.class, object.rectangle))
}

/// Videos and stills that are held out: of each class the share, at least one, and never all.
fn videos_held_out(found: &[(Labelled, Option<Split>)], share: f64, seed: u32) -> std::collections::BTreeSet<u32> {
    let mut of_class: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    let mut last = None;
    for (labelled, _) in found {
        // A video is of the class that is seen in it first.
        if last.replace(labelled.video) != Some(labelled.video) {
            of_class.entry(labelled.class).or_default().push(labelled.video);
        }
    }
    let chosen = of_class.into_iter().flat_map(|(class, videos)| {
        let most = videos.len().saturating_sub(1);
        let count = ((videos.len() as f64 * share).round() as usize).max(1).min(most);
        let order = Order::new(seed, "held-out pictures", u64::from(class), videos.len() as u64);
        (0..count as u64).map(|at| videos[order.at(at) as usize]).collect::<Vec<_>>()
    });
    chosen.collect()
}

#[cfg(test)]
#[path = "labels_tests.rs"]
mod tests;
