//! Batches on the host: episodes and triplets, decoded and augmented.
//!
//! A batch is made on any thread, as a pure function of its number. Pixels stay 8-bit; the training thread converts them to tensors.
//! Validation batches are not augmented, except for the fixed views of references.

use std::path::Path;
use std::sync::Arc;

use rand_chacha::ChaCha8Rng;

use super::decode::FrameGeometry;
use super::episode::{Episode, Episodes, Exemplar, Query};
use super::settings::FewshotDetection;
use super::step_kind::StepKind;
use xrun_core::bounded::DeepSize;
use xrun_core::dataset::error::DataError;
use xrun_core::dataset::sample::{BoundingBox, HostImage, ImageSource};
use xrun_core::dataset::split::Split;
use xrun_core::seed::generator;
use xrun_data::boxes::library::{Frame, Object};
use xrun_data::transform;
use xrun_data::transform::Mapping;

/// Maximum number of objects of a frame; those of the episode's classes come first. COCO has 7 objects per image on average.
pub const TRUTHS_MAX: usize = 32;
/// Maximum length of the description of a batch.
pub const DESCRIPTION_BYTES_MAX: usize = 300;
/// Minimum fraction of an object's box that is inside the square after augmentation; other objects are masked.
const VISIBLE_FRACTION_MIN: f32 = 0.25;

/// Batch on the host.
#[derive(Clone, Debug, PartialEq)]
pub enum HostBatch {
    /// Episode: references, and query frames in which to detect their classes.
    Detection(DetectionBatch),
    /// Images of single objects for the triplet loss.
    Triplet(TripletBatch),
}

/// Episode with its pixels.
#[derive(Clone, Debug, PartialEq)]
pub struct DetectionBatch {
    /// Indices into the library's classes: `n_way`, or all fixed classes. The index in this list is the way of a class.
    pub classes: Vec<usize>,
    /// 8-bit RGB query frames, `[queries, S, S, 3]` with S the `image_size`.
    pub query_pixels: Vec<u8>,
    /// 8-bit RGB references, `[n_way, n_shot, augmentations, R, R, 3]` with R the `reference_size`. View 0 of each is not augmented.
    /// Empty in a batch of fixed classes; a validation puts one of each there, for the report.
    pub reference_pixels: Vec<u8>,
    /// Query frames, `[queries]`.
    pub queries: Vec<QueryFrame>,
    description: Box<str>,
}

/// Query frame and its objects.
#[derive(Clone, Debug, PartialEq)]
pub struct QueryFrame {
    /// Frame in the library.
    pub query: Query,
    /// Size of the frame and its position in the square.
    pub geometry: FrameGeometry,
    /// At most [`TRUTHS_MAX`] objects.
    pub truths: Box<[QueryTruth]>,
    /// Number of objects beyond [`TRUTHS_MAX`].
    pub truths_left_out: usize,
}

/// Annotated object in a query frame.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QueryTruth {
    /// Role in the episode.
    pub role: Role,
    /// Box in pixels of the square, clipped to it.
    pub rectangle: BoundingBox,
}

/// Role of an object in the losses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Object of a class of the episode, given by its way.
    Class(usize),
    /// Object of a class that is not in the episode: objectness and box, no class.
    Other,
    /// Object without influence on the losses: weight 0.
    Masked,
}

/// Images of triplets.
#[derive(Clone, Debug, PartialEq)]
pub struct TripletBatch {
    /// 8-bit RGB images, `[3 * T, R, R, 3]`: all anchors, all positives, all negatives.
    pub pixels: Vec<u8>,
    /// Indices into the library's classes, `[3 * T]`, in the same order.
    pub classes: Vec<usize>,
    description: Box<str>,
}

impl HostBatch {
    /// Description for messages, at most [`DESCRIPTION_BYTES_MAX`] bytes.
    pub fn describe(&self) -> &str {
        match self {
            Self::Detection(batch) => &batch.description,
            Self::Triplet(batch) => &batch.description,
        }
    }
}

impl DeepSize for DetectionBatch {
    fn deep_size(&self) -> u64 {
        let truths: usize = self.queries.iter().map(|query| size_of_val(&*query.truths)).sum();
        let lists = self.classes.capacity() * size_of::<usize>() + self.queries.capacity() * size_of::<QueryFrame>();
        let pixels = self.query_pixels.capacity() + self.reference_pixels.capacity();
        (size_of::<HostBatch>() + pixels + lists + truths + self.description.len()) as u64
    }
}

impl DeepSize for HostBatch {
    fn deep_size(&self) -> u64 {
        match self {
            Self::Detection(batch) => batch.deep_size(),
            Self::Triplet(batch) => {
                let lists = batch.pixels.capacity() + batch.classes.capacity() * size_of::<usize>();
                (size_of::<Self>() + lists + batch.description.len()) as u64
            }
        }
    }
}

/// Maximum size of a batch in bytes. `fixed_classes` have no references.
pub fn batch_bytes_max(settings: &FewshotDetection, fixed_classes: Option<usize>) -> u64 {
    let pixels = |side: usize| (side * side * 3) as u64;
    let fixed = (size_of::<HostBatch>() + DESCRIPTION_BYTES_MAX) as u64;
    let query = pixels(settings.image_size) + (size_of::<QueryFrame>() + TRUTHS_MAX * size_of::<QueryTruth>()) as u64;
    let queries = (settings.n_way * settings.n_query) as u64;
    let reference = pixels(settings.reference_size);
    let (classes, references) = match fixed_classes {
        Some(classes) => (classes, 0),
        None => (settings.n_way, (settings.n_way * settings.n_shot * settings.augmentations) as u64),
    };
    let detection = queries * query + references * reference + (classes * size_of::<usize>()) as u64;
    // With a ratio of 0 there are no triplet batches; with 1 there are still the detection batches of the validation.
    let triplet = match settings.triplet_ratio > 0.0 {
        true => 3 * settings.triplet_batch_size as u64 * (reference + size_of::<usize>() as u64),
        false => 0,
    };
    fixed + detection.max(triplet)
}

/// Draws and prepares batches; shared by the workers of a feed.
#[derive(Clone)]
pub struct BatchLoader {
    /// Source of episodes and triplets.
    pub episodes: Episodes,
    source: Arc<dyn ImageSource>,
}

impl std::fmt::Debug for BatchLoader {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "BatchLoader({})", self.episodes.library.root.display())
    }
}

/// Use of a batch; training images are augmented.
#[derive(Clone, Copy, PartialEq)]
enum Purpose {
    Training,
    Validation,
}

impl BatchLoader {
    /// Source of batches of these episodes; `source` decodes their images.
    pub fn new(episodes: Episodes, source: Arc<dyn ImageSource>) -> Self {
        Self { episodes, source }
    }

    /// Wraps the source of images.
    pub fn wrap_source(&mut self, wrap: impl FnOnce(Arc<dyn ImageSource>) -> Arc<dyn ImageSource>) {
        self.source = wrap(self.source.clone());
    }

    /// Makes training batch `number` (from 0).
    ///
    /// # Errors
    /// An image cannot be used; the error names it.
    pub fn training_batch(&self, number: u64) -> Result<HostBatch, DataError> {
        let mut generator = generator(self.episodes.seed, "augmentation", number);
        match self.episodes.kind_of_batch(number) {
            StepKind::Detection => {
                let episode = self.episodes.draw(number);
                let name = format!("episode {number}");
                self.detection(episode, &name, Purpose::Training, &mut generator).map(HostBatch::Detection)
            }
            StepKind::Triplet => self.triplets(number, &mut generator).map(HostBatch::Triplet),
        }
    }

    /// Makes episode `index` (from 0) of a validation; the same bytes each time. If no class is held out, it has no references.
    ///
    /// # Errors
    /// An image cannot be used; the error names it.
    pub fn validation_batch(&self, index: u64) -> Result<DetectionBatch, DataError> {
        let mut generator = generator(self.episodes.seed, "validation views", index);
        let episode = self.episodes.draw_validation(index);
        self.detection(episode, &format!("validation episode {index}"), Purpose::Validation, &mut generator)
    }

    /// Makes the first reference of each class of a validation, `[classes, R, R, 3]`.
    ///
    /// # Errors
    /// An image cannot be used; the error names it.
    pub fn first_references(&self) -> Result<Vec<u8>, DataError> {
        let side = self.episodes.settings.reference_size;
        let mut pixels = Vec::with_capacity(self.episodes.validated.len() * side * side * 3);
        for class in &self.episodes.validated {
            let (image, object) = self.exemplar(&self.episodes.first_reference(*class))?;
            pixels.extend_from_slice(&transform::reference(&image, object.as_ref(), side).rgb);
        }
        Ok(pixels)
    }

    /// Makes the references alone of episode `index` (from 0) of a validation, the same as in [`BatchLoader::validation_batch`]:
    /// `[n_way, n_shot, augmentations, R, R, 3]`.
    ///
    /// # Errors
    /// An image cannot be used; the error names it.
    pub fn validation_references(&self, index: u64) -> Result<Vec<u8>, DataError> {
        let mut generator = generator(self.episodes.seed, "validation views", index);
        self.references(&self.episodes.draw_validation(index), &mut generator)
    }

    fn references(&self, episode: &Episode, generator: &mut ChaCha8Rng) -> Result<Vec<u8>, DataError> {
        let FewshotDetection { reference_size, augmentations, .. } = self.episodes.settings;
        let reference_count = episode.references.iter().map(Vec::len).sum::<usize>() * augmentations;
        let mut reference_pixels = Vec::with_capacity(reference_count * reference_size * reference_size * 3);
        for exemplar in episode.references.iter().flatten() {
            let (image, object) = self.exemplar(exemplar)?;
            reference_pixels.extend_from_slice(&transform::reference(&image, object.as_ref(), reference_size).rgb);
            for _ in 1..augmentations {
                let view = transform::augment_reference(&image, object.as_ref(), reference_size, generator);
                reference_pixels.extend_from_slice(&view.rgb);
            }
        }
        Ok(reference_pixels)
    }

    fn detection(
        &self,
        episode: Episode,
        name: &str,
        purpose: Purpose,
        generator: &mut ChaCha8Rng,
    ) -> Result<DetectionBatch, DataError> {
        let side = self.episodes.settings.image_size;
        // References come first in the order of the random numbers. Fixed classes have none.
        let reference_pixels = self.references(&episode, generator)?;
        let mut query_pixels = Vec::with_capacity(episode.queries.len() * side * side * 3);
        let mut queries = Vec::with_capacity(episode.queries.len());
        for &query in &episode.queries {
            let frame = self.frame(query);
            let image = self.frame_image(frame)?;
            let (square, mapping) = match purpose {
                Purpose::Training => transform::augment_query(&image, side, generator),
                Purpose::Validation => transform::letterbox(&image, side),
            };
            query_pixels.extend_from_slice(&square.rgb);
            let (truths, truths_left_out) = self.truths(frame, &episode.classes, &mapping, purpose);
            let geometry = FrameGeometry { mapping, width: frame.width, height: frame.height };
            queries.push(QueryFrame { query, geometry, truths, truths_left_out });
        }
        let description = self.describe(name, &episode.classes, &episode.queries);
        Ok(DetectionBatch { classes: episode.classes, query_pixels, reference_pixels, queries, description })
    }

    fn triplets(&self, number: u64, generator: &mut ChaCha8Rng) -> Result<TripletBatch, DataError> {
        let side = self.episodes.settings.reference_size;
        let triplets = self.episodes.draw_triplets(number);
        let mut exemplars = Vec::with_capacity(triplets.len() * 3);
        exemplars.extend(triplets.iter().map(|triplet| triplet.anchor));
        exemplars.extend(triplets.iter().map(|triplet| triplet.positive));
        exemplars.extend(triplets.iter().map(|triplet| triplet.negative));
        let mut pixels = Vec::with_capacity(exemplars.len() * side * side * 3);
        for exemplar in &exemplars {
            let (image, object) = self.exemplar(exemplar)?;
            pixels.extend_from_slice(&transform::augment_reference(&image, object.as_ref(), side, generator).rgb);
        }
        let classes: Vec<usize> = exemplars.iter().map(Exemplar::class).collect();
        let mut named = classes.clone();
        named.sort_unstable();
        named.dedup();
        Ok(TripletBatch { pixels, classes, description: self.describe(&format!("triplets {number}"), &named, &[]) })
    }

    fn frame(&self, query: Query) -> &Frame {
        &self.episodes.library.videos[query.video].frames[query.frame]
    }

    /// Decodes a frame, whose size must be that of the annotations: otherwise boxes would not fit.
    fn frame_image(&self, frame: &Frame) -> Result<HostImage, DataError> {
        let image = self.source.image(&frame.path)?;
        if (image.width, image.height) == (frame.width, frame.height) {
            return Ok(image);
        }
        let message = format!(
            "the image has {} x {} pixels, but its annotation says {} x {}",
            image.width, image.height, frame.width, frame.height
        );
        Err(DataError::file(&frame.path, message))
    }

    fn exemplar(&self, exemplar: &Exemplar) -> Result<(HostImage, Option<BoundingBox>), DataError> {
        let (path, object): (&Path, _) = exemplar.place(&self.episodes.library);
        let image = match exemplar {
            Exemplar::Reference { .. } => self.source.image(path)?,
            Exemplar::Object { query, .. } => self.frame_image(self.frame(*query))?,
        };
        Ok((image, object.copied()))
    }

    fn truths(
        &self,
        frame: &Frame,
        classes: &[usize],
        mapping: &Mapping,
        purpose: Purpose,
    ) -> (Box<[QueryTruth]>, usize) {
        let side = self.episodes.settings.image_size as f32;
        let truth = |object: &Object| -> Option<QueryTruth> {
            let mapped = mapping.forth(&object.rectangle);
            let rectangle = transform::clip(&mapped, side, side);
            if rectangle.area() <= 0.0 {
                return None;
            }
            let barely_visible = rectangle.area() < VISIBLE_FRACTION_MIN * mapped.area();
            let role = if barely_visible { Role::Masked } else { self.role(object, classes, purpose) };
            Some(QueryTruth { role, rectangle })
        };
        let mut truths: Vec<QueryTruth> = frame.objects.iter().filter_map(truth).collect();
        let left_out = if truths.len() > TRUTHS_MAX { truths.len() - (TRUTHS_MAX - 1) } else { 0 };
        let rank = |truth: &QueryTruth| match truth.role {
            Role::Class(_) => 0,
            Role::Other => 1,
            Role::Masked => 2,
        };
        truths.sort_by_key(rank);
        if left_out > 0 {
            // The area of the remaining objects is not background: one mask encloses them all.
            let rest = truths.split_off(TRUTHS_MAX - 1);
            let enclosing = rest.into_iter().map(|truth| truth.rectangle).reduce(|all, one| BoundingBox {
                left: all.left.min(one.left),
                top: all.top.min(one.top),
                right: all.right.max(one.right),
                bottom: all.bottom.max(one.bottom),
            });
            truths.extend(enclosing.map(|rectangle| QueryTruth { role: Role::Masked, rectangle }));
        }
        (truths.into_boxed_slice(), left_out)
    }

    fn role(&self, object: &Object, classes: &[usize], purpose: Purpose) -> Role {
        if object.ignored.is_some() {
            return Role::Masked;
        }
        if let Some(way) = classes.iter().position(|class| *class == object.class) {
            return Role::Class(way);
        }
        match (self.episodes.library.classes[object.class].split, purpose) {
            (None, _) | (Some(Split::Validation), Purpose::Training) => Role::Masked,
            (Some(_), _) => Role::Other,
        }
    }

    fn describe(&self, name: &str, classes: &[usize], queries: &[Query]) -> Box<str> {
        let library = &self.episodes.library;
        let mut text = format!("{name}; classes");
        for (index, class) in classes.iter().enumerate() {
            let separator = if index == 0 { " " } else { ", " };
            text = text + separator + truncate(&library.classes[*class].name, 24);
            if text.len() > DESCRIPTION_BYTES_MAX / 2 {
                text += ", …";
                break;
            }
        }
        for (index, query) in queries.iter().enumerate() {
            let path = self.frame(*query).path.display().to_string();
            let separator = if index == 0 { "; frames " } else { ", " };
            if text.len() + separator.len() + path.len() + 20 > DESCRIPTION_BYTES_MAX {
                text += &format!(" and {} more", queries.len() - index);
                break;
            }
            text = text + separator + &path;
        }
        truncate(&text, DESCRIPTION_BYTES_MAX).into()
    }
}

fn truncate(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

#[cfg(test)]
#[path = "batch_tests.rs"]
mod tests;
