//! Detections and ground truth of a validation in COCO's formats, for a check with pycocotools.
//!
//! An image is a query frame of an episode: a frame of two episodes is two images, since they ask for different classes. Entries are
//! written one by one through a buffer of [`BUFFER_BYTES`].

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::decode::FrameDetection;
use super::episode::Episodes;
use super::scoring::objects_of_ways;
use xrun_core::bounded::buffer::Buffer;
use xrun_core::bounded::ledger::{Cap, Ledger, Policy, Registration};
use xrun_core::dataset::sample::{BoundingBox, IgnoreReason};
use xrun_core::files::write::{Replacement, WriteError};
use xrun_core::files::{layout, sums};

/// Size of the write buffer.
pub const BUFFER_BYTES: usize = 64 * 1024;
/// Area of ignored objects that are no crowds. COCOeval has no flag for them, but ignores objects outside the range of areas: such an
/// object may match one detection, and neither counts.
const AREA_OF_IGNORED: f64 = -1.0;

/// Write buffer of [`CocoFiles`].
pub fn buffer() -> Buffer {
    let cap = Cap { items: 1, bytes: BUFFER_BYTES as u64 };
    Buffer::new("detections_buffer", Policy::Refuse, cap).because("the write buffer of `detections.json`")
}

/// COCO files of a run.
#[derive(Debug)]
pub struct CocoFiles {
    buffer: Registration,
    /// True after `ground_truth.json`, which is the same for all validations, has been written.
    truths_written: bool,
}

impl CocoFiles {
    /// Writer with a buffer made by [`buffer`].
    pub fn new(ledger: &Ledger, buffer: &Buffer) -> Self {
        Self { buffer: buffer.register(ledger), truths_written: false }
    }

    /// Begins `detections.json` in the directory of a run. The first call also writes `ground_truth.json`, for a validation of `count`
    /// episodes.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn begin(&mut self, run: &Path, episodes: &Episodes, count: u64) -> Result<DetectionsFile, WriteError> {
        self.buffer.set(1, BUFFER_BYTES as u64);
        if !self.truths_written {
            sums::remove(run, &[layout::GROUND_TRUTH]);
            write_truths(&run.join(layout::GROUND_TRUTH), episodes, count)?;
            sums::record(run, &[layout::GROUND_TRUTH]);
            self.truths_written = true;
        }
        DetectionsFile::begin(run)
    }

    /// Completes `detections.json`.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn finish(&mut self, file: DetectionsFile) -> Result<(), WriteError> {
        file.finish()?;
        self.buffer.set(0, 0);
        Ok(())
    }
}

/// Incomplete `detections.json`. Dropping it leaves the previous file in place.
#[derive(Debug)]
pub struct DetectionsFile {
    entries: Entries,
    image: u64,
    run: PathBuf,
}

impl DetectionsFile {
    /// Begins `detections.json` in a directory.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn begin(directory: &Path) -> Result<Self, WriteError> {
        let mut entries = Entries::begin(&directory.join(layout::DETECTIONS))?;
        entries.text("[")?;
        Ok(Self { entries, image: 0, run: directory.to_path_buf() })
    }

    /// Adds the detections in the next query frame, of the classes of its episode.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn frame(&mut self, classes: &[usize], found: &[FrameDetection]) -> Result<(), WriteError> {
        self.image(self.image + 1, classes, found)
    }

    /// Adds the detections, of these classes, in the image with this id.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn image(&mut self, image: u64, classes: &[usize], found: &[FrameDetection]) -> Result<(), WriteError> {
        self.image = image;
        for one in found {
            let (category_id, bbox) = (category(classes[one.class]), bbox(&one.rectangle));
            self.entries.entry(&CocoDetection { image_id: image, category_id, bbox, score: one.score })?;
        }
        Ok(())
    }

    /// Completes the file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn finish(self) -> Result<(), WriteError> {
        let Self { mut entries, run, .. } = self;
        entries.text("\n]\n")?;
        sums::remove(&run, &[layout::DETECTIONS]);
        entries.file.finish()?;
        sums::record(&run, &[layout::DETECTIONS]);
        Ok(())
    }
}

#[derive(Serialize)]
struct CocoDetection {
    image_id: u64,
    category_id: u64,
    bbox: [f64; 4],
    score: f32,
}

#[derive(Serialize)]
struct Image<'a> {
    id: u64,
    file_name: String,
    width: usize,
    height: usize,
    episode: u64,
    video: &'a str,
    frame: usize,
}

#[derive(Serialize)]
struct Annotation {
    id: u64,
    image_id: u64,
    category_id: u64,
    bbox: [f64; 4],
    area: f64,
    iscrowd: u8,
    ignore: u8,
}

#[derive(Serialize)]
struct Category<'a> {
    id: u64,
    name: &'a str,
}

/// Id of a class in these files, from 1.
pub fn category(class: usize) -> u64 {
    class as u64 + 1
}

/// Box as left, top, width and height, without rounding, so that pycocotools computes the same overlaps.
pub fn bbox(rectangle: &BoundingBox) -> [f64; 4] {
    let [left, top, right, bottom] = [rectangle.left, rectangle.top, rectangle.right, rectangle.bottom].map(f64::from);
    [left, top, right - left, bottom - top]
}

/// Writes `ground_truth.json`. The episodes are drawn again for each list of the file, so that none is in memory.
fn write_truths(path: &Path, episodes: &Episodes, count: u64) -> Result<(), WriteError> {
    let library = &episodes.library;
    let mut file = Entries::begin(path)?;
    file.text("{\n\"info\": {\"description\": \"What a validation of xrun asked for: an image for each query frame of each episode\"},\n")?;
    file.text("\"images\": [")?;
    let mut id = 0;
    for episode in 0..count {
        for query in episodes.draw_validation(episode).queries {
            id += 1;
            let video = &library.videos[query.video];
            let frame = &video.frames[query.frame];
            file.entry(&Image {
                id,
                file_name: frame.path.display().to_string(),
                width: frame.width,
                height: frame.height,
                episode,
                video: &video.name,
                frame: query.frame,
            })?;
        }
    }
    file.next_list("],\n\"annotations\": [")?;
    let (mut image_id, mut id) = (0, 0);
    let mut classes = vec![false; library.classes.len()];
    for episode in (0..count).map(|number| episodes.draw_validation(number)) {
        episode.classes.iter().for_each(|class| classes[*class] = true);
        for query in episode.queries {
            image_id += 1;
            for (_, object) in objects_of_ways(library, &episode.classes, query) {
                id += 1;
                let difficult = object.ignored == Some(IgnoreReason::Difficult);
                file.entry(&Annotation {
                    id,
                    image_id,
                    category_id: category(object.class),
                    bbox: bbox(&object.rectangle),
                    area: if difficult { AREA_OF_IGNORED } else { f64::from(object.area) },
                    iscrowd: u8::from(object.ignored == Some(IgnoreReason::Crowd)),
                    ignore: u8::from(object.ignored.is_some()),
                })?;
            }
        }
    }
    file.next_list("],\n\"categories\": [")?;
    for (class, _) in classes.into_iter().enumerate().filter(|(_, used)| *used) {
        file.entry(&Category { id: category(class), name: &library.classes[class].name })?;
    }
    file.text("\n]\n}\n")?;
    file.file.finish()
}

/// File with lists of JSON entries, one per line.
#[derive(Debug)]
struct Entries {
    file: Replacement,
    any: bool,
}

impl Entries {
    fn begin(path: &Path) -> Result<Self, WriteError> {
        Ok(Self { file: Replacement::begin(path, BUFFER_BYTES)?, any: false })
    }

    fn text(&mut self, text: &str) -> Result<(), WriteError> {
        self.file.write(text.as_bytes())
    }

    fn next_list(&mut self, between: &str) -> Result<(), WriteError> {
        self.any = false;
        self.text("\n")?;
        self.text(between)
    }

    fn entry(&mut self, entry: &impl Serialize) -> Result<(), WriteError> {
        self.text(if self.any { ",\n" } else { "\n" })?;
        self.any = true;
        self.file.write_json(entry)
    }
}

#[cfg(test)]
#[path = "coco_files_tests.rs"]
mod tests;
