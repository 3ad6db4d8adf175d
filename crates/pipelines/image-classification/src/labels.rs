//! Classes of images, and the split into training and held-out images.

use std::collections::BTreeMap;

use xrun_core::bounded::buffer::Buffer;
use xrun_core::bounded::ledger::{Cap, Policy};
use xrun_core::dataset::error::DataError;
use xrun_core::dataset::sample::BoundingBox;
use xrun_core::dataset::split::Split;
use xrun_core::printable;
use xrun_core::units::pluralize;
use xrun_data::boxes::library::{Frame, Library};
use xrun_data::boxes::validation_split::{Shown, held_out_videos};
use xrun_data::order::permuted;

/// Image with its class.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LabelledImage {
    /// Index into [`Library::videos`].
    pub video: u32,
    /// Index into its frames.
    pub frame: u32,
    /// Index into [`Labels::classes`].
    pub class: u32,
    /// Box of the object that determines the class.
    pub rectangle: BoundingBox,
}

impl LabelledImage {
    /// Frame in the library.
    pub fn frame<'a>(&self, library: &'a Library) -> &'a Frame {
        &library.videos[self.video as usize].frames[self.frame as usize]
    }
}

/// All images that show an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Labels {
    /// Names of the classes, in the order of the data set.
    pub classes: Vec<String>,
    /// Training images.
    pub train: Vec<LabelledImage>,
    /// Validation images in random order.
    pub held_out: Vec<LabelledImage>,
}

impl Labels {
    /// Labels of all images of a data set. The seed selects the held-out images if the data set has no validation part.
    ///
    /// # Errors
    /// There are fewer than two classes, or no image for training or for validation.
    pub fn new(library: &Library, validation_fraction: f64, seed: u32) -> Result<Self, DataError> {
        let mut found: Vec<(LabelledImage, Option<Split>)> = Vec::new();
        for (number, video) in library.videos.iter().enumerate() {
            for (index, frame) in video.frames.iter().enumerate() {
                let Some((class, rectangle)) = largest_object(library, frame) else { continue };
                let (video_index, frame, class) = (number as u32, index as u32, class as u32);
                found.push((LabelledImage { video: video_index, frame, class, rectangle }, video.part));
            }
        }
        let (mut train, mut held_out): (Vec<LabelledImage>, Vec<LabelledImage>) = (Vec::new(), Vec::new());
        if found.iter().any(|(_, part)| part.is_some()) {
            for (labelled, part) in found {
                if part == Some(Split::Validation) { held_out.push(labelled) } else { train.push(labelled) }
            }
        } else {
            let videos = held_out_videos(&class_of_videos(&found), validation_fraction, seed, 1);
            let all = found.into_iter().map(|(labelled, _)| labelled);
            (held_out, train) = all.partition(|labelled| videos.contains(&labelled.video));
        }
        held_out = permuted(&held_out, seed, "validation pictures", 0).collect();
        Self { classes: Vec::new(), train, held_out }.numbered(library)
    }

    /// Numbers the classes of the training images from 0.
    fn numbered(mut self, library: &Library) -> Result<Self, DataError> {
        let mut number: BTreeMap<u32, u32> = self.train.iter().map(|labelled| (labelled.class, 0)).collect();
        self.classes = number.keys().map(|class| library.classes[*class as usize].name.clone()).collect();
        number.values_mut().zip(0..).for_each(|(number, next)| *number = next);
        if let Some(only) = self.held_out.iter().find(|labelled| !number.contains_key(&labelled.class)) {
            let name = printable::line(&library.classes[only.class as usize].name, 60);
            let message = format!(
                "the class \"{name}\" occurs in the validation part of the data but not in the training part; add training images \
                 of it, or list the classes to use in `train_classes`"
            );
            return Err(DataError::value(format!("{}.train_classes", library.section), message));
        }
        let all = self.train.iter_mut().chain(&mut self.held_out);
        all.for_each(|labelled| labelled.class = number[&labelled.class]);
        let (train, held_out, classes) = (self.train.len(), self.held_out.len(), self.classes.len());
        match (classes, held_out) {
            (0 | 1, _) => Err(DataError::content(format!(
                "at least 2 classes are needed, found {classes} in {}; the class of an image is that of its largest box",
                pluralize(train as u64, "training image")
            ))),
            (_, 0) => Err(DataError::content(format!(
                "no image can be held out for validation: at least one class needs two images or videos, found {} of {classes} classes",
                pluralize(train as u64, "image")
            ))),
            _ => Ok(self),
        }
    }

    /// Buffer of the labels for the ledger.
    pub fn buffer(&self) -> Buffer {
        let items = (self.train.capacity() + self.held_out.capacity()) as u64;
        let names: usize = self.classes.iter().map(|name| size_of::<String>() + name.capacity()).sum();
        let cap = Cap { items, bytes: items * size_of::<LabelledImage>() as u64 + names as u64 };
        Buffer::new("labels", Policy::Refuse, cap).because("the class of each image")
    }

    /// Fraction (0..1) of the most frequent class among the first `count` held-out images.
    pub fn majority_fraction(&self, count: usize) -> f64 {
        let mut counts = vec![0_usize; self.classes.len()];
        self.held_out.iter().take(count).for_each(|labelled| counts[labelled.class as usize] += 1);
        counts.into_iter().max().unwrap_or(0) as f64 / count.max(1) as f64
    }
}

/// Class and box of the largest object of a used class, the first of equal ones; `None` if there is none.
fn largest_object(library: &Library, frame: &Frame) -> Option<(usize, BoundingBox)> {
    let is_used = |class: usize| library.classes[class].split.is_some();
    let objects = frame.objects.iter().filter(|object| object.ignored.is_none() && is_used(object.class));
    let largest = objects.rev().max_by(|one, other| one.rectangle.area().total_cmp(&other.rectangle.area()));
    largest.map(|object| (object.class, object.rectangle))
}

/// Class of each video, which is that of its first image.
fn class_of_videos(found: &[(LabelledImage, Option<Split>)]) -> Shown {
    let videos = found.chunk_by(|(one, _), (other, _)| one.video == other.video);
    videos.map(|images| (images[0].0.video, BTreeMap::from([(images[0].0.class, 1)]))).collect()
}

#[cfg(test)]
#[path = "labels_tests.rs"]
mod tests;
