//! From a checked experiment to an open task: device, data, plan, forecast.
//!
//! Nothing here knows of a command line. What happens is told to a [`Listener`]; the command line has one, and so may a
//! program that trains from code:
//!
//! ```
//! use std::time::Instant;
//! use xrun_core::experiment::read;
//! use xrun_run::begin::{NewRun, Place};
//! use xrun_run::observer::Silent;
//! use xrun_run::prepare::Planned;
//! use xrun_watch::stop::StopSignal;
//!
//! // A program of xrun does this with `Program::register`.
//! xrun_core::pipelines::kinds().register();
//! let folder = tempfile::tempdir()?;
//! let file = folder.path().join("mine.toml");
//! std::fs::write(&file, "[pipeline.dummy]\nsteps_per_epoch = 3\n[memory]\nprobe = false\n")?;
//! let checked = read::read(&file, &[], std::iter::empty())?;
//!
//! let planned = Planned::new(checked.experiment.clone(), Silent)?;
//! let (opened, task) = planned.open(1)?;
//! let new = NewRun::of(&checked, Place::Results(folder.path()));
//! let begun = new.begin(&opened, task.parameters())?;
//! let launch = begun.launch(&opened, Instant::now());
//! let of = launch.train(task, &StopSignal::never(), &mut Silent);
//! assert_eq!(of.ending.exit_code(), 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::any::Any;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use super::initial_weights::{self, InitialWeights};
use crate::plan;
use crate::plan::fit;
use crate::plan::fit::Room;
use crate::plan::{Plan, disk, forecast};
use crate::probe;
use crate::probe::{Probe, ProbeError, remembered};
use xrun_core::bounded::ledger::Ledger;
use xrun_core::dataset;
use xrun_core::dataset::error::Broken;
use xrun_core::dataset::{Dataset, written_once};
use xrun_core::device;
use xrun_core::device::{Chosen, Kind, Tuning};
use xrun_core::experiment::Experiment;
use xrun_core::experiment::pipeline::Prepared;
use xrun_core::heap;
use xrun_core::invocation;
use xrun_core::panics;
use xrun_core::panics::Panic;
use xrun_core::panics::words::Cause;
use xrun_core::settings::sections::{Autotune, DeviceUse};
use xrun_core::task::{Task, TaskError};
use xrun_core::units::{Bytes, counted, seconds};
use xrun_results::format::{Forecast, Manifest};
use xrun_watch::memory::sources;
use xrun_watch::memory::sources::GpuInUse;
use xrun_watch::stop::ScopedStopSignal;

/// Hears what happens before a run begins.
pub trait Listener: Send + Sync {
    /// A line for people.
    fn say(&self, text: &str);

    /// A line for the curious.
    fn detail(&self, _text: &str) {}

    /// Work begins that takes a while; it ends when what is returned is dropped.
    fn begin(&self, _work: Work) -> Box<dyn Any> {
        Box::new(())
    }
}

/// Work that takes a while.
#[derive(Debug)]
pub enum Work {
    /// Data is generated and written, which may take minutes.
    GeneratingData,
    /// A probe measures.
    Measuring,
}

/// Why a run did not begin.
#[derive(Debug, thiserror::Error)]
pub enum NotStarted {
    /// Data, device or disk.
    #[error("{0}")]
    Failed(String),
    /// The device has no memory for even the model.
    #[error("{0}")]
    OutOfMemory(String),
    /// By a signal.
    #[error("{0}")]
    Interrupted(String),
}

impl NotStarted {
    /// An error of the data, the device or the disk, in its own words.
    pub fn failed(error: impl std::fmt::Display) -> Self {
        Self::Failed(error.to_string())
    }
}

/// An experiment with its data looked at and its device chosen.
pub struct Planned {
    /// What will happen, with every buffer.
    pub plan: Plan,
    /// Where buffers enter themselves.
    pub ledger: Ledger,
    /// The device, and why this one.
    pub chosen: Chosen,
    prepared: Prepared,
    listener: Arc<dyn Listener>,
    initial: Option<InitialWeights>,
}

impl Planned {
    /// Chooses the device and looks at the data.
    ///
    /// # Errors
    /// No device, or data that cannot be used.
    pub fn new(mut experiment: Experiment, listener: impl Listener + 'static) -> Result<Self, NotStarted> {
        let listener: Arc<dyn Listener> = Arc::new(listener);
        // The launcher does not affect the result.
        experiment.launcher = None;
        let chosen = device::choose(&experiment.experiment.device).map_err(NotStarted::failed)?;
        listener.detail(&format!("device {}: {}, {}", chosen.kind, chosen.found.name, chosen.because));
        if let Some(missing) = &chosen.instead_of {
            listener.say(&format!("on the CPU, since the GPU cannot be used: {missing}"));
        }
        if matches!(chosen.kind, Kind::Cuda(_)) && !device::backend().tune(tuning(&experiment.device)) {
            listener.detail("a file of CubeCL's own (cubecl.toml) says how finely it tunes");
        }
        if chosen.kind == Kind::Cpu {
            device::backend().choose_kernels(experiment.device.cpu_kernels).map_err(NotStarted::failed)?;
        }
        let ledger = Ledger::default();
        let begun = Instant::now();
        let pending = experiment.dataset.as_ref().and_then(Dataset::pending);
        let told = listener.clone();
        dataset::known::tell(move |word| told.say(word));
        if let Some(what) = &pending {
            listener.say(&format!("data: generating {what}"));
        }
        let waiting = pending.as_ref().map(|_| listener.begin(Work::GeneratingData));
        let prepared = experiment.prepare(&ledger);
        drop(waiting);
        let (facts, prepared) = prepared.map_err(NotStarted::failed)?;
        if pending.is_some() {
            listener.say(&format!("data: generated in {}", seconds(begun.elapsed().as_secs_f64())));
        }
        // Data that were generated or read for the first time leave free pages behind, which training would come on top of.
        heap::return_free_pages();
        for line in left_out("data", &facts.data_left_out, LEFT_OUT_NAMED) {
            listener.say(&line);
        }
        for smaller in &facts.smaller {
            listener.say(&smaller.to_string());
        }
        facts.notes.iter().for_each(|note| listener.say(&format!("data: {note}")));
        let initial = experiment.training.initial_weights.as_deref().map(initial_weights::find).transpose();
        let initial = initial.map_err(NotStarted::Failed)?;
        let mut plan = plan::resolve(experiment, facts);
        if !of_made(&mut plan)?
            && let Some(made) = &plan.facts.made
        {
            listener.say(&made.how);
        }
        if let Some(initial) = &initial {
            initial.fit(&plan).map_err(NotStarted::Failed)?;
            listener.say(&initial.words());
            plan.facts.data_digests.push((initial_weights::DIGEST.to_owned(), initial.digest.clone()));
        }
        let plan = if chosen.kind.has_pool() { plan.with_pool() } else { plan };
        Ok(Self { plan, ledger, chosen, prepared, listener, initial })
    }

    /// Says that the run began with these weights, which its checkpoint has made needless: their file may be gone.
    pub fn began_with(&mut self, initial_weights: Option<String>, manifest: &Manifest) {
        self.plan.experiment.training.initial_weights = initial_weights;
        let digest = manifest.data.get(initial_weights::DIGEST);
        self.plan.facts.data_digests.extend(digest.map(|digest| (initial_weights::DIGEST.to_owned(), digest.clone())));
    }

    /// Puts into the plan what memory the experiment will need; gives it and the number of parameters.
    pub fn forecast(&mut self, file: &Path, overrides: &[String]) -> Result<(Forecast, u64), ProbeError> {
        let probe = self.probe(file, overrides)?;
        let mut forecast = self.forecast_by(&probe);
        forecast.disk = probe.disk.and_then(|left| disk::forecast(&self.plan, &left));
        self.plan.forecast = Some(forecast.clone());
        Ok((forecast, probe.parameters))
    }

    /// What memory the experiment will need by a probe, which may have been of another one that is alike.
    pub fn forecast_by(&self, probe: &Probe) -> Forecast {
        forecast::forecast(&self.plan.to_file(probe.parameters), &self.plan.experiment, &probe.demand)
    }

    /// Puts into the plan what memory the run will need, if the experiment asks for that. A probe that fails stops
    /// nothing: the run will say why better.
    ///
    /// # Errors
    /// A signal came while it was measured, or the data cannot be used.
    pub fn forecast_if_asked(&mut self, file: &Path, overrides: &[String]) -> Result<(), NotStarted> {
        let listener = self.listener.clone();
        if !self.plan.experiment.memory.probe {
            return Ok(());
        }
        let (mut expected, _) = match self.forecast(file, overrides) {
            Ok(expected) => expected,
            // The run would meet them, too.
            Err(error @ ProbeError::Data(_)) => return Err(NotStarted::failed(error)),
            Err(stopped @ ProbeError::Stopped) => return Err(NotStarted::Interrupted(stopped.to_string())),
            Err(error) => {
                listener.say(&format!("no forecast of memory: {error}"));
                return Ok(());
            }
        };
        // Data that were generated or read for the first time may have taken more than training will.
        forecast::had_already(&mut expected, heap::read().peak, sources::rss_peak());
        let (fits, sentence) = fit::sentence(&expected, &self.rooms());
        self.plan.forecast = Some(expected);
        match fits {
            true => listener.detail(&format!("plan {sentence}")),
            false => listener.say(&format!(
                "plan {sentence}; `{} plan {} --solve {}`",
                invocation::program(),
                file.display(),
                self.plan.batch_key()
            )),
        }
        Ok(())
    }

    /// What bounds it here and now.
    pub fn rooms(&self) -> Vec<Room> {
        let device = (self.chosen.kind != Kind::Cpu).then_some(self.chosen.found.free).flatten();
        fit::rooms(&self.plan.experiment.limits, device)
    }

    /// What a few steps of the experiment need; remembered from an earlier time, or seen now.
    ///
    /// # Errors
    /// The probe gave no answer, or a signal came.
    pub fn probe(&self, file: &Path, overrides: &[String]) -> Result<Probe, ProbeError> {
        let known = remembered::recall(&self.probe_key());
        known.map_or_else(|| self.measure(file, overrides), Ok)
    }

    fn probe_key(&self) -> String {
        let facts = &self.plan.facts;
        // Memory does not depend on the values of what is made, and before it is made they are not known.
        let is_made = |name: &str| facts.made.as_ref().is_some_and(|made| made.name == name);
        let data: Vec<_> = facts.data_digests.iter().filter(|(name, _)| !is_made(name)).cloned().collect();
        remembered::key(&self.plan.experiment, &data, &self.chosen.found.name)
    }

    /// What a few steps of the experiment need, seen now.
    pub fn measure(&self, file: &Path, overrides: &[String]) -> Result<Probe, ProbeError> {
        let planned = if self.plan.facts.steps_are_known { self.plan.steps } else { u64::MAX };
        let steps = self.plan.facts.probe_steps.min(planned);
        self.listener.say(&format!(
            "measuring memory: {}, for {} at most",
            counted(steps, "step"),
            probe::words_of_limit(&self.plan.experiment)
        ));
        let _measuring = self.listener.begin(Work::Measuring);
        let mut overrides = overrides.to_vec();
        overrides.extend(self.plan.facts.probe_overrides.iter().cloned());
        let stop = ScopedStopSignal::listen().map_err(ProbeError::Start)?;
        let probe = probe::probe(file, &overrides, &self.plan.experiment, steps, &|| stop.raised())?;
        remembered::keep(&self.probe_key(), &probe);
        Ok(probe)
    }

    /// The same without a task: a command does the work.
    pub fn without_task(self) -> Opened {
        let Self { plan, ledger, chosen, .. } = self;
        Opened { plan, ledger, chosen }
    }

    /// Opens the task. `first_step` is the first one that it will be asked for. The weights that training starts from are in it.
    ///
    /// # Errors
    /// The device has no memory for the model, or fails.
    pub fn open(self, first_step: u64) -> Result<(Opened, Box<dyn Task>), NotStarted> {
        let Self { mut plan, ledger, chosen, prepared, initial, .. } = self;
        // A backend may panic where a library of its driver is missing.
        let opened = panics::caught(|| {
            let mut task = prepared.open(&plan.experiment, chosen.kind, &ledger, first_step)?;
            if let Some(initial) = &initial {
                task.start_from(&initial.file)?;
            }
            Ok(task)
        });
        let task = opened.map_err(|panic| not_opened(&chosen, &panic))?.map_err(|error| match error {
            TaskError::Device(said) => not_opened(&chosen, &Panic::told(said)),
            other => NotStarted::failed(other),
        })?;
        of_made(&mut plan)?;
        Ok((Opened { plan, ledger, chosen }, task))
    }
}

/// Puts the digest of what the task makes first into the plan. Says whether it is there.
fn of_made(plan: &mut Plan) -> Result<bool, NotStarted> {
    let Some(made) = &plan.facts.made else { return Ok(false) };
    let Some(digest) = written_once::digest(&made.path).map_err(NotStarted::failed)? else { return Ok(false) };
    let name = made.name;
    plan.facts.data_digests.retain(|(other, _)| other != name);
    plan.facts.data_digests.push((name.to_owned(), digest));
    Ok(true)
}

/// At the start of a run as many broken items are named; `xrun check` names more.
const LEFT_OUT_NAMED: usize = 3;

/// What was left out of the data, a line each: how many by reason, and the first of them.
pub fn left_out(what: &str, left_out: &Broken, named: usize) -> Vec<String> {
    if left_out.total() == 0 {
        return Vec::new();
    }
    let mut lines = vec![format!("{what}: {} left out: {}", left_out.total(), left_out.by_reason())];
    lines.extend(left_out.first.iter().take(named).map(|item| format!("  {}", item.error)));
    match left_out.total().saturating_sub(named.min(left_out.first.len()) as u64) {
        0 => {}
        more => lines.push(format!("  and {more} more")),
    }
    lines
}

/// The device failed before the first step, by what was said. Without room for the model nothing was begun that could be
/// continued, so there is no post-mortem.
pub fn not_opened(chosen: &Chosen, panic: &Panic) -> NotStarted {
    match panic.cause() {
        Cause::OutOfMemory { asked } => {
            let page = asked.map_or_else(String::new, |bytes| format!("; a page of {} was refused", Bytes(bytes)));
            let memory = chosen.found.memory.zip(chosen.found.free);
            let memory = memory.map_or_else(String::new, |(all, free)| {
                format!("; {} of {} were free when the program began", Bytes(free), Bytes(all))
            });
            NotStarted::OutOfMemory(format!(
                "the device `{}` has no memory for the model{page}{memory}; other programs may use it (`nvidia-smi`), or \
                 the model is too large for it",
                chosen.kind
            ))
        }
        _ => NotStarted::Failed(format!("the device `{}` cannot be opened: {panic}", chosen.kind)),
    }
}

fn tuning(device: &DeviceUse) -> Tuning {
    match device.autotune {
        Autotune::Minimal => Tuning::Minimal,
        Autotune::Balanced => Tuning::Balanced,
        Autotune::Full => Tuning::Full,
    }
}

/// What is left beside an opened task.
pub struct Opened {
    /// What will happen, with every buffer.
    pub plan: Plan,
    /// Where buffers enter themselves.
    pub ledger: Ledger,
    /// The device, and why this one.
    pub chosen: Chosen,
}

impl Opened {
    /// The GPU in use, where its driver tells of it.
    pub fn gpu(&self) -> Option<GpuInUse> {
        let found = &self.chosen.found;
        let used_before = found.memory.zip(found.free).map(|(all, free)| all.saturating_sub(free));
        found.driver_number.map(|index| GpuInUse { index, used_before })
    }
}
