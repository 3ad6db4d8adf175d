//! Does the run still get better? If not for long enough, it ends, and may go back to its best checkpoint.
//!
//! What is waited for is part of the loop's state, and so of each checkpoint: a run that was killed and resumed stops at the
//! same step.

use super::RunError;
use super::session::Session;
use xrun_core::files::{layout, write};
use xrun_results::format::Outcome;
use xrun_results::read;
use xrun_watch::stop::Ending;

/// Counts the newest validation.
pub fn count(session: &mut Session<'_>) {
    let settings = &session.plan.experiment.training.early_stopping;
    let Some((metric, better)) = session.best_by.clone().filter(|_| settings.patience.is_some()) else { return };
    let value = session.state.metrics_last.get(&metric).copied().flatten();
    session.state.early_stopping.get_or_insert_default().count(value, better, settings.minimum_change);
}

/// The ending of a run that has waited long enough. Not of one that was asked to do so many steps, such as a probe.
pub fn reached(session: &Session<'_>) -> Option<Ending> {
    let settings = &session.plan.experiment.training.early_stopping;
    let (patience, waiting) = settings.patience.zip(session.state.early_stopping.as_ref())?;
    if session.stop_after.is_some() || waiting.validations < patience {
        return None;
    }
    let (metric, _) = session.best_by.as_ref()?;
    let enough = match settings.minimum_change {
        0.0 => String::new(),
        change => format!(" by more than {change}"),
    };
    let best = session.state.best.as_ref();
    let best = best.map_or_else(String::new, |best| format!("; it was best at step {} ({:.4})", best.step, best.value));
    let validations = match patience {
        1 => "1 validation".to_owned(),
        many => format!("{many} validations"),
    };
    let message = format!(
        "stopped early after step {} of {}: `{metric}` did not get better{enough} in {validations}{best}",
        session.state.step, session.plan.steps
    );
    Some(Ending::new(Outcome::StoppedEarly, message))
}

/// Removes the checkpoints after the best one, if the experiment asks for it; says whether the best is the newest now.
///
/// # Errors
/// A checkpoint cannot be removed.
pub fn restore_best(session: &mut Session<'_>) -> Result<bool, RunError> {
    let settings = &session.plan.experiment.training.early_stopping;
    let asked = settings.patience.is_some() && settings.restore_best && session.stop_after.is_none();
    let Some(best) = session.state.best.as_ref().filter(|_| asked).map(|best| best.step) else { return Ok(false) };
    let run = &session.recorder.run;
    let checkpoints = read::checkpoints(run);
    if !checkpoints.iter().any(|(step, _)| *step == best) {
        return Ok(false);
    }
    // Newest first: after a kill in between, a resume goes on from the newest that is left, and comes to the same end.
    for (_, path) in checkpoints.iter().rev().filter(|(step, _)| *step > best) {
        write::at(path, std::fs::remove_dir_all(path))?;
    }
    session.restored = Some(best);
    let newest = layout::checkpoint(run, best);
    let newest = newest.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let step = session.state.step;
    session.recorder.log(&format!("step {step}: the best checkpoint, {newest}, is the newest now"))?;
    Ok(true)
}
