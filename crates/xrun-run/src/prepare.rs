//! Preparation of a checked experiment up to an open task: device, data, plan, forecast.
//!
//! Progress is reported to a [`ProgressListener`], which the command line implements. A program can train from code:
//!
//! ```
//! use std::time::Instant;
//! use xrun_core::experiment::read;
//! use xrun_run::new_run::{NewRun, RunLocation};
//! use xrun_run::observer::Silent;
//! use xrun_run::prepare::Planned;
//! use xrun_run::stop::StopSignal;
//!
//! // A program based on xrun calls `Program::register` instead.
//! xrun_core::pipelines::register_kinds();
//! let directory = tempfile::tempdir()?;
//! let file = directory.path().join("mine.toml");
//! std::fs::write(&file, "[pipeline.dummy]\nsteps_per_epoch = 3\n[memory]\nprobe = false\n")?;
//! let checked = read::read(&file, &[], std::iter::empty())?;
//!
//! let planned = Planned::new(checked.experiment.clone(), Silent)?;
//! let (opened, task) = planned.open(1)?;
//! let new = NewRun::new(&checked, RunLocation::Results(directory.path()));
//! let run = new.create(&opened, task.parameters())?;
//! let outcome = run.launch(&opened, Instant::now()).train(task, &StopSignal::never(), &mut Silent);
//! assert_eq!(outcome.ending.exit_code(), 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::any::Any;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use super::initial_weights::{self, InitialWeights};
use crate::memory::sources;
use crate::memory::sources::GpuInUse;
use crate::plan;
use crate::plan::fit;
use crate::plan::fit::MemoryBudget;
use crate::plan::{Plan, duration, forecast};
use crate::probe;
use crate::probe::{Probe, ProbeError, cache};
use crate::stop::ScopedStopSignal;
use xrun_core::bounded::ledger::Ledger;
use xrun_core::dataset;
use xrun_core::dataset::digest::digest_of_file;
use xrun_core::dataset::error::InvalidItems;
use xrun_core::dataset::generated;
use xrun_core::device;
use xrun_core::device::{DeviceKind, SelectedDevice};
use xrun_core::experiment::Experiment;
use xrun_core::experiment::pipeline::{Opening, Prepared};
use xrun_core::heap;
use xrun_core::invocation;
use xrun_core::panics;
use xrun_core::panics::Panic;
use xrun_core::panics::messages::Cause;
use xrun_core::printable;
use xrun_core::task::{Task, TaskError};
use xrun_core::units::{Bytes, pluralize, seconds};
use xrun_results::durations::Durations;
use xrun_results::format::{Forecast, Manifest};

/// Receiver of messages while a run is prepared.
pub trait ProgressListener: Send + Sync {
    /// Shows a message.
    fn info(&self, text: &str);

    /// Shows a message at the verbose level.
    fn detail(&self, _text: &str) {}

    /// Shows that long work is in progress, until the returned guard is dropped.
    fn start_work(&self, _work: LongTask) -> Box<dyn Any> {
        Box::new(())
    }
}

/// Long work during preparation.
#[derive(Debug)]
pub enum LongTask {
    /// Data is generated and written.
    GeneratingData,
    /// A probe measures memory.
    Probing,
}

/// Reason why a run could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Data, device or disk.
    #[error("{0}")]
    Failed(String),
    /// The device does not have enough memory for the model.
    #[error("{0}")]
    OutOfMemory(String),
    /// The plan does not fit the limits or the machine.
    #[error("{0}")]
    DoesNotFit(String),
    /// A signal stopped the preparation.
    #[error("{0}")]
    Interrupted(String),
}

impl StartError {
    /// Converts an error of the data, the device or the disk.
    pub fn failed(error: impl std::fmt::Display) -> Self {
        Self::Failed(error.to_string())
    }
}

/// Experiment whose data has been inspected and whose device has been chosen.
pub struct Planned {
    /// Plan with every buffer.
    pub plan: Plan,
    /// Ledger in which buffers register.
    pub ledger: Ledger,
    /// Device and the reason why it was chosen.
    pub chosen: SelectedDevice,
    prepared: Box<dyn Prepared>,
    listener: Arc<dyn ProgressListener>,
    initial_weights: Option<InitialWeights>,
}

impl Planned {
    /// Chooses the device and inspects the data.
    ///
    /// # Errors
    /// The device is missing, or the data cannot be used.
    pub fn new(mut experiment: Experiment, listener: impl ProgressListener + 'static) -> Result<Self, StartError> {
        let listener: Arc<dyn ProgressListener> = Arc::new(listener);
        // The launcher does not affect the result.
        experiment.launcher = None;
        let chosen = device::select(&experiment.experiment.device).map_err(StartError::failed)?;
        listener.detail(&format!("device {}: {}, {}", chosen.kind, chosen.found.name, chosen.because));
        if let Some(missing) = &chosen.fallback_reason {
            listener.info(&format!("using the CPU because the GPU is not usable: {missing}"));
        }
        if chosen.kind == DeviceKind::Cpu {
            device::backend().select_cpu_kernels(experiment.device.cpu_kernels).map_err(StartError::failed)?;
        }
        let ledger = Ledger::default();
        let start_time = Instant::now();
        let pending = experiment.dataset.as_ref().and_then(|dataset| dataset.generation_notice());
        let notified = listener.clone();
        dataset::digest_cache::set_notifier(move |message| notified.info(message));
        if let Some(what) = &pending {
            listener.info(&format!("data: generating {what}"));
        }
        let work = pending.as_ref().map(|_| listener.start_work(LongTask::GeneratingData));
        let prepared = experiment.prepare(&ledger);
        drop(work);
        let (facts, prepared) = prepared.map_err(StartError::failed)?;
        if pending.is_some() {
            listener.info(&format!("data: generated in {}", seconds(start_time.elapsed().as_secs_f64())));
        }
        // Generating or first reading the data leaves free pages, which would add to the memory of training.
        heap::return_free_pages();
        for line in skipped_lines("data", &facts.data_skipped, LEFT_OUT_NAMED) {
            listener.info(&line);
        }
        for lowered in &facts.lowered {
            listener.info(&lowered.to_string());
        }
        facts.notes.iter().for_each(|note| listener.info(&format!("data: {note}")));
        let weights = experiment.training.initial_weights.as_deref().map(initial_weights::find).transpose();
        let weights = weights.map_err(StartError::Failed)?;
        let mut plan = plan::resolve(experiment, facts);
        if !add_derived_digest(&mut plan)?
            && let Some(made) = &plan.facts.made
        {
            listener.info(&made.how);
        }
        if let Some(weights) = &weights {
            weights.check_data(&plan).map_err(StartError::Failed)?;
            listener.info(&weights.description());
            plan.facts.data_digests.push((initial_weights::DIGEST.to_owned(), weights.digest.clone()));
        }
        if let Some(backbone) = &plan.experiment.backbone {
            let digest = digest_of_file(Path::new(&backbone.settings().weights)).map_err(StartError::failed)?;
            plan.facts.data_digests.push(("backbone".to_owned(), digest));
        }
        let plan = if chosen.kind.has_pool() { plan.with_pool() } else { plan };
        Ok(Self { plan, ledger, chosen, prepared, listener, initial_weights: weights })
    }

    /// Records the initial weights of a resumed run without opening their file, which may be gone: the checkpoint replaces it.
    pub fn set_recorded_initial_weights(&mut self, initial_weights: Option<String>, manifest: &Manifest) {
        self.plan.experiment.training.initial_weights = initial_weights;
        let digest = manifest.data.get(initial_weights::DIGEST);
        self.plan.facts.data_digests.extend(digest.map(|digest| (initial_weights::DIGEST.to_owned(), digest.clone())));
    }

    /// Forecasts the memory of the experiment and adds the forecast to the plan. Returns it with the number of parameters.
    pub fn forecast(&mut self, file: &Path, overrides: &[String]) -> Result<(Forecast, u64), ProbeError> {
        let probe = self.probe(file, overrides)?;
        let mut forecast = self.forecast_from(&probe);
        let work = duration::work_after(&self.plan, 0, false);
        forecast.duration = duration::forecast(&work, &Durations::default(), probe.durations.as_ref());
        forecast.probe_durations.clone_from(&probe.durations);
        self.plan.forecast = Some(forecast.clone());
        Ok((forecast, probe.parameters))
    }

    /// Forecasts the memory of the experiment from a probe, which may be that of an equivalent experiment.
    pub fn forecast_from(&self, probe: &Probe) -> Forecast {
        forecast::forecast(&self.plan.to_file(probe.parameters), &self.plan.experiment, &probe.demand)
    }

    /// Adds a forecast to the plan if `memory.probe` is set. A probe that fails is reported and does not stop the run, which
    /// will show the cause itself. `force` accepts a plan that does not fit.
    ///
    /// # Errors
    /// The plan does not fit, a signal arrived during the probe, or the data cannot be used.
    pub fn forecast_if_enabled(&mut self, file: &Path, overrides: &[String], force: bool) -> Result<(), StartError> {
        let listener = self.listener.clone();
        if !self.plan.experiment.memory.probe {
            return Ok(());
        }
        let (mut forecast, _) = match self.forecast(file, overrides) {
            Ok(forecast) => forecast,
            // The run would fail in the same way.
            Err(error @ ProbeError::Data(_)) => return Err(StartError::failed(error)),
            Err(stopped @ ProbeError::Stopped) => return Err(StartError::Interrupted(stopped.to_string())),
            Err(error) => {
                listener.info(&format!("no memory forecast: {error}"));
                return Ok(());
            }
        };
        // Generating or first reading the data may have needed more than training will.
        forecast::raise_peaks(&mut forecast, heap::read().peak, sources::rss_peak());
        let budgets = self.memory_budgets();
        let (fits, message) = fit::message(&forecast, &budgets);
        let advice = fit::advice(&self.plan, &forecast, &budgets);
        self.plan.forecast = Some(forecast);
        if fits {
            listener.detail(&format!("plan {message}"));
            return Ok(());
        }
        let mut text = format!("plan {message}");
        if let Some((largest, key)) = advice {
            text.push_str(&format!("; {largest}"));
            if let Some(key) = key {
                let (program, file) = (invocation::program(), printable::shell_word(&file.to_string_lossy()));
                text.push_str(&format!("; `{program} plan {file} --solve {key}` finds what fits"));
            }
        }
        match force {
            true => listener.info(&text),
            false => return Err(StartError::DoesNotFit(format!("{text}; --force starts anyway"))),
        }
        Ok(())
    }

    /// Memory budgets of the run on this machine at this time.
    pub fn memory_budgets(&self) -> Vec<MemoryBudget> {
        let device = (self.chosen.kind != DeviceKind::Cpu).then_some(self.chosen.found.free).flatten();
        fit::memory_budgets(&self.plan.experiment.limits, device)
    }

    /// Probe of the experiment, from the cache or measured now.
    ///
    /// # Errors
    /// The probe failed, or a signal arrived.
    pub fn probe(&self, file: &Path, overrides: &[String]) -> Result<Probe, ProbeError> {
        let cached = cache::load(&self.probe_key());
        cached.map_or_else(|| self.measure(file, overrides), Ok)
    }

    fn probe_key(&self) -> String {
        let facts = &self.plan.facts;
        // Memory does not depend on the content of derived data, whose digest is unknown before it is made.
        let is_made = |name: &str| facts.made.as_ref().is_some_and(|made| made.name == name);
        let data: Vec<_> = facts.data_digests.iter().filter(|(name, _)| !is_made(name)).cloned().collect();
        cache::key(&self.plan.experiment, &data, &self.chosen.found.name)
    }

    /// Runs a probe and stores it in the cache.
    pub fn measure(&self, file: &Path, overrides: &[String]) -> Result<Probe, ProbeError> {
        let planned = if self.plan.facts.steps_are_known { self.plan.steps } else { u64::MAX };
        let steps = self.plan.facts.probe_steps.min(planned);
        // From the announcement on a signal ends the probe, and not this process.
        let stop = ScopedStopSignal::listen().map_err(ProbeError::Start)?;
        self.listener.info(&format!(
            "memory probe: {}, up to {}",
            pluralize(steps, "step"),
            probe::time_limit_text(&self.plan.experiment)
        ));
        let _work = self.listener.start_work(LongTask::Probing);
        let mut overrides = overrides.to_vec();
        overrides.extend(self.plan.facts.probe_overrides.iter().cloned());
        let probe = probe::probe(file, &overrides, &self.plan, steps, &|| stop.raised())?;
        cache::store(&self.probe_key(), &probe);
        Ok(probe)
    }

    /// Drops the prepared data, for an experiment whose work is done by a command.
    pub fn without_task(self) -> Opened {
        let Self { plan, ledger, chosen, .. } = self;
        Opened { plan, ledger, chosen }
    }

    /// Opens the task, with the initial weights loaded. `first_step` is the first step that it will do.
    ///
    /// # Errors
    /// The device fails, or does not have enough memory for the model.
    pub fn open(self, first_step: u64) -> Result<(Opened, Box<dyn Task>), StartError> {
        let Self { mut plan, ledger, chosen, prepared, initial_weights, .. } = self;
        // A backend may panic if a library of its driver is missing.
        let opened = panics::caught(|| {
            let mut task = prepared.open(Opening {
                experiment: &plan.experiment,
                device: chosen.kind,
                ledger: &ledger,
                first_step,
            })?;
            if let Some(weights) = &initial_weights {
                task.load_weights(&weights.file)?;
            }
            Ok(task)
        });
        let task = opened.map_err(|panic| device_error(&chosen, &panic))?.map_err(|error| match error {
            TaskError::Device(message) => device_error(&chosen, &Panic::from_message(message)),
            other => StartError::failed(other),
        })?;
        add_derived_digest(&mut plan)?;
        Ok((Opened { plan, ledger, chosen }, task))
    }
}

/// Adds the digest of the data that the task derives, such as a tokenizer, to the plan; returns false if there is none yet.
fn add_derived_digest(plan: &mut Plan) -> Result<bool, StartError> {
    let Some(made) = &plan.facts.made else { return Ok(false) };
    let Some(digest) = generated::digest(&made.path).map_err(StartError::failed)? else { return Ok(false) };
    let name = made.name;
    plan.facts.data_digests.retain(|(other, _)| other != name);
    plan.facts.data_digests.push((name.to_owned(), digest));
    Ok(true)
}

/// Number of invalid items that are named at the start of a run; `xrun check` names more.
const LEFT_OUT_NAMED: usize = 3;

/// Lines about the items that were left out of the data: their number by reason, and the first `named` of them.
pub fn skipped_lines(what: &str, skipped: &InvalidItems, named: usize) -> Vec<String> {
    if skipped.total() == 0 {
        return Vec::new();
    }
    let mut lines = vec![format!("{what}: {} left out: {}", skipped.total(), skipped.by_reason())];
    lines.extend(skipped.first.iter().take(named).map(|item| format!("  {}", item.error)));
    match skipped.total().saturating_sub(named.min(skipped.first.len()) as u64) {
        0 => {}
        more => lines.push(format!("  and {more} more")),
    }
    lines
}

/// Error of a device that failed before the first step. There is no post-mortem: no run exists that could be resumed.
pub fn device_error(chosen: &SelectedDevice, panic: &Panic) -> StartError {
    match panic.cause() {
        Cause::OutOfMemory { asked } => {
            let page = asked.map_or_else(String::new, |bytes| format!("; an allocation of {} failed", Bytes(bytes)));
            let memory = chosen.found.memory.zip(chosen.found.free);
            let memory = memory.map_or_else(String::new, |(all, free)| {
                format!("; {} of {} were free at the start", Bytes(free), Bytes(all))
            });
            StartError::OutOfMemory(format!(
                "the device `{}` does not have enough memory for the model{page}{memory}; stop other programs that use it \
                 (`nvidia-smi` lists them), or use a smaller model",
                chosen.kind
            ))
        }
        _ => StartError::Failed(format!("cannot open the device `{}`: {panic}", chosen.kind)),
    }
}

/// Plan, ledger and device of an opened task.
pub struct Opened {
    /// Plan with every buffer.
    pub plan: Plan,
    /// Ledger in which buffers register.
    pub ledger: Ledger,
    /// Device and the reason why it was chosen.
    pub chosen: SelectedDevice,
}

impl Opened {
    /// GPU in use, if its driver reports its memory.
    pub fn gpu(&self) -> Option<GpuInUse> {
        let found = &self.chosen.found;
        let used_before = found.memory.zip(found.free).map(|(all, free)| all.saturating_sub(free));
        found.driver_number.map(|index| GpuInUse { index, used_before })
    }
}
