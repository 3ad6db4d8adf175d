//! Validation without autodiff: on episodes of held-out classes, one at a time, or on other images of the training classes.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use burn::tensor::activation::sigmoid;

use super::assignment::{GridCell, cells};
use super::batch::{BatchLoader, DetectionBatch, Role};
use super::coco_files::{CocoFiles, DetectionsFile};
use super::decode::{FrameDetection, FrameGeometry, FrameOutput, decode};
use super::network::DetectorNetwork;
use super::overlay;
use super::prepare::Prepared;
use super::scoring::Scoring;
use super::settings::FewshotDetection;
use xrun_core::bounded::DeepSize;
use xrun_core::bounded::ledger::{Ledger, Registration};
use xrun_core::dataset::sample::{BoundingBox, HostImage, ImageSource};
use xrun_core::experiment::Experiment;
use xrun_core::settings::sections::Validation as Cadence;
use xrun_core::task::{TaskError, ValidationReport};
use xrun_data::boxes::frames::FrameStore;
use xrun_data::transform;
use xrun_training::metrics::separation::Separation;
use xrun_training::nn::Tensor;
use xrun_training::nn::captured::Inputs;
use xrun_training::nn::micro_batches::MicroBatchExecutor;
use xrun_training::nn::module_task::Evaluation;
use xrun_training::nn::pixels::{image_data, tensor};
use xrun_training::nn::step::TrainState;
use xrun_training::nn::training_module::TrainingModule;

/// Maximum number of reference images of a class whose embeddings are compared.
const COMPARED_MAX: usize = 16;

/// State that all validations of a run share.
#[derive(Debug)]
pub struct Validation {
    pub(super) batches: BatchLoader,
    store: Arc<FrameStore>,
    pub(super) settings: FewshotDetection,
    executor: Arc<MicroBatchExecutor>,
    cadence: Cadence,
    cells: Vec<GridCell>,
    scoring: Scoring,
    /// COCO files; `None` if they are not written.
    files: Option<CocoFiles>,
    /// Directory of the run, once it is known.
    directory: Option<PathBuf>,
    separation: Separation,
    /// Number of episodes of a validation.
    episodes: u64,
    /// First references of fixed classes, and those of the current validation.
    references: Option<Registration>,
    first_references: Vec<u8>,
    batch: Registration,
    images: Registration,
    /// Number of detections dropped at the cap, over all validations.
    pub left_out: u64,
}

/// Outputs of the head for the frames of a micro-batch: probabilities of objects and ways, and sides.
pub(super) struct HeadOutputs {
    object: Vec<f32>,
    class: Vec<f32>,
    sides: Vec<f32>,
}

impl Validation {
    /// Initial state, with its buffers in the ledger.
    pub fn new(
        prepared: &Prepared,
        experiment: &Experiment,
        executor: Arc<MicroBatchExecutor>,
        ledger: &Ledger,
    ) -> Self {
        let cadence = &experiment.validation;
        let buffers = &prepared.buffers;
        let library = &prepared.batches.episodes.library;
        Self {
            batches: prepared.batches.clone(),
            store: prepared.store.clone(),
            settings: prepared.settings.clone(),
            executor,
            cadence: cadence.clone(),
            cells: cells(prepared.settings.image_size),
            scoring: Scoring::new(library.clone(), &prepared.settings, &buffers.scoring, ledger),
            files: buffers.files.as_ref().map(|buffer| CocoFiles::new(ledger, buffer)),
            directory: None,
            episodes: prepared.batches.episodes.validation_episodes(cadence.batches),
            references: buffers.references.as_ref().map(|buffer| buffer.register(ledger)),
            first_references: Vec::new(),
            separation: Separation::new(ledger, &buffers.embeddings, prepared.model.embedding_size),
            batch: buffers.validation_batch.register(ledger),
            images: buffers.validation_images.register(ledger),
            left_out: 0,
        }
    }

    /// Sets the directory of the run, into which detections are written.
    pub fn set_run_directory(&mut self, run: &Path) {
        self.directory = Some(run.to_path_buf());
    }

    /// Runs all episodes. `model` is without autodiff; the detections of each frame are outputs of the evaluation.
    ///
    /// # Errors
    /// The data or the device fails, or a file cannot be written.
    pub fn run(
        &mut self,
        model: &DetectorNetwork,
        evaluation: &mut Evaluation<'_, impl TrainingModule<Output = [FrameDetection], Network = DetectorNetwork>>,
    ) -> Result<ValidationReport, TaskError> {
        let mut shown = Vec::new();
        let episodes = self.episodes;
        let mut file = match self.files.as_mut().zip(self.directory.as_ref()) {
            Some((files, run)) => Some(files.begin(run, &self.batches.episodes, episodes)?),
            None => None,
        };
        evaluation.enter("validation");
        if let Some(size) = &self.references {
            self.first_references = self.batches.first_references()?;
            size.set(self.batches.episodes.validated.len() as u64, self.first_references.len() as u64);
        }
        for number in 0..episodes {
            evaluation.enter("validation_data");
            let mut batch = self.batches.validation_batch(number)?;
            if self.references.is_some() {
                batch.reference_pixels.clone_from(&self.first_references);
            }
            self.batch.set(1, batch.deep_size());
            evaluation.enter("validation");
            self.episode(model, number, &batch, &mut file, &mut shown, evaluation)?;
            drop(batch);
            self.batch.set(0, 0);
            evaluation.batch_done(number + 1, episodes);
        }
        self.first_references = Vec::new();
        self.references.iter().for_each(|size| size.set(0, 0));
        let (within, between) = self.compare_embeddings(model, evaluation.trained)?;
        if let Some((files, file)) = self.files.as_mut().zip(file) {
            files.finish(file)?;
        }
        let scores = self.scoring.finish();
        self.left_out += scores.left_out;
        let embeddings = [("embedding_within", within), ("embedding_between", between)];
        let metrics = scores.metrics.into_iter().chain(embeddings).map(|(name, value)| (name.to_owned(), value));
        let intervals = scores.intervals.into_iter().map(|(name, interval)| (name.to_owned(), interval));
        // The images now belong to the training loop, which writes and frees them.
        self.images.set(0, 0);
        Ok(ValidationReport {
            metrics: metrics.collect(),
            intervals: intervals.collect(),
            images: shown,
            classes: scores.classes,
        })
    }

    fn episode(
        &mut self,
        model: &DetectorNetwork,
        number: u64,
        batch: &DetectionBatch,
        file: &mut Option<DetectionsFile>,
        shown: &mut Vec<(HostImage, String)>,
        evaluation: &mut Evaluation<'_, impl TrainingModule<Output = [FrameDetection], Network = DetectorNetwork>>,
    ) -> Result<(), TaskError> {
        let (trained, ways) = (evaluation.trained, batch.classes.len());
        let prototypes = match model.class_prototypes() {
            Some(fixed) => fixed,
            None => DetectorNetwork::prototypes(self.embeddings(model, &batch.reference_pixels, trained)?, ways),
        };
        self.scoring.begin_episode(&batch.classes);
        for (range, outputs) in self.outputs(model, &batch.query_pixels, prototypes, trained)? {
            for (offset, index) in range.enumerate() {
                let query = &batch.queries[index];
                let found = self.detections(&outputs, offset, ways, &query.geometry);
                evaluation.output(&found)?;
                if let Some(file) = file {
                    file.frame(&batch.classes, &found)?;
                }
                self.scoring.frame(query.query, &found);
                self.show(batch, number, index, &found, shown);
            }
        }
        self.scoring.end_episode();
        Ok(())
    }

    /// Outputs of the model for query frames, by micro-batch: the range of its frames, and their outputs.
    pub(super) fn outputs(
        &self,
        model: &DetectorNetwork,
        squares: &[u8],
        prototypes: Tensor<2>,
        trained: &TrainState<DetectorNetwork>,
    ) -> Result<impl Iterator<Item = (Range<usize>, HeadOutputs)> + use<>, TaskError> {
        let side = self.settings.image_size;
        let image_bytes = side.pow(2) * 3;
        let prototypes = prototypes.into_data();
        let parts = self.executor.split(squares.len() / image_bytes);
        let stage = |range: &Range<usize>| {
            vec![image_data(&squares[range.start * image_bytes..range.end * image_bytes], side), prototypes.clone()]
        };
        let outputs = trained.outputs_of_each(model, &self.executor, &parts, stage, |model, inputs| {
            let dense = model.dense(inputs.floats());
            let class = sigmoid(model.similarity(dense.embeddings, inputs.floats()));
            vec![sigmoid(dense.object).reshape([-1]), class.reshape([-1]), dense.sides.reshape([-1])]
        })?;
        Ok(parts.into_iter().zip(outputs.into_iter().map(|found| {
            let [object, class, sides] = <[Vec<f32>; 3]>::try_from(found).unwrap_or_default();
            HeadOutputs { object, class, sides }
        })))
    }

    /// Embeddings `[n, D]` of reference images.
    pub(super) fn embeddings(
        &self,
        model: &DetectorNetwork,
        pixels: &[u8],
        trained: &TrainState<DetectorNetwork>,
    ) -> Result<Tensor<2>, TaskError> {
        let side = self.settings.reference_size;
        let each = side.pow(2) * 3;
        let count = pixels.len() / each;
        let stage = |range: &Range<usize>| vec![image_data(&pixels[range.start * each..range.end * each], side)];
        let embed = |model: &DetectorNetwork, inputs: &mut Inputs<'_>| vec![model.embed(inputs.floats()).reshape([-1])];
        let rows = trained.outputs_of_each(model, &self.executor, &self.executor.split(count), stage, embed)?;
        let values = rows.into_iter().flatten().flatten().collect::<Vec<f32>>();
        let length = values.len() / count.max(1);
        Ok(tensor(values, [count, length], &trained.device.inner))
    }

    /// Detections in the frame at `offset` of a micro-batch.
    pub(super) fn detections(
        &self,
        outputs: &HeadOutputs,
        offset: usize,
        ways: usize,
        geometry: &FrameGeometry,
    ) -> Vec<FrameDetection> {
        let cells = self.cells.len();
        let output = FrameOutput {
            objectness: &outputs.object[offset * cells..][..cells],
            class: &outputs.class[offset * cells * ways..][..cells * ways],
            sides: &outputs.sides[offset * cells * 4..][..cells * 4],
        };
        decode(&self.cells, ways, &output, geometry, &self.settings)
    }

    /// Adds images for the report, spread over the queries of each episode, up to their maximum number.
    fn show(
        &self,
        batch: &DetectionBatch,
        number: u64,
        index: usize,
        found: &[FrameDetection],
        shown: &mut Vec<(HostImage, String)>,
    ) {
        let max = self.cadence.images;
        let per_episode = max.div_ceil(self.episodes as usize).max(1);
        let spacing = (batch.queries.len() / per_episode).max(1);
        if shown.len() >= max || index % spacing != spacing / 2 {
            return;
        }
        let query = &batch.queries[index];
        let present: Vec<FrameDetection> = found
            .iter()
            .filter(|one| f64::from(one.score) >= self.settings.presence_threshold)
            .map(|one| FrameDetection { rectangle: query.geometry.mapping.forth(&one.rectangle), ..*one })
            .collect();
        let objects = query.truths.iter().filter_map(|truth| match truth.role {
            Role::Class(way) => Some((way, truth.rectangle)),
            Role::Other | Role::Masked => None,
        });
        let objects: Vec<(usize, BoundingBox)> = objects.collect();
        let truths: Vec<BoundingBox> = objects.iter().map(|(_, rectangle)| *rectangle).collect();
        let (side, reference_side) = (self.settings.image_size, self.settings.reference_size);
        let image = overlay::draw(batch, index, side, reference_side, &truths, &present);
        let library = &self.batches.episodes.library;
        let names: Vec<&str> = batch.classes.iter().map(|class| library.classes[*class].name.as_str()).collect();
        let video = &library.videos[query.query.video].name;
        let episode = if self.references.is_none() { format!(", episode {number}") } else { String::new() };
        let caption =
            format!("{} · {video}, frame {}{episode}", overlay::caption(&names, &objects, &present), query.query.frame);
        shown.push((image, caption));
        let held = shown.iter().map(|(image, _)| image.deep_size()).sum();
        self.images.set(shown.len() as u64, held);
    }

    /// Mean cosine similarity of the embeddings of reference images within a class of the validation, and between classes.
    fn compare_embeddings(
        &mut self,
        model: &DetectorNetwork,
        trained: &TrainState<DetectorNetwork>,
    ) -> Result<(Option<f64>, Option<f64>), TaskError> {
        let side = self.settings.reference_size;
        let library = self.batches.episodes.library.clone();
        for class in self.batches.episodes.validated.clone() {
            let mut rgb = Vec::with_capacity(COMPARED_MAX * side * side * 3);
            for reference in library.classes[class].references.iter().take(COMPARED_MAX) {
                let image = self.store.image(&reference.path)?;
                rgb.extend_from_slice(&transform::reference(&image, reference.rectangle.as_ref(), side).rgb);
            }
            if rgb.is_empty() {
                continue;
            }
            let embeddings = self.embeddings(model, &rgb, trained)?;
            let length = embeddings.dims()[1];
            let values: Vec<f32> = embeddings.into_data().iter::<f32>().collect();
            values.chunks_exact(length).for_each(|row| self.separation.add(class as u32, row));
        }
        Ok(self.separation.finish())
    }
}
