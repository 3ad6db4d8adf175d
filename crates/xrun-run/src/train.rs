//! The training loop, from the first step to the last.
//!
//! ```text
//! validate the untrained model
//! for each step:  train -> write metrics -> sample memory -> validate if due -> clean if due -> save if due
//! ```
//! Reads top to bottom. The module `calendar` decides what is due after a step; only numbers are kept between steps.

use std::time::Instant;

use super::clock::{Clock, LOOP};
use super::learning_rate::{Steps, learning_rate};
use super::limits::LimitReached;
use super::observer::Event;
use super::session::Session;
use super::timer::ValidationPhases;
use super::{RunError, checkpoint, early_stopping, images, ladder};
use crate::memory::sources;
use crate::plan::Plan;
use crate::plan::calendar::{Due, due};
use crate::stop::Ending;
use crate::trace::LoopPosition;
use xrun_core::bounded::ledger::NO_CAP;
use xrun_core::files::{layout, write};
use xrun_core::heap;
use xrun_core::panics;
use xrun_core::settings::sections::CleanupAction;
use xrun_core::task::metric::Interval;
use xrun_core::task::{Phases, StepReport, Task};
use xrun_core::units::pluralize;
use xrun_results::format::{Best, ClassIndex, MetricsLine, Outcome, SamplePoint, VERSION};
use xrun_results::loss;
use xrun_results::verdict::{OWNER_PREFIX, SeriesVerdict, TrainingVerdictWord, VerdictWord};

/// Trains from the state of the session until there is a reason to stop.
///
/// # Errors
/// The data, the device or the disk fails, or another program changed a file of the run; in the latter case a checkpoint was
/// saved.
pub fn train(task: &mut dyn Task, session: &mut Session<'_>) -> Result<Ending, RunError> {
    let trained = train_to_end(task, session);
    if matches!(&trained, Err(RunError::Write(error)) if error.is_change()) {
        // The state counts the lines that went into a removed file, too: a resume says what is missing. Older checkpoints
        // stay, because the file may fit one of them. The change is the error to report.
        let _ = session.recorder.sync();
        let _ = checkpoint::save(task, &session.checkpoint_state(), &session.recorder.run, usize::MAX);
    }
    trained
}

fn train_to_end(task: &mut dyn Task, session: &mut Session<'_>) -> Result<Ending, RunError> {
    let plan = session.plan;
    task.set_run_directory(&session.recorder.run);
    ladder::resume(task, session);
    session.observer.event(Event::Started {
        run: &session.recorder.run,
        plan,
        device: &task.device_name(),
        step: session.state.step,
    });
    let reached = checked_sample(task, session, SamplePoint::Start, None, None)?;
    // If the first step is OOM-killed, this sample is all that shows what was held.
    session.recorder.sync()?;
    if let Some(ending) = reached.or_else(|| session.stop_request()) {
        return save_and_stop(task, session, ending);
    }
    if session.state.step == 0 && session.ladder.retries() {
        // A resume needs a checkpoint to repeat a step that does not fit.
        save(task, session, false)?;
    }
    let verb = if session.state.step == 0 { "starts" } else { "resumes" };
    let device = task.device_name();
    session
        .recorder
        .log(&format!("step {}: training {verb} on {device}; planned steps: {}", session.state.step, plan.steps))?;
    if !session.state.validated
        && validation_due(session)
        && let Some(ending) = validate(task, session)?
    {
        return save_and_stop(task, session, ending);
    }
    session.timer.start();
    while session.state.step < plan.steps {
        if let Some(ending) = session.requested_steps_done().or_else(|| session.stop_request()) {
            return save_and_stop(task, session, ending);
        }
        if let Some(ending) = early_stopping::ending(session) {
            return stop_early(task, session, ending);
        }
        let step = session.state.step + 1;
        if let Some(ending) = train_step(task, session, step)? {
            return Ok(ending);
        }
        let due = due(plan, step);
        if let Some(ending) = after_step(task, session, due)? {
            return save_and_stop(task, session, ending);
        }
        let stage = plan.facts.stage_ends.iter().filter(|end| **end < step).count();
        let occasional = session.clock.take_occasional();
        session.timer.end_step(stage, occasional);
    }
    // Everything is done and saved: a limit that is reached only now changes nothing.
    sample(task, session, SamplePoint::End, None)?;
    if session.is_probe() {
        measure_load(task, session)?;
    }
    early_stopping::restore_best(session)?;
    Ok(Ending::new(Outcome::Finished, format!("{} done", pluralize(plan.steps, "step"))))
}

/// Returns true if the current state is to be validated: that before the first step by `validation.at_start`, later ones by the calendar.
fn validation_due(session: &Session<'_>) -> bool {
    match session.state.step {
        step if step == session.state.began_at => session.plan.experiment.validation.at_start,
        step => due(session.plan, step).validate,
    }
}

/// Does one optimiser step. Returns an ending if training has diverged.
fn train_step(task: &mut dyn Task, session: &mut Session<'_>, step: u64) -> Result<Option<Ending>, RunError> {
    let plan = session.plan;
    let rate = rate(plan, step);
    let start_time = Instant::now();
    let report = task.train_step(step, rate, &mut session.clock)?;
    task.synchronise()?;
    session.check_device()?;
    for note in task.take_notes() {
        session.recorder.log(&format!("step {step}: {note}"))?;
    }
    session.clock.enter(LOOP);
    session.training += start_time.elapsed();
    session.step_finished();
    session.recorder.demand.step_done(report.kind);
    if let Some(what) = non_finite(&report) {
        return Ok(Some(diverged(session, step, what, &report)));
    }
    let state = &mut session.state;
    state.step = step;
    state.epoch = plan.epoch_of(step);
    state.validated = !due(plan, step).validate;
    state.items += report.items;
    state.loss_first.get_or_insert(report.loss);
    state.loss_last = Some(report.loss);
    loss::add(&mut state.losses, report.kind, report.loss, loss::averaging_window(Some(plan.steps)));
    session.norms.push(report.gradient_norm);
    let norm = session.norms.median();
    session.metrics(&MetricsLine::Train {
        step,
        epoch: session.state.epoch,
        batch: report.kind.to_owned(),
        loss: report.loss,
        learning_rate: Some(rate),
        gradient_norm: report.gradient_norm,
        gradient_norm_median: norm,
        values: report.values.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
    })?;
    if let Some(record) = session.allocations.step_done(step, step == plan.steps) {
        write::replace_json(&session.recorder.run.join(layout::ALLOCATIONS), &record)?;
        if let Some(message) = record.message() {
            session.recorder.log(&format!("step {step}: {message}"))?;
        }
    }
    let suspected = session.recorder.update_suspects(step);
    if suspected && !session.is_probe() {
        let recorder = &session.recorder;
        session.allocations.open(step, || growth_beyond_caps(&recorder.verdict().series));
    }
    if suspected && !session.growth_reported {
        let verdict = session.recorder.verdict();
        if verdict.verdict >= VerdictWord::Growing {
            session.growth_reported = true;
            session.recorder.log(&format!("step {step}: {}", verdict.message))?;
            session.observer.event(Event::Growing { step, verdict: &verdict });
        }
    }
    session.observer.event(Event::Step {
        step,
        epoch: session.state.epoch,
        report: &report,
        learning_rate: rate,
        norm,
        memory: session.recorder.newest.as_ref(),
        suspects: &session.recorder.suspects,
        left: session.left(true),
    });
    Ok(None)
}

/// Learning rate of a step.
pub(super) fn rate(plan: &Plan, step: u64) -> f64 {
    let experiment = &plan.experiment;
    let steps = Steps { count: plan.steps, stage_ends: &plan.facts.stage_ends };
    learning_rate(&experiment.training.schedule, experiment.optimizer.learning_rate(), step, steps)
}

fn non_finite(report: &StepReport) -> Option<&'static str> {
    if !report.loss.is_finite() {
        return Some("loss");
    }
    report.gradient_norm.filter(|norm| !norm.is_finite()).map(|_| "gradient norm")
}

/// Ending of a run whose loss or gradient norm is not finite: names the step, the batch and the last good checkpoint.
fn diverged(session: &Session<'_>, step: u64, what: &str, report: &StepReport) -> Ending {
    // A loss that is not finite comes from the weights that the step before left.
    let before = if report.loss.is_finite() { step } else { step.saturating_sub(1) };
    let mut older = xrun_results::read::checkpoints(&session.recorder.run).unwrap_or_default();
    older.retain(|(saved, _)| *saved < before);
    let good = match older.pop() {
        Some((saved, path)) => format!("the last good checkpoint is {} (step {saved})", path.display()),
        None => "there is no earlier checkpoint".into(),
    };
    let advice = match session.plan.experiment.training.clip_norm {
        None => "lower the learning rate or set `training.clip_norm`".to_owned(),
        Some(norm) => format!("lower the learning rate or `training.clip_norm` (now {norm})"),
    };
    Ending::new(
        Outcome::Diverged,
        format!(
            "the {what} of step {step} is not finite; the batch was {} ({}); {good}; {advice}",
            report.kind, report.batch
        ),
    )
}

/// Does what is due after a step: sample, validation, cleanup, checkpoint.
fn after_step(task: &mut dyn Task, session: &mut Session<'_>, due: Due) -> Result<Option<Ending>, RunError> {
    let cleanup = &session.plan.experiment.cleanup;
    let mut ending = None;
    if due.sample || session.is_short() {
        ending = checked_sample(task, session, SamplePoint::Step, None, None)?;
    }
    if ending.is_none() && due.validate {
        // Not after a signal: the checkpoint records that this validation is still due.
        ending = session.stop_request();
        if ending.is_none() {
            ending = validate(task, session)?;
        }
    }
    if due.clean || (due.validate && cleanup.after_validation) {
        sample(task, session, SamplePoint::BeforeCleanup, None)?;
        let freed = clean(task, &cleanup.actions, &mut session.clock);
        ending = checked_sample(task, session, SamplePoint::AfterCleanup, Some(freed), ending)?;
    }
    if due.save {
        save(task, session, false)?;
    }
    if due.epoch_ends {
        ending = checked_sample(task, session, SamplePoint::Epoch, None, ending)?;
    }
    Ok(ending)
}

/// Performs the cleanup actions in order; returns the number of bytes freed, as far as it is known.
pub(super) fn clean(task: &mut dyn Task, actions: &[CleanupAction], clock: &mut Clock) -> u64 {
    let freed = actions.iter().map(|action| {
        clock.enter(action.phase());
        perform(task, *action)
    });
    let freed = freed.sum();
    clock.enter(LOOP);
    freed
}

fn perform(task: &mut dyn Task, action: CleanupAction) -> u64 {
    if action != CleanupAction::Heap {
        return task.clean(action);
    }
    let before = sources::rss();
    heap::return_free_pages();
    before.zip(sources::rss()).map_or(0, |(before, after)| before.saturating_sub(after))
}

fn validate(task: &mut dyn Task, session: &mut Session<'_>) -> Result<Option<Ending>, RunError> {
    let step = session.state.step;
    session.timer.begin_part();
    let (left_after, left) = (session.left(true), session.left(false));
    session.observer.event(Event::Validating { step, left });
    if let Some(ending) = checked_sample(task, session, SamplePoint::BeforeValidation, None, None)? {
        return Ok(Some(ending));
    }
    session.clock.enter("validation");
    let mut phases = ValidationPhases::new(&mut session.clock, &mut *session.observer, step, left_after);
    let report = task.validate(&mut phases)?;
    let batches = phases.batches;
    task.synchronise()?;
    session.check_device()?;
    session.clock.enter(LOOP);
    let finite = |value: Option<f64>| value.filter(|value| value.is_finite());
    let metrics: std::collections::BTreeMap<String, Option<f64>> =
        report.metrics.iter().map(|(name, value)| (name.clone(), finite(*value))).collect();
    let intervals: std::collections::BTreeMap<String, Interval> = report.intervals.iter().cloned().collect();
    session.metrics(&MetricsLine::Validation {
        step,
        epoch: session.state.epoch,
        metrics: metrics.clone(),
        intervals: intervals.clone(),
    })?;
    images::write(&report, &session.recorder.run)?;
    if !report.classes.is_empty() {
        let index = ClassIndex { version: VERSION, classes: report.classes.clone() };
        write::replace_json(&session.recorder.run.join(layout::CLASSES), &index)?;
    }
    session.observer.event(Event::Validated { step, metrics: &report.metrics });
    let fields: Vec<String> = report
        .metrics
        .iter()
        .map(|(name, value)| match (value, intervals.get(name)) {
            (Some(value), Some(interval)) => format!("{name} {value:.4} ± {:.4}", interval.half_width),
            (Some(value), None) => format!("{name} {value:.4}"),
            (None, _) => format!("{name} -"),
        })
        .collect();
    session.recorder.log(&format!("step {step}: validation · {}", fields.join(" · ")))?;
    let is_first = step == session.state.began_at;
    if is_first {
        session.state.metrics_first.clone_from(&metrics);
    }
    if step > 0 {
        session.state.metrics_last = metrics;
        session.state.intervals_last = intervals;
    }
    session.state.validated = true;
    if step > 0 {
        early_stopping::record_validation(session);
    }
    drop(report);
    let ending = checked_sample(task, session, SamplePoint::AfterValidation, None, None)?;
    session.timer.end_validation(&batches, is_first);
    report_divergence(session)?;
    if step > 0 && update_best(session) {
        save(task, session, true)?;
    }
    Ok(ending)
}

/// Notifies the observer once if training diverges.
fn report_divergence(session: &mut Session<'_>) -> Result<(), RunError> {
    if session.divergence_reported {
        return Ok(());
    }
    let Some(verdict) =
        session.recorder.training_verdict(None).filter(|verdict| verdict.verdict == TrainingVerdictWord::Diverged)
    else {
        return Ok(());
    };
    session.divergence_reported = true;
    let step = session.state.step;
    session.recorder.log(&format!("step {step}: {}: {}", verdict.verdict.words(), verdict.message))?;
    session.observer.event(Event::Diverging { step, verdict: &verdict });
    Ok(())
}

/// Makes the newest validation the best one unless it is worse; returns whether it is.
fn update_best(session: &mut Session<'_>) -> bool {
    let Some((metric, direction)) = session.best_by.clone() else { return false };
    let Some(value) = session.state.metrics_last.get(&metric).copied().flatten() else { return false };
    let improved = session.state.best.as_ref().is_none_or(|best| direction.replaces(value, best.value));
    if improved {
        session.state.best = Some(Best { metric, value, step: session.state.step });
    }
    improved
}

fn save(task: &mut dyn Task, session: &mut Session<'_>, best: bool) -> Result<(), RunError> {
    let this = (session.state.step, session.state.validated);
    if session.saved == Some(this) {
        return Ok(()); // as the best one, a moment ago
    }
    session.timer.begin_part();
    session.clock.enter("checkpoint");
    // Lines first: a resume truncates the metrics to the checkpoint, which needs all lines up to it.
    session.directory.check_held()?;
    session.recorder.sync()?;
    let state = session.checkpoint_state();
    checkpoint::save(task, &state, &session.recorder.run, session.plan.experiment.checkpoint.keep_last)?;
    session.saved = Some(this);
    session.clock.enter(LOOP);
    session.observer.event(Event::Saved { step: state.step, best });
    session.recorder.log(&format!("step {}: checkpoint{}", state.step, if best { ", the best so far" } else { "" }))?;
    sample(task, session, SamplePoint::Checkpoint, None)?;
    session.timer.end_checkpoint();
    Ok(())
}

/// Ends a run that can be resumed: with a checkpoint.
fn save_and_stop(task: &mut dyn Task, session: &mut Session<'_>, ending: Ending) -> Result<Ending, RunError> {
    save(task, session, false)?;
    sample(task, session, SamplePoint::End, None)?;
    if session.is_probe() {
        measure_load(task, session)?;
        ladder::measure(task, session)?;
    }
    Ok(ending)
}

/// Loads the checkpoint that was just written, to measure the memory that a resume needs. A failure is ignored: all other
/// measurements are valid, and a resume reports the reason.
fn measure_load(task: &mut dyn Task, session: &mut Session<'_>) -> Result<(), RunError> {
    let path = layout::checkpoint(&session.recorder.run, session.state.step);
    let loaded = panics::caught(|| task.load(&path).and_then(|()| task.synchronise()));
    if matches!(loaded, Ok(Ok(()))) {
        session.recorder.demand.checkpoint_loaded();
        sample(task, session, SamplePoint::End, None)?;
    }
    Ok(())
}

/// Ends a run that no longer improves, with the best checkpoint as the newest one or with both.
fn stop_early(task: &mut dyn Task, session: &mut Session<'_>, ending: Ending) -> Result<Ending, RunError> {
    if !early_stopping::restore_best(session)? {
        save(task, session, false)?;
    }
    sample(task, session, SamplePoint::End, None)?;
    Ok(ending)
}

/// Measures memory; returns the ending so far, or else that of a limit that is reached, with its post-mortem, unless the last
/// step is done.
fn checked_sample(
    task: &mut dyn Task,
    session: &mut Session<'_>,
    point: SamplePoint,
    freed: Option<u64>,
    ending: Option<Ending>,
) -> Result<Option<Ending>, RunError> {
    let reached = sample(task, session, point, freed)?;
    if ending.is_some() || session.state.step >= session.plan.steps {
        return Ok(ending);
    }
    ladder::at_rest(task, session, reached)
}

/// Measures memory; returns the limit that is reached, if any.
pub(super) fn sample(
    task: &mut dyn Task,
    session: &mut Session<'_>,
    point: SamplePoint,
    freed: Option<u64>,
) -> Result<Option<LimitReached>, RunError> {
    let began = Instant::now();
    session.clock.enter("trace");
    let left = session.left(point != SamplePoint::BeforeValidation);
    let position = LoopPosition { step: session.state.step, epoch: session.state.epoch, point, freed, left };
    session.recorder.sample(task, &mut session.clock, position)?;
    let Some(line) = &session.recorder.newest else { return Ok(None) };
    session.limits.refresh(line, session.ladder.is_on());
    let demand = &session.recorder.demand;
    let reached = session.limits.reached(line, &demand.so_far, demand.working + demand.growth);
    session.ladder.add(line);
    session.clock.enter(LOOP);
    if session.is_probe() {
        // A probe reads the slow sources at each sample.
        session.timer.leave_out(began.elapsed());
    }
    Ok(reached)
}

/// Growth of the heap in bytes per step, without that of buffers with a cap, which ends; `None` if it is unknown or nothing is left.
fn growth_beyond_caps(series: &[SeriesVerdict]) -> Option<f64> {
    let heap = series.iter().find(|one| one.name == "heap")?.findings.slope?;
    let is_capped =
        |one: &&SeriesVerdict| one.name.starts_with(OWNER_PREFIX) && one.cap.is_some_and(|cap| cap < NO_CAP.bytes);
    let capped = series.iter().filter(is_capped).filter_map(|one| one.findings.slope);
    Some(heap - capped.map(|slope| slope.max(0.0)).sum::<f64>()).filter(|growth| *growth > 0.0)
}
