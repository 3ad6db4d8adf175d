//! Generator of videos of textured objects that move over cluttered backgrounds, written once.
//!
//! Equal settings give the same bytes on any machine and with any number of threads. The files are an ordinary directory
//! in COCO's layout, read by the same reader as real data.

use std::io;
use std::path::{Path, PathBuf};

use rand::seq::SliceRandom;
use rand::{Rng, RngExt};
use serde_json::{Value, json};

use super::paint::{Appearance, Background, Canvas, Pose};
use super::settings::SyntheticVideo;
use crate::coco::files::ANNOTATIONS;
use xrun_core::dataset::digest::{digest, digest_of_file};
use xrun_core::dataset::digest_cache;
use xrun_core::dataset::error::DataError;
use xrun_core::dataset::generated::{self, GeneratedSet};
use xrun_core::files::write;
use xrun_core::seed::generator;

/// Version of the painted images, part of the directory's name: old directories stay valid for old code.
const VERSION: u32 = 2;
/// Side of a reference image, in pixels.
const REFERENCE_SIDE: usize = 64;
const JPEG_QUALITY: u8 = 92;
/// Objects of which less can be seen are not annotated.
const VISIBLE_MIN: f32 = 0.3;

/// The set of these settings.
pub fn set(settings: &SyntheticVideo) -> GeneratedSet {
    GeneratedSet::new("generated", VERSION, settings, ANNOTATIONS)
}

/// Numbers of its frames and of its reference images.
pub fn counts(settings: &SyntheticVideo) -> [usize; 2] {
    let classes = settings.train_classes + settings.validation_classes;
    [settings.videos_per_class * settings.frames_per_video, settings.references_per_class].map(|each| classes * each)
}

/// Directory of the set below a cache directory, generated now if it is missing.
///
/// # Errors
/// It cannot be written.
pub fn generate_in(settings: &SyntheticVideo, cache: &Path) -> Result<PathBuf, DataError> {
    set(settings).generate(cache, |directory| write_all(settings, directory))
}

/// Class, and left, top, width, height.
type Marked = (usize, [usize; 4]);

/// One video: its annotations, and where its images went.
struct Video {
    name: String,
    /// File and boxes.
    frames: Vec<(String, Vec<Marked>)>,
}

fn write_all(settings: &SyntheticVideo, directory: &Path) -> io::Result<()> {
    let classes = classes(settings);
    let videos: Vec<(usize, usize)> =
        (0..classes.len()).flat_map(|class| (0..settings.videos_per_class).map(move |video| (class, video))).collect();
    for directory in [directory.join("frames"), directory.join("references")] {
        std::fs::create_dir_all(directory)?;
    }
    // Each video is a pure function of its number, so who paints it does not matter.
    let paint = |(class, video): &(usize, usize)| paint_video(settings, &classes, *class, *video, directory);
    let all = generated::parallel_map(&videos, paint)?;
    let references = paint_references(settings, &classes, directory)?;
    let images = all.iter().flat_map(|video| video.frames.iter().map(|(file, _)| file.as_str()));
    let images = images.chain(references.iter().filter_map(|reference| reference["file_name"].as_str()));
    let mut sums = String::new();
    for name in images {
        let digest = digest_of_file(&directory.join(name)).map_err(|error| io::Error::other(error.to_string()))?;
        sums.push_str(&format!("{digest}  {name}\n"));
    }
    let text = serde_json::to_vec(&annotations(settings, &classes, &all, references))?;
    sums.push_str(&format!("{}  {ANNOTATIONS}\n", digest(&text)));
    write::replace(&directory.join(digest_cache::SUMS), sums.as_bytes()).map_err(|error| error.source)?;
    write::replace(&directory.join(ANNOTATIONS), &text).map_err(|error| error.source)
}

/// Distinct appearances: first those to train on, then the held-out ones.
fn classes(settings: &SyntheticVideo) -> Vec<Appearance> {
    let mut all = Appearance::all();
    all.shuffle(&mut generator(settings.seed, "classes", 0));
    all.truncate(settings.train_classes + settings.validation_classes);
    all
}

fn paint_video(
    settings: &SyntheticVideo,
    classes: &[Appearance],
    class: usize,
    video: usize,
    directory: &Path,
) -> io::Result<Video> {
    let number = (class * settings.videos_per_class + video) as u64;
    let random = &mut generator(settings.seed, "video", number);
    let side = settings.frame_size;
    let background = Background::draw(random, side);
    let brightness = random.random_range(0.8..1.15);
    // Others are of the same split: a held-out class is in no training frame.
    let split =
        if class < settings.train_classes { 0..settings.train_classes } else { settings.train_classes..classes.len() };
    let mut actors = vec![Actor::draw(random, class, side, settings.frames_per_video, true)];
    for _ in 0..random.random_range(0..3) {
        let other = random.random_range(split.clone());
        if actors.iter().all(|actor| actor.class != other) {
            actors.push(Actor::draw(random, other, side, settings.frames_per_video, false));
        }
    }
    actors.shuffle(random); // who is in front
    let bar = random.random_bool(0.25).then(|| {
        let width = random.random_range(0.05..0.12) * side as f32;
        let colour = std::array::from_fn(|_| random.random_range(60.0..190.0));
        (random.random_bool(0.5), random.random_range(0.2..0.8) * side as f32, width, colour)
    });
    let name = format!("video_{number:04}");
    std::fs::create_dir_all(directory.join("frames").join(&name))?;
    let mut frames = Vec::with_capacity(settings.frames_per_video);
    for time in 0..settings.frames_per_video {
        let mut canvas = Canvas::new(side, &background, time as f32);
        let mut areas = Vec::with_capacity(actors.len());
        for (index, actor) in actors.iter_mut().enumerate() {
            let covered = match actor.present.contains(&time) {
                true => canvas.object(index as u8 + 1, &classes[actor.class], actor.pose(time)),
                false => 0,
            };
            areas.push(covered);
            actor.advance(side as f32);
        }
        if let Some((vertical, at, width, colour)) = bar {
            canvas.bar(vertical, at, width, colour);
        }
        let boxes = actors.iter().enumerate().filter_map(|(index, actor)| {
            let (count, place) = canvas.visible(index as u8 + 1);
            let seen = count as f32 >= VISIBLE_MIN * areas[index] as f32 && count >= 16;
            place.filter(|_| seen).map(|place| (actor.class, place))
        });
        let boxes = boxes.collect();
        let file = format!("frames/{name}/{time:04}.jpg");
        save(&directory.join(&file), &canvas.finish(random, brightness), side)?;
        frames.push((file, boxes));
    }
    Ok(Video { name, frames })
}

/// An object on its way through a video.
struct Actor {
    class: usize,
    position: (f32, f32),
    velocity: (f32, f32),
    radius: f32,
    pulse: (f32, f32),
    angle: f32,
    spin: f32,
    present: std::ops::Range<usize>,
}

impl Actor {
    fn draw(random: &mut impl Rng, class: usize, side: usize, frames: usize, leading: bool) -> Self {
        let size = side as f32;
        let radius = random.random_range(if leading { 0.12..0.24 } else { 0.10..0.18 }) * size;
        let mut along = || random.random_range(0.15..0.85) * size;
        let position = (along(), along());
        let mut speed = || random.random_range(-0.05..0.05) * size;
        let velocity = (speed(), speed());
        let pulse = (random.random_range(0.0..0.25), random.random_range(0.2..0.7));
        // Some come late or leave early, so that there is something to miss and something to invent.
        let present = match random.random_range(0..6) {
            0 => frames / 3..frames,
            1 => 0..frames - frames / 3,
            _ => 0..frames,
        };
        let angle = random.random_range(-0.5..0.5);
        Self { class, position, velocity, radius, pulse, angle, spin: random.random_range(-0.06..0.06), present }
    }

    fn pose(&self, time: usize) -> Pose {
        let radius = self.radius * (1.0 + self.pulse.0 * (self.pulse.1 * time as f32).sin());
        Pose { x: self.position.0, y: self.position.1, radius, angle: self.angle + self.spin * time as f32 }
    }

    /// Moves on; turns round a little beyond the edge.
    fn advance(&mut self, side: f32) {
        let step = |position: &mut f32, velocity: &mut f32| {
            *position += *velocity;
            if (*position < 0.04 * side && *velocity < 0.0) || (*position > 0.96 * side && *velocity > 0.0) {
                *velocity = -*velocity;
            }
        };
        step(&mut self.position.0, &mut self.velocity.0);
        step(&mut self.position.1, &mut self.velocity.1);
    }
}

fn paint_references(settings: &SyntheticVideo, classes: &[Appearance], directory: &Path) -> io::Result<Vec<Value>> {
    let mut references = Vec::with_capacity(classes.len() * settings.references_per_class);
    for (class, appearance) in classes.iter().enumerate() {
        for number in 0..settings.references_per_class {
            let random =
                &mut generator(settings.seed, "reference", (class * settings.references_per_class + number) as u64);
            let background = Background::draw(random, REFERENCE_SIDE);
            let mut canvas = Canvas::new(REFERENCE_SIDE, &background, 0.0);
            let side = REFERENCE_SIDE as f32;
            let pose = Pose {
                x: random.random_range(0.42..0.58) * side,
                y: random.random_range(0.42..0.58) * side,
                radius: random.random_range(0.26..0.4) * side,
                angle: random.random_range(-0.5..0.5),
            };
            canvas.object(1, appearance, pose);
            let file = format!("references/{class:04}_{number:02}.jpg");
            let brightness = random.random_range(0.8..1.15);
            save(&directory.join(&file), &canvas.finish(random, brightness), REFERENCE_SIDE)?;
            let (_, place) = canvas.visible(1);
            references.push(json!({ "category_id": class + 1, "file_name": file, "bbox": place }));
        }
    }
    Ok(references)
}

fn save(path: &Path, rgb: &[u8], side: usize) -> io::Result<()> {
    let mut bytes = Vec::new();
    let mut encoder = image::codecs::jpeg::JpegEncoder::new_with_quality(&mut bytes, JPEG_QUALITY);
    encoder.encode(rgb, side as u32, side as u32, image::ExtendedColorType::Rgb8).map_err(io::Error::other)?;
    generated::write_new(path, &bytes)
}

fn annotations(settings: &SyntheticVideo, classes: &[Appearance], videos: &[Video], references: Vec<Value>) -> Value {
    let categories: Vec<Value> = classes
        .iter()
        .enumerate()
        .map(|(class, appearance)| {
            let split = if class < settings.train_classes { "base" } else { "novel" };
            json!({ "id": class + 1, "name": appearance.name(), "supercategory": split })
        })
        .collect();
    let mut images = Vec::new();
    let mut annotations = Vec::new();
    for (video, content) in videos.iter().enumerate() {
        for (time, (file, boxes)) in content.frames.iter().enumerate() {
            let image = images.len() + 1;
            images.push(json!({
                "id": image, "file_name": file, "width": settings.frame_size, "height": settings.frame_size,
                "video_id": video + 1, "frame_index": time,
            }));
            for (class, place) in boxes {
                annotations.push(json!({
                    "id": annotations.len() + 1, "image_id": image, "category_id": class + 1, "bbox": place,
                    "area": place[2] * place[3], "iscrowd": 0,
                }));
            }
        }
    }
    let videos: Vec<Value> =
        videos.iter().enumerate().map(|(video, content)| json!({ "id": video + 1, "name": content.name })).collect();
    json!({
        "info": { "description": "generated by xrun", "version": VERSION },
        "videos": videos, "images": images, "annotations": annotations, "categories": categories,
        "references": references,
    })
}

#[cfg(test)]
#[path = "generate_tests.rs"]
mod tests;
