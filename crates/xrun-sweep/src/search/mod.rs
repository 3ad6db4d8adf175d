//! Searches: sweeps whose trials, or their length, follow from results.
//!
//! `asha` and `tpe` are pure functions of results; `scheduler` reads these from the run directories.

pub mod asha;
pub mod progress;
pub mod proposals;
pub mod rungs;
pub mod scheduler;
pub mod tpe;

use crate::records::search::{Dimension, Search, SearchMethod};
use crate::records::sweep::SweepRecord;
use xrun_core::experiment::axes::{Axis, AxisValues};
use xrun_core::experiment::check_search;
use xrun_core::experiment::read_sweep::SweepFile;
use xrun_core::experiment::sweep;

/// The values of each key.
pub fn space(axes: &[Axis]) -> Vec<Dimension> {
    let of = |axis: &Axis| match &axis.values {
        AxisValues::List(list) => Dimension::Choice(list.iter().map(|swept| swept.value.clone()).collect()),
        AxisValues::Range(range) => Dimension::Range(range.numbers()),
    };
    axes.iter().map(of).collect()
}

/// The search of a sweep; `None` for a sweep that runs all its trials in any case. `rungs` are those of method `asha`.
pub fn search_from(sweep_file: &SweepFile, rungs: &[u64]) -> Option<Search> {
    let sweep = &sweep_file.sweep;
    let method = match sweep.method {
        sweep::SweepMethod::Grid | sweep::SweepMethod::Zip | sweep::SweepMethod::Random => return None,
        sweep::SweepMethod::Asha => {
            SearchMethod::Asha { rungs: rungs.to_vec(), reduction_factor: sweep.asha.reduction_factor }
        }
        sweep::SweepMethod::Tpe => SearchMethod::Tpe {
            startup: sweep.tpe.startup_trials,
            gamma: sweep.tpe.gamma,
            candidates: sweep.tpe.candidates,
            space: space(&sweep_file.axes),
        },
    };
    Some(Search {
        metric: sweep.metric.clone()?,
        direction: check_search::direction(&sweep_file.base, sweep)?,
        trials: sweep.trials?,
        method,
    })
}

/// Returns the sweep with all trials that are known before the first result. For `tpe` these are the random startup trials,
/// including those that are not proposed yet.
pub fn with_known_trials(record: &SweepRecord) -> SweepRecord {
    let Some(Search { method: SearchMethod::Tpe { startup, gamma, candidates, space }, trials: samples, .. }) =
        &record.search
    else {
        return record.clone();
    };
    let settings = tpe::Settings { seed: record.seed, startup: *startup, gamma: *gamma, candidates: *candidates };
    SweepRecord { trials: tpe::startup_trials(space, settings, *samples, &record.trials), ..record.clone() }
}
