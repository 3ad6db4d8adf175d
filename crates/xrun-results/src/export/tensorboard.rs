//! Export of a run as a TensorBoard event file: scalars, memory by owner, and the experiment as text.
//!
//! Records are framed as TensorFlow frames them: length, masked CRC-32C of the length, bytes, masked CRC-32C of the
//! bytes. Records before a truncation are whole.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::ExportError;
use crate::event_file::masked_crc32c;
use crate::format::{MemoryLine, MetricsLine};
use crate::read::{self, ReadError, Skipped};
use crate::resolved;
use crate::secrets;
use xrun_core::files::{layout, sums, write};

/// Maximum number of tags; each is a chart.
const TAGS_MAX: usize = 1000;
/// Maximum length of a tag.
const TAG_BYTES_MAX: usize = 200;
/// File name. TensorBoard looks for `tfevents`; the constant rest makes a second export into the run replace the first.
const FILE: &str = "events.out.tfevents.0000000000.xrun";

/// Writes the event file of a run into an existing directory, and returns its path; only that in the run itself is replaced.
/// `started`: start of the run in seconds since 1970.
///
/// # Errors
/// There are no metrics, or the file cannot be written.
pub fn export(run: &Path, output: &Path, started: f64) -> Result<(PathBuf, WrittenEvents), ExportError> {
    let path = output.join(FILE);
    let own = output == run.join(layout::EXPORT);
    match own {
        true => sums::remove(output, &[FILE]),
        false => write::check_absent(output, &[FILE])?,
    }
    let experiment = match resolved::read_text(run) {
        Err(error) if error.is_missing() => String::new(),
        text => secrets::mask_experiment(&text?).into_owned(),
    };
    let (metrics, samples) = (read::metrics(run)?, read::memory(run).into_iter().flatten());
    let mut written = WrittenEvents::default();
    write::replace_with(&path, |file| {
        let mut events = EventFile { file, written: WrittenEvents::default() };
        events.version(started)?;
        events.text(started, "experiment", &format!("```toml\n{experiment}\n```"))?;
        feed(metrics, samples, started, &mut events)?;
        written = events.written;
        Ok(())
    })?;
    if own {
        sums::record(output, &[FILE]);
    }
    Ok((path, written))
}

/// Merges the lines of both files by step. Metrics have no clock: they get the time of the newest memory sample
/// before them.
fn feed(
    metrics: impl Iterator<Item = Result<MetricsLine, ReadError>>,
    samples: impl Iterator<Item = Result<MemoryLine, ReadError>>,
    started: f64,
    events: &mut EventFile<impl Write>,
) -> io::Result<()> {
    let mut clock = WallClock { started, wall: started, segment_offset: 0.0, segment: 0 };
    let mut samples = samples.peekable();
    for line in metrics.map(Some).chain([None]) {
        let step = match &line {
            Some(Ok(line)) => line.step(),
            Some(Err(_)) => 0,
            None => u64::MAX,
        };
        while let Some(sample) = samples.next_if(|sample| sample.as_ref().map_or(true, |sample| sample.step <= step)) {
            match sample {
                Ok(sample) => events.sample(clock.wall_time(&sample), &sample)?,
                Err(error) => events.written.skipped.add(error),
            }
        }
        match line {
            Some(Ok(line)) => events.scalars(clock.wall, line.step(), &line_scalars(&line))?,
            Some(Err(error @ ReadError::File { .. })) => return Err(io::Error::other(error)),
            Some(Err(error)) => events.written.skipped.add(error),
            None => {}
        }
    }
    Ok(())
}

/// Converts the clock of samples, which restarts in each process of the run, to seconds since 1970.
struct WallClock {
    started: f64,
    wall: f64,
    segment_offset: f64,
    segment: u32,
}

impl WallClock {
    fn wall_time(&mut self, line: &MemoryLine) -> f64 {
        if line.segment != self.segment {
            (self.segment, self.segment_offset) = (line.segment, self.wall - self.started);
        }
        self.wall = self.started + self.segment_offset + line.time_us as f64 / 1e6;
        self.wall
    }
}

/// Scalars of a line, by tag.
pub(super) fn line_scalars(line: &MetricsLine) -> BTreeMap<String, f64> {
    let mut found = BTreeMap::new();
    match line {
        MetricsLine::Train { loss, learning_rate, gradient_norm, values, .. } => {
            found.insert("train/loss".to_owned(), *loss);
            found.extend(learning_rate.map(|rate| ("train/learning_rate".to_owned(), rate)));
            found.extend(gradient_norm.map(|norm| ("train/gradient_norm".to_owned(), norm)));
            found.extend(values.iter().map(|(name, value)| (format!("train_values/{name}"), *value)));
        }
        MetricsLine::Validation { metrics, .. } => {
            let measured = metrics.iter().filter_map(|(name, value)| Some((format!("validation/{name}"), (*value)?)));
            found.extend(measured);
        }
    }
    found
}

/// Scalars of a memory sample, by tag.
pub(super) fn sample_scalars(line: &MemoryLine) -> BTreeMap<String, f64> {
    let mut found = BTreeMap::new();
    let mut add = |name: &str, bytes: Option<u64>| {
        found.extend(bytes.map(|bytes| (format!("memory/{name}_bytes"), bytes as f64)));
    };
    add("heap", Some(line.host.heap));
    add("rss", line.host.rss);
    add("device_in_use", line.device.map(|pool| pool.in_use));
    add("device_reserved", line.device.map(|pool| pool.reserved));
    add("driver_process", line.driver.and_then(|driver| driver.process));
    add("container", line.container.map(|container| container.current));
    found.extend(line.owners.iter().map(|(name, bytes)| (format!("memory_owners/{name}_bytes"), *bytes as f64)));
    found.extend(line.pressure.map(|percent| ("memory/pressure_percent".to_owned(), percent)));
    let load = line.driver.and_then(|driver| driver.load).unwrap_or_default();
    found.extend(load.utilisation_percent.map(|percent| ("gpu/utilisation_percent".to_owned(), percent.into())));
    found.extend(load.power_milliwatts.map(|power| ("gpu/power_watts".to_owned(), f64::from(power) / 1000.0)));
    found
}

/// Events that were written.
#[derive(Debug, Default)]
pub struct WrittenEvents {
    /// Number of events.
    pub events: u64,
    /// Tags, at most [`TAGS_MAX`].
    pub tags: BTreeSet<String>,
    /// Lines that were left out.
    pub skipped: Skipped,
    /// Tags beyond [`TAGS_MAX`], or too long, were left out.
    pub tags_left_out: bool,
}

/// Event file; each event is one write.
#[derive(Debug)]
pub(super) struct EventFile<W> {
    pub file: W,
    pub written: WrittenEvents,
}

impl<W: Write> EventFile<W> {
    pub fn version(&mut self, wall: f64) -> io::Result<()> {
        let mut event = ProtobufMessage::default();
        event.double(1, wall).bytes(3, b"brain.Event:2");
        self.record(&event)
    }

    pub fn text(&mut self, wall: f64, tag: &str, text: &str) -> io::Result<()> {
        let (mut plugin, mut metadata, mut dimension, mut shape) = (
            ProtobufMessage::default(),
            ProtobufMessage::default(),
            ProtobufMessage::default(),
            ProtobufMessage::default(),
        );
        plugin.bytes(1, b"text");
        // DATA_CLASS_TENSOR
        metadata.message(1, &plugin).integer(4, 2);
        dimension.integer(1, 1);
        shape.message(2, &dimension);
        let mut tensor = ProtobufMessage::default();
        // DT_STRING
        tensor.integer(1, 7).message(2, &shape).bytes(8, text.as_bytes());
        let mut value = ProtobufMessage::default();
        value.bytes(1, tag.as_bytes()).message(8, &tensor).message(9, &metadata);
        self.summary(wall, 0, &[value])
    }

    /// Start of a process: makes TensorBoard discard earlier events of this step and later ones.
    pub fn restart(&mut self, wall: f64, step: u64) -> io::Result<()> {
        let (mut log, mut event) = (ProtobufMessage::default(), ProtobufMessage::default());
        // START
        log.integer(1, 1);
        event.double(1, wall).integer(2, step).message(7, &log);
        self.record(&event)
    }

    pub fn sample(&mut self, wall: f64, line: &MemoryLine) -> io::Result<()> {
        self.scalars(wall, line.step, &sample_scalars(line))
    }

    pub fn scalars(&mut self, wall: f64, step: u64, values: &BTreeMap<String, f64>) -> io::Result<()> {
        let mut all = Vec::with_capacity(values.len());
        for (tag, number) in values {
            if !self.written.tags.contains(tag) {
                if tag.len() > TAG_BYTES_MAX || self.written.tags.len() >= TAGS_MAX {
                    self.written.tags_left_out = true;
                    continue;
                }
                self.written.tags.insert(tag.clone());
            }
            let mut value = ProtobufMessage::default();
            value.bytes(1, tag.as_bytes()).float(2, *number as f32);
            all.push(value);
        }
        if all.is_empty() { Ok(()) } else { self.summary(wall, step, &all) }
    }

    fn summary(&mut self, wall: f64, step: u64, values: &[ProtobufMessage]) -> io::Result<()> {
        let (mut summary, mut event) = (ProtobufMessage::default(), ProtobufMessage::default());
        values.iter().for_each(|value| {
            summary.message(1, value);
        });
        event.double(1, wall).integer(2, step).message(5, &summary);
        self.record(&event)
    }

    fn record(&mut self, event: &ProtobufMessage) -> io::Result<()> {
        self.written.events += 1;
        let length = (event.0.len() as u64).to_le_bytes();
        let (length_checksum, checksum) = (masked_crc32c(&length).to_le_bytes(), masked_crc32c(&event.0).to_le_bytes());
        self.file.write_all(&[&length[..], &length_checksum, &event.0, &checksum].concat())
    }
}

/// Protocol Buffers message: fields, each preceded by its number and wire type.
#[derive(Debug, Default)]
struct ProtobufMessage(Vec<u8>);

impl ProtobufMessage {
    fn key(&mut self, field: u64, wire: u64) {
        self.varint(field << 3 | wire);
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn integer(&mut self, field: u64, value: u64) -> &mut Self {
        self.key(field, 0);
        self.varint(value);
        self
    }

    fn double(&mut self, field: u64, value: f64) -> &mut Self {
        self.key(field, 1);
        self.0.extend(value.to_le_bytes());
        self
    }

    fn float(&mut self, field: u64, value: f32) -> &mut Self {
        self.key(field, 5);
        self.0.extend(value.to_le_bytes());
        self
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) -> &mut Self {
        self.key(field, 2);
        self.varint(bytes.len() as u64);
        self.0.extend(bytes);
        self
    }

    fn message(&mut self, field: u64, inner: &Self) -> &mut Self {
        self.bytes(field, &inner.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_encoded_as_protocol_buffers() {
        // Examples of the Protocol Buffers encoding documentation.
        let (mut integer, mut text) = (ProtobufMessage::default(), ProtobufMessage::default());
        integer.integer(1, 150);
        assert_eq!(integer.0, [0x08, 0x96, 0x01]);
        text.bytes(2, b"testing");
        assert_eq!(text.0, [0x12, 0x07, b't', b'e', b's', b't', b'i', b'n', b'g']);
        let mut outer = ProtobufMessage::default();
        outer.message(3, &integer);
        assert_eq!(outer.0, [0x1a, 0x03, 0x08, 0x96, 0x01]);
    }
}
