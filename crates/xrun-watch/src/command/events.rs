//! Which scalars does a command write for TensorBoard? Event files are read as they grow, and only what is asked of them.
//!
//! A file is a row of records: a length, the check of the length, bytes, the check of the bytes (CRC-32C, masked). The bytes
//! are a protobuf message `Event`; of it the step and the scalars of its summary are read, and all else is passed over.

use std::collections::BTreeMap;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::steps::{Found, Steps, VALUES_MAX};
use xrun_core::bounded::buffer::Buffer;
use xrun_core::bounded::ledger::{Cap, Policy};
use xrun_core::files::file;
use xrun_results::event_file::check;

/// More files are not followed: a folder has one or two of each run.
const FILES_MAX: usize = 32;
/// More of a file is read with the next look.
const BLOCK_BYTES: u64 = 1 << 20;
/// Longer records are pictures and the like.
const RECORD_BYTES_MAX: u64 = 256 * 1024;
/// More entries of a folder are not looked at.
const ENTRIES_MAX: usize = 1024;
/// What is in the name of every event file.
const NAME: &str = "tfevents";
const NAME_CHARACTERS_MAX: usize = 64;
/// Length, and its check.
const HEAD: usize = 12;
/// The check of the bytes.
const FOOT: u64 = 4;

/// A block of one file at a time.
pub fn buffer() -> Buffer {
    let cap = Cap { items: FILES_MAX as u64, bytes: BLOCK_BYTES + (FILES_MAX * VALUES_MAX * 128) as u64 };
    Buffer::new("event_files", Policy::Refuse, cap).because("a block of a file; more files are not followed")
}

/// A folder of event files, and those in the folders within it.
#[derive(Debug)]
pub struct Events {
    folder: PathBuf,
    files: BTreeMap<PathBuf, Followed>,
}

/// How far a file was read.
#[derive(Debug, Default)]
struct Followed {
    at: u64,
    /// Its scalars of one step, of which there may be more to come.
    gathered: Option<Found>,
    /// It is not what TensorBoard reads, so its end cannot be found.
    damaged: bool,
}

impl Events {
    /// What is there now is another run's.
    pub fn new(folder: &Path) -> Self {
        let there = event_files(folder);
        let length = |path: &PathBuf| path.metadata().map_or(0, |found| found.len());
        let files = there.into_iter().map(|path| (path.clone(), Followed { at: length(&path), ..Followed::default() }));
        Self { folder: folder.to_path_buf(), files: files.collect() }
    }

    /// Hands on what was written since.
    pub fn read(&mut self, steps: &Steps) {
        for path in event_files(&self.folder) {
            if self.files.len() < FILES_MAX || self.files.contains_key(&path) {
                self.files.entry(path).or_default();
            }
        }
        for (path, followed) in self.files.iter_mut().filter(|(_, followed)| !followed.damaged) {
            followed.read(path, steps);
        }
    }

    /// Hands on what waits for more of its step.
    pub fn end(&mut self, steps: &Steps) {
        self.read(steps);
        let gathered = self.files.values_mut().filter_map(|followed| followed.gathered.take());
        gathered.for_each(|found| steps.scalars(found));
    }

    /// Files whose rest could not be read.
    pub fn damaged(&self) -> usize {
        self.files.values().filter(|followed| followed.damaged).count()
    }
}

fn event_files(folder: &Path) -> Vec<PathBuf> {
    let entries = |folder: &Path| {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().take(ENTRIES_MAX);
        entries.map(|entry| entry.path()).collect::<Vec<PathBuf>>()
    };
    let is_events = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().contains(NAME));
    let here = entries(folder);
    let within = here.iter().filter(|path| path.is_dir()).flat_map(|path| entries(path));
    let mut found: Vec<PathBuf> = here.iter().cloned().chain(within).filter(is_events).take(FILES_MAX).collect();
    found.sort();
    found
}

impl Followed {
    fn read(&mut self, path: &Path, steps: &Steps) {
        let Ok(mut file) = file::open(path) else { return };
        let length = file.metadata().map_or(0, |found| found.len());
        if length <= self.at || file.seek(SeekFrom::Start(self.at)).is_err() {
            return;
        }
        let mut bytes = Vec::with_capacity((length - self.at).min(BLOCK_BYTES) as usize);
        if file.take(BLOCK_BYTES).read_to_end(&mut bytes).is_err() {
            return;
        }
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
            if let Some(event) = content.and_then(event) {
                self.gather(event, steps);
            }
            rest = rest.get(size as usize..).unwrap_or_default();
        }
    }

    fn gather(&mut self, event: Event<'_>, steps: &Steps) {
        if event.scalars.is_empty() {
            return;
        }
        if self.gathered.as_ref().is_some_and(|found| found.step != event.step)
            && let Some(found) = self.gathered.take()
        {
            steps.scalars(found);
        }
        let found = self.gathered.get_or_insert_with(|| Found { step: event.step, ..Found::default() });
        for (tag, value) in event.scalars {
            match meaning(tag) {
                Meaning::Loss => found.loss = found.loss.or(Some(value)),
                Meaning::Rate => found.learning_rate = Some(value),
                Meaning::Other(name) if found.values.len() < VALUES_MAX => {
                    found.values.insert(name, value);
                }
                Meaning::Other(_) => {}
            }
        }
    }
}

enum Meaning {
    Loss,
    Rate,
    Other(String),
}

/// What a tag such as `Loss/train`, `train_loss`, `lr-AdamW` or `val/accuracy` names.
fn meaning(tag: &str) -> Meaning {
    let lower = tag.to_lowercase();
    let parts: Vec<&str> = lower.split(|letter: char| !letter.is_ascii_alphanumeric()).collect();
    let held_out = parts.iter().any(|part| ["val", "valid", "validation", "eval", "test"].contains(part));
    match parts.contains(&"lr") || lower.contains("learning_rate") {
        true => Meaning::Rate,
        false if parts.contains(&"loss") && !held_out => Meaning::Loss,
        false => {
            let plain = |letter: char| if letter.is_ascii_alphanumeric() || letter == '-' { letter } else { '_' };
            Meaning::Other(tag.chars().take(NAME_CHARACTERS_MAX).map(plain).collect())
        }
    }
}

/// A record as it stands in a file.
#[derive(Debug, PartialEq)]
struct Record<'a> {
    /// Its bytes, if they are no longer than is worth reading.
    content: Option<&'a [u8]>,
    /// All that it takes.
    size: u64,
}

/// It is no record.
#[derive(Debug, PartialEq)]
struct Damaged;

/// The first record; `None` where there is no whole one.
///
/// # Errors
/// A check that does not fit.
fn next_record(bytes: &[u8]) -> Option<Result<Record<'_>, Damaged>> {
    let head: [u8; HEAD] = *bytes.first_chunk()?;
    let [length, written] = [u64_of(&head[..8]), u64::from(u32_of(&head[8..]))];
    if u64::from(check(&head[..8])) != written || length > 1 << 40 {
        return Some(Err(Damaged));
    }
    let size = HEAD as u64 + length + FOOT;
    if length > RECORD_BYTES_MAX {
        return Some(Ok(Record { content: None, size }));
    }
    let (content, foot) = bytes.get(HEAD..size as usize)?.split_at(length as usize);
    let record = Record { content: Some(content), size };
    Some(if check(content) == u32_of(foot) { Ok(record) } else { Err(Damaged) })
}

fn u64_of(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte))
}

fn u32_of(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |all, byte| all << 8 | u32::from(*byte))
}

/// What an event says.
#[derive(Debug, Default, PartialEq)]
struct Event<'a> {
    step: u64,
    scalars: Vec<(&'a str, f64)>,
}

/// A field of a message: its number, and what it holds.
enum Field<'a> {
    Number(u64),
    Four([u8; 4]),
    Bytes(&'a [u8]),
}

/// Cuts a field from the front of a message; `None` at its end, and where it is damaged.
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

/// `Event`: step 2, summary 5.
fn event(mut message: &[u8]) -> Option<Event<'_>> {
    let mut found = Event::default();
    while let Some((number, taken)) = field(&mut message) {
        match (number, taken) {
            (2, Field::Number(step)) => found.step = step,
            (5, Field::Bytes(mut summary)) => {
                while let Some((number, taken)) = field(&mut summary) {
                    if let (1, Field::Bytes(value)) = (number, taken)
                        && found.scalars.len() < VALUES_MAX
                    {
                        found.scalars.extend(scalar(value));
                    }
                }
            }
            _ => {}
        }
    }
    // A negative step is no step.
    Some(found).filter(|event| event.step < 1 << 50)
}

/// `Summary.Value`: tag 1, simple_value 2, tensor 8, in which TensorFlow 2 has its scalars.
fn scalar(mut value: &[u8]) -> Option<(&str, f64)> {
    let (mut tag, mut number) = (None, None);
    while let Some((at, taken)) = field(&mut value) {
        match (at, taken) {
            (1, Field::Bytes(text)) => tag = std::str::from_utf8(text).ok(),
            (2, Field::Four(bytes)) => number = Some(f32::from_le_bytes(bytes)),
            (8, Field::Bytes(tensor)) => number = number.or_else(|| of_tensor(tensor)),
            _ => {}
        }
    }
    number.filter(|number| number.is_finite()).and_then(|number| Some((tag?, f64::from(number))))
}

/// `TensorProto` of one 32-bit float: dtype 1, tensor_content 4, float_val 5.
fn of_tensor(mut tensor: &[u8]) -> Option<f32> {
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
    use std::collections::BTreeSet;
    use xrun_results::format::MetricsLine;

    fn message(number: u8, content: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, content.len() as u8], content].concat()
    }

    /// As `SummaryWriter.add_scalar` of PyTorch writes it.
    fn record(step: u8, tag: &str, value: f32) -> Vec<u8> {
        let value = [message(1, tag.as_bytes()), vec![0x15], value.to_le_bytes().to_vec()].concat();
        let event = [vec![0x09, 0, 0, 0, 0, 0, 0, 0, 0, 0x10, step], message(5, &message(1, &value))].concat();
        framed(&event)
    }

    fn framed(content: &[u8]) -> Vec<u8> {
        let length = (content.len() as u64).to_le_bytes();
        [&length[..], &check(&length).to_le_bytes(), content, &check(content).to_le_bytes()].concat()
    }

    fn append(path: &Path, bytes: &[u8]) {
        use std::io::Write;
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
        file.write_all(bytes).unwrap();
    }

    #[test]
    fn scalars_are_read_as_they_are_written_and_records_in_pieces_are_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let old = folder.path().join("events.out.tfevents.1.host");
        append(&old, &record(90, "loss", 9.0));
        let mut events = Events::new(folder.path());
        let (steps, numbers) = Steps::new(None, BTreeSet::from(["val_accuracy".to_owned()]));
        events.read(&steps);
        assert_eq!(steps.newest(), 0, "another run's");
        std::fs::create_dir(folder.path().join("train")).unwrap();
        let path = folder.path().join("train/events.out.tfevents.2.host");
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
        let lines: Vec<MetricsLine> = numbers.try_iter().collect();
        let MetricsLine::Train { step: 1, loss, learning_rate, values, .. } = &lines[0] else { panic!("{lines:?}") };
        assert_eq!((*loss, *learning_rate, values["norm"]), (0.5, Some(0.25), 2.0));
        let MetricsLine::Validation { step: 2, metrics, .. } = &lines[1] else { panic!("{lines:?}") };
        assert_eq!(metrics["val_accuracy"], Some(0.75));
        let mut broken = record(3, "loss", 1.0);
        broken[20] ^= 1;
        append(&path, &[broken, record(4, "loss", 1.0)].concat());
        events.end(&steps);
        assert_eq!((steps.newest(), events.damaged()), (2, 1), "behind a damaged record nothing is believed");
    }

    #[test]
    fn scalars_of_tensorflow_2_stand_in_tensors() {
        let tensor = [vec![0x08, 1, 0x2d], 1.5_f32.to_le_bytes().to_vec()].concat();
        let value = [message(1, b"epoch_loss"), message(8, &tensor)].concat();
        let event_bytes = [vec![0x10, 7], message(5, &message(1, &value))].concat();
        assert_eq!(event(&event_bytes), Some(Event { step: 7, scalars: vec![("epoch_loss", 1.5)] }));
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200)) {
            let _ = event(&bytes);
            let _ = next_record(&bytes);
            let framed = framed(&bytes);
            let record = next_record(&framed);
            let expected = Record { content: Some(bytes.as_slice()), size: framed.len() as u64 };
            proptest::prop_assert_eq!(record, Some(Ok(expected)));
        }
    }
}
