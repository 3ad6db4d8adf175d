//! What is written down while a run goes on? Metrics, memory samples, log; each through a bounded buffer.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::clock::Clock;
use crate::demand::Collector;
use crate::plan::{Buffers, Plan};
use crate::trace::{Moment, Tracer};
use xrun_core::bounded::ledger::{Ledger, Policy};
use xrun_core::bounded::planned::Place;
use xrun_core::files::layout;
use xrun_core::files::write::{LineWriter, WriteError};
use xrun_core::task::Task;
use xrun_results::export::live::Live;
use xrun_results::format::{Demand, DriverMemory, MemoryLine, MemorySummary, MetricsLine, OwnerSummary, Point};
use xrun_results::judge;
use xrun_results::read;
use xrun_results::read::ReadError;
use xrun_results::timestamp;
use xrun_results::verdict::Verdict;
use xrun_verdict::Watch;
use xrun_watch::memory::sources::GpuInUse;

/// The open files of a run.
#[derive(Debug)]
pub struct Recorder {
    /// The folder of the results.
    pub run: PathBuf,
    /// What each owner holds.
    pub ledger: Ledger,
    metrics: LineWriter,
    memory: LineWriter,
    log: LineWriter,
    /// What TensorBoard reads, when asked for.
    events: Option<Live>,
    /// When what waited was last handed to the operating system.
    written: Instant,
    tracer: Tracer,
    watch: Watch,
    demand: Collector,
    /// As many as there are series, at most.
    suspects: Vec<String>,
    suspected_next: u64,
    /// The newest sample.
    newest: Option<MemoryLine>,
}

/// Whoever looks at a run that goes on, or was killed, sees what is older than this.
const WRITE_EVERY: Duration = Duration::from_secs(1);
/// Log lines longer than this are cut.
const LOG_LINE_CHARACTERS_MAX: usize = 4000;

impl Recorder {
    /// Opens the files for appending. `segment` counts the processes that wrote into the directory before this one.
    pub fn open(
        run: &Path,
        plan: &Plan,
        ledger: &Ledger,
        segment: u32,
        gpu: Option<GpuInUse>,
    ) -> Result<Self, WriteError> {
        let buffers = Buffers::new(&plan.experiment.limits);
        let leaking = plan.owners.iter().filter(|owner| owner.policy == Policy::Leak && owner.place == Place::Host);
        let leaks = leaking.map(|owner| owner.name.clone()).collect();
        let open = |buffer, file: &str| LineWriter::open(ledger, buffer, &run.join(file));
        let mut recorder = Self {
            run: run.to_path_buf(),
            ledger: ledger.clone(),
            metrics: open(&buffers.metrics_lines, layout::METRICS)?,
            memory: open(&buffers.memory_lines, layout::MEMORY)?,
            log: open(&buffers.log_lines, layout::LOG)?,
            events: None,
            written: Instant::now(),
            tracer: Tracer::new(ledger, segment, plan.experiment.memory.parts_every_samples, gpu),
            watch: Watch::new(judge::context(&plan.to_file(0), &plan.experiment)),
            demand: Collector::new(leaks, plan.experiment.validation.episodes as u64),
            suspects: Vec::new(),
            suspected_next: 0,
            newest: None,
        };
        if segment > 0 {
            recorder.recall(segment);
        }
        Ok(recorder)
    }

    /// Takes in what the processes before this one wrote: whether memory grew in them, and their peaks. Their samples are
    /// read one by one, so that it does not matter how a process ended.
    fn recall(&mut self, segment: u32) {
        for line in read::memory(&self.run).into_iter().flatten() {
            match line {
                Ok(line) if line.segment < segment => {
                    self.watch.add(&judge::sample(&line));
                    self.tracer.raise_peaks(&line);
                }
                Ok(_) | Err(ReadError::Content { .. }) => {}
                // Reading on would give the same error for ever.
                Err(_) => break,
            }
        }
    }

    /// Adds a line to `metrics.jsonl`.
    pub fn metrics(&mut self, line: &MetricsLine) -> Result<(), WriteError> {
        if let Some(events) = &mut self.events {
            events.metrics(line)?;
        }
        self.metrics.record(line)
    }

    /// Writes event files as well. What they had of this step and later ones is done again.
    pub fn with_events(&mut self, segment: u32, next: u64) -> Result<(), WriteError> {
        self.events = Some(Live::begin(&self.run, segment, next)?);
        Ok(())
    }

    /// Measures memory. The caller is at a rest point.
    pub fn sample(&mut self, task: &mut dyn Task, clock: &mut Clock, moment: At) -> Result<&MemoryLine, WriteError> {
        let begun = Instant::now();
        let line = self.tracer.sample(Moment {
            begun,
            step: moment.step,
            epoch: moment.epoch,
            point: moment.point,
            device: task.device_memory(),
            freed: moment.freed,
            phases: clock.take_since_sample(),
        });
        let measured = Instant::now();
        self.watch.add(&judge::sample(&line));
        self.demand.add(&line);
        self.memory.record(&line)?;
        if let Some(events) = &mut self.events {
            events.sample(&line)?;
        }
        // What takes long is seen from outside while it goes on.
        if moment.point == Point::BeforeValidation || self.written.elapsed() >= WRITE_EVERY {
            self.written = Instant::now();
            self.metrics.flush()?;
            self.memory.flush()?;
        }
        self.tracer.add_cost(measured.elapsed());
        Ok(self.newest.insert(line))
    }

    /// A checkpoint was read, which is what the next sample is of.
    pub fn loaded(&mut self) {
        self.demand.loaded();
    }

    /// The first step on a device has been done: what its pool had reserved until then was for tuning, too.
    pub fn tuned(&mut self, reserved: u64) {
        self.demand.tuned(reserved);
    }

    /// Adds a line to the log, with the time.
    pub fn log(&mut self, text: &str) -> Result<(), WriteError> {
        let text: String = text
            .chars()
            .take(LOG_LINE_CHARACTERS_MAX)
            .map(|c| if c == '\n' { ' ' } else { c })
            .filter(|c| !c.is_control())
            .collect();
        self.log.line(format!("{} {text}", timestamp::now()))
    }

    /// Hands everything that waits to the disk.
    pub fn sync(&mut self) -> Result<(), WriteError> {
        let (metrics, memory, log) = (self.metrics.sync(), self.memory.sync(), self.log.sync());
        metrics.and(memory).and(log)
    }

    /// Updates the list of series that seem to grow, at most once in a window: floors come no more often. Says whether it
    /// did, and there are some.
    pub fn suspect(&mut self, step: u64) -> bool {
        if step < self.suspected_next {
            return false;
        }
        self.suspected_next = step + self.watch.window();
        self.suspects = self.watch.suspects().into_iter().map(str::to_owned).collect();
        !self.suspects.is_empty()
    }

    /// The newest sample, and the suspects.
    pub fn seen(&self) -> (Option<&MemoryLine>, &[String]) {
        (self.newest.as_ref(), &self.suspects)
    }

    /// The verdict on all samples of the run.
    pub fn verdict(&self) -> Verdict {
        self.watch.verdict()
    }

    /// What each part needed so far, without the owners.
    pub fn needed(&self) -> &Demand {
        self.demand.so_far()
    }

    /// What each part needed so far; `owners` as the ledger has them.
    pub fn demand(&self, owners: &[OwnerSummary]) -> Demand {
        self.demand.demand(owners)
    }

    /// All memory of the GPU in use, and what of it is free now; by its driver.
    pub fn gpu_memory(&self) -> Option<DriverMemory> {
        self.tracer.gpu_memory()
    }

    /// Peaks so far, and what measuring cost against the time of the steps.
    pub fn memory_summary(&self, training: Duration) -> MemorySummary {
        self.tracer.summary(training)
    }
}

/// Where in the loop a sample is taken.
#[derive(Clone, Copy, Debug)]
pub struct At {
    /// The step after which it is.
    pub step: u64,
    /// From 1; 0 before the first step.
    pub epoch: u64,
    /// Where in the loop it is.
    pub point: Point,
    /// Bytes that a cleanup gave back.
    pub freed: Option<u64>,
}
