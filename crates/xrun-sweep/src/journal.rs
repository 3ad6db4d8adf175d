//! `processes.jsonl` of a sweep: the processes of its runs that ended, a line each.
//!
//! It is read when a process begins to work on the sweep, which passes on from then what it knows.

use std::collections::BTreeMap;
use std::path::Path;

use crate::records::sweep::{Measured, Process, SweepRecord};
use crate::trials::RunId;
use xrun_core::bounded::ledger::Ledger;
use xrun_core::files::layout;
use xrun_core::files::write;
use xrun_core::files::write::{LineWriter, WriteError};
use xrun_results::read;

/// Largest memory of a retry; xrun writes none that is larger.
const BYTES_MAX: u64 = 1 << 50;

/// The ended processes of a run.
#[derive(Clone, Debug)]
pub struct History {
    /// The last one.
    pub last: Process,
    /// Bytes of memory of the run's one retry after it had too few.
    pub retry_bytes: Option<u64>,
}

impl History {
    /// Returns whether no process has ended since the retry was decided on: the sweep may have been killed before it began.
    pub fn is_retry_to_come(&self) -> bool {
        self.last.retry_memory.is_some() && self.last.retry_memory == self.retry_bytes
    }
}

/// Knowledge of the runs of a sweep, at most one entry for each: its processes, and its measurements once it has finished.
#[derive(Clone, Debug, Default)]
pub struct Histories {
    processes: BTreeMap<RunId, History>,
    finished: BTreeMap<RunId, Measured>,
}

impl Histories {
    /// Reads the processes. Damaged lines, and those of runs that the sweep does not have, are ignored.
    pub fn read(sweep: &Path, record: &SweepRecord) -> Self {
        let known: BTreeMap<String, RunId> = record.runs().map(|run| (run.to_string(), run)).collect();
        let mut histories = Self::default();
        for process in read::lines::<Process>(sweep.join(layout::PROCESSES)).into_iter().flatten().flatten() {
            if let Some(run) = known.get(&process.run) {
                histories.add(*run, process);
            }
        }
        histories
    }

    /// The processes of a run; `None` where none has ended.
    pub fn get(&self, run: RunId) -> Option<&History> {
        self.processes.get(&run)
    }

    /// The measurements of a run, taken by `measure` unless it has finished and they are known.
    pub fn measured(&mut self, run: RunId, measure: impl FnOnce(Option<&Process>) -> Measured) -> Measured {
        if let Some(measured) = self.finished.get(&run) {
            return measured.clone();
        }
        let measured = measure(self.get(run).map(|history| &history.last));
        if measured.finished {
            self.finished.insert(run, measured.clone());
        }
        measured
    }

    /// The runs with a retry, and its bytes.
    pub fn retries(&self) -> impl Iterator<Item = (RunId, u64)> {
        self.processes.iter().filter_map(|(run, history)| Some((*run, history.retry_bytes?)))
    }

    /// The runs whose retry has not begun.
    pub fn retries_to_come(&self) -> impl Iterator<Item = RunId> {
        self.processes.iter().filter(|(_, history)| history.is_retry_to_come()).map(|(run, _)| *run)
    }

    fn add(&mut self, run: RunId, process: Process) {
        let before = self.processes.get(&run).and_then(|history| history.retry_bytes);
        let retry = process.retry_memory.filter(|bytes| (1..=BYTES_MAX).contains(bytes));
        self.processes.insert(run, History { last: process, retry_bytes: retry.or(before) });
    }
}

/// The file, and what is in it.
pub struct Journal {
    writer: LineWriter,
    /// The processes so far.
    pub histories: Histories,
}

impl Journal {
    /// Opens the file of a sweep.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn open(sweep: &Path, record: &SweepRecord) -> Result<Self, WriteError> {
        let path = sweep.join(layout::PROCESSES);
        let writer = LineWriter::open(&Ledger::default(), &write::lines("sweep_processes", 1), &path)?;
        Ok(Self { writer, histories: Histories::read(sweep, record) })
    }

    /// Adds a process.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn add(&mut self, run: RunId, process: &Process) -> Result<(), WriteError> {
        self.writer.record(process)?;
        self.writer.flush()?;
        self.histories.add(run, process.clone());
        Ok(())
    }
}
