//! Detection of all classes of the validation in the images of a prediction, with references from the run's data.
//!
//! Fixed classes are detected by their learned prototypes. Otherwise the references of a class are those of the first validation
//! episode with it, in the same views, so that the detections are those of that episode. Images are scaled like query frames.

use std::ops::Range;
use std::path::Path;

use serde::Serialize;

use super::coco_files::{DetectionsFile, bbox, category};
use super::decode::{FrameDetection, FrameGeometry};
use super::network::DetectorNetwork;
use super::overlay;
use super::validation::{HeadOutputs, Validation};
use xrun_core::dataset::sample::HostImage;
use xrun_core::files::{layout, write};
use xrun_core::task::TaskError;
use xrun_core::task::predict::{Item, PredictRequest, PredictionSink};
use xrun_data::reading::decoding::decode_bytes;
use xrun_data::reading::named_image::read_image_file;
use xrun_data::transform;
use xrun_training::nn::Tensor;
use xrun_training::nn::step::TrainState;

/// Maximum number of validation episodes that are searched for references of a class.
const EPISODES_MAX: u64 = 10_000;
/// Maximum number of detections in the summary of an image.
const SUMMARY_MAX: usize = 8;

/// Line of `predictions.jsonl`.
#[derive(Serialize)]
struct Answer<'a> {
    /// Id in `detections.json`: the position among the requested files, from 1.
    image_id: u64,
    /// Width in pixels, in upright orientation.
    width: usize,
    height: usize,
    detections: Vec<Found<'a>>,
    /// Path of the image with its boxes.
    overlay: &'a str,
}

#[derive(Serialize)]
struct Found<'a> {
    class: &'a str,
    category_id: u64,
    /// Left, top, width and height in pixels of the image.
    bbox: [f64; 4],
    score: f32,
}

/// Class that is detected.
#[derive(Serialize)]
struct Category<'a> {
    id: u64,
    name: &'a str,
    /// Colour of its boxes, as `#rrggbb`.
    colour: String,
}

/// Classes to detect.
struct Prototypes {
    /// Indices into the library's classes.
    classes: Vec<usize>,
    /// Prototypes, `[classes, D]`.
    rows: Tensor<2>,
}

/// Detects objects in each file, which is an image. `model` is without autodiff.
///
/// # Errors
/// References of the data set cannot be read, or an answer cannot be written.
pub fn predict(
    validation: &Validation,
    model: &DetectorNetwork,
    trained: &TrainState<DetectorNetwork>,
    request: &PredictRequest<'_>,
    sink: &mut dyn PredictionSink,
) -> Result<serde_json::Value, TaskError> {
    let prototypes = prototypes(validation, model, trained)?;
    let library = &validation.batches.episodes.library;
    let name = |way: usize| library.classes[prototypes.classes[way]].name.as_str();
    let directory = request.directory.join(layout::IMAGES);
    write::create_directories(&directory)?;
    let mut detections = DetectionsFile::begin(request.directory)?;
    let mut image_id = 0;
    for files in request.files.chunks(request.limits.batch_size) {
        let mut squares = Vec::with_capacity(files.len() * validation.settings.image_size.pow(2) * 3);
        let geometries: Vec<Result<FrameGeometry, String>> = files
            .iter()
            .map(|path| {
                let image = upright(validation, path, request)?;
                let (square, mapping) = transform::letterbox(&image, validation.settings.image_size);
                squares.extend_from_slice(&square.rgb);
                Ok(FrameGeometry { mapping, width: image.width, height: image.height })
            })
            .collect();
        let outputs: Vec<(Range<usize>, HeadOutputs)> =
            validation.outputs(model, &squares, prototypes.rows.clone(), trained)?.collect();
        let mut squares = 0..;
        for (path, geometry) in files.iter().zip(geometries) {
            image_id += 1;
            let item = Item::file(path);
            let found = geometry.and_then(|geometry| {
                let square = squares.next().unwrap_or_default();
                let output = outputs.iter().find(|(range, _)| range.contains(&square));
                let (range, output) = output.ok_or("the model gave no output")?;
                let found = validation.detections(output, square - range.start, prototypes.classes.len(), &geometry);
                // The image is read again: all images of a batch in full size would take too much memory.
                let image = upright(validation, path, request)?;
                match (image.width, image.height) == (geometry.width, geometry.height) {
                    true => Ok((image, found)),
                    false => Err("the file changed during the prediction".to_owned()),
                }
            });
            let (image, found) = match found {
                Ok(found) => found,
                Err(reason) => {
                    sink.failed(item, &reason)?;
                    continue;
                }
            };
            detections.image(image_id, &prototypes.classes, &found)?;
            let present = |one: &&FrameDetection| f64::from(one.score) >= validation.settings.presence_threshold;
            let present: Vec<FrameDetection> = found.iter().filter(present).copied().collect();
            let file = format!("{image_id:06}.png");
            let path = directory.join(&file);
            write::replace(&path, &write::with_path(&path, overlay::outlined(&image, &present).to_png())?)?;
            let answer = Answer {
                image_id,
                width: image.width,
                height: image.height,
                detections: found
                    .iter()
                    .map(|one| Found {
                        class: name(one.class),
                        category_id: category(prototypes.classes[one.class]),
                        bbox: bbox(&one.rectangle),
                        score: one.score,
                    })
                    .collect(),
                overlay: &format!("{}/{file}", layout::IMAGES),
            };
            sink.answered(item, &answer, &summary(&present, name))?;
        }
    }
    detections.finish()?;
    let category = |(way, class): (usize, &usize)| {
        let [red, green, blue] = overlay::colour(way);
        Category { id: category(*class), name: name(way), colour: format!("#{red:02x}{green:02x}{blue:02x}") }
    };
    let categories: Vec<Category<'_>> = prototypes.classes.iter().enumerate().map(category).collect();
    Ok(serde_json::json!({ "categories": categories }))
}

/// Decodes an image with the same treatment of its EXIF orientation as the data set.
fn upright(validation: &Validation, path: &Path, request: &PredictRequest<'_>) -> Result<HostImage, String> {
    let orientation = validation.batches.episodes.library.exif_orientation;
    let most = request.limits.decode_memory;
    decode_bytes(&read_image_file(path, most)?, orientation, most.0)
}

/// Classes of the validation with references, and their prototypes.
fn prototypes(
    validation: &Validation,
    model: &DetectorNetwork,
    trained: &TrainState<DetectorNetwork>,
) -> Result<Prototypes, TaskError> {
    let episodes = &validation.batches.episodes;
    if let Some(rows) = model.class_prototypes() {
        return Ok(Prototypes { classes: episodes.validated.clone(), rows });
    }
    let mut rows: Vec<(usize, Option<Tensor<2>>)> = episodes.validated.iter().map(|class| (*class, None)).collect();
    for number in 0..EPISODES_MAX {
        if rows.iter().all(|(_, row)| row.is_some()) {
            break;
        }
        let classes = episodes.draw_validation(number).classes;
        if !rows.iter().any(|(class, row)| row.is_none() && classes.contains(class)) {
            continue;
        }
        let references = validation.batches.validation_references(number)?;
        let embeddings = validation.embeddings(model, &references, trained)?;
        let prototypes = DetectorNetwork::prototypes(embeddings, classes.len());
        for (class, row) in &mut rows {
            if let (None, Some(way)) = (&row, classes.iter().position(|one| one == class)) {
                *row = Some(prototypes.clone().narrow(0, way, 1));
            }
        }
    }
    let (classes, rows): (Vec<usize>, Vec<Tensor<2>>) =
        rows.into_iter().filter_map(|(class, row)| Some((class, row?))).unzip();
    Ok(Prototypes { classes, rows: Tensor::cat(rows, 0) })
}

/// Summary of detections, such as `ring 0.91, star 0.42`.
fn summary<'a>(detections: &[FrameDetection], name: impl Fn(usize) -> &'a str) -> String {
    let mut items: Vec<String> =
        detections.iter().take(SUMMARY_MAX).map(|one| format!("{} {:.2}", name(one.class), one.score)).collect();
    match detections.len().saturating_sub(SUMMARY_MAX) {
        _ if detections.is_empty() => return "nothing found".into(),
        0 => {}
        more => items.push(format!("and {more} more")),
    }
    items.join(", ")
}
