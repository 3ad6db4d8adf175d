//! Measurements of a run of a sweep, read from its directory, also where it did not finish.

use std::collections::BTreeMap;
use std::path::Path;

use super::record::run_directory;
use super::run_status::RunStatus;
use super::search::progress::{RunStage, stage};
use super::trials::RunId;
use crate::records::sweep::{Measured, Measurements, Process};
use xrun_core::settings::sections::CleanupAction;
use xrun_core::task::metric::Direction;
use xrun_results::format::{Outcome, Peaks, PlanFile, SamplePoint, Summary};
use xrun_results::read;
use xrun_results::verdict::FOOTPRINT;

/// State of a run in the queue of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queued {
    /// It waits for a node.
    Waiting,
    /// It runs.
    Running,
}

/// Memory over all processes of a run, and the steps of the newest one.
#[derive(Default)]
struct Trace {
    memory: Measurements<u64, f64>,
    /// The newest process; its first step and its last.
    segment: u32,
    first_step: Option<u64>,
    last_step: Option<u64>,
    damage: Option<String>,
}

/// The outcome of a run that waits at a rung.
const AT_RUNG: &str = "stopped at a rung";

/// Measures a run. `rungs` are those of method `asha`, and empty otherwise; `process` is its last one; `queued` counts while the
/// run is not done.
pub fn measure(sweep: &Path, run: RunId, process: Option<&Process>, queued: Option<Queued>, rungs: &[u64]) -> Measured {
    let directory = run_directory(sweep, run);
    let stopped_well = stage(&directory, rungs) == RunStage::Waits;
    // With a job in the queue it continues.
    let at_rung = stopped_well && queued.is_none();
    let status = RunStatus::read(&directory);
    let summed = read::summary(&directory);
    let summary = summed.as_ref().ok().cloned().flatten().filter(|_| status != RunStatus::Running);
    let plan = read::plan(&directory);
    let planned = summary.as_ref().map(|summary| summary.steps_planned);
    let planned = planned.or_else(|| plan.as_ref().ok().map(|plan| plan.steps));
    let trace = trace(&directory, planned.unwrap_or_default());
    let verdict = read::verdict(&directory);
    // A damaged record is not measured.
    let errors = [summed.as_ref().err(), verdict.as_ref().err(), plan.as_ref().err()];
    let damage = errors.into_iter().flatten().find(|error| !error.is_missing()).map(ToString::to_string);
    let damage = damage.or_else(|| trace.damage.clone());
    let verdict = verdict.ok().flatten();
    let slope = |name: &str| {
        let series = verdict.as_ref()?.series.iter().find(|one| one.name == name)?;
        series.findings.slope
    };
    let steps = summary.as_ref().map(|summary| summary.steps).or(trace.last_step);
    // A run of method `asha` is resumed at each rung that it passes.
    let promotions = rungs.iter().filter(|rung| steps.is_some_and(|steps| **rung < steps)).count();
    let resumes = read::manifest(&directory).map_or(0, |manifest| manifest.resumed.len());
    // A process that was killed after its summary finished its run; and the last one may not be in the list of processes,
    // when the sweep was killed before it.
    // A run that stopped at its rung succeeded.
    let exit_code = summary.as_ref().map(|summary| if stopped_well { 0 } else { i32::from(summary.exit_code) });
    let outcome = if at_rung { AT_RUNG.to_owned() } else { outcome(status, summary.as_ref(), process, queued) };
    Measured {
        run: run.to_string(),
        repeat: run.repeat,
        finished: matches!(status, RunStatus::Done(outcome) if outcome.is_complete()) && damage.is_none(),
        at_rung: at_rung && damage.is_none(),
        interrupted: resumes > promotions,
        outcome: damage.as_ref().map_or(outcome, |_| "damaged".to_owned()),
        exit_code: exit_code.or_else(|| process.and_then(|process| process.exit_code)),
        signal: process.and_then(|process| process.signal).filter(|_| exit_code.is_none()),
        message: damage
            // At a memory limit the message of the process says whether the run was retried, and why not.
            .or_else(|| process.filter(|_| status == RunStatus::Done(Outcome::MemoryLimit))?.message.clone())
            .or_else(|| summary.as_ref().map(|summary| summary.message.clone()))
            .or_else(|| process.and_then(|process| process.message.clone())),
        steps,
        seconds: summary.as_ref().map(|summary| summary.seconds),
        measurements: Measurements {
            steps_per_second: summary.as_ref().and_then(|summary| speed(summary, &trace)),
            cleanup_seconds: summary.as_ref().map(cleanup_seconds),
            rss_peak: trace.memory.rss_peak.max(summary.as_ref().and_then(|summary| summary.memory.rss_peak)),
            growth: [slope("heap"), slope(FOOTPRINT), slope("device_in_use")].into_iter().flatten().reduce(f64::max),
            ..trace.memory
        },
        verdict: verdict.as_ref().map(|verdict| verdict.verdict),
        training: summary.as_ref().and_then(|summary| Some(summary.training.as_ref()?.verdict)),
        best_by: best_by(summary.as_ref(), plan.as_ref().ok()),
        losses: summary.as_ref().map(|summary| summary.losses.clone()).unwrap_or_default(),
        figures: summary.as_ref().map(figures).unwrap_or_default(),
        metrics: summary.map(|summary| summary.metrics_last).unwrap_or_default(),
    }
}

/// Further measurements by name.
fn figures(summary: &Summary) -> BTreeMap<String, f64> {
    let mut figures = BTreeMap::new();
    for part in &summary.plan_and_actual {
        figures.insert(format!("planned.{}", part.name), part.planned as f64);
        figures.insert(format!("actual.{}", part.name), part.actual as f64);
    }
    let demand = &summary.demand;
    for (name, bytes) in [("start", demand.heap_at_start), ("step", demand.step), ("validation", demand.validation)] {
        figures.insert(format!("part.{name}"), bytes as f64);
    }
    figures.extend(summary.owners.iter().map(|owner| (format!("owner.{}", owner.name), owner.peak_bytes as f64)));
    let kinds = demand.step_kinds.iter();
    figures.extend(kinds.map(|(kind, bytes)| (format!("step.{kind}"), *bytes as f64)));
    figures.extend(demand.validation_left.map(|bytes| ("validation_left".to_owned(), bytes as f64)));
    let phases = summary.phases.iter().filter(|phase| phase.count > 0);
    figures.extend(phases.map(|phase| (format!("phase.{}", phase.name), phase.seconds / phase.count as f64)));
    figures
}

/// The metric by which a checkpoint is best.
fn best_by(summary: Option<&Summary>, plan: Option<&PlanFile>) -> Option<(String, Option<Direction>)> {
    let planned = plan.and_then(|plan| plan.best_by.as_ref());
    let name = planned.or_else(|| Some(&summary?.best.as_ref()?.metric))?;
    let metric = plan.and_then(|plan| plan.metrics.iter().find(|metric| metric.name == *name));
    Some((name.clone(), metric.and_then(|metric| metric.direction)))
}

fn outcome(status: RunStatus, summary: Option<&Summary>, process: Option<&Process>, queued: Option<Queued>) -> String {
    let words = match (status, process) {
        (RunStatus::Done(outcome), _) => outcome.label(),
        (RunStatus::Running, _) => "running",
        _ if queued == Some(Queued::Running) => "running",
        _ if queued == Some(Queued::Waiting) => "waiting",
        (RunStatus::Unfinished, _) if summary.is_some() => Outcome::Interrupted.label(),
        (RunStatus::Unfinished, _) => "killed",
        (RunStatus::NotStarted, Some(process)) if process.signal.is_some() => "killed",
        (RunStatus::NotStarted, Some(_)) => "failed",
        (RunStatus::NotStarted, None) => "not run",
    };
    words.to_owned()
}

fn cleanup_seconds(summary: &Summary) -> f64 {
    // Not `sum`, which is -0 for an empty list.
    summary
        .phases
        .iter()
        .filter(|phase| phase.name.starts_with(CleanupAction::PHASES))
        .map(|phase| phase.seconds)
        .fold(0.0, |all, seconds| all + seconds)
}

/// Steps per second, with the time of cleanups, which the summary's speed excludes.
fn speed(summary: &Summary, trace: &Trace) -> Option<f64> {
    let steps = summary.steps.checked_sub(trace.first_step?)? as f64;
    let training = steps / summary.steps_per_second?;
    let seconds = training + cleanup_seconds(summary);
    (steps > 0.0 && seconds > 0.0).then(|| steps / seconds)
}

fn trace(directory: &Path, planned: u64) -> Trace {
    let (mut trace, mut peaks) = (Trace::default(), Peaks::default());
    let Ok(lines) = read::memory(directory) else { return trace };
    for line in lines {
        let line = match line {
            Ok(line) => line,
            // What follows could not be trusted either.
            Err(error) => {
                trace.damage = Some(error.to_string());
                break;
            }
        };
        if trace.first_step.is_none() || line.segment != trace.segment {
            (trace.segment, trace.first_step) = (line.segment, Some(line.step));
        }
        trace.last_step = trace.last_step.max(Some(line.step));
        peaks.add(&line);
        let memory = &mut trace.memory;
        (memory.heap_peak, memory.rss_peak) = (Some(peaks.heap), peaks.rss);
        (memory.device_in_use_peak, memory.device_reserved_peak) = (peaks.device_in_use, peaks.device_reserved);
        if line.point == SamplePoint::Step && line.step * 2 >= planned {
            lower(&mut memory.heap_floor, Some(line.host.heap));
            lower(&mut memory.rss_floor, line.host.rss);
            lower(&mut memory.device_in_use_floor, line.device.map(|pool| pool.in_use));
            lower(&mut memory.device_reserved_floor, line.device.map(|pool| pool.reserved));
        }
    }
    trace
}

fn lower(floor: &mut Option<u64>, bytes: Option<u64>) {
    *floor = floor.iter().copied().chain(bytes).min();
}
