//! A run that goes on -> event files, so that TensorBoard shows it while it trains.
//!
//! Each process of the run has a file of its own, which begins by saying from which step on it counts. Each event is
//! written at once, in one call, so a kill leaves events that are whole, and at most the beginning of one more.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use super::tensorboard::{EventFile, Written, values};
use crate::format::{MemoryLine, MetricsLine};
use crate::resolved;
use xrun_core::files::write::{WriteError, at, own_folder};
use xrun_core::files::{file, layout};

/// The event file of this process. Nothing waits in it.
#[derive(Debug)]
pub struct Live {
    path: PathBuf,
    events: EventFile<File>,
}

impl Live {
    /// Begins a file in the folder of a run, whose processes before this one are `segment`, and which goes on behind `step`.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn begin(run: &Path, segment: u32, next: u64) -> Result<Self, WriteError> {
        let folder = run.join(layout::TENSORBOARD);
        own_folder(&folder)?;
        // TensorBoard reads files in the order of their names.
        let wall = now();
        let path = folder.join(format!("events.out.tfevents.{:010.0}.xrun.{segment:04}", wall.trunc()));
        let opened = file::open_own(&path, OpenOptions::new().create(true).append(true));
        let mut this = Self { events: EventFile { file: at(&path, opened)?, written: Written::default() }, path };
        let experiment = resolved::shown(run);
        let begun = this.events.version(wall).and_then(|()| match segment {
            0 => this.events.text(wall, "experiment", &format!("```toml\n{experiment}\n```")),
            _ => this.events.begins(wall, next),
        });
        at(&this.path, begun)?;
        Ok(this)
    }

    /// Adds the numbers of a step or of a validation.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn metrics(&mut self, line: &MetricsLine) -> Result<(), WriteError> {
        self.append(|events| events.scalars(now(), line.step(), &values(line)))
    }

    /// Adds what is held, and by whom.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn sample(&mut self, line: &MemoryLine) -> Result<(), WriteError> {
        self.append(|events| events.sample(now(), line))
    }

    /// Behind the part of an event nothing is read: what a write that fails has left of one goes.
    fn append(&mut self, write: impl FnOnce(&mut EventFile<File>) -> io::Result<()>) -> Result<(), WriteError> {
        let whole = at(&self.path, self.events.file.metadata())?.len();
        let written = write(&mut self.events);
        if written.is_err() {
            // The first error says why.
            let _ = self.events.file.set_len(whole);
        }
        at(&self.path, written)
    }
}

/// Seconds since 1970.
fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
