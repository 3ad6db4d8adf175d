//! Early stopping: a run that has not improved for `patience` validations ends, and may be restored to its best checkpoint.
//!
//! The count of validations is part of each checkpoint: a run that was killed and resumed stops at the same step.

use super::RunError;
use super::checkpoint::{self, UnusableCheckpoint};
use super::session::Session;
use crate::stop::Ending;
use xrun_core::files::layout;
use xrun_core::units::pluralize;
use xrun_results::format::Outcome;
use xrun_results::read;

/// Compares the newest validation with the best one and counts it if it is no better.
pub fn record_validation(session: &mut Session<'_>) {
    let settings = &session.plan.experiment.training.early_stopping;
    let Some((metric, direction)) = session.best_by.clone().filter(|_| settings.patience.is_some()) else { return };
    let value = session.state.metrics_last.get(&metric).copied().flatten();
    session.state.early_stopping.get_or_insert_default().count(value, direction, settings.min_delta);
}

/// Ending of a run whose patience is exhausted; `None` for a probe, which always does all its steps.
pub fn ending(session: &Session<'_>) -> Option<Ending> {
    let settings = &session.plan.experiment.training.early_stopping;
    let (patience, waiting) = settings.patience.zip(session.state.early_stopping.as_ref())?;
    if session.is_probe() || waiting.validations < patience {
        return None;
    }
    let (metric, _) = session.best_by.as_ref()?;
    let min_delta = match settings.min_delta {
        0.0 => String::new(),
        change => format!(" by more than {change}"),
    };
    let best = session.state.best.as_ref();
    let best = best.map_or_else(String::new, |best| format!("; best at step {} ({:.4})", best.step, best.value));
    let message = format!(
        "stopped early after step {} of {}: `{metric}` did not improve{min_delta} in {}{best}",
        session.state.step,
        session.plan.steps,
        pluralize(patience, "validation")
    );
    Some(Ending::new(Outcome::StoppedEarly, message))
}

/// Removes the checkpoints after the best one if `restore_best` is set; returns true if the best is the newest now.
///
/// # Errors
/// A checkpoint cannot be removed.
pub fn restore_best(session: &mut Session<'_>) -> Result<bool, RunError> {
    let settings = &session.plan.experiment.training.early_stopping;
    let enabled = settings.patience.is_some() && settings.restore_best && !session.is_probe();
    let Some(best) = session.state.best.as_ref().filter(|_| enabled).map(|best| best.step) else { return Ok(false) };
    let run = &session.recorder.run.clone();
    let checkpoints = read::checkpoints(run).unwrap_or_default();
    let manifest = read::manifest(run).map_err(UnusableCheckpoint::from);
    // Verified first: the others are its only replacement.
    match manifest.and_then(|manifest| checkpoint::verify(&layout::checkpoint(run, best), best, &manifest)) {
        Ok(_) => {}
        Err(UnusableCheckpoint::Read(error)) if error.is_missing() => return Ok(false),
        Err(error) => {
            session.recorder.log(&format!("all checkpoints are kept, because the best cannot be used: {error}"))?;
            return Ok(false);
        }
    }
    // Newest first: after a kill in between, a resume continues from the newest that is left and stops at the same step.
    for (_, path) in checkpoints.iter().rev().filter(|(step, _)| *step > best) {
        checkpoint::remove(path)?;
    }
    session.restored = Some(best);
    let newest = layout::checkpoint(run, best);
    let newest = newest.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let step = session.state.step;
    session.recorder.log(&format!("step {step}: restored the best checkpoint, {newest}"))?;
    Ok(true)
}
