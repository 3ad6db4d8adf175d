//! Writer of a run's records: metrics, memory samples and log, each through a bounded buffer.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::clock::Clock;
use crate::demand::DemandCollector;
use crate::memory::sources::GpuInUse;
use crate::plan::{Buffers, Plan};
use crate::trace::{LoopPosition, SampleContext, Tracer};
use xrun_core::bounded::ledger::{Ledger, Policy};
use xrun_core::bounded::planned::MemoryKind;
use xrun_core::files::layout;
use xrun_core::files::write::{LineWriter, WriteError};
use xrun_core::printable;
use xrun_core::task::Task;
use xrun_results::export::trackers::{self, Trackers};
use xrun_results::format::{LoopState, MemoryLine, MetricsLine, SamplePoint, WrittenLines};
use xrun_results::judge;
use xrun_results::read;
use xrun_results::read::ReadError;
use xrun_results::timestamp;
use xrun_results::verdict::{TrainingVerdict, Verdict};
use xrun_verdict::MemoryJudge;
use xrun_verdict::training::{TrainingEnd, TrainingJudge};

/// Open record files of a run.
#[derive(Debug)]
pub struct Recorder {
    /// Directory of the run.
    pub run: PathBuf,
    /// Ledger of the run's buffers.
    pub ledger: Ledger,
    metrics: LineWriter,
    memory: LineWriter,
    log: LineWriter,
    /// Writers for other tools.
    trackers: Trackers,
    /// Time of the last flush.
    flushed: Instant,
    /// Sampler of memory.
    pub tracer: Tracer,
    judge: MemoryJudge,
    training: TrainingJudge,
    /// Collector of the memory that each phase needs.
    pub demand: DemandCollector,
    /// Names of the series that seem to grow: at most as many as there are series.
    pub suspects: Vec<String>,
    /// First step at which the suspects are updated again.
    next_suspect_step: u64,
    /// Newest memory sample of this process.
    pub newest: Option<MemoryLine>,
}

/// Longest time that a line stays in a buffer: readers of an active or killed run miss at most the lines of this period.
const FLUSH_EVERY: Duration = Duration::from_secs(1);
/// Log lines longer than this are cut.
const LOG_LINE_CHARACTERS_MAX: usize = 4000;

impl Recorder {
    /// Opens the files for appending. `segment` is the number of processes that wrote to the directory before, `state` that
    /// of the loop, whose `lines` are those that a damaged `memory.jsonl` should have.
    pub fn open(
        run: &Path,
        plan: &Plan,
        ledger: &Ledger,
        segment: u32,
        gpu: Option<GpuInUse>,
        state: &LoopState,
    ) -> Result<Self, WriteError> {
        let buffers = Buffers::new(&plan.experiment.limits);
        let leaking =
            plan.owners.iter().filter(|owner| owner.policy == Policy::Leak && owner.place == MemoryKind::Host);
        let leaks = leaking.map(|owner| owner.name.clone()).collect();
        let open = |buffer, file: &str| LineWriter::open(ledger, buffer, &run.join(file));
        let next = state.step + u64::from(state.validated);
        let mut recorder = Self {
            run: run.to_path_buf(),
            ledger: ledger.clone(),
            metrics: open(&buffers.metrics_lines, layout::METRICS)?,
            memory: open(&buffers.memory_lines, layout::MEMORY)?,
            log: open(&buffers.log_lines, layout::LOG)?,
            trackers: trackers::open(&plan.experiment.experiment, run, segment, next)?,
            flushed: Instant::now(),
            tracer: Tracer::new(ledger, segment, plan.experiment.memory.components_every_samples, gpu),
            judge: MemoryJudge::new(judge::memory_context(&plan.to_file(0), &plan.experiment)),
            training: TrainingJudge::new(judge::training_context(Some(&plan.to_file(0)))),
            demand: DemandCollector::new(leaks, plan.experiment.validation.batches as u64),
            suspects: Vec::new(),
            next_suspect_step: 0,
            newest: None,
        };
        if segment > 0 {
            recorder.replay(segment);
        }
        state.lines.iter().for_each(|lines| recorder.memory.continue_from(lines.memory));
        Ok(recorder)
    }

    /// Adds the samples and metrics of earlier processes to the verdicts and the peaks. They are read from the files, so a
    /// process that was killed counts as well.
    fn replay(&mut self, segment: u32) {
        for line in read::metrics(&self.run).into_iter().flatten() {
            match line {
                Ok(line) => judge::add_metrics(&mut self.training, &line),
                Err(ReadError::Content { .. }) => {}
                Err(_) => break,
            }
        }
        for line in read::memory(&self.run).into_iter().flatten() {
            match line {
                Ok(line) if line.segment < segment => {
                    self.judge.add(&judge::sample(&line));
                    self.tracer.raise_peaks(&line);
                }
                Ok(_) | Err(ReadError::Content { .. }) => {}
                // Reading on would repeat the same error.
                Err(_) => break,
            }
        }
    }

    /// Adds a line to `metrics.jsonl`.
    pub fn metrics(&mut self, line: &MetricsLine) -> Result<(), WriteError> {
        judge::add_metrics(&mut self.training, line);
        // First, so that a checkpoint after an error includes the line.
        let recorded = self.metrics.record(line);
        recorded.and(self.trackers.iter_mut().try_for_each(|tracker| tracker.metrics(line)))
    }

    /// Measures memory. Must be called between steps, when the tensors of the step are dropped and the device is idle.
    pub fn sample(
        &mut self,
        task: &mut dyn Task,
        clock: &mut Clock,
        position: LoopPosition,
    ) -> Result<&MemoryLine, WriteError> {
        let start_time = Instant::now();
        let line = self.tracer.sample(SampleContext {
            start_time,
            position,
            device: task.device_memory(),
            phases: clock.take_since_sample(),
        });
        let measured = Instant::now();
        self.judge.add(&judge::sample(&line));
        self.demand.add(&line);
        self.memory.record(&line)?;
        self.trackers.iter_mut().try_for_each(|tracker| tracker.sample(&line))?;
        // A validation may take long, and readers should know that it has started.
        if position.point == SamplePoint::BeforeValidation || self.flushed.elapsed() >= FLUSH_EVERY {
            self.flushed = Instant::now();
            self.metrics.flush()?;
            self.memory.flush()?;
        }
        self.tracer.add_cost(measured.elapsed());
        Ok(self.newest.insert(line))
    }

    /// Adds a line with the time to `log.txt`.
    pub fn log(&mut self, text: &str) -> Result<(), WriteError> {
        let text = printable::line(text, LOG_LINE_CHARACTERS_MAX);
        self.log.line(format!("{} {text}", timestamp::now()))
    }

    /// Writes all buffered lines to the disk.
    pub fn sync(&mut self) -> Result<(), WriteError> {
        let (metrics, memory, log) = (self.metrics.sync(), self.memory.sync(), self.log.sync());
        metrics.and(memory).and(log)
    }

    /// Lines that were written, without those that wait in a buffer.
    pub fn lines(&self) -> WrittenLines {
        WrittenLines { metrics: self.metrics.sum(), memory: self.memory.sum() }
    }

    /// Updates the list of series that seem to grow, at most once in a window of the verdict. Returns true if it was updated
    /// and is not empty.
    pub fn update_suspects(&mut self, step: u64) -> bool {
        if step < self.next_suspect_step {
            return false;
        }
        self.next_suspect_step = step + self.judge.window();
        self.suspects = self.judge.suspects().into_iter().map(str::to_owned).collect();
        !self.suspects.is_empty()
    }

    /// Verdict on all samples of the run.
    pub fn verdict(&self) -> Verdict {
        self.judge.verdict()
    }

    /// Verdict on the training so far; `None` without a loss and a validation.
    pub fn training_verdict(&self, end: Option<TrainingEnd>) -> Option<TrainingVerdict> {
        (!self.training.is_empty()).then(|| self.training.verdict(end))
    }
}
