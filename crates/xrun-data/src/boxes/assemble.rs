//! Check of the annotations against the images on the disk, which makes the index.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::frames::index_bytes;
use super::library::{Class, Frame, Library, Object, Reference, Video};
use super::open::DirectoryOptions;
use super::raw::{IMAGE_ENDINGS, Raw, RawClass, RawImage, RawObject, RawReference};
use crate::reading::confined::{Root, confined};
use crate::reading::decoding::{Largest, decoding_bytes};
use crate::reading::image_head::{Bounds, OTHER_FORMAT, head_of_file};
use crate::reading::invalid::{Fault, InvalidCollector};
use crate::reading::orientation::{self, ExifOrientation};
use crate::reading::other_files;
use crate::reading::whole::FILE_BYTES_MAX;
use xrun_core::dataset::digest::hexadecimal;
use xrun_core::dataset::digest_cache::DigestCache;
use xrun_core::dataset::error::{DataError, UNKNOWN_CLASS};
use xrun_core::dataset::sample::{BoundingBox, IgnoreReason};
use xrun_core::dataset::split::Split;
use xrun_core::printable;
use xrun_core::problem::nearest;

/// Bounds of an image. Its sides are at most those of a JPEG: scaling holds rows in proportion to the length.
const BOUNDS: Bounds = Bounds { pixels: 100_000_000, side: 65_535, file_bytes: FILE_BYTES_MAX };
/// Maximum length of the name of a class in bytes.
const NAME_BYTES_MAX: usize = 200;
/// Distance in pixels that boxes may reach beyond the image, as rounding makes them; they are cut off at its edge.
const TOLERANCE: f64 = 1.0;

/// Width and height in pixels.
type Size = (u64, u64);

/// Size of an image, with its orientation applied.
struct Oriented {
    size: Size,
    /// `true` where width and height are exchanged.
    turned: bool,
}

/// Position of a box: inside its image, or outside with the visible part of it, if any.
enum Position {
    Inside(BoundingBox),
    Outside(Option<BoundingBox>),
}

struct Assembly<'a> {
    root: Root,
    exif_orientation: ExifOrientation,
    invalid: &'a mut InvalidCollector,
    digest: Sha256,
    videos: Vec<Video>,
    /// Index into `videos` by index into [`Raw::videos`], and the places of the frames by their number.
    sequences: BTreeMap<usize, (usize, BTreeMap<i64, u32>)>,
    names: Vec<String>,
    /// Beginnings of the digests of the names of still images, which take less than the names.
    stills: HashSet<[u8; 16]>,
    digest_cache: DigestCache,
    largest: Option<Largest>,
}

/// Checks every image and box. `digest` has the bytes of the annotations already.
pub fn assemble(
    options: DirectoryOptions<'_>,
    root: Root,
    raw: Raw,
    invalid: &mut InvalidCollector,
    digest: Sha256,
    digest_cache: DigestCache,
) -> Result<Library, DataError> {
    let (section, raw_bytes) = (options.section, raw.bytes());
    // Sorted by name, so that a class's number does not depend on the order of a file.
    check_names(&raw.classes)?;
    let mut order: Vec<usize> = (0..raw.classes.len()).collect();
    order.sort_by(|a, b| raw.classes[*a].name.cmp(&raw.classes[*b].name));
    let mut class_number = vec![0; order.len()];
    order.iter().enumerate().for_each(|(position, class)| class_number[*class] = position);
    let splits = splits(options, &raw.classes, invalid);
    let mut classes: Vec<Class> = order
        .iter()
        .map(|class| Class { name: raw.classes[*class].name.clone(), split: splits[*class], references: Vec::new() })
        .collect();
    let references = raw.references.iter().flatten().map(|reference| reference.file.as_str());
    let used = raw.images.iter().map(|image| image.file.as_str()).chain(references);
    let ignored = other_files::notes(&root, used, &IMAGE_ENDINGS, "image", raw.is_in_class_directories);
    let mut assembly = Assembly {
        root,
        exif_orientation: options.exif_orientation,
        invalid,
        digest,
        videos: Vec::new(),
        sequences: BTreeMap::new(),
        names: raw.videos,
        stills: HashSet::new(),
        digest_cache,
        largest: None,
    };
    // Their room goes as that of the index comes.
    let mut images = raw.images;
    images.reverse();
    while let Some(image) = images.pop() {
        assembly.image(image, &class_number)?;
        if images.len() < images.capacity() / 2 {
            images.shrink_to_fit();
        }
    }
    let are_cropped = raw.references.is_none();
    for reference in raw.references.unwrap_or_default() {
        let class = class_number[reference.class as usize];
        classes[class].references.extend(assembly.reference(reference)?);
    }
    let Assembly { root, invalid, digest, mut videos, sequences, digest_cache, largest, .. } = assembly;
    let known_bytes = digest_cache.bytes_max();
    digest_cache.save();
    for (video, by_number) in sequences.into_values() {
        let mut frames: Vec<Option<Frame>> = std::mem::take(&mut videos[video].frames).into_iter().map(Some).collect();
        videos[video].frames = by_number.into_values().filter_map(|at| frames[at as usize].take()).collect();
        videos[video].frames.shrink_to_fit();
    }
    videos.shrink_to_fit();
    let (digest, skipped) = (hexadecimal(&digest.finalize()), invalid.found.clone());
    let mut notes = raw.notes;
    notes.extend(ignored);
    let (root, exif_orientation) = (root.path, options.exif_orientation);
    let mut library =
        Library { section, root, exif_orientation, classes, videos, notes, digest, skipped, largest, opening_bytes: 0 };
    // Annotations go as frames and digests come, and references come when both are gone.
    let assembly_bytes = raw_bytes[0] + known_bytes + index_bytes(&library);
    if are_cropped {
        crop_references(&mut library);
    }
    leave_out_empty(&mut library, &options);
    // Lists of objects are copied as they grow.
    let raw_bytes_max = raw_bytes.iter().sum::<u64>() * 9 / 8;
    library.opening_bytes = raw_bytes_max.max(assembly_bytes).max(index_bytes(&library));
    Ok(library)
}

impl Assembly<'_> {
    fn image(&mut self, mut raw: RawImage, class_number: &[usize]) -> Result<(), DataError> {
        let Some((path, Oriented { size, turned })) = self.file(&raw.file)? else { return Ok(()) };
        if let Some(annotated) = raw.size.filter(|annotated| *annotated != size) {
            let rotated = if turned { " by its EXIF orientation" } else { "" };
            let (width, height) = annotated;
            let message = format!("is {} x {} pixels{rotated}, annotated as {width} x {height}", size.0, size.1);
            self.invalid.add("wrong_size", &path, message);
            return Ok(());
        }
        let mut objects = Vec::with_capacity(raw.objects.len());
        let unit = raw.unit.pixels(size);
        for object in &mut raw.objects {
            object.corners.iter_mut().zip(unit).for_each(|(corner, unit)| *corner *= unit);
        }
        let repeated = repeated(&raw.objects);
        for (at, object) in raw.objects.iter().enumerate() {
            let (class, name) = (class_number[object.class as usize], &object.name);
            if let Some(first) = repeated.get(&(at as u32)) {
                let ([left, top, right, bottom], other) = (object.corners, &raw.objects[*first as usize].name);
                self.invalid.add_with("repeated_box", &path, || {
                    format!("{name} has the class and the box of {other}: {left}, {top} to {right}, {bottom}")
                });
                continue;
            }
            match self.rectangle(object.corners, size, &path, name) {
                Position::Inside(rectangle) => {
                    let area = object.area.unwrap_or_else(|| rectangle.area());
                    objects.push(Object { class, rectangle, area, ignored: object.ignored });
                }
                // It is left out, and what can be seen of it is not background.
                Position::Outside(Some(rectangle)) => {
                    let ignored = object.ignored.or(Some(IgnoreReason::Difficult));
                    objects.push(Object { class, rectangle, area: rectangle.area(), ignored });
                }
                Position::Outside(None) => {}
            }
        }
        let frame = Frame { path, width: size.0 as usize, height: size.1 as usize, objects };
        let Some(video) = raw.video else {
            let digest = Sha256::digest(frame.path.as_os_str().as_encoded_bytes());
            if !self.stills.insert(std::array::from_fn(|at| digest[at])) {
                let message = "is listed twice: objects of the one are missing in the other".into();
                self.invalid.add("repeated_image", &frame.path, message);
                return Ok(());
            }
            self.videos.push(Video { name: raw.file, sequence: false, part: raw.part, frames: vec![frame] });
            return Ok(());
        };
        let (number, by_number) = self.sequences.entry(video).or_insert((self.videos.len(), BTreeMap::new()));
        if *number == self.videos.len() {
            let name = self.names[video].clone();
            self.videos.push(Video { name, sequence: true, part: raw.part, frames: Vec::new() });
        }
        let video = &mut self.videos[*number];
        if let Some(other) = by_number.get(&raw.frame) {
            let (other, name) = (video.frames[*other as usize].path.display(), &video.name);
            let message = format!("is frame {} of the video \"{name}\", and so is {other}", raw.frame);
            self.invalid.add("repeated_frame", &frame.path, message);
            return Ok(());
        }
        by_number.insert(raw.frame, video.frames.len() as u32);
        video.frames.push(frame);
        Ok(())
    }

    fn reference(&mut self, raw: RawReference) -> Result<Option<Reference>, DataError> {
        let Some((path, Oriented { size, .. })) = self.file(&raw.file)? else { return Ok(None) };
        let unit = raw.unit.pixels(size);
        let corners = raw.corners.map(|corners| std::array::from_fn(|at| corners[at] * unit[at]));
        let position = corners.map(|corners| self.rectangle(corners, size, &path, "the reference"));
        let rectangle = match position {
            Some(Position::Outside(_)) => return Ok(None),
            Some(Position::Inside(rectangle)) => Some(rectangle),
            None => None,
        };
        let video = raw.video.and_then(|video| self.sequences.get(&video)).map(|(number, _)| *number);
        Ok(Some(Reference { path, rectangle, video }))
    }

    /// Path and size of an image that is there and complete.
    fn file(&mut self, name: &str) -> Result<Option<(PathBuf, Oriented)>, DataError> {
        let Some(path) = confined(&self.root, name)? else {
            // The whole path: where an image was looked for is half of the answer.
            let tried = self.root.join(name);
            self.invalid.add("missing_image", &tried, "the image is missing, or is not a file".into());
            return Ok(None);
        };
        let whole = self.root.join(&path);
        let length = std::fs::metadata(&whole).map_or(0, |about| about.len());
        self.digest.update(name.as_bytes());
        self.digest.update(length.to_le_bytes());
        if length <= FILE_BYTES_MAX {
            self.digest.update(self.digest_cache.digest(name, &whole)?.as_bytes());
        }
        match size_of_image(&whole, length, self.exif_orientation) {
            Ok(found) => {
                let (width, height) = found.size;
                let bytes = decoding_bytes(width, height, length);
                if self.largest.as_ref().is_none_or(|largest| largest.bytes < bytes) {
                    self.largest = Some(Largest { path: path.clone(), width, height, bytes });
                }
                Ok(Some((path, found)))
            }
            Err((reason, message)) => {
                self.invalid.add(reason, &path, message);
                Ok(None)
            }
        }
    }

    /// Position of a box in its image.
    fn rectangle(
        &mut self,
        [left, top, right, bottom]: [f64; 4],
        (width, height): Size,
        path: &Path,
        name: impl std::fmt::Display,
    ) -> Position {
        let (width, height) = (width as f64, height as f64);
        let cut = BoundingBox {
            left: left.max(0.0) as f32,
            top: top.max(0.0) as f32,
            right: right.min(width) as f32,
            bottom: bottom.min(height) as f32,
        };
        let is_finite = [left, top, right, bottom].iter().all(|value| value.is_finite());
        let is_there = is_finite && right > left && bottom > top;
        let seen = (is_there && cut.right > cut.left && cut.bottom > cut.top).then_some(cut);
        let is_inside =
            left >= -TOLERANCE && top >= -TOLERANCE && right <= width + TOLERANCE && bottom <= height + TOLERANCE;
        let (reason, what) = match (seen, is_inside) {
            (Some(rectangle), true) => return Position::Inside(rectangle),
            _ if is_there && !is_inside => ("box_outside", format!("outside of the image of {width} x {height}")),
            _ => ("empty_box", format!("which is {}", if is_finite { "empty" } else { "no number" })),
        };
        let message = || format!("{name} has the box {left}, {top} to {right}, {bottom}, {what}");
        self.invalid.add_with(reason, path, message);
        Position::Outside(seen)
    }
}

/// Objects with the class and the box of another of their image, and the first such one, by their indices.
fn repeated(objects: &[RawObject]) -> BTreeMap<u32, u32> {
    let key = |at: &u32| (objects[*at as usize].class, objects[*at as usize].corners.map(f64::to_bits));
    let mut order: Vec<u32> = (0..objects.len() as u32).collect();
    order.sort_by_key(key);
    let same = order.chunk_by(|one, other| key(one) == key(other));
    same.flat_map(|same| same[1..].iter().map(|at| (*at, same[0]))).collect()
}

/// Adds the objects of the images as references, to be cropped.
fn crop_references(library: &mut Library) {
    let is_used = |video: &Video, object: &Object| object.ignored.is_none() && library.serves(video, object.class);
    let mut counts = vec![0; library.classes.len()];
    for video in &library.videos {
        let objects = video.frames.iter().flat_map(|frame| &frame.objects);
        objects.filter(|object| is_used(video, object)).for_each(|object| counts[object.class] += 1);
    }
    // Lists that grow would take half as much again.
    let mut references: Vec<Vec<Reference>> = counts.into_iter().map(Vec::with_capacity).collect();
    for (number, video) in library.videos.iter().enumerate() {
        for frame in &video.frames {
            for object in frame.objects.iter().filter(|object| is_used(video, object)) {
                let (path, rectangle) = (frame.path.clone(), Some(object.rectangle));
                references[object.class].push(Reference { path, rectangle, video: Some(number) });
            }
        }
    }
    library.classes.iter_mut().zip(references).for_each(|(class, references)| class.references = references);
}

/// Takes classes out of both splits that no image shows and no key names, such as the parent category of an export.
fn leave_out_empty(library: &mut Library, options: &DirectoryOptions<'_>) {
    let mut shown = vec![false; library.classes.len()];
    let frames = library.videos.iter().flat_map(|video| &video.frames);
    frames.flat_map(|frame| &frame.objects).for_each(|object| shown[object.class] = true);
    for (class, shown) in library.classes.iter_mut().zip(shown) {
        let named = options.train_classes.contains(&class.name) || options.validation_classes.contains(&class.name);
        if !shown && !named && class.references.is_empty() {
            class.split = None;
        }
    }
}

/// Size of an image, with its orientation applied.
fn size_of_image(path: &Path, length: u64, rule: ExifOrientation) -> Result<Oriented, Fault> {
    if length == 0 {
        return Err(("broken_image", "is an empty file".into()));
    }
    let head = head_of_file(path, length, BOUNDS, rule).map_err(|(reason, message)| match reason {
        OTHER_FORMAT => ("broken_image", message),
        _ => (reason, message),
    })?;
    let (width, height) = (u64::from(head.width), u64::from(head.height));
    let turned = orientation::swaps_sides(head.orientation);
    Ok(Oriented { size: if turned { (height, width) } else { (width, height) }, turned })
}

/// Refuses names that cannot be shown, compared and written to results.
fn check_names(classes: &[RawClass]) -> Result<(), DataError> {
    for class in classes {
        let name = class.name.as_str();
        if name.trim().is_empty() || name.len() > NAME_BYTES_MAX {
            let message = "the name of a class has at least one letter and at most";
            let name = printable::line(name, 60);
            return Err(DataError::content(format!("\"{name}\": {message} {NAME_BYTES_MAX} bytes")));
        }
    }
    Ok(())
}

/// Split of each class, in the order of the file.
fn splits(options: DirectoryOptions<'_>, classes: &[RawClass], invalid: &mut InvalidCollector) -> Vec<Option<Split>> {
    let section = options.section;
    let known: BTreeSet<&str> = classes.iter().map(|class| class.name.as_str()).collect();
    for (key, names) in [("validation_classes", options.validation_classes), ("train_classes", options.train_classes)] {
        for name in names {
            if !known.contains(name.as_str()) {
                let meant = nearest(name, known.iter().copied());
                let hint = meant.map_or_else(String::new, |meant| format!("; did you mean \"{meant}\"?"));
                let some: Vec<String> = known.iter().take(20).map(|name| printable::line(name, 60)).collect();
                invalid.add_fatal(UNKNOWN_CLASS, || {
                    let message = format!("the data has no class \"{name}\"{hint} (it has {})", some.join(", "));
                    DataError::entry(format!("{section}.{key}"), name, message)
                });
            }
        }
    }
    let held_out = |class: &RawClass| match options.validation_classes.is_empty() {
        true => class.supercategory.as_deref() == Some("novel"),
        false => options.validation_classes.contains(&class.name),
    };
    let trained = |class: &RawClass| options.train_classes.is_empty() || options.train_classes.contains(&class.name);
    let split = |class: &RawClass| match (held_out(class), trained(class)) {
        (true, _) => Some(Split::Validation),
        (false, true) => Some(Split::Train),
        (false, false) => None,
    };
    classes.iter().map(split).collect()
}
