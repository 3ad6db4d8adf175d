//! Contents of a run directory, read together, including one with missing or damaged files.

use std::path::{Path, PathBuf};

use super::ReportError;
use super::curves::{self, Curves};
use super::stages::{self, Stages};
use super::trace::{self, MemoryTrace};
use crate::explanation::Explanation;
use crate::format::{Manifest, MemorySummary, PlanFile, PlannedAndActual, PostMortem, Suggestion, Summary};
use crate::index;
use crate::index::RunState;
use crate::judge;
use crate::verdict::{LineDamage, TrainingVerdict, Verdict, VerdictWord};
use crate::watched::WatchSettings;
use crate::{read, resolved, run_name};
use xrun_core::bounded::ledger::{OWNERS_MAX, Policy};
use xrun_core::bounded::planned::MemoryKind;
use xrun_core::files::{layout, sums};
use xrun_core::units::{Bytes, pluralize};
use xrun_verdict::training::TrainingEnd;

/// Share of the training time up to which the cost of sampling needs no advice.
const SAMPLING_SHARE_MAX: f64 = 0.02;

/// Relative error from which a forecast needs an explanation.
const FAR_OFF: f64 = 0.1;

/// Contents of a run directory.
#[derive(Clone, Debug)]
pub struct RunReport {
    /// The run's directory.
    pub run: PathBuf,
    /// The experiment's name.
    pub experiment: String,
    /// The run's id: the name of its directory.
    pub id: String,
    /// State of the run.
    pub state: RunState,
    /// `manifest.json`.
    pub manifest: Option<Manifest>,
    /// `plan.json`.
    pub plan: Option<PlanFile>,
    /// `summary.json`.
    pub summary: Option<Summary>,
    /// `verdict.json`.
    pub verdict: Option<Verdict>,
    /// Verdict on training, as recorded or judged now.
    pub training: Option<TrainingVerdict>,
    /// `post_mortem.json`.
    pub post_mortem: Option<PostMortem>,
    /// `explanation.json`.
    pub explanation: Option<Explanation>,
    /// Curves of `metrics.jsonl`.
    pub curves: Curves,
    /// Memory over time, from `memory.jsonl`.
    pub trace: MemoryTrace,
    /// Steps that have a complete checkpoint.
    pub checkpoints: Vec<u64>,
    /// Files or lines that could not be read, for people.
    pub damage: Vec<String>,
}

/// Cap and peak of a buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BufferUsage {
    /// Name of the owner in the ledger.
    pub name: String,
    /// Host or device memory; `None` if the plan does not list the buffer.
    pub place: Option<MemoryKind>,
    /// Policy at the cap.
    pub policy: Option<Policy>,
    /// Cap in bytes.
    pub cap_bytes: Option<u64>,
    /// Peak in bytes; `None` if it was never measured.
    pub peak_bytes: Option<u64>,
    /// Reason for the cap, such as the key that sets it.
    pub because: String,
}

impl BufferUsage {
    /// Returns `true` if the buffer has no cap: an injected leak.
    pub fn is_leak(&self) -> bool {
        self.policy == Some(Policy::Leak)
    }

    /// Peak as a fraction of the cap.
    pub fn fraction_of_cap(&self) -> Option<f64> {
        let cap = self.cap_bytes.filter(|&cap| cap > 0 && !self.is_leak())?;
        Some(self.peak_bytes? as f64 / cap as f64)
    }
}

/// Describes the effect of a suggestion of a post-mortem.
pub fn suggestion_effect(post_mortem: &PostMortem, suggestion: &Suggestion) -> String {
    match suggestion.frees {
        0 if post_mortem.limit_key.as_deref() == Some(&suggestion.key) => {
            "would suffice unless memory keeps growing".to_owned()
        }
        0 => "would reduce the memory of a step (by how much was not measured)".to_owned(),
        bytes => format!("would free {}", Bytes(bytes)),
    }
}

/// Time of a part of the loop.
#[derive(Clone, Debug, PartialEq)]
pub struct PhaseTime {
    /// Name of the phase.
    pub name: String,
    /// Total time in seconds.
    pub seconds: f64,
    /// Longest time in seconds; `None` if only a trace is known.
    pub longest: Option<f64>,
    /// Number of times it was entered; `None` if only a trace is known.
    pub count: Option<u64>,
}

/// Reads a run directory. Only a directory with neither manifest nor summary is an error; damaged files are skipped
/// and listed in `damage`.
pub fn gather(run: &Path) -> Result<RunReport, ReportError> {
    let entry = index::entry(run);
    let mut damage = Vec::new();
    let mut note_error = |error: read::ReadError| damage.push(error.to_string());
    let manifest = read::manifest(run).map_err(&mut note_error).ok();
    let summary = read::summary(run).map_err(&mut note_error).ok().flatten();
    // A watched command has no plan.
    let watched = manifest.as_ref().is_some_and(|manifest| manifest.watched.is_some());
    let plan = read::plan(run)
        .map_err(|error| {
            if !(watched && error.is_missing()) {
                note_error(error)
            }
        })
        .ok();
    let verdict = read::verdict(run).map_err(&mut note_error).ok().flatten();
    let post_mortem = read::post_mortem(run).map_err(&mut note_error).ok().flatten();
    let explanation = read::explanation(run).map_err(&mut note_error).ok().flatten();
    for result in [resolved::read_text(run).map(drop), read::images(run).map(drop)] {
        // A missing file is no damage: results are often shared without some files.
        if let Err(error @ read::ReadError::Content { .. }) = result {
            note_error(error);
        }
    }
    if manifest.is_none() && summary.is_none() {
        // A newer format gets its own message.
        if let Err(error @ read::ReadError::Newer { .. }) = read::manifest(run) {
            return Err(error.into());
        }
        return Err(ReportError::NotARun { path: run.display().to_string() });
    }
    let curves = curves::read(run, plan.as_ref().and_then(PlanFile::known_steps));
    let trace = trace::read(run);
    for (name, lines) in [("metrics.jsonl", curves.damaged_lines), ("memory.jsonl", trace.damaged_lines)] {
        if lines > 0 {
            damage.push(format!("skipped {} of {name}", pluralize(lines, "damaged line")));
        }
    }
    damage.extend(line_damage(&curves, &trace).map(ToString::to_string));
    damage.extend([&curves.read_error, &trace.read_error].into_iter().flatten().cloned());
    damage.extend([run.to_path_buf(), run.join(layout::EXPORT)].iter().flat_map(|directory| sums::damaged(directory)));
    let ended = summary.as_ref().filter(|_| entry.state != RunState::Running);
    let training = ended.and_then(|summary| summary.training.clone()).or_else(|| {
        let end = match &entry.state {
            RunState::Running => None,
            RunState::Ended(outcome) => Some(judge::training_end(*outcome)),
            RunState::Killed | RunState::Unreadable(_) => Some(TrainingEnd::Interrupted),
        };
        judge::training(run, plan.as_ref(), end)
    });
    let checkpoints = read::checkpoints(run).unwrap_or_else(|error| {
        damage.push(error.to_string());
        Vec::new()
    });
    let checkpoints = checkpoints.into_iter().map(|(step, _)| step).collect();
    let experiment = manifest.as_ref().map_or(entry.experiment, |manifest| manifest.experiment.clone());
    let run = run.to_path_buf();
    Ok(RunReport {
        run,
        experiment,
        id: entry.run,
        state: entry.state,
        manifest,
        plan,
        summary,
        verdict,
        training,
        post_mortem,
        explanation,
        curves,
        trace,
        checkpoints,
        damage,
    })
}

fn line_damage<'a>(curves: &'a Curves, trace: &'a MemoryTrace) -> impl Iterator<Item = &'a LineDamage> {
    [&curves.line_damage, &trace.line_damage].into_iter().flatten()
}

impl RunReport {
    /// Files whose lines are not those that were written.
    pub fn line_damage(&self) -> impl Iterator<Item = &LineDamage> {
        line_damage(&self.curves, &self.trace)
    }

    /// The summary, unless the run was resumed and is still running.
    pub fn final_summary(&self) -> Option<&Summary> {
        self.summary.as_ref().filter(|_| self.state != RunState::Running)
    }

    /// Number of optimiser steps done.
    pub fn steps(&self) -> Option<u64> {
        self.final_summary().map(|summary| summary.steps).or(self.curves.last_step).or(self.trace.last_step)
    }

    /// Number of optimiser steps planned.
    pub fn steps_planned(&self) -> Option<u64> {
        let planned = self.plan.as_ref().and_then(PlanFile::known_steps);
        planned.or(self.summary.as_ref().map(|summary| summary.steps_planned))
    }

    /// Memory by stage of the training; `None` if the pipeline has no stages or the metrics are missing.
    pub fn stages(&self) -> Option<Stages> {
        let names = &self.plan.as_ref()?.stages;
        stages::read(&self.run, names).ok().filter(|stages| !stages.is_empty())
    }

    /// Working time in seconds.
    pub fn seconds(&self) -> f64 {
        self.final_summary().map_or(self.trace.seconds, |summary| summary.seconds)
    }

    /// Memory peaks, from the summary or from the trace.
    pub fn memory(&self) -> &MemorySummary {
        self.final_summary().map_or(&self.trace.peaks, |summary| &summary.memory)
    }

    /// Why the run ended, or that it has not ended, for people.
    pub fn message(&self) -> String {
        match &self.state {
            RunState::Running => "the run has not ended; these are the results so far".into(),
            RunState::Killed => "the process disappeared (kill -9, out of memory, or reboot)".into(),
            RunState::Unreadable(why) => format!("a record is damaged: {why}"),
            RunState::Ended(_) => self.summary.as_ref().map_or(String::new(), |summary| summary.message.clone()),
        }
    }

    /// All buffers, the largest first.
    pub fn buffers(&self) -> Vec<BufferUsage> {
        let mut buffers: Vec<BufferUsage> = Vec::new();
        let at =
            |name: &str, buffers: &mut Vec<BufferUsage>| match buffers.iter().position(|buffer| buffer.name == name) {
                Some(at) => Some(at),
                None if buffers.len() < 2 * OWNERS_MAX => {
                    let name = name.to_owned();
                    let because = String::new();
                    buffers.push(BufferUsage {
                        name,
                        place: None,
                        policy: None,
                        cap_bytes: None,
                        peak_bytes: None,
                        because,
                    });
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
        // A killed run has only samples, taken between steps: a buffer that was empty in all of them may have held
        // something in between.
        for (name, &peak) in self.trace.owner_names.iter().zip(&self.trace.owner_peaks) {
            if let Some(at) = at(name, &mut buffers) {
                buffers[at].peak_bytes = buffers[at].peak_bytes.max(Some(peak).filter(|peak| *peak > 0));
            }
        }
        buffers.sort_by(|a, b| b.peak_bytes.cmp(&a.peak_bytes).then_with(|| a.name.cmp(&b.name)));
        buffers
    }

    /// Number of processes of the run: one, and one for each resume.
    pub fn processes(&self) -> usize {
        self.manifest.as_ref().map_or(1, |manifest| manifest.resumed.len() + 1)
    }

    /// Suffix ` (last process)` for values that a summary has only of the last process of a resumed run.
    pub fn last_process_suffix(&self) -> &'static str {
        if self.processes() > 1 { " (last process)" } else { "" }
    }

    /// Number of samples of all processes and the seconds they took; from the summary if there is no trace.
    pub fn samples(&self) -> (u64, f64) {
        let memory = match self.trace.peaks.samples {
            0 => self.memory(),
            _ => &self.trace.peaks,
        };
        (memory.samples, memory.trace_seconds)
    }

    /// Advice where sampling took more of the time than [`SAMPLING_SHARE_MAX`].
    pub fn sampling_advice(&self) -> Option<&'static str> {
        self.memory().trace_share.filter(|share| *share > SAMPLING_SHARE_MAX)?;
        Some(match self.watched() {
            Some(_) => "a longer `--every` costs less",
            None => "a larger `memory.every_steps` costs less",
        })
    }

    /// Parts of the loop, the slowest first. A summary covers only the last process, so those of a resumed run come
    /// from its trace, if there is one.
    pub fn phases(&self) -> Vec<PhaseTime> {
        let from_trace = self.processes() > 1 && !self.trace.phases.is_empty();
        let mut phases: Vec<PhaseTime> = match self.final_summary().filter(|_| !from_trace) {
            Some(summary) if !summary.phases.is_empty() => summary
                .phases
                .iter()
                .map(|phase| PhaseTime {
                    name: phase.name.clone(),
                    seconds: phase.seconds,
                    longest: Some(phase.longest),
                    count: Some(phase.count),
                })
                .collect(),
            _ => (self.trace.phases.iter())
                .map(|(name, &seconds)| PhaseTime { name: name.clone(), seconds, longest: None, count: None })
                .collect(),
        };
        phases.sort_by(|a, b| b.seconds.total_cmp(&a.seconds).then_with(|| a.name.cmp(&b.name)));
        phases
    }

    /// Explanation of a forecast that was far too low, if the verdict has it: a forecast covers buffers, and the
    /// growth is in none.
    pub fn forecast_error_reason(&self) -> Option<&'static str> {
        let verdict = self.verdict.as_ref()?;
        let grew = (VerdictWord::Suspect..=VerdictWord::Growing).contains(&verdict.verdict) && verdict.owner.is_none();
        let too_low = |pair: &PlannedAndActual| pair.error.is_some_and(|error| error < -FAR_OFF);
        let far_off = self.final_summary()?.plan_and_actual.iter().any(too_low);
        (grew && far_off).then_some("the forecast does not cover growth outside the ledger: no planned buffer holds it")
    }

    /// Settings of `xrun watch`; `None` for an experiment.
    pub fn watched(&self) -> Option<&WatchSettings> {
        self.manifest.as_ref()?.watched.as_ref()
    }

    /// Label of the heap series: for a watched command it is the memory footprint of its processes.
    pub fn heap_label(&self) -> &'static str {
        if self.watched().is_some() { "footprint" } else { "heap" }
    }

    /// Name by which commands find the run.
    pub fn name(&self) -> String {
        run_name::run(&self.run, &self.experiment)
    }

    /// Returns `true` if `xrun resume` can continue the run. After an error in the data it cannot: corrected data are
    /// other data.
    pub fn resumable(&self) -> bool {
        if self.final_summary().is_some_and(|summary| summary.is_data_error) {
            return false;
        }
        if self.watched().is_some() {
            return false;
        }
        let ended_so = match &self.state {
            RunState::Ended(outcome) => outcome.is_resumable(),
            RunState::Killed => true,
            RunState::Running | RunState::Unreadable(_) => false,
        };
        // Without a checkpoint the run starts again in the same directory.
        ended_so && self.manifest.is_some()
    }
}
