//! The main flow: what happens from the first step to the last?
//!
//! ```text
//! validate the untrained model
//! for each step:  train -> write metrics -> sample memory -> validate if due -> clean if due -> save if due
//! ```
//! Reads top to bottom. What falls due when is the calendar's; what is kept between steps is numbers.

use std::time::Instant;

use super::clock::{Clock, LOOP};
use super::limits::Reached;
use super::observer::Event;
use super::recorder::At;
use super::schedule::{Steps, learning_rate};
use super::session::Session;
use super::{RunError, checkpoint, early_stopping, pictures};
use crate::plan::calendar::{Due, due};
use xrun_core::files::layout;
use xrun_core::heap;
use xrun_core::panics;
use xrun_core::settings::sections::CleanupAction;
use xrun_core::task::metric::Interval;
use xrun_core::task::{Phases, StepReport, Task};
use xrun_results::format::{Best, MetricsLine, Outcome, Point};
use xrun_results::loss;
use xrun_results::verdict::Judgement;
use xrun_watch::memory::sources;
use xrun_watch::stop::{Ending, StopSignal};

/// Trains from where the session stands until there is a reason to stop.
///
/// # Errors
/// The data, the device or the disk fails.
pub fn train(task: &mut dyn Task, session: &mut Session<'_>) -> Result<Ending, RunError> {
    let plan = session.plan;
    task.leave_files_in(&session.recorder.run);
    session.observer.event(Event::Started {
        run: &session.recorder.run,
        plan,
        device: &task.device_name(),
        step: session.state.step,
    });
    let reached = sample(task, session, Point::Start, None)?;
    // A first step that is too large leaves nothing else to say what was held when it was killed.
    session.recorder.sync()?;
    if let Some(ending) = limited(task, session, reached)? {
        return stopped(task, session, ending);
    }
    if let Some(ending) = session.asked_to_stop() {
        return stopped(task, session, ending);
    }
    let words = if session.state.step == 0 { "training starts" } else { "training goes on" };
    let device = task.device_name();
    session
        .recorder
        .log(&format!("step {}: {words} on {device}; {} steps are planned", session.state.step, plan.steps))?;
    if !session.state.validated
        && validation_due(session)
        && let Some(ending) = validate(task, session)?
    {
        return stopped(task, session, ending);
    }
    while session.state.step < plan.steps {
        if let Some(ending) = session.far_enough().or_else(|| session.asked_to_stop()) {
            return stopped(task, session, ending);
        }
        if let Some(ending) = early_stopping::reached(session) {
            return stopped_early(task, session, ending);
        }
        let step = session.state.step + 1;
        if let Some(ending) = train_step(task, session, step)? {
            return Ok(ending);
        }
        if !session.tuned {
            session.tuned = true;
            settle(task, session);
        }
        let due = due(plan, step);
        if let Some(ending) = after_step(task, session, due)? {
            return stopped(task, session, ending);
        }
    }
    // All is done and saved: a limit that is reached only now stops nothing.
    sample(task, session, Point::End, None)?;
    if session.is_probe() {
        load_again(task, session)?;
    }
    early_stopping::restore_best(session)?;
    Ok(Ending::new(Outcome::Finished, format!("all {} steps are done", plan.steps)))
}

/// The untrained model is looked at when the file says so; later states when the calendar does.
fn validation_due(session: &Session<'_>) -> bool {
    match session.state.step {
        0 => session.plan.experiment.validation.at_start,
        step => due(session.plan, step).validate,
    }
}

/// One optimiser step. An ending says that there is no sense in going on.
fn train_step(task: &mut dyn Task, session: &mut Session<'_>, step: u64) -> Result<Option<Ending>, RunError> {
    let plan = session.plan;
    let experiment = &plan.experiment;
    let steps = Steps { count: plan.steps, phase_ends: &plan.facts.phase_ends };
    let rate = learning_rate(&experiment.training.schedule, experiment.optimizer.learning_rate(), step, steps);
    let begun = Instant::now();
    let report = task.train_step(step, rate, &mut session.clock)?;
    task.synchronise()?;
    session.device_is_well()?;
    session.clock.enter(LOOP);
    session.training += begun.elapsed();
    session.stepped();
    if let Some(what) = not_a_number(&report) {
        return Ok(Some(diverged(session, step, what, &report)));
    }
    let state = &mut session.state;
    state.step = step;
    state.epoch = plan.epoch_of(step);
    state.validated = !due(plan, step).validate;
    state.items += report.items;
    state.loss_first.get_or_insert(report.loss);
    state.loss_last = Some(report.loss);
    loss::add(&mut state.losses, report.kind, report.loss, loss::averaged_over(Some(plan.steps)));
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
    let suspected = session.recorder.suspect(step);
    if suspected && !session.growing_told && !session.plan.experiment.hooks.on_growing.is_empty() {
        let verdict = session.recorder.verdict();
        if verdict.verdict >= Judgement::Growing {
            session.growing_told = true;
            session.observer.event(Event::Growing { step, verdict: &verdict });
        }
    }
    let (memory, suspects) = session.recorder.seen();
    session.observer.event(Event::Step {
        step,
        epoch: session.state.epoch,
        report: &report,
        learning_rate: rate,
        norm,
        memory,
        suspects,
    });
    Ok(None)
}

/// The first step of a process on a device tunes its operations, and so does the first validation: several ways of each are
/// tried, which take pages that are not needed later. They go back before the first sample, so that what is measured is what
/// a step and a validation need.
fn settle(task: &mut dyn Task, session: &mut Session<'_>) {
    if let Some(pool) = task.device_memory() {
        session.recorder.tuned(pool.reserved);
        clean(task, &[CleanupAction::DevicePool], &mut session.clock);
    }
}

fn not_a_number(report: &StepReport) -> Option<&'static str> {
    if !report.loss.is_finite() {
        return Some("loss");
    }
    report.gradient_norm.filter(|norm| !norm.is_finite()).map(|_| "gradient norm")
}

/// Names the step, the batch and the last good checkpoint.
fn diverged(session: &Session<'_>, step: u64, what: &str, report: &StepReport) -> Ending {
    // A loss that is not finite comes from the weights that the step before left.
    let before = if report.loss.is_finite() { step } else { step.saturating_sub(1) };
    let mut older = xrun_results::read::checkpoints(&session.recorder.run);
    older.retain(|(saved, _)| *saved < before);
    let good = match older.pop() {
        Some((saved, path)) => format!("the last good checkpoint is {} (step {saved})", path.display()),
        None => "there is no checkpoint from before that".into(),
    };
    let advice = match session.plan.experiment.training.clip_norm {
        None => "lower the learning rate or set `training.clip_norm`".to_owned(),
        Some(norm) => format!("lower the learning rate or `training.clip_norm`, which is {norm}"),
    };
    Ending::new(
        Outcome::Diverged,
        format!(
            "the {what} of step {step} is not a finite number; the batch was {} ({}); {good}; {advice}",
            report.kind, report.batch
        ),
    )
}

/// What the calendar says for the step just done.
fn after_step(task: &mut dyn Task, session: &mut Session<'_>, due: Due) -> Result<Option<Ending>, RunError> {
    let cleanup = &session.plan.experiment.cleanup;
    let mut ending = None;
    if due.sample {
        let reached = sample(task, session, Point::Step, None)?;
        ending = limited(task, session, reached)?;
    }
    if ending.is_none() && due.validate {
        // Not after a first signal: the checkpoint says that this validation is still due.
        ending = session.asked_to_stop();
        if ending.is_none() {
            ending = validate(task, session)?;
        }
    }
    if due.clean || (due.validate && cleanup.after_validation) {
        sample(task, session, Point::BeforeCleanup, None)?;
        let freed = clean(task, &cleanup.actions, &mut session.clock);
        let reached = sample(task, session, Point::AfterCleanup, Some(freed))?;
        if ending.is_none() {
            ending = limited(task, session, reached)?;
        }
    }
    let asked = !session.is_probe() && StopSignal::take_checkpoint_request();
    if asked {
        session.recorder.log(&format!("step {}: SIGUSR1 asks for a checkpoint", session.state.step))?;
    }
    if due.save || asked {
        save(task, session, false)?;
    }
    if due.epoch_ends {
        let reached = sample(task, session, Point::Epoch, None)?;
        if ending.is_none() {
            ending = limited(task, session, reached)?;
        }
    }
    Ok(ending)
}

/// Performs the actions in their order; returns the bytes given back, as far as that is known.
fn clean(task: &mut dyn Task, actions: &[CleanupAction], clock: &mut Clock) -> u64 {
    clock.enter("cleanup");
    let freed = actions.iter().map(|action| perform(task, *action)).sum();
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
    session.observer.event(Event::Validating { step });
    let reached = sample(task, session, Point::BeforeValidation, None)?;
    if let Some(ending) = limited(task, session, reached)? {
        return Ok(Some(ending));
    }
    session.clock.enter("validation");
    let report = task.validate(&mut session.clock)?;
    task.synchronise()?;
    session.device_is_well()?;
    if !session.tuned_validation {
        session.tuned_validation = true;
        settle(task, session);
    }
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
    pictures::keep(&report, &session.recorder.run)?;
    session.observer.event(Event::Validated { step, metrics: &report.metrics });
    let words: Vec<String> = report
        .metrics
        .iter()
        .map(|(name, value)| match (value, intervals.get(name)) {
            (Some(value), Some(interval)) => format!("{name} {value:.4} ± {:.4}", interval.half_width),
            (Some(value), None) => format!("{name} {value:.4}"),
            (None, _) => format!("{name} -"),
        })
        .collect();
    session.recorder.log(&format!("step {step}: validation · {}", words.join(" · ")))?;
    if step == 0 {
        session.state.metrics_first = metrics;
    } else {
        session.state.metrics_last = metrics;
        session.state.intervals_last = intervals;
    }
    session.state.validated = true;
    if step > 0 {
        early_stopping::count(session);
    }
    drop(report);
    let reached = sample(task, session, Point::AfterValidation, None)?;
    let ending = limited(task, session, reached)?;
    if step > 0 && better_than_before(session) {
        save(task, session, true)?;
    }
    Ok(ending)
}

/// Compares the newest validation with the best one, and remembers it if it is better.
fn better_than_before(session: &mut Session<'_>) -> bool {
    let Some((metric, better)) = session.best_by.clone() else { return false };
    let Some(value) = session.state.metrics_last.get(&metric).copied().flatten() else { return false };
    let improved = session.state.best.as_ref().is_none_or(|best| better.prefers(value, best.value));
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
    session.clock.enter("checkpoint");
    // Lines first: a resume cuts the metrics back to the checkpoint, so they must reach as far.
    session.recorder.sync()?;
    let state = session.checkpoint_state();
    checkpoint::save(task, &state, &session.recorder.run, session.plan.experiment.checkpoint.keep_last)?;
    session.saved = Some(this);
    session.clock.enter(LOOP);
    session.observer.event(Event::Saved { step: state.step, best });
    session.recorder.log(&format!("step {}: checkpoint{}", state.step, if best { ", the best so far" } else { "" }))?;
    sample(task, session, Point::Checkpoint, None)?;
    Ok(())
}

/// Ends in good order: what was done so far is saved and can be continued.
fn stopped(task: &mut dyn Task, session: &mut Session<'_>, ending: Ending) -> Result<Ending, RunError> {
    save(task, session, false)?;
    sample(task, session, Point::End, None)?;
    if session.is_probe() {
        load_again(task, session)?;
    }
    Ok(ending)
}

/// What does it take to read the checkpoint that was just written? A resume needs that memory, too. A probe that cannot read
/// it has measured everything else all the same: a resume says better why not.
fn load_again(task: &mut dyn Task, session: &mut Session<'_>) -> Result<(), RunError> {
    let place = layout::checkpoint(&session.recorder.run, session.state.step);
    let loaded = panics::caught(|| task.load(&place).and_then(|()| task.synchronise()));
    if matches!(loaded, Ok(Ok(()))) {
        session.recorder.loaded();
        sample(task, session, Point::End, None)?;
    }
    Ok(())
}

/// Ends a run that no longer gets better: with the best checkpoint as its newest, or with both.
fn stopped_early(task: &mut dyn Task, session: &mut Session<'_>, ending: Ending) -> Result<Ending, RunError> {
    if !early_stopping::restore_best(session)? {
        save(task, session, false)?;
    }
    sample(task, session, Point::End, None)?;
    Ok(ending)
}

/// The ending of a limit that is reached, with its post-mortem. After the last step it stops nothing.
fn limited(task: &dyn Task, session: &mut Session<'_>, reached: Option<Reached>) -> Result<Option<Ending>, RunError> {
    let reached = reached.filter(|_| session.state.step < session.plan.steps);
    reached.map(|reached| session.limit_reached(&reached, task.parameters())).transpose()
}

/// Measures memory; says which limit is reached, if one is.
fn sample(
    task: &mut dyn Task,
    session: &mut Session<'_>,
    point: Point,
    freed: Option<u64>,
) -> Result<Option<Reached>, RunError> {
    session.clock.enter("trace");
    let at = At { step: session.state.step, epoch: session.state.epoch, point, freed };
    session.recorder.sample(task, &mut session.clock, at)?;
    let (line, needed) = (session.recorder.seen().0, session.recorder.needed());
    let reached = line.and_then(|line| session.bounds.reached(line, needed));
    session.clock.enter(LOOP);
    Ok(reached)
}
