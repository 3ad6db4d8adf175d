//! Scalars that a command writes for TensorBoard. Event files are read as they grow.
//!
//! A file is a sequence of records: length, checksum of the length, content, checksum of the content (masked CRC-32C). The
//! content is a protobuf message `Event`, of which the step and the scalars of the summary are read.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::step_counter::StepNumber;
use super::step_formats::is_held_out;
use super::steps::{READ_BYTES_MAX, StepValues, Steps, VALUES_MAX, read_appended};
use xrun_core::bounded::buffer::Buffer;
use xrun_core::bounded::ledger::{Cap, Policy};
use xrun_results::event_file::masked_crc32c;

/// Cap on the files that are followed; a run has one or two.
const FILES_MAX: usize = 32;
/// Cap on a record that is parsed; longer ones are images and the like.
const RECORD_BYTES_MAX: u64 = 256 * 1024;
/// Cap on the entries of a directory that are listed.
const ENTRIES_MAX: usize = 1024;
/// Part of the name of every event file.
const NAME: &str = "tfevents";
const NAME_CHARACTERS_MAX: usize = 64;
/// Bytes of the length and its checksum.
const HEAD: usize = 12;
/// Bytes of the checksum of the content.
const FOOT: u64 = 4;

/// Buffer of a block of one file, and the pending scalars of all files.
pub fn buffer() -> Buffer {
    let cap = Cap { items: FILES_MAX as u64, bytes: READ_BYTES_MAX + (FILES_MAX * VALUES_MAX * 128) as u64 };
    Buffer::new("event_files", Policy::Refuse, cap).because("a block of a file; further files are not followed")
}

/// Event files of a directory and its subdirectories.
#[derive(Debug)]
pub struct EventFiles {
    directory: PathBuf,
    files: BTreeMap<PathBuf, EventFile>,
}

/// Event file, up to where it was read.
#[derive(Debug, Default)]
struct EventFile {
    /// Offset up to which it was read.
    at: u64,
    /// Scalars of its newest step; more may follow.
    pending: Option<StepValues>,
    /// True if a checksum was wrong; the rest of the file is ignored.
    damaged: bool,
}

impl EventFiles {
    /// Follows a directory; its current contents belong to another run and are skipped.
    pub fn new(directory: &Path) -> Self {
        let there = event_files(directory);
        let length = |path: &PathBuf| path.metadata().map_or(0, |found| found.len());
        let files =
            there.into_iter().map(|path| (path.clone(), EventFile { at: length(&path), ..EventFile::default() }));
        Self { directory: directory.to_path_buf(), files: files.collect() }
    }

    /// Reads what was written since.
    pub fn read(&mut self, steps: &Steps) {
        for path in event_files(&self.directory) {
            if self.files.len() < FILES_MAX || self.files.contains_key(&path) {
                self.files.entry(path).or_default();
            }
        }
        for (path, file) in self.files.iter_mut().filter(|(_, file)| !file.damaged) {
            file.read(path, steps);
        }
    }

    /// Reads to the end, and adds the pending scalars.
    pub fn end(&mut self, steps: &Steps) {
        self.read(steps);
        let pending = self.files.values_mut().filter_map(|file| file.pending.take());
        pending.for_each(|found| steps.add_scalars(found));
    }

    /// Number of damaged files.
    pub fn damaged(&self) -> usize {
        self.files.values().filter(|file| file.damaged).count()
    }
}

fn event_files(directory: &Path) -> Vec<PathBuf> {
    let entries = |directory: &Path| {
        let entries = std::fs::read_dir(directory).into_iter().flatten().flatten().take(ENTRIES_MAX);
        entries.map(|entry| entry.path()).collect::<Vec<PathBuf>>()
    };
    let is_events = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().contains(NAME));
    let here = entries(directory);
    let within = here.iter().filter(|path| path.is_dir()).flat_map(|path| entries(path));
    let mut found: Vec<PathBuf> = here.iter().cloned().chain(within).filter(is_events).take(FILES_MAX).collect();
    found.sort();
    found
}

impl EventFile {
    fn read(&mut self, path: &Path, steps: &Steps) {
        let length = path.metadata().map_or(0, |found| found.len());
        let Some(bytes) = read_appended(path, self.at, length) else { return };
        let mut rest = bytes.as_slice();
        while let Some(record) = next_record(rest) {
            let Ok(Record { content, size }) = record else {
                self.damaged = true;
                return;
            };
            if length - self.at < size {
                return;
            }
            self.at += size;
            if let Some(event) = content.and_then(parse_event) {
                self.gather(event, steps);
            }
            rest = rest.get(size as usize..).unwrap_or_default();
        }
    }

    fn gather(&mut self, event: Event<'_>, steps: &Steps) {
        if event.scalars.is_empty() {
            return;
        }
        if self.pending.as_ref().is_some_and(|found| found.number.step != event.step)
            && let Some(found) = self.pending.take()
        {
            steps.add_scalars(found);
        }
        let found = self.pending.get_or_insert_with(|| {
            let number = StepNumber { step: event.step, ..StepNumber::default() };
            StepValues { number, ..StepValues::default() }
        });
        for (tag, value) in event.scalars {
            match tag_kind(tag) {
                TagKind::Loss => found.loss = found.loss.or(Some(value)),
                TagKind::Rate => found.learning_rate = Some(value),
                TagKind::Other(name) if found.values.len() < VALUES_MAX => {
                    found.values.insert(name, value);
                }
                TagKind::Other(_) => {}
            }
        }
    }
}

/// Kind of a scalar by its tag.
enum TagKind {
    Loss,
    Rate,
    Other(String),
}

/// Kind of a tag such as `Loss/train`, `train_loss`, `lr-AdamW` or `val/accuracy`.
fn tag_kind(tag: &str) -> TagKind {
    let lower = tag.to_lowercase();
    let parts: Vec<&str> = lower.split(|letter: char| !letter.is_ascii_alphanumeric()).collect();
    match parts.contains(&"lr") || lower.contains("learning_rate") {
        true => TagKind::Rate,
        false if parts.contains(&"loss") && !is_held_out(&lower) => TagKind::Loss,
        false => {
            let plain = |letter: char| if letter.is_ascii_alphanumeric() || letter == '-' { letter } else { '_' };
            TagKind::Other(tag.chars().take(NAME_CHARACTERS_MAX).map(plain).collect())
        }
    }
}

/// Record of an event file.
#[derive(Debug, PartialEq)]
struct Record<'a> {
    /// Content; `None` above [`RECORD_BYTES_MAX`].
    content: Option<&'a [u8]>,
    /// Bytes of the whole record.
    size: u64,
}

/// Error of a record whose checksum is wrong.
#[derive(Debug, PartialEq)]
struct Damaged;

/// Reads the first record; `None` where it is incomplete.
///
/// # Errors
/// A checksum is wrong.
fn next_record(bytes: &[u8]) -> Option<Result<Record<'_>, Damaged>> {
    let head: [u8; HEAD] = *bytes.first_chunk()?;
    let [length, written] = [u64_of(&head[..8]), u64::from(u32_of(&head[8..]))];
    if u64::from(masked_crc32c(&head[..8])) != written || length > 1 << 40 {
        return Some(Err(Damaged));
    }
    let size = HEAD as u64 + length + FOOT;
    if length > RECORD_BYTES_MAX {
        return Some(Ok(Record { content: None, size }));
    }
    let (content, foot) = bytes.get(HEAD..size as usize)?.split_at(length as usize);
    let record = Record { content: Some(content), size };
    Some(if masked_crc32c(content) == u32_of(foot) { Ok(record) } else { Err(Damaged) })
}

fn u64_of(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte))
}

fn u32_of(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |all, byte| all << 8 | u32::from(*byte))
}

/// Step and scalars of an event.
#[derive(Debug, Default, PartialEq)]
struct Event<'a> {
    step: u64,
    scalars: Vec<(&'a str, f64)>,
}

/// Value of a field of a protobuf message.
enum Field<'a> {
    Number(u64),
    Four([u8; 4]),
    Bytes(&'a [u8]),
}

/// Splits the first field off a message and returns its number and value; `None` at the end, and where it is damaged.
fn field<'a>(message: &mut &'a [u8]) -> Option<(u64, Field<'a>)> {
    let key = varint(message)?;
    let taken = match key & 7 {
        0 => Field::Number(varint(message)?),
        1 => Field::Bytes(take(message, 8)?),
        2 => {
            let length = usize::try_from(varint(message)?).ok()?;
            Field::Bytes(take(message, length)?)
        }
        5 => Field::Four(*take(message, 4)?.first_chunk()?),
        _ => return None,
    };
    Some((key >> 3, taken))
}

fn varint(message: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = take(message, 1)?[0];
        value |= u64::from(byte & 0x7F) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

fn take<'a>(message: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, rest) = message.split_at_checked(count)?;
    *message = rest;
    Some(taken)
}

/// Parses an `Event`: step 2, summary 5.
fn parse_event(mut message: &[u8]) -> Option<Event<'_>> {
    let mut found = Event::default();
    while let Some((number, taken)) = field(&mut message) {
        match (number, taken) {
            (2, Field::Number(step)) => found.step = step,
            (5, Field::Bytes(mut summary)) => {
                while let Some((number, taken)) = field(&mut summary) {
                    if let (1, Field::Bytes(value)) = (number, taken)
                        && found.scalars.len() < VALUES_MAX
                    {
                        found.scalars.extend(parse_scalar(value));
                    }
                }
            }
            _ => {}
        }
    }
    // A negative step is not valid.
    Some(found).filter(|event| event.step < 1 << 50)
}

/// Parses a `Summary.Value`: tag 1, simple_value 2, tensor 8 (scalars of TensorFlow 2).
fn parse_scalar(mut value: &[u8]) -> Option<(&str, f64)> {
    let (mut tag, mut number) = (None, None);
    while let Some((at, taken)) = field(&mut value) {
        match (at, taken) {
            (1, Field::Bytes(text)) => tag = std::str::from_utf8(text).ok(),
            (2, Field::Four(bytes)) => number = Some(f32::from_le_bytes(bytes)),
            (8, Field::Bytes(tensor)) => number = number.or_else(|| parse_tensor(tensor)),
            _ => {}
        }
    }
    number.filter(|number| number.is_finite()).and_then(|number| Some((tag?, f64::from(number))))
}

/// Parses a `TensorProto` of one 32-bit float: dtype 1, tensor_content 4, float_val 5.
fn parse_tensor(mut tensor: &[u8]) -> Option<f32> {
    let mut number = None;
    let mut is_float = false;
    while let Some((at, taken)) = field(&mut tensor) {
        match (at, taken) {
            (1, Field::Number(kind)) => is_float = kind == 1,
            (4 | 5, Field::Bytes(bytes)) if bytes.len() == 4 => number = bytes.first_chunk().copied(),
            (5, Field::Four(bytes)) => number = Some(bytes),
            _ => {}
        }
    }
    number.filter(|_| is_float).map(f32::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::steps::StepEvent;
    use std::collections::BTreeSet;
    use xrun_results::format::MetricsLine;

    fn message(number: u8, content: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, content.len() as u8], content].concat()
    }

    /// Record of PyTorch's `SummaryWriter.add_scalar`.
    fn record(step: u8, tag: &str, value: f32) -> Vec<u8> {
        let value = [message(1, tag.as_bytes()), vec![0x15], value.to_le_bytes().to_vec()].concat();
        let event = [vec![0x09, 0, 0, 0, 0, 0, 0, 0, 0, 0x10, step], message(5, &message(1, &value))].concat();
        framed(&event)
    }

    fn framed(content: &[u8]) -> Vec<u8> {
        let length = (content.len() as u64).to_le_bytes();
        [&length[..], &masked_crc32c(&length).to_le_bytes(), content, &masked_crc32c(content).to_le_bytes()].concat()
    }

    fn append(path: &Path, bytes: &[u8]) {
        use std::io::Write;
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
        file.write_all(bytes).unwrap();
    }

    #[test]
    fn scalars_are_read_as_they_are_written_also_in_pieces() {
        let directory = tempfile::tempdir().unwrap();
        let old = directory.path().join("events.out.tfevents.1.host");
        append(&old, &record(90, "loss", 9.0));
        let mut events = EventFiles::new(directory.path());
        let (steps, numbers) = Steps::new(None, BTreeSet::from(["val_accuracy".to_owned()]));
        events.read(&steps);
        assert_eq!(steps.newest(), 0, "another run's");
        std::fs::create_dir(directory.path().join("train")).unwrap();
        let path = directory.path().join("train/events.out.tfevents.2.host");
        append(&path, &framed(&vec![0; RECORD_BYTES_MAX as usize + 1]));
        append(&path, &[record(1, "Loss/train", 0.5), record(1, "lr-AdamW", 0.25), record(1, "norm", 2.0)].concat());
        let next = record(2, "val/accuracy", 0.75);
        append(&path, &next[..9]);
        events.read(&steps);
        events.read(&steps);
        append(&path, &next[9..]);
        events.read(&steps);
        events.end(&steps);
        assert_eq!((steps.newest(), events.damaged()), (2, 0));
        let lines: Vec<MetricsLine> = numbers.try_iter().filter_map(StepEvent::metrics).collect();
        let MetricsLine::Train { step: 1, loss, learning_rate, values, .. } = &lines[0] else { panic!("{lines:?}") };
        assert_eq!((*loss, *learning_rate, values["norm"]), (0.5, Some(0.25), 2.0));
        let MetricsLine::Validation { step: 2, metrics, .. } = &lines[1] else { panic!("{lines:?}") };
        assert_eq!(metrics["val_accuracy"], Some(0.75));
        let mut damaged = record(3, "loss", 1.0);
        damaged[20] ^= 1;
        append(&path, &[damaged, record(4, "loss", 1.0)].concat());
        events.end(&steps);
        assert_eq!((steps.newest(), events.damaged()), (2, 1), "the rest of a damaged file is ignored");
    }

    #[test]
    fn scalars_of_tensorflow_2_are_read_from_tensors() {
        let tensor = [vec![0x08, 1, 0x2d], 1.5_f32.to_le_bytes().to_vec()].concat();
        let value = [message(1, b"epoch_loss"), message(8, &tensor)].concat();
        let event_bytes = [vec![0x10, 7], message(5, &message(1, &value))].concat();
        assert_eq!(parse_event(&event_bytes), Some(Event { step: 7, scalars: vec![("epoch_loss", 1.5)] }));
    }

    proptest::proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200)) {
            let _ = parse_event(&bytes);
            let _ = next_record(&bytes);
            let framed = framed(&bytes);
            let record = next_record(&framed);
            let expected = Record { content: Some(bytes.as_slice()), size: framed.len() as u64 };
            proptest::prop_assert_eq!(record, Some(Ok(expected)));
        }
    }
}
