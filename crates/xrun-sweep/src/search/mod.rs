//! Searches: sweeps whose trials, or their length, follow from results.
//!
//! `asha` and `tpe` are pure functions of results; `crate::scheduler` reads these from the run directories.

pub mod asha;
pub mod progress;
pub mod proposals;
pub mod rungs;
pub mod tpe;

use crate::records::search::{Dimension, Search, SearchMethod, TpeSearch};
use crate::records::sweep::SweepRecord;
use xrun_core::experiment::axes::{Axis, AxisValues};
use xrun_core::experiment::check_search;
use xrun_core::experiment::read_sweep::SweepFile;
use xrun_core::experiment::sweep::{self, Tpe};

/// The settings of method `tpe`, with the values of each key.
pub fn tpe_search(SweepFile { sweep, axes, .. }: &SweepFile) -> TpeSearch {
    let dimension = |axis: &Axis| match &axis.values {
        AxisValues::List(list) => Dimension::Choice(list.iter().map(|swept| swept.value.clone()).collect()),
        AxisValues::Range(range) => Dimension::Range(range.numbers()),
    };
    let Tpe { startup_trials: startup, gamma, candidates } = sweep.tpe;
    TpeSearch { startup, gamma, candidates, space: axes.iter().map(dimension).collect() }
}

/// The search of a sweep; `None` for a sweep that runs all its trials in any case. `rungs` are those of method `asha`.
pub fn search_from(sweep_file: &SweepFile, rungs: &[u64]) -> Option<Search> {
    let sweep = &sweep_file.sweep;
    let method = match sweep.method {
        sweep::SweepMethod::Grid | sweep::SweepMethod::Zip | sweep::SweepMethod::Random => return None,
        sweep::SweepMethod::Asha => {
            SearchMethod::Asha { rungs: rungs.to_vec(), reduction_factor: sweep.asha.reduction_factor }
        }
        sweep::SweepMethod::Tpe => SearchMethod::Tpe(tpe_search(sweep_file)),
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
    let Some((search, tpe)) = record.search.as_ref().and_then(|search| Some((search, search.tpe()?))) else {
        return record.clone();
    };
    let trials = tpe::startup_trials(tpe, record.seed, search.trials, &record.trials);
    SweepRecord { trials, ..record.clone() }
}
