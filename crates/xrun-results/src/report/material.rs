//! What do the files of a run say, taken together, also when some of them are missing or damaged?

use std::path::{Path, PathBuf};

use super::ReportError;
use super::curves::{self, Curves};
use super::stages::{self, Stages};
use super::trace::{self, Trace};
use crate::format::{Manifest, MemorySummary, PlanFile, PlannedAndActual, PostMortem, Suggestion, Summary};
use crate::index;
use crate::index::RunState;
use crate::verdict::{Judgement, Verdict};
use crate::watched::Watched;
use crate::{named, read, resolved};
use xrun_core::bounded::ledger::{OWNERS_MAX, Policy};
use xrun_core::bounded::planned::Place;
use xrun_core::files::{layout, sums};
use xrun_core::units::Bytes;

/// A forecast that is off by less than this share needs no word.
const FAR_OFF: f64 = 0.1;

/// A run as its files tell it.
#[derive(Clone, Debug)]
pub struct Material {
    pub run: PathBuf,
    pub experiment: String,
    /// The folder's name.
    pub id: String,
    pub state: RunState,
    pub manifest: Option<Manifest>,
    pub plan: Option<PlanFile>,
    pub summary: Option<Summary>,
    pub verdict: Option<Verdict>,
    pub post_mortem: Option<PostMortem>,
    pub curves: Curves,
    pub trace: Trace,
    /// Steps that have a whole checkpoint.
    pub checkpoints: Vec<u64>,
    /// What could not be read, for people.
    pub damage: Vec<String>,
}

/// A buffer: its cap, and what it came to hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buffer {
    pub name: String,
    pub place: Option<Place>,
    pub policy: Option<Policy>,
    pub cap_bytes: Option<u64>,
    pub peak_bytes: Option<u64>,
    pub because: String,
}

impl Buffer {
    /// It has no cap: what is put into it stays.
    pub fn leaks(&self) -> bool {
        self.policy == Some(Policy::Leak)
    }

    /// Peak over cap.
    pub fn share(&self) -> Option<f64> {
        let cap = self.cap_bytes.filter(|&cap| cap > 0 && !self.leaks())?;
        Some(self.peak_bytes? as f64 / cap as f64)
    }
}

/// What a suggestion of a post-mortem would do.
pub fn effect(dead: &PostMortem, tip: &Suggestion) -> String {
    match tip.frees {
        0 if dead.limit_key.as_deref() == Some(&tip.key) => "would allow it, if it does not go on to grow".to_owned(),
        0 => "makes a step smaller, by how much was not measured".to_owned(),
        bytes => format!("would free {}", Bytes(bytes)),
    }
}

/// A part of the loop and the seconds spent in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Phase {
    pub name: String,
    pub seconds: f64,
    pub longest: Option<f64>,
    pub count: Option<u64>,
}

/// Reads a run's directory. Only a directory with neither manifest nor summary is refused; damaged files are left out
/// and named in `damage`.
pub fn gather(run: &Path) -> Result<Material, ReportError> {
    let entry = index::entry(run);
    let mut damage = Vec::new();
    let mut noted = |error: read::ReadError| damage.push(error.to_string());
    let manifest = read::manifest(run).map_err(&mut noted).ok();
    let summary = read::summary(run).map_err(&mut noted).ok().flatten();
    // A command has no plan.
    let watched = manifest.as_ref().is_some_and(|manifest| manifest.watched.is_some());
    let plan = read::plan(run)
        .map_err(|error| {
            if !(watched && error.is_missing()) {
                noted(error)
            }
        })
        .ok();
    let verdict = read::verdict(run).map_err(&mut noted).ok().flatten();
    let post_mortem = read::post_mortem(run).map_err(&mut noted).ok().flatten();
    for looked_at in [resolved::text_of(run).map(drop), read::pictures(run).map(drop)] {
        // That a file is not there is no damage: results are passed on without some of them.
        if let Err(error @ read::ReadError::Content { .. }) = looked_at {
            noted(error);
        }
    }
    if manifest.is_none() && summary.is_none() {
        // A newer format is worth its own message.
        if let Err(error @ read::ReadError::Newer { .. }) = read::manifest(run) {
            return Err(error.into());
        }
        return Err(ReportError::NotARun { path: run.display().to_string() });
    }
    let curves = curves::read(run, plan.as_ref().and_then(PlanFile::steps_known));
    let trace = trace::read(run);
    for (name, lines) in [("metrics.jsonl", curves.unreadable), ("memory.jsonl", trace.unreadable)] {
        if lines > 0 {
            damage.push(format!("{lines} lines of {name} are damaged and are left out"));
        }
    }
    damage.extend([&curves.failure, &trace.failure].into_iter().flatten().cloned());
    damage.extend([run.to_path_buf(), run.join(layout::EXPORT)].iter().flat_map(|folder| sums::damaged(folder)));
    let checkpoints = read::checkpoints(run).into_iter().map(|(step, _)| step).collect();
    let experiment = manifest.as_ref().map_or(entry.experiment, |manifest| manifest.experiment.clone());
    let run = run.to_path_buf();
    Ok(Material {
        run,
        experiment,
        id: entry.run,
        state: entry.state,
        manifest,
        plan,
        summary,
        verdict,
        post_mortem,
        curves,
        trace,
        checkpoints,
        damage,
    })
}

impl Material {
    /// The summary, unless the run goes on behind it.
    pub fn ending(&self) -> Option<&Summary> {
        self.summary.as_ref().filter(|_| self.state != RunState::Running)
    }

    pub fn steps(&self) -> Option<u64> {
        self.ending().map(|summary| summary.steps).or(self.curves.last_step).or(self.trace.last_step)
    }

    pub fn steps_planned(&self) -> Option<u64> {
        let planned = self.plan.as_ref().and_then(PlanFile::steps_known);
        planned.or(self.summary.as_ref().map(|summary| summary.steps_planned))
    }

    /// Memory by stage of the training; `None` where the pipeline has no stages, or its steps were not kept.
    pub fn stages(&self) -> Option<Stages> {
        let names = &self.plan.as_ref()?.stages;
        stages::read(&self.run, names).ok().filter(|stages| !stages.is_empty())
    }

    /// Seconds of work.
    pub fn seconds(&self) -> f64 {
        self.ending().map_or(self.trace.seconds, |summary| summary.seconds)
    }

    pub fn memory(&self) -> &MemorySummary {
        self.ending().map_or(&self.trace.peaks, |summary| &summary.memory)
    }

    /// Why it ended, or that it has not; for people.
    pub fn message(&self) -> String {
        match &self.state {
            RunState::Running => "still running: this run has not ended, and this is what was written so far".into(),
            RunState::Killed => "this run has not ended: its process is gone (killed, or the machine went down)".into(),
            RunState::Unreadable(why) => format!("a record is damaged: {why}"),
            RunState::Ended(_) => self.summary.as_ref().map_or(String::new(), |summary| summary.message.clone()),
        }
    }

    /// All buffers, the largest first.
    pub fn buffers(&self) -> Vec<Buffer> {
        let mut buffers: Vec<Buffer> = Vec::new();
        let at = |name: &str, buffers: &mut Vec<Buffer>| match buffers.iter().position(|buffer| buffer.name == name) {
            Some(at) => Some(at),
            None if buffers.len() < 2 * OWNERS_MAX => {
                let name = name.to_owned();
                let because = String::new();
                buffers.push(Buffer { name, place: None, policy: None, cap_bytes: None, peak_bytes: None, because });
                Some(buffers.len() - 1)
            }
            None => None,
        };
        for owner in self.plan.iter().flat_map(|plan| &plan.owners) {
            if let Some(at) = at(&owner.name, &mut buffers) {
                let buffer = &mut buffers[at];
                (buffer.place, buffer.policy) = (Some(owner.place), Some(owner.policy));
                buffer.cap_bytes = Some(owner.bytes);
                buffer.because.clone_from(&owner.because);
            }
        }
        for owner in self.summary.iter().flat_map(|summary| &summary.owners) {
            if let Some(at) = at(&owner.name, &mut buffers) {
                let buffer = &mut buffers[at];
                (buffer.policy, buffer.cap_bytes) = (Some(owner.policy), Some(owner.cap_bytes));
                buffer.peak_bytes = Some(owner.peak_bytes);
            }
        }
        // Of a run that was killed there are samples alone, taken while nothing went on: a buffer that was empty in all of them
        // may have held anything in between.
        for (name, &peak) in self.trace.owner_names.iter().zip(&self.trace.owner_peaks) {
            if let Some(at) = at(name, &mut buffers) {
                buffers[at].peak_bytes = buffers[at].peak_bytes.max(Some(peak).filter(|peak| *peak > 0));
            }
        }
        buffers.sort_by(|a, b| b.peak_bytes.cmp(&a.peak_bytes).then_with(|| a.name.cmp(&b.name)));
        buffers
    }

    /// Processes that worked on it: one, and one for each resume.
    pub fn processes(&self) -> usize {
        self.manifest.as_ref().map_or(1, |manifest| manifest.resumed.len() + 1)
    }

    /// ` (last process)` behind what a summary knows only of that one.
    pub fn of_last_process(&self) -> &'static str {
        if self.processes() > 1 { " (last process)" } else { "" }
    }

    /// Samples of all processes, and the seconds that they took; of the last one where there is no trace.
    pub fn samples(&self) -> (u64, f64) {
        let of = match self.trace.peaks.samples {
            0 => self.memory(),
            _ => &self.trace.peaks,
        };
        (of.samples, of.trace_seconds)
    }

    /// Parts of the loop, the slowest first. A summary has those of the last process, so those of a resumed run come from its
    /// trace, if it has one.
    pub fn phases(&self) -> Vec<Phase> {
        let from_trace = self.processes() > 1 && !self.trace.phases.is_empty();
        let mut phases: Vec<Phase> = match self.ending().filter(|_| !from_trace) {
            Some(summary) if !summary.phases.is_empty() => summary
                .phases
                .iter()
                .map(|phase| Phase {
                    name: phase.name.clone(),
                    seconds: phase.seconds,
                    longest: Some(phase.longest),
                    count: Some(phase.count),
                })
                .collect(),
            _ => (self.trace.phases.iter())
                .map(|(name, &seconds)| Phase { name: name.clone(), seconds, longest: None, count: None })
                .collect(),
        };
        phases.sort_by(|a, b| b.seconds.total_cmp(&a.seconds).then_with(|| a.name.cmp(&b.name)));
        phases
    }

    /// Why the forecast was far off, where the verdict says it: a forecast counts buffers, and what grew is in none.
    pub fn not_forecast(&self) -> Option<&'static str> {
        let verdict = self.verdict.as_ref()?;
        let grew = (Judgement::Suspect..=Judgement::Growing).contains(&verdict.verdict) && verdict.owner.is_none();
        let too_low = |pair: &PlannedAndActual| pair.error.is_some_and(|error| error < -FAR_OFF);
        let far_off = self.ending()?.plan_and_actual.iter().any(too_low);
        (grew && far_off).then_some("growth outside the ledger is not forecast: no buffer of the plan holds what grew")
    }

    /// How it was watched, of a command that `xrun watch` ran.
    pub fn watched(&self) -> Option<&Watched> {
        self.manifest.as_ref()?.watched.as_ref()
    }

    /// What the trace has as heap in use: of a command it is what its processes hold that is no file.
    pub fn in_use(&self) -> &'static str {
        if self.watched().is_some() { "held, without files" } else { "heap" }
    }

    /// As every command understands it.
    pub fn name(&self) -> String {
        named::run(&self.run, &self.experiment)
    }

    /// Whether `xrun resume` can go on with it. Not where the data could not be used: mended, they are other data.
    pub fn resumable(&self) -> bool {
        if self.ending().is_some_and(|summary| summary.of_data) {
            return false;
        }
        if self.watched().is_some() {
            return false;
        }
        let ended_so = match &self.state {
            RunState::Ended(outcome) => outcome.resumable(),
            RunState::Killed => true,
            RunState::Running | RunState::Unreadable(_) => false,
        };
        // Without a checkpoint it begins again, and stays one run.
        ended_so && self.manifest.is_some()
    }
}
