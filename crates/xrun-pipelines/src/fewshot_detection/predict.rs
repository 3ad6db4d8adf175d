//! What does the model find in pictures of a person's own? All held-out classes at once, by references of the run's own data.
//!
//! The references of a class are those of the first episode of a validation that asks for it, in the same views: so what is
//! found is what that episode found. Pictures are scaled as frames are, and boxes scaled back.

use std::ops::Range;
use std::path::Path;

use serde::Serialize;

use super::coco_files::{DetectionsFile, category, sides};
use super::decode::{Detection, FramePlace};
use super::model::ReferenceDetector;
use super::pictures;
use super::validation::{Answers, Validation};
use crate::backend::dispatch::TensorDevice;
use crate::nn::Tensor;
use xrun_core::dataset::sample::Picture;
use xrun_core::files::{layout, write};
use xrun_core::task::TaskError;
use xrun_core::task::predict::{Asked, Item, Told};
use xrun_data::named::read_image_file;
use xrun_data::reading::decoding::decode_bytes;
use xrun_data::transform;

/// A class that so many episodes never ask for is not looked for.
const EPISODES_MAX: u64 = 10_000;
/// Detections that are told to people.
const TOLD_MAX: usize = 8;

/// A line of `predictions.jsonl`.
#[derive(Serialize)]
struct Answer<'a> {
    /// In `detections.json`: the place among the files that were named, from 1.
    image_id: u64,
    /// In pixels, upright.
    width: usize,
    height: usize,
    detections: Vec<Found<'a>>,
    /// The picture with the boxes drawn in.
    picture: &'a str,
}

#[derive(Serialize)]
struct Found<'a> {
    class: &'a str,
    category_id: u64,
    /// Left, top, width and height, in pixels of the picture.
    bbox: [f64; 4],
    score: f32,
}

/// A class that is looked for.
#[derive(Serialize)]
struct Category<'a> {
    id: u64,
    name: &'a str,
    /// Of its boxes, as `#rrggbb`.
    colour: String,
}

/// What is looked for.
struct Sought {
    /// Indices into the library's classes.
    classes: Vec<usize>,
    /// `[classes, D]`.
    prototypes: Tensor<2>,
}

/// Answers about each file, which is a picture. `model` is the plain one.
///
/// # Errors
/// References of the data set that cannot be read, or an answer that cannot be written.
pub fn predict(
    validation: &Validation,
    model: &ReferenceDetector,
    device: &TensorDevice,
    asked: &Asked<'_>,
    told: &mut dyn Told,
) -> Result<serde_json::Value, TaskError> {
    let sought = sought(validation, model, device)?;
    let library = validation.batches.episodes().library();
    let name = |way: usize| library.classes[sought.classes[way]].name.as_str();
    let folder = asked.folder.join(layout::PICTURES);
    write::at(&folder, std::fs::create_dir_all(&folder))?;
    let mut detections = DetectionsFile::begin(asked.folder)?;
    let mut image = 0;
    for files in asked.files.chunks(asked.limits.batch_size) {
        let mut squares = Vec::with_capacity(files.len() * validation.settings.image_size.pow(2) * 3);
        let places: Vec<Result<FramePlace, String>> = files
            .iter()
            .map(|path| {
                let picture = upright(validation, path, asked)?;
                let (square, mapping) = transform::letterbox(&picture, validation.settings.image_size);
                squares.extend_from_slice(&square.rgb);
                Ok(FramePlace { mapping, width: picture.width, height: picture.height })
            })
            .collect();
        let answered: Vec<(Range<usize>, Answers)> =
            validation.answers(model, &squares, &sought.prototypes, &device.plain).collect();
        let mut squares = 0..;
        for (path, place) in files.iter().zip(places) {
            image += 1;
            let item = Item::file(path);
            let found = place.and_then(|place| {
                let at = squares.next().unwrap_or_default();
                let part = answered.iter().find(|(part, _)| part.contains(&at));
                let (part, answers) = part.ok_or("the model said nothing of it")?;
                let found = validation.found(answers, at - part.start, sought.classes.len(), &place);
                // Read once more: so many pictures as they are would take more memory than all the rest.
                let picture = upright(validation, path, asked)?;
                match (picture.width, picture.height) == (place.width, place.height) {
                    true => Ok((picture, found)),
                    false => Err("was changed while it was looked at".to_owned()),
                }
            });
            let (picture, found) = match found {
                Ok(found) => found,
                Err(reason) => {
                    told.failed(item, &reason)?;
                    continue;
                }
            };
            detections.image(image, &sought.classes, &found)?;
            let sure = |one: &&Detection| f64::from(one.score) >= validation.settings.presence_threshold;
            let sure: Vec<Detection> = found.iter().filter(sure).copied().collect();
            let file = format!("{image:06}.png");
            let drawn = folder.join(&file);
            write::replace(&drawn, &write::at(&drawn, pictures::outlined(&picture, &sure).to_png())?)?;
            let answer = Answer {
                image_id: image,
                width: picture.width,
                height: picture.height,
                detections: found
                    .iter()
                    .map(|one| Found {
                        class: name(one.class),
                        category_id: category(sought.classes[one.class]),
                        bbox: sides(&one.rectangle),
                        score: one.score,
                    })
                    .collect(),
                picture: &format!("{}/{file}", layout::PICTURES),
            };
            told.answered(item, &answer, &words(&sure, name))?;
        }
    }
    detections.finish()?;
    let category = |(way, class): (usize, &usize)| {
        let [red, green, blue] = pictures::colour(way);
        Category { id: category(*class), name: name(way), colour: format!("#{red:02x}{green:02x}{blue:02x}") }
    };
    let categories: Vec<Category<'_>> = sought.classes.iter().enumerate().map(category).collect();
    Ok(serde_json::json!({ "categories": categories }))
}

/// A picture as it was named, turned as those of the data set are.
fn upright(validation: &Validation, path: &Path, asked: &Asked<'_>) -> Result<Picture, String> {
    let rule = validation.batches.episodes().library().exif_orientation;
    decode_bytes(&read_image_file(path, asked.limits.decoding)?, rule)
}

/// The held-out classes and their prototypes.
fn sought(validation: &Validation, model: &ReferenceDetector, device: &TensorDevice) -> Result<Sought, TaskError> {
    let episodes = validation.batches.episodes();
    let mut rows: Vec<(usize, Option<Tensor<2>>)> = episodes.held_out().iter().map(|class| (*class, None)).collect();
    for number in 0..EPISODES_MAX {
        if rows.iter().all(|(_, row)| row.is_some()) {
            break;
        }
        let classes = episodes.draw_validation(number).classes;
        if !rows.iter().any(|(class, row)| row.is_none() && classes.contains(class)) {
            continue;
        }
        let references = validation.batches.validation_references(number)?;
        let embeddings = validation.embeddings(model, &references, &device.plain);
        let prototypes = ReferenceDetector::prototypes(embeddings, classes.len());
        for (class, row) in &mut rows {
            if let (None, Some(way)) = (&row, classes.iter().position(|one| one == class)) {
                *row = Some(prototypes.clone().narrow(0, way, 1));
            }
        }
    }
    let (classes, prototypes): (Vec<usize>, Vec<Tensor<2>>) =
        rows.into_iter().filter_map(|(class, row)| Some((class, row?))).unzip();
    Ok(Sought { classes, prototypes: Tensor::cat(prototypes, 0) })
}

/// `ring 0.91, star 0.42`.
fn words<'a>(sure: &[Detection], name: impl Fn(usize) -> &'a str) -> String {
    let mut told: Vec<String> =
        sure.iter().take(TOLD_MAX).map(|one| format!("{} {:.2}", name(one.class), one.score)).collect();
    match sure.len().saturating_sub(TOLD_MAX) {
        _ if sure.is_empty() => return "nothing found".into(),
        0 => {}
        more => told.push(format!("and {more} more")),
    }
    told.join(", ")
}
