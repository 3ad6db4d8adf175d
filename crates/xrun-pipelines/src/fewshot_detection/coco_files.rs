//! How can pycocotools check a validation from outside? What was found and what there was to find, in COCO's forms.
//!
//! An image stands for a query frame of an episode: a frame that two episodes ask for is two images, since they ask for
//! different classes. Entries are written as they come, through a buffer of [`BUFFER_BYTES`].

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::decode::Detection;
use super::episode::Episodes;
use super::scoring::asked;
use xrun_core::bounded::buffer::Buffer;
use xrun_core::bounded::ledger::{Cap, Holding, Ledger, Policy};
use xrun_core::dataset::sample::{BoundingBox, IgnoreReason};
use xrun_core::files::write::{Replacement, WriteError};
use xrun_core::files::{layout, sums};

/// What waits to be written.
pub const BUFFER_BYTES: usize = 64 * 1024;
/// COCOeval has no word for an object that is neither right nor wrong to find and no crowd, but leaves out by area: below
/// every range it may take one detection, by IoU, and neither counts.
const AREA_OF_IGNORED: f64 = -1.0;

/// The buffer of [`CocoFiles`].
pub fn buffer() -> Buffer {
    let cap = Cap { items: 1, bytes: BUFFER_BYTES as u64 };
    Buffer::new("detections_buffer", Policy::Refuse, cap).because("`detections.json` on its way to the disk")
}

/// The files of a run.
#[derive(Debug)]
pub struct CocoFiles {
    buffer: Holding,
    /// The same in each validation.
    truths_written: bool,
}

impl CocoFiles {
    /// [`buffer`] makes the buffer.
    pub fn new(ledger: &Ledger, buffer: &Buffer) -> Self {
        Self { buffer: buffer.register(ledger), truths_written: false }
    }

    /// Begins `detections.json` in the folder of a run. Before the first of a process `ground_truth.json` is written, for
    /// a validation of so many episodes.
    ///
    /// # Errors
    /// A file that cannot be written.
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

    /// The file takes its place.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn finish(&mut self, file: DetectionsFile) -> Result<(), WriteError> {
        file.finish()?;
        self.buffer.set(0, 0);
        Ok(())
    }
}

/// `detections.json` while it is written. Dropped before it is finished, it leaves nothing.
#[derive(Debug)]
pub struct DetectionsFile {
    entries: Entries,
    image: u64,
    run: PathBuf,
}

impl DetectionsFile {
    /// Begins `detections.json` in a folder.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn begin(folder: &Path) -> Result<Self, WriteError> {
        let mut entries = Entries::begin(&folder.join(layout::DETECTIONS))?;
        entries.text("[")?;
        Ok(Self { entries, image: 0, run: folder.to_path_buf() })
    }

    /// The next query frame: what was found of the classes of its episode.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn frame(&mut self, classes: &[usize], found: &[Detection]) -> Result<(), WriteError> {
        self.image(self.image + 1, classes, found)
    }

    /// An image by its number, and what was found in it of these classes.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn image(&mut self, image: u64, classes: &[usize], found: &[Detection]) -> Result<(), WriteError> {
        self.image = image;
        for one in found {
            let (category_id, bbox) = (category(classes[one.class]), sides(&one.rectangle));
            self.entries.entry(&Found { image_id: image, category_id, bbox, score: one.score })?;
        }
        Ok(())
    }

    /// The file takes its place.
    ///
    /// # Errors
    /// It cannot be written.
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
struct Found {
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

/// The number of a class in these files: COCO counts from 1.
pub fn category(class: usize) -> u64 {
    class as u64 + 1
}

/// Left, top, width and height, without rounding: so pycocotools comes to the same overlaps.
pub fn sides(place: &BoundingBox) -> [f64; 4] {
    let [left, top, right, bottom] = [place.left, place.top, place.right, place.bottom].map(f64::from);
    [left, top, right - left, bottom - top]
}

/// Draws the episodes once for each list of the file, so that none is held.
fn write_truths(path: &Path, episodes: &Episodes, count: u64) -> Result<(), WriteError> {
    let library = episodes.library();
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
            for (_, object) in asked(library, &episode.classes, query) {
                id += 1;
                let difficult = object.ignored == Some(IgnoreReason::Difficult);
                file.entry(&Annotation {
                    id,
                    image_id,
                    category_id: category(object.class),
                    bbox: sides(&object.rectangle),
                    area: if difficult { AREA_OF_IGNORED } else { f64::from(object.area) },
                    iscrowd: u8::from(object.ignored == Some(IgnoreReason::Crowd)),
                    ignore: u8::from(object.ignored.is_some()),
                })?;
            }
        }
    }
    file.next_list("],\n\"categories\": [")?;
    for (class, _) in classes.into_iter().enumerate().filter(|(_, asked)| *asked) {
        file.entry(&Category { id: category(class), name: &library.classes[class].name })?;
    }
    file.text("\n]\n}\n")?;
    file.file.finish()
}

/// Lists of JSON entries, a line each.
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
