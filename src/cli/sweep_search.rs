//! Messages and settings of a sweep that searches.

use crate::experiment::launcher::Slurm;
use crate::sweep::records::search::{Search, SearchMethod};
use crate::sweep::records::sweep::SweepRecord;
use crate::sweep::search::with_known_trials;
use crate::sweep::slurm::launcher::SEARCH_JOBS;

/// `9 trials, one in 3 promoted by `score` (higher is direction); rungs after 8, 24, 72 steps`.
pub fn description(search: &Search) -> String {
    let Search { metric, direction, trials, method } = search;
    let by = format!("by `{metric}` ({} is better)", direction.words());
    match method {
        SearchMethod::Asha { rungs, reduction_factor } => {
            let rungs: Vec<String> = rungs.iter().map(u64::to_string).collect();
            format!("{trials} trials, one in {reduction_factor} promoted {by}; rungs after {} steps", rungs.join(", "))
        }
        SearchMethod::Tpe(tpe) => {
            format!("{trials} trials, the first {} at random and the others chosen {by}", tpe.startup.min(*trials))
        }
    }
}

/// The sweep with all trials that are known, and the Slurm settings with the number of jobs of a search.
pub fn for_slurm(record: &SweepRecord, settings: Option<Slurm>) -> (SweepRecord, Option<Slurm>) {
    if record.search.is_none() {
        return (record.clone(), settings);
    }
    let mut settings = settings.unwrap_or_default();
    settings.array_limit.get_or_insert(SEARCH_JOBS);
    (with_known_trials(record), Some(settings))
}
