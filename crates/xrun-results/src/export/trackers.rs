//! Trackers: files for other tools, which are written while a run trains.

use std::fmt::Debug;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use super::tensorboard::{EventFile, WrittenEvents, line_scalars};
use crate::format::{MemoryLine, MetricsLine};
use crate::resolved;
use xrun_core::files::write::{WriteError, check_unchanged, create_directory, with_path};
use xrun_core::files::{file, layout};
use xrun_core::settings::sections::ExperimentInfo;

/// Writer of the numbers of a run. Its methods fail where the file cannot be written.
pub trait Tracker: Debug {
    /// Appends the numbers of a step or of a validation.
    fn metrics(&mut self, line: &MetricsLine) -> Result<(), WriteError>;

    /// Appends a memory sample.
    fn sample(&mut self, line: &MemoryLine) -> Result<(), WriteError>;
}

/// Trackers of a run.
pub type Trackers = Vec<Box<dyn Tracker>>;

/// Opens the trackers that an experiment enables, for process number `segment` of a run, whose next step is `next`.
///
/// # Errors
/// A file cannot be written.
pub fn open(enabled: &ExperimentInfo, run: &Path, segment: u32, next: u64) -> Result<Trackers, WriteError> {
    let mut trackers = Trackers::new();
    if enabled.tensorboard {
        trackers.push(Box::new(EventFileWriter::create(run, segment, next)?));
    }
    Ok(trackers)
}

/// TensorBoard event file of this process, which starts with the step from which it counts. Each event is one write, so a kill
/// leaves whole events and at most one truncated event. Nothing is buffered.
#[derive(Debug)]
struct EventFileWriter {
    path: PathBuf,
    events: EventFile<File>,
    opened: Metadata,
    /// Length of the file in bytes if no other program changes it.
    length: u64,
}

impl EventFileWriter {
    /// Creates the event file of process number `segment` of a run, whose next step is `next`.
    fn create(run: &Path, segment: u32, next: u64) -> Result<Self, WriteError> {
        let directory = run.join(layout::TENSORBOARD);
        create_directory(&directory)?;
        // TensorBoard reads files in the order of their names.
        let wall = now();
        let path = directory.join(format!("events.out.tfevents.{:010.0}.xrun.{segment:04}", wall.trunc()));
        let opened = file::open_own(&path, OpenOptions::new().create(true).append(true));
        let file = with_path(&path, opened)?;
        let opened = with_path(&path, file.metadata())?;
        let events = EventFile { file, written: WrittenEvents::default() };
        let mut this = Self { length: opened.len(), opened, events, path };
        let experiment = resolved::masked_text(run);
        this.append(|events| {
            events.version(wall)?;
            match segment {
                0 => events.text(wall, "experiment", &format!("```toml\n{experiment}\n```")),
                _ => events.restart(wall, next),
            }
        })?;
        Ok(this)
    }

    /// Appends events. A reader stops at a truncated event, so the remains of a failed write are removed.
    fn append(&mut self, write: impl FnOnce(&mut EventFile<File>) -> io::Result<()>) -> Result<(), WriteError> {
        with_path(&self.path, check_unchanged(&self.path, &self.opened, self.length))?;
        let written = write(&mut self.events);
        if written.is_err() {
            // The first error is the one to report.
            let _ = self.events.file.set_len(self.length);
        }
        self.length = with_path(&self.path, self.events.file.metadata())?.len();
        with_path(&self.path, written)
    }
}

impl Tracker for EventFileWriter {
    fn metrics(&mut self, line: &MetricsLine) -> Result<(), WriteError> {
        self.append(|events| events.scalars(now(), line.step(), &line_scalars(line)))
    }

    fn sample(&mut self, line: &MemoryLine) -> Result<(), WriteError> {
        self.append(|events| events.sample(now(), line))
    }
}

/// Current time in seconds since 1970.
fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
