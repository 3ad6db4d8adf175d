//! From an episode to bytes that can be sent to a device: decoded, cut, varied, with targets. Host memory only.

use std::path::Path;
use std::sync::Arc;

use rand_chacha::ChaCha8Rng;

use super::assignment::{Cell, Targets, Truth, assign, cells, target_bytes};
use super::episode::{Episode, Episodes, FrameNumber, Sight, StepKind, kind_of};
use super::settings::Settings;
use crate::bounded::HeldBytes;
use crate::data::error::DataError;
use crate::data::reference_video::library::{Frame, Library, Split};
use crate::data::sample::{Picture, PictureSource};
use crate::data::seed::generator;
use crate::data::transform::{self, Square};

/// Objects of one frame that are looked at.
const TRUTHS_MAX: usize = 32;
/// Of a box, the least share that must be left in a varied picture.
const SHARE_MIN: f32 = 0.35;
/// Length of a batch's description.
const DESCRIPTION_MAX: usize = 300;

/// What a worker hands to the training thread.
#[derive(Clone, Debug, PartialEq)]
pub enum HostBatch {
    Detection(DetectionBatch),
    Triplet(TripletBatch),
}

/// An episode in bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct DetectionBatch {
    /// Numbers of the classes in the library, one a way.
    pub classes: Vec<usize>,
    /// `[ways * views, R, R, 3]`; the views of one class stand together.
    pub references: Vec<u8>,
    /// `[queries, S, S, 3]`.
    pub queries: Vec<u8>,
    /// Where the queries are from: way asked for, and frame.
    pub sources: Vec<(usize, FrameNumber)>,
    pub truths: Vec<Vec<Truth>>,
    /// Empty in validation.
    pub targets: Targets,
    pub description: String,
}

/// Pictures of single objects.
#[derive(Clone, Debug, PartialEq)]
pub struct TripletBatch {
    /// `[3 * triplets, R, R, 3]`: anchors, positives, negatives.
    pub pictures: Vec<u8>,
    /// The class of each.
    pub classes: Vec<usize>,
    pub description: String,
}

impl HeldBytes for HostBatch {
    fn held_bytes(&self) -> u64 {
        match self {
            Self::Detection(batch) => batch.held_bytes(),
            Self::Triplet(batch) => {
                (batch.pictures.len() + batch.classes.len() * size_of::<usize>() + batch.description.len()) as u64
            }
        }
    }
}

impl HeldBytes for DetectionBatch {
    fn held_bytes(&self) -> u64 {
        let truths: usize = self.truths.iter().map(|truths| truths.len() * size_of::<Truth>()).sum();
        let small = self.classes.len() * size_of::<usize>() + self.sources.len() * size_of::<(usize, FrameNumber)>();
        (self.references.len() + self.queries.len() + truths + small + self.description.len()) as u64
            + self.targets.held_bytes()
    }
}

/// The most bytes that a batch of these settings can have.
pub fn bytes_max(settings: &Settings, triplets: usize) -> u64 {
    let pixels = |count: usize, side: usize| (count * side * side * 3) as u64;
    let queries = settings.n_way * settings.n_query;
    let views = settings.n_way * settings.n_shot * settings.num_aug;
    let small = queries * (TRUTHS_MAX * size_of::<Truth>() + size_of::<(usize, FrameNumber)>()) + settings.n_way * 8;
    let detection = pixels(queries, settings.image_size)
        + pixels(views, settings.reference_size)
        + target_bytes(queries, settings.image_size)
        + small as u64;
    let triplet = pixels(3 * triplets, settings.reference_size) + 24 * triplets as u64;
    detection.max(triplet) + DESCRIPTION_MAX as u64
}

/// Makes batches; shared by the workers.
pub struct Batches {
    pub library: Arc<Library>,
    pub source: Arc<dyn PictureSource>,
    pub episodes: Episodes,
    pub settings: Settings,
    pub triplets: usize,
    /// Batches in one step.
    pub accumulation: u64,
    pub seed: u32,
}

impl std::fmt::Debug for Batches {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Batches of {:?}", self.library.root)
    }
}

impl Batches {
    /// Training batch `number` (from 0).
    pub fn training(&self, number: u64) -> Result<HostBatch, DataError> {
        let step = number / self.accumulation + 1;
        match kind_of(step, self.settings.triplet_ratio) {
            StepKind::Detection => self.detection(number).map(HostBatch::Detection),
            StepKind::Triplet => self.triplet(number).map(HostBatch::Triplet),
        }
    }

    fn detection(&self, number: u64) -> Result<DetectionBatch, DataError> {
        let random = &mut generator(self.seed, "variation", number);
        let mut batch = self.begin(&self.episodes.training(number), random)?;
        let cells = cells(self.settings.image_size);
        for at in 0..batch.sources.len() {
            let frame = self.frame(batch.sources[at].1);
            let square = transform::varied(&self.source.picture(&frame.path)?, self.settings.image_size, random);
            self.add_query(&mut batch, frame, &square, Some(&cells));
        }
        Ok(batch)
    }

    /// Validation episode `number` (from 0): the same bytes each time.
    pub fn validation(&self, number: u64) -> Result<DetectionBatch, DataError> {
        let random = &mut generator(self.seed, "validation views", number);
        let mut batch = self.begin(&self.episodes.validation(number), random)?;
        for at in 0..batch.sources.len() {
            let frame = self.frame(batch.sources[at].1);
            let square = transform::letterbox(&self.source.picture(&frame.path)?, self.settings.image_size);
            self.add_query(&mut batch, frame, &square, None);
        }
        Ok(batch)
    }

    /// References are done, queries are named.
    fn begin(&self, episode: &Episode, random: &mut ChaCha8Rng) -> Result<DetectionBatch, DataError> {
        let side = self.settings.reference_size;
        let mut references = Vec::new();
        for (class, chosen) in episode.classes.iter().zip(&episode.references) {
            // The number of views is the same for all classes, whatever the number of references that a class has.
            for shot in 0..self.settings.n_shot {
                let number = chosen[shot % chosen.len()];
                let picture = self.sight(Sight::Reference { class: *class, number })?;
                for view in 0..self.settings.num_aug {
                    references.extend(picture.view(view > 0 || shot >= chosen.len(), side, random).rgb);
                }
            }
        }
        let sources: Vec<(usize, FrameNumber)> = episode
            .queries
            .iter()
            .enumerate()
            .flat_map(|(way, frames)| frames.iter().map(move |frame| (way, *frame)))
            .collect();
        Ok(DetectionBatch {
            classes: episode.classes.clone(),
            references,
            queries: Vec::with_capacity(sources.len() * self.settings.image_size.pow(2) * 3),
            truths: Vec::with_capacity(sources.len()),
            targets: Targets::default(),
            description: self.describe(&episode.classes, &sources),
            sources,
        })
    }

    fn add_query(&self, batch: &mut DetectionBatch, frame: &Frame, square: &Square, cells: Option<&[Cell]>) {
        let training = cells.is_some();
        let mut truths = Vec::with_capacity(frame.objects.len().min(TRUTHS_MAX));
        for object in frame.objects.iter().take(TRUTHS_MAX) {
            let Some(rectangle) = square.place(object.rectangle, self.settings.image_size, 0.02) else { continue };
            let hidden = square.place(object.rectangle, self.settings.image_size, SHARE_MIN).is_none();
            let split = self.library.classes[object.class].split;
            let way = batch.classes.iter().position(|class| *class == object.class);
            // What is held out or unused is not background in training: it is not looked at.
            let unused = training && split != Split::Train;
            truths.push(Truth { class: object.class, way, rectangle, ignore: object.ignore || hidden || unused });
        }
        if let Some(cells) = cells {
            assign(&mut batch.targets, cells, &truths);
        }
        batch.queries.extend_from_slice(&square.rgb);
        batch.truths.push(truths);
    }

    fn triplet(&self, number: u64) -> Result<TripletBatch, DataError> {
        let random = &mut generator(self.seed, "triplet views", number);
        let sights = self.episodes.triplets(number, self.triplets);
        let side = self.settings.reference_size;
        let mut pictures = Vec::with_capacity(sights.len() * side * side * 3);
        let mut classes = Vec::with_capacity(sights.len());
        for sight in sights {
            pictures.extend(self.sight(sight)?.view(true, side, random).rgb);
            classes.push(match sight {
                Sight::Reference { class, .. } | Sight::Frame { class, .. } => class,
            });
        }
        let description = self.describe(&classes[..self.triplets.min(classes.len())], &[]);
        Ok(TripletBatch { pictures, classes, description })
    }

    fn frame(&self, at: FrameNumber) -> &Frame {
        &self.library.videos[at.video as usize].frames[at.frame as usize]
    }

    fn sight(&self, sight: Sight) -> Result<Seen, DataError> {
        let (path, rectangle): (&Path, _) = match sight {
            Sight::Reference { class, number } => {
                let reference = &self.library.classes[class].references[number];
                (&reference.path, reference.rectangle)
            }
            Sight::Frame { class, at } => {
                let frame = self.frame(at);
                let object = frame.objects.iter().find(|object| object.class == class && !object.ignore);
                (&frame.path, object.map(|object| object.rectangle))
            }
        };
        Ok(Seen { picture: self.source.picture(path)?, rectangle })
    }

    fn describe(&self, classes: &[usize], sources: &[(usize, FrameNumber)]) -> String {
        let names: Vec<&str> = classes.iter().map(|class| self.library.classes[*class].name.as_str()).collect();
        let mut text = format!("classes {}", names.join(", "));
        if let Some((_, first)) = sources.first() {
            text.push_str(&format!("; first frame {}", self.frame(*first).path.display()));
        }
        let mut end = text.len().min(DESCRIPTION_MAX);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text
    }
}

/// A picture with an object in it.
struct Seen {
    picture: Picture,
    rectangle: Option<crate::data::sample::Rectangle>,
}

impl Seen {
    fn view(&self, varied: bool, side: usize, random: &mut ChaCha8Rng) -> Square {
        match varied {
            true => transform::varied_object(&self.picture, self.rectangle, side, random),
            false => transform::object(&self.picture, self.rectangle, side),
        }
    }
}
