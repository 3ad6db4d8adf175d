//! TensorBoard event files written while a run trains.
//!
//! Each process of a run has a file of its own, which starts with the step from which it counts. Each event is one
//! write, so a kill leaves whole events and at most one truncated event.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use super::tensorboard::{EventFile, WrittenEvents, line_scalars};
use crate::format::{MemoryLine, MetricsLine};
use crate::resolved;
use xrun_core::files::write::{WriteError, check_unchanged, create_directory, with_path};
use xrun_core::files::{file, layout};

/// Event file of this process. Nothing is buffered.
#[derive(Debug)]
pub struct EventFileWriter {
    path: PathBuf,
    events: EventFile<File>,
    opened: Metadata,
    /// Length of the file in bytes if no other program changes it.
    length: u64,
}

impl EventFileWriter {
    /// Creates the event file of process number `segment` of a run, whose next step is `next`.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn create(run: &Path, segment: u32, next: u64) -> Result<Self, WriteError> {
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

    /// Appends the numbers of a step or of a validation.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn metrics(&mut self, line: &MetricsLine) -> Result<(), WriteError> {
        self.append(|events| events.scalars(now(), line.step(), &line_scalars(line)))
    }

    /// Appends a memory sample.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn sample(&mut self, line: &MemoryLine) -> Result<(), WriteError> {
        self.append(|events| events.sample(now(), line))
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

/// Current time in seconds since 1970.
fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
