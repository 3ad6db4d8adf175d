//! Records of a command: the same files as those of a run.

use std::time::{Duration, Instant};

use super::limits::CommandLimitReached;
use super::metrics::MetricsSummary;
use super::{PreparedRun, StepSource, WatchError, WatchRequest, start};
use xrun_core::bounded::buffer::Buffer;
use xrun_core::bounded::ledger::Ledger;
use xrun_core::bounded::planned::PlannedBuffer;
use xrun_core::dataset::digest::digest;
use xrun_core::files::layout;
use xrun_core::files::write;
use xrun_core::files::write::{LineWriter, WriteError, lines};
use xrun_core::printable;
use xrun_results::command_line;
use xrun_results::explanation::Explanation;
use xrun_results::format::{
    DESCRIPTION_CHARACTERS_MAX, Demand, Device, GrowthToLimit, Manifest, MemoryLine, MetricsLine, Outcome,
    OwnerSummary, PlanFile, PostMortem, Summary, VERSION, WrittenLines,
};
use xrun_results::read;
use xrun_results::timestamp;
use xrun_results::verdict::{TrainingVerdict, Verdict, VerdictWord};
use xrun_results::view::EndRecords;
use xrun_results::watched::WatchSettings;
use xrun_run::directory;
use xrun_run::directory::RunDirectory;
use xrun_run::manifest;
use xrun_verdict::training::TrainingEnd;

/// Cap on the lines that wait to be written, for each file.
const LINES: usize = 16;
const MEMORY_LINES: &str = "memory_lines";
const METRICS_LINES: &str = "metrics_lines";
const LOG_LINES: &str = "log_lines";
/// Interval at which waiting lines are written.
const WRITE_INTERVAL: Duration = Duration::from_secs(1);
const LOG_LINE_CHARACTERS_MAX: usize = 4000;

/// Result directory of a command, and its open files.
#[derive(Debug)]
pub struct CommandRecord {
    pub directory: RunDirectory,
    experiment: String,
    memory: LineWriter,
    metrics: LineWriter,
    log: LineWriter,
    written: Instant,
    metrics_summary: MetricsSummary,
    /// True if earlier processes wrote lines, and this one has no step yet.
    awaits_first_step: bool,
    /// Seconds that earlier processes ran.
    seconds_before: f64,
    manifest: Manifest,
    /// Plan of an experiment's run; `None` for `xrun watch`.
    plan: Option<PlanFile>,
    post_mortem: Option<PostMortem>,
    explanation: Option<Explanation>,
}

/// Buffers of the lines that wait to be written.
pub fn buffers() -> [Buffer; 3] {
    [lines(MEMORY_LINES, LINES), lines(METRICS_LINES, LINES), lines(LOG_LINES, LINES)]
}

impl CommandRecord {
    /// Creates the directory, with the manifest of the command.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn create(request: &WatchRequest, watched: &WatchSettings, ledger: &Ledger) -> Result<Self, WatchError> {
        // Masked: a guessed secret could be verified against the digest.
        let words = start::masked_words(request);
        let working_directory = std::env::current_dir().unwrap_or_default();
        let fingerprint = digest(format!("{}\0{}", working_directory.display(), words.join("\0")).as_bytes());
        let directory = directory::create(&request.results, &request.name, &fingerprint, timestamp::time())?;
        let manifest = Manifest {
            description: printable::line(&words.join(" "), DESCRIPTION_CHARACTERS_MAX),
            command: command_line::command(),
            watched: Some(watched.clone()),
            ..manifest::of_process(&request.name, &directory.id, &fingerprint, unknown_device(), request.patch)
        };
        write::replace_json(&directory.path.join(layout::MANIFEST), &manifest)?;
        Self::open(directory, manifest, 0, request, ledger)
    }

    /// Opens the directory of an experiment's run, and adds the watch settings to its manifest.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn open_run(
        begun: PreparedRun,
        request: &WatchRequest,
        watched: &WatchSettings,
        ledger: &Ledger,
    ) -> Result<Self, WatchError> {
        let PreparedRun { directory, segment, seconds, mut manifest, mut plan } = begun;
        let path = &directory.path;
        manifest.watched = Some(watched.clone());
        manifest.device = unknown_device();
        write::replace_json(&path.join(layout::MANIFEST), &manifest)?;
        plan.owners = super::buffers(request).iter().map(PlannedBuffer::from).collect();
        write::replace_json(&path.join(layout::PLAN), &plan)?;
        let mut record = Self::open(directory, manifest, segment, request, ledger)?;
        record.metrics_summary.set_plan(&plan);
        Ok(Self { plan: Some(plan), seconds_before: seconds, ..record })
    }

    fn open(
        directory: RunDirectory,
        manifest: Manifest,
        segment: u32,
        request: &WatchRequest,
        ledger: &Ledger,
    ) -> Result<Self, WatchError> {
        let path = &directory.path;
        let open = |name, file: &str| LineWriter::open(ledger, &lines(name, LINES), &path.join(file));
        directory.note_process(segment);
        Ok(Self {
            memory: open(MEMORY_LINES, layout::MEMORY)?,
            metrics: open(METRICS_LINES, layout::METRICS)?,
            log: open(LOG_LINES, layout::LOG)?,
            experiment: request.name.clone(),
            manifest,
            post_mortem: None,
            explanation: None,
            written: Instant::now(),
            metrics_summary: MetricsSummary::new(request.metrics.clone()),
            awaits_first_step: segment > 0,
            seconds_before: 0.0,
            plan: None,
            directory,
        })
    }

    /// Removes the metrics lines from `step` on: a resumed command repeats those steps.
    fn rewind(&mut self, step: u64) -> Result<(), WriteError> {
        let summary = &mut self.metrics_summary;
        self.metrics.keep_first_lines(|line| {
            let line = read::parse_line::<MetricsLine>(line.as_bytes()).ok().filter(|line| line.step() < step);
            line.iter().for_each(|line| summary.add(line));
            line.is_some()
        })
    }

    /// Removes the metrics of this process, and sets the steps of its samples to 0: they were not those of the training.
    ///
    /// # Errors
    /// The files cannot be written.
    pub fn restart_steps(&mut self, segment: u32) -> Result<(), WriteError> {
        let without_step = |line: &str| {
            let line = read::parse_line::<MemoryLine>(line.as_bytes()).ok()?;
            let step = if line.segment == segment { 0 } else { line.step };
            serde_json::to_string(&MemoryLine { step, ..line }).ok()
        };
        let memory = self.memory.rewrite(without_step);
        // Earlier processes keep theirs.
        if segment > 0 {
            return memory;
        }
        self.metrics_summary.clear();
        memory.and(self.metrics.keep_first_lines(|_| false))
    }

    /// Records where the steps are from, for people.
    ///
    /// # Errors
    /// The manifest cannot be written.
    pub fn note_step_source(&mut self, source: &str) -> Result<(), WriteError> {
        let Some(watched) = &mut self.manifest.watched else { return Ok(()) };
        if watched.step_source.as_deref() == Some(source) {
            return Ok(());
        }
        watched.step_source = Some(source.to_owned());
        write::replace_json(&self.directory.path.join(layout::MANIFEST), &self.manifest)
    }

    /// Adds a sample; returns whether the waiting lines were written.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn sample(&mut self, line: &MemoryLine) -> Result<bool, WriteError> {
        self.memory.record(line)?;
        let due = self.written.elapsed() >= WRITE_INTERVAL;
        if due {
            self.written = Instant::now();
            self.flush()?;
        }
        Ok(due)
    }

    /// Writes all waiting lines.
    ///
    /// # Errors
    /// Some of it cannot be written.
    pub fn flush(&mut self) -> Result<(), WriteError> {
        let (memory, metrics, log) = (self.memory.flush(), self.metrics.flush(), self.log.flush());
        memory.and(metrics).and(log)
    }

    /// Writes all waiting lines to the disk, and checks that no other program changed a file.
    ///
    /// # Errors
    /// As [`flush`](Self::flush), and a file was changed.
    pub fn sync(&mut self) -> Result<(), WriteError> {
        let (memory, metrics, log) = (self.memory.sync(), self.metrics.sync(), self.log.sync());
        memory.and(metrics).and(log)
    }

    /// Number of samples and of steps that could not be written.
    pub fn lost(&self) -> (u64, u64) {
        (self.memory.lost(), self.metrics.lost())
    }

    /// Adds the metrics of a step.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn step(&mut self, line: &MetricsLine) -> Result<(), WriteError> {
        if std::mem::take(&mut self.awaits_first_step) {
            self.rewind(line.step())?;
        }
        self.metrics_summary.add(line);
        self.metrics.record(line)
    }

    /// Notes that the loss of a step is not a number.
    pub fn loss_not_finite(&mut self, step: u64) {
        self.metrics_summary.loss_not_finite(step);
    }

    /// Verdict on the training of a command that ended with all its steps.
    pub fn training(&self) -> Option<TrainingVerdict> {
        self.metrics_summary.training(TrainingEnd::Complete)
    }

    /// Adds a line to the log.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn log(&mut self, text: &str) -> Result<(), WriteError> {
        self.log.line(format!("{} {}", timestamp::now(), printable::line(text, LOG_LINE_CHARACTERS_MAX)))?;
        self.log.flush()
    }

    /// Writes the post-mortem of a command that a limit ended.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn post_mortem(&mut self, reached: &CommandLimitReached, verdict: &Verdict) -> Result<(), WriteError> {
        // Samples that cannot be written are counted, and missing in the post-mortem.
        let _ = self.memory.flush();
        let growth = (verdict.verdict >= VerdictWord::Suspect).then(|| GrowthToLimit {
            verdict: verdict.verdict,
            message: verdict.message.clone(),
            slope: verdict.footprint().and_then(|one| one.findings.slope),
            owner: verdict.owner.clone(),
        });
        let record = PostMortem {
            version: VERSION,
            step: reached.line.step,
            message: reached.message.clone(),
            limit_key: reached.limit.key.map(str::to_owned),
            place: reached.limit.place,
            limit: reached.limit.limit,
            held: reached.limit.used,
            suggestions: Vec::new(),
            unattributed: 0,
            growth,
            sample: reached.line.clone(),
            owners: Vec::new(),
            demand: Demand::default(),
            samples: read::newest_memory(&self.directory.path),
        };
        write::replace_json(&self.directory.path.join(layout::POST_MORTEM), self.post_mortem.insert(record))
    }

    /// Writes the explanation of growth.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn explanation(&mut self, explanation: Explanation) -> Result<(), WriteError> {
        write::replace_json(&self.directory.path.join(layout::EXPLANATION), self.explanation.insert(explanation))
    }

    /// Summary of a command that ended before its first step.
    pub fn summary(&self, outcome: Outcome, exit_code: u8, message: String) -> Summary {
        Summary {
            version: VERSION,
            experiment: self.experiment.clone(),
            run: self.directory.id.clone(),
            outcome,
            message,
            exit_code,
            seconds: self.seconds_before,
            ..Summary::default()
        }
    }

    /// Writes the verdict and, last of all files, the summary; both also where lines cannot be written.
    ///
    /// # Errors
    /// The verdict or the summary cannot be written; the first error is returned.
    pub fn end(
        mut self,
        mut summary: Summary,
        verdict: Verdict,
        ledger: &Ledger,
    ) -> Result<(RunDirectory, EndRecords), WriteError> {
        self.directory.free_reserve();
        let logged = self.log(&format!("{}: {}", summary.outcome.label(), summary.message));
        let synced = self.sync();
        let synced = logged.and(synced);
        let path = self.directory.path.clone();
        let judged = write::replace_json(&path.join(layout::VERDICT), &verdict);
        // Without a step all earlier lines stay.
        let rewound = if std::mem::take(&mut self.awaits_first_step) { self.rewind(u64::MAX) } else { Ok(()) };
        summary.owners = ledger.read().into_iter().map(OwnerSummary::from).collect();
        summary.finished = timestamp::now();
        summary.steps_planned = self.plan.as_ref().and_then(PlanFile::known_steps).unwrap_or(summary.steps);
        summary.demand = Demand {
            steps: summary.steps,
            validations: self.metrics_summary.validations(),
            heap_peak: summary.memory.heap_peak,
            heap_peak_beside_leaks: summary.memory.heap_peak,
            rss_peak: summary.memory.rss_peak,
            device_reserved_peak: summary.memory.device_reserved_peak,
            ..Demand::default()
        };
        summary.lines = Some(WrittenLines { metrics: self.metrics.sum(), memory: self.memory.sum() });
        self.metrics_summary.fill(&mut summary);
        let summed = write::replace_json(&path.join(layout::SUMMARY), &summary);
        if judged.is_err() || summed.is_err() {
            synced.and(rewound).and(judged).and(summed)?;
        }
        let Self { directory, manifest, plan, post_mortem, explanation, .. } = self;
        Ok((directory, EndRecords { manifest, plan, summary, verdict, post_mortem, explanation }))
    }
}

/// Device of a command, which chooses it without our knowledge.
fn unknown_device() -> Device {
    Device {
        chosen: "unknown".into(),
        because: String::new(),
        name: "chosen by the command".into(),
        driver: None,
        memory: None,
        compute_capability: None,
        float32_products: None,
        llvm: None,
        cpu_kernels: None,
    }
}

/// Record of the request, for the manifest.
pub fn watched(request: &WatchRequest, not_measured: Vec<String>) -> WatchSettings {
    let step_source = request.steps.as_ref().map(|source| match source {
        StepSource::Output(pattern) => format!("lines of the output that match {}", pattern.text()),
        StepSource::Recognised => "progress bars and lines of the output".to_owned(),
        StepSource::File(path) => format!("the file {}", path.display()),
    });
    WatchSettings {
        sampling_period_ms: u64::try_from(request.interval.as_millis()).unwrap_or(u64::MAX),
        host_memory: request.host_memory,
        device_memory: request.device_memory,
        limit_fraction: request.limit_fraction,
        signal: request.signal.as_str().into(),
        grace_seconds: request.grace.as_secs_f64(),
        time_limit_seconds: request.time_limit.map(|limit| limit.as_secs_f64()),
        step_source,
        not_measured,
        command: start::masked_words(request),
        can_resume: request.can_resume,
    }
}
