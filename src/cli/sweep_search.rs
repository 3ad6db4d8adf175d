//! What is said of a sweep that searches.

use crate::experiment::launcher::Slurm;
use crate::experiment::sweep::{Mode, Sweep};
use crate::sweep::records::search::{Method, Search};
use crate::sweep::records::sweep::Record;
use crate::sweep::search::with_known_points;
use crate::sweep::slurm::launcher::SEARCH_JOBS;

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

/// What Slurm is asked for by, with the points that are known: a search says how many jobs there are at once.
pub fn for_slurm(record: &Record, settings: Option<Slurm>) -> (Record, Option<Slurm>) {
    if record.search.is_none() {
        return (record.clone(), settings);
    }
    let mut settings = settings.unwrap_or_default();
    settings.array_limit.get_or_insert(SEARCH_JOBS);
    (with_known_points(record), Some(settings))
}
