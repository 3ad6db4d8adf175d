//! What is said of a sweep that searches, and what it cannot do.

use super::terminal::Failure;
use crate::experiment::sweep::{Mode, Sweep};
use crate::results::search::{Method, Search};

/// `up to 40 points, chosen by score (higher is better)`, and where runs stop.
pub fn words(search: &Search) -> String {
    let Search { metric, better, samples, method } = search;
    let by = format!("by `{metric}`, of which {} is better", better.words());
    match method {
        Method::Asha { rungs, reduction_factor } => {
            let rungs: Vec<String> = rungs.iter().map(u64::to_string).collect();
            format!(
                "{samples} points, of which one in {reduction_factor} goes on {by}; rungs after {} steps",
                rungs.join(", ")
            )
        }
        Method::Tpe { startup, .. } => {
            format!("{samples} points, the first {} drawn and the others chosen {by}", startup.min(samples))
        }
    }
}

/// The first rung of a sweep that was made as short as `steps`, at the same share of the way.
pub fn shortened(sweep: &Sweep, whole: u64, steps: u64) -> Option<String> {
    let first = sweep.asha.min_steps.filter(|_| sweep.mode == Mode::Asha && steps < whole)?;
    // Rounded up, so that there are not more rungs than before: too few points might come to the last.
    let share = (u128::from(first) * u128::from(steps)).div_ceil(u128::from(whole));
    Some(format!("sweep.asha.min_steps={}", share.max(1)))
}

/// Refuses what only a sweep on this machine does.
pub fn refuse_slurm(mode: &str) -> Result<(), Failure> {
    match [Mode::Asha, Mode::Tpe].iter().any(|search| search.word() == mode) {
        false => Ok(()),
        true => Err(Failure::Usage(format!(
            "--launcher slurm submits all runs at once, and mode {mode} decides by results which run is next; run it on this \
             machine or inside one job (`--launcher local`, with --jobs N), or write mode = \"random\""
        ))),
    }
}
