//! Opens files of images with conversations: checks every example and image, and makes the index.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{Cursor, Read, Seek};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::generate::{self, FILES};
use super::image_file::{self, BOUNDS};
use super::library::{ExampleLocation, Form, Library, TextFile};
use super::record::{EXPECTED, Image, Record};
use super::settings::{ImageText, Source};
use crate::reading::confined::{Root, confined};
use crate::reading::decoding::{Largest, decoding_bytes};
use crate::reading::image_head::{Head, head_of_file};
use crate::reading::invalid::{Fault, InvalidCollector, OnInvalid};
use crate::reading::json_stream::{FILE, JsonStream, Place, VALUE_BYTES_MAX};
use crate::reading::orientation::ExifOrientation;
use crate::reading::record_file::RecordFile;
use crate::reading::whole::check_whole;
use xrun_core::dataset::digest::hexadecimal;
use xrun_core::dataset::digest_cache::DigestCache;
use xrun_core::dataset::error::DataError;
use xrun_core::dataset::split::Split;
use xrun_core::dataset::{cache, generated};
use xrun_core::files::file;
use xrun_core::printable;

/// Maximum number of examples.
const EXAMPLES_MAX: usize = 10_000_000;
/// Copies of a line in memory while its image is decoded: the line, and the base64 in it.
pub(super) const LINE_COPIES: u64 = 2;

/// Opens the data set that the settings name; a generated one is written now if it is not there. All lines are read once,
/// and the beginning and the end of each image; none is kept.
///
/// # Errors
/// All that would end a run before its first step.
pub fn open(settings: &ImageText) -> Result<Library, DataError> {
    match settings.source {
        Source::Generated => {
            open_generated(settings, &generate::generate_in(&settings.generated, &cache::directory())?)
        }
        Source::Messages | Source::QuestionList => open_files(settings),
    }
}

/// Opens a generated set. No part of it is ever left out: results on it would not compare.
pub(super) fn open_generated(settings: &ImageText, directory: &Path) -> Result<Library, DataError> {
    let paths = FILES.map(|name| directory.join(name));
    indexed(settings, &paths, OnInvalid::Fail).map_err(|error| generated::damaged(directory, error))
}

fn open_files(settings: &ImageText) -> Result<Library, DataError> {
    let named = [&settings.path, &settings.validation_path];
    let paths: Vec<PathBuf> = named.into_iter().flatten().map(PathBuf::from).collect();
    indexed(settings, &paths, settings.on_invalid)
}

/// The directories of the data set.
pub fn directories(settings: &ImageText) -> Vec<PathBuf> {
    match settings.source {
        Source::Generated => vec![generate::set(&settings.generated).directory(&cache::directory())],
        Source::Messages | Source::QuestionList => {
            let named = [&settings.path, &settings.validation_path];
            named.into_iter().flatten().map(|path| directory_of(Path::new(path))).collect()
        }
    }
}

fn directory_of(path: &Path) -> PathBuf {
    path.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_path_buf()
}

/// Returns whether a file opens a list of objects.
fn begins_a_list(mut file: &File) -> std::io::Result<bool> {
    let mut begin = Vec::new();
    file.take(BEGIN_BYTES).read_to_end(&mut begin)?;
    file.rewind()?;
    let begin = begin.trim_ascii_start().strip_prefix(b"[");
    Ok(begin.is_some_and(|rest| matches!(rest.trim_ascii_start().first(), None | Some(b'{'))))
}

/// Bytes at the beginning of a file by which a list is told.
const BEGIN_BYTES: u64 = 4096;

fn indexed(settings: &ImageText, paths: &[PathBuf], policy: OnInvalid) -> Result<Library, DataError> {
    let mut indexing = Indexing {
        generated: settings.source == Source::Generated,
        known: BTreeMap::new(),
        digest: Sha256::new(),
        largest: None,
        opening_bytes: 0,
    };
    // Problems of both files are reported together.
    let (mut files, skipped) = InvalidCollector::collect(policy, |invalid| {
        let files: Result<Vec<IndexedFile>, _> =
            paths.iter().map(|path| indexing.file(settings, path, invalid)).collect();
        Ok((files?, invalid.found.clone()))
    })?;
    indexing.opening_bytes += indexing.known.values().map(DigestCache::bytes_max).sum::<u64>();
    indexing.known.into_values().for_each(DigestCache::save);
    let images = files.iter().map(|(.., images)| u64::from(*images)).sum();
    let source_of = std::array::from_fn(|split| split.min(files.len() - 1));
    let mut places: [Vec<ExampleLocation>; 3] = Default::default();
    if let [(_, all, images)] = files.as_mut_slice() {
        let held_out = (f64::from(*images) * settings.validation_fraction).round().max(1.0) as u32;
        let first = images.saturating_sub(held_out);
        let mut train = std::mem::take(all);
        train.shrink_to_fit();
        let validation = train.extract_if(.., |place| place.image >= first).collect();
        [places[Split::Train as usize], places[Split::Validation as usize]] = [train, validation];
    } else {
        files.iter_mut().zip(&mut places).for_each(|((_, all, _), places)| *places = std::mem::take(all));
    }
    places.iter_mut().for_each(Vec::shrink_to_fit);
    let index = places.iter().map(Vec::capacity).sum::<usize>() * size_of::<ExampleLocation>();
    let opening_bytes = indexing.opening_bytes + (index + index / 4) as u64;
    let library = Library {
        sources: files.into_iter().map(|(text, ..)| text).collect(),
        source_of,
        places,
        images,
        largest: match settings.source {
            Source::Generated => Some(generate::largest(&settings.generated, &paths[0])),
            _ => indexing.largest,
        },
        digest: hexadecimal(&indexing.digest.finalize()),
        skipped,
        opening_bytes,
    };
    library.check_use()?;
    Ok(library)
}

/// A file of examples, their places, and the number of its images.
type IndexedFile = (TextFile, Vec<ExampleLocation>, u32);

struct Indexing {
    /// `true` for a generated set, whose files are hashed and not read.
    generated: bool,
    /// Digests of files, by their directory.
    known: BTreeMap<PathBuf, DigestCache>,
    digest: Sha256,
    largest: Option<Largest>,
    /// Bytes beside the index that opening takes: texts, and tables of the images.
    opening_bytes: u64,
}

/// Number of an image, with the head and the bytes of its file; `None` for one that needs no inspection.
type InspectedImage = (u32, Option<(Head, u64)>);

/// Reader of one file.
struct FileIndexer<'a> {
    path: &'a Path,
    root: &'a Root,
    form: Form,
    places: Vec<ExampleLocation>,
    /// Each image by the beginning of the SHA-256 of its name or its base64.
    images: HashMap<[u8; 16], InspectedImage>,
    /// Bytes of text that were held at once.
    text_bytes: u64,
    invalid: &'a mut InvalidCollector,
}

impl Indexing {
    fn file(
        &mut self,
        settings: &ImageText,
        path: &Path,
        invalid: &mut InvalidCollector,
    ) -> Result<IndexedFile, DataError> {
        let failed = |error: std::io::Error| DataError::file(path, format!("cannot be read: {error}"));
        let root = Root::open(&directory_of(path), settings.follow_links, settings.link_root.as_deref())?;
        let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let digest = self.known(&root.path).digest(&name, path)?;
        self.digest.update(digest.as_bytes());
        let form = match settings.source {
            Source::QuestionList => Form::List(settings.answer_format),
            Source::Generated | Source::Messages => Form::Lines,
        };
        let opened = file::open(path).map_err(failed)?;
        let mut found =
            FileIndexer { path, root: &root, form, places: Vec::new(), images: HashMap::new(), text_bytes: 0, invalid };
        match form {
            // LLaVA's files are one list.
            Form::Lines if begins_a_list(&opened).map_err(failed)? => self.list(&opened, &mut found)?,
            Form::Lines => self.lines(&opened, &mut found)?,
            Form::List(_) => self.list(&opened, &mut found)?,
        }
        let FileIndexer { places, images, text_bytes, .. } = found;
        // A hash table has a byte of its own for each entry.
        let table = images.capacity() * (size_of::<([u8; 16], InspectedImage)>() + 1);
        self.opening_bytes = self.opening_bytes.max(text_bytes) + table as u64;
        let images = images.len() as u32;
        Ok((TextFile { file: RecordFile::new(path, opened), root, form }, places, images))
    }

    fn known(&mut self, directory: &Path) -> &mut DigestCache {
        let open = || match self.generated {
            true => DigestCache::open_generated(directory),
            false => DigestCache::open(directory),
        };
        self.known.entry(directory.to_owned()).or_insert_with(open)
    }

    fn lines(&mut self, file: &File, found: &mut FileIndexer<'_>) -> Result<(), DataError> {
        let (path, mut seen, mut blank) = (found.path, |_: &[u8]| {}, true);
        let nothing = |what: &str| DataError::file(path, format!("{what}; expected an example a line: {EXPECTED}"));
        let mut stream = JsonStream::new(file, path, "JSON lines", &mut seen)?;
        loop {
            let Place { offset, line, .. } = stream.place();
            let Some(text) = stream.line()? else {
                let message = format!("line {line}: has more than {VALUE_BYTES_MAX} bytes, which is no example");
                found.invalid.add("too_long_line", path, message);
                blank = false;
                continue;
            };
            if text.is_empty() {
                found.text_bytes = stream.bytes();
                return match (offset, blank) {
                    (0, _) => Err(nothing("the file is empty")),
                    (_, true) => Err(nothing("the file has only empty lines")),
                    _ => Ok(()),
                };
            }
            let whole = text.trim_ascii();
            if whole.is_empty() {
                continue;
            }
            blank = false;
            let line = line.try_into().unwrap_or(u32::MAX);
            let place = ExampleLocation { offset, length: text.len() as u32, line, item: 0, image: 0 };
            self.example(text, place, found)?;
        }
    }

    fn list(&mut self, file: &File, found: &mut FileIndexer<'_>) -> Result<(), DataError> {
        let (path, mut seen) = (found.path, |_: &[u8]| {});
        let form = match found.form {
            Form::List(_) => "a list of [question, answer, number of an image]",
            Form::Lines => "a list of examples",
        };
        let mut stream = JsonStream::new(file, path, form, &mut seen)?;
        if stream.peek()? == Some(b'{') {
            return Err(stream.error("it is an object"));
        }
        stream.enter(b'[', FILE, "a list")?;
        for item in 1.. {
            if !stream.more()? {
                break;
            }
            stream.peek()?;
            let Place { offset, line, .. } = stream.place();
            let raw = stream.value()?;
            let line = line.try_into().unwrap_or(u32::MAX);
            let place = ExampleLocation { offset, length: raw.len() as u32, line, item, image: 0 };
            self.example(raw, place, found)?;
        }
        found.text_bytes = stream.bytes();
        stream.end()
    }

    fn example(&mut self, text: &[u8], place: ExampleLocation, found: &mut FileIndexer<'_>) -> Result<(), DataError> {
        if found.places.len() == EXAMPLES_MAX {
            let message = format!("{}: more than {EXAMPLES_MAX} examples are not indexed", place.called());
            return Err(DataError::file(found.path, message));
        }
        let read = found.form.read(text);
        let number = match read {
            Ok(record) => self.image(&record, &place, found)?,
            Err(wrong) => Err(wrong),
        };
        match number {
            Ok(image) => {
                // By little, as the index is most of what opening takes.
                if found.places.len() == found.places.capacity() {
                    found.places.reserve_exact(found.places.len() / 8 + 64);
                }
                found.places.push(ExampleLocation { image, ..place });
            }
            Err((reason, message)) => {
                found.invalid.add(reason, found.path, format!("{}: {message}", place.called()));
            }
        }
        Ok(())
    }

    /// The number of the image of an example; one that is new is looked at.
    fn image(
        &mut self,
        record: &Record,
        place: &ExampleLocation,
        found: &mut FileIndexer<'_>,
    ) -> Result<Result<u32, Fault>, DataError> {
        let (name, key) = match &record.image {
            Image::Inline(url) => (None, Sha256::digest(url.as_bytes())),
            Image::File(name) => match located(found.root, name) {
                Ok(name) => (Some(name.clone()), Sha256::new().chain_update(name.as_bytes()).finalize()),
                Err(wrong) => return Ok(Err(wrong)),
            },
        };
        let mut short = [u8::from(name.is_some()); 16];
        short[1..].copy_from_slice(&key[..15]);
        if let Some((number, head)) = found.images.get(&short).copied() {
            // Another line may be longer.
            self.decoded(head, name.as_deref(), place, found.path);
            return Ok(Ok(number));
        }
        let head = match (&name, &record.image) {
            (Some(name), _) => self.of_file(found.root, name)?,
            (None, Image::Inline(url)) => of_url(url),
            (None, Image::File(_)) => return Ok(Err(("missing_image", "has no image".into()))),
        };
        Ok(head.map(|head| {
            self.decoded(head, name.as_deref(), place, found.path);
            let number = found.images.len() as u32;
            found.images.insert(short, (number, head));
            number
        }))
    }

    /// Notes what decoding an image takes with the line of this example.
    fn decoded(&mut self, head: Option<(Head, u64)>, name: Option<&str>, place: &ExampleLocation, file: &Path) {
        let Some((Head { width, height, .. }, length)) = head else { return };
        let (width, height) = (u64::from(width), u64::from(height));
        let bytes = decoding_bytes(width, height, length) + LINE_COPIES * u64::from(place.length);
        if self.largest.as_ref().is_none_or(|largest| largest.bytes < bytes) {
            let path = name.map_or_else(|| file.to_owned(), PathBuf::from);
            self.largest = Some(Largest { path, width, height, bytes });
        }
    }

    /// Looks at the file of an image; `None` where it need not be looked at.
    fn of_file(&mut self, root: &Root, name: &str) -> Result<Result<Option<(Head, u64)>, Fault>, DataError> {
        let whole = root.join(name);
        let length = std::fs::metadata(&whole).map_or(0, |about| about.len());
        if length <= BOUNDS.file_bytes {
            let digest = self.known(&root.path).digest(name, &whole)?;
            self.digest.update(name.as_bytes());
            self.digest.update(length.to_le_bytes());
            self.digest.update(digest.as_bytes());
        }
        if self.generated {
            return Ok(Ok(None));
        }
        let head = head_of_file(&whole, length, BOUNDS, ExifOrientation::Apply);
        let prefixed = |(reason, message)| (reason, format!("{}: {message}", printable::line(name, 100)));
        Ok(head.map(|head| Some((head, length))).map_err(prefixed))
    }
}

fn of_url(url: &str) -> Result<Option<(Head, u64)>, Fault> {
    let bytes = image_file::inline(url)?;
    let head = image_file::head(Cursor::new(&bytes))?;
    check_whole(Cursor::new(&bytes), head.format)?;
    Ok(Some((head, bytes.len() as u64)))
}

/// The path of an image below the directory, without `.` in it.
pub(super) fn located(root: &Root, name: &str) -> Result<String, Fault> {
    let shown = || printable::line(name, 100);
    // A whole path may be that of a file below the directory.
    let below = Path::new(name).strip_prefix(&root.path).ok().and_then(Path::to_str);
    match confined(root, below.unwrap_or(name)) {
        Ok(Some(path)) => Ok(path.to_string_lossy().into_owned()),
        Ok(None) => {
            let tried = root.join(name);
            Err(("missing_image", format!("the image {} is not there, or is no file", tried.display())))
        }
        Err(_) if Path::new(name).is_absolute() => {
            let directory = root.path.display();
            let message =
                format!("the image \"{}\" is outside of {directory}; write paths relative to that directory", shown());
            Err(("outside", message))
        }
        Err(error) => Err(("outside", format!("the image {error}"))),
    }
}

#[cfg(test)]
#[path = "open_tests.rs"]
mod tests;
