//! How well does the model find classes that it has never seen? Without autodiff, one episode at a time.

use std::collections::BTreeMap;
use std::sync::Arc;

use burn::tensor::activation::sigmoid;

use super::assignment::{Cell, cells};
use super::batch::{Batches, DetectionBatch, Role, batch_bytes_max};
use super::decode::{Answer, DecodeSettings, Detection, FramePlace, decode};
use super::model::ReferenceDetector;
use super::pictures;
use super::pixels::{fetch, pictures as to_tensor};
use super::prepare::{Prepared, VALIDATION_BATCH, VALIDATION_PICTURES, held_out, pictures_cap};
use super::settings::Settings;
use crate::bounded::HeldBytes;
use crate::data::error::DataError;
use crate::data::reference_video::frames::FrameStore;
use crate::data::reference_video::library::Library;
use crate::data::sample::{Picture, PictureSource, Rectangle};
use crate::data::transform;
use crate::device::dispatch::TensorDevice;
use crate::experiment::Experiment;
use crate::experiment::leaks::Leak;
use crate::experiment::sections::{Limits, Validation as Cadence};
use crate::memory::kept::Kept;
use crate::memory::ledger::{Cap, Holding, Ledger, Policy};
use crate::metrics::average_precision::{self, AveragePrecision};
use crate::metrics::separation::Separation;
use crate::metrics::st_iou::StIou;
use crate::nn::Backend;
use crate::task::{Phases, TaskError, ValidationReport};

/// Reference pictures of a class whose embeddings are compared.
const COMPARED_MAX: usize = 16;

/// What every validation uses again.
#[derive(Debug)]
pub struct Validation {
    batches: Batches,
    store: Arc<FrameStore>,
    settings: Settings,
    limits: Limits,
    cadence: Cadence,
    cells: Vec<Cell>,
    precision: AveragePrecision,
    separation: Separation,
    batch: Holding,
    pictures: Holding,
    leaked: Kept<Vec<Detection>>,
    /// Detections that did not fit, over all validations.
    pub left_out: u64,
}

/// One frame's answer: objectness, class probabilities, sides.
struct Answers {
    object: Vec<f32>,
    class: Vec<f32>,
    sides: Vec<f32>,
}

impl Validation {
    pub fn new(prepared: &Prepared, experiment: &Experiment, ledger: &Ledger) -> Self {
        let (limits, cadence) = (&experiment.limits, &experiment.validation);
        let bytes = batch_bytes_max(&prepared.settings, limits);
        Self {
            batches: prepared.batches.clone(),
            store: prepared.store.clone(),
            settings: prepared.settings.clone(),
            limits: limits.clone(),
            cadence: cadence.clone(),
            cells: cells(prepared.settings.image_size),
            precision: AveragePrecision::new(ledger, limits.validation_predictions),
            separation: Separation::new(ledger, held_out(prepared.library()).len(), prepared.model.embedding),
            batch: ledger.register(VALIDATION_BATCH, Cap { items: 1, bytes }, Policy::Refuse),
            pictures: ledger.register(
                VALIDATION_PICTURES,
                pictures_cap(cadence.pictures, prepared.settings.image_size),
                Policy::Refuse,
            ),
            leaked: experiment.leaks.kept(Leak::ValidationPredictions, ledger),
            left_out: 0,
        }
    }

    /// The batch of the first episode.
    pub fn first_batch(&self) -> Result<DetectionBatch, TaskError> {
        Ok(self.batches.prepare_validation(0)?)
    }

    /// All episodes. `model` is the plain one, without autodiff.
    pub fn run(
        &mut self,
        model: &ReferenceDetector<Backend>,
        device: &TensorDevice,
        phases: &mut dyn Phases,
    ) -> Result<ValidationReport, TaskError> {
        let mut followed = StIou::default();
        let mut shown = Vec::new();
        for number in 0..self.cadence.episodes as u64 {
            phases.enter("validation_data");
            let batch = self.batches.prepare_validation(number)?;
            self.batch.set(1, batch.held_bytes());
            phases.enter("validation");
            self.episode(model, device, number, &batch, &mut followed, &mut shown);
            drop(batch);
            self.batch.set(0, 0);
        }
        let (within, between) = self.compare(model, device)?;
        let scores = self.precision.finish();
        self.left_out += scores.left_out;
        let metrics = [
            ("map50", scores.map50),
            ("map", scores.map),
            ("recall", scores.recall),
            ("st_iou", followed.mean()),
            ("embedding_within", within),
            ("embedding_between", between),
        ];
        // They are the loop's now, which writes them down and lets them go.
        self.pictures.set(0, 0);
        let metrics = metrics.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        Ok(ValidationReport { metrics, pictures: shown })
    }

    fn episode(
        &mut self,
        model: &ReferenceDetector<Backend>,
        device: &TensorDevice,
        number: u64,
        batch: &DetectionBatch,
        followed: &mut StIou,
        shown: &mut Vec<(Picture, String)>,
    ) {
        let ways = batch.classes.len();
        let references = to_tensor(&batch.reference_pixels, self.settings.reference_size, &device.plain);
        let prototypes = ReferenceDetector::prototypes(model.embed(references), ways);
        let library = self.batches.episodes().library().clone();
        let picture_bytes = self.settings.image_size.pow(2) * 3;
        let decoding = DecodeSettings::from(&self.settings);
        // Where the classes asked for are found in the video at hand.
        let mut tracks = Tracks::new(&library, batch, self.settings.presence_threshold as f32);
        let mut at = 0;
        for pixels in batch.query_pixels.chunks(self.limits.batch_size * picture_bytes) {
            let dense = model.dense(to_tensor(pixels, self.settings.image_size, &device.plain));
            let class = sigmoid(model.similarity(dense.embeddings, prototypes.clone()));
            let count = pixels.len() / picture_bytes;
            let cells = self.cells.len();
            let flat = vec![
                sigmoid(dense.object).reshape([count * cells]),
                class.reshape([count * cells * ways]),
                dense.sides.reshape([count * cells * 4]),
            ];
            let [object, class, sides] = <[Vec<f32>; 3]>::try_from(fetch(flat)).unwrap_or_default();
            let answers = Answers { object, class, sides };
            for offset in 0..count {
                let found = self.frame(&answers, offset, ways, batch, at, &decoding);
                let truths = self.score(&library, batch, at, &found);
                tracks.frame(at, &found, &truths, followed);
                self.show(batch, number, at, &found, shown);
                at += 1;
            }
        }
        tracks.end(followed);
    }

    fn frame(
        &self,
        answers: &Answers,
        offset: usize,
        ways: usize,
        batch: &DetectionBatch,
        at: usize,
        decoding: &DecodeSettings,
    ) -> Vec<Detection> {
        let cells = self.cells.len();
        let answer = Answer {
            objectness: &answers.object[offset * cells..][..cells],
            class: &answers.class[offset * cells * ways..][..cells * ways],
            boxes: &answers.sides[offset * cells * 4..][..cells * 4],
        };
        let query = &batch.queries[at];
        let place = FramePlace { mapping: query.mapping, width: query.width, height: query.height };
        decode(&self.cells, ways, &answer, &place, decoding)
    }

    /// Adds a frame to the average precision; returns what there was to find, by way.
    fn score(
        &mut self,
        library: &Library,
        batch: &DetectionBatch,
        at: usize,
        found: &[Detection],
    ) -> Vec<(usize, Rectangle)> {
        let query = batch.queries[at].query;
        let objects = &library.videos[query.video].frames[query.frame].objects;
        let asked = objects.iter().filter_map(|object| {
            let way = batch.classes.iter().position(|class| *class == object.class)?;
            Some((way, object))
        });
        let asked: Vec<_> = asked.collect();
        let truths: Vec<average_precision::Truth> = asked
            .iter()
            .map(|(way, object)| average_precision::Truth {
                class: batch.classes[*way] as u32,
                rectangle: object.rectangle,
                ignore: object.ignore,
            })
            .collect();
        let detections: Vec<average_precision::Detection> = found
            .iter()
            .map(|one| average_precision::Detection {
                class: batch.classes[one.class] as u32,
                score: one.score,
                rectangle: one.rectangle,
            })
            .collect();
        self.leaked.keep(|| (found.to_vec(), size_of_val(found) as u64));
        self.precision.add(&detections, &truths);
        asked.into_iter().filter(|(_, object)| !object.ignore).map(|(way, object)| (way, object.rectangle)).collect()
    }

    /// Keeps a picture for the report: one an episode, until there are enough.
    fn show(
        &self,
        batch: &DetectionBatch,
        number: u64,
        at: usize,
        found: &[Detection],
        shown: &mut Vec<(Picture, String)>,
    ) {
        let most = self.cadence.pictures;
        let per_episode = most.div_ceil(self.cadence.episodes).max(1);
        let spread = (batch.queries.len() / per_episode).max(1);
        if shown.len() >= most || at % spread != spread / 2 {
            return;
        }
        let query = &batch.queries[at];
        let sure: Vec<Detection> = found
            .iter()
            .filter(|one| f64::from(one.score) >= self.settings.presence_threshold)
            .map(|one| Detection { rectangle: query.mapping.forth(&one.rectangle), ..*one })
            .collect();
        let asked = query.truths.iter().filter(|truth| matches!(truth.role, Role::Class(_)));
        let truths: Vec<Rectangle> = asked.map(|truth| truth.rectangle).collect();
        let (side, reference_side) = (self.settings.image_size, self.settings.reference_size);
        let picture = pictures::draw(batch, at, side, reference_side, &truths, &sure);
        let library = self.batches.episodes().library();
        let names: Vec<&str> = batch.classes.iter().map(|class| library.classes[*class].name.as_str()).collect();
        let video = &library.videos[query.query.video].name;
        let scores: Vec<String> =
            sure.iter().map(|one| format!("{} {:.2}", names[one.class], one.score)).take(6).collect();
        let told = if scores.is_empty() { "nothing found".into() } else { format!("found {}", scores.join(", ")) };
        let caption =
            format!("episode {number}, {video}, frame {}: asked for {}; {told}", query.query.frame, names.join(", "));
        shown.push((picture, caption));
        let held = shown.iter().map(|(picture, _)| picture.held_bytes()).sum();
        self.pictures.set(shown.len() as u64, held);
    }

    /// Similarity of the embeddings of held-out reference pictures within a class, and between classes.
    fn compare(
        &mut self,
        model: &ReferenceDetector<Backend>,
        device: &TensorDevice,
    ) -> Result<(Option<f64>, Option<f64>), DataError> {
        let side = self.settings.reference_size;
        let library = self.batches.episodes().library().clone();
        for class in held_out(&library) {
            let mut rgb = Vec::with_capacity(COMPARED_MAX * side * side * 3);
            for reference in library.classes[class].references.iter().take(COMPARED_MAX) {
                let picture = self.store.picture(&reference.path)?;
                rgb.extend_from_slice(&transform::reference(&picture, reference.rectangle.as_ref(), side).rgb);
            }
            if rgb.is_empty() {
                continue;
            }
            let embeddings = model.embed(to_tensor(&rgb, side, &device.plain));
            let length = embeddings.dims()[1];
            let values: Vec<f32> = embeddings.into_data().iter::<f32>().collect();
            values.chunks_exact(length).for_each(|row| self.separation.add(class as u32, row));
        }
        Ok(self.separation.finish())
    }
}

/// Where the object is in a frame, and where it was found.
type TrueAndFound = (Option<Rectangle>, Option<Rectangle>);

/// Follows each class of an episode through its videos, frame after frame; one video at a time.
struct Tracks<'a> {
    library: &'a Library,
    batch: &'a DetectionBatch,
    presence: f32,
    video: Option<usize>,
    /// One a way, of the video at hand.
    frames: BTreeMap<usize, Vec<TrueAndFound>>,
}

impl<'a> Tracks<'a> {
    fn new(library: &'a Library, batch: &'a DetectionBatch, presence: f32) -> Self {
        Self { library, batch, presence, video: None, frames: BTreeMap::new() }
    }

    /// Queries of an episode are sorted by video and frame.
    fn frame(&mut self, at: usize, found: &[Detection], truths: &[(usize, Rectangle)], followed: &mut StIou) {
        let video = self.batch.queries[at].query.video;
        if self.video != Some(video) {
            self.end(followed);
            self.video = Some(video);
        }
        if !self.library.videos[video].sequence {
            return;
        }
        for way in 0..self.batch.classes.len() {
            let best = found.iter().filter(|one| one.class == way && one.score >= self.presence);
            let best = best.max_by(|a, b| a.score.total_cmp(&b.score)).map(|one| one.rectangle);
            // Of several objects of the class the one that was found.
            let overlap = |place: &Rectangle| best.map_or(0.0, |best: Rectangle| best.iou(place));
            let truth = truths.iter().filter(|(of, _)| *of == way).map(|(_, place)| *place);
            let truth = truth.reduce(|one, other| if overlap(&other) > overlap(&one) { other } else { one });
            self.frames.entry(way).or_default().push((truth, best));
        }
    }

    /// Ends the video at hand; a class that is not in it does not count.
    fn end(&mut self, followed: &mut StIou) {
        for frames in std::mem::take(&mut self.frames).into_values() {
            if frames.iter().any(|(truth, _)| truth.is_some()) {
                frames.into_iter().for_each(|(truth, found)| followed.frame(truth, found));
                followed.end_video();
            }
        }
    }
}
