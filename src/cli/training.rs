//! What do running and resuming share? From a checked experiment to an open task, and from an ending to an answer.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use super::terminal::{Failure, Terminal};
use super::{Display, Progress, progress, resume};
use crate::data;
use crate::data::error::Broken;
use crate::device::kernels::Kernels;
use crate::device::{self, Chosen, Kind, Tuning, pages};
use crate::experiment::sections::{Autotune, DeviceUse};
use crate::experiment::{Experiment, resolved};
use crate::memory::ledger::Ledger;
use crate::memory::sources::GpuInUse;
use crate::memory::{heap, sources};
use crate::panics::words::Cause;
use crate::panics::{self, Panic};
use crate::pipelines::{self, Prepared};
use crate::plan::fit::{self, Room};
use crate::plan::{self, Plan, forecast};
use crate::probe::{self, Probe, ProbeError, remembered};
use crate::results::format::{Forecast, LoopState, Outcome, PoolPage, Summary};
use crate::results::{printable, read};
use crate::run::fingerprint::fingerprint;
use crate::run::launch::{self, Launch};
use crate::run::start::Aside;
use crate::run::stop::{Ending, ForAWhile, StopSignal, exit_code};
use crate::run::{directory, limits, manifest, post_mortem};
use crate::task::{Task, TaskError};
use crate::units::{Bytes, counted, seconds};
use crate::{report, results::layout};

/// An experiment with its data looked at and its device chosen.
pub struct Planned {
    pub plan: Plan,
    pub ledger: Ledger,
    pub chosen: Chosen,
    /// Where the device's kernels are kept, if it compiles any and they can be.
    pub kernels: Option<Kernels>,
    prepared: Prepared,
    terminal: Terminal,
}

impl Planned {
    /// Chooses the device and looks at the data.
    pub fn new(mut experiment: Experiment, terminal: Terminal) -> Result<Self, Failure> {
        // Who starts a run is no part of it.
        experiment.launcher = None;
        let chosen = device::choose(&experiment.experiment.device).map_err(Failure::failed)?;
        terminal.detail(&format!("device {}: {}, {}", chosen.kind, chosen.found.name, chosen.because));
        if let Some(missing) = &chosen.instead_of {
            terminal.say(&format!("on the CPU, since the GPU cannot be used: {missing}"));
        }
        let kernels = kept_kernels(&chosen, &experiment.device, terminal);
        let ledger = Ledger::default();
        let begun = Instant::now();
        let pending = experiment.dataset.as_ref().and_then(data::pending);
        data::known::tell(move |word| terminal.say(word));
        if let Some(what) = &pending {
            terminal.say(&format!("data: generating {what}"));
        }
        let waiting = pending.as_ref().and_then(|_| progress::waiting(terminal, "generating data"));
        let prepared = pipelines::prepare(&experiment, &ledger);
        drop(waiting);
        let (facts, prepared) = prepared.map_err(Failure::failed)?;
        if pending.is_some() {
            terminal.say(&format!("data: generated in {}", seconds(begun.elapsed().as_secs_f64())));
        }
        // Data that were generated or read for the first time leave free pages behind, which training would come on top of.
        heap::return_free_pages();
        tell_left_out("data", &facts.data_left_out, LEFT_OUT_NAMED, terminal);
        for smaller in &facts.smaller {
            terminal.say(&smaller.to_string());
        }
        let plan = plan::resolve(experiment, facts);
        let plan = if chosen.kind.has_pool() { plan.with_pool(pool_pages(&chosen)) } else { plan };
        Ok(Self { plan, ledger, chosen, kernels, prepared, terminal })
    }

    /// Puts into the plan what memory the experiment will need; gives it and the number of parameters.
    pub fn forecast(&mut self, file: &Path, overrides: &[String]) -> Result<(Forecast, u64), ProbeError> {
        let probe = self.probe(file, overrides)?;
        let planned = self.plan.to_file(probe.parameters);
        let forecast = forecast::forecast(&planned, &self.plan.experiment, &probe.demand);
        self.plan.forecast = Some(forecast.clone());
        Ok((forecast, probe.parameters))
    }

    /// Puts into the plan what memory the run will need, if the experiment asks for that. A probe that fails stops
    /// nothing: the run will say why better.
    ///
    /// # Errors
    /// A signal came while it was measured.
    pub fn expect(&mut self, file: &Path, overrides: &[String], terminal: Terminal) -> Result<(), Failure> {
        if !self.plan.experiment.memory.probe {
            return Ok(());
        }
        let (mut expected, _) = match self.forecast(file, overrides) {
            Ok(expected) => expected,
            Err(stopped @ ProbeError::Stopped) => return Err(stopped.into()),
            Err(error) => {
                terminal.say(&format!("no forecast of memory: {error}"));
                return Ok(());
            }
        };
        // Data that were generated or read for the first time may have taken more than training will.
        forecast::had_already(&mut expected, heap::read().peak, sources::resident_parts().peak);
        let (fits, sentence) = fit::sentence(&expected, &self.rooms());
        self.plan.forecast = Some(expected);
        match fits {
            true => terminal.detail(&format!("plan {sentence}")),
            false => {
                terminal.say(&format!("plan {sentence}; `xrun plan {} --solve limits.batch_size`", file.display()))
            }
        }
        Ok(())
    }

    /// What bounds it here and now.
    pub fn rooms(&self) -> Vec<Room> {
        let device = (self.chosen.kind != Kind::Cpu).then_some(self.chosen.found.free).flatten();
        fit::rooms(&self.plan.experiment.limits, device)
    }

    /// What a few steps of the experiment need; remembered from an earlier time, or seen now.
    fn probe(&self, file: &Path, overrides: &[String]) -> Result<Probe, ProbeError> {
        let known = remembered::recall(&self.probe_key());
        known.map_or_else(|| self.measure(file, overrides), Ok)
    }

    fn probe_key(&self) -> String {
        remembered::key(&self.plan.experiment, &self.plan.facts.data_digests, &self.chosen.found.name)
    }

    /// What a few steps of the experiment need, seen now.
    pub fn measure(&self, file: &Path, overrides: &[String]) -> Result<Probe, ProbeError> {
        let steps = self.plan.facts.probe_steps.min(self.plan.steps);
        self.terminal.say(&format!("measuring memory: {}", counted(steps, "step")));
        let _measuring = progress::measuring(self.terminal, self.kernels.clone());
        let mut overrides = overrides.to_vec();
        overrides.extend(self.plan.facts.probe_overrides.iter().cloned());
        let compiled = || self.kernels.as_ref().map_or(0, Kernels::new_ones);
        let before = compiled();
        let stop = ForAWhile::listen().map_err(ProbeError::Start)?;
        let stopped = || stop.raised();
        let mut probe = probe::probe(file, &overrides, &self.plan.experiment, steps, &stopped)?;
        // The compiler keeps what it compiled until its process ends, and tuning tries what training does not need: a probe
        // that did either says more than the run will take.
        if compiled() > before {
            probe = probe::probe(file, &overrides, &self.plan.experiment, steps, &stopped)?;
        }
        remembered::keep(&self.probe_key(), &probe);
        Ok(probe)
    }

    /// Opens the task. `first_step` is the first one that it will be asked for.
    pub fn open(self, first_step: u64) -> Result<(Opened, Box<dyn Task>), Failure> {
        let Self { plan, ledger, chosen, kernels, prepared, .. } = self;
        // A backend may panic where a library of its driver is missing.
        let opened = panics::caught(|| pipelines::open(&plan, prepared, &chosen, &ledger, first_step));
        let task = opened.map_err(|panic| not_opened(&chosen, &panic))?.map_err(|error| match error {
            TaskError::Device(said) => not_opened(&chosen, &Panic::told(said)),
            other => Failure::failed(other),
        })?;
        Ok((Opened { plan, ledger, chosen, kernels }, task))
    }
}

/// At the start of a run as many broken items are named; `xrun check` names more.
const LEFT_OUT_NAMED: usize = 3;

/// What was left out of the data: how many by reason, and the first of them.
pub fn tell_left_out(where_: &str, left_out: &Broken, named: usize, terminal: Terminal) {
    if left_out.total() == 0 {
        return;
    }
    terminal.say(&format!("{where_}: {} left out: {}", left_out.total(), left_out.by_reason()));
    for item in left_out.first.iter().take(named) {
        terminal.say(&format!("  {}", item.error));
    }
    match left_out.total().saturating_sub(named.min(left_out.first.len()) as u64) {
        0 => {}
        more => terminal.say(&format!("  and {more} more")),
    }
}

/// The device failed before the first step, by what was said. Without room for the model nothing was begun that could be
/// continued, so there is no post-mortem.
pub fn not_opened(chosen: &Chosen, panic: &Panic) -> Failure {
    match panic.cause() {
        Cause::OutOfMemory { asked } => {
            let pages = pool_pages(chosen);
            if let Some(words) = asked.and_then(|bytes| limits::larger_than_a_page(bytes, &pages)) {
                return Failure::OutOfMemory(words);
            }
            let page = asked.map_or_else(String::new, |bytes| format!("; a page of {} was refused", Bytes(bytes)));
            let memory = chosen.found.memory.zip(chosen.found.free);
            let memory = memory.map_or_else(String::new, |(all, free)| {
                format!("; {} of {} were free when the program began", Bytes(free), Bytes(all))
            });
            Failure::OutOfMemory(format!(
                "the device `{}` has no memory for the model{page}{memory}; other programs may use it (`nvidia-smi`), or \
                 the model is too large for it",
                chosen.kind
            ))
        }
        _ => Failure::Failed(format!("the device `{}` cannot be opened: {panic}", chosen.kind)),
    }
}

/// Where the device's kernels are kept. Before the device is opened: it is not asked again.
fn kept_kernels(chosen: &Chosen, device: &DeviceUse, terminal: Terminal) -> Option<Kernels> {
    let mut kernels = Kernels::of(&data::cache::folder(), &chosen.found)?;
    let prepared = kernels.prepare();
    let tuning = match device.autotune {
        Autotune::Minimal => Tuning::Minimal,
        Autotune::Balanced => Tuning::Balanced,
        Autotune::Full => Tuning::Full,
    };
    let ours = device::cuda::keep_kernels(prepared.is_ok().then(|| kernels.folder()), tuning);
    match prepared {
        _ if !ours => terminal.detail("a file of CubeCL's own (cubecl.toml) says where kernels are kept"),
        Err(why) => terminal.say(&format!("kernels are not kept, every start compiles them anew: {why}")),
        Ok(()) => {
            if !kernels.damaged.is_empty() {
                terminal
                    .say(&format!("kernels that were kept were damaged, and are compiled anew: {:?}", kernels.damaged));
            }
            return Some(kernels);
        }
    }
    None
}

/// The pages of the device's pool, where they are known.
fn pool_pages(chosen: &Chosen) -> Vec<PoolPage> {
    let pages = match (chosen.kind, chosen.found.memory) {
        (Kind::Cuda(_), Some(memory)) => pages::of_cuda(memory),
        _ => Vec::new(),
    };
    pages.into_iter().map(|page| PoolPage { bytes: page.bytes, tensor_max: page.tensor_max }).collect()
}

/// What is left beside an opened task.
pub struct Opened {
    pub plan: Plan,
    pub ledger: Ledger,
    pub chosen: Chosen,
    pub kernels: Option<Kernels>,
}

impl Opened {
    /// The GPU in use, where its driver tells of it.
    pub fn gpu(&self) -> Option<GpuInUse> {
        let found = &self.chosen.found;
        let used_before = found.memory.zip(found.free).map(|(all, free)| all.saturating_sub(free));
        found.driver_number.map(|index| GpuInUse { index, used_before })
    }
}

/// Where the directory of a run is made.
pub enum Place<'a> {
    /// Below these results, as the newest of its experiment.
    Results(&'a Path),
    /// Below these results, apart from the runs of its experiment.
    Reproductions(&'a Path),
    /// Exactly this folder.
    Folder(&'a Path),
}

/// A run that begins: where its directory is made, and what is written there as it was given.
pub struct NewRun<'a> {
    pub place: Place<'a>,
    /// The author's file.
    pub text: &'a [u8],
    pub origins: &'a BTreeMap<String, String>,
    /// Ends the run after this many steps, with the plan of all of them.
    pub stop_after: Option<u64>,
}

impl NewRun<'_> {
    /// Makes the directory and trains; returns the directory and the exit code.
    pub fn train(
        &self,
        opened: Opened,
        task: Box<dyn Task>,
        started: Instant,
        display: &Display,
        terminal: Terminal,
    ) -> Result<(PathBuf, u8), Failure> {
        let plan = &opened.plan;
        let resolved = resolved::to_toml(&plan.experiment, None);
        let fingerprint = fingerprint(plan);
        // Until here a signal ends the program as it ends any other.
        let stop = listen(display, terminal)?;
        let name = &plan.experiment.experiment.name;
        let now = manifest::time();
        let directory = match self.place {
            Place::Folder(path) => directory::create_at(path),
            Place::Results(results) => directory::create(results, name, &fingerprint, now),
            Place::Reproductions(results) => {
                directory::create(&results.join(name), layout::REPRODUCTIONS, &fingerprint, now)
            }
        };
        let directory = directory.map_err(Failure::failed)?;
        let command = manifest::command();
        let kernels = opened.kernels.as_ref();
        let manifest =
            manifest::manifest(plan, &directory.id, &fingerprint, &opened.chosen, kernels, &command, self.origins);
        launch::describe(&directory.path, self.text, &resolved, &manifest, plan, task.parameters())
            .map_err(Failure::failed)?;
        let launch = Launch {
            plan,
            ledger: &opened.ledger,
            directory: &directory,
            state: LoopState { run: manifest.whose(), fingerprint, ..LoopState::default() },
            segment: 0,
            gpu: opened.gpu(),
            kernels: opened.kernels.clone(),
            tell: None,
            started,
            stop_after: self.stop_after,
        };
        let code = train(launch, task, &stop, display, terminal);
        Ok((directory.path.clone(), code))
    }
}

/// What the first signal is answered with, at once.
const STOPPING: &str = "\nstopping: the run ends after the step or validation that goes on, with a checkpoint; a second signal ends it at once\n";

/// From now on the first signal asks to stop in good order, and people read at once that it was heard.
pub fn listen(display: &Display, terminal: Terminal) -> Result<StopSignal, Failure> {
    let for_people = !terminal.quiet && !matches!(display.progress, Progress::Json | Progress::None);
    let stop = if for_people { StopSignal::listen_and_say(STOPPING) } else { StopSignal::listen() };
    stop.map_err(Failure::failed)
}

/// Trains, writes the report, says how it ended.
pub fn train(
    mut launch: Launch<'_>,
    task: Box<dyn Task>,
    stop: &StopSignal,
    display: &Display,
    terminal: Terminal,
) -> u8 {
    let run = launch.directory.path.clone();
    let stops_early = launch.stop_after.is_some();
    let mut observer = progress::observer(display.progress, terminal);
    let (aside, shown) = (observer.aside(), display.clone());
    launch.tell = Some(Arc::new(move |what: Aside<'_>| {
        if let Some(aside) = &aside {
            aside(what.clone());
        }
        if let Aside::Ended { ending, run } = what {
            tell(run, ending, false, &shown, terminal);
        }
    }));
    let ending = launch.train(task, stop, observer.as_mut());
    drop(observer);
    let reported = report::write(&run);
    let as_asked = stops_early && ending.outcome == Outcome::Interrupted && !stop.raised();
    tell(&run, &ending, as_asked, display, terminal);
    match (reported, if as_asked { 0 } else { ending.exit_code() }) {
        (Err(error), code) => {
            terminal.error(&format!("the report cannot be written: {error}; `xrun report` does it later"));
            if code == 0 { exit_code(Outcome::Failed) } else { code }
        }
        (Ok(damage), code) => {
            // Of what processes before this one wrote.
            damage.iter().for_each(|damage| terminal.say(&format!("damaged: {damage}")));
            if code == 0 && !terminal.events {
                terminal.say(&format!("report: {}", run.join(layout::REPORT).display()));
            }
            code
        }
    }
}

fn tell(run: &Path, ending: &Ending, as_asked: bool, display: &Display, terminal: Terminal) {
    let summary = read::summary(run).ok().flatten();
    match terminal.events {
        true => tell_programs(run, ending, as_asked, summary.as_ref(), terminal),
        false => tell_people(run, ending, as_asked, summary.as_ref(), terminal),
    }
    if display.json {
        terminal.json(&serde_json::json!({
            "run": run.display().to_string(),
            "outcome": ending.outcome,
            "exit_code": ending.exit_code(),
            "message": ending.message,
            "parameters": read::plan(run).ok().map(|plan| plan.parameters),
            "summary": summary,
        }));
    }
}

/// The last event of a stream of them.
fn tell_programs(run: &Path, ending: &Ending, as_asked: bool, summary: Option<&Summary>, terminal: Terminal) {
    let verdict = read::verdict(run).ok().flatten();
    let report = run.join(layout::REPORT);
    terminal.event(&serde_json::json!({
        "event": "ended", "time": manifest::now(), "run": run.display().to_string(),
        "outcome": ending.outcome, "exit_code": if as_asked { 0 } else { ending.exit_code() },
        "message": ending.message,
        "report": report.is_file().then(|| report.display().to_string()),
        "verdict": verdict.map(|found| serde_json::json!({ "verdict": found.verdict, "message": found.message })),
        "steps": summary.map(|summary| summary.steps),
        "seconds": summary.map(|summary| summary.seconds),
        "metrics_first": summary.map(|summary| &summary.metrics_first),
        "metrics_last": summary.map(|summary| &summary.metrics_last),
        "best": summary.and_then(|summary| summary.best.as_ref()),
    }));
}

fn tell_people(run: &Path, ending: &Ending, as_asked: bool, summary: Option<&Summary>, terminal: Terminal) {
    if let Some(summary) = summary {
        // What it was all for comes first.
        let plan = read::plan(run).ok();
        report::result::lines(run, summary, plan.as_ref()).iter().for_each(|line| terminal.say(line));
    }
    if let Ok(Some(verdict)) = read::verdict(run) {
        if let Ok(table) = report::epochs::table(run) {
            terminal.say(table.trim_end());
        }
        terminal.say(&format!("verdict {}: {}", verdict.verdict.words(), verdict.message));
    }
    if as_asked {
        terminal.say(&ending.message);
    } else if ending.exit_code() == 0 {
        let time = summary.map_or_else(String::new, |summary| format!(" in {}", seconds(summary.seconds)));
        terminal.say(&format!("{}{time}", ending.message));
    } else {
        terminal.error(&format!("{}: {}", ending.outcome.words(), ending.message));
        if ending.outcome.resumable() {
            let dead = read::post_mortem(run).ok().flatten().filter(|_| ending.outcome == Outcome::MemoryLimit);
            let with = dead.and_then(|dead| post_mortem::to_go_on(&dead, resume::may_change));
            let with = with.map_or_else(String::new, |with| format!(" {with}"));
            let run = printable::shell_word(&run.to_string_lossy());
            terminal.say(&format!("to continue: xrun resume {run}{with}"));
        }
    }
}
